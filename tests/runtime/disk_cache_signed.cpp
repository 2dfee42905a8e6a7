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

TEST_F(SignedCacheTest, SettingsNameTheKeys) {
  const char* const names[] = {"BRAZE_CACHE", "BRAZE_CACHE_SIGN_KEY", "BRAZE_TRUST_KEYS"};
  ours_->write(temporary_.path / "ours");
  theirs_->write(temporary_.path / "theirs");
  setenv("BRAZE_CACHE", "on", 1);
  setenv("BRAZE_CACHE_SIGN_KEY", (temporary_.path / "ours").c_str(), 1);
  setenv("BRAZE_TRUST_KEYS", (temporary_.path / "theirs.pub").c_str(), 1);
  const CacheSettings settings = CacheSettings::from_environment();
  EXPECT_EQ(settings.sign_key->public_key(), ours_->public_key());
  EXPECT_THAT(settings.trusted,
              testing::UnorderedElementsAre(ours_->public_key(), theirs_->public_key()));
  setenv("BRAZE_CACHE_SIGN_KEY", (temporary_.path / "theirs.pub").c_str(), 1);
  EXPECT_THROW(CacheSettings::from_environment(), Error);
  setenv("BRAZE_CACHE", "off", 1);
  EXPECT_NO_THROW(CacheSettings::from_environment()) << "of no matter";
  for (const char* name : names) unsetenv(name);
  setenv("BRAZE_CACHE", "off", 1);
}

}  // namespace
}  // namespace braze::test
