// compile.h — from a Graph to a Program.
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

/// The way to machine code for a GPU. Results are the same bits.
enum class GpuCode : uint8_t {
  Ptx,    ///< LLVM writes PTX, an assembler or the driver does the rest
  Nvrtc,  ///< CUDA C++, compiled by NVRTC
};

/// A step of a compilation that has just been done, and what came out of it. Valid during the call
/// that shows it.
struct CompilePhase {
  /// In order: "graph", each pass by its name ("expand", "fold"), "fusion"; for each kernel
  /// "unscheduled" (its first loop tree), "loops" (that with its steps) or, where no rule serves
  /// it, "refusal", then "tile", "kernel", and where the target is not simulated "llvm" and "asm"
  /// (CPU), "llvm" or "cuda", "ptx" and "sass" (GPU); "program".
  std::string_view stage;
  std::string_view kernel;            ///< empty where the stage is of the whole graph
  std::function<std::string()> text;  ///< made when called, for that can cost more than the step
  // Stage "fusion" also as data: the graph after the passes and its division.
  const Graph* graph = nullptr;          ///< set where the phase made a graph
  const Partition* partition = nullptr;  ///< set where it made Fusions
};

struct CompileOptions {
  Precision precision = Precision::Standard;  ///< what rounding may change
  bool fuse = true;                           ///< false: one kernel an op, for comparison
  bool by_cost = true;  ///< false: fuse whatever can be one kernel, however slow, for comparison
  /// Schedules by the names of the program's kernels, as text; others are chosen by rule.
  std::map<std::string, std::string> schedules;
  GpuCode gpu_code = GpuCode::Ptx;  ///< how kernels for GPUs are written
  bool assemble = true;  ///< false: GPU code stays PTX, for drivers and GPUs that are not here
  /// For development. Kernels that reduce nothing are made by loop trees (docs/design/0003); with
  /// this also all others that the rules of trees serve.
  bool loop_tree = false;
  /// Folder that receives every phase ("00-graph.braze", "01-expand.braze" ...); empty for none.
  std::string dump_folder;
  /// Sees every phase, on the thread that compiles: on several at once where several compile.
  std::function<void(const CompilePhase&)> observer = {};
};

/// Everything in the options that decides a program, one `name value` a line: for cache keys.
std::string key_text(const CompileOptions& options);

/// The compilers and assemblers on this machine that decide the code for `target`, each with what
/// tells its versions apart, one `name value` a line: for cache keys.
std::string toolchain_text(const Target& target, const CompileOptions& options);

/// Compiles for `target`. Throws Error; on an internal failure leaves a reproducer file and names
/// the command that replays it.
Program compile(const Graph& graph, const Target& target, const CompileOptions& options = {});
/// One kernel that somebody typed, from its level on: its parameters are the inputs and outputs.
Program compile(const TileProgram& tile, const Target& target, const CompileOptions& options = {});
Program compile(const Kernel& kernel, const Target& target, const CompileOptions& options = {});

}  // namespace braze
