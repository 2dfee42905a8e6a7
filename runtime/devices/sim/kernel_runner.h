// kernel_runner.h — what the simulator needs of an interpreter of Kernel IR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace braze {

/// One kernel, parsed and ready to be interpreted.
class KernelRunner {
 public:
  virtual ~KernelRunner() = default;
  /// Runs `instances[i]` instances of each phase i. `buffers` are the memory of the kernel's tensor
  /// parameters. Throws Error at the first access that breaks a rule of the language.
  virtual void run(std::span<const std::span<std::byte>> buffers, std::span<const int64_t> scalars,
                   std::span<const int64_t> instances) = 0;
};

/// Parses the text of the kernel called `name`.
using MakeKernelRunner = std::unique_ptr<KernelRunner> (*)(std::string_view text,
                                                           std::string_view name);

}  // namespace braze
