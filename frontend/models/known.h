// known.h — which values of a graph under construction are known before it runs.
//
// Files of models compute shapes by ordinary ops: the shape of a value, a gather, products, a
// concatenation. An importer builds these as it builds all else, and asks here where it needs a
// number: whole numbers as expressions over the sizes, anything else where it depends on constants
// alone. What turns out to be known this way, and nothing else needs, is dead code.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

class KnownValues {
 public:
  /// `graph` may grow while this is used.
  explicit KnownValues(const Graph& graph) : graph_(graph) {}

  /// The value of an input that is a constant all the same: a weight.
  void bind(NodeId input, std::shared_ptr<const HostTensor> value) {
    constants_[input] = std::move(value);
  }

  /// The value of a node that depends on constants alone; null for others, and for large ones.
  std::shared_ptr<const HostTensor> constant(NodeId id);
  /// The elements of a node in row-major order, if all are whole numbers known as expressions over
  /// the sizes; bools are 0 and 1, and floats count where they are whole.
  std::optional<std::vector<Expr>> integers(NodeId id);
  /// The names of the inputs, none of them bound, that a node is computed from.
  std::vector<std::string> inputs_of(NodeId id) const;

 private:
  using Integers = std::optional<std::vector<Expr>>;
  Integers compute_integers(NodeId id);
  std::vector<NodeId> needed(NodeId id, const std::function<bool(NodeId)>& is_leaf) const;

  const Graph& graph_;
  std::map<NodeId, std::shared_ptr<const HostTensor>> constants_;  // null: not known
  std::map<NodeId, Integers> integers_;
  int64_t computed_ = 0;  // elements of constants that the file has not itself
};

}  // namespace braze
