// generator.h — random graphs and inputs for them, the same for one seed everywhere.
//
// Graphs are valid by construction and cover every op, dtype and row of the table; extents favour
// the corners (0, 1, just around powers of two, primes). Values keep to a size that an interpreter
// runs in milliseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph/graph.h"

namespace braze::fuzz {

struct GraphOptions {
  int64_t max_nodes = 64;          ///< operations added on purpose; leaves and helpers come on top
  int64_t max_elements = 1 << 12;  ///< of any value
  int64_t max_products = 1 << 18;  ///< of any contraction
  bool symbolic = true;            ///< some graphs have a symbolic extent n
  bool reductions = true;
  bool math = true;
  bool gradients = true;  ///< some graphs return those of one of their values; needs reductions
  bool sorts = true;      ///< some graphs sort; needs reductions
  bool siblings = false;  ///< some graphs have many small outputs that are made alike
  bool rows_and_columns = false;  ///< some reductions are along rows, and along their columns
};

Graph random_graph(uint64_t seed, const GraphOptions& options = {});

/// Plain numbers for most seeds; small integers, or NaN, zeros, infinities, subnormals and extremes
/// among plain numbers for others. Symbols take random values of their range.
std::vector<HostTensor> random_inputs(const Graph& graph, uint64_t seed);

}  // namespace braze::fuzz
