// A linear layer on several devices: its batch is scattered over them, each computes its part, and
// the results are gathered. Usage: linear_parallel [DEVICES [DEVICE]], or with a device of each of
// two processes: mpirun -n 2 linear_parallel 2
#include <braze/braze.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

using namespace braze;

int main(int argc, char** argv) {
  try {
    const int devices = argc > 1 ? std::atoi(argv[1]) : 2;
    if (devices < 1) {
      std::cerr << "usage: linear_parallel [DEVICES [DEVICE]]\n";
      return 2;
    }
    const DeviceGuard guard(argc > 2 ? Device(argv[2]) : default_device());
    if (default_device().kind() == DeviceKind::Cpu) set_cpu_device_count(devices);
    const Mesh mesh({{"data", devices}});

    const auto linear = [](Tensor x, Tensor w, Tensor b) { return dot(x, w) + b; };
    const auto scattered = spmd(
        [=](Tensor x, Tensor w, Tensor b) {
          const Tensor part = linear(x, w, b);  // of this device's rows
          return std::pair{part, all_gather(part, "data")};
        },
        mesh, {.in = {sharded("data")}, .out = {sharded("data"), replicated}});

    const int64_t rows = 8 * devices;
    const Array x = random::normal({rows, 16}, random::Key(1));
    const Array w = random::normal({16, 4}, random::Key(2)),
                b = random::normal({4}, random::Key(3));
    const auto [parts, all] = scattered(x, w, b);
    for (const Array& shard : parts.shards())  // those of this process
      std::cout << "rank " << this_rank() << ", " << shard.device() << " computed "
                << shard.shape()[0] << " of " << rows << " rows\n";

    const Array whole = jit(linear)(x, w, b);
    const auto differs = [&](const Array& result) {
      const std::vector<float> got = result.to_vector<float>(), wanted = whole.to_vector<float>();
      double most = 0;
      for (size_t i = 0; i < got.size(); ++i)
        most = std::max<double>(most, std::abs(got[i] - wanted[i]));
      return most > 1e-5;  // a shorter batch may be summed in another order
    };
    // What other processes have cannot be read here; what was gathered can.
    const bool same = !differs(all) && (!mesh.is_local() || !differs(parts));
    std::cout << "as on one device: " << (same ? "yes" : "no") << "\n";
    bool right = true;
    if (mesh.is_local()) {  // the interpreter needs the parts of all devices
      right = scattered.check(x, w, b).ok;
      std::cout << "as the interpreter says: " << (right ? "yes" : "no") << "\n";
    }
    return same && right ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
