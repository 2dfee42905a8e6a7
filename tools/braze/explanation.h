// explanation.h — the result of a compilation as data, which `braze explain` and `braze report`
// show.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "braze/compile.h"
#include "compiler/loops/cost.h"
#include "ir/program/program.h"
#include "ir/target/target.h"

namespace braze::tool {

/// The verdict on one edge of the graph. Values are named as in the graph after the passes: "%x".
struct Edge {
  std::string producer, consumer;
  std::string where;  ///< the consumer's line
  const Code* reason = nullptr;
  std::string costs;  ///< the costs that were compared
};

/// A kernel as the fuser sees it. `Program::launches` say what it became.
struct FusedKernel {
  std::string name;              ///< as of its launch
  std::set<std::string> values;  ///< the nodes that it computes
  std::vector<size_t> reads;     ///< the kernels whose results it reads
  Cost cost;                     ///< estimated, at the largest sizes
};

struct Explanation {
  Program program;
  std::vector<Edge> edges;
  std::vector<FusedKernel> kernels;  ///< kernels only, in an order in which they can run
  /// Of products whose factors matrix units cannot read as they are: what is copied to another
  /// order, or why nothing is.
  std::vector<std::string> orders;
  /// By kernel: its loops that an integer bounds which they load, or why one does not.
  std::map<std::string, std::vector<std::string>> limits;
};

/// Compiles the graph, without the cache, which keeps no reasons. An error in the graph is a
/// Failure with Exit::Compile.
Explanation explained(const Graph& graph, const Target& target, CompileOptions options);

/// A phase of a GPU kernel, as its assembler describes it, and how it fits a multiprocessor.
struct PhaseFacts {
  std::string entry;  ///< its function
  int64_t threads = 0, registers = 0, spill_bytes = 0, stack_bytes = 0, shared_bytes = 0;
  int64_t resident_blocks = 0;
  std::vector<std::string> warnings;

  /// The share of the threads that a multiprocessor can hold.
  double occupancy() const;
};
std::vector<PhaseFacts> phase_facts(const Program& program, const Launch& launch);

/// "12 kernels", and the number of different codes if some share one.
std::string kernels_text(const Program& program);

/// "64 KiB", or "(256*n) B" if it depends on a size.
std::string bytes_amount(const Expr& e);
/// A number of operations, or the expression if it depends on a size.
std::string flops_amount(const Expr& e);
std::string flops_text(uint64_t flops);
std::string instances_text(const Launch& launch);

}  // namespace braze::tool
