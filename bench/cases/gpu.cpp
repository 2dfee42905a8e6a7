// gpu.cpp — the GPU workloads of the speed table, on the device that BRAZE_DEVICE names ("cuda:0"
// if it names none). Arguments and results stay on the device. Calls are asynchronous: a figure is
// the time of many calls in a row, divided by their number, as a training loop would see it.
// Compare with bench/peers/gpu.py in the same run.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/cases/benchmark_main.h"
#include "bench/cases/digits_step.h"
#include "braze/braze.h"
#include "ir/graph/text.h"
#include "ir/program/program.h"

namespace braze {
namespace {

// Enough calls to hide the first one's start and to use more memory than the caches hold.
constexpr int kCalls = 20;

template <class F, class... Arguments>
void measure(benchmark::State& state, F f, double flops, const Arguments&... arguments) {
  Array result = f(arguments...);
  result.wait();
  for (auto _ : state) {
    for (int i = 0; i < kCalls; ++i) result = f(arguments...);
    result.wait();
  }
  using benchmark::Counter;
  const double bytes = static_cast<double>(result.size_bytes() + (arguments.size_bytes() + ...));
  state.counters["us"] =
      Counter(1e-6 * kCalls, Counter::kIsIterationInvariantRate | Counter::kInvert);
  state.counters["GB/s"] = Counter(bytes * 1e-9 * kCalls, Counter::kIsIterationInvariantRate);
  if (flops > 0)
    state.counters["TFLOP/s"] = Counter(flops * 1e-12 * kCalls, Counter::kIsIterationInvariantRate);
}

Array values(std::vector<int64_t> shape, DType dtype) {
  const Dims dims(shape.begin(), shape.end());
  return jit([&](Tensor key) { return random::normal(key, dims, dtype); })(random::Key(1).array());
}

void scale(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x) { return x * 1.5; }), 0, values({8192, 8192}, dtype));
}
void axpy(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x, Tensor y) { return x * 1.5 + y; }), 0,
          values({8192, 8192}, dtype), values({8192, 8192}, dtype));
}
void activations(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x, Tensor y, Tensor b) {
            return tanh(x * 1.5 + b) * sigmoid(y) + gelu_tanh(x - y);
          }),
          0, values({8192, 8192}, dtype), values({8192, 8192}, dtype), values({8192}, dtype));
}
void softmax(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x) { return nn::softmax(x); }), 0, values({16384, 4096}, dtype));
}
void softmax_long(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x) { return nn::softmax(x); }), 0, values({4096, 50257}, dtype));
}
void add_layer_norm(benchmark::State& state, DType dtype) {
  measure(state,
          jit([](Tensor x, Tensor y, Tensor g, Tensor b) { return nn::layer_norm(x + y, g, b); }),
          0, values({16384, 4096}, dtype), values({16384, 4096}, dtype), values({4096}, dtype),
          values({4096}, dtype));
}
void column_sum(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x) { return sum(x, {0}); }), 0, values({16384, 8192}, dtype));
}
void sum_of_squares(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x) { return sum(x * x); }), 0, values({16384, 8192}, dtype));
}
void transpose_add(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x, Tensor y) { return transpose(x) + y; }), 0,
          values({8192, 16384}, dtype), values({16384, 8192}, dtype));
}
void square_dot(benchmark::State& state, int64_t n, DType dtype) {
  const auto size = static_cast<double>(n);
  measure(state, jit([](Tensor x, Tensor y) { return dot(x, y); }), 2 * size * size * size,
          values({n, n}, dtype), values({n, n}, dtype));
}
void dot_4096(benchmark::State& state, DType dtype) { square_dot(state, 4096, dtype); }
void dot_8192(benchmark::State& state, DType dtype) { square_dot(state, 8192, dtype); }
void linear_gelu(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x, Tensor w, Tensor b) { return gelu(dot(x, w) + b); }),
          2.0 * 4096 * 4096 * 4096, values({4096, 4096}, dtype), values({4096, 4096}, dtype),
          values({4096}, dtype));
}
void dot_tf32(benchmark::State& state, DType dtype) {
  const auto product = [](Tensor x, Tensor y) {
    return dot_general(x, y, {.contract_left = {1}, .contract_right = {0}, .tf32 = true});
  };
  measure(state, jit(product), 2.0 * 4096 * 4096 * 4096, values({4096, 4096}, dtype),
          values({4096, 4096}, dtype));
}
void batched_dot(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x, Tensor y) { return dot(x, y); }), 64 * 2.0 * 1024 * 1024 * 1024,
          values({64, 1024, 1024}, dtype), values({64, 1024, 1024}, dtype));
}
// Sentences of a length that no tile divides.
void linear_3d(benchmark::State& state, DType dtype) {
  measure(state, jit([](Tensor x, Tensor w, Tensor b) { return gelu(dot(x, w) + b); }),
          2.0 * 16 * 1000 * 1024 * 4096, values({16, 1000, 1024}, dtype),
          values({1024, 4096}, dtype), values({4096}, dtype));
}
// Written out: scores of all pairs, softmax, sums of values. Heads are the third axis.
void attention(benchmark::State& state, DType dtype) {
  const auto heads = [](Tensor q, Tensor k, Tensor v) {
    const DotAxes scores{
        .batch_left = {0, 2}, .batch_right = {0, 2}, .contract_left = {3}, .contract_right = {3}};
    const DotAxes sums{
        .batch_left = {0, 1}, .batch_right = {0, 2}, .contract_left = {3}, .contract_right = {1}};
    const Tensor weights = nn::softmax(dot_general(q, k, scores) * 0.125);
    return permute(dot_general(weights, v, sums), {0, 2, 1, 3});
  };
  const std::vector<int64_t> shape = {8, 2048, 16, 64};
  measure(state, jit(heads), 4.0 * 8 * 16 * 2048 * 2048 * 64, values(shape, dtype),
          values(shape, dtype), values(shape, dtype));
}

void digits_step(benchmark::State& state) {
  const auto step = bench::training_step();
  bench::Digits digits;
  digits.run(step);
  for (auto _ : state) digits.run(step);
  using benchmark::Counter;
  state.counters["us"] = Counter(1e-6, Counter::kIsIterationInvariantRate | Counter::kInvert);
}

// The host time of a call while the device keeps up: 64 calls in a row, then a wait.
void call_overhead(benchmark::State& state) {
  constexpr int kInARow = 64;
  auto f = jit([](Tensor x) { return x + 1.0; });
  const Array x = random::normal({1}, random::Key(1));
  Array y = f(x);
  y.wait();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kInARow; ++i) y = f(x);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    y.wait();
    state.SetIterationTime(time.count() / kInARow);
  }
}

void cold_compile(benchmark::State& state, const std::string& graph_text, GpuCode code) {
  const Graph graph = parse_graph(graph_text, "bench");
  const Target target = default_device().target();
  CompileOptions options;
  options.gpu_code = code;
  benchmark::DoNotOptimize(
      compile(graph, target, options));  // first-use initialisation is not measured
  for (auto _ : state) benchmark::DoNotOptimize(compile(graph, target, options));
}

Tensor twenty_ops(Tensor x) {
  for (int i = 0; i < 5; ++i) x = tanh(x * 1.01 + 0.1) - 0.05;
  return x;
}

using Case = void (*)(benchmark::State&, DType);
void add(const char* name, Case run, DType dtype) {
  benchmark::RegisterBenchmark((std::string(name) + "/" + std::string(braze::name(dtype))).c_str(),
                               run, dtype)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

// Where all cases run.
struct NamedDevice {
  DeviceGuard guard{[] {
    const char* named = std::getenv("BRAZE_DEVICE");
    return Device(named ? named : "cuda:0");
  }()};
};

void add_cases(const NamedDevice&) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    add("scale", scale, dtype);
    add("axpy", axpy, dtype);
    add("activations", activations, dtype);
    add("softmax", softmax, dtype);
    add("softmax_long", softmax_long, dtype);
    add("add_layer_norm", add_layer_norm, dtype);
    add("column_sum", column_sum, dtype);
    add("sum_of_squares", sum_of_squares, dtype);
    add("transpose_add", transpose_add, dtype);
    add("dot_4096", dot_4096, dtype);
    if (dtype == DType::BF16) add("dot_8192", dot_8192, dtype);
    add("linear_gelu", linear_gelu, dtype);
  }
  add("dot_tf32", dot_tf32, DType::F32);
  add("batched_dot", batched_dot, DType::BF16);
  add("linear_3d", linear_3d, DType::BF16);
  add("attention", attention, DType::BF16);
  benchmark::RegisterBenchmark("digits_step", digits_step)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("call_overhead", call_overhead)->UseManualTime();
  const auto add_compile = [](const std::string& name, const std::string& graph) {
    for (const auto& [code, suffix] : {std::pair(GpuCode::Ptx, "/ptx"), {GpuCode::Nvrtc, "/nvrtc"}})
      benchmark::RegisterBenchmark(("cold_compile_" + name + suffix).c_str(), cold_compile, graph,
                                   code)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
  };
  add_compile("twenty_ops", jit(twenty_ops).graph(zeros({4096})));
  add_compile("softmax", jit([](Tensor x) { return nn::softmax(x); }).graph(zeros({128, 4096})));
  const Array matrix = zeros({4096, 4096}, DType::BF16);
  add_compile("linear_gelu", jit([](Tensor x, Tensor w, Tensor b) {
                               return gelu(dot(x, w) + b);
                             }).graph(matrix, matrix, zeros({4096}, DType::BF16)));
}

}  // namespace
}  // namespace braze

int main(int argc, char** argv) { return braze::benchmark_main(argc, argv, braze::add_cases); }
