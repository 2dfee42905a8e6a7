// code_generator.h — Kernel IR to machine code.
//
// The last step of the compiler on the CPU: a verified kernel becomes one flat image of x86-64 code
// and constants that can be mapped anywhere and called from any thread. The image imports nothing.
#pragma once

#include <string>

#include "ir/code/code.h"
#include "ir/program/program.h"
#include "ir/target/target.h"

namespace braze {

namespace codes {
inline constexpr Code kCodegenTarget{"codegen-target", ErrorKind::Unsupported,
                                     "No code generator serves this target."};
inline constexpr Code kCodegenKernel{"codegen-kernel", ErrorKind::InvalidArgument,
                                     "The kernel does not obey the rules of Kernel IR."};
}  // namespace codes

/// Processor seconds that each step of one generation took.
struct CodegenTimes {
  double translate = 0;  ///< Kernel IR to LLVM IR
  double optimize = 0;   ///< LLVM IR to LLVM IR
  double emit = 0;       ///< LLVM IR to an object in memory
  double link = 0;       ///< the object to an image
  double total() const { return translate + optimize + emit + link; }
};

/// The image of `kernel` for a CPU target ("x86-64-v3", "x86-64-v4"): Artifact format "image", one
/// entry per phase. The kernel must be free of findings; InvalidArgument names the first statement
/// that is not Kernel IR. May be called from several threads at once.
Artifact generate_image(const Kernel& kernel, const Target& target, CodegenTimes* times = nullptr);

/// The optimized LLVM IR of `kernel`, for people.
std::string llvm_text(const Kernel& kernel, const Target& target);
/// Its assembly, for people.
std::string assembly_text(const Kernel& kernel, const Target& target);

}  // namespace braze
