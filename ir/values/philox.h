// philox.h — Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2,
// 3, SC 2011). It computes random bits from a counter and a key, the same bits on every device.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace braze {

/// One block of 128 random bits, from ten rounds, as the paper recommends. A Word has 32 bits, ^,
/// and a + that wraps; `multiply(factor, word)` gives the upper and the lower word of the product.
template <class Word, class Multiply>
constexpr std::array<Word, 4> philox4x32(std::array<Word, 4> counter, std::array<Word, 2> key,
                                         Multiply&& multiply) {
  for (int round = 0; round < 10; ++round) {
    const std::pair<Word, Word> a = multiply(0xD2511F53u, counter[0]);
    const std::pair<Word, Word> b = multiply(0xCD9E8D57u, counter[2]);
    counter = {b.first ^ counter[1] ^ key[0], b.second, a.first ^ counter[3] ^ key[1], a.second};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};  // the golden ratio and sqrt(3) - 1
  }
  return counter;
}

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  return philox4x32(counter, key, [](uint32_t factor, uint32_t word) {
    const uint64_t product = uint64_t{factor} * word;
    return std::pair(static_cast<uint32_t>(product >> 32), static_cast<uint32_t>(product));
  });
}

/// Word `i` of the stream under `key`: word i % 4 of the block with counter i / 4.
constexpr uint32_t philox_word(uint64_t i, std::array<uint32_t, 2> key) {
  const uint64_t block = i / 4;
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                    key)[i % 4];
}

}  // namespace braze
