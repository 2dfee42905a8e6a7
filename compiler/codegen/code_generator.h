// code_generator.h — the translation of Kernel IR to machine code.
//
// This is the last step of the compiler. For a CPU, a verified kernel becomes one flat image of
// x86-64 code and constants, which can be mapped anywhere and called from any thread. For a GPU it
// becomes PTX, and a cubin if this machine has an assembler. Neither imports anything.
#pragma once

#include <string>
#include <vector>

#include "ir/code/code.h"
#include "ir/program/program.h"
#include "ir/target/target.h"

namespace braze {

namespace codes {
inline constexpr Code kCodegenTarget{"codegen-target", ErrorKind::Unsupported,
                                     "No code generator can make code for this target."};
inline constexpr Code kCodegenKernel{"codegen-kernel", ErrorKind::InvalidArgument,
                                     "The kernel breaks a rule of Kernel IR."};
inline constexpr Code kLlvmRefused{"llvm-refused", ErrorKind::Internal,
                                   "LLVM refused a kernel that was generated."};
inline constexpr Code kNvrtcMissing{"nvrtc-missing", ErrorKind::Unsupported,
                                    "NVRTC was requested, but is not on this machine."};
inline constexpr Code kNvrtcRefused{"nvrtc-refused", ErrorKind::Internal,
                                    "NVRTC refused a kernel that was generated."};
}  // namespace codes

/// The processor time of each step of one generation, in seconds.
struct CodegenTimes {
  double translate = 0;  ///< Kernel IR to LLVM IR
  double optimize = 0;   ///< LLVM IR to LLVM IR
  double emit = 0;       ///< LLVM IR to an object in memory or to PTX
  double link = 0;       ///< the object to an image
  double assemble = 0;   ///< PTX to a cubin; by the clock, as a process of its own may do it
  double total() const { return translate + optimize + emit + link + assemble; }
};

/// Generates the image of `kernel` for a CPU target ("x86-64-v3", "x86-64-v4"): an Artifact of the
/// format "image", with one entry for each phase. The kernel must have no findings. Otherwise
/// InvalidArgument names the first statement that is not Kernel IR. Several threads may call it at
/// once.
Artifact generate_image(const Kernel& kernel, const Target& target, CodegenTimes* times = nullptr);

/// Whether PTX is assembled here or when it is loaded.
enum class Assembly : uint8_t { IfPossible, Never };

/// Generates the code of `kernel` for a GPU target: a cubin with the facts that the assembler
/// reports, or PTX if this machine has no assembler. Errors are as for generate_image; Internal if
/// the assembler refuses the PTX.
Artifact generate_gpu(const Kernel& kernel, const Target& target,
                      Assembly assembly = Assembly::IfPossible, CodegenTimes* times = nullptr);

/// The same through CUDA C++, which NVRTC compiles to PTX. Unsupported if this machine has no
/// NVRTC. Its time counts as emission.
Artifact generate_nvrtc(const Kernel& kernel, const Target& target,
                        Assembly assembly = Assembly::IfPossible, CodegenTimes* times = nullptr);
/// The PTX that NVRTC makes from `kernel`.
std::string nvrtc_ptx(const Kernel& kernel, const Target& target, CodegenTimes* times = nullptr);
/// `kernel` as CUDA C++.
std::string cuda_text(const Kernel& kernel);
/// The name and version, such as "NVRTC 13.0"; empty if this machine has no NVRTC.
std::string nvrtc_name();
/// The same with what tells builds of one version apart; "none" if this machine has no NVRTC.
std::string nvrtc_identity();
/// The version of LLVM, such as "22.1.3".
std::string llvm_version();

/// The machine code of a GPU artifact as text, if this machine has an assembler and nvdisasm;
/// otherwise a comment that says what is missing.
std::string gpu_machine_text(const Artifact& artifact);

/// The name of the function of a phase on a GPU.
std::string gpu_entry_name(const Kernel& kernel, size_t phase);

/// For a kernel whose members have sizes of their own: the number of the first block of each
/// member. The list is as long as the next power of two, so that it can be searched by halves; no
/// block reaches the numbers that fill it.
std::vector<uint32_t> first_blocks(const Kernel& kernel, const Phase& phase);

/// The optimized LLVM IR of `kernel`, for people.
std::string llvm_text(const Kernel& kernel, const Target& target);
/// The assembly of `kernel`. For a CPU it is for people. For a GPU ("sm_90a", "sm_80") it is PTX
/// with one function `<kernel>_p<phase>` for each phase.
std::string assembly_text(const Kernel& kernel, const Target& target,
                          CodegenTimes* times = nullptr);

}  // namespace braze
