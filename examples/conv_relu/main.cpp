// The first layer of a ResNet: 64 filters of 7x7 over an image, every second pixel, and a ReLU;
// then its gradients. Elements of all results are computed again by plain loops.
// Usage: conv_relu [DEVICE]
#include <braze/braze.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <tuple>
#include <vector>

using namespace braze;

namespace {

constexpr int64_t kImage = 224, kIn = 3, kOut = 64, kTaps = 7, kStride = 2, kPad = 3;
constexpr int64_t kPlaces = (kImage + 2 * kPad - kTaps) / kStride + 1;

const ConvOptions kLayer{.strides = {kStride, kStride},
                         .low = {kPad, kPad},
                         .high = {kPad, kPad},
                         .channels = Channels::First};

Tensor layer(Tensor image, Tensor filters) { return relu(conv(image, filters, kLayer)); }

/// What the loops below read: images [3, 224, 224], filters [64, 3, 7, 7], results [64, 112, 112].
struct Numbers {
  std::vector<float> image, filters, result, direction;

  double pixel(int64_t c, int64_t y, int64_t x) const {
    const bool inside = 0 <= y && y < kImage && 0 <= x && x < kImage;
    return inside ? image[static_cast<size_t>((c * kImage + y) * kImage + x)] : 0;
  }
  double filter(int64_t f, int64_t c, int64_t r, int64_t s) const {
    return filters[static_cast<size_t>(((f * kIn + c) * kTaps + r) * kTaps + s)];
  }
  double sum(int64_t f, int64_t y, int64_t x) const {
    double total = 0;
    for (int64_t c = 0; c < kIn; ++c)
      for (int64_t r = 0; r < kTaps; ++r)
        for (int64_t s = 0; s < kTaps; ++s)
          total += pixel(c, y * kStride + r - kPad, x * kStride + s - kPad) * filter(f, c, r, s);
    return total;
  }
  /// The gradient that arrives before the ReLU.
  double arriving(int64_t f, int64_t y, int64_t x) const {
    const auto place = static_cast<size_t>((f * kPlaces + y) * kPlaces + x);
    return result[place] > 0 ? direction[place] : 0;
  }
  double of_filter(int64_t f, int64_t c, int64_t r, int64_t s) const {
    double total = 0;
    for (int64_t y = 0; y < kPlaces; ++y)
      for (int64_t x = 0; x < kPlaces; ++x)
        total += arriving(f, y, x) * pixel(c, y * kStride + r - kPad, x * kStride + s - kPad);
    return total;
  }
  double of_pixel(int64_t c, int64_t row, int64_t column) const {
    double total = 0;
    for (int64_t f = 0; f < kOut; ++f)
      for (int64_t r = 0; r < kTaps; ++r)
        for (int64_t s = 0; s < kTaps; ++s) {
          const int64_t y = row + kPad - r, x = column + kPad - s;
          if (y < 0 || x < 0 || y % kStride != 0 || x % kStride != 0) continue;
          if (y / kStride < kPlaces && x / kStride < kPlaces)
            total += arriving(f, y / kStride, x / kStride) * filter(f, c, r, s);
        }
    return total;
  }
};

/// The worst difference of `count` elements, as a share of the largest.
template <class Expected>
double worst(const std::vector<float>& got, const std::vector<int64_t>& shape, int count,
             Expected expected) {
  std::mt19937_64 random(3);
  double difference = 0, largest = 1e-30;
  for (int i = 0; i < count; ++i) {
    const auto place = static_cast<int64_t>(random() % got.size());
    std::vector<int64_t> at(shape.size());
    int64_t rest = place;
    for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) at[axis] = rest % shape[axis];
    const double right = expected(at);
    difference = std::max(difference, std::abs(got[static_cast<size_t>(place)] - right));
    largest = std::max(largest, std::abs(right));
  }
  return difference / largest;
}

int run(const Device& device) {
  const DeviceGuard guard(device);
  const random::Key key(1);
  const Array image = random::normal({1, kIn, kImage, kImage}, key.fold_in("image"));
  const Array filters = random::normal({kOut, kIn, kTaps, kTaps}, key.fold_in("filters"), 0, 0.1);
  const Array direction = random::normal({1, kOut, kPlaces, kPlaces}, key.fold_in("direction"));

  const auto forward = jit(layer);
  const auto backward = jit([](Tensor x, Tensor w, Tensor weight) {
    const auto scalar = [&](std::vector<Tensor> v) { return sum(layer(v[0], v[1]) * weight); };
    const std::vector<Tensor> gradients = grad(scalar)(std::vector{x, w});
    return std::tuple{gradients[0], gradients[1]};
  });
  const Array result = forward(image, filters);
  const auto [of_image, of_filters] = backward(image, filters, direction);

  const Numbers numbers{image.to_vector<float>(), filters.to_vector<float>(),
                        result.to_vector<float>(), direction.to_vector<float>()};
  const double errors[] = {
      worst(numbers.result, {kOut, kPlaces, kPlaces}, 500,
            [&](const auto& at) { return std::max(numbers.sum(at[0], at[1], at[2]), 0.0); }),
      worst(of_image.to_vector<float>(), {kIn, kImage, kImage}, 200,
            [&](const auto& at) { return numbers.of_pixel(at[0], at[1], at[2]); }),
      worst(of_filters.to_vector<float>(), {kOut, kIn, kTaps, kTaps}, 50,
            [&](const auto& at) { return numbers.of_filter(at[0], at[1], at[2], at[3]); })};
  std::cout << "on " << device.name() << ": forward " << forward.summary().kernels
            << " kernels, backward " << backward.summary().kernels << "\n"
            << "worst difference, as a share of the largest: result " << errors[0]
            << ", gradient of the image " << errors[1] << ", of the filters " << errors[2] << "\n";
  return std::ranges::max(errors) < 1e-5 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? Device(argv[1]) : default_device());
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
