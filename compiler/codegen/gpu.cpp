// gpu.cpp — Kernel IR to an Artifact for a GPU: a code generator, then an assembler.
#include <algorithm>
#include <cctype>
#include <chrono>

#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/support/text.h"

namespace braze {

std::string gpu_entry_name(const Kernel& kernel, size_t phase) {
  std::string name = fmt::format("{}_p{}", kernel.name, phase);
  // PTX has no dots in names, and none begins with a digit, which a kernel's cannot either.
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

Artifact generate_gpu(const Kernel& kernel, const Target& target, CodegenTimes* times) {
  CodegenTimes spent;
  Artifact artifact;
  artifact.format = "ptx";
  artifact.kernel = kernel.name;
  artifact.code = assembly_text(kernel, target, &spent);
  for (size_t i = 0; i < kernel.phases.size(); ++i)
    artifact.entry_names.push_back(gpu_entry_name(kernel, i));
  if (const PtxAssembler* assembler = ptx_assembler()) {
    const auto start = std::chrono::steady_clock::now();
    Assembled assembled = assembler->assemble(artifact.code, target.name, artifact.entry_names);
    artifact.format = "cubin";
    artifact.code = std::move(assembled.cubin);
    artifact.maker = assembler->name();
    artifact.facts = std::move(assembled.facts);
    spent.assemble =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (times) *times = spent;
  return artifact;
}

}  // namespace braze
