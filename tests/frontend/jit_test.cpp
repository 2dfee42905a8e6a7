// Compiled functions: signatures, symbolic extents, structures, donation.
#include <chrono>
#include <latch>
#include <span>
#include <thread>

#include "ir/graph/graph.h"
#include "ir/program/text.h"
#include "tests/frontend/support.h"

namespace braze {
namespace {

class Jit : public OnDevice {};

TEST_F(Jit, CompilesOncePerSignature) {
  int traces = 0;
  const auto f = jit([&](Tensor x, Tensor y) {
    ++traces;
    return x + y;
  });
  EXPECT_EQ(f.compile_count(), 0);
  for (int i = 0; i < 3; ++i) expect_near(f(full({2}, i), ones({2})), {i + 1.0, i + 1.0}, 0);
  EXPECT_EQ(traces, 1);
  f(ones({3}), ones({3}));
  f(ones({2}, f64), ones({2}, f64));
  f(ones({2}), ones({2}));
  EXPECT_EQ(traces, 3);
  EXPECT_EQ(f.compile_count(), 3);
}

TEST_F(Jit, SymbolicExtentsShareOneCompilation) {
  const auto f = jit(
      [](Tensor x, Tensor w) {
        const Tensor y = dot(x, w);
        return std::tuple{mean(y, 0), reshape(y, {y.dim(0) * 2, -1}), nn::softmax(x, 0)};
      },
      {spec(f32, {"n:1..64", 4})});
  for (const int64_t n : {1, 2, 7, 63, 64}) {
    const auto [average, folded, weights] = f(ones({n, 4}), ones({4, 6}));
    expect_near(average, Doubles(6, 4.0), 0);
    EXPECT_EQ(folded.shape(), (Longs{2 * n, 3}));
    EXPECT_EQ(weights.shape(), (Longs{n, 4}));
    EXPECT_NEAR(to_doubles(weights)[0], 1.0 / static_cast<double>(n), 1e-6);
  }
  EXPECT_EQ(f.compile_count(), 1);
  const std::string text = error_of([&] { f(ones({65, 4}), ones({4, 6})); });
  EXPECT_CONTAINS(text, "arg0 is f32[65, 4], but declared as f32[n, 4]");
  EXPECT_CONTAINS(text, "1..64");
  EXPECT_CONTAINS(error_of([&] { f(ones({0, 4}), ones({4, 6})); }), "f32[0, 4]");
  EXPECT_CONTAINS(error_of([&] { f(ones({2, 4}, f64), ones({4, 6}, f64)); }), "f64[2, 4]");
}

TEST_F(Jit, CallingItselfWhileItIsCompiledIsAnError) {
  std::function<Array(Array)> self;
  const auto f = jit(
      [&](Tensor x) {
        self(ones({2}));
        return x;
      },
      {.name = "f"});
  self = [&](const Array& x) { return f(x); };
  EXPECT_CONTAINS(error_of([&] { self(ones({2})); }),
                  "f is called with Arrays from within itself, while it is being compiled");
  // With the Tensors that it has it may.
  const auto twice = jit([](Tensor x) { return x + x; });
  expect_near(jit([&](Tensor x) { return twice(twice(x)); })(ones({2})), {4, 4}, 0);
  // Another function's call in between changes nothing.
  const auto g = jit([&](Tensor x) { return self(ones({3})), x; });
  EXPECT_CONTAINS(error_of([&] { g(ones({2})); }), "from within itself");
}

TEST_F(Jit, SymbolsMeanOneValue) {
  const auto f =
      jit([](Tensor x, Tensor y) { return x + y; }, {spec(f32, {"n:1..8"}), spec(f32, {"n:1..8"})});
  f(ones({3}), ones({3}));
  EXPECT_CONTAINS(error_of([&] { f(ones({3}), ones({4})); }),
                  "[n], but [4] was given: axis 0 must be 3");
}

TEST_F(Jit, SymbolsHaveOneRange) {
  const auto f = jit([](Tensor x, Tensor y) { return std::pair(x, y); },
                     {spec(f32, {"n:1..8"}), spec(f32, {"n:1..16"})});
  EXPECT_CONTAINS(error_of([&] { f(ones({3}), ones({3})); }),
                  "the symbol n occurs with two different ranges");
}

TEST_F(Jit, GradientsOfSymbolicExtents) {
  // The mean divides by the extent of the call, forwards and backwards.
  const auto f = jit(grad([](Tensor x) { return mean(square(x)); }), {spec(f64, {"n:1..8", 2})});
  expect_near(f(ones({2, 2}, f64)), Doubles(4, 0.5), 0);
  expect_near(f(ones({4, 2}, f64)), Doubles(8, 0.25), 0);
  EXPECT_CONTAINS(f.graph(spec(f64, {"n:1..8", 2})), "size {value: 2*n}");
  EXPECT_EQ(f.compile_count(), 1);
}

TEST_F(Jit, Divisors) {
  const auto f = jit([](Tensor x) { return x + 1; }, {spec(f32, {"n:8..64%8"})});
  f(ones({16}));
  f(ones({24}));
  EXPECT_EQ(f.compile_count(), 1);
  EXPECT_CONTAINS(error_of([&] { f(ones({12})); }),
                  "arg0 is f32[12], but declared as f32[n], symbol n: 8..64%8");
}

template <class T>
struct Layer {
  T weight, bias;
};
BRAZE_TREE(Layer, weight, bias)

TEST_F(Jit, Structures) {
  const auto f =
      jit([](std::vector<Tensor> list, std::pair<Tensor, Weights> pair, Layer<Tensor> layer) {
        return std::tuple{std::vector<Tensor>{list[0] + list[1], pair.first},
                          pair.second.map([](const Tensor& t) { return t * 2; }),
                          Layer<Tensor>{layer.bias, layer.weight}};
      });
  const Array one = ones({1}), two = full({1}, 2), three = full({1}, 3);
  const auto [list, named, layer] =
      f(std::vector<Array>{one, two}, std::pair(three, Parameters{{"p", one}, {"q", two}}),
        Layer<Array>{one, two});
  EXPECT_EQ(list[0].item(), 3);
  EXPECT_EQ(list[1].item(), 3);
  EXPECT_EQ(named.at("q").item(), 4);
  EXPECT_EQ(layer.weight.item(), 2);
}

TEST_F(Jit, StructureIsPartOfTheSignature) {
  const auto f = jit([](Weights w) { return w.at("a") - w.at("b"); });
  const Array one = ones({}), two = full({}, 2);
  EXPECT_EQ(f(Parameters{{"a", one}, {"b", two}}).item(), -1);
  // Names in another order are another structure.
  EXPECT_EQ(f(Parameters{{"b", one}, {"a", two}}).item(), 1);
  EXPECT_EQ(f.compile_count(), 2);
  const auto sum_all = jit([](std::vector<Tensor> list) {
    Tensor total = list[0];
    for (size_t i = 1; i < list.size(); ++i) total += list[i];
    return total;
  });
  EXPECT_EQ(sum_all(std::vector<Array>{one, two}).item(), 3);
  EXPECT_EQ(sum_all(std::vector<Array>{one, two, two}).item(), 5);
}

TEST_F(Jit, InsideOfAnotherFunction) {
  const auto inner = jit([](Tensor x) { return x * 2; });
  const auto outer = jit([&](Tensor x) { return inner(x) + 1; });
  EXPECT_EQ(outer(ones({})).item(), 3);
  EXPECT_EQ(inner.compile_count(), 0);
}

TEST_F(Jit, WithoutArguments) {
  const auto f = jit([] { return arange(i64, {3}, 0); });
  expect_near(f(), {0, 1, 2}, 0);
  expect_near(f(), {0, 1, 2}, 0);
  EXPECT_EQ(f.compile_count(), 1);
}

TEST_F(Jit, UnusedArgumentsAndPassedThroughOnes) {
  const auto f = jit([](Tensor x, Tensor) { return std::pair(x, x); });
  const auto [a, b] = f(full({2}, 5), ones({3}));
  expect_near(a, {5, 5}, 0);
  expect_near(b, {5, 5}, 0);
}

TEST_F(Jit, Donation) {
  const auto f = jit([](Tensor x, Tensor y) { return std::pair(x + y, sum(y)); }, donate{0});
  const Array x = ones({4}), y = ones({4});
  const Array copy = x;
  const auto [z, total] = f(x, y);
  expect_near(z, {2, 2, 2, 2}, 0);
  expect_near(y, {1, 1, 1, 1}, 0);
  // Every handle of the donated value is dead, and says why.
  EXPECT_CONTAINS(error_of([&] { to_doubles(x); }), "donated");
  EXPECT_CONTAINS(error_of([&] { to_doubles(copy); }), "donated");
  EXPECT_CONTAINS(error_of([&] { f(x, y); }), "was donated to a call of @main");
}

TEST_F(Jit, DonationNeedsAResult) {
  const auto f = jit([](Tensor x) { return sum(x); }, donate{0});
  const Array x = ones({4});
  EXPECT_CONTAINS(error_of([&] { f(x); }), "no result of that type");
  expect_near(x, {1, 1, 1, 1}, 0);
}

TEST_F(Jit, DonationNamesArguments) {
  for (const int position : {1, 5, -1}) {
    const auto f = jit([](Tensor x) { return x; }, donate{position});
    EXPECT_CONTAINS(error_of([&] { f(ones({4})); }),
                    "there is no argument " + std::to_string(position) + " to donate");
  }
}

TEST_F(Jit, AnUpdatedArgumentIsDonatedOnce) {
  const auto f = jit([](Tensor x) { return std::pair(x * 2, update(x, x + 1)); }, donate{0});
  const auto [twice, next] = f(full({4}, 5));
  expect_near(twice, Doubles(4, 10), 0);
  expect_near(next, Doubles(4, 6), 0);
}

TEST_F(Jit, BitcastsToOtherDTypesDoNotCancel) {
  const auto f = jit([](Tensor x) { return bitcast(bitcast(x, i32), u32); });
  const Array bits = f(ones({2}));
  EXPECT_EQ(bits.dtype(), u32);
  EXPECT_EQ(bits.to_vector<uint32_t>(), (std::vector<uint32_t>(2, 0x3f800000)));
}

TEST_F(Jit, UpdatesAreOfArguments) {
  const auto updated = [] {
    const Tensor t = full(f32, {2}, 1);
    return update(t, t + 1);
  };
  EXPECT_CONTAINS(error_of([&] { jit(updated)(); }), "which is not an argument");
}

TEST_F(Jit, EachArgumentIsUpdatedOnce) {
  const auto twice = [](Tensor x) { return std::pair(update(x, x + 1), update(x, x + 2)); };
  EXPECT_CONTAINS(error_of([&] { jit(twice)(ones({4})); }),
                  "update gives arg0 to two results, or one result two arguments");
  const auto shared = [](Tensor x, Tensor y) { return update(y, update(x, x + y)); };
  EXPECT_CONTAINS(error_of([&] { jit(shared)(ones({4}), ones({4})); }), "update gives arg1");
  // One value for two arguments is fine where it is two results; what is not returned, is
  // forgotten.
  const auto both = [](Tensor x, Tensor y) {
    update(x, x * 3);
    return std::pair(update(x, x + y), update(y, x + y));
  };
  const auto [a, b] = jit(both)(ones({2}), ones({2}));
  expect_near(a, {2, 2}, 0);
  expect_near(b, {2, 2}, 0);
}

TEST_F(Jit, NamesAreWords) {
  const auto named = [](const std::string& name) {
    return error_of([&] { jit([](Tensor x) { return x; }, {.name = name}); });
  };
  for (const std::string name : {"", "my func (1)", "../../evil", "a..b"})
    EXPECT_CONTAINS(named(name), "cannot be the name of a function");
  EXPECT_CONTAINS(named(std::string(400, 'a')), "at most 100");
  EXPECT_EQ(named("training.step_2"), "");
}

TEST_F(Jit, ArgumentsDetermineEveryExtent) {
  const auto f = jit([](Tensor x) { return std::pair(x, arange(f32, Dim("m:1..8"))); });
  EXPECT_CONTAINS(error_of([&] { f(ones({2})); }), "no argument determines the extent m");
}

TEST_F(Jit, SaysWhereAndWhichArgument) {
  const auto f = jit([](Tensor x, Tensor y) { return x + y; });
  std::string text = error_of([&] { f(ones({2}), Array()); });
  EXPECT_CONTAINS(text, "arg1 is an empty Array");
  EXPECT_CONTAINS(text, "jit_test.cpp");
  EXPECT_CONTAINS(error_of([] { spec(f32, {"n:5..1"}); }), "jit_test.cpp");
  const Parameters p = {{"w", ones({2})}};
  EXPECT_CONTAINS(error_of([&] { p["q"]; }), "jit_test.cpp");
  EXPECT_CONTAINS(error_of([&] { p["q"]; }), "no parameter \"q\"");
}

TEST_F(Jit, DonatedTreesPairUpInOrder) {
  const auto f =
      jit([](Weights w,
             Tensor x) { return std::pair(x * 3, w.map([](const Tensor& t) { return t + 1; })); },
          donate{0});
  const Parameters w = {{"a", ones({2})}, {"b", full({3}, 2)}};
  const auto [y, next] = f(w, ones({}));
  expect_near(next.at("a"), {2, 2}, 0);
  expect_near(next.at("b"), {3, 3, 3}, 0);
  EXPECT_CONTAINS(error_of([&] { to_doubles(w.at("b")); }), "donated");
}

TEST_F(Jit, UpdateDonatesFromInside) {
  const auto f = jit([](Tensor x, Tensor y) { return update(x, x * y); });
  const Array x = full({2}, 3), y = full({2}, 2);
  expect_near(f(x, y), {6, 6}, 0);
  EXPECT_CONTAINS(error_of([&] { to_doubles(x); }), "donated");
  expect_near(y, {2, 2}, 0);
}

TEST_F(Jit, ManyThreads) {
  const auto f = jit([](Tensor x) { return sum(x * x); }, {spec(f32, {"n:1..64"})});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Device device = test_device();
      for (int64_t n = 1; n <= 8; ++n) {
        const double got = f(full({n}, t, f32, device)).item();
        EXPECT_EQ(got, static_cast<double>(n * t * t));
      }
    });
  threads.clear();
  EXPECT_EQ(f.compile_count(), 1);
}

/// Runs `body(thread)` on so many threads at once.
void on_threads(int count, const std::function<void(int)>& body) {
  std::latch ready(count);
  std::vector<std::jthread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      const DeviceGuard guard(test_device());
      ready.arrive_and_wait();
      body(t);
    });
}

TEST_F(Jit, DifferentSignaturesCompileAtTheSameTime) {
  // No compilation goes on before the other one has begun. The deadline is for the failing test.
  std::atomic<int> compiling = 0;
  CompileOptions options;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage != "graph") return;
    ++compiling;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (compiling < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(compiling, 2) << "compilations wait for one another";
  };
  const auto f = jit([](Tensor x) { return x + x; }, {.compile = options});
  on_threads(2, [&](int t) { expect_near(f(ones({t + 1})), Doubles(t + 1, 2), 0); });
  EXPECT_EQ(f.compile_count(), 2);
}

TEST_F(Jit, ThreadsOfOneSignatureShareACompilation) {
  int traces = 0;  // the function runs on one thread at a time
  const auto f = jit([&](Tensor x) {
    ++traces;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return x + x;
  });
  on_threads(4, [&](int) { expect_near(f(ones({3})), {2, 2, 2}, 0); });
  EXPECT_EQ(traces, 1);
  EXPECT_EQ(f.compile_count(), 1);
}

TEST_F(Jit, AFailureIsOfTheThreadThatFails) {
  std::atomic<int> traces = 0, failures = 0;
  const auto f = jit([&](Tensor x) {
    if (traces++ == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      throw std::runtime_error("planted");
    }
    return x + x;
  });
  on_threads(4, [&](int) {
    try {
      expect_near(f(ones({3})), {2, 2, 2}, 0);
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "planted");
      ++failures;
    }
  });
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(traces, 2) << "one thread tried again, for all others";
  EXPECT_EQ(f.compile_count(), 1);
}

TEST_F(Jit, AnErrorReachesAllWhoWaitForIt) {
  std::atomic<int> errors = 0;
  const auto f = jit([&](Tensor x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return dot(x, x);
  });
  on_threads(4, [&](int) {
    errors += error_of([&] { f(ones({2, 3})); }).find("dot") != std::string::npos;
  });
  EXPECT_EQ(errors, 4);
  expect_near(f(ones({2, 2})), {2, 2, 2, 2}, 0);
}

TEST_F(Jit, OnlySoManySignaturesAreKept) {
  int traces = 0;
  const auto f = jit(
      [&](Tensor x) {
        ++traces;
        return x + x;
      },
      JitOptions{.most_specializations = 2, .warn_after = 0});
  for (const int64_t n : {1, 2, 1, 3, 1, 2}) f(ones({n}));  // 3 drives out 2, and 2 drives out 3
  EXPECT_EQ(traces, 4);
  EXPECT_EQ(f.compile_count(), 4);
  EXPECT_CONTAINS(
      error_of([] { jit([](Tensor x) { return x; }, JitOptions{.most_specializations = 0}); }),
      "most_specializations is 0, which must be 1 or more");
}

TEST_F(Jit, WhatIsDrivenOutStaysWithWhoHoldsIt) {
  const auto f =
      jit([](Tensor x) { return x + x; }, JitOptions{.most_specializations = 1, .warn_after = 0});
  f(ones({2}));
  const Executable kept = f.executable();
  const std::shared_ptr<const Program> program = f.program();
  f(ones({3}));
  EXPECT_EQ(program->inputs[0].type.to_string(), "f32[2]");
  expect_near(kept.run({{ones({2})}})[0], {2, 2}, 0);
  // Calls are in flight while others drive their code out.
  on_threads(4, [&](int t) {
    for (int i = 0; i < 25; ++i) {
      const int64_t n = 1 + (t + i) % 3;
      expect_near(f(ones({n})), Doubles(static_cast<size_t>(n), 2), 0);
      EXPECT_FALSE(f.explain().empty());
    }
  });
}

TEST_F(Jit, CompilingAgainAndAgainIsWarnedOfOnce) {
  const auto warnings = [](auto&& calls) {
    testing::internal::CaptureStderr();
    calls();
    return testing::internal::GetCapturedStderr();
  };
  const auto sized = jit([](Tensor x) { return x + x; }, {.name = "sized"});
  const auto call = [&](int64_t n) { sized(ones({n, 4})); };
  EXPECT_EQ(warnings([&] {
              for (int64_t n = 1; n < 8; ++n) call(n);
            }),
            "");
  const std::string text = warnings([&] { call(8); });
  EXPECT_CONTAINS(text, "braze: warning: sized at ");
  EXPECT_CONTAINS(text, "jit_test.cpp:");
  EXPECT_CONTAINS(text, " was compiled 8 times: axis 0 of arg0 was 1, 2, 3, 4, 5, 6, 7, 8. ");
  EXPECT_CONTAINS(text, R"(spec(f32, {"n:1..64", 64}))");
  EXPECT_EQ(warnings([&] {
              for (int64_t n = 9; n < 30; ++n) call(n);
            }),
            "")
      << "once";
  // What changes most comes first, and names are the user's.
  const auto both = jit([](Tensor x, Tensor y) { return std::pair(x, y); },
                        {.inputs = {"x", "y"}, .warn_after = 3});
  EXPECT_CONTAINS(warnings([&] {
                    both(ones({2}), ones({1}));
                    both(ones({2}, f64), ones({2}));
                    both(ones({2}, f64), ones({3}));
                  }),
                  "axis 0 of y was 1, 2, 3; the dtype of x was f32, f64. ");
  const auto silent = jit([](Tensor x) { return x + x; }, JitOptions{.warn_after = 0});
  EXPECT_EQ(warnings([&] {
              for (int64_t n = 1; n < 20; ++n) silent(ones({n}));
            }),
            "");
}

TEST_F(Jit, EqualFunctionsAreCompiledOnceAndKeepTheirLines) {
  const DeviceGuard guard("cpu");
  // The same graph from two places: what is on one line there is on two lines here.
  const int first_line = __LINE__ + 1;
  const auto first = jit([](Tensor x) { return tanh(x) / 7; });
  const int second_line = __LINE__ + 2;
  const auto second = jit([](Tensor x) {
    const Tensor y = tanh(x);
    return y / 7;
  });
  first(ones({5, 3}));
  second(ones({5, 3}));
  EXPECT_EQ(first.summary().seconds, second.summary().seconds) << "another compilation";
  const auto at = [](int line) { return "jit_test.cpp:" + std::to_string(line) + "\n"; };
  EXPECT_CONTAINS(first.explain(), at(first_line));
  EXPECT_CONTAINS(second.explain(), at(second_line));
  EXPECT_CONTAINS(second.explain(), at(second_line + 1));
  EXPECT_EQ(second.explain().find(at(first_line)), std::string::npos);
  for (const std::string& op : op_texts(*second.program(), second.program()->launches[0]))
    EXPECT_EQ(op.find(at(first_line)), std::string::npos) << op;
}

TEST_F(Jit, ErrorsOfWhatWasCompiledBeforeNameTheLineAtHand) {
  const DeviceGuard guard("interpreter");
  const Array x = ones({4}), wrong = Array::from(Longs{9}, {1});
  const auto line_of = [&](const auto& f) {
    try {
      to_doubles(f(x, wrong));
    } catch (const Error& error) {
      EXPECT_EQ(error.code().name, "index-out-of-range") << error.what();
      EXPECT_CONTAINS(error_of([] { synchronize("interpreter"); }), "index 9");
      return static_cast<int>(error.location().line);
    }
    return 0;
  };
  const int first_line = __LINE__ + 1;
  const auto first = jit([](Tensor table, Tensor indices) { return take(table, indices); });
  const auto second = jit([](Tensor table, Tensor indices) { return take(table, indices); });
  EXPECT_EQ(line_of(first), first_line);
  EXPECT_EQ(line_of(second), first_line + 1);
  EXPECT_EQ(first.summary().seconds, second.summary().seconds) << "another compilation";
}

TEST_F(Jit, TellsAboutItself) {
  const auto f = jit([](Tensor x) { return x + 1; }, {.name = "increment"});
  EXPECT_CONTAINS(error_of([&] { f.explain(); }), "increment was not called yet");
  EXPECT_CONTAINS(f.graph(spec(f32, {"n:1..8"})), "f32[n]");
  EXPECT_EQ(f.compile_count(), 0);
  f(ones({2}));
  EXPECT_FALSE(f.explain().empty());
  EXPECT_EQ(f.program()->name, "increment");
}

TEST_F(Jit, ChecksItself) {
  const auto f = jit([](Tensor x, Tensor y) { return x + sum(x * y); }, donate{0});
  const Array x = ones({40}), y = full({40}, 0.1);
  const CheckReport report = f.check(x, y);
  EXPECT_TRUE(report.ok) << report.text;
  EXPECT_LE(report.largest_error, 1);
  EXPECT_EQ(report.judged, 1);
  EXPECT_TRUE(report.unjudged.empty());
  // On copies: nothing was donated.
  expect_near(x, Doubles(40, 1), 0);
  EXPECT_GE(f.summary().ops, 3);
  EXPECT_GE(f.summary().kernels, 1);
}

// A window and a bias are made of integers: they leave nothing open, though only sums see them.
TEST_F(Jit, ChecksAllOfAttention) {
  const auto attention = jit([](Tensor q, Tensor k, Tensor v) {
    const int64_t n = 40;
    const Tensor i = arange(i32, {n, n}, 0), j = arange(i32, {n, n}, 1);
    const Tensor distance = i - j;
    const Tensor scores = dot(q, transpose(k)) * 0.25f - cast(distance, f32) * 0.125f;
    const Tensor inside = logical_and(distance >= 0, distance - 1 < 8);
    return dot(nn::softmax(where(inside, scores, full_like(scores, -1e9))), v);
  });
  const auto matrix = [](uint64_t key) { return random::normal({40, 16}, random::Key(key)); };
  const CheckReport report = attention.check(matrix(1), matrix(2), matrix(3));
  EXPECT_TRUE(report.ok) << report.text;
  EXPECT_GT(report.judged, 0.99) << report.text;
}

// Where every bound is too wide, right and wrong cannot be told apart: that is no success.
TEST_F(Jit, ChecksThatJudgeNothingFail) {
  const auto bits = jit([](Tensor x) { return bitcast(exp(x), i32); });
  const CheckReport report = bits.check(full({4}, 0.3f));
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.judged, 0);
  EXPECT_EQ(report.unjudged.size(), 1u);
  EXPECT_CONTAINS(report.text, "no element was judged");
}

TEST_F(Jit, ChecksNameResultsOfWhichTheyJudgeNothing) {
  const auto f = jit([](Tensor x) { return std::pair(bitcast(exp(x), i32), x + 1); });
  const CheckReport report = f.check(full({1000}, 0.3f));
  EXPECT_TRUE(report.ok);
  EXPECT_EQ(report.judged, 0.5);
  EXPECT_EQ(report.unjudged, (std::vector<std::string>{"result.0"}));
}

TEST_F(Jit, TwoDevicesAreAnError) {
  const auto f = jit([](Tensor x, Tensor y) { return x + y; });
  const Array here = ones({2}, f32, "interpreter"), there = ones({2}, f32, "cpu");
  const std::string text = error_of([&] { f(here, there); });
  EXPECT_CONTAINS(text, "arg0 is on interpreter, but arg1 is on cpu");
}

TEST_F(Jit, BoolsOfAnyBytesAreTheSameEverywhere) {
  const unsigned char bytes[] = {0, 1, 2, 255, 4, 128, 1, 0};
  const Array flags = Array::from_bytes(std::as_bytes(std::span(bytes)), boolean, {8});
  const auto f = jit([](Tensor x) {
    const Tensor all_true = full(boolean, {8}, 1);
    return std::tuple{x, cast(x, f32), x == all_true, !x, sum(cast(x, i32)), max(x)};
  });
  for (const char* device : {"cpu", "interpreter", "sim:cpu"}) {
    const auto [same, number, equal, negated, count, any] = f(flags.to(device));
    const Doubles wanted = {0, 1, 1, 1, 1, 1, 1, 0};
    for (const Array& each : {same, number, equal}) EXPECT_EQ(to_doubles(each), wanted) << device;
    EXPECT_EQ(to_doubles(negated), (Doubles{1, 0, 0, 0, 0, 0, 0, 1})) << device;
    EXPECT_EQ(count.item(), 6) << device;
    EXPECT_EQ(any.item(), 1) << device;
    std::vector<unsigned char> raw(8);
    same.copy_to_host(std::as_writable_bytes(std::span(raw)));
    EXPECT_EQ(raw, (std::vector<unsigned char>{0, 1, 1, 1, 1, 1, 1, 0})) << device;
  }
}

TEST_F(Jit, ErrorsLeaveItUsable) {
  const auto f = jit([](Tensor x) { return dot(x, x); });
  EXPECT_CONTAINS(error_of([&] { f(ones({2, 3})); }), "f32[2, 3] and f32[2, 3] do not multiply");
  expect_near(f(ones({2, 2})), {2, 2, 2, 2}, 0);
}

}  // namespace
}  // namespace braze
