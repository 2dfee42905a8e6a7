// Work on two devices, with an explicit copy between them; mixing them in one call is an error that
// names both. Usage: device_spread [FIRST SECOND]
#include <braze/braze.h>

#include <iostream>
#include <string>

using namespace braze;

int main(int argc, char** argv) {
  try {
    set_cpu_device_count(2);
    const Device first(argc > 2 ? argv[1] : "cpu:0"), second(argc > 2 ? argv[2] : "cpu:1");
    const auto add = jit([](Tensor x, Tensor y) { return x + y; });

    const Array a = add(full({4}, 1, f32, first), full({4}, 2, f32, first));
    const Array b = add(full({4}, 3, f32, second), full({4}, 4, f32, second));
    std::cout << "3 on " << a.device() << ", 7 on " << b.device() << "\n";

    const Array sum = add(a.to(second), b);
    std::cout << "3 + 7 = " << sum.to_vector<float>()[0] << " on " << sum.device() << "\n";

    try {
      add(a, b);
      std::cerr << "mixed devices were accepted\n";
      return 1;
    } catch (const Error& error) {
      const std::string text = error.what();
      std::cout << "without the copy: " << text << "\n";
      const bool names_both = text.find(first.name()) != std::string::npos &&
                              text.find(second.name()) != std::string::npos;
      return sum.to_vector<float>()[0] == 10 && names_both ? 0 : 1;
    }
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
