// generate_p.h — from kernels to their codes, by the code generator that the target and the options
// ask for.
#pragma once

#include <string>
#include <vector>

#include "compiler/kernel_codes.h"
#include "compiler/launches_p.h"

namespace braze {

/// The code of one kernel.
Artifact generate(const Kernel& kernel, const Target& target, const CompileOptions& options);

/// Makes code for all launches, on all cores. Launches whose kernels are equal get the same code.
/// `kept` may have it from another program; it may be null.
void generate_all(std::vector<CompiledFusion>& fusions, const Launches& launches,
                  const Target& target, const CompileOptions& options, KernelCodes* kept,
                  const std::string& program);

/// Shows the texts between a kernel and its code.
void show_code(const Kernel& kernel, const Target& target, const CompileOptions& options,
               PhaseViewers& viewers);

}  // namespace braze
