// hash.h — hashing of keys: 64 bits in memory, 128 bits (XXH3) for names and caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace braze {

/// Mixes `value` into `seed`; order matters.
constexpr uint64_t hash_combine(uint64_t seed, uint64_t value) {
  uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  return x;
}

uint64_t hash64(std::string_view bytes);

/// A 128-bit XXH3 hash.
struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;

  friend constexpr bool operator==(const Hash128&, const Hash128&) = default;
  /// 32 hexadecimal digits.
  std::string to_string() const;
};

Hash128 hash128(std::string_view bytes);

}  // namespace braze

template <>
struct std::hash<braze::Hash128> {
  size_t operator()(const braze::Hash128& h) const noexcept { return h.low; }
};
