#include "tests/runtime/cuda/simulated.h"

#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "ir/code/text.h"
#include "ir/kernel/simulate.h"
#include "ir/support/text.h"
#include "tests/runtime/cuda/fake_cuda.h"

namespace braze::test {

namespace {

constexpr size_t kWord = 8, kMapBytes = 128;

/// One phase, as a kernel of its own. What other phases leave it is there before it runs.
Kernel phase_of(Kernel kernel, size_t phase) {
  kernel.phases = {kernel.phases.at(phase)};
  for (Memory& memory : kernel.memories) {
    if (memory.space == MemorySpace::Workspace)
      memory.space = MemorySpace::Parameter;
    else if (memory.space != MemorySpace::Parameter || memory.mode == Mode::In)
      continue;
    memory.mode = Mode::InOut;
  }
  return kernel;
}

/// An entry function: NAME_pPHASE.
class Entry {
 public:
  Entry(const std::string& text, size_t phase)
      : kernel_(phase_of(parse_kernel(text, "module"), phase)), simulator_(kernel_) {
    for (size_t i = 0; i < kernel_.memories.size(); ++i)
      if (kernel_.memories[i].space == MemorySpace::Parameter) memories_.push_back(i);
  }

  std::vector<size_t> parameters() const {
    const auto members = static_cast<size_t>(kernel_.members);
    const size_t pointers = memories_.size(), maps = kernel_.tensor_maps.size();
    std::vector<size_t> out;
    const auto add = [&](size_t count, size_t bytes) { out.insert(out.end(), count, bytes); };
    if (members > 1)
      add(1, kWord * pointers * members);
    else
      add(pointers, kWord);
    add(kernel_.passed_symbols().size(), kWord);
    if (members == 1)
      add(maps, kMapBytes);
    else if (maps > 0)
      add(1, kMapBytes * maps * members);
    return out;
  }

  std::string run(const FakeCode::Parameters& given, const FakeCode::IsThere& is_there) {
    const auto members = static_cast<size_t>(kernel_.members);
    const size_t first_scalar = members > 1 ? 1 : memories_.size();
    std::vector<int64_t> scalars;
    for (size_t i = 0; i < kernel_.passed_symbols().size(); ++i)
      scalars.push_back(word<int64_t>(given[first_scalar + i], 0));
    std::vector<std::span<std::byte>> memories;
    for (size_t i = 0; i < members * memories_.size(); ++i) {
      const std::vector<int64_t>& sizes =
          kernel_.member_sizes.empty() ? scalars : kernel_.member_sizes[i / memories_.size()];
      const auto size_of_symbol = [&](std::string_view name) {
        for (size_t s = 0; s < sizes.size(); ++s)
          if (kernel_.symbols[s].symbol_name() == name) return sizes[s];
        return int64_t{0};
      };
      auto* const data =
          members > 1 ? word<std::byte*>(given[0], i) : word<std::byte*>(given[i], 0);
      const Memory& memory = kernel_.memories[memories_[i % memories_.size()]];
      auto bytes = static_cast<int64_t>(size_of(memory.dtype));
      for (const Expr& extent : memory.shape) bytes *= extent.evaluate(size_of_symbol);
      if (bytes > 0 && !is_there(data, static_cast<size_t>(bytes)))
        return fmt::format("kernel @{} gets memory for %{} that is not there", kernel_.name,
                           memory.name);
      memories.emplace_back(data, static_cast<size_t>(std::max<int64_t>(bytes, 0)));
    }
    std::string faults;
    for (const Diagnostic& finding : simulator_.run(memories, scalars))
      faults += finding.to_string() + "\n";
    return faults;
  }

 private:
  template <class T>
  static T word(const std::vector<char>& bytes, size_t i) {
    T out;
    static_assert(sizeof out == kWord);
    std::memcpy(&out, bytes.data() + i * kWord, kWord);
    return out;
  }

  const Kernel kernel_;
  Simulator simulator_;
  std::vector<size_t> memories_;  // of the kernel, in the order of its parameters
};

std::optional<FakeCode> code_of(const std::string& text, const std::string& entry) {
  const size_t at = entry.rfind("_p");
  size_t phase = 0;
  if (at == std::string::npos ||
      std::from_chars(entry.data() + at + 2, entry.data() + entry.size(), phase).ec != std::errc())
    return std::nullopt;
  const auto made = std::make_shared<Entry>(text, phase);
  return FakeCode{made->parameters(),
                  [made](const FakeCode::Parameters& given, const FakeCode::IsThere& is_there) {
                    return made->run(given, is_there);
                  }};
}

}  // namespace

void simulate_on_fake() { fake_cuda()->compile = code_of; }

Program for_fake(Program program) {
  program.target.simulated = false;
  for (Artifact& artifact : program.artifacts) {
    artifact.format = "ptx";
    const size_t phases = parse_kernel(artifact.code, artifact.kernel).phases.size();
    for (size_t phase = 0; phase < phases; ++phase)
      artifact.entry_names.push_back(fmt::format("{}_p{}", artifact.kernel, phase));
  }
  return program;
}

}  // namespace braze::test
