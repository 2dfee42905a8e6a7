// known.h — the values of a graph under construction that are known before it runs.
//
// Files of models compute shapes by ordinary ops: the shape of a value, a gather, products, a
// concatenation. An importer builds these ops like all others. When it needs a number, it asks
// here. Whole numbers are known as expressions over the sizes. Other values are known if they
// depend on constants only. Nodes that served only to compute known values are dead code.
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
  /// `graph` may grow while this object exists.
  explicit KnownValues(const Graph& graph) : graph_(graph) {}

  /// Sets the value of an input that is in fact a constant: a weight.
  void bind(NodeId input, std::shared_ptr<const HostTensor> value) {
    constants_[input] = std::move(value);
  }

  /// The value of a node that depends on constants only. It is null for other nodes, and for large
  /// values.
  std::shared_ptr<const HostTensor> constant(NodeId id);
  /// The elements of a node in row-major order, if all are whole numbers and known as expressions
  /// over the sizes. Bools are 0 and 1. A float can be a whole number too.
  std::optional<std::vector<Expr>> integers(NodeId id);
  /// The names of the inputs that a node depends on and whose values are not known.
  std::vector<std::string> inputs_of(NodeId id) const;

 private:
  using Integers = std::optional<std::vector<Expr>>;
  Integers compute_integers(NodeId id);
  std::vector<NodeId> needed(NodeId id, const std::function<bool(NodeId)>& is_leaf) const;

  const Graph& graph_;
  std::map<NodeId, std::shared_ptr<const HostTensor>> constants_;  // null if not known
  std::map<NodeId, Integers> integers_;
  int64_t computed_ = 0;  // the number of elements computed so far
};

}  // namespace braze
