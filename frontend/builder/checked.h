// checked.h — checked mode: a graph that reports where something first went wrong.
//
// The user's graph gets further results, which say where something first went wrong. They are
// computed by ordinary nodes, so the ordinary compiler serves every device. The host reads them
// after the call. It reports:
//
// - an index of a gather or scatter that is outside of its axis (the call itself clamps it);
// - a NaN that an op makes where none of its operands is NaN;
// - an infinity that an op makes where its operands are finite;
// - a NaN in an argument, or in a value that depends on constants only.
//
// Other infinities are intended: those in constants and arguments, those that movement, select, min
// and max pass on, and those in values that depend on constants only. If only selects read a value,
// the elements that they drop do not count: where(x > 0, log(x), 0) makes no NaN.
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

  /// The source, with further outputs after its own. It must be compiled as Precision::Strict. In
  /// other precisions, a check could read another value than the one that the results are made
  /// from.
  const Graph& graph() const { return graph_; }
  /// The number of outputs that belong to the source.
  size_t result_count() const { return result_count_; }

  /// Runs `executable`, which is `graph()` compiled, waits, and returns the source's results. If a
  /// node went wrong, it throws InvalidArgument, which tells the first such op, its line, the
  /// element, and what was found there. Arguments that the call takes over are gone even then.
  std::vector<Array> run(const Executable& executable, std::span<const Array> arguments) const;

 private:
  /// Indices that can be out of range. One output tells the place of the first such index, and the
  /// next output tells its value.
  struct IndexCheck {
    NodeId node;  ///< of the source
    size_t output = 0;
  };
  class Builder;

  // `shapes` are those of the arguments.
  [[noreturn]] void fail_index(NodeId node, int64_t place, int64_t index,
                               std::span<const std::vector<int64_t>> shapes) const;
  [[noreturn]] void fail_value(int64_t value, std::span<const std::vector<int64_t>> shapes) const;

  Graph source_, graph_;
  size_t result_count_ = 0;
  std::vector<bool> of_constants_;  // for each source node: whether it depends on constants only
  std::vector<IndexCheck> index_checks_;  // in the order of the source's nodes
  size_t first_value_ = 0;  // from this output on, they say which value went wrong first
};

}  // namespace braze
