// compile.h — the compilation of a Graph to a Program.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "braze/precision.h"

namespace braze {

class Graph;
struct Kernel;
struct Partition;
struct Program;
struct Target;
struct TileProgram;

/// The way to machine code for a GPU. Both give results with the same bits.
enum class GpuCode : uint8_t {
  Ptx,    ///< LLVM writes PTX; an assembler or the driver translates it
  Nvrtc,  ///< CUDA C++, compiled by NVRTC
};

/// A step of a compilation that was just completed, with its result. Valid during the call that
/// receives it.
struct CompilePhase {
  /// In order: "graph"; each pass by its name ("expand", "fold"); "orders" (which factors of
  /// products are copied to another order, or why not), if there are any; "fusion"; for each kernel
  /// "unscheduled" (its loop tree before the steps), "refusal" (why its dots are not asynchronous
  /// products), "loops" (after the steps), "limit", "tile", "kernel" and, unless it is simulated,
  /// "llvm" and "asm" (CPU), or "llvm" or "cuda", "ptx" and "sass" (GPU); "program".
  std::string_view stage;
  std::string_view kernel;  ///< empty if the stage is about the whole graph
  std::function<std::string()>
      text;  ///< made only when called, since it can cost more than the step
  // The stage "fusion" also as data: the graph after the passes, and its partition.
  const Graph* graph = nullptr;          ///< set if the step made a graph
  const Partition* partition = nullptr;  ///< set if the step made Fusions
};

/// How to compile: precision, what to fuse, schedules, where to dump the steps.
struct CompileOptions {
  Precision precision = Precision::Standard;  ///< which roundings may change
  bool fuse = true;                           ///< false: one kernel for each op, for comparison
  bool by_cost = true;  ///< false: fuse all that can be one kernel, even if it is slower
  /// Schedules as text, by the names of the program's kernels. Rules choose the schedules of all
  /// other kernels.
  std::map<std::string, std::string> schedules;
  GpuCode gpu_code = GpuCode::Ptx;  ///< how kernels for GPUs are written
  bool assemble = true;             ///< false: GPU code stays PTX, for other drivers and GPUs
  /// A folder that receives every step ("00-graph.braze", "01-expand.braze" ...), or empty.
  std::string dump_folder;
  /// Receives every step, on the thread that compiles. Several threads may call it at once.
  std::function<void(const CompilePhase&)> observer = {};
};

/// The options that determine the program, one `name value` in each line, for cache keys.
std::string key_text(const CompileOptions& options);

/// The compilers and assemblers of this machine that determine the code for `target`, with texts
/// that distinguish their versions, one `name value` in each line, for cache keys.
std::string toolchain_text(const Target& target, const CompileOptions& options);

/// Compiles a graph for `target`. Throws Error. After an internal failure it leaves a reproducer
/// file and names the command that repeats the compilation.
Program compile(const Graph& graph, const Target& target, const CompileOptions& options = {});
/// Compiles one tile program. Its parameters are the inputs and outputs.
Program compile(const TileProgram& tile, const Target& target, const CompileOptions& options = {});
/// Compiles one kernel in Kernel IR. Its parameters are the inputs and outputs.
Program compile(const Kernel& kernel, const Target& target, const CompileOptions& options = {});

}  // namespace braze
