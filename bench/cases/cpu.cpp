// cpu.cpp — the CPU workloads of the speed table. Arguments and results stay on the device; a run
// counts from the call to the finished result. Compare with bench/peers/cpu.py on the same machine.
#include <benchmark/benchmark.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/cases/digits_step.h"
#include "braze/braze.h"
#include "frontend/builder/program_cache.h"
#include "ir/graph/text.h"
#include "ir/program/program.h"
#include "runtime/devices/cpu/thread_pool.h"
#include "runtime/memory/allocator.h"

namespace braze {
namespace {

// Numbers to compute with. Their values do not matter.
Array data(std::vector<int64_t> shape, DType dtype = f32) {
  return random::normal(std::move(shape), random::Key(1), 0, 1, dtype);
}

// Runs `f` on `arguments`, and reports bytes of arguments and results a second and flops a second.
template <class F, class... Arguments>
void measure(benchmark::State& state, F f, double flops, const Arguments&... arguments) {
  Array result = f(arguments...);
  result.wait();
  for (auto _ : state) {
    result = f(arguments...);
    result.wait();
  }
  const double bytes = static_cast<double>(result.size_bytes() + (arguments.size_bytes() + ...));
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
  if (flops > 0)
    state.counters["GFLOP/s"] = Counter(flops * 1e-9, Counter::kIsIterationInvariantRate);
}

void copy_cached(char* to, const char* from, size_t size) { std::memcpy(to, from, size); }

// Stores that bypass the caches, so that they need not read what they overwrite. `size` is a
// multiple of 64, and both places are aligned to it.
void copy_streaming(char* to, const char* from, size_t size) {
#if defined(__x86_64__)
  for (size_t i = 0; i < size; i += sizeof(__m128i))
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  _mm_sfence();
#else
  copy_cached(to, from, size);
#endif
}

// The bandwidth of memory for all threads. The greater of the two figures limits every workload
// that reads and writes large arrays.
void copy(benchmark::State& state, void (*copy_part)(char*, const char*, size_t)) {
  constexpr size_t kPart = size_t{1} << 20, kParts = 64;
  HostMemory memory;
  char* const from = reinterpret_cast<char*>(memory.allocate(2 * kParts * kPart));
  char* const to = from + kParts * kPart;
  std::memset(from, 1, 2 * kParts * kPart);
  ThreadPool pool;
  pool.set_threads(Device("cpu").target().cores);
  for (auto _ : state) {
    pool.run(kParts, true, [&](int64_t begin, int64_t end, int) {
      const size_t at = static_cast<size_t>(begin) * kPart;
      copy_part(to + at, from + at, static_cast<size_t>(end - begin) * kPart);
    });
    benchmark::ClobberMemory();
  }
  memory.free(reinterpret_cast<std::byte*>(from), 2 * kParts * kPart);
  state.counters["GB/s"] =
      benchmark::Counter(2e-9 * kParts * kPart, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(copy, cached, copy_cached)->UseRealTime();
BENCHMARK_CAPTURE(copy, streaming, copy_streaming)->UseRealTime();

void axpy(benchmark::State& state) {
  auto f = jit([](Tensor x, Tensor y) { return x * 1.5 + y; });
  measure(state, f, 0, data({4096, 4096}), data({4096, 4096}));
}
BENCHMARK(axpy)->UseRealTime();

void activations(benchmark::State& state) {
  auto f = jit([](Tensor x, Tensor y, Tensor b) {
    return tanh(x * 1.5 + b) * sigmoid(y) + gelu_tanh(x - y);
  });
  measure(state, f, 0, data({4096, 4096}), data({4096, 4096}), data({4096}));
}
BENCHMARK(activations)->UseRealTime();

void softmax(benchmark::State& state) {
  auto f = jit([](Tensor x) { return nn::softmax(x); });
  measure(state, f, 0, data({4096, 4096}));
}
BENCHMARK(softmax)->UseRealTime();

void add_layer_norm(benchmark::State& state) {
  auto f = jit([](Tensor x, Tensor y, Tensor g, Tensor b) { return nn::layer_norm(x + y, g, b); });
  measure(state, f, 0, data({8192, 1024}), data({8192, 1024}), data({1024}), data({1024}));
}
BENCHMARK(add_layer_norm)->UseRealTime();

void sgemm(benchmark::State& state) {
  auto f = jit([](Tensor x, Tensor y) { return dot(x, y); });
  measure(state, f, 2.0 * 1024 * 1024 * 1024, data({1024, 1024}), data({1024, 1024}));
}
BENCHMARK(sgemm)->UseRealTime();

void linear_gelu(benchmark::State& state) {
  auto f = jit([](Tensor x, Tensor w, Tensor b) { return gelu(dot(x, w) + b); });
  measure(state, f, 2.0 * 512 * 768 * 3072, data({512, 768}), data({768, 3072}), data({3072}));
}
BENCHMARK(linear_gelu)->UseRealTime();

Tensor twenty_ops(Tensor x) {
  for (int i = 0; i < 5; ++i) x = tanh(x * 1.01 + 0.1) - 0.05;
  return x;
}

void twenty_elementwise_ops(benchmark::State& state) {
  auto f = jit(twenty_ops);
  measure(state, f, 0, data({4096}));
}
BENCHMARK(twenty_elementwise_ops)->UseRealTime();

void bf16_gemm(benchmark::State& state) {
  auto f = jit([](Tensor x, Tensor y) { return dot(x, y); });
  measure(state, f, 2.0 * 1024 * 1024 * 1024, data({1024, 1024}, bf16), data({1024, 1024}, bf16));
}
BENCHMARK(bf16_gemm)->UseRealTime();

void sgemm_transposed(benchmark::State& state) {
  auto f = jit([](Tensor x, Tensor w) { return dot(x, transpose(w)); });
  measure(state, f, 2.0 * 1024 * 1024 * 1024, data({1024, 1024}), data({1024, 1024}));
}
BENCHMARK(sgemm_transposed)->UseRealTime();

void skinny_gemm(benchmark::State& state) {
  auto f = jit([](Tensor x, Tensor w) { return dot(x, w); });
  measure(state, f, 2.0 * 64 * 256 * 128, data({64, 256}), data({256, 128}));
}
BENCHMARK(skinny_gemm)->UseRealTime();

// A table of embeddings, and the gradients of a batch of tokens for it: some rows have many tokens,
// and others have none.
constexpr int64_t kTableRows = 50'000, kTableWidth = 512, kTokens = 8'192;

Array tokens() {
  std::vector<int64_t> ids(kTokens);
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int64_t>(i * 2'654'435'761u % (i % 4 == 0 ? 64 : size_t{kTableRows}));
  return Array::from(ids, {kTokens});
}

void embedding_gradient(benchmark::State& state) {
  auto f = jit([](Tensor ids, Tensor g) {
    const Tensor none = broadcast_to(constant(zeros({})), {kTableRows, kTableWidth});
    return scatter_add(none, ids, g);
  });
  measure(state, f, 0, tokens(), data({kTokens, kTableWidth}));
}
BENCHMARK(embedding_gradient)->UseRealTime();

void embedding_update(benchmark::State& state) {
  auto f =
      jit([](Tensor table, Tensor ids, Tensor g) { return scatter_add(table, ids, g * -0.01); },
          donate{0});
  Array table = zeros({kTableRows, kTableWidth});
  const Array ids = tokens(), g = data({kTokens, kTableWidth});
  for (auto _ : state) {
    table = f(table, ids, g);
    table.wait();
  }
}
BENCHMARK(embedding_update)->UseRealTime();

void digits_step(benchmark::State& state) {
  const auto step = bench::training_step();
  bench::Digits digits;
  digits.run(step);
  for (auto _ : state) digits.run(step);
}
BENCHMARK(digits_step)->UseRealTime();

void call_overhead(benchmark::State& state) {
  auto f = jit([](Tensor x) { return x + 1.0; });
  measure(state, f, 0, data({1}));
}
BENCHMARK(call_overhead)->UseRealTime();

// From a graph to machine code, nothing cached.
void cold_compile(benchmark::State& state, const std::string& text) {
  const Graph graph = parse_graph(text, "cold_compile");
  for (auto _ : state) benchmark::DoNotOptimize(compile(graph, Device("cpu").target()));
}

void cold_compile_twenty_ops(benchmark::State& state) {
  cold_compile(state, jit(twenty_ops).graph(data({4096})));
}
BENCHMARK(cold_compile_twenty_ops)->UseRealTime()->Unit(benchmark::kMillisecond);

void cold_compile_linear_gelu(benchmark::State& state) {
  const auto f = jit([](Tensor x, Tensor w, Tensor b) { return gelu(dot(x, w) + b); });
  cold_compile(state, f.graph(data({512, 768}), data({768, 3072}), data({3072})));
}
BENCHMARK(cold_compile_linear_gelu)->UseRealTime()->Unit(benchmark::kMillisecond);

void cold_compile_digits_step(benchmark::State& state) {
  const bench::Digits digits;
  cold_compile(state, bench::training_step().graph(digits.parameters, digits.state, digits.pixels,
                                                   digits.labels));
}
BENCHMARK(cold_compile_digits_step)->UseRealTime()->Unit(benchmark::kMillisecond);

// The first call in a process whose program another one has compiled: from a graph to code that
// can be called, with the cache's file in memory.
void warm_start(benchmark::State& state, const std::string& text) {
  const Graph graph = parse_graph(text, "warm_start");
  std::string folder = (std::filesystem::temp_directory_path() / "braze-bench-XXXXXX").string();
  if (!mkdtemp(folder.data())) return state.SkipWithError("no temporary folder");
  DiskCache cache({.folder = folder});
  const Device device("cpu");
  size_t kernels = cached_program(graph, device.target(), {}, cache)->launches.size();
  for (auto _ : state) {
    const auto program = cached_program(graph, device.target(), {}, cache);
    benchmark::DoNotOptimize(Executable::load(program, device));
  }
  if (cache.stats().misses != 1) state.SkipWithError("the cache was not warm");
  state.counters["time/kernel"] = benchmark::Counter(
      static_cast<double>(kernels),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  std::filesystem::remove_all(folder);
}

void warm_start_twenty_ops(benchmark::State& state) {
  const auto f = jit(twenty_ops);
  warm_start(state, f.graph(data({4096})));
}
BENCHMARK(warm_start_twenty_ops)->UseRealTime()->Unit(benchmark::kMillisecond);

void warm_start_digits_step(benchmark::State& state) {
  const bench::Digits digits;
  warm_start(state, bench::training_step().graph(digits.parameters, digits.state, digits.pixels,
                                                 digits.labels));
}
BENCHMARK(warm_start_digits_step)->UseRealTime()->Unit(benchmark::kMillisecond);

// Tracing and differentiation, which every start of a program does.
void trace_digits_step(benchmark::State& state) {
  const bench::Digits digits;
  for (auto _ : state)
    benchmark::DoNotOptimize(bench::training_step().graph(digits.parameters, digits.state,
                                                          digits.pixels, digits.labels));
}
BENCHMARK(trace_digits_step)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace braze

BENCHMARK_MAIN();
