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

/// What a call will allocate, known before it runs.
struct MemoryPlan {
  uint64_t output_bytes = 0;     ///< fresh outputs (not those that update an input)
  uint64_t temporary_bytes = 0;  ///< the arena
  uint64_t peak_bytes = 0;       ///< both: what the call adds to the device's live bytes
};

/// Immutable and shareable: `run` is const and may be called from any thread at once.
class Executable {
 public:
  Executable() = default;
  /// Loads the program's code. Unsupported if the device cannot run the program's target.
  static Executable load(std::shared_ptr<const Program> program, const Device& device);

  /// Enqueues one execution and returns its results, which may still be computing. Arguments are in
  /// the order of the program's inputs. An argument that an output updates is donated: its memory
  /// becomes the output's, and every handle of that argument is dead from then on.
  /// InvalidArgument names the argument and both types if one does not fit; ResourceExhausted
  /// leaves all arguments as they were.
  std::vector<Array> run(std::span<const Array> arguments) const;

  /// The plan for arguments of these shapes.
  MemoryPlan memory_plan(std::span<const Array> arguments) const;

  const Program& program() const;                              ///< what was loaded
  Device device() const;                                       ///< where it runs
  explicit operator bool() const { return impl_ != nullptr; }  ///< not default-constructed

  struct Impl;

 private:
  std::shared_ptr<const Impl> impl_;
};

/// One kernel launch that happened.
struct LaunchRecord {
  std::string kernel;   ///< made of the user's op names
  std::string program;  ///< name of the program
  Device device;        ///< where it ran
  double seconds = 0;   ///< on the device
  uint64_t bytes = 0;   ///< model bytes: what is read of every input, every output; once
  uint64_t flops = 0;   ///< floating-point operations
};

/// The launches of this process since `clear_launch_history`, oldest first, at most the last
/// 65,536. Recording is off until `record_launches(true)`.
void record_launches(bool on);
std::vector<LaunchRecord> launch_history();
void clear_launch_history();

}  // namespace braze
