// partition.cpp — how long the fuser takes on large graphs: chains of layers (dot, bias, gelu,
// layer norm with a residual) and their gradients. One line a graph: nodes, kernels, milliseconds
// of a processor.
#include "compiler/fusion/partition.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "braze/braze.h"
#include "compiler/passes/expand.h"
#include "compiler/passes/fold.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/unscatter.h"
#include "ir/graph/text.h"
#include "ir/target/target.h"

namespace braze {
namespace {

constexpr int64_t kRows = 128, kWidth = 256;
constexpr int kRepeats = 5;
constexpr size_t kParameters = 4;  // of a layer

Tensor layers(const std::vector<Tensor>& arguments) {
  Tensor x = arguments.front();
  for (size_t i = 1; i + kParameters <= arguments.size(); i += kParameters) {
    const Tensor h = gelu(dot(x, arguments[i]) + arguments[i + 1]);
    x = nn::layer_norm(x + h, arguments[i + 2], arguments[i + 3]);
  }
  return x;
}

std::vector<Array> arguments(size_t count) {
  std::vector<Array> out{zeros({kRows, kWidth})};
  for (size_t i = 0; i < count; ++i) {
    out.push_back(zeros({kWidth, kWidth}));
    for (size_t v = 1; v < kParameters; ++v) out.push_back(zeros({kWidth}));
  }
  return out;
}

Graph prepared(const std::string& text, const Target& target) {
  return simplify(fold(expand(unscatter(parse_graph(text, "layers"), target))));
}

size_t report(const char* name, const std::string& text, const Target& target) {
  const Graph graph = prepared(text, target);
  std::vector<double> times;
  size_t kernels = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const std::clock_t start = std::clock();
    const LoopForms forms(graph);
    kernels = partition(forms, target).fusions.size();
    times.push_back(1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  std::printf("%-9s %-10s %6zu nodes %5zu kernels %9.1f ms\n", target.name.c_str(), name,
              graph.size(), kernels, times[kRepeats / 2]);
  std::fflush(stdout);
  return graph.size();
}

void report_sizes(const Target& target) {
  const auto forward = jit([](std::vector<Tensor> x) { return layers(x); });
  const auto backward = jit(grad([](std::vector<Tensor> x) { return sum(square(layers(x))); }));
  for (const size_t count : {12, 40, 120})
    report("layers", forward.graph(arguments(count)), target);
  for (const size_t count : {4, 13, 40})
    report("gradient", backward.graph(arguments(count)), target);
}

}  // namespace
}  // namespace braze

int main() {
  for (const char* name : {"x86-64-v3", "sm_90a"}) braze::report_sizes(*braze::find_target(name));
}
