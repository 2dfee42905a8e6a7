// prices.h — the costs of kernels. Equal kernels are priced once.
//
// Layers that repeat make kernels that differ only in their nodes. A price is kept for each
// structure (ops, types and edges); structures are compared as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/fusion/cost.h"
#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "ir/target/target.h"

namespace braze {

/// The cost of a kernel, or the reason why it cannot be one, with the two nodes that do not fit.
struct Price {
  const Code* refusal = nullptr;
  NodeId first = {}, second = {};
  Cost cost = {};
  std::string why = {};  ///< the reason that the loop tree gave
};

class Prices {
 public:
  /// `relaxed` says, for each node, whether it may take another form that is faster in cascades of
  /// dots.
  Prices(const LoopForms& forms, const Target& target, const std::vector<bool>& relaxed);

  /// The price of a Fusion that has outputs.
  Price of(const Fusion& fusion);
  /// The number of kernels whose cost was computed.
  size_t looked_at() const { return known_.size(); }

 private:
  using Key = std::vector<uint32_t>;

  void number_nodes();
  std::vector<NodeId> ordered(const Fusion& fusion);
  Key key_of(const Fusion& fusion, const std::vector<NodeId>& nodes);
  bool is_cascade(const Fusion& fusion) const;
  Price find(const Fusion& fusion) const;

  const LoopForms& forms_;
  const Graph& graph_;
  const Target& target_;
  const std::vector<bool>& relaxed_;
  std::vector<uint32_t> computed_;  // of a node: a number for its op, attributes and type
  std::vector<uint32_t> loaded_;    // of a node: a number for its type
  std::vector<uint64_t> made_;      // of a node in the present Fusion: a hash of how it is made
  std::vector<uint32_t> place_;     // of a node: its position in the order of that Fusion
  // Prices name nodes by their position in that order.
  std::map<Key, Price> known_;
};

}  // namespace braze
