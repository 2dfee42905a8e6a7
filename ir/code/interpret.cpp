#include "ir/code/interpret.h"

#include "ir/code/interpret_p.h"

namespace braze {

CodeInterpreter::CodeInterpreter(const KernelCode& code)
    : engine_(std::make_unique<Engine>(code)) {}
CodeInterpreter::~CodeInterpreter() = default;

std::vector<Diagnostic> CodeInterpreter::run(std::span<const std::span<std::byte>> memories,
                                             std::span<const int64_t> scalars) {
  return run_members(engine_->code(), memories, scalars,
                     [&](const auto& own, const auto& words) { return engine_->run(own, words); });
}

std::vector<Diagnostic> run_members(
    const KernelCode& code, std::span<const std::span<std::byte>> memories,
    std::span<const int64_t> scalars,
    const std::function<std::vector<Diagnostic>(std::span<const std::span<std::byte>>,
                                                std::span<const int64_t>)>& run) {
  const auto members = static_cast<size_t>(code.members);
  const size_t count = memories.size() / members;
  if (members == 1) return run(memories, scalars);
  const auto bad = [&](const std::string& what) {
    return std::vector{
        Diagnostic{&codes::kBadLaunch, {}, {}, fmt::format("kernel @{}: {}", code.name, what)}};
  };
  if (count * members != memories.size())
    return bad(fmt::format("the launch passes {} pieces of memory to {} members", memories.size(),
                           members));
  std::vector<const Memory*> passed;
  for (const Memory& memory : code.memories)
    if (is_device_memory(memory)) passed.push_back(&memory);
  for (size_t i = 0; i < memories.size(); ++i) {
    if (i % count >= passed.size()) continue;
    const Memory& written = *passed[i % count];
    if (written.space == MemorySpace::Parameter && written.mode == Mode::In) continue;
    for (size_t j = 0; j < memories.size(); ++j) {
      const std::span<std::byte>&a = memories[i], &b = memories[j];
      const bool apart = a.empty() || b.empty() || a.data() + a.size() <= b.data() ||
                         b.data() + b.size() <= a.data();
      if (i / count != j / count && !apart)
        return bad(fmt::format("member {} writes %{}, whose memory member {} uses too", i / count,
                               written.name, j / count));
    }
  }
  std::vector<Diagnostic> findings;
  for (size_t m = 0; m < members && findings.empty(); ++m) {
    std::vector<int64_t> words;
    if (!code.member_sizes.empty()) words = code.member_sizes[m];
    words.insert(words.end(), scalars.begin(), scalars.end());
    findings = run(memories.subspan(m * count, count), words);
    for (Diagnostic& finding : findings) finding.message += fmt::format(", of member {}", m);
  }
  return findings;
}

std::vector<Diagnostic> run_code(const KernelCode& code,
                                 std::span<const std::span<std::byte>> memories,
                                 std::span<const int64_t> scalars) {
  return CodeInterpreter(code).run(memories, scalars);
}

std::vector<BrokenRule> run_skeleton(const KernelCode& code, std::span<const int64_t> sizes) {
  CodeInterpreter::Engine engine(code, /*skeleton=*/true);
  engine.run_skeleton(sizes);
  return std::move(engine.broken_rules);
}

}  // namespace braze
