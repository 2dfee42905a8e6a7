#include "runtime/cache/disk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "braze/error.h"
#include "tests/runtime/cache_support.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kNumber = 5;  // an entry of 39 KiB

class DiskCacheTest : public testing::Test {
 protected:
  DiskCache open(CacheMode mode = CacheMode::On, uint64_t max_bytes = uint64_t{1} << 30) {
    return DiskCache({mode, folder(), max_bytes},
                     [this](const std::string& text) { warnings_.push_back(text); });
  }
  fs::path folder() const { return temporary_.path / "cache"; }
  fs::path file_of(const CacheKey& key) const { return folder() / key.name(); }

  /// An entry of a few bytes, so that every byte of it can be tried.
  static constexpr std::string_view kSmall = "the payload";
  void make_small() { open().store(key_of(0), kSmall); }

  void expect_warning(const std::string& text, const std::string& fix = "") {
    ASSERT_THAT(warnings_, SizeIs(1));
    EXPECT_THAT(warnings_[0], AllOf(HasSubstr(text), HasSubstr(fix)));
  }

  /// A folder that is refused: nothing is read from it or written to it, and it is said once.
  void expect_off(const std::string& why, const std::string& fix) {
    DiskCache cache = open();
    EXPECT_FALSE(cache.enabled());
    cache.store(key_of(0), kSmall);
    EXPECT_EQ(cache.load(key_of(0)), std::nullopt);
    cache.remove(key_of(0));
    expect_warning(why, fix);
    warnings_.clear();
  }

  /// The entry of make_small is a miss, and is replaced.
  void expect_refused(const std::string& what) {
    DiskCache cache = open();
    EXPECT_EQ(cache.load(key_of(0)), std::nullopt) << what;
    EXPECT_EQ(cache.stats().faulty, 1u) << what;
    cache.store(key_of(0), kSmall);
    EXPECT_EQ(cache.load(key_of(0)), kSmall) << what;
  }

  TemporaryFolder temporary_;
  std::vector<std::string> warnings_;
};

mode_t mode_of(const fs::path& path) {
  struct stat facts {};
  lstat(path.c_str(), &facts);
  return facts.st_mode & 07777;
}

void set_age(const fs::path& path, std::chrono::seconds age) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

std::chrono::seconds age_of(const fs::path& path) {
  return std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() -
                                                          fs::last_write_time(path));
}

// --- Keys and files ------------------------------------------------------------------------------

TEST(CacheKeyTest, LinesHaveNames) {
  CacheKey key;
  key.add("target", "x86-64-v3 cores=2");
  key.add("graph", "a\n\nb");
  key.add("empty", "");
  EXPECT_EQ(key.text(), "target x86-64-v3 cores=2\ngraph a\ngraph \ngraph b\nempty \n");
  EXPECT_EQ(key.name(), hash128(key.text()).to_string());
}

TEST(CacheKeyTest, ValuesThatDifferMakeKeysThatDiffer) {
  const auto text = [](std::string_view value) {
    CacheKey key;
    key.add("a", value);
    return key.text();
  };
  std::vector<std::string> texts = {text(""),    text("\n"),  text("x"),
                                    text("x\n"), text("\nx"), text(" x")};
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::unique(texts.begin(), texts.end()), texts.end());
}

TEST(CacheKeyTest, DifferencesNameParts) {
  CacheKey ours, theirs;
  ours.add("build", "1");
  theirs.add("build", "2");
  ours.add("same", "x");
  theirs.add("same", "x");
  ours.add("graph", "a\nb\nb\nc");
  theirs.add("graph", "a\nb\nd");
  ours.add("only", "here");
  theirs.add("there", "only");
  const std::vector<KeyDifference> found = differences(ours.text(), theirs.text());
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].name, "build");
  EXPECT_EQ(found[1].name, "graph");
  EXPECT_THAT(found[1].ours, ElementsAre("b", "c"));
  EXPECT_THAT(found[1].theirs, ElementsAre("d"));
  EXPECT_EQ(found[2].name, "only");
  EXPECT_THAT(found[2].theirs, IsEmpty());
  EXPECT_EQ(found[3].name, "there");
  EXPECT_THAT(found[3].theirs, ElementsAre("only"));
  EXPECT_THAT(differences(ours.text(), ours.text()), IsEmpty());
}

TEST(CacheEntryTest, RoundTrip) {
  for (const std::string& key : {std::string(), std::string("key\n"), std::string(300, 'k')})
    for (const std::string& payload : {std::string(), std::string("x"), payload_of(kNumber)}) {
      const std::string file = entry_file(key, payload);
      const EntryView entry = parse_entry(file);
      EXPECT_EQ(entry.fault, "");
      EXPECT_EQ(entry.key, key);
      EXPECT_EQ(entry.payload, payload);
    }
}

// A file with the checksum that it should have, whatever is in it.
std::string with_checksum(std::string file) {
  const Hash128 hash = hash128(std::string_view(file).substr(0, file.size() - 16));
  std::memcpy(file.data() + file.size() - 16, &hash.low, 8);
  std::memcpy(file.data() + file.size() - 8, &hash.high, 8);
  return file;
}

TEST(CacheEntryTest, LengthsThatLieAreFaults) {
  const std::string good = entry_file("key\n", "payload");
  EXPECT_EQ(parse_entry(with_checksum(good)).fault, "");
  for (size_t at : {16u, 24u})
    for (const uint64_t length : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40, UINT64_MAX,
                                  UINT64_MAX - 10, uint64_t{1} << 63}) {
      std::string bad = good;
      std::memcpy(bad.data() + at, &length, 8);
      EXPECT_EQ(parse_entry(with_checksum(bad)).fault,
                "the length of the file differs from the length in its header");
    }
  for (const size_t at : {8u, 11u, 12u, 15u}) {
    std::string other = good;
    other[at] = 2;
    EXPECT_EQ(parse_entry(with_checksum(other)).fault, "the format has another version");
  }
  std::string other = good;
  other[0] = 'X';
  EXPECT_EQ(parse_entry(with_checksum(other)).fault, "the file is not a cache entry");
}

// --- Use -----------------------------------------------------------------------------------------

TEST_F(DiskCacheTest, KeepsWhatIsStored) {
  for (int number = 0; number < 10; ++number) {
    DiskCache cache = open();
    EXPECT_EQ(cache.load(key_of(number)), std::nullopt);
    cache.store(key_of(number), payload_of(number));
    EXPECT_EQ(cache.load(key_of(number)), payload_of(number));
    EXPECT_EQ(cache.stats().hits, 1u);
    EXPECT_EQ(cache.stats().misses, 1u);
    EXPECT_EQ(cache.stats().stored, 1u);
  }
  DiskCache cache = open();
  for (int number = 0; number < 10; ++number)
    EXPECT_EQ(cache.load(key_of(number)), payload_of(number));
  EXPECT_EQ(cache.load(key_of(10)), std::nullopt);
  cache.remove(key_of(3));
  EXPECT_EQ(cache.load(key_of(3)), std::nullopt);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheTest, FilesAreForTheirOwnerAlone) {
  const mode_t before = umask(0);
  make_small();
  umask(before);
  EXPECT_EQ(mode_of(folder()), 0700u);
  EXPECT_EQ(mode_of(file_of(key_of(0))), 0600u);
  EXPECT_THAT(names_in(folder()), ElementsAre(key_of(0).name())) << "and nothing temporary";
}

TEST_F(DiskCacheTest, FoldersAboveAreMadeToo) {
  const fs::path deep = temporary_.path / "a/b/c";
  DiskCache cache({CacheMode::On, deep});
  cache.store(key_of(0), kSmall);
  EXPECT_EQ(cache.load(key_of(0)), kSmall);
  for (fs::path path = deep; path != temporary_.path; path = path.parent_path())
    EXPECT_EQ(mode_of(path), 0700u) << path;
}

TEST_F(DiskCacheTest, AnEntryUnderAnothersNameMakesRoom) {
  open().store(key_of(1), "another's");
  fs::rename(file_of(key_of(1)), file_of(key_of(0)));
  EXPECT_EQ(open(CacheMode::ReadOnly).load(key_of(0)), std::nullopt);
  EXPECT_TRUE(fs::exists(file_of(key_of(0)))) << "what is only read stays as it is";
  DiskCache cache = open();
  EXPECT_EQ(cache.load(key_of(0)), std::nullopt);
  EXPECT_EQ(cache.stats().faulty, 1u);
  EXPECT_FALSE(fs::exists(file_of(key_of(0))));
  cache.store(key_of(0), kSmall);
  EXPECT_EQ(open().load(key_of(0)), kSmall);
}

TEST_F(DiskCacheTest, TheFirstWriterWins) {
  DiskCache cache = open();
  cache.store(key_of(0), "first");
  cache.store(key_of(0), "second");
  EXPECT_EQ(cache.load(key_of(0)), "first");
  EXPECT_THAT(names_in(folder()), SizeIs(1));
}

TEST_F(DiskCacheTest, SyncedEntriesAreTheSame) {
  DiskCache cache({.folder = folder(), .sync = true});
  cache.store(key_of(0), kSmall);
  EXPECT_EQ(open().load(key_of(0)), kSmall);
}

TEST_F(DiskCacheTest, OffTouchesNothing) {
  DiskCache cache = open(CacheMode::Off);
  EXPECT_FALSE(cache.enabled());
  cache.store(key_of(0), kSmall);
  EXPECT_EQ(cache.load(key_of(0)), std::nullopt);
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_THAT(warnings_, IsEmpty());
}

// --- Faults of an entry --------------------------------------------------------------------------

TEST_F(DiskCacheTest, EveryChangedByteIsAMiss) {
  make_small();
  const std::string good = read_file(file_of(key_of(0)));
  for (size_t at = 0; at < good.size(); ++at)
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      write_file(file_of(key_of(0)), bad);
      DiskCache cache = open();
      ASSERT_EQ(cache.load(key_of(0)), std::nullopt) << "byte " << at;
      EXPECT_EQ(cache.stats().faulty, 1u);
      EXPECT_FALSE(fs::exists(file_of(key_of(0)))) << "byte " << at;
      cache.store(key_of(0), kSmall);
      EXPECT_EQ(cache.load(key_of(0)), kSmall);
    }
}

TEST_F(DiskCacheTest, EveryOtherLengthIsAMiss) {
  make_small();
  const std::string good = read_file(file_of(key_of(0)));
  const auto expect_miss = [&](const std::string& bad) {
    write_file(file_of(key_of(0)), bad);
    ASSERT_EQ(open().load(key_of(0)), std::nullopt) << bad.size() << " bytes";
    EXPECT_FALSE(fs::exists(file_of(key_of(0))));
  };
  for (size_t size = 0; size < good.size(); ++size) {
    expect_miss(good.substr(0, size));
    std::string holes = good.substr(0, size);  // as after a power failure
    holes.resize(good.size());
    if (holes != good) expect_miss(holes);
  }
  for (const size_t more : {1u, 16u, 4096u}) expect_miss(good + std::string(more, '\0'));
  expect_miss(good + good);
}

TEST_F(DiskCacheTest, EveryChangedByteOfALargeEntryIsAFault) {
  const std::string good = entry_file(key_of(kNumber).text(), payload_of(kNumber));
  std::string bad = good;
  for (size_t at = 0; at < good.size(); at += at < 200 ? 1 : 17) {
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    ASSERT_NE(parse_entry(bad).fault, "") << "byte " << at;
    bad[at] = good[at];
  }
  EXPECT_EQ(parse_entry(bad).fault, "");
}

TEST_F(DiskCacheTest, EntriesThatOthersCouldHaveWrittenAreMisses) {
  const fs::path file = file_of(key_of(0));
  make_small();
  fs::permissions(file, fs::perms(0620));
  expect_refused("group");
  fs::permissions(file, fs::perms(0602));
  expect_refused("others");
  fs::rename(file, temporary_.path / "elsewhere");
  fs::create_symlink(temporary_.path / "elsewhere", file);
  expect_refused("link");
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expect_refused("pipe");
}

TEST_F(DiskCacheTest, EntriesOfAnotherUserAreMisses) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  make_small();
  ASSERT_EQ(chown(file_of(key_of(0)).c_str(), 12345, 12345), 0);
  expect_refused("owner");
}

TEST_F(DiskCacheTest, WhatCannotBeReadIsAMissAndStays) {
  const int failed = as_other_user(temporary_.path, [this] {
    make_small();
    const fs::path file = file_of(key_of(0));
    fs::permissions(file, fs::perms(0));
    DiskCache cache = open();
    if (cache.load(key_of(0)) || cache.stats().unread != 1 || !fs::exists(file)) return 1;
    fs::permissions(file, fs::perms(0600));
    return cache.load(key_of(0)) == kSmall ? 0 : 2;
  });
  EXPECT_EQ(failed, 0);
}

// --- Folders -------------------------------------------------------------------------------------

TEST_F(DiskCacheTest, FoldersThatOthersCanWriteAreRefused) {
  make_small();
  for (const int mode : {0777, 0722, 0720, 01777}) {
    fs::permissions(folder(), fs::perms(mode));
    expect_off("is off: " + folder().string() + " can be written by", "chmod go-w");
  }
  fs::permissions(folder(), fs::perms(0755));
  EXPECT_EQ(open().load(key_of(0)), kSmall);
  fs::permissions(temporary_.path, fs::perms(0777));
  expect_off("is off: " + temporary_.path.string() + " can be written by everybody", "chmod go-w");
  EXPECT_THAT(names_in(folder()), SizeIs(1)) << "nothing was removed or added";
}

TEST_F(DiskCacheTest, LinkedFoldersAreRefused) {
  fs::create_directory(temporary_.path / "real");
  fs::permissions(temporary_.path / "real", fs::perms(0700));
  fs::create_symlink("real", folder());
  expect_off("is a symbolic link", "name what the link points to");
  EXPECT_THAT(names_in(temporary_.path / "real"), IsEmpty());
}

TEST_F(DiskCacheTest, FoldersOfOthersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  make_small();
  ASSERT_EQ(chown(folder().c_str(), 12345, 12345), 0);
  expect_off("belongs to user 12345", "");
  EXPECT_TRUE(fs::exists(file_of(key_of(0))));
}

TEST_F(DiskCacheTest, WhatIsNoFolderIsRefused) {
  write_file(folder(), "");
  expect_off("is off", "");
}

TEST_F(DiskCacheTest, WithoutAFolderItIsOff) {
  DiskCache cache({.folder = ""}, [this](const std::string& text) { warnings_.push_back(text); });
  EXPECT_FALSE(cache.enabled());
  expect_warning("neither HOME nor BRAZE_CACHE_DIR");
}

TEST_F(DiskCacheTest, ReadOnlyChangesNothing) {
  {
    DiskCache cache = open(CacheMode::ReadOnly);
    cache.store(key_of(0), kSmall);
    EXPECT_EQ(cache.load(key_of(0)), std::nullopt);
    EXPECT_FALSE(fs::exists(folder()));
  }
  make_small();
  set_age(file_of(key_of(0)), 48h);
  DiskCache cache = open(CacheMode::ReadOnly);
  EXPECT_EQ(cache.load(key_of(0)), kSmall);
  cache.store(key_of(1), kSmall);
  cache.remove(key_of(0));
  EXPECT_GT(age_of(file_of(key_of(0))), 47h);
  write_file(file_of(key_of(0)), "broken");
  EXPECT_EQ(cache.load(key_of(0)), std::nullopt);
  EXPECT_THAT(names_in(folder()), ElementsAre(key_of(0).name()));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheTest, FoldersThatTakeNoFilesAreReadAndSaidOnce) {
  const int failed = as_other_user(temporary_.path, [this] {
    make_small();
    fs::permissions(folder(), fs::perms(0500));
    DiskCache cache = open();
    if (cache.load(key_of(0)) != kSmall) return 1;
    for (int number = 1; number < 5; ++number) cache.store(key_of(number), kSmall);
    if (cache.stats().unstored != 1 || warnings_.size() != 1) return 2;  // not tried again
    if (warnings_[0].find("Permission denied") == std::string::npos) return 3;
    if (cache.load(key_of(0)) != kSmall) return 4;
    fs::permissions(folder(), fs::perms(0700));
    return 0;
  });
  EXPECT_EQ(failed, 0);
}

// Stores what does not fit, and looks whether what was there before is still there, and nothing
// else.
int fill(DiskCache& cache, const fs::path& folder, const std::vector<std::string>& warnings) {
  cache.store(key_of(0), "small");
  cache.store(key_of(kNumber), std::string(200'000, 'x'));
  if (cache.load(key_of(kNumber))) return 1;
  if (cache.load(key_of(0)) != "small") return 2;
  if (cache.stats().unstored != 1 || warnings.size() != 1) return 3;
  if (names_in(folder).size() != 1) return 4;  // what was begun is gone
  cache.store(key_of(1), "small");
  return cache.load(key_of(1)) ? 5 : 0;  // not tried again
}

// In a name space of its own, where root may mount.
bool mount_small_disk(const fs::path& folder) {
  if (geteuid() != 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/uid_map") << "0 0 1";
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/gid_map") << "0 0 1";
  return mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k,mode=0700") == 0;
}

TEST_F(DiskCacheTest, FullDisk) {
  constexpr int kNoDisk = 77;
  fs::create_directory(folder());
  const int failed = wait_for(start_process([this] {
    if (!mount_small_disk(folder())) return kNoDisk;
    DiskCache cache = open();
    const int result = fill(cache, folder(), warnings_);
    return result != 0 || warnings_[0].find("No space left") != std::string::npos ? result : 20;
  }));
  if (failed == kNoDisk) GTEST_SKIP() << "this user may not mount a small disk";
  EXPECT_EQ(failed, 0);
}

TEST_F(DiskCacheTest, LimitOnFileSizesDoesNotEndTheProcess) {
  const int failed = wait_for(start_process([this] {
    const rlimit limit{100'000, 100'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
    DiskCache cache = open();
    return fill(cache, folder(), warnings_);
  }));
  EXPECT_EQ(failed, 0) << "minus " << SIGXFSZ << " is the signal";
}

// --- Size ----------------------------------------------------------------------------------------

TEST(CacheFolderTest, SuperfluousAreTheLongestUnused) {
  using File = CacheFolder::File;
  const auto at = [](int hours) { return CacheClock::time_point(std::chrono::hours(hours)); };
  const std::vector<File> entries = {{"a", 10, at(1)}, {"b", 20, at(2)}, {"c", 30, at(3)}};
  const auto names = [&](uint64_t max_bytes, CacheClock::time_point oldest) {
    std::string out;
    for (const File& file : superfluous(entries, max_bytes, oldest)) out += file.name;
    return out;
  };
  EXPECT_EQ(names(60, {}), "");
  EXPECT_EQ(names(59, {}), "a");
  EXPECT_EQ(names(50, {}), "a");
  EXPECT_EQ(names(49, {}), "ab");
  EXPECT_EQ(names(0, {}), "abc");
  EXPECT_EQ(names(60, at(2)), "a");
  EXPECT_EQ(names(30, at(2)), "ab");
  EXPECT_EQ(names(UINT64_MAX, at(4)), "abc");
}

TEST_F(DiskCacheTest, TheLongestUnusedGo) {
  const uint64_t size = 10'000;
  const std::string payload(size, 'x');
  for (int number = 0; number < 20; ++number) {
    open().store(key_of(number), payload);
    set_age(file_of(key_of(number)), std::chrono::hours(100 - number));
  }
  EXPECT_EQ(open().load(key_of(0)), payload);  // used now, so no longer the oldest
  DiskCache cache = open(CacheMode::On, 10 * size);
  cache.store(key_of(100), payload);
  EXPECT_EQ(cache.stats().evicted, 13u);  // of 21, 8 fit into seven eighths
  EXPECT_EQ(cache.load(key_of(0)), payload);
  EXPECT_EQ(cache.load(key_of(100)), payload);
  EXPECT_EQ(cache.load(key_of(19)), payload);
  EXPECT_EQ(cache.load(key_of(1)), std::nullopt);
}

TEST_F(DiskCacheTest, TheCapHoldsWhateverIsStored) {
  const uint64_t most = 300'000;
  DiskCache cache = open(CacheMode::On, most);
  uint64_t stored = 0;
  for (int number = 0; number < 100; ++number) {
    cache.store(key_of(number), payload_of(number % 20));
    stored += payload_of(number % 20).size();
    uint64_t bytes = 0;
    for (const auto& file : fs::directory_iterator(folder())) bytes += file.file_size();
    EXPECT_LE(bytes, most + most / 16 + 190'000);
  }
  EXPECT_GT(stored, 10 * most);
  cache.store(key_of(1000), std::string(most, 'x'));
  EXPECT_EQ(cache.load(key_of(1000)), std::nullopt) << "larger than the whole cache";
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DiskCacheTest, UseIsNotedOnceADay) {
  make_small();
  set_age(file_of(key_of(0)), 23h);
  EXPECT_EQ(open().load(key_of(0)), kSmall);
  EXPECT_GT(age_of(file_of(key_of(0))), 22h);
  set_age(file_of(key_of(0)), 25h);
  EXPECT_EQ(open().load(key_of(0)), kSmall);
  EXPECT_LT(age_of(file_of(key_of(0))), 1h);
}

TEST_F(DiskCacheTest, WhatDeadWritersLeftIsSweptAndNothingElse) {
  make_small();
  for (const char* name : {"tmp-old", "tmp-new", "notes.txt", "0123"}) {
    write_file(folder() / name, "x");
    set_age(folder() / name, 48h);
  }
  set_age(folder() / "tmp-new", 10min);
  open().store(key_of(1), kSmall);
  EXPECT_THAT(names_in(folder()), testing::UnorderedElementsAre(key_of(0).name(), key_of(1).name(),
                                                                "tmp-new", "notes.txt", "0123"));
}

// --- Settings ------------------------------------------------------------------------------------

TEST(CacheSettingsTest, Bytes) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("1048576"), 1048576u);
  EXPECT_EQ(parse_bytes("512M"), 512u << 20);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 3u << 29);
  EXPECT_EQ(parse_bytes("2KB"), 2048u);
  EXPECT_EQ(parse_bytes("7B"), 7u);
  EXPECT_EQ(parse_bytes("1T"), uint64_t{1} << 40);
  for (const char* bad : {"", "x", "-1", "1X", "1Mx", "M", "1e400", "inf", "nan", "99999999T"})
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
}

class CacheEnvironmentTest : public testing::Test {
 protected:
  static constexpr const char* kNames[] = {"BRAZE_CACHE",      "BRAZE_CACHE_DIR",
                                           "BRAZE_CACHE_SIZE", "BRAZE_CACHE_SYNC",
                                           "XDG_CACHE_HOME",   "HOME"};
  void SetUp() override {
    for (const char* name : kNames) {
      const char* const value = std::getenv(name);
      before_.push_back(value ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (size_t i = 0; i < std::size(kNames); ++i)
      before_[i] ? setenv(kNames[i], before_[i]->c_str(), 1) : unsetenv(kNames[i]);
  }
  std::vector<std::optional<std::string>> before_;
};

TEST_F(CacheEnvironmentTest, Defaults) {
  setenv("HOME", "/no/such/home", 1);  // as services have it
  EXPECT_EQ(CacheSettings::of_process().folder, "");
  unsetenv("HOME");
  EXPECT_EQ(CacheSettings::of_process().folder, "");
  setenv("HOME", "/usr", 1);
  const CacheSettings settings = CacheSettings::of_process();
  EXPECT_EQ(settings.mode, CacheMode::On);
  EXPECT_EQ(settings.folder, "/usr/.cache/braze");
  EXPECT_EQ(settings.max_bytes, uint64_t{1} << 30);
  EXPECT_FALSE(settings.sync);
  setenv("XDG_CACHE_HOME", "relative/is/ignored", 1);
  EXPECT_EQ(CacheSettings::of_process().folder, "/usr/.cache/braze");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(CacheSettings::of_process().folder, "/caches/braze");
}

TEST_F(CacheEnvironmentTest, Variables) {
  setenv("HOME", "/usr", 1);
  setenv("BRAZE_CACHE_DIR", "/elsewhere", 1);
  setenv("BRAZE_CACHE_SIZE", "20M", 1);
  setenv("BRAZE_CACHE_SYNC", "1", 1);
  for (const CacheMode mode : {CacheMode::Off, CacheMode::ReadOnly, CacheMode::On}) {
    setenv("BRAZE_CACHE", std::string(name(mode)).c_str(), 1);
    EXPECT_EQ(CacheSettings::of_process().mode, mode);
  }
  const CacheSettings settings = CacheSettings::of_process();
  EXPECT_EQ(settings.folder, "/elsewhere");
  EXPECT_EQ(settings.max_bytes, 20u << 20);
  EXPECT_TRUE(settings.sync);
  setenv("BRAZE_CACHE", "maybe", 1);
  EXPECT_THAT([] { CacheSettings::of_process(); },
              testing::ThrowsMessage<Error>(HasSubstr("must be off, readonly or on")));
  setenv("BRAZE_CACHE", "on", 1);
  setenv("BRAZE_CACHE_SIZE", "much", 1);
  EXPECT_THAT([] { CacheSettings::of_process(); },
              testing::ThrowsMessage<Error>(HasSubstr("must be a number of bytes")));
}

// --- Threads -------------------------------------------------------------------------------------

TEST_F(DiskCacheTest, ThreadsShareOne) {
  DiskCache cache = open(CacheMode::On, 2'000'000);
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 100; ++i) {
        const int number = (i * 7 + thread) % 20;
        const auto found = cache.load(key_of(number));
        if (!found) cache.store(key_of(number), payload_of(number));
        if (found && *found != payload_of(number)) ++wrong;
        if (i % 10 == thread) cache.remove(key_of(number));
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache.stats().faulty, 0u);
  EXPECT_GT(cache.stats().hits, 0u);
  EXPECT_THAT(warnings_, IsEmpty());
}

}  // namespace
}  // namespace braze::test
