// program.h — what the compiler writes and the runtime runs: code artifacts and a host plan.
//
// A Program is a value without pointers: it can be printed, saved and loaded. Sizes are Exprs of
// the program's symbols, so that one Program serves a range of shapes; the runtime evaluates them
// once per call.
//
// CPU kernels are functions  void(void* const* buffers, const int64_t* scalars, void* scratch,
// int64_t begin, int64_t end)  that run the instances [begin, end) of one phase. Instances are
// numbered row-major over the phase's grid.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/index/expr.h"
#include "ir/target/target.h"
#include "ir/type/tensor_type.h"
#include "ir/values/host_tensor.h"

namespace braze {

/// Code for one kernel. `format` says who can load it:
///   "graph"   Graph IR text, run by the Graph interpreter. Buffers are the graph's inputs, then
///   its
///             outputs; scalars are the program's symbols; there are no phases
///   "kernel"  Kernel IR text, run by the Kernel interpreter (simulator)
///   "image"   a flat position-independent x86-64 image: text and constants, no imports
///   "ptx", "cubin"  for the CUDA driver
struct Artifact {
  std::string format;
  std::string kernel;  ///< the kernel's name
  std::string code;
  /// Byte offset (image) of each phase's function, in phase order.
  std::vector<uint64_t> entries;
};

/// A region of memory that the plan names.
struct Slot {
  enum class Kind : uint8_t {
    Input,      ///< argument `index`
    Output,     ///< result `index`, freshly allocated, or an input's memory it updates
    Constant,   ///< `Program::constants[index]`
    Temporary,  ///< at `offset` in the arena
  };
  Kind kind = Kind::Temporary;
  uint32_t index = 0;
  TensorType type;
  Expr offset;        ///< Temporary: bytes from the arena's start, a multiple of 64
  std::string label;  ///< the user's name for the value
};

/// One kernel launch.
struct Launch {
  /// As `artifact`: no kernel, but a copy of slot `buffers[0]` to slot `buffers[1]`.
  static constexpr uint32_t kCopy = UINT32_MAX;
  uint32_t artifact = 0;
  std::vector<uint32_t> buffers;  ///< slots, in the order of the kernel's tensor parameters
  std::vector<Expr> scalars;      ///< in the order of the kernel's scalar parameters
  std::vector<Expr> instances;    ///< per phase: the number of instances
  std::vector<uint32_t> zeroed;   ///< slots whose bytes are 0 before the first phase
  int64_t scratch_bytes = 0;      ///< private storage of one worker
  // For people, profiles and reports.
  std::string name;              ///< made of the user's op names
  std::vector<std::string> ops;  ///< what was fused, in order, with the user's lines
  std::string schedule;
  Expr bytes_read, bytes_written;  ///< model bytes: every input once, every output once
  Expr flops;
};

struct ProgramInput {
  std::string name;
  TensorType type;
};

struct ProgramOutput {
  std::string name;
  TensorType type;
  uint32_t slot = 0;
  std::optional<uint32_t> updates;  ///< the input whose memory it takes over
};

struct Program {
  std::string name;
  Target target;
  std::vector<Expr> symbols;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramOutput> outputs;
  std::vector<std::shared_ptr<const HostTensor>> constants;
  std::vector<Slot> slots;
  std::vector<Artifact> artifacts;
  std::vector<Launch> launches;
  Expr arena_bytes;  ///< all temporaries together; known before the first launch
  // Facts for reports.
  int ops_before_fusion = 0;
  double compile_seconds = 0;
  std::string report;  ///< what `explain` prints: kernels, reasons of every edge
};

/// The whole program for people; code is given by its size.
std::string to_text(const Program& program);

}  // namespace braze
