// target.h — machines for which code is generated, as values.
//
// Fusion, schedules and kernels depend on nothing of the machine but its Target. compiler/codegen
// decides which code generator is used for it. The rows of the table are classes of machines;
// `host_target()` in the runtime replaces the sizes of caches and the speeds by those of the host.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace braze {

enum class TargetKind : uint8_t {
  Interpreter,  ///< the Graph interpreter: no code at all
  Cpu,
  Gpu,  ///< a CUDA device: cores are multiprocessors, vectors are warps
};

struct Target {
  std::string name;  ///< "x86-64-v3", "x86-64-v4", "sm_80", "sm_90a", "interpreter"
  TargetKind kind = TargetKind::Cpu;
  bool simulated = false;  ///< kernels stay Kernel IR and run in its interpreter

  // The sizes of the machine.
  int vector_bytes = 32;        ///< bytes of a vector register; on a GPU, of a warp's register
  int vector_registers = 16;    ///< architectural vector registers
  int cores = 1;                ///< hardware threads (CPU) or multiprocessors (GPU) that it can use
  int64_t l1_bytes = 32 << 10;  ///< data cache; on a GPU the shared memory that a block can have
  int64_t l2_bytes = 512 << 10;  ///< last private cache; on a GPU all on-chip storage of a core
  int64_t l3_bytes = 16 << 20;   ///< the cache that all cores share
  int cluster_blocks = 1;        ///< blocks that can reach each other's on-chip storage

  // Abilities, which follow from the name.
  int capability = 0;  ///< 10 times the compute capability of a GPU
  /// How many times as fast matrix units multiply 16-bit factors; 0 if there are none.
  double matrix_speed = 0;
  /// Whether it has asynchronous matrix instructions, whose factors a pipelined tile program
  /// copies.
  bool asynchronous_dots = false;

  // Speeds of all cores together, for the cost model.
  double memory_bytes_per_second = 40e9;
  double cache_bytes_per_second = 200e9;  ///< of the last private cache
  double flops_per_second = 200e9;        ///< f32 fused multiply-adds, two flops each
  double launch_seconds = 3e-6;           ///< cost of one kernel launch
  // What devices do together; `braze doctor --calibrate` measures it.
  double link_seconds = 20e-6;         ///< a collective of a few bytes
  double link_bytes_per_second = 5e9;  ///< that a device receives from others in a large one

  int vector_lanes(size_t element_bytes) const {
    return static_cast<int>(static_cast<size_t>(vector_bytes) / element_bytes);
  }
  /// The f32 columns of a product's block of sums on a CPU, and of the panels in which it reads its
  /// second factor. With two vectors, a block has as many rows as registers allow, so that it reads
  /// the fewest bytes for each multiplication.
  int panel_columns() const { return 2 * vector_lanes(4); }
  /// Everything that determines the code, for cache keys and dumps. parse_target is the inverse.
  std::string to_string() const;
  friend bool operator==(const Target&, const Target&) = default;
};

/// The known machines.
std::span<const Target> target_table();
/// The row called `name` ("sim:x86-64-v3" gives the simulated one), if there is one. "sm_90" means
/// "sm_90a", because code is generated only for the variant with all instructions of the machine.
std::optional<Target> find_target(std::string_view name);
/// Reads the text of `Target::to_string`. A name alone stands for the row of the table. Throws
/// InvalidArgument if the text is malformed.
Target parse_target(std::string_view text);

}  // namespace braze
