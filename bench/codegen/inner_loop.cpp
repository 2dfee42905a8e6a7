// inner_loop.cpp — measures the loops on which the speed of everything depends: the inner loop of a
// packed dot, compared with the machine's peak, and the time of compiling it.
//
// Usage: bench-inner-loop [--dot-asm | --dot-llvm | --pointwise-asm | --pointwise-llvm]
// With an option, it prints code instead.
#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "compiler/codegen/code_generator.h"
#include "compiler/lowering/rows.h"
#include "ir/support/clocks.h"
#include "tests/compiler/kernel_runner.h"

namespace braze {
namespace {

using test::KernelRunner;

// A parameter of n floats.
MemoryId vector(CodeBuilder& b, const char* name, Mode mode, const Expr& n) {
  return b.add_memory({.name = name, .mode = mode, .dtype = DType::F32, .shape = {n}, .align = 64});
}

// y = a * b: `rows` x 2 vectors of accumulators over k. Without memory in the loop it shows the
// peak.
Kernel dot_kernel(int64_t rows, int32_t lanes, bool loads) {
  Kernel kernel;
  kernel.name = "dot";
  const Expr n = Expr::symbol("n", {0, 1 << 30});
  kernel.symbols = {n};
  CodeBuilder b(kernel);
  const MemoryId a = vector(b, "a", Mode::In, n), w = vector(b, "b", Mode::In, n),
                 y = vector(b, "y", Mode::Out, n);
  const Expr e0 = position_symbol('e', 0, rows), e1 = position_symbol('e', 1, 2),
             lane = lane_symbol(lanes);
  Region body;
  b.enter(body);
  const auto panels = [&](const Expr& k) {
    const ValueId a0 = b.load(a, {k * Expr(rows) + e0}, {DType::F32, 1, {rows, 1}});
    const ValueId b0 =
        b.load(w, {k * Expr(2 * lanes) + e1 * Expr(lanes) + lane}, {DType::F32, lanes, {1, 2}});
    const ValueId s = b.append(SplatOp{a0}, {{DType::F32, lanes, {rows, 1}}})[0];
    return std::pair{s, b0};
  };
  const ValueId zero = b.constant({DType::F32, lanes, {rows, 2}}, 0);
  ValueId s0, b0;
  if (!loads) {
    const ValueId one = b.load(a, {0}, {DType::F32, 1, {}});
    s0 = b.append(SplatOp{one}, {{DType::F32, lanes, {}}})[0];
    b0 = b.load(w, {lane}, {DType::F32, lanes, {}});
  }
  const auto acc = b.for_loop(
      "k", 0, n, 1, {zero},
      [&](Expr k, const std::vector<ValueId>& c) {
        const auto [s, v] = loads ? panels(k) : std::pair{s0, b0};
        return std::vector<ValueOperand>{b.row(ElementwiseOp::fma, {s, v, c[0]})};
      },
      4);
  b.store(acc[0], y, {e0 * Expr(2 * lanes) + e1 * Expr(lanes) + lane});
  b.leave();
  kernel.phases.push_back({{{"i", 1 << 30}}, body});
  return kernel;
}

// 20 rows over f32, four of them math, `count` vectors at a time, with masks as a tail needs them.
Kernel pointwise_kernel(int32_t lanes, int64_t count) {
  Kernel kernel;
  kernel.name = "pointwise";
  const Expr n = Expr::symbol("n", {0, 1 << 30});
  kernel.symbols = {n};
  CodeBuilder b(kernel);
  const MemoryId x = vector(b, "x", Mode::In, n), z = vector(b, "z", Mode::In, n),
                 y = vector(b, "y", Mode::Out, n);
  Region body;
  b.enter(body);
  b.for_loop("j", 0, n, count * lanes, {}, [&](Expr j, const std::vector<ValueId>&) {
    using enum ElementwiseOp;
    const Expr at = j + position_symbol('e', 0, count) * Expr(lanes) + lane_symbol(lanes);
    const ValueType type{DType::F32, lanes, {count}};
    const Guard guard{{{at, IndexComparison::Kind::Lt, n}}, {}};
    ValueOperand u = b.load(x, {at}, type, guard), v = b.load(z, {at}, type, guard);
    const ElementwiseOp math[] = {tanh, exp, sigmoid, log1p};
    for (int i = 0; i < 4; ++i) {
      u = b.row(add, {u, v});
      v = b.row(mul, {u, v});
      u = emit_body(b, math[i], {u}, DType::F32);
      v = b.row(max, {v, u});
      u = b.row(sub, {v, u});
    }
    b.store(u, y, {at}, guard);
    return std::vector<ValueOperand>{};
  });
  b.leave();
  kernel.phases.push_back({{}, body});
  return kernel;
}

template <class F>
double best_seconds(int repeats, const F& f) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    ThreadClock clock;
    f();
    best = std::min(best, clock.lap());
  }
  return best;
}

double gflops(const Kernel& kernel, std::string_view target, int64_t rows, int32_t lanes,
              int64_t k) {
  const auto floats = [](int64_t n) {
    return std::vector<float>(static_cast<size_t>(n) + 16, 0.5f);
  };
  auto a = floats(rows * k), b = floats(2 * lanes * k), y = floats(rows * 2 * lanes);
  const auto aligned = [](std::vector<float>& v) -> void* {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(v.data()) + 63) / 64 * 64);
  };
  KernelRunner runner(kernel, target);
  const int64_t instances = 2000;
  const double seconds = best_seconds(200, [&] {
    runner.run({aligned(a), aligned(b), aligned(y)}, {k}, 0, instances);
  });
  return 2.0 * static_cast<double>(rows * 2 * lanes * k * instances) / seconds * 1e-9;
}

void print_times(const char* name, const Kernel& kernel, std::string_view target) {
  CodegenTimes best, times;
  best.emit = 1e30;
  size_t bytes = 0;
  for (int i = 0; i < 20; ++i) {
    bytes = generate_image(kernel, test::target(target), &times).code.size();
    if (times.total() < best.total()) best = times;
  }
  std::printf(
      "%-10s %-22s %7.2f ms = translate %.2f + optimize %.2f + emit %.2f + link %.2f, %zu bytes\n",
      std::string(target).c_str(), name, 1e3 * best.total(), 1e3 * best.translate,
      1e3 * best.optimize, 1e3 * best.emit, 1e3 * best.link, bytes);
}

}  // namespace
}  // namespace braze

int main(int argc, char** argv) {
  using namespace braze;
  const std::string_view option = argc > 1 ? argv[1] : "";
  for (std::string_view target : test::host_targets()) {
    const bool wide = target == "x86-64-v4";
    const int64_t rows = wide ? 14 : 6;
    const int32_t lanes = wide ? 16 : 8;
    const Kernel dot = dot_kernel(rows, lanes, true);
    const Kernel pointwise = pointwise_kernel(lanes, 4);
    if (!option.empty()) {
      const Kernel& shown = option.starts_with("--pointwise") ? pointwise : dot;
      const std::string text = option.ends_with("llvm")
                                   ? llvm_text(shown, test::target(target))
                                   : assembly_text(shown, test::target(target));
      std::fputs(text.c_str(), stdout);
      continue;
    }
    const double peak = gflops(dot_kernel(rows, lanes, false), target, rows, lanes, 256);
    const double speed = gflops(dot, target, rows, lanes, 256);
    std::printf("%-10s dot %lldx%d, k = 256    %7.1f GFLOP/s of %.1f in registers (%.0f %%)\n",
                std::string(target).c_str(), static_cast<long long>(rows), 2 * lanes, speed, peak,
                100 * speed / peak);
    print_times("nothing", dot_kernel(1, 1, false), target);
    print_times("dot", dot, target);
    print_times("20 rows, 4 of them math", pointwise, target);
  }
}
