// checked.h — checked mode: a graph that looks for its own first mistake.
//
// The graph of the user gets further results, which say where something first went wrong. They are
// ordinary nodes, so every device computes them by the ordinary compiler, and the host
// reads them after the call. What is reported:
//
// - an index of gather or scatter_add that is outside of its axis (the call itself clamps it);
// - a NaN made by an op none of whose operands is NaN there;
// - an infinity made by an op whose operands are finite there. Infinities of constants and
//   arguments, and what movement, select, min and max pass on, are meant;
// - a NaN in an argument, or in what depends on constants alone.
//
// Infinities of what depends on constants alone are meant, too. Where nothing but selects reads a
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

/// A graph and the same with its checks.
class CheckedGraph {
 public:
  explicit CheckedGraph(const Graph& source);

  /// The source with more outputs behind its own. To be compiled as Precision::Strict: in others a
  /// value that only a check reads could be another than what the results are made of.
  const Graph& graph() const { return graph_; }
  /// How many outputs are the source's.
  size_t result_count() const { return result_count_; }

  /// Runs `executable`, which is `graph()` compiled; waits, and returns the source's results.
  /// InvalidArgument with the op, its line, the element and what was found there for the first node
  /// that went wrong; arguments that the call was to take over are gone then, too.
  std::vector<Array> run(const Executable& executable, std::span<const Array> arguments) const;

 private:
  /// Indices that can be out of range. One output says where the first is, the next what it is.
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
  std::vector<bool> of_constants_;        // by node of the source: it depends on them alone
  std::vector<IndexCheck> index_checks_;  // in the order of the source's nodes
  size_t first_value_ = 0;  // this output and those behind it say which value went wrong first
};

}  // namespace braze
