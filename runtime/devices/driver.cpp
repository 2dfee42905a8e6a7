#include "runtime/devices/driver.h"

#include <cstring>
#include <vector>

#include "ir/support/config.h"
#include "ir/support/env.h"
#include "ir/support/text.h"

namespace braze {

namespace {

std::optional<uint64_t> initial_limit() {
  if (config().memory_limit) return config().memory_limit;
  const std::optional<int64_t> bytes = read_env_int(kEnvMemoryLimit, 0, INT64_MAX);
  if (!bytes) return std::nullopt;
  return static_cast<uint64_t>(*bytes);
}

}  // namespace

DeviceDriver::DeviceDriver(Device device, std::unique_ptr<MemorySource> memory,
                           WorkQueue::Mode mode)
    : device_(device),
      name_(device.name()),
      queue_(mode),
      allocator_(
          name_, std::move(memory), [this] { queue_.drain(); }, initial_limit()) {}

StreamRef DeviceDriver::make_stream(std::optional<void*> foreign) {
  if (foreign)
    fail(codes::kNoNativeStreams, fmt::format("{} has no CUDA streams", name_),
         {.fix = "use streams of the host program with GPUs only"});
  return nullptr;
}

void DeviceDriver::wait_for(DeviceStream*, Fence& fence) { fence.wait(); }

void DeviceDriver::wait_for_native(DeviceStream*, void*) {
  fail(codes::kNoNativeStreams, fmt::format("{} has no CUDA events", name_),
       {.fix = "use events of the host program with GPUs only"});
}

std::byte* DeviceDriver::allocate_pinned(size_t size) {
  std::byte* const data = HostMemory().allocate(size);
  if (!data) fail(codes::kOutOfMemory, fmt::format("the host has no {} left", bytes_text(size)));
  return data;
}

void DeviceDriver::free_pinned(std::byte* data, size_t size) noexcept {
  HostMemory().free(data, size);
}

std::shared_ptr<Fence> DeviceDriver::copy_pinned(DeviceStream*, std::byte* to,
                                                 const std::byte* from, size_t size, bool, Fence*) {
  if (size > 0) std::memcpy(to, from, size);
  return nullptr;
}

void DeviceDriver::zero(DeviceStream*, std::byte* data, size_t size) {
  if (size > 0) std::memset(data, 0, size);
}

void DeviceDriver::copy(DeviceStream*, std::byte* to, const std::byte* from, size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}

void DeviceDriver::copy_strided(DeviceStream*, std::byte* to, const std::byte* from,
                                const StridedCopy& copy) {
  std::vector<int64_t> at(copy.axes.size(), 0);
  bool more = true;
  while (more) {
    std::memcpy(to, from, copy.bytes);
    to += copy.bytes;
    more = false;
    for (size_t k = at.size(); k-- > 0 && !more;) {
      const auto [extent, stride] = copy.axes[k];
      more = ++at[k] < extent;
      from += more ? stride : stride * (1 - extent);
      if (!more) at[k] = 0;
    }
  }
}

void DeviceDriver::copy_from_host(DeviceStream*, std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void DeviceDriver::copy_to_host(std::span<std::byte> to, const std::byte* from, Fence*) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void DeviceDriver::copy_from_device(std::byte* to, DeviceDriver& source, const std::byte* from,
                                    size_t size, Fence* after) {
  if (source.has_host_memory()) {
    copy_from_host(nullptr, to, {from, size});
  } else if (has_host_memory()) {
    source.copy_to_host({to, size}, from, after);
  } else {
    std::vector<std::byte> host(size);
    source.copy_to_host(host, from, after);
    copy_from_host(nullptr, to, host);
  }
}

void fail_unsupported_format(const DeviceDriver& driver, const Artifact& artifact,
                             std::string_view accepted) {
  fail(codes::kUnsupportedProgram,
       fmt::format("device {} runs code of the format {}, but kernel @{} is {}", driver.name(),
                   accepted, artifact.kernel, quote(artifact.format)));
}

}  // namespace braze
