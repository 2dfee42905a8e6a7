// kernel_runner.h — makes an image of a kernel, maps it and runs it, for tests of the code
// generator.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/codegen/code_generator.h"
#include "runtime/devices/cpu/cpu_driver.h"

namespace braze::test {

inline const Target& target(std::string_view name) {
  static const std::vector<Target> targets(target_table().begin(), target_table().end());
  for (const Target& t : targets)
    if (t.name == name) return t;
  throw std::runtime_error("no target " + std::string(name));
}

/// The CPU targets whose code this machine runs.
inline std::vector<std::string_view> host_targets() {
  __builtin_cpu_init();  // also called before main
  std::vector<std::string_view> out;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) out.push_back("x86-64-v3");
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    out.push_back("x86-64-v4");
  return out;
}

class KernelRunner {
 public:
  KernelRunner(const Kernel& kernel, std::string_view target_name)
      : KernelRunner(generate_image(kernel, target(target_name))) {}
  explicit KernelRunner(Artifact image) : artifact(std::move(image)), scratch_(1 << 20) {
    size_ = (artifact.code.size() + 4095) / 4096 * 4096;
    base_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("mmap");
    std::memcpy(base_, artifact.code.data(), artifact.code.size());
    mprotect(base_, size_, PROT_READ | PROT_EXEC);
  }
  KernelRunner(const KernelRunner&) = delete;
  KernelRunner& operator=(const KernelRunner&) = delete;
  ~KernelRunner() { munmap(base_, size_); }

  /// Runs instances [begin, end) of a phase.
  void run(std::vector<void*> buffers, std::vector<int64_t> scalars = {}, int64_t begin = 0,
           int64_t end = 1, size_t phase = 0) {
    const auto entry = reinterpret_cast<KernelFunction>(static_cast<std::byte*>(base_) +
                                                        artifact.entries.at(phase));
    const auto scratch = (reinterpret_cast<uintptr_t>(scratch_.data()) + 63) / 64 * 64;
    call_kernel(entry, buffers.data(), scalars.data(), reinterpret_cast<void*>(scratch), begin,
                end);
  }

  Artifact artifact;

 private:
  void* base_ = nullptr;
  size_t size_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace braze::test
