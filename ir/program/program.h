// program.h — a Program, which the compiler makes and the runtime runs: code artifacts and a host
// plan.
//
// A Program is a value without pointers: it can be printed, saved and loaded. Sizes are Exprs of
// the program's symbols, so that one Program serves a range of shapes; the runtime evaluates them
// once in each call.
//
// CPU kernels are functions  void(void* const* buffers, const int64_t* scalars, void* scratch,
// int64_t begin, int64_t end)  that run the instances [begin, end) of one phase of one member.
// Instances are numbered row-major over the phase's grid.
//
// GPU kernels have one entry function for each phase. Its parameters, in order: a 64-bit pointer
// for each of the launch's buffers, 8 bytes for each of its scalars, and 128 bytes, aligned to 128,
// for each of its tensor maps. With several members the pointers are one parameter, an array, and
// the tensor maps are another. Block i of the grid's first dimension is the block of rank  i mod
// cluster  of instance  i div cluster;  the second dimension is the member. Shared memory is
// dynamic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braze/error.h"
#include "braze/precision.h"
#include "ir/index/expr.h"
#include "ir/ops/collective.h"
#include "ir/ops/custom_call.h"
#include "ir/ops/monoid.h"
#include "ir/target/target.h"
#include "ir/type/tensor_type.h"
#include "ir/values/host_tensor.h"

namespace braze {

/// What the assembler says about one phase's function.
struct CodeFacts {
  int registers = 0;        ///< of a thread
  int64_t local_bytes = 0;  ///< a thread's stack in device memory
  int64_t spill_bytes = 0;  ///< stores and loads of values for which there were no registers
  std::vector<std::string> warnings = {};
};

/// Code for one kernel. `format` says who can load it:
///   "graph"   Graph IR text, run by the Graph interpreter, whose locations are the nodes of the
///             graph that was compiled (ir/graph/origins.h). Buffers are the graph's inputs, then
///             its outputs; scalars are the program's symbols; there are no phases
///   "kernel"  Kernel IR text, run by the Kernel interpreter (simulator)
///   "image"   a flat position-independent x86-64 image: text and constants, no imports
///   "ptx"     PTX text, which the CUDA driver compiles when it is loaded
///   "cubin"   machine code for one GPU architecture, for the CUDA driver
struct Artifact {
  std::string format;
  std::string kernel;  ///< the kernel's name
  std::string code;
  /// Byte offset (image) of each phase's function, in phase order.
  std::vector<uint64_t> entries;
  /// Name (PTX, cubin) of each phase's function, in phase order.
  std::vector<std::string> entry_names = {};
  std::string maker = {};             ///< of a cubin: the name of the assembler
  std::vector<CodeFacts> facts = {};  ///< of a cubin: of each phase, in order
};

/// A region of memory that the plan names.
struct Slot {
  enum class Kind : uint8_t {
    Input,      ///< argument `index`
    Output,     ///< result `index`: new memory, or that of the input that it updates
    Constant,   ///< `Program::constants[index]`
    Temporary,  ///< at `offset` in the arena
    Place,      ///< the i64 place of the device along `Program::mesh[index]`
  };
  Kind kind = Kind::Temporary;
  uint32_t index = 0;
  TensorType type;
  Expr offset;        ///< Temporary: bytes from the arena's start, a multiple of 64
  std::string label;  ///< the user's name for the value
};

/// How one phase of a kernel is launched on a GPU.
struct GpuPhase {
  int64_t block = 0;         ///< threads of a block
  int64_t shared_bytes = 0;  ///< shared memory of a block
  int64_t cluster = 1;       ///< blocks of an instance
  bool resident = false;     ///< blocks wait for one another, so all of them must run at once
  /// It may begin while the launch before it still runs. The kernel itself waits for that launch
  /// before it accesses memory.
  bool overlaps = false;
};

/// The recipe for a tensor map, which the host encodes. It describes boxes of a row-major tensor,
/// in one of the launch's buffers. A copy moves one box between global and shared memory.
struct TensorMapRecipe {
  uint32_t buffer = 0;  ///< the position in `Launch::buffers`
  DType dtype = DType::F32;
  std::vector<Expr> extents;  ///< of the tensor, outermost first; byte strides are multiples of 16
  std::vector<int64_t> box;   ///< the extents of a box, each from 1 to 256
  int swizzle = 0;            ///< bytes of a swizzled row of the box: 32, 64, 128; 0: not swizzled
};

/// A collective of the devices along an axis of the mesh, each of which has its own tensor.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  uint32_t axis = 0;  ///< of `Program::mesh`
  Monoid monoid = Monoid::Sum;
  int64_t offset = 0;
  /// The most blocks, each on a multiprocessor, that it may take from kernels beside it on a GPU.
  /// 0: as many as it likes.
  int64_t blocks = 0;
  friend bool operator==(const Collective&, const Collective&) = default;
};

/// One kernel launch.
struct Launch {
  /// The value of `artifact` for a copy of slot `buffers[0]` to slot `buffers[1]`.
  static constexpr uint32_t kCopy = UINT32_MAX;
  /// The value of `artifact` for `collective` of slot `buffers[0]` into slot `buffers[1]`,
  /// and so on for each further member.
  static constexpr uint32_t kCollective = UINT32_MAX - 1;
  /// The value of `artifact` for `custom`: all slots of `buffers` are its operands, except for the
  /// last one, which is its result.
  static constexpr uint32_t kCustomCall = UINT32_MAX - 2;
  uint32_t artifact = 0;
  bool is_kernel() const { return artifact < kCustomCall; }
  /// The names of the equal kernels, or of the collectives, that are one launch. Empty if it is a
  /// single one.
  std::vector<std::string> members = {};
  size_t member_count() const { return std::max<size_t>(members.size(), 1); }
  /// Whether the members of a kernel have sizes of their own, which the code contains.
  bool unlike = false;
  /// The slots in the order of the kernel's tensor parameters. All slots of a member come before
  /// those of the next member.
  std::vector<uint32_t> buffers;
  std::vector<Expr> scalars;  ///< in the order of the kernel's scalar parameters
  /// Per phase: the number of instances of one member, or of all members if they are unlike.
  std::vector<Expr> instances;
  /// How many times `instances` a phase has.
  size_t grid_rows() const { return unlike ? 1 : member_count(); }
  std::vector<uint32_t> zeroed;  ///< slots whose bytes are 0 before the first phase
  int64_t scratch_bytes = 0;     ///< private storage of one worker
  Collective collective = {};
  CustomCallOp custom = {};
  std::vector<GpuPhase> gpu;                 ///< as `instances`; empty for a host device
  std::vector<TensorMapRecipe> tensor_maps;  ///< in the order of the kernel's parameters
  // These are for people, profiles and reports.
  std::string name;              ///< made of the user's op names
  std::vector<std::string> ops;  ///< what was fused, in order: "add.3 : f32[n] at node:3"
  std::string schedule;
  Expr bytes_read, bytes_written;  ///< bytes of inputs that are read and of outputs, each once
  Expr flops;
};

struct ProgramInput {
  std::string name;
  TensorType type;
  /// The axes of the mesh, as positions in `Program::mesh`, along which each device has its own
  /// value.
  std::vector<uint32_t> varying = {};
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
  Precision precision = Precision::Standard;  ///< with which the program was compiled
  std::vector<Expr> symbols;
  /// The axes of the mesh that the program uses, ordered by name. The program runs on every device
  /// of a mesh that has these axes. Without axes, it runs on one device.
  std::vector<MeshAxis> mesh = {};
  std::vector<ProgramInput> inputs;
  std::vector<ProgramOutput> outputs;
  std::vector<std::shared_ptr<const HostTensor>> constants;
  std::vector<Slot> slots;
  std::vector<Artifact> artifacts;
  std::vector<Launch> launches;
  Expr arena_bytes;  ///< the size of the arena of temporaries; known before the first launch
  // Facts for reports. Where a text says "at node:3", `locations` has the line
  // (ir/graph/origins.h). Nothing else in a Program depends on the lines of the source.
  std::vector<SourceLocation> locations;  ///< of the nodes of the graph that was compiled
  int ops_before_fusion = 0;
  double compile_seconds = 0;
  std::string report;  ///< the text that `explain` prints: kernels, and the reason of every edge
};

}  // namespace braze
