#include "runtime/devices/driver.h"

#include <cstring>

#include "ir/support/env.h"
#include "ir/support/text.h"

namespace braze {

namespace {

std::optional<uint64_t> initial_limit() {
  const std::optional<int64_t> bytes = read_env_int(kEnvMemoryLimit, 0, INT64_MAX);
  if (!bytes) return std::nullopt;
  return static_cast<uint64_t>(*bytes);
}

}  // namespace

DeviceDriver::DeviceDriver(Device device, std::unique_ptr<MemorySource> memory)
    : device_(device),
      name_(device.name()),
      allocator_(
          name_, std::move(memory), [this] { stream_.drain(); }, initial_limit()) {}

void DeviceDriver::copy_from_host(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void DeviceDriver::copy_to_host(std::span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void fail_unsupported_format(const DeviceDriver& driver, const Artifact& artifact,
                             std::string_view accepted) {
  fail(codes::kUnsupportedProgram,
       fmt::format("device {} runs code of the format {}, but kernel @{} is {}", driver.name(),
                   accepted, artifact.kernel, quote(artifact.format)));
}

}  // namespace braze
