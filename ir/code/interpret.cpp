#include "ir/code/interpret.h"

#include "ir/code/interpret_p.h"

namespace braze {

CodeInterpreter::CodeInterpreter(const KernelCode& code)
    : engine_(std::make_unique<Engine>(code)) {}
CodeInterpreter::~CodeInterpreter() = default;

std::vector<Diagnostic> CodeInterpreter::run(std::span<const std::span<std::byte>> memories,
                                             std::span<const int64_t> scalars) {
  return engine_->run(memories, scalars);
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
