// compensated.h — sums of doubles as if in twice the precision (Dekker 1971; Ogita, Rump, Oishi
// 2005).
#pragma once

#include <cmath>

namespace braze {

/// A sum of two doubles that is not evaluated. If it is infinite or NaN, the low part has no
/// meaning.
struct Compensated {
  double high = 0;
  double low = 0;

  void add(double x) {
    const double sum = high + x;
    const double virtual_x = sum - high;
    low += (high - (sum - virtual_x)) + (x - virtual_x);
    high = sum;
  }
  void add_product(double x, double y) {
    const double product = x * y;
    const double error = std::fma(x, y, -product);
    add(product);
    low += error;
  }
  void multiply(double x) {
    const double product = high * x;
    low = low * x + std::fma(high, x, -product);
    high = product;
  }
  double value() const { return std::isfinite(high) ? high + low : high; }
};

}  // namespace braze
