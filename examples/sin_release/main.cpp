// The sine of a large tensor, and what becomes of its memory when it is dropped: the device keeps
// it for the next request until empty_cache() returns it. Usage: sin_release [DEVICE] [ELEMENTS]
#include <braze/braze.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

using namespace braze;

namespace {

MemoryStats show(const char* when, const Device& device) {
  synchronize(device);
  const MemoryStats stats = memory_stats(device);
  std::cout << when << stats.live_bytes << " bytes live, " << stats.cached_bytes << " cached\n";
  return stats;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Device device = argc > 1 ? Device(argv[1]) : default_device();
    const int64_t elements = argc > 2 ? std::atoll(argv[2]) : int64_t{1} << 24;
    const auto bytes = static_cast<uint64_t>(elements) * sizeof(float);
    const auto sine = jit([](Tensor x) { return sin(x); });

    Array x = full({elements}, 0.5, f32, device);
    Array y = sine(x);
    y.wait();
    const MemoryStats full_house = show("computed:      ", device);
    const std::vector<float> values = y.to_vector<float>();
    x = Array();
    y = Array();
    const MemoryStats dropped = show("dropped:       ", device);
    empty_cache(device);
    const MemoryStats emptied = show("empty_cache(): ", device);
    const bool as_told = full_house.live_bytes >= 2 * bytes && dropped.live_bytes < bytes &&
                         dropped.cached_bytes >= 2 * bytes && emptied.cached_bytes == 0;
    const bool are_sines = std::all_of(
        values.begin(), values.end(), [](float v) { return std::abs(v - std::sin(0.5f)) < 1e-6f; });
    return as_told && are_sines ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
