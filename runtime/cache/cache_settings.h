// cache_settings.h — the folder of the disk cache, and what it may do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/io/signature.h"

namespace braze {

enum class CacheMode : uint8_t {
  Off,
  ReadOnly,  ///< entries are used, and nothing in the folder is changed
  On,
};

std::string_view name(CacheMode mode);

struct CacheSettings {
  CacheMode mode = CacheMode::On;
  std::string folder;  ///< if empty, there is no folder and the cache is off
  uint64_t max_bytes = uint64_t{1} << 30;
  bool sync = false;  ///< whether entries are flushed to disk before they get their names
  /// The key that signs new entries; without one, nothing is signed.
  std::shared_ptr<const SecretKey> sign_key = {};
  /// The keys whose entries are used besides this user's own, including the public part of
  /// `sign_key`.
  PublicKeys trusted = {};
  std::string refusal = {};     ///< why the cache is off: demanded keys cannot be read
  std::string sign_fault = {};  ///< why nothing is signed although a key is named

  /// The settings from `configure`, or from BRAZE_CACHE, BRAZE_CACHE_DIR and BRAZE_CACHE_SIZE, and
  /// from BRAZE_CACHE_SYNC, BRAZE_CACHE_SIGN_KEY and BRAZE_TRUST_KEYS. Without a name, the folder
  /// is $XDG_CACHE_HOME/braze or ~/.cache/braze. InvalidArgument if a variable has an impossible
  /// value; faults of keys are recorded.
  static CacheSettings of_process();
};

/// The number of bytes of "1048576", "1M", "1.5 GiB" (K, M, G, T are powers of 1024); nullopt if
/// the text is not a size.
std::optional<uint64_t> parse_bytes(std::string_view text);

}  // namespace braze
