// gpu.cpp — makes an Artifact for a GPU from Kernel IR: a code generator, then an assembler.
#include <algorithm>
#include <bit>

#include "braze/trace.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/clocks.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// ptxas (12.9 and 13.0, for sm_90) joins two signed minima or maxima of 32 bits to one instruction
// with three operands, and drops the sign of an operand that is a negation: max(a, -b, c) becomes
// max(a, b, c). A complement plus one has the same value, and ptxas does not see a negation in it.
std::string without_negations(std::string_view ptx) {
  constexpr std::string_view kNegation = "neg.s32";
  std::string out;
  out.reserve(ptx.size() + ptx.size() / 16);
  while (!ptx.empty()) {
    const size_t end = std::min(ptx.find('\n'), ptx.size() - 1) + 1;
    const std::string_view line = ptx.substr(0, end);
    ptx.remove_prefix(end);
    const size_t at = line.find(kNegation), comma = line.find(',');
    if (at == line.npos || comma == line.npos) {
      out += line;
      continue;
    }
    const size_t name = line.find('%', at);
    const std::string_view result = line.substr(name, comma - name);
    out += line.substr(0, at);
    out += "not.b32";
    out += line.substr(at + kNegation.size());
    out += fmt::format("\tadd.s32 \t{0}, {0}, 1;\n", result);
  }
  return out;
}

}  // namespace

std::string gpu_entry_name(const Kernel& kernel, size_t phase) {
  std::string name = fmt::format("{}_p{}", kernel.name, phase);
  // Names in PTX have no dots and do not begin with a digit. Names of kernels do not begin with one
  // either.
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

std::vector<uint32_t> first_blocks(const Kernel& kernel, const Phase& phase) {
  std::vector<uint32_t> out;
  for (const int64_t instance : first_instances(kernel, phase))
    out.push_back(static_cast<uint32_t>(instance * phase.cluster_size));
  out.back() = INT32_MAX;
  out.resize(std::bit_ceil(kernel.member_sizes.size()), INT32_MAX);
  return out;
}

namespace {

// The artifact made from PTX: a cubin if there is an assembler.
Artifact assembled(const Kernel& kernel, const Target& target, std::string_view ptx,
                   Assembly assembly, CodegenTimes& times) {
  Artifact artifact;
  artifact.format = "ptx";
  artifact.kernel = kernel.name;
  artifact.code = without_negations(ptx);
  for (size_t i = 0; i < kernel.phases.size(); ++i)
    artifact.entry_names.push_back(gpu_entry_name(kernel, i));
  const PtxAssembler* assembler = assembly == Assembly::Never ? nullptr : ptx_assembler();
  if (assembler) {
    const TraceSpan span("codegen", "assemble", assembler->name());
    WallClock clock;
    Assembled made = assembler->assemble(artifact.code, target.name, artifact.entry_names);
    artifact.format = "cubin";
    artifact.code = std::move(made.cubin);
    artifact.maker = assembler->name();
    artifact.facts = std::move(made.facts);
    times.assemble = clock.lap();
  }
  return artifact;
}

}  // namespace

Artifact generate_gpu(const Kernel& kernel, const Target& target, Assembly assembly,
                      CodegenTimes* times) {
  CodegenTimes spent;
  const std::string ptx = assembly_text(kernel, target, &spent);
  Artifact artifact = assembled(kernel, target, ptx, assembly, spent);
  if (times) *times = spent;
  return artifact;
}

Artifact generate_nvrtc(const Kernel& kernel, const Target& target, Assembly assembly,
                        CodegenTimes* times) {
  CodegenTimes spent;
  const std::string ptx = nvrtc_ptx(kernel, target, &spent);
  Artifact artifact = assembled(kernel, target, ptx, assembly, spent);
  if (!artifact.maker.empty()) artifact.maker = nvrtc_name() + ", " + artifact.maker;
  if (times) *times = spent;
  return artifact;
}

std::string gpu_machine_text(const Artifact& artifact) {
  if (artifact.format == "cubin") return sass_text(artifact.code);
  return "// no PTX assembler on this machine; the driver compiles the PTX\n";
}

}  // namespace braze
