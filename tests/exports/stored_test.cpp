// Networks that PyTorch exported, and their results there in f32 and in f64: what run.py left in
// its folder for them. A result is right as run.py says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "braze/io.h"
#include "braze/model.h"
#include "tests/frontend/support.h"
#include "tests/source_path.h"

namespace braze {
namespace {

struct Errors {
  double greatest = 0, mean_square = 0;
};

Errors errors(const Array& got, const Array& exact) {
  const Doubles a = to_doubles(got), b = to_doubles(exact);
  Errors out;
  for (size_t i = 0; i < b.size(); ++i) {
    // Not a number is as far off as can be.
    const double difference = std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : INFINITY;
    out.greatest = std::max(out.greatest, difference);
    out.mean_square += difference * difference / static_cast<double>(b.size());
  }
  return out;
}

// One unit in the last place of the greatest is the least error that is asked for.
double least(const Array& exact) {
  double greatest = 0;
  for (const double x : to_doubles(exact)) greatest = std::max(greatest, std::abs(x));
  return 0x1p-23 * greatest;
}

class Stored : public ::testing::TestWithParam<const char*> {};

TEST_P(Stored, NetworksAreAsExactAsPyTorch) {
  constexpr double kBound = 4;
  const std::string folder = test::source_path("tests/exports/stored/") + GetParam();
  const Model model = load_model(folder + "/model.onnx");
  const auto single = load_npz(folder + "/single.npz"), exact = load_npz(folder + "/exact.npz");
  std::map<std::string, Array> arguments;
  for (const Model::Value& input : model.inputs())
    arguments.emplace(input.name, load_npy(folder + "/" + input.name + ".npy"));
  const auto results = model.run(arguments);
  ASSERT_EQ(results.size(), exact.size());
  for (const auto& [name, got] : results) {
    ASSERT_EQ(got.shape(), exact.at(name).shape()) << name;
    const Errors ours = errors(got, exact.at(name)),
                 theirs = errors(single.at(name), exact.at(name));
    const double floor = least(exact.at(name));
    EXPECT_LE(ours.greatest, kBound * std::max(theirs.greatest, floor)) << name;
    EXPECT_LE(std::sqrt(ours.mean_square), kBound * std::max(std::sqrt(theirs.mean_square), floor))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Stored, ::testing::Values("dlrm", "llama"),
                         [](const auto& network) { return std::string(network.param); });

}  // namespace
}  // namespace braze
