// compile.h — from a Graph to a Program.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace braze {

class Graph;
struct Program;
struct Target;

/// How far results may differ from op-by-op evaluation; see docs/guides/numerics.md.
enum class Precision : uint8_t {
  Strict,    ///< values consumed only by reductions round as visible ones do
  Standard,  ///< visible values exact, sums within their bound
  Fast,      ///< also hardware approximations and reassociation where they can be seen
};

struct CompileOptions {
  Precision precision = Precision::Standard;
  bool fuse = true;  ///< false: one kernel an op, for comparison
  /// Schedules by kernel name, as text; others are chosen by rule.
  std::map<std::string, std::string> schedules;
  /// Folder that receives every phase ("00-graph.braze", "01-expand.braze" ...); empty for none.
  std::string dump_folder;
};

/// Compiles for `target`. Throws Error; on an internal failure leaves a reproducer file and names
/// the command that replays it.
Program compile(const Graph& graph, const Target& target, const CompileOptions& options = {});

}  // namespace braze
