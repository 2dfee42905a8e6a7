// known.h — which values of a graph under construction are known before it runs.
//
// Files of models compute shapes by ordinary ops: the shape of a value, a gather, products, a
// concatenation. An importer builds these like everything else, and asks here where it needs a
// number. Whole numbers are known as expressions over the sizes. Other values are known if they
// depend only on constants. Nodes whose value is known in this way, and that nothing else needs,
// are dead code.
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

  /// The value of an input that is in fact a constant: a weight.
  void bind(NodeId input, std::shared_ptr<const HostTensor> value) {
    constants_[input] = std::move(value);
  }

  /// The value of a node that depends only on constants; null for other nodes, and for large
  /// values.
  std::shared_ptr<const HostTensor> constant(NodeId id);
  /// The elements of a node in row-major order, if all are whole numbers that are known as
  /// expressions over the sizes. Bools are 0 and 1. Floats that are whole numbers count as such.
  std::optional<std::vector<Expr>> integers(NodeId id);
  /// The names of the inputs without a value from which a node is computed.
  std::vector<std::string> inputs_of(NodeId id) const;

 private:
  using Integers = std::optional<std::vector<Expr>>;
  Integers compute_integers(NodeId id);
  std::vector<NodeId> needed(NodeId id, const std::function<bool(NodeId)>& is_leaf) const;

  const Graph& graph_;
  std::map<NodeId, std::shared_ptr<const HostTensor>> constants_;  // null: not known
  std::map<NodeId, Integers> integers_;
  int64_t computed_ = 0;  // elements of constants that are not in the file itself
};

}  // namespace braze
