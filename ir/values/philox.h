// philox.h — Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2,
// 3, SC 2011): random bits as a function of a counter and a key, the same on every device.
#pragma once

#include <array>
#include <cstdint>

namespace braze {

/// One block of 128 random bits. Ten rounds, as in the paper's recommendation.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};  // the golden ratio and sqrt(3) - 1
  }
  return counter;
}

/// Word `i` of the stream under `key`: word i % 4 of the block with counter i / 4.
constexpr uint32_t philox_word(uint64_t i, std::array<uint32_t, 2> key) {
  const uint64_t block = i / 4;
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                    key)[i % 4];
}

}  // namespace braze
