// known.h — the values of a graph under construction that are known before it runs.
//
// Files of models compute shapes by ordinary ops: the shape of a value, a gather, products, a
// concatenation. An importer builds these ops like all others. When it needs a number, it asks
// here. Whole numbers are known as expressions over the sizes. Other values are known if they
// depend on constants only. Nodes that served only to compute known values are dead code.
//
// A few nodes can describe values of any size, so what is held here is limited: to a little, and as
// much again as the file has bytes. A value that nothing waits for makes room for others, and is
// computed again if it is asked for again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

class KnownValues {
 public:
  /// `graph` may grow while this object exists. The file has `file_bytes` bytes.
  KnownValues(const Graph& graph, size_t file_bytes);

  /// Sets the value of an input that is in fact a constant: a weight. Its memory is not counted.
  void bind(NodeId input, std::shared_ptr<const HostTensor> value) {
    bound_[input] = std::move(value);
  }

  /// The value of a node that depends on constants only. It is null for other nodes, and for values
  /// that are too large.
  std::shared_ptr<const HostTensor> constant(NodeId id);
  /// The elements of a node in row-major order, if all are whole numbers and known as expressions
  /// over the sizes. Bools are 0 and 1. A float can be a whole number too.
  std::optional<std::vector<Expr>> integers(NodeId id);
  /// Counts memory that a node takes for constants which are not in the file. It is false if there
  /// is no room for them.
  bool reserve(int64_t bytes);
  /// The names of the inputs that a node depends on and whose values are not known.
  std::vector<std::string> inputs_of(NodeId id) const;

 private:
  using Integers = std::optional<std::vector<Expr>>;
  /// How often each node is still to be read before the value that was asked for is there.
  using Readers = std::map<NodeId, int64_t>;
  class Request;

  const std::shared_ptr<const HostTensor>* find(NodeId id) const;
  std::shared_ptr<const HostTensor> compute(NodeId id);
  Integers compute_integers(NodeId id);
  bool make_room(int64_t bytes, int64_t elements);
  std::vector<NodeId> needed(NodeId id, const std::function<bool(NodeId)>& is_leaf) const;

  const Graph& graph_;
  const int64_t most_bytes_;
  std::map<NodeId, std::shared_ptr<const HostTensor>> bound_;
  // What was computed. It is null, or nullopt, if it is not known.
  std::map<NodeId, std::shared_ptr<const HostTensor>> constants_;
  std::map<NodeId, Integers> integers_;
  std::vector<const Readers*> requests_;  // those under way; one can need another
  int64_t held_ = 0;                      // bytes in constants_ and integers_
  int64_t computed_ = 0;                  // the number of elements computed so far
};

}  // namespace braze
