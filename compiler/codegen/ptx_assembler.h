// ptx_assembler.h — PTX text to a cubin, and what the assembler says about it.
//
// The ladder, measured in bench/results: the plugin libbraze-ptx.so beside the library (NVIDIA's
// nvPTXCompiler, built where its static library was found), else a `ptxas` on the machine. Where
// there is neither, PTX goes to the driver as it is. nvJitLink and cuLink are not on the ladder:
// they ignore setmaxnreg.
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

/// A cubin, and the facts of each of its entry functions in the order of `entries`.
struct Assembled {
  std::string cubin;
  std::vector<CodeFacts> facts;
};

/// An assembler on this machine. May be used from several threads at once.
class PtxAssembler {
 public:
  virtual ~PtxAssembler() = default;
  /// For people: "nvPTXCompiler 9.0", "/usr/local/cuda/bin/ptxas".
  virtual std::string name() const = 0;
  /// What tells it from other assemblers, and its versions apart: for cache keys.
  virtual std::string identity() const = 0;
  /// False: every program costs a process that loads the assembler, 0.1 s.
  virtual bool is_in_process() const = 0;
  /// Assembles for one architecture, "sm_90a". Throws Internal with the assembler's words if it
  /// refuses the text, Device if it cannot be run.
  Assembled assemble(const std::string& ptx, std::string_view architecture,
                     const std::vector<std::string>& entries) const;

 protected:
  struct Output {
    bool ok = false;
    std::string cubin, log;
  };
  virtual Output run(const std::string& ptx, std::string_view architecture) const = 0;
};

/// The first of the ladder that this machine has; null if it has none. BRAZE_PTXAS chooses one:
/// "none", "plugin" or the path of a ptxas. Looked for once.
const PtxAssembler* ptx_assembler();

/// The folder of the compiler's library, where plugins lie; empty if it cannot be told.
std::filesystem::path library_folder();

/// What changes when a file is replaced: its path, size and time of change.
std::string file_identity(const std::filesystem::path& path);

/// The machine code of a cubin as text, through `nvdisasm`; a comment that says what is missing
/// where this machine has none.
std::string sass_text(const std::string& cubin);

/// What a log says of each entry function: registers, bytes, and warnings that make a kernel slow.
std::vector<CodeFacts> read_ptx_log(std::string_view log, const std::vector<std::string>& entries);

}  // namespace braze
