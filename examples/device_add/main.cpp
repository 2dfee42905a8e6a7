// Adds two vectors on a chosen device and brings the sum back to the host.
// Usage: device_add [DEVICE]
#include <braze/braze.h>

#include <iostream>

using namespace braze;

int main(int argc, char** argv) {
  try {
    const Device device = argc > 1 ? Device(argv[1]) : default_device();
    const Array x = Array::from(std::vector<float>{1, 2}, {2}, device);
    const Array y = Array::from(std::vector<float>{3, 4}, {2}, device);
    const auto add = jit([](Tensor a, Tensor b) { return a + b; });

    const Array sum = add(x, y);
    const std::vector<float> host = sum.to_vector<float>();
    std::cout << "[1, 2] + [3, 4] = [" << host[0] << ", " << host[1] << "] on " << sum.device()
              << "\n";
    return host == std::vector<float>{4, 6} ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
