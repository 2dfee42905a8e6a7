// prices.h — the costs of kernels. Equal kernels are priced once.
//
// Layers that repeat make kernels that differ only in their nodes. A price is kept by structure:
// ops, types and edges, which are compared as a whole. It says nothing that names would change, so
// that it does not matter which of several equal kernels was priced. Threads share prices.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "compiler/fusion/fusion.h"
#include "compiler/fusion/inliner.h"
#include "compiler/loops/cost.h"
#include "ir/support/condition_variable.h"
#include "ir/target/target.h"

namespace braze {

/// The cost of a kernel, or the reason why it cannot be one, with the two nodes that do not fit.
struct Price {
  size_t kind = 0;  ///< equal kernels have the same
  const Code* refusal = nullptr;
  NodeId first = {}, second = {};
  Cost cost = {};
  const Code* by_tree = nullptr;  ///< why no loop tree serves it either, if one was tried
};

class Prices {
 public:
  /// `relaxed` says, for each node, whether it may take another form that is faster in cascades of
  /// dots.
  Prices(const LoopForms& forms, const Target& target, const std::vector<bool>& relaxed);

  /// The price of a Fusion that has outputs.
  Price of(const Fusion& fusion);
  /// Finds the prices of these that nobody has asked for yet, on all cores.
  void find_all(std::span<const Fusion> fusions);
  /// The number of kernels whose cost was computed.
  size_t looked_at() const { return known_.size(); }

 private:
  using Key = std::vector<uint32_t>;
  // Prices name nodes by their place in the order that `ordered` gives.
  struct Known {
    size_t kind = 0;
    Price price;
    std::exception_ptr error;
    bool found = false;  // else some thread is about to find it
  };
  struct Asked {
    Known* known;
    std::vector<NodeId> nodes;  // in that order
    bool first;                 // nobody asked before
  };

  Asked ask(const Fusion& fusion);
  void answer(const Asked& asked, const Fusion& fusion);
  void number_nodes();
  std::vector<NodeId> ordered(const Fusion& fusion);
  Key key_of(const Fusion& fusion, const std::vector<NodeId>& nodes);
  bool is_cascade(const Fusion& fusion) const;
  Price find(const Fusion& fusion) const;

  const LoopForms& forms_;
  const Graph& graph_;
  const Target& target_;
  const std::vector<bool>& relaxed_;
  std::vector<uint32_t> computed_;  // of a node: the number of its op, attributes and type
  std::vector<uint32_t> loaded_;    // of a node: the number of its type
  std::mutex mutex_;                // for what stands below
  ConditionVariable found_;         // one more
  std::vector<uint64_t> made_;      // of a node in the Fusion at hand: a hash of how it is made
  std::vector<uint32_t> place_;     // of a node: where it stands in the order of that Fusion
  std::map<Key, Known> known_;
};

}  // namespace braze
