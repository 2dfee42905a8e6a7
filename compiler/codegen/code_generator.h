// code_generator.h — Kernel IR to machine code.
//
// The last step of the compiler. On the CPU a verified kernel becomes one flat image of x86-64 code
// and constants that can be mapped anywhere and called from any thread. On a GPU it becomes PTX,
// and where an assembler is at hand a cubin. Neither imports anything.
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
inline constexpr Code kLlvmRefused{"llvm-refused", ErrorKind::Internal,
                                   "LLVM refused a kernel that was generated."};
inline constexpr Code kNvrtcMissing{"nvrtc-missing", ErrorKind::Unsupported,
                                    "NVRTC was asked for and is not on this machine."};
inline constexpr Code kNvrtcRefused{"nvrtc-refused", ErrorKind::Internal,
                                    "NVRTC refused a kernel that was generated."};
}  // namespace codes

/// Processor seconds that each step of one generation took.
struct CodegenTimes {
  double translate = 0;  ///< Kernel IR to LLVM IR
  double optimize = 0;   ///< LLVM IR to LLVM IR
  double emit = 0;       ///< LLVM IR to an object in memory or to PTX
  double link = 0;       ///< the object to an image
  double assemble = 0;   ///< PTX to a cubin; by the clock, as a process of its own may do it
  double total() const { return translate + optimize + emit + link + assemble; }
};

/// The image of `kernel` for a CPU target ("x86-64-v3", "x86-64-v4"): Artifact format "image", one
/// entry per phase. The kernel must be free of findings; InvalidArgument names the first statement
/// that is not Kernel IR. May be called from several threads at once.
Artifact generate_image(const Kernel& kernel, const Target& target, CodegenTimes* times = nullptr);

/// Whether PTX becomes machine code here or where it is loaded.
enum class Assembly : uint8_t { IfPossible, Never };

/// The code of `kernel` for a GPU target: a cubin with the assembler's facts, or PTX where this
/// machine has no assembler. Errors as generate_image; Internal if the assembler refuses it.
Artifact generate_gpu(const Kernel& kernel, const Target& target,
                      Assembly assembly = Assembly::IfPossible, CodegenTimes* times = nullptr);

/// The same by the other way: CUDA C++, which NVRTC compiles to PTX. Unsupported if this machine
/// has no NVRTC. Its time counts as emission.
Artifact generate_nvrtc(const Kernel& kernel, const Target& target,
                        Assembly assembly = Assembly::IfPossible, CodegenTimes* times = nullptr);
/// The PTX that NVRTC makes of `kernel`.
std::string nvrtc_ptx(const Kernel& kernel, const Target& target, CodegenTimes* times = nullptr);
/// `kernel` as CUDA C++.
std::string cuda_text(const Kernel& kernel);
/// "NVRTC 13.0"; empty where there is none.
std::string nvrtc_name();
/// The same with what tells builds of one version apart; "none" where there is none.
std::string nvrtc_identity();
/// "22.1.3".
std::string llvm_version();

/// The machine code of a GPU's artifact as text, where this machine has an assembler and nvdisasm;
/// else a comment.
std::string gpu_machine_text(const Artifact& artifact);

/// The name of a phase's function on a GPU.
std::string gpu_entry_name(const Kernel& kernel, size_t phase);

/// The optimized LLVM IR of `kernel`, for people.
std::string llvm_text(const Kernel& kernel, const Target& target);
/// Its assembly: for people that of a CPU; of a GPU ("sm_90a", "sm_80") PTX, with one function
/// `<kernel>_p<phase>` for each phase.
std::string assembly_text(const Kernel& kernel, const Target& target,
                          CodegenTimes* times = nullptr);

}  // namespace braze
