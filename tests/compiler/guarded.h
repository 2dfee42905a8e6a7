// guarded.h — runs programs for CPUs in memory between pages that no code may touch.
//
// A read beside a buffer shows in no result if what was read is dropped. Here it ends the process.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "tests/compiler/kernel_runner.h"
#include "tests/compiler/run.h"

namespace braze::testing {

/// Where the forbidden page lies that a buffer touches.
enum class Guard { Before, Behind };

class GuardedMemory {
 public:
  GuardedMemory(size_t bytes, Guard guard) {
    constexpr size_t kAlignment = 64;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t room = (bytes + page - 1) / page * page;
    size_ = room + 2 * page;
    void* const base = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("mmap");
    base_ = static_cast<std::byte*>(base);
    if (room > 0 && mprotect(base_ + page, room, PROT_READ | PROT_WRITE) != 0)
      throw std::runtime_error("mprotect");
    const size_t used = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    data_ = base_ + page + (guard == Guard::Behind ? room - used : 0);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { munmap(base_, size_); }

  std::byte* data() const { return data_; }

 private:
  std::byte *base_ = nullptr, *data_ = nullptr;
  size_t size_ = 0;
};

/// The outputs of a program without symbols.
inline std::vector<HostTensor> run_guarded(const Program& program,
                                           std::span<const HostTensor> inputs, Guard guard) {
  std::vector<std::unique_ptr<GuardedMemory>> memories;
  const auto allocate = [&](size_t bytes) {
    memories.push_back(std::make_unique<GuardedMemory>(bytes, guard));
    return memories.back()->data();
  };
  const auto copy_of = [&](const HostTensor& x) {
    std::byte* const data = allocate(x.size_bytes());
    if (x.size_bytes() > 0) std::memcpy(data, x.data(), x.size_bytes());
    return data;
  };
  std::vector<std::byte*> arguments, slots;
  for (const HostTensor& input : inputs) arguments.push_back(copy_of(input));
  std::byte* const arena = allocate(static_cast<size_t>(program.arena_bytes.as_constant().value()));
  std::vector<HostTensor> outputs;
  std::vector<std::byte*> results;
  for (const ProgramOutput& output : program.outputs) {
    outputs.emplace_back(output.type.dtype, output.type.shape.static_dims());
    results.push_back(output.updates ? arguments[*output.updates]
                                     : allocate(outputs.back().size_bytes()));
  }
  for (const Slot& slot : program.slots) {
    switch (slot.kind) {
      case Slot::Kind::Input:
        slots.push_back(arguments[slot.index]);
        break;
      case Slot::Kind::Output:
        slots.push_back(results[slot.index]);
        break;
      case Slot::Kind::Constant:
        slots.push_back(copy_of(*program.constants[slot.index]));
        break;
      case Slot::Kind::Place:
        break;
      case Slot::Kind::Temporary:
        slots.push_back(arena + slot.offset.as_constant().value());
        break;
    }
  }
  const auto bytes_of = [&](uint32_t slot) {
    const TensorType& type = program.slots[slot].type;
    return static_cast<size_t>(type.shape.numel().as_constant().value()) * size_of(type.dtype);
  };
  for (const Launch& launch : program.launches) {
    for (const uint32_t slot : launch.zeroed) std::memset(slots[slot], 0, bytes_of(slot));
    if (launch.artifact == Launch::kCopy) {
      std::memcpy(slots[launch.buffers[1]], slots[launch.buffers[0]], bytes_of(launch.buffers[0]));
      continue;
    }
    std::vector<void*> buffers;
    for (const uint32_t slot : launch.buffers) buffers.push_back(slots[slot]);
    test::KernelRunner kernel(program.artifacts[launch.artifact]);
    for (size_t phase = 0; phase < launch.instances.size(); ++phase)
      kernel.run(buffers, {}, 0, launch.instances[phase].as_constant().value(), phase);
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].size_bytes() > 0)
      std::memcpy(outputs[i].data(), results[i], outputs[i].size_bytes());
  return outputs;
}

/// Expects right results and no access beside a buffer. Sizes in bytes that are multiples of 64
/// leave no gap before the page behind.
inline void expect_within_guards(const Graph& graph, std::span<const HostTensor> inputs) {
  const Program program = compile(graph, Device("cpu").target());
  for (const Guard guard : {Guard::Before, Guard::Behind}) {
    const pid_t child = fork();  // which has one thread and runs kernels on it
    if (child == 0) {
      const std::vector<HostTensor> got = run_guarded(program, inputs, guard);
      _exit(check_outputs(graph, inputs, got).ok ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_FALSE(WIFSIGNALED(status))
        << "touches what lies " << (guard == Guard::Before ? "before" : "behind")
        << " a buffer (signal " << WTERMSIG(status) << ")\n"
        << to_text(graph);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "wrong\n" << to_text(graph);
  }
}

}  // namespace braze::testing
