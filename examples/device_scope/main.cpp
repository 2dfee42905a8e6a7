// A DeviceGuard chooses where new arrays live, for a scope; computations run where their arguments
// are. Usage: device_scope [DEVICE]
#include <braze/braze.h>

#include <iostream>

using namespace braze;

int main(int argc, char** argv) {
  try {
    set_cpu_device_count(2);
    const Device chosen(argc > 1 ? argv[1] : "cpu:1");
    const auto halve = jit([](Tensor x) { return x * 0.5; });

    Array result;
    {
      const DeviceGuard guard(chosen);
      result = halve(ones({3}));
      std::cout << "inside:  new arrays are on " << default_device() << ", the result is on "
                << result.device() << "\n";
    }
    std::cout << "outside: new arrays are on " << default_device() << ", the result is still on "
              << result.device() << "\n";
    const bool is_right = result.to_vector<float>() == std::vector<float>(3, 0.5f) &&
                          result.device() == chosen && ones({1}).device() == default_device();
    return is_right ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
