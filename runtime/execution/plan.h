// plan.h — the host plan of a Program, which is checked once at load and evaluated once for each
// set of sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "braze/array.h"
#include "braze/executable.h"
#include "ir/program/program.h"
#include "runtime/devices/driver.h"
#include "runtime/execution/expr_program.h"

namespace braze {

namespace codes {
inline constexpr Code kArgument{
    "argument-mismatch", ErrorKind::InvalidArgument,
    "An argument of a call does not have the type of the program's input."};
inline constexpr Code kDeviceMismatch{"device-mismatch", ErrorKind::InvalidArgument,
                                      "An argument lives on another device than the program."};
inline constexpr Code kEmptyExecutable{"empty-executable", ErrorKind::InvalidArgument,
                                       "An Executable handle that holds no program was used."};
inline constexpr Code kDonatedTwice{"donated-twice", ErrorKind::InvalidArgument,
                                    "A donated argument is passed to the same call twice."};
}  // namespace codes

/// Everything about a call that follows from the extents of its arguments. Immutable.
struct Binding {
  struct LaunchValues {
    std::vector<int64_t> scalars, instances;
    std::vector<uint64_t> sizes;  ///< bytes of each buffer
    bool empty = false;           ///< it has no instance
    bool serial = false;          ///< too short to be worth several threads
    double seconds = 0;           ///< estimated time
    uint64_t bytes = 0, flops = 0;
    std::vector<std::vector<int64_t>> shapes = {};  ///< of each buffer of a custom call
    /// The exchanges of a collective. The operands of an exchange are one piece of memory, and so
    /// are its results. Each piece holds one member of the launch, or several side by side.
    struct Exchange {
      size_t member = 0;   ///< the first member
      uint64_t bytes = 0;  ///< the size of all its operands, with the gaps between them
    };
    std::vector<Exchange> exchanges = {};
    /// The last collective before this launch that accesses memory of the launch. The launch waits
    /// for it, and thereby for all collectives before it, because collectives complete in order.
    std::optional<uint32_t> awaits = {};
  };

  std::vector<int64_t> key;      ///< the extents that are not fixed by the program
  std::vector<int64_t> symbols;  ///< as Program::symbols
  std::vector<std::vector<int64_t>> output_shapes;
  std::vector<uint64_t> output_bytes;
  std::vector<uint64_t> slot_bytes;  ///< of every slot
  std::vector<uint64_t> offsets;     ///< in the arena, of every slot; 0 where it is not there
  uint64_t arena_bytes = 0;
  std::vector<LaunchValues> launches;
  double seconds = 0;  ///< estimated time of all launches
  MemoryPlan memory;
};

/// Throws kArgument, with the names of the inputs, for a call with `given` arguments. The program
/// needs one for each input for which `bound` (by input; it may be empty) has no array.
[[noreturn]] void fail_argument_count(const Program& program, size_t given,
                                      std::span<const Array> bound);

/// Says which array a result is.
struct ResultPlan {
  enum class Kind : uint8_t {
    Fresh,    ///< new memory
    Updates,  ///< the memory of argument `index`
    Same,     ///< the array of the earlier result `index`
    Input,    ///< argument `index` itself
    Constant  ///< constant `index`
  };
  Kind kind = Kind::Fresh;
  uint32_t index = 0;
};

/// The checked plan. It is immutable, except for its cache of bindings, which is thread-safe.
class Plan {
 public:
  /// Throws DataLoss if the program refers to something that does not exist.
  Plan(std::shared_ptr<const Program> program, const DeviceDriver& driver);

  const Program& program() const { return *program_; }
  std::span<const ResultPlan> results() const { return results_; }
  /// For each input: whether a result takes over its memory.
  const std::vector<bool>& donated() const { return donated_; }

  /// Checks the arguments, and finds or makes their binding. If an argument does not fit, it throws
  /// an InvalidArgument that names it.
  std::shared_ptr<const Binding> bind(std::span<const Array> arguments) const;

 private:
  struct LaunchRegisters {
    std::vector<uint32_t> scalars, instances;
    uint32_t bytes_read, bytes_written, flops;
  };

  std::shared_ptr<const Binding> make_binding(std::span<const Array> arguments,
                                              std::vector<int64_t> key) const;
  std::string input_text(size_t index) const;
  std::vector<Binding::LaunchValues::Exchange> exchanges_of(const Launch& launch,
                                                            const Binding& binding) const;
  void find_awaited(Binding& binding) const;

  std::shared_ptr<const Program> program_;
  const DeviceDriver& driver_;
  Target target_;
  std::vector<ResultPlan> results_;
  std::vector<bool> donated_;

  // The expected extents of every input; -1 for those that depend on a symbol.
  std::vector<std::vector<int64_t>> extents_;

  // The expressions, and where ExprProgram::run puts their values.
  ExprProgram exprs_;
  std::vector<std::vector<uint32_t>> slot_dims_;
  std::vector<uint32_t> slot_offsets_;
  std::vector<std::vector<uint32_t>> output_dims_;
  uint32_t arena_ = 0;
  std::vector<LaunchRegisters> launches_;

  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Binding>> bindings_;  // the last one used comes first
};

}  // namespace braze
