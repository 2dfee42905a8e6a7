// simulated_gpus.cpp — a library to preload into a program that uses GPUs of the fake driver. All
// graphs that the program compiles for them run on the simulator, which checks every access.
// FAKE_GPUS is their number, if it is not two.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "braze/compile.h"
#include "compiler/kernel_codes.h"
#include "tests/runtime/cuda/fake_cuda.h"
#include "tests/runtime/cuda/simulated.h"

namespace {

/// Sets the fake driver up before the program asks which GPUs there are, and ends the program with
/// an error if it misused the driver.
struct Setup {
  Setup() {
    if (!braze::test::fake_cuda()) return;
    if (const char* count = std::getenv("FAKE_GPUS"))
      braze::test::fake_cuda()->devices = std::atoi(count);
    braze::test::simulate_on_fake();
    std::atexit([] {
      const auto& misuse = braze::test::fake_cuda()->misuse;
      for (const std::string& what : misuse) std::fprintf(stderr, "misuse: %s\n", what.c_str());
      std::fflush(nullptr);
      if (!misuse.empty()) std::_Exit(1);
    });
  }
} setup;

}  // namespace

namespace braze {

/// Takes the place of Braze's own function.
Program compile_with(KernelCodes& codes, const Graph& graph, const Target& target,
                     const CompileOptions& options) {
  constexpr const char* kName =
      "_ZN5braze12compile_withERNS_11KernelCodesERKNS_5GraphERKNS_6TargetERKNS_14CompileOptionsE";
  static auto* const compiled = reinterpret_cast<Program (*)(
      KernelCodes&, const Graph&, const Target&, const CompileOptions&)>(dlsym(RTLD_NEXT, kName));
  if (target.kind != TargetKind::Gpu || target.simulated || !test::fake_cuda())
    return compiled(codes, graph, target, options);
  Target simulated = target;
  simulated.simulated = true;
  return test::for_fake(compiled(codes, graph, simulated, options));
}

}  // namespace braze
