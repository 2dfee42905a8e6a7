// support.h — what the frontend's tests share: the reference device, numbers, expected errors.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "braze/braze.h"
#include "tests/error_of.h"

namespace braze {

/// The device of the tests: BRAZE_TEST_DEVICE, else the interpreter, where everything is exact.
inline Device test_device() {
  const char* name = std::getenv("BRAZE_TEST_DEVICE");
  return Device(name ? name : "interpreter");
}

class OnDevice : public ::testing::Test {
 protected:
  DeviceGuard guard_{test_device()};
};

inline std::vector<double> to_doubles(const Array& array) {
  return visit_dtype(array.dtype(), [&]<DType D>() -> std::vector<double> {
    if constexpr (is_short_float(D)) {
      return to_doubles(jit([](Tensor x) { return cast(x, f64); })(array));
    } else {
      const auto values = array.to_vector<ElementOf<D>>();
      return {values.begin(), values.end()};
    }
  });
}

using Doubles = std::vector<double>;
using Longs = std::vector<int64_t>;

inline void expect_near(const Array& got, const Doubles& expected, double tolerance) {
  const Doubles values = to_doubles(got);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i])))
        << "at " << i;
}

using test::error_of;

#define EXPECT_CONTAINS(text, part)                          \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "the text is: " << text << "\nand should contain: " << (part)

}  // namespace braze
