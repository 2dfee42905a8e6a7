// signature.h — Ed25519 signatures (by libsodium) after the end of a file, which show who made it.
//
// A signed file is any file that is followed by 104 bytes:
//
//   bytes  0..7    89 "BRZSIG" 0a
//          8..39   the signer's public key
//         40..103  the signature of everything before: Ed25519ph of RFC 8032, without context
//
// Equal files that one key signs are equal bytes. A key is a file of two lines: `braze 1 public
// key` or `braze 1 secret key`, and 64 hexadecimal digits. The reader also accepts what mail
// programs make of it: CR LF as line ends, a missing last line end, upper-case digits. A public key
// decides whose code runs, so it must pass the rules of trust.h. A secret key must be readable by
// its owner only.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/error.h"
#include "runtime/io/mapped_file.h"

namespace braze {

namespace codes {
inline constexpr Code kFileSignature{
    "file-signature", ErrorKind::InvalidArgument,
    "A file is not signed by a trusted key, or was altered after it was signed."};
inline constexpr Code kNoKey{"no-key", ErrorKind::InvalidArgument,
                             "A file or folder holds no key of the kind that is needed."};
inline constexpr Code kKeyExposed{"key-exposed", ErrorKind::InvalidArgument,
                                  "Other users can read a secret key."};
inline constexpr Code kKeyExists{"key-exists", ErrorKind::InvalidArgument,
                                 "A key would be written where there is a file already."};
inline constexpr Code kNoSignatures{"no-signatures", ErrorKind::Unsupported,
                                    "This Braze was built without signatures."};
}  // namespace codes

/// Whether this Braze was built with libsodium. If not, everything that needs a key fails with
/// kNoSignatures.
bool has_signatures();

struct PublicKey {
  std::array<unsigned char, 32> bytes = {};

  /// Errors: those of open_trusted_file; kNoKey.
  static PublicKey read(const std::string& path);
  /// The key as 64 hexadecimal digits.
  std::string to_string() const;

  friend bool operator==(const PublicKey&, const PublicKey&) = default;
};

using PublicKeys = std::vector<PublicKey>;

/// The keys of which one must have signed a file: those of `paths`, or else those that
/// BRAZE_TRUST_KEYS names; none if neither names any. A path is that of a public key, or of a
/// folder whose files *.pub are public keys. Throws kNoKey if a folder has none, so that an empty
/// folder cannot cancel the demand. Errors that come from BRAZE_TRUST_KEYS name it.
PublicKeys trusted_keys(const std::vector<std::string>& paths = {});

/// Splits a list of paths such as "a.pub:keys". Throws kNoKey if the list is empty.
std::vector<std::string> split_paths(std::string_view list);

/// A secret key, whose memory is cleared when it is destroyed.
class SecretKey {
 public:
  static SecretKey generate();
  /// Errors: those of open_trusted_file; kNoKey; kKeyExposed unless only its owner can read it.
  static SecretKey read(const std::string& path);
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();

  /// Makes two files: `path`, which only its owner can read (0600), and `path`.pub. It never
  /// replaces existing files. Errors: kKeyExists, kFileUnwritable.
  void write(const std::string& path) const;
  const PublicKey& public_key() const { return public_key_; }

 private:
  friend class Signer;
  using Seed = std::array<unsigned char, 32>;
  explicit SecretKey(const Seed& seed);

  Seed seed_ = {};
  std::array<unsigned char, 64> bytes_ = {};  // the key in libsodium's form
  PublicKey public_key_;
};

/// Signs a file while it is written.
class Signer {
 public:
  explicit Signer(const SecretKey& key);
  ~Signer();

  /// Adds the next bytes of the file.
  void append(std::span<const std::byte> bytes);
  /// The bytes that must follow those of the file.
  std::string finish();

  struct State;  // libsodium's

 private:
  const SecretKey key_;
  std::unique_ptr<State> state_;
};

inline constexpr size_t kSignatureFileBytes = 104;  ///< the bytes that a signature adds to a file

/// The parts of a file that may be signed.
struct SignedBytes {
  std::span<const std::byte> content;    ///< all bytes, if the file is not signed
  std::optional<PublicKey> signer = {};  ///< the claimed signer, which proves nothing
  std::span<const std::byte> covered = {};
  std::span<const std::byte> signature = {};
};

SignedBytes split_signature(std::span<const std::byte> file);

/// The reason why the file does not count as signed by one of `trusted`; empty if one of them
/// signed it as it is.
std::string_view signature_fault(const SignedBytes& file, const PublicKeys& trusted);

/// For messages: who demands a signature, and what a user can do who does not have one.
struct SignatureDemand {
  std::string by;       ///< a name: "BRAZE_TRUST_KEYS"
  std::string way_out;  ///< continues after "or"
};

/// Opens a file that one of `trusted` signed, whoever owns it. A file that others can write could
/// change after it was checked. It is therefore checked as a copy in memory, which is made only if
/// the last bytes of the file name one of `trusted`. Errors: those of MappedFile; kFileSignature.
std::shared_ptr<const MappedFile> open_signed(const std::string& path, const PublicKeys& trusted,
                                              const SignatureDemand& demand);

}  // namespace braze
