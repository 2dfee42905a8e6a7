// checked.h — checked mode: a graph that looks for its own first mistake.
//
// The graph of the user gets further results, which say where something first went wrong. They are
// ordinary nodes, so every device computes them with the ordinary compiler, and the host reads them
// after the call. It reports:
//
// - an index of gather or scatter_add that is outside of its axis (the call itself clamps it);
// - a NaN made by an op if none of its operands is NaN there;
// - an infinity made by an op if its operands are finite there. Infinities in constants and
//   arguments,
//   and those that movement, select, min and max pass on, are intended;
// - a NaN in an argument, or in a value that depends on constants only.
//
// Infinities in values that depend on constants only are intended too. If only selects read a
// value, elements that they drop do not count: where(x > 0, log(x), 0) makes no NaN.
#pragma once

#include <span>
#include <vector>

#include "braze/array.h"
#include "braze/error.h"
#include "braze/executable.h"
#include "ir/graph/graph.h"

namespace braze {

namespace codes {
inline constexpr Code kNotFinite{"not-finite", ErrorKind::InvalidArgument,
                                 "A value of a checked call is NaN or infinite, and no operand of "
                                 "its op was."};
}  // namespace codes

/// A graph, and the same graph with its checks.
class CheckedGraph {
 public:
  explicit CheckedGraph(const Graph& source);

  /// The source, with more outputs after its own. It must be compiled as Precision::Strict: in
  /// other precisions, a value that only a check reads could differ from the value from which the
  /// results are made.
  const Graph& graph() const { return graph_; }
  /// The number of outputs that belong to the source.
  size_t result_count() const { return result_count_; }

  /// Runs `executable`, which is `graph()` compiled, waits, and returns the source's results. If a
  /// node went wrong, it throws InvalidArgument with the first such op, its line, the element, and
  /// what was found there. Arguments that the call was to take over are gone then, too.
  std::vector<Array> run(const Executable& executable, std::span<const Array> arguments) const;

 private:
  /// Indices that can be out of range. One output says where the first one is, and the next one its
  /// value.
  struct IndexCheck {
    NodeId node;  ///< of the source
    size_t output = 0;
  };
  class Builder;

  // `shapes`: of the arguments.
  [[noreturn]] void fail_index(NodeId node, int64_t place, int64_t index,
                               std::span<const std::vector<int64_t>> shapes) const;
  [[noreturn]] void fail_value(int64_t value, std::span<const std::vector<int64_t>> shapes) const;

  Graph source_, graph_;
  size_t result_count_ = 0;
  std::vector<bool> of_constants_;        // by node of the source: whether it depends on them only
  std::vector<IndexCheck> index_checks_;  // in the order of the source's nodes
  size_t first_value_ = 0;  // this output and those after it say which value went wrong first
};

}  // namespace braze
