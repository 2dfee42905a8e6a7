// cache_settings.h — where the disk cache lies and what it may do.
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
  ReadOnly,  ///< entries are used, nothing in the folder is changed
  On,
};

std::string_view name(CacheMode mode);

struct CacheSettings {
  CacheMode mode = CacheMode::On;
  std::string folder;  ///< empty: there is none, and the cache is off
  uint64_t max_bytes = uint64_t{1} << 30;
  bool sync = false;  ///< entries are on the disk before they have their names
  /// Signs what is written; none: nothing is signed.
  std::shared_ptr<const SecretKey> sign_key = {};
  /// Whose entries are used besides this user's own; `sign_key`'s among them.
  PublicKeys trusted = {};
  std::string refusal = {};     ///< why there is no cache: keys that are demanded and not there
  std::string sign_fault = {};  ///< why nothing is signed, though a key is named

  /// As `configure` was told, else as BRAZE_CACHE, BRAZE_CACHE_DIR and BRAZE_CACHE_SIZE say; and as
  /// BRAZE_CACHE_SYNC, BRAZE_CACHE_SIGN_KEY and BRAZE_TRUST_KEYS say. The folder is
  /// $XDG_CACHE_HOME/braze or ~/.cache/braze unless one is named. InvalidArgument where a variable
  /// has a value that cannot be; faults of keys are noted.
  static CacheSettings of_process();
};

/// "1048576", "1M", "1.5 GiB" in bytes (K, M, G, T are powers of 1024); nullopt if it is no size.
std::optional<uint64_t> parse_bytes(std::string_view text);

}  // namespace braze
