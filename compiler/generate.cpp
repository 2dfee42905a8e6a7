#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "compiler/codegen/code_generator.h"
#include "compiler/generate_p.h"
#include "ir/code/static_loops.h"
#include "ir/code/text.h"
#include "ir/code/walk.h"
#include "ir/support/parallel.h"
#include "ir/support/progress.h"

namespace braze {

Artifact generate(const Kernel& kernel, const Target& target, const CompileOptions& options) {
  const TraceSpan span("lowering", "generate", kernel.name);
  if (target.simulated) return {"kernel", kernel.name, to_text(kernel), {}};
  if (target.kind != TargetKind::Gpu) return generate_image(kernel, target);
  const Assembly assembly = options.assemble ? Assembly::IfPossible : Assembly::Never;
  return options.gpu_code == GpuCode::Nvrtc ? generate_nvrtc(kernel, target, assembly)
                                            : generate_gpu(kernel, target, assembly);
}

namespace {

// The number of elements that all statements make, those of a loop in each copy of its body. The
// size of the code grows with it.
int64_t count_elements(const Kernel& kernel, const Region& region) {
  int64_t out = 0;
  for (const Statement& statement : region.statements) {
    for (const ValueId result : statement.results) out += kernel[result].type.count();
    int64_t inside = 0;
    for (const Region* nested : regions_of(statement)) inside += count_elements(kernel, *nested);
    const auto* loop = statement.as<ForOp>();
    out += loop ? inside * body_copies(*loop) : inside;
  }
  return out;
}
int64_t count_elements(const Kernel& kernel) {
  int64_t out = 0;
  for (const Phase& phase : kernel.phases) out += count_elements(kernel, phase.body);
  return out;
}

// The code of a kernel. `kept` may have it from another program; null if nothing is kept.
std::shared_ptr<const Artifact> code_of(const Kernel& kernel, const Target& target,
                                        const CompileOptions& options, KernelCodes* kept) {
  const auto make = [&] { return generate(kernel, target, options); };
  // The code of the simulator is the text of the kernel.
  const std::string key = kept && !target.simulated ? code_key(kernel) : "";
  if (key.empty()) return std::make_shared<const Artifact>(make());
  std::shared_ptr<const Artifact> code = kept->get_or_make(key, make);
  if (code->kernel == kernel.name) return code;
  auto renamed = std::make_shared<Artifact>(*code);
  renamed->kernel = kernel.name;
  return renamed;
}

}  // namespace

void generate_all(std::vector<CompiledFusion>& fusions, const Launches& launches,
                  const Target& target, const CompileOptions& options, KernelCodes* kept,
                  const std::string& program) {
  std::unordered_map<std::string_view, std::vector<size_t>> kernels_of;
  std::vector<const std::vector<size_t>*> distinct;
  for (size_t n = 0; n < launches.members.size(); ++n) {
    if (launches.codes[n].empty()) continue;
    std::vector<size_t>& equal = kernels_of[launches.codes[n]];
    if (equal.empty()) distinct.push_back(&equal);
    equal.push_back(launches.members[n].front());
  }
  // Long code is made first, so that at the end no core has to wait for it.
  std::ranges::stable_sort(distinct, std::greater(), [&](const std::vector<size_t>* equal) {
    return count_elements(fusions[equal->front()].kernel);
  });
  Progress progress("compiling " + program, "code", distinct.size());
  parallel_for(distinct.size(), [&](size_t n) {
    const std::vector<size_t>& equal = *distinct[n];
    const auto code = code_of(fusions[equal.front()].kernel, target, options, kept);
    for (const size_t i : equal) fusions[i].code = code;
    progress.advance();
  });
}

void show_code(const Kernel& kernel, const Target& target, const CompileOptions& options,
               PhaseViewers& viewers) {
  if (target.simulated) return;
  const bool by_nvrtc = target.kind == TargetKind::Gpu && options.gpu_code == GpuCode::Nvrtc;
  if (by_nvrtc)
    viewers.show({"cuda", kernel.name, [&] { return cuda_text(kernel); }});
  else
    viewers.show({"llvm", kernel.name, [&] { return llvm_text(kernel, target); }});
  const auto assembly = [&] {
    return by_nvrtc ? nvrtc_ptx(kernel, target) : assembly_text(kernel, target);
  };
  if (target.kind != TargetKind::Gpu) return viewers.show({"asm", kernel.name, assembly});
  viewers.show({"ptx", kernel.name, assembly});
  viewers.show(
      {"sass", kernel.name, [&] { return gpu_machine_text(generate(kernel, target, options)); }});
}

}  // namespace braze
