// typed_code.cpp — compile() of tile programs and kernels that somebody typed.
#include "braze/compile.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "compiler/generate_p.h"
#include "compiler/kernels_p.h"
#include "compiler/phases_p.h"
#include "compiler/planning/plan.h"
#include "ir/code/text.h"
#include "ir/kernel/verify.h"
#include "ir/program/text.h"
#include "ir/target/features.h"
#include "ir/tile/verify.h"

namespace braze {

namespace codes {
inline constexpr Code kKernelTarget{"kernel-target", ErrorKind::Unsupported,
                                    "A tile program or kernel is not for this machine."};
inline constexpr Code kTileKernel{"tile-kernel", ErrorKind::Unsupported,
                                  "A tile program makes a kernel that the machine cannot run."};
inline constexpr Code kNoMachineCode{"no-machine-code", ErrorKind::Unsupported,
                                     "A kernel that was given as text cannot become machine code."};
}  // namespace codes

namespace {

std::string_view described(TargetKind kind) { return kind == TargetKind::Gpu ? "GPU" : "CPU"; }

[[noreturn]] void fail_target(const KernelCode& code, const Target& target, std::string_view why,
                              std::string_view fix, SourceLocation where = {}) {
  fail(codes::kKernelTarget, fmt::format("@{} cannot run on {}: {}", code.name, target.name, why),
       {.location = where, .node = "", .fix = std::string(fix)});
}

// A kernel names the machine for which it was made. Another machine can run it too, if it is of the
// same kind and has everything that the kernel uses.
void check_target(const Kernel& kernel, const Target& target) {
  if (target.kind == TargetKind::Interpreter)
    fail_target(kernel, target, "it is a kernel, and the interpreter runs graphs and tile programs",
                "use the device \"cpu\" or \"sim:cpu\"");
  const Target made_for = find_target(kernel.target).value();
  if (made_for.kind != target.kind)
    fail_target(
        kernel, target,
        fmt::format("this kernel was made for {}, a {}", made_for.name, described(made_for.kind)),
        fmt::format("use the option --target {0}, or the device \"sim:{0}\"", made_for.name));
  Kernel here = kernel;
  here.target = target.name;
  const std::vector<Diagnostic> findings = verify(here);
  if (findings.empty()) return;
  fail_target(kernel, target, findings.front().message,
              fmt::format("this kernel was made for {}", made_for.name), findings.front().location);
}

void check_target(const TileProgram& tile, const Target& target) {
  if (!tile.pipelined || target.asynchronous_dots) return;
  fail_target(tile, target, "pipelined tile programs need asynchronous copies and products",
              "use the option --target sm_90a, or the device \"sim:sm_90a\" or \"interpreter\"");
}

// Whether a tile program fits the machine is known only when its kernel exists.
void check_lowered(const TileProgram& tile, const Kernel& kernel, const Target& target) {
  const std::vector<Diagnostic> findings = verify(kernel);
  if (findings.empty()) return;
  const Diagnostic& first = findings.front();
  fail(codes::kTileKernel,
       fmt::format("the tile program @{} cannot become a kernel for {}: {}", tile.name, target.name,
                   first.message),
       {.location = first.location,
        .node = first.context,
        .fix = "use fewer resources of a block or thread; `braze inspect --stage=kernel` shows the "
               "kernel"});
}

// A code generator or an assembler finds what the verifiers cannot know. For a kernel that was made
// from a graph this is a bug of Braze; for a kernel that the user gave, the error says that it
// cannot be compiled.
template <class Make>
Program refused_as_typed(const KernelCode& code, const Target& target, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    for (const Code* refusal : {&codes::kLlvmRefused, &codes::kNvrtcRefused, &codes::kPtxRefused}) {
      if (&error.code() != refusal) continue;
      fail(
          codes::kNoMachineCode,
          fmt::format("@{} cannot become code for {}: {}", code.name, target.name, error.message()),
          {.location = error.location(), .node = error.node(), .fix = ""});
    }
    throw;
  }
}

Program kernel_program(const KernelCode& signature, const Kernel& kernel, const Target& target,
                       const CompileOptions& options, PhaseViewers& viewers) {
  return refused_as_typed(signature, target, [&] {
    show_code(kernel, target, options, viewers);
    Program program = plan(signature, kernel, generate(kernel, target, options), target);
    program.report = fmt::format("kernel {}: as typed\n", kernel.name);
    viewers.show("program", program);
    return program;
  });
}

}  // namespace

Program compile(const TileProgram& tile, const Target& target, const CompileOptions& options) {
  return timed(tile.name, target, [&] {
    fail_if_any(verify(tile), fmt::format("the tile program {}", quote(tile.name)));
    PhaseViewers viewers(tile.name, options);
    if (target.kind == TargetKind::Interpreter) {
      viewers.show("tile", tile, tile.name);
      return plan(tile, Kernel{tile}, {"tile", tile.name, to_text(tile), {}}, target);
    }
    check_target(tile, target);
    const Kernel kernel = lower_shown(tile, target, viewers);
    check_lowered(tile, kernel, target);
    return kernel_program(tile, kernel, target, options, viewers);
  });
}

Program compile(const Kernel& kernel, const Target& target, const CompileOptions& options) {
  return timed(kernel.name, target, [&] {
    fail_if_any(verify(kernel), fmt::format("the kernel {}", quote(kernel.name)));
    check_target(kernel, target);
    PhaseViewers viewers(kernel.name, options);
    viewers.show("kernel", kernel, kernel.name);
    return kernel_program(kernel, kernel, target, options, viewers);
  });
}

}  // namespace braze
