// tile_generator.h — random tile programs in text, the same for one seed everywhere.
//
// Programs are sound by construction: every element of an output is written once, accesses stay
// inside by their guards, roles keep the rules between them. Extents and sizes favour the corners:
// loops without turns, tails of one element, tiles that threads share unevenly. Numbers are small,
// so that sums are exact where a machine may choose their order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace braze::fuzz {

enum class TileKind : uint8_t {
  Cpu,       ///< plain, for x86-64-v3
  Gpu,       ///< plain, for sm_80 and sm_90a
  Pipelined  ///< roles, for sm_90a
};

struct TileCase {
  std::string text;
  std::vector<int64_t> sizes;  ///< of the program's symbols, in order
};

TileCase random_tile_program(uint64_t seed, TileKind kind);

}  // namespace braze::fuzz
