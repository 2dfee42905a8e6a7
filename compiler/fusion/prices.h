// prices.h — the costs of kernels. Equal kernels are priced once.
//
// Layers that repeat make kernels that differ only in their nodes. A price is kept by structure:
// ops, types and edges, which are compared as a whole. It says nothing that names would change, so
// that it does not matter which of several equal kernels was priced. Threads share prices, and
// cores that are idle find those that are probably asked next.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
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
  std::string by_tree;  ///< why no loop tree serves it either, if one was tried
};

class Prices {
 public:
  /// `relaxed` says, for each node, whether it may take another form that is faster in cascades of
  /// dots.
  Prices(const LoopForms& forms, const Target& target, const std::vector<bool>& relaxed);

  ~Prices();
  Prices(const Prices&) = delete;
  Prices& operator=(const Prices&) = delete;

  /// The price of a Fusion that has outputs.
  Price of(const Fusion& fusion);
  /// The prices of these, which all cores find together.
  std::vector<Price> of(std::span<const Fusion* const> fusions);
  /// Says that the price of this Fusion will probably be asked. A core that has nothing else to do
  /// finds it.
  void expect(const Fusion& fusion);
  /// How many Fusions each of `searches` threads should expect at a time. None if all cores are
  /// busy with these threads.
  static size_t worth_expecting(unsigned searches);
  /// The number of kernels whose price was asked.
  size_t asked() const { return asked_; }

 private:
  using Key = std::vector<uint32_t>;
  // Prices name nodes by their place in the order that `ordered` gives.
  struct Known {
    Price price;
    std::exception_ptr error;
    bool asked = false;  // else it is only expected
    bool begun = false;  // some thread finds it
    bool found = false;
  };
  struct Asked {
    Known* known;
    std::vector<NodeId> nodes;  // in that order
  };
  struct Work {
    Asked asked;
    Fusion fusion;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };

  Asked ask(const Fusion& fusion);
  Price told(const Asked& asked);
  void answer(std::unique_lock<std::mutex>& lock, const Asked& asked, const Fusion& fusion);
  bool work_on(std::unique_lock<std::mutex>& lock, std::deque<Work>& list);
  void help();
  void add_helpers();
  void number_nodes();
  std::vector<NodeId> ordered(const Fusion& fusion);
  Key key_of(const Fusion& fusion, const std::vector<NodeId>& nodes);
  bool is_cascade(const Fusion& fusion) const;
  std::optional<NodeId> only_product(const Fusion& fusion) const;
  Price find(const Fusion& fusion) const;

  const LoopForms& forms_;
  const Graph& graph_;
  const Target& target_;
  const std::vector<bool>& relaxed_;
  std::vector<uint32_t> computed_;  // of a node: the number of its op, attributes and type
  std::vector<uint32_t> loaded_;    // of a node: the number of its type
  std::mutex mutex_;                // for what stands below
  ConditionVariable found_;         // one more
  ConditionVariable more_;          // work, or the end
  std::vector<uint64_t> made_;      // of a node in the Fusion at hand: a hash of how it is made
  std::vector<uint32_t> place_;     // of a node: where it stands in the order of that Fusion
  std::unordered_map<Key, Known, KeyHash> known_;
  size_t asked_ = 0;
  std::deque<Work> needed_, expected_;  // what helpers find, from the front
  bool ends_ = false;
  std::vector<std::jthread> helpers_;
};

}  // namespace braze
