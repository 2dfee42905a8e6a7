// prices.h — what kernels cost, with equal ones priced once.
//
// Layers that repeat make kernels that differ only in which nodes they are of. A price is kept by
// structure: ops, types and edges, compared as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/fusion/cost.h"
#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "ir/target/target.h"

namespace braze {

/// The cost of a kernel, or why it is none and the two nodes that do not go together.
struct Price {
  const Code* refusal = nullptr;
  NodeId first = {}, second = {};
  Cost cost = {};
  std::string why = {};  ///< what the loop tree says of a refusal
};

class Prices {
 public:
  Prices(const LoopForms& forms, const Target& target);

  /// Of a Fusion that has outputs.
  Price of(const Fusion& fusion);
  /// How many kernels had to be looked at.
  size_t looked_at() const { return known_.size(); }

 private:
  using Key = std::vector<uint32_t>;

  void number_nodes();
  Key key_of(const Fusion& fusion);
  bool is_cascade(const Fusion& fusion) const;
  Price find(const Fusion& fusion) const;

  const LoopForms& forms_;
  const Graph& graph_;
  const Target& target_;
  std::vector<uint32_t> computed_;  // of a node: the number of its op, attributes and type
  std::vector<uint32_t> loaded_;    // of a node: the number of its type
  std::vector<uint32_t> place_;     // of a node: where it stands in the Fusion at hand
  // Prices speak of nodes by their place in the Fusion.
  std::map<Key, Price> known_;
};

}  // namespace braze
