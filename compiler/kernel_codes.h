// kernel_codes.h — codes of kernels that programs share.
//
// Programs often contain equal kernels: layers of the same widths, updates of the same optimizer,
// one model before and after a change. Whoever compiles many programs can keep the codes of their
// kernels, so that a code generator and an assembler see each kernel once.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "braze/compile.h"
#include "ir/program/program.h"

namespace braze {

/// The codes that are kept. Several threads of a compilation use it at once.
class KernelCodes {
 public:
  virtual ~KernelCodes() = default;
  /// The code that was made for an equal `key` before. If there is none, it is that of `make`,
  /// which is then kept. The key holds everything about the kernel, and nothing about the target,
  /// the options and the tools. It throws what `make` throws.
  virtual std::shared_ptr<const Artifact> get_or_make(const std::string& key,
                                                      const std::function<Artifact()>& make) = 0;
};

/// Compiles a graph as `compile` does, but takes codes from `codes` where it has them. The
/// functions in such a code have the names under which it was made.
Program compile_with(KernelCodes& codes, const Graph& graph, const Target& target,
                     const CompileOptions& options = {});

}  // namespace braze
