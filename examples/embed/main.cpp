// A program that uses an installed Braze: one function, compiled at its first call.
#include <braze/braze.h>

#include <cmath>
#include <iostream>

using namespace braze;

namespace {

// One element of gelu(x·w), computed as it is written.
double element(const Array& x, const Array& w, int64_t row, int64_t column) {
  const std::vector<float> xs = x.to_vector<float>(), ws = w.to_vector<float>();
  const int64_t depth = w.shape()[0], columns = w.shape()[1];
  double sum = 0;
  for (int64_t k = 0; k < depth; ++k)
    sum += static_cast<double>(xs[static_cast<size_t>(row * depth + k)]) *
           ws[static_cast<size_t>(k * columns + column)];
  return sum * std::erfc(-sum / std::sqrt(2.0)) / 2;
}

}  // namespace

int main() {
  auto f = jit([](Tensor x, Tensor w, Tensor b) { return gelu(dot(x, w) + b); });
  const random::Key key(1);
  Array x = random::normal({128, 768}, key.fold_in(0)),
        w = random::normal({768, 3072}, key.fold_in(1));
  Array b = zeros({3072});
  Array y = f(x, w, b);                   // compiled at the first call, cached after it
  std::cout << y << "\n" << f.explain();  // values; one kernel, and why

  const std::vector<float> values = y.to_vector<float>();
  for (const auto& [row, column] : {std::pair(0, 0), std::pair(64, 1000), std::pair(127, 3071)}) {
    const double expected = element(x, w, row, column);
    const float got = values[static_cast<size_t>(row * 3072 + column)];
    if (std::abs(got - expected) <= 1e-3) continue;
    std::cerr << "y[" << row << ", " << column << "] is " << got << ", not " << expected << "\n";
    return 1;
  }
  return f.summary().kernels == 1 ? 0 : 1;
}
