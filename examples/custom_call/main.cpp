// A function in C becomes an op of a compiled function, with a gradient.
// Usage: custom_call LIBRARY [DEVICE]. LIBRARY is what becomes of roll.c.
#include <braze/braze.h>

#include <cmath>
#include <cstdio>

using namespace braze;

namespace {

Tensor roll(const Tensor& x, int places) {
  CustomCallOptions options;
  options.attributes = std::to_string(places);
  // The elements go back where they came from.
  options.gradient = [places](const std::vector<Tensor>&, const Tensor&, const Tensor& g) {
    return std::vector{roll(g, -places)};
  };
  return custom_call("example.roll", {x}, x.dtype(), x.shape(), options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: custom_call LIBRARY [DEVICE]\n");
    return 2;
  }
  load_custom_calls(argv[1]);
  const DeviceGuard guard{Device(argc > 2 ? argv[2] : "cpu")};

  // What stands around the call is fused into one kernel before it and one behind it.
  const auto weighted = [](const Tensor& x) {
    const Tensor weights = arange(x.dtype(), x.shape(), 0);
    return sum(roll(exp(x) * 0.5, 3) * weights);
  };
  const auto both = jit([&](const Tensor& x) { return value_and_grad(weighted)(x); });

  const int64_t count = 1000;
  std::vector<float> x(count);
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(i % 7) / 7;
  const auto [value, gradient] = both(Array::from(x, {count}));

  // Element i goes to place i + 3, whose weight is i + 3.
  double expected = 0, worst = 0;
  const std::vector<float> g = gradient.to_vector<float>();
  for (int64_t i = 0; i < count; ++i) {
    const double term = 0.5 * std::exp(x[i]) * static_cast<double>((i + 3) % count);
    expected += term;
    worst = std::max(worst, std::abs(g[i] - term) / (1 + term));
  }
  const double off = std::abs(value.item() - expected) / expected;
  std::printf("sum %.6g, expected %.6g; the gradient is off by %.2g at most\n", value.item(),
              expected, worst);
  return off < 1e-5 && worst < 1e-5 ? 0 : 1;
}
