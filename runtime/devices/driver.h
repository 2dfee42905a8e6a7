// driver.h — what a kind of device does for the rest of the runtime; one folder implements it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "braze/device.h"
#include "braze/error.h"
#include "ir/program/program.h"
#include "runtime/execution/stream.h"
#include "runtime/memory/allocator.h"

namespace braze {

namespace codes {
inline constexpr Code kUnsupportedProgram{
    "unsupported-program", ErrorKind::Unsupported,
    "The device cannot run code of this format or for this target."};
inline constexpr Code kMalformedProgram{"malformed-program", ErrorKind::DataLoss,
                                        "A program refers to something that it does not have."};
}  // namespace codes

/// One launch with everything evaluated.
struct LaunchArguments {
  uint32_t launch = 0;                 ///< which of Program::launches
  std::span<void* const> buffers;      ///< as Launch::buffers
  std::span<const uint64_t> sizes;     ///< bytes of each of `buffers`
  std::span<const int64_t> scalars;    ///< as Launch::scalars
  std::span<const int64_t> instances;  ///< as Launch::instances; at least one is not 0
  std::span<const int64_t> symbols;    ///< as Program::symbols
  bool serial = false;                 ///< too little work to share between threads
  double call_seconds = 0;             ///< estimate of the whole call; 0 if unknown
};

/// A program's code, ready on a device. Used by one thread at a time: the one that executes the
/// device's stream.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
  virtual void launch(const LaunchArguments& arguments) = 0;
};

class DeviceDriver {
 public:
  DeviceDriver(Device device, std::unique_ptr<MemorySource> memory);
  virtual ~DeviceDriver() = default;
  DeviceDriver(const DeviceDriver&) = delete;
  DeviceDriver& operator=(const DeviceDriver&) = delete;

  const Device& device() const { return device_; }
  const std::string& name() const { return name_; }
  Allocator& allocator() { return allocator_; }
  Stream& stream() { return stream_; }

  virtual const Target& target() = 0;
  /// Unsupported if this device cannot run the program, and why. Keeps the program alive.
  virtual std::unique_ptr<LoadedProgram> load(std::shared_ptr<const Program> program) = 0;

  // Copies of bytes; the source is complete and nothing else touches the destination.
  virtual void copy_from_host(std::byte* to, std::span<const std::byte> from);
  virtual void copy_to_host(std::span<std::byte> to, const std::byte* from);

 private:
  const Device device_;
  const std::string name_;
  Stream stream_;
  Allocator allocator_;
};

/// Throws kUnsupportedProgram: `device` has no way to run `artifact`.
[[noreturn]] void fail_unsupported_format(const DeviceDriver& driver, const Artifact& artifact,
                                          std::string_view accepted);

}  // namespace braze
