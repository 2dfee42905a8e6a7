#include "runtime/io/signature.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/runtime/programs.h"
#include "tests/temporary_folder.h"

namespace braze::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string sign(std::string_view content, const SecretKey& key) {
  Signer signer(key);
  signer.append(bytes_of(content));
  return std::string(content) + signer.finish();
}

std::string fault_of(std::string_view file, const PublicKeys& trusted) {
  return std::string(signature_fault(split_signature(bytes_of(file)), trusted));
}

const SignatureDemand kDemand = {"the test", "give up"};

class SignatureTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_signatures()) GTEST_SKIP() << "built without libsodium";
    unsetenv("BRAZE_TRUST_KEYS");
  }
  void TearDown() override { unsetenv("BRAZE_TRUST_KEYS"); }

  fs::path write(const fs::path& name, std::string_view content, mode_t mode = 0600) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    chmod(path.c_str(), mode);
    return path;
  }
  std::string read(const fs::path& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// The key of RFC 8032, section 7.1, test 1.
  SecretKey known_key() const {
    return SecretKey::read(
        write("known",
              "braze 1 secret key\n"
              "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\n"));
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path;
};

// --- Keys ----------------------------------------------------------------------------------------

TEST_F(SignatureTest, KeysAreThoseOfTheStandard) {
  EXPECT_EQ(known_key().public_key().to_string(),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
}

TEST_F(SignatureTest, KeysAreWrittenAndRead) {
  const fs::path path = folder_ / "key", public_path = folder_ / "key.pub";
  const SecretKey key = SecretKey::generate();
  key.write(path);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  EXPECT_EQ(SecretKey::read(path).public_key(), key.public_key());
  EXPECT_EQ(PublicKey::read(public_path), key.public_key());
  EXPECT_NE(SecretKey::generate().public_key(), key.public_key());
}

TEST_F(SignatureTest, KeysAreNeverReplaced) {
  const fs::path path = folder_ / "key", public_path = folder_ / "key.pub";
  SecretKey::generate().write(path);
  const std::string secret = read(path), open = read(public_path);
  EXPECT_THAT(error_of([&] { SecretKey::generate().write(path); }), HasSubstr("key-exists"));
  fs::remove(public_path);
  EXPECT_THAT(error_of([&] { SecretKey::generate().write(path); }), HasSubstr("key-exists"));
  EXPECT_FALSE(fs::exists(public_path)) << "half of a pair";
  EXPECT_EQ(read(path), secret);
  write("key.pub", open);
  fs::remove(path);
  EXPECT_THAT(error_of([&] { SecretKey::generate().write(path); }), HasSubstr("key-exists"));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(read(public_path), open);
}

TEST_F(SignatureTest, SecretKeysAreForTheirOwner) {
  const fs::path path = folder_ / "key";
  SecretKey::generate().write(path);
  for (const mode_t mode : {0640, 0604, 0610, 0644}) {
    chmod(path.c_str(), mode);
    EXPECT_THAT(error_of([&] { SecretKey::read(path); }),
                AllOf(HasSubstr("key-exposed"), HasSubstr("chmod 600")))
        << mode;
  }
  chmod(path.c_str(), 0666);
  EXPECT_THAT(error_of([&] { SecretKey::read(path); }), HasSubstr("file-untrusted"));
  chmod(path.c_str(), 0400);
  SecretKey::read(path);
}

// Whoever can write it decides whose code runs.
TEST_F(SignatureTest, PublicKeysAreThisUsersOrRoots) {
  const fs::path path = folder_ / "key.pub";
  SecretKey::generate().write(folder_ / "key");
  chmod(path.c_str(), 0664);
  EXPECT_THAT(error_of([&] { PublicKey::read(path); }), HasSubstr("file-untrusted"));
  chmod(path.c_str(), 0644);
  PublicKey::read(path);
  chmod(folder_.c_str(), 0777);
  EXPECT_THAT(error_of([&] { PublicKey::read(path); }), HasSubstr("file-untrusted"));
  EXPECT_THAT(error_of([&] { trusted_keys({folder_}); }), HasSubstr("file-untrusted"));
  chmod(folder_.c_str(), 0700);
}

TEST_F(SignatureTest, WhatIsNoKeyIsRefused) {
  SecretKey::generate().write(folder_ / "key");
  EXPECT_THAT(error_of([&] { PublicKey::read(folder_ / "key"); }),
              AllOf(HasSubstr("is a secret key, not a public one"), HasSubstr("key.pub")));
  chmod((folder_ / "key.pub").c_str(), 0600);
  EXPECT_THAT(error_of([&] { SecretKey::read(folder_ / "key.pub"); }),
              AllOf(HasSubstr("no-key"), HasSubstr("is a public key, not a secret one")));
  chmod((folder_ / "key.pub").c_str(), 0644);
  EXPECT_THAT(error_of([&] { SecretKey::read(folder_ / "key.pub"); }),
              HasSubstr("is a public key, not a secret one"))
      << "its mode is of no matter";
  EXPECT_THAT(error_of([&] { PublicKey::read(folder_ / "none"); }), HasSubstr("file-missing"));
  const std::string text = read(folder_ / "key.pub");
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = '+';
    const fs::path path = write("bad.pub", changed);
    EXPECT_THAT(error_of([&] { PublicKey::read(path); }), HasSubstr("no-key")) << i;
    if (i + 1 == text.size()) continue;
    write("bad.pub", text.substr(0, i));
    EXPECT_THAT(error_of([&] { PublicKey::read(path); }), HasSubstr("no-key")) << i;
  }
  write("bad.pub", text + "x");
  EXPECT_THAT(error_of([&] { PublicKey::read(folder_ / "bad.pub"); }), HasSubstr("no-key"));
  write("bad.pub", text + std::string(1000, '\n'));
  EXPECT_THAT(error_of([&] { PublicKey::read(folder_ / "bad.pub"); }), HasSubstr("no-key"));
}

// Mail, editors and forms change these.
TEST_F(SignatureTest, KeysAreReadHoweverTheirLinesEnd) {
  const std::string title = "braze 1 public key";
  std::string digits = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
  for (int upper = 0; upper < 2; ++upper) {
    for (const std::string& text : {title + "\n" + digits + "\n", title + "\n" + digits,
                                    title + "\r\n" + digits + "\r\n", title + "\r\n" + digits})
      EXPECT_EQ(PublicKey::read(write("mailed.pub", text)), known_key().public_key()) << text;
    for (char& c : digits) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  const auto fault = [&](const std::string& text) {
    return error_of([&] { PublicKey::read(write("mailed.pub", text)); });
  };
  EXPECT_THAT(fault("hello\n" + digits), HasSubstr("first line"));
  EXPECT_THAT(fault(title + "\n" + digits + "0"), HasSubstr("65 characters, not 64"));
  EXPECT_THAT(fault(title + "\n" + digits.substr(1) + "g"), HasSubstr("other characters"));
  EXPECT_THAT(fault(title + "\n" + digits + "\n\n"), HasSubstr("follows its second line"));
}

TEST_F(SignatureTest, TrustedKeysAreNamedOneByOneOrByFolder) {
  EXPECT_THAT(trusted_keys(), IsEmpty());
  const SecretKey a = SecretKey::generate(), b = SecretKey::generate(), c = SecretKey::generate();
  fs::create_directories(folder_ / "keys");
  a.write(folder_ / "a");
  b.write(folder_ / "keys/b");
  c.write(folder_ / "keys/c");
  write("keys/notes", "not a key");
  const std::string one = folder_ / "a.pub", folder = folder_ / "keys";
  EXPECT_THAT(trusted_keys({one}), ElementsAre(a.public_key()));
  EXPECT_THAT(trusted_keys({folder, one}),
              ElementsAre(b.public_key(), c.public_key(), a.public_key()));
  setenv("BRAZE_TRUST_KEYS", (one + ":" + folder).c_str(), 1);
  EXPECT_THAT(trusted_keys(), SizeIs(3));
  EXPECT_THAT(trusted_keys({one}), ElementsAre(a.public_key())) << "those named go before";
  setenv("BRAZE_TRUST_KEYS", (folder_ / "none").c_str(), 1);
  EXPECT_THAT(error_of([] { trusted_keys(); }),
              AllOf(HasSubstr("file-missing"), HasSubstr("BRAZE_TRUST_KEYS is ")));
  // No keys must not mean no demand.
  fs::create_directories(folder_ / "empty");
  EXPECT_THAT(error_of([&] { trusted_keys({folder_ / "empty"}); }),
              AllOf(HasSubstr("no-key"), HasSubstr(".pub")));
  setenv("BRAZE_TRUST_KEYS", ":", 1);
  EXPECT_THAT(error_of([] { trusted_keys(); }),
              AllOf(HasSubstr("no-key"), HasSubstr("BRAZE_TRUST_KEYS is \":\"")));
  setenv("BRAZE_TRUST_KEYS", "", 1);
  EXPECT_THAT(trusted_keys(), IsEmpty()) << "as every variable, which is unset where it is empty";
}

// --- Signatures ----------------------------------------------------------------------------------

TEST_F(SignatureTest, AreTheSameForTheSameFile) {
  const SecretKey key = known_key();
  const std::string file = sign("abc", key);
  EXPECT_EQ(file, sign("abc", key));
  std::string hex;
  for (const char c : file.substr(file.size() - 64))
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  // By another implementation, of Ed25519ph as RFC 8032 has it.
  EXPECT_EQ(hex,
            "e5801deae2aabc34be0c200a489a983022388acabb6ff8e95d651466dd301119"
            "b236a97403d1071c84b279e997d610b7e3a6173cebad049426f86bdbc63fb602");
  // In parts, too.
  Signer signer(key);
  signer.append(bytes_of("a"));
  signer.append(bytes_of("bc"));
  EXPECT_EQ("abc" + signer.finish(), file);
}

TEST_F(SignatureTest, HoldForTheWholeFileAndTheKey) {
  const SecretKey key = SecretKey::generate(), other = SecretKey::generate();
  const PublicKeys trusted = {other.public_key(), key.public_key()};
  for (const std::string_view content : {"", "x", "the content of a file"}) {
    const std::string file = sign(content, key);
    const SignedBytes parts = split_signature(bytes_of(file));
    EXPECT_EQ(parts.signer, key.public_key());
    EXPECT_TRUE(std::ranges::equal(parts.content, bytes_of(content)));
    EXPECT_EQ(fault_of(file, trusted), "");
    EXPECT_EQ(fault_of(content, trusted), "it is not signed");
    EXPECT_EQ(fault_of(file, {other.public_key()}), "it is signed by a key that is not trusted");
    EXPECT_NE(fault_of(file, {}), "");
    for (size_t i = 0; i < file.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        std::string changed = file;
        changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
        EXPECT_NE(fault_of(changed, trusted), "") << i;
      }
    for (size_t size = 0; size < file.size(); ++size)
      EXPECT_NE(fault_of(file.substr(0, size), trusted), "") << size;
    for (size_t begin = 1; begin < file.size(); ++begin)
      EXPECT_NE(fault_of(file.substr(begin), trusted), "") << begin;
    EXPECT_EQ(fault_of(file + "x", trusted), "it is not signed");
    EXPECT_NE(fault_of("x" + file, trusted), "");
    EXPECT_NE(fault_of("another" + file.substr(content.size()), trusted), "");
  }
}

// The parts of two signatures by trusted keys make none.
TEST_F(SignatureTest, CannotBePutTogether) {
  const SecretKey a = SecretKey::generate(), b = SecretKey::generate();
  const PublicKeys trusted = {a.public_key(), b.public_key()};
  const std::string by_a = sign("content", a), by_b = sign("content", b);
  const size_t key_at = std::string("content").size() + 8, signature_at = key_at + 32;
  const auto mixed = [&](const std::string& key, const std::string& signature) {
    return fault_of(
        by_a.substr(0, key_at) + key.substr(key_at, 32) + signature.substr(signature_at), trusted);
  };
  EXPECT_EQ(mixed(by_a, by_a), "");
  EXPECT_EQ(mixed(by_b, by_b), "");
  EXPECT_EQ(mixed(by_a, by_b), "it was altered after it was signed");
  EXPECT_EQ(mixed(by_b, by_a), "it was altered after it was signed");
  // A key whose owner nobody is: zeros, under which zeros would verify in a careless check.
  const std::string zeros = "content" + by_a.substr(7, 8) + std::string(96, '\0');
  EXPECT_EQ(fault_of(zeros, {PublicKey()}), "it was altered after it was signed");
}

// --- Files ---------------------------------------------------------------------------------------

TEST_F(SignatureTest, DecideWhoeverMayWriteTheFile) {
  const SecretKey key = SecretKey::generate(), other = SecretKey::generate();
  const PublicKeys trusted = {key.public_key()};
  const fs::path path = write("file", sign("content", key));
  for (const mode_t mode : {0600, 0666}) {
    chmod(path.c_str(), mode);
    EXPECT_EQ(open_signed(path, trusted, kDemand)->bytes().size(), 7u + 104u);
    EXPECT_THAT(error_of([&] { open_signed(path, {other.public_key()}, kDemand); }),
                AllOf(HasSubstr("file-signature"), HasSubstr("not trusted"),
                      HasSubstr(key.public_key().to_string()), HasSubstr("fix:")));
  }
  fs::create_symlink("file", folder_ / "link");
  EXPECT_EQ(open_signed(folder_ / "link", trusted, kDemand)->path(), folder_ / "link");
  write("file", "content");
  EXPECT_THAT(error_of([&] { open_signed(path, trusted, kDemand); }),
              AllOf(HasSubstr("file-signature"), HasSubstr("it is not signed")));
  EXPECT_THAT(error_of([&] { open_signed(folder_ / "none", trusted, kDemand); }),
              HasSubstr("file-missing"));
  EXPECT_THAT(error_of([&] { open_signed(folder_, trusted, kDemand); }), HasSubstr("file-kind"));
  write("empty", "", 0666);
  EXPECT_THAT(error_of([&] { open_signed(folder_ / "empty", trusted, kDemand); }),
              HasSubstr("not signed"));
}

TEST_F(SignatureTest, DecideWhoeverOwnsTheFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const SecretKey key = SecretKey::generate();
  const fs::path path = write("file", sign("content", key));
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_EQ(open_signed(path, {key.public_key()}, kDemand)->bytes().size(), 7u + 104u);
}

// What was judged is what is used, though others write the file meanwhile.
TEST_F(SignatureTest, AreOfWhatIsRead) {
  const SecretKey key = SecretKey::generate();
  const std::string text = sign(std::string(100'000, 'a'), key);
  const fs::path path = write("file", text, 0666);
  const auto file = open_signed(path, {key.public_key()}, kDemand);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << "changed";
  EXPECT_TRUE(std::ranges::equal(file->bytes(), bytes_of(text)));
  fs::resize_file(path, 0);
  EXPECT_TRUE(std::ranges::equal(file->bytes(), bytes_of(text)));
}

// 8 TiB, of which nothing is on the disk: more than any copy could hold.
TEST_F(SignatureTest, AreLookedForBeforeTheFileIsRead) {
  const SecretKey key = SecretKey::generate(), other = SecretKey::generate();
  const fs::path path = write("file", "content", 0666);
  if (truncate(path.c_str(), off_t{1} << 43) != 0) GTEST_SKIP() << "no file system for this";
  EXPECT_THAT(error_of([&] { open_signed(path, {key.public_key()}, kDemand); }),
              AllOf(HasSubstr("it is not signed"), HasSubstr("as the test demands")));
  std::ofstream(path, std::ios::binary | std::ios::app) << sign("", other);
  EXPECT_THAT(error_of([&] { open_signed(path, {key.public_key()}, kDemand); }),
              HasSubstr("a key that is not trusted"));
  EXPECT_THAT(error_of([&] { open_signed(path, {other.public_key()}, kDemand); }),
              AllOf(HasSubstr("file-mapping"), HasSubstr("chmod go-w")));
}

TEST(WithoutSignatures, KeysAreAnError) {
  if (has_signatures()) GTEST_SKIP() << "built with libsodium";
  for (const auto& work : std::initializer_list<std::function<void()>>{
           [] { trusted_keys({"key.pub"}); }, [] { SecretKey::generate(); }})
    EXPECT_THAT(error_of(work), AllOf(HasSubstr("no-signatures"), HasSubstr("libsodium")));
}

}  // namespace
}  // namespace braze::test
