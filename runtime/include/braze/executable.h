// executable.h — Executable: a Program loaded on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braze/array.h"
#include "braze/device.h"

namespace braze {

struct Program;

/// The memory that a call will allocate, known before it runs.
struct MemoryPlan {
  uint64_t output_bytes = 0;     ///< outputs, except those that update an input
  uint64_t temporary_bytes = 0;  ///< temporaries
  uint64_t peak_bytes = 0;       ///< the sum: what the call adds to the live bytes of the device
};

/// A Program loaded on a device. It is immutable: many threads may call `run` at the same time.
class Executable {
 public:
  Executable() = default;
  /// Loads the program's code. Unsupported if the device cannot run the program's target.
  static Executable load(std::shared_ptr<const Program> program, const Device& device);

  /// Submits one execution and returns its results, which may still be under computation. Arguments
  /// have the order of the program's inputs. If an output updates an input, the argument is
  /// donated: the output takes over its memory, and every handle of the argument is dead. If an
  /// argument does not fit, InvalidArgument names it and both types. After ResourceExhausted all
  /// arguments are unchanged.
  std::vector<Array> run(std::span<const Array> arguments) const;

  /// The memory plan of a call with arguments of these shapes.
  MemoryPlan memory_plan(std::span<const Array> arguments) const;

  const Program& program() const;                              ///< the program that was loaded
  Device device() const;                                       ///< where it runs
  explicit operator bool() const { return impl_ != nullptr; }  ///< false if default-constructed

  struct Impl;
  explicit Executable(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}  ///< the same
  const std::shared_ptr<const Impl>& impl() const { return impl_; }  ///< for Braze itself

 private:
  std::shared_ptr<const Impl> impl_;
};

/// A kernel launch that was recorded.
struct LaunchRecord {
  std::string kernel;   ///< made from the names of the user's ops
  std::string program;  ///< name of the program
  Device device;        ///< where it ran
  double seconds = 0;   ///< on the device
  uint64_t bytes = 0;   ///< model bytes: every input that is read and every output, once
  uint64_t flops = 0;   ///< floating-point operations
};

/// Switches the recording of launches on or off. It is off at first. At most the last 65,536
/// launches are kept.
void record_launches(bool on);
/// The recorded launches since `clear_launch_history`, oldest first. Waits for running launches.
std::vector<LaunchRecord> launch_history();
/// Forgets the recorded launches.
void clear_launch_history();

}  // namespace braze
