// ptx_assembler.h — the assembly of PTX text to a cubin, and the facts that the assembler reports.
//
// The first choice is the plugin libbraze-ptx.so beside the library (NVIDIA's nvPTXCompiler, which
// is built if its static library was found). The second is a `ptxas` on the machine. Without
// either, the driver receives the PTX itself. nvJitLink and cuLink are not used, because they
// ignore setmaxnreg.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program/program.h"

namespace braze {

namespace codes {
inline constexpr Code kPtxRefused{"ptx-refused", ErrorKind::Internal,
                                  "The PTX assembler refused a kernel that was generated."};
inline constexpr Code kPtxAssembler{"ptx-assembler", ErrorKind::Device,
                                    "The PTX assembler could not be run."};
}  // namespace codes

/// A cubin, and the facts of each entry function in the order of `entries`.
struct Assembled {
  std::string cubin;
  std::vector<CodeFacts> facts;
};

/// An assembler on this machine. Several threads may use it at once.
class PtxAssembler {
 public:
  virtual ~PtxAssembler() = default;
  /// The name for people: "nvPTXCompiler 9.0", "/usr/local/cuda/bin/ptxas".
  virtual std::string name() const = 0;
  /// A text that distinguishes assemblers and their versions, for cache keys.
  virtual std::string identity() const = 0;
  /// False if every program needs a new process that loads the assembler, which takes 0.1 s.
  virtual bool is_in_process() const = 0;
  /// Assembles for one architecture, such as "sm_90a". Throws Internal with the assembler's
  /// messages if it refuses the text, and Device if it cannot be run.
  Assembled assemble(const std::string& ptx, std::string_view architecture,
                     const std::vector<std::string>& entries) const;

 protected:
  struct Output {
    bool ok = false;
    std::string cubin, log;
  };
  virtual Output run(const std::string& ptx, std::string_view architecture) const = 0;
};

/// The first choice that this machine has; null if it has none. BRAZE_PTXAS overrides it: "none",
/// "plugin" or the path of a ptxas. The machine is searched once.
const PtxAssembler* ptx_assembler();

/// The folder of the compiler's library, which holds the plugins; empty if it is unknown.
std::filesystem::path library_folder();

/// A text that changes when a file is replaced: its path, size and time of change.
std::string file_identity(const std::filesystem::path& path);

/// The machine code of a cubin as text, through `nvdisasm`. Without nvdisasm, a comment that says
/// so.
std::string sass_text(const std::string& cubin);

/// The facts that a log contains about each entry function: registers, bytes, and warnings that
/// make a kernel slow.
std::vector<CodeFacts> read_ptx_log(std::string_view log, const std::vector<std::string>& entries);

}  // namespace braze
