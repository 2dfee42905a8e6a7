#include "runtime/devices/cpu/cpu_driver.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ir/support/config.h"
#include "ir/support/text.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/cpu/image.h"

namespace braze {

namespace {

constexpr std::string_view kImage = "image";
constexpr std::string_view kFunction = "function";

// Calls longer than this are worth waking threads that sleep.
constexpr double kWorthWaking = 20e-6;

// Bytes that take one core about as long as it takes to wake another.
constexpr size_t kLeastPart = size_t{1} << 18;

/// The size of one thread's part of scratch memory. It is a multiple of a page, so that no two
/// parts share a cache line, or a page that the hardware prefetches.
size_t part_of_thread(int64_t scratch_bytes) {
  return (static_cast<size_t>(scratch_bytes) + 4095) / 4096 * 4096;
}

class LoadedKernels : public LoadedProgram {
 public:
  LoadedKernels(CpuDriver& driver, std::shared_ptr<const Program> program)
      : driver_(driver), program_(std::move(program)) {
    for (const Artifact& artifact : program_->artifacts) {
      std::vector<KernelFunction>& phases = phases_.emplace_back();
      if (artifact.format == kImage) {
        images_.emplace_back(artifact.code);
        for (const uint64_t entry : artifact.entries) {
          if (entry >= artifact.code.size()) malformed(artifact, "an entry outside its code");
          phases.push_back(reinterpret_cast<KernelFunction>(
              reinterpret_cast<uintptr_t>(images_.back().base()) + entry));
        }
      } else if (artifact.format == kFunction) {
        for (const uint64_t entry : artifact.entries) {
          phases.push_back(reinterpret_cast<KernelFunction>(static_cast<uintptr_t>(entry)));
        }
      } else {
        fail_unsupported_format(driver, artifact, "\"image\"");
      }
    }
    for (const Launch& launch : program_->launches) {
      if (!launch.is_kernel()) continue;
      scratch_bytes_ = std::max(scratch_bytes_, launch.scratch_bytes);
      if (launch.instances.size() != phases_[launch.artifact].size()) {
        malformed(program_->artifacts[launch.artifact], "another number of phases than its launch");
      }
    }
  }

  std::shared_ptr<const Scratch> reserve() override {
    return scratch_bytes_ > 0 ? driver_.reserve_scratch(scratch_bytes_) : nullptr;
  }

  void launch(const LaunchArguments& arguments) override {
    const Launch& launch = program_->launches[arguments.launch];
    driver_.launch(phases_[launch.artifact], launch.member_count(), scratch_bytes_, arguments);
  }

 private:
  [[noreturn]] void malformed(const Artifact& artifact, std::string_view what) const {
    fail(codes::kMalformedProgram,
         fmt::format("program @{}: kernel @{} has {}", program_->name, artifact.kernel, what));
  }

  CpuDriver& driver_;
  const std::shared_ptr<const Program> program_;
  std::vector<CodeImage> images_;
  std::vector<std::vector<KernelFunction>> phases_;  // by artifact
  int64_t scratch_bytes_ = 0;                        // the most that one launch needs
};

}  // namespace

Artifact function_artifact(std::string kernel, std::vector<KernelFunction> phases) {
  Artifact artifact{.format = std::string(kFunction), .kernel = std::move(kernel)};
  for (const KernelFunction phase : phases) {
    artifact.entries.push_back(reinterpret_cast<uintptr_t>(phase));
  }
  return artifact;
}

CpuDriver::CpuDriver(Device device, const std::atomic<int>& threads)
    : DeviceDriver(device, std::make_unique<HostMemory>()), threads_(threads) {
  pool_.set_host(config().parallel_for);
}

const Target& CpuDriver::target() {
  const std::lock_guard lock(targets_mutex_);
  const int threads = threads_.load();
  for (const auto& target : targets_) {
    if (target->cores == threads) return *target;
  }
  targets_.push_back(std::make_unique<const Target>(host_target(threads)));
  return *targets_.back();
}

std::optional<int> CpuDriver::suitability(const Target& target, std::string_view format) const {
  const bool is_code = target.kind == TargetKind::Cpu && !target.simulated && format == kImage;
  if (!is_code || !missing_features(target, host_features()).empty()) return std::nullopt;
  return target.vector_bytes;
}

std::unique_ptr<LoadedProgram> CpuDriver::load(std::shared_ptr<const Program> program) {
  const Target& target = program->target;
  const bool is_code = target.kind == TargetKind::Cpu && !target.simulated;
  const std::vector<std::string_view> missing = missing_features(target, host_features());
  if (!is_code || !missing.empty()) {
    fail(codes::kUnsupportedProgram,
         fmt::format("device {} does not run program @{}, which is for {}{}", name(), program->name,
                     target.simulated ? "sim:" + target.name : target.name,
                     missing.empty() || !is_code
                         ? ""
                         : fmt::format(": this processor lacks {}", join(missing, ", ", [](auto f) {
                                         return std::string(f);
                                       }))));
  }
  return std::make_unique<LoadedKernels>(*this, std::move(program));
}

std::shared_ptr<const Scratch> CpuDriver::reserve_scratch(int64_t bytes) {
  const int threads = threads_.load(std::memory_order_relaxed);
  const size_t size = part_of_thread(bytes) * static_cast<size_t>(threads);
  std::shared_ptr<const Scratch> smaller;
  {
    const std::lock_guard lock(scratch_mutex_);
    if (scratch_ && scratch_->size >= size) return scratch_;
    smaller.swap(scratch_);
  }
  smaller.reset();  // the larger one may need its memory
  // This runs without the lock, because the allocator may wait for calls that are queued.
  auto larger = std::make_shared<Scratch>();
  larger->memory = allocator().allocate(
      size, std::make_shared<const std::string>(fmt::format("scratch of {} threads", threads)));
  larger->size = size;
  const std::lock_guard lock(scratch_mutex_);
  if (!scratch_ || scratch_->size < size) scratch_ = larger;
  return larger;
}

void CpuDriver::in_parts(size_t size, const std::function<void(size_t, size_t)>& body) {
  if (size == 0) return;
  if (size <= kLeastPart) return body(0, size);
  pool_.set_threads(threads_.load(std::memory_order_relaxed));
  const size_t count = (size + kLeastPart - 1) / kLeastPart;
  pool_.run(static_cast<int64_t>(count), /*wake=*/true, [&](int64_t begin, int64_t end, int) {
    const size_t first = static_cast<size_t>(begin) * kLeastPart;
    body(first, std::min(static_cast<size_t>(end) * kLeastPart, size) - first);
  });
}

void CpuDriver::zero(DeviceStream*, std::byte* data, size_t size) {
  in_parts(size, [&](size_t begin, size_t bytes) { std::memset(data + begin, 0, bytes); });
}

void CpuDriver::copy(DeviceStream*, std::byte* to, const std::byte* from, size_t size) {
  in_parts(size, [&](size_t begin, size_t bytes) { std::memcpy(to + begin, from + begin, bytes); });
}

void CpuDriver::launch(std::span<const KernelFunction> phases, size_t members,
                       int64_t scratch_bytes, const LaunchArguments& arguments) {
  int threads = threads_.load(std::memory_order_relaxed);
  std::byte* scratch = nullptr;
  const size_t part = part_of_thread(scratch_bytes);
  if (arguments.scratch) {
    // There may be more threads now than when the call was submitted.
    threads = static_cast<int>(
        std::min<size_t>(static_cast<size_t>(threads), arguments.scratch->size / part));
    scratch = arguments.scratch->memory.data();
  }
  pool_.set_threads(threads);
  void* const* const buffers = arguments.buffers.data();
  const size_t of_member = arguments.buffers.size() / members;
  const int64_t* const scalars = arguments.scalars.data();
  const bool wake = arguments.call_seconds == 0 || arguments.call_seconds > kWorthWaking;
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    const KernelFunction function = phases[phase];
    const int64_t count = arguments.instances[phase];
    if (count <= 0) continue;
    // A piece may end in the middle of a member.
    const auto body = [&](int64_t begin, int64_t end, int worker) {
      while (begin < end) {
        const int64_t member = begin / count, first = member * count;
        const int64_t stop = std::min(end, first + count);
        call_kernel(function, buffers + static_cast<size_t>(member) * of_member, scalars,
                    scratch + static_cast<size_t>(worker) * part, begin - first, stop - first);
        begin = stop;
      }
    };
    const int64_t all = count * static_cast<int64_t>(members);
    if (arguments.serial) {
      body(0, all, 0);
    } else {
      pool_.run(all, wake, body);
    }
  }
}

}  // namespace braze
