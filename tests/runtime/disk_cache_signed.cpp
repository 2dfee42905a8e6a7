// Folders that others can write, where signatures decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "braze/error.h"
#include "tests/runtime/cache_support.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::string_view kPayload = "the payload";

class SignedCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_signatures()) GTEST_SKIP() << "built without libsodium";
    ours_ = std::make_shared<const SecretKey>(SecretKey::generate());
    theirs_ = std::make_shared<const SecretKey>(SecretKey::generate());
    fs::create_directory(folder());
    chmod(folder().c_str(), 0777);
  }

  using Key = std::shared_ptr<const SecretKey>;
  /// A process that signs with `key`, and trusts what `trusted` sign.
  DiskCache open(const Key& key, std::initializer_list<Key> trusted,
                 CacheMode mode = CacheMode::On) {
    CacheSettings settings{mode, folder()};
    settings.sign_key = key;
    for (const Key& other : trusted) settings.trusted.push_back(other->public_key());
    return DiskCache(settings, [this](const std::string& text) { warnings_.push_back(text); });
  }
  std::optional<std::string> load(std::initializer_list<Key> trusted) {
    return open(nullptr, trusted).load(key_of(0));
  }

  fs::path folder() const { return temporary_.path / "cache"; }
  fs::path file() const { return folder() / key_of(0).name(); }
  std::string stored(const Key& key) {
    open(key, {ours_, theirs_}).store(key_of(0), kPayload);
    return read_file(file());
  }

  /// Another user is told, once, what stands in his way and whose it is.
  void expect_said(const std::string& cause) {
    const int failed = as_other_user(temporary_.path, [&] {
      DiskCache cache = open(ours_, {ours_});
      if (cache.load(key_of(0)) || cache.load(key_of(0))) return 1;
      if (warnings_.size() != 1) return 2;
      for (const std::string& part : {file().string(), std::string("user 0"), cause})
        if (warnings_[0].find(part) == std::string::npos) return 3;
      return 0;
    });
    EXPECT_EQ(failed, 0) << cause;
  }

  Key ours_, theirs_;
  const TemporaryFolder temporary_;
  std::vector<std::string> warnings_;
};

TEST_F(SignedCacheTest, EntriesOfOthersAreUsedIfSigned) {
  stored(theirs_);
  EXPECT_EQ(load({ours_, theirs_}), kPayload);
  EXPECT_EQ(load({ours_}), std::nullopt);
  EXPECT_EQ(open(ours_, {ours_}).load(key_of(0)), std::nullopt);
  EXPECT_TRUE(fs::exists(file())) << "others can use it";
  EXPECT_EQ(load({theirs_}), kPayload);
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(load({}), std::nullopt);
  ASSERT_THAT(warnings_, SizeIs(1)) << "without keys the folder is refused";
  EXPECT_THAT(warnings_[0], HasSubstr("can be written by everybody"));
}

TEST_F(SignedCacheTest, OthersCanReadThem) {
  const mode_t before = umask(022);
  stored(ours_);
  struct stat facts {};
  ASSERT_EQ(stat(file().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0644u);
  umask(before);
}

TEST_F(SignedCacheTest, EveryByteIsCovered) {
  const std::string whole = stored(ours_);
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char bit : {1, 16, 128}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      write_file(file(), changed);
      EXPECT_EQ(load({ours_}), std::nullopt) << i;
    }
  for (size_t size = 0; size < whole.size(); ++size) {
    write_file(file(), whole.substr(0, size));
    EXPECT_EQ(load({ours_}), std::nullopt) << size;
  }
  write_file(file(), whole);
  EXPECT_EQ(load({ours_}), kPayload);
}

TEST_F(SignedCacheTest, WhatIsNotWholeIsMadeAnew) {
  const std::string whole = stored(ours_);
  write_file(file(), whole.substr(0, whole.size() / 2));
  EXPECT_EQ(open(theirs_, {theirs_}).load(key_of(0)), std::nullopt);
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(stored(ours_), whole);
}

// Made to look whole by one who has no key.
TEST_F(SignedCacheTest, ForgeriesAreMisses) {
  const std::string whole = stored(ours_);
  const std::string trailer = whole.substr(whole.size() - 104);
  const std::string forged = entry_file(key_of(0).text(), "other payload");
  const auto attempt = [&](const std::string& bytes) {
    write_file(file(), bytes);
    DiskCache cache = open(nullptr, {ours_});
    EXPECT_EQ(cache.load(key_of(0)), std::nullopt);
    return cache.stats().faulty;
  };
  EXPECT_EQ(attempt(forged), 1u) << "not signed";
  EXPECT_EQ(attempt(forged + trailer), 1u) << "another entry's signature";
  EXPECT_EQ(attempt(whole + trailer), 1u) << "twice";
  EXPECT_EQ(attempt(trailer + whole), 1u) << "in front";
  // An entry that is signed, under another's name.
  open(ours_, {ours_}).store(key_of(1), "of another key");
  EXPECT_EQ(attempt(read_file(folder() / key_of(1).name())), 1u) << "whole, but of another name";
  fs::remove(file());
  fs::create_symlink(folder() / key_of(1).name(), file());
  EXPECT_EQ(load({ours_}), std::nullopt);
}

TEST_F(SignedCacheTest, NothingUnsignedIsWritten) {
  open(nullptr, {ours_}).store(key_of(0), kPayload);
  EXPECT_THAT(names_in(folder()), IsEmpty());
}

// What only this user can have written needs no signature, but one that is there has to be right.
TEST_F(SignedCacheTest, OwnFoldersHoldBoth) {
  chmod(folder().c_str(), 0700);
  open(nullptr, {}).store(key_of(0), kPayload);
  EXPECT_EQ(load({ours_}), kPayload);
  fs::remove(file());
  const std::string whole = stored(theirs_);
  EXPECT_EQ(load({}), kPayload) << "asks for no signature";
  EXPECT_EQ(load({theirs_}), kPayload);
  EXPECT_EQ(load({ours_}), std::nullopt);
  EXPECT_FALSE(fs::exists(file())) << "to be made anew";
  std::string changed = whole;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  write_file(file(), changed);
  EXPECT_EQ(load({theirs_}), std::nullopt);
}

TEST_F(SignedCacheTest, FoldersOfOthersAreReadByAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  chmod(folder().c_str(), 0755);
  stored(ours_);
  ASSERT_EQ(chown(file().c_str(), 4711, 4711), 0);
  ASSERT_EQ(chown(folder().c_str(), 4711, 4711), 0);
  const int failed = as_other_user(temporary_.path, [this] {
    if (open(nullptr, {ours_}, CacheMode::ReadOnly).load(key_of(0)) != kPayload) return 1;
    if (open(nullptr, {theirs_}, CacheMode::ReadOnly).load(key_of(0))) return 2;
    return open(nullptr, {}, CacheMode::ReadOnly).load(key_of(0)) ? 3 : 0;
  });
  EXPECT_EQ(failed, 0);
}

// A fault of the cache is said once, and is none of the program.
TEST_F(SignedCacheTest, KeysThatAreMissingAreSaidOnce) {
  CacheSettings settings{CacheMode::On, folder()};
  const auto warn = [this](const std::string& text) { warnings_.push_back(text); };
  settings.refusal = "no key";
  DiskCache off(settings, warn);
  off.store(key_of(0), kPayload);
  EXPECT_EQ(off.load(key_of(0)), std::nullopt);
  EXPECT_FALSE(off.enabled());
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("is off: no key"));
  settings.refusal.clear();
  settings.sign_fault = "no secret";
  settings.trusted = {ours_->public_key()};
  DiskCache unsigned_cache(settings, warn);
  unsigned_cache.store(key_of(0), kPayload);
  EXPECT_THAT(names_in(folder()), IsEmpty()) << "others can write there";
  ASSERT_THAT(warnings_, SizeIs(2));
  EXPECT_THAT(warnings_[1], HasSubstr("not signed: no secret"));
}

// Files of any size that hold nothing are not read.
TEST_F(SignedCacheTest, EntriesThatSayTheyAreHugeAreNotRead) {
  stored(ours_);
  fs::resize_file(file(), uint64_t{3} << 30);
  const CacheFolder::Reading reading =
      CacheFolder::open(folder(), false, true).read(key_of(0).name());
  EXPECT_THAT(reading.fault, HasSubstr("differs from the length in its header"));
  EXPECT_EQ(reading.bytes.capacity(), std::string().capacity());
  EXPECT_EQ(open(ours_, {ours_}).load(key_of(0)), std::nullopt);
  EXPECT_FALSE(fs::exists(file()));
  // One whose header agrees.
  std::string header = entry_file("", "").substr(0, kEntryHeaderBytes);
  constexpr uint64_t kSize = uint64_t{3} << 30;
  for (size_t i = 0; i < 8; ++i) header[24 + i] = static_cast<char>((kSize - 48) >> (8 * i) & 0xff);
  write_file(file(), header);
  fs::resize_file(file(), kSize);
  EXPECT_THAT(CacheFolder::open(folder(), false, true).read(key_of(0).name()).fault,
              HasSubstr("larger than an entry may be"));
}

// In a folder such as /tmp others can plant what this user cannot remove.
TEST_F(SignedCacheTest, WhatOthersPlantIsSaidAndCostsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  chmod(folder().c_str(), 01777);
  write_file(file(), entry_file(key_of(0).text(), "planted"));
  for (const mode_t mode : {0644, 0600}) {
    ASSERT_EQ(chmod(file().c_str(), mode), 0);
    expect_said(mode == 0600 ? "cannot be read" : "not signed");
  }
  const fs::path large = folder() / std::string(32, 'a');
  write_file(large, "");
  fs::resize_file(large, uint64_t{2} << 30);
  fs::last_write_time(large, fs::file_time_type::clock::now() + std::chrono::hours(24 * 365));
  const int failed = as_other_user(temporary_.path, [this] {
    DiskCache cache = open(ours_, {ours_});
    for (int i = 1; i < 4; ++i) cache.store(key_of(i), kPayload);
    for (int i = 1; i < 4; ++i)
      if (cache.load(key_of(i)) != kPayload) return 3;
    return cache.stats().evicted == 0 && warnings_.empty() ? 0 : 4;
  });
  EXPECT_EQ(failed, 0);
  for (const CacheFolder::File& entry : CacheFolder::open(folder(), false, true).entries())
    EXPECT_LE(entry.used, CacheClock::now()) << entry.name;
}

TEST_F(SignedCacheTest, SettingsNameTheKeys) {
  const char* const names[] = {"BRAZE_CACHE", "BRAZE_CACHE_SIGN_KEY", "BRAZE_TRUST_KEYS"};
  ours_->write(temporary_.path / "ours");
  theirs_->write(temporary_.path / "theirs");
  setenv("BRAZE_CACHE", "on", 1);
  setenv("BRAZE_CACHE_SIGN_KEY", (temporary_.path / "ours").c_str(), 1);
  setenv("BRAZE_TRUST_KEYS", (temporary_.path / "theirs.pub").c_str(), 1);
  const CacheSettings settings = CacheSettings::of_process();
  EXPECT_EQ(settings.sign_key->public_key(), ours_->public_key());
  EXPECT_THAT(settings.trusted,
              testing::UnorderedElementsAre(ours_->public_key(), theirs_->public_key()));
  setenv("BRAZE_CACHE_SIGN_KEY", (temporary_.path / "theirs.pub").c_str(), 1);
  const CacheSettings faulty = CacheSettings::of_process();
  EXPECT_EQ(faulty.sign_key, nullptr);
  EXPECT_THAT(faulty.sign_fault, HasSubstr("BRAZE_CACHE_SIGN_KEY is "));
  EXPECT_EQ(faulty.refusal, "");
  setenv("BRAZE_CACHE", "readonly", 1);
  EXPECT_EQ(CacheSettings::of_process().sign_fault, "") << "nothing would be signed";
  setenv("BRAZE_TRUST_KEYS", (temporary_.path / "none").c_str(), 1);
  EXPECT_THAT(CacheSettings::of_process().refusal, HasSubstr("BRAZE_TRUST_KEYS is "));
  setenv("BRAZE_CACHE", "off", 1);
  EXPECT_NO_THROW(CacheSettings::of_process()) << "of no matter";
  for (const char* name : names) unsetenv(name);
  setenv("BRAZE_CACHE", "off", 1);
}

}  // namespace
}  // namespace braze::test
