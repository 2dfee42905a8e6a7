#include "runtime/io/signature.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "ir/support/env.h"
#include "ir/support/shell.h"
#include "ir/support/text.h"
#include "runtime/io/file_writer.h"

#ifdef BRAZE_HAS_SODIUM
#include <sodium.h>

// libsodium calls this if its contract is broken. The linker would otherwise take the function from
// libsodium's archive together with sodium_init, and with it the whole library, which is several
// times as large as the part for signatures. Signatures do not need sodium_init.
extern "C" __attribute__((weak)) void sodium_misuse() { std::abort(); }
#endif

namespace braze {

namespace {

constexpr std::string_view kMagic =
    "\x89"
    "BRZSIG\n";
constexpr size_t kKeyBytes = sizeof(PublicKey::bytes), kSignatureBytes = 64;
constexpr size_t kTrailerBytes = kMagic.size() + kKeyBytes + kSignatureBytes;
static_assert(kTrailerBytes == kSignatureFileBytes);

constexpr std::string_view kPublic = "public", kSecret = "secret";
using KeyBytes = std::array<unsigned char, kKeyBytes>;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// --- Key files ----------------------------------------------------------------------------------

std::string key_text(std::string_view kind, const KeyBytes& key) {
  return fmt::format("braze 1 {} key\n{:02x}\n", kind, fmt::join(key, ""));
}

// What is in a key's file: a key of one kind, or a fault.
struct ParsedKey {
  std::string_view kind = {};
  KeyBytes key = {};
  std::string fault = {};
};

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string digits_fault(std::string_view digits, std::string_view rest) {
  if (digits.size() != 2 * kKeyBytes)
    return fmt::format("its second line has {} characters, not {} hexadecimal digits",
                       digits.size(), 2 * kKeyBytes);
  const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (!std::ranges::all_of(digits, is_digit))
    return "its second line has other characters than hexadecimal digits";
  return rest.empty() ? "" : "something follows its second line";
}

ParsedKey parse_key(std::string_view text) {
  const std::string_view title = take_line(text), digits = take_line(text);
  ParsedKey parsed;
  for (const std::string_view kind : {kPublic, kSecret})
    if (title == fmt::format("braze 1 {} key", kind)) parsed.kind = kind;
  parsed.fault =
      parsed.kind.empty() ? "its first line is not that of a key" : digits_fault(digits, text);
  if (!parsed.fault.empty()) return parsed;
  for (size_t i = 0; i < kKeyBytes; ++i)
    std::from_chars(&digits[2 * i], &digits[2 * i] + 2, parsed.key[i], 16);
  return parsed;
}

std::string read_text(const Descriptor& file, const std::string& path) {
  std::array<char, 256> text;  // a valid key is shorter
  const ssize_t size = read(file.get(), text.data(), text.size());
  if (size < 0) fail_open(path, errno);
  return {text.data(), static_cast<size_t>(size)};
}

[[noreturn]] void fail_kind(std::string_view kind, const std::string& path) {
  if (kind == kPublic)
    fail(codes::kNoKey, fmt::format("{} is a secret key, not a public one", quote(path)),
         {.fix = fmt::format("give {}.pub, which was made with it", path)});
  fail(codes::kNoKey, fmt::format("{} is a public key, not a secret one", quote(path)),
       {.fix =
            "give the secret key that was made with it: `braze key new FILE` makes FILE, a secret "
            "key, and FILE.pub, its public one"});
}

KeyBytes read_key(std::string_view kind, const Descriptor& file, const std::string& path) {
  const ParsedKey parsed = parse_key(read_text(file, path));
  if (!parsed.kind.empty() && parsed.kind != kind) fail_kind(kind, path);
  if (parsed.fault.empty()) return parsed.key;
  fail(codes::kNoKey, fmt::format("{} is not a {} key: {}", quote(path), kind, parsed.fault),
       {.fix = "`braze key new FILE` makes FILE, a secret key, and FILE.pub, its public one"});
}

void write_new(const std::string& path, mode_t mode, const std::string& text) {
  const auto fail_write = [&path](int error) {
    fail(codes::kFileUnwritable,
         fmt::format("{} cannot be written: {}", quote(path),
                     std::error_code(error, std::generic_category()).message()));
  };
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file && errno == EEXIST)
    fail(codes::kKeyExists, fmt::format("{} exists already", quote(path)),
         {.fix = "name another file: keys are never replaced"});
  if (!file) fail_write(errno);
  const ssize_t written = write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size()) && fsync(file.get()) == 0) return;
  const int error = written < 0 ? errno : ENOSPC;
  unlink(path.c_str());
  fail_write(error);
}

std::vector<std::string> keys_in(const std::string& path) {
  const Descriptor folder = open_trusted_folder(path);
  const int fd = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_open(path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(fdopendir(fd), closedir);
  std::vector<std::string> keys;
  while (const dirent* const file = readdir(list.get()))
    if (std::string_view(file->d_name).ends_with(".pub")) keys.push_back(path + "/" + file->d_name);
  if (keys.empty())
    fail(codes::kNoKey, fmt::format("the folder {} has no public keys", quote(path)),
         {.fix = "their names end in .pub"});
  std::sort(keys.begin(), keys.end());
  return keys;
}

bool is_folder(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

}  // namespace

// --- libsodium ----------------------------------------------------------------------------------

#ifdef BRAZE_HAS_SODIUM

struct Signer::State {
  State() { crypto_sign_ed25519ph_init(&sodium); }
  void append(std::span<const std::byte> bytes) {
    crypto_sign_ed25519ph_update(&sodium, reinterpret_cast<const unsigned char*>(bytes.data()),
                                 bytes.size());
  }
  std::string sign(const unsigned char* key) {
    std::string signature(kSignatureBytes, '\0');
    crypto_sign_ed25519ph_final_create(&sodium, reinterpret_cast<unsigned char*>(signature.data()),
                                       nullptr, key);
    return signature;
  }
  bool verify(std::span<const std::byte> signature, const PublicKey& key) {
    // libsodium only reads it, but its declaration does not say so.
    auto* const bytes = reinterpret_cast<const unsigned char*>(signature.data());
    return crypto_sign_ed25519ph_final_verify(&sodium, const_cast<unsigned char*>(bytes),
                                              key.bytes.data()) == 0;
  }

  crypto_sign_ed25519ph_state sodium;
};

namespace {
void derive_keys(const KeyBytes& seed, KeyBytes& public_key, unsigned char* secret_key) {
  crypto_sign_ed25519_seed_keypair(public_key.data(), secret_key, seed.data());
}
void need_signatures() {}
}  // namespace

bool has_signatures() { return true; }

#else

namespace {
[[noreturn]] void need_signatures() {
  fail(codes::kNoSignatures, "this Braze was built without signatures",
       {.fix = "build it with libsodium (libsodium-dev on Debian) and -DBRAZE_SIGNATURES=ON"});
}
void derive_keys(const KeyBytes&, KeyBytes&, unsigned char*) { need_signatures(); }
}  // namespace

struct Signer::State {
  State() { need_signatures(); }
  void append(std::span<const std::byte>) {}
  std::string sign(const unsigned char*) { need_signatures(); }
  bool verify(std::span<const std::byte>, const PublicKey&) { need_signatures(); }
};

bool has_signatures() { return false; }

#endif

// --- Keys ---------------------------------------------------------------------------------------

PublicKey PublicKey::read(const std::string& path) {
  need_signatures();
  return {read_key(kPublic, open_trusted_file(path), path)};
}

std::string PublicKey::to_string() const { return fmt::format("{:02x}", fmt::join(bytes, "")); }

std::vector<std::string> split_paths(std::string_view list) {
  std::vector<std::string> paths;
  while (!list.empty()) {
    const size_t end = std::min(list.find(':'), list.size());
    if (end > 0) paths.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  if (paths.empty())
    fail(codes::kNoKey, "a list of keys is empty",
         {.fix = fmt::format("{}: {}", kEnvTrustKeys.name, kEnvTrustKeys.meaning)});
  return paths;
}

namespace {

PublicKeys keys_of_environment() {
  const auto list = read_env(kEnvTrustKeys);
  if (!list) return {};
  try {
    return trusted_keys(split_paths(*list));
  } catch (const Error& error) {
    fail(error.code(),
         fmt::format("{} is {}: {}", kEnvTrustKeys.name, quote(*list), error.message()),
         {.fix = error.fix()});
  }
}

}  // namespace

PublicKeys trusted_keys(const std::vector<std::string>& paths) {
  if (paths.empty()) return keys_of_environment();
  PublicKeys keys;
  for (const std::string& path : paths)
    for (const std::string& file : is_folder(path) ? keys_in(path) : std::vector{path})
      keys.push_back(PublicKey::read(file));
  return keys;
}

SecretKey::SecretKey(const Seed& seed) : seed_(seed) {
  derive_keys(seed_, public_key_.bytes, bytes_.data());
}

SecretKey::~SecretKey() {
  explicit_bzero(seed_.data(), seed_.size());
  explicit_bzero(bytes_.data(), bytes_.size());
}

SecretKey SecretKey::generate() {
  Seed seed;
  if (getrandom(seed.data(), seed.size(), 0) != static_cast<ssize_t>(seed.size()))
    fail_open("the system's randomness", errno);
  return SecretKey(seed);
}

SecretKey SecretKey::read(const std::string& path) {
  const Descriptor file = open_trusted_file(path);
  const SecretKey key(read_key(kSecret, file, path));
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) fail_open(path, errno);
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    fail(codes::kKeyExposed, fmt::format("{} is a secret, and others can read it", quote(path)),
         {.fix = fmt::format("chmod 600 {}, or a new key if others may have read it",
                             shell_path(path))});
  return key;
}

void SecretKey::write(const std::string& path) const {
  check_path(path);
  const std::string public_path = path + ".pub";
  write_new(public_path, 0644, key_text(kPublic, public_key_.bytes));
  try {
    write_new(path, 0600, key_text(kSecret, seed_));
  } catch (...) {
    unlink(public_path.c_str());
    throw;
  }
}

// --- Signatures ---------------------------------------------------------------------------------

Signer::Signer(const SecretKey& key) : key_(key), state_(std::make_unique<State>()) {}

Signer::~Signer() = default;

void Signer::append(std::span<const std::byte> bytes) { state_->append(bytes); }

std::string Signer::finish() {
  std::string trailer(kMagic);
  trailer.append(reinterpret_cast<const char*>(key_.public_key().bytes.data()), kKeyBytes);
  append(bytes_of(trailer));
  return trailer + state_->sign(key_.bytes_.data());
}

SignedBytes split_signature(std::span<const std::byte> file) {
  if (file.size() < kTrailerBytes) return {file};
  const auto trailer = file.last(kTrailerBytes);
  if (!std::ranges::equal(trailer.first(kMagic.size()), bytes_of(kMagic))) return {file};
  PublicKey signer;
  std::memcpy(signer.bytes.data(), trailer.data() + kMagic.size(), kKeyBytes);
  return {file.first(file.size() - kTrailerBytes), signer,
          file.first(file.size() - kSignatureBytes), trailer.last(kSignatureBytes)};
}

namespace {

// The fault that the name of the signer alone shows.
std::string_view signer_fault(const SignedBytes& file, const PublicKeys& trusted) {
  if (!file.signer) return "it is not signed";
  if (std::ranges::find(trusted, *file.signer) == trusted.end())
    return "it is signed by a key that is not trusted";
  return {};
}

}  // namespace

std::string_view signature_fault(const SignedBytes& file, const PublicKeys& trusted) {
  if (const std::string_view fault = signer_fault(file, trusted); !fault.empty()) return fault;
  Signer::State state;
  state.append(file.covered);
  if (!state.verify(file.signature, *file.signer)) return "it was altered after it was signed";
  return {};
}

namespace {

[[noreturn]] void refuse(const std::string& path, const SignedBytes& file, std::string_view fault,
                         const PublicKeys& trusted, const SignatureDemand& demand) {
  const std::string signer = file.signer ? fmt::format(" ({})", file.signer->to_string()) : "";
  const bool is_known = signer_fault(file, trusted).empty();
  fail(codes::kFileSignature,
       fmt::format("{} has to be signed by a trusted key, as {} demands, but {}{}", quote(path),
                   demand.by, fault, signer),
       {.fix = is_known ? "get it again from its maker"
                        : "get it from one you trust, `braze sign` it if you made it, or " +
                              demand.way_out});
}

std::array<std::byte, kTrailerBytes> read_end(const std::string& path) {
  std::array<std::byte, kTrailerBytes> end = {};
  const Descriptor file = open_file(path);
  const uint64_t size = size_of(file, path);
  if (size < end.size()) return end;  // zeros cannot be a signature
  if (pread(file.get(), end.data(), end.size(), static_cast<off_t>(size - end.size())) < 0)
    fail_open(path, errno);
  return end;
}

}  // namespace

std::shared_ptr<const MappedFile> open_signed(const std::string& path, const PublicKeys& trusted,
                                              const SignatureDemand& demand) {
  const auto end = read_end(path);
  const SignedBytes claim = split_signature(end);
  if (const auto fault = signer_fault(claim, trusted); !fault.empty())
    refuse(path, claim, fault, trusted, demand);
  auto file = MappedFile::open_stable(path);
  const SignedBytes parts = split_signature(file->bytes());
  if (const auto fault = signature_fault(parts, trusted); !fault.empty())
    refuse(path, parts, fault, trusted, demand);
  return file;
}

}  // namespace braze
