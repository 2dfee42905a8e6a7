#include "tools/braze/measured.h"

#include <algorithm>
#include <memory>

#include "braze/executable.h"
#include "tools/braze/package.h"

namespace braze::tool {

Measured measured(const Program& program, const Device& device, const InputFlags& flags,
                  int64_t repeat) {
  const auto shared = std::make_shared<const Program>(program);
  const Runnable runnable{Executable::load(shared, device),
                          std::vector<Array>(program.inputs.size())};
  const Inputs inputs = make_inputs(program, flags);
  std::vector<Array> arguments = runnable.arguments(inputs.values);
  const auto timed_call = [&] {
    runnable.renew(arguments, inputs.values);
    return seconds_of([&] { return runnable.executable.run(arguments); });
  };
  timed_call();
  return {measure(timed_call, /*next=*/nullptr, program, inputs.sizes, device, repeat),
          inputs.sizes};
}

std::vector<const FusedKernel*> fused_in(const Explanation& explanation, const Launch& launch) {
  std::vector<const FusedKernel*> out;
  for (const FusedKernel& kernel : explanation.kernels)
    if (launch.members.empty()
            ? kernel.name == launch.name
            : std::ranges::find(launch.members, kernel.name) != launch.members.end())
      out.push_back(&kernel);
  return out;
}

double estimated_seconds(const Explanation& explanation, const Launch& launch) {
  const double cores = std::max(1, explanation.program.target.cores);
  double start = 0, longest = 0, all = 0;
  for (const FusedKernel* kernel : fused_in(explanation, launch)) {
    const Cost& cost = kernel->cost;
    const double running = cost.seconds - cost.start_seconds;
    start = std::max(start, cost.start_seconds);
    longest = std::max(longest, running);
    all += running * std::min(1.0, cost.instances / cores);
  }
  return start + std::max(longest, all);
}

}  // namespace braze::tool
