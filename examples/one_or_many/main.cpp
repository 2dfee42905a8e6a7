// The same training on 1, 2, ... devices: a table of times, speed-up and efficiency, and a plot.
// Usage: one_or_many [MOST_DEVICES [DEVICE [BATCH]]], or in several processes, each of which has
// its share of the devices: mpirun -n 2 one_or_many
#include <braze/braze.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

using namespace braze;

namespace {

constexpr int64_t kInputs = 64, kHidden = 256, kClasses = 10;
constexpr int kSteps = 30;

/// What one device runs, and each of many on its part of the batch.
std::tuple<Weights, Tensor> step(Weights layers, Tensor x, Tensor labels) {
  const auto [loss, gradient] = value_and_grad([](Weights w, Tensor in, Tensor classes) {
    return nn::cross_entropy(nn::mlp(w, in), classes);
  })(layers, x, labels);
  return {optim::sgd(layers, gradient, {.learning_rate = 0.1}), loss};
}

struct Run {
  double seconds = 0;  // of a step, the least seen
  double loss = 0;     // of the last step
};

template <class Step>
Run train(const Step& one, Parameters layers, const Array& x, const Array& labels) {
  Run run{1e9, 0};
  for (int i = 0; i < kSteps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Array loss;
    std::tie(layers, loss) = one(layers, x, labels);
    run.loss = loss.item();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    run.seconds = std::min(run.seconds, time.count());
  }
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int most = argc > 1 ? std::atoi(argv[1]) : 4;
    if (most < 1) {
      std::cerr << "usage: one_or_many [MOST_DEVICES [DEVICE [BATCH]]]\n";
      return 2;
    }
    const DeviceGuard guard(argc > 2 ? Device(argv[2]) : default_device());
    const int64_t given = argc > 3 ? std::atoll(argv[3]) : 0, batch = given > 0 ? given : 512;
    if (default_device().kind() == DeviceKind::Cpu) set_cpu_device_count(most);

    const random::Key key(1);
    const Array x = random::normal({batch, kInputs}, key.fold_in(0));
    const auto label = [](Tensor in) { return argmax(in[{ellipsis, Slice(0, kClasses)}], -1); };
    const Array labels = jit(label)(x);
    const Parameters start = nn::mlp_parameters({kInputs, kHidden, kClasses}, key.fold_in(1));

    std::vector<Run> runs = {train(jit(step), start, x, labels)};
    const bool prints = this_rank() == 0;
    if (prints) std::printf("devices      a step  speed-up  efficiency  loss\n");
    bool same = true, right = true;
    for (int devices = 1; devices <= most; devices *= 2) {
      if (devices > 1 && devices % rank_count() != 0) continue;  // not the same number for each
      if (devices > 1) {
        const Mesh mesh({{"data", devices}});
        // The batch is cut once, not at every step.
        const auto on_mesh = data_parallel(step, mesh, {.batch = {1, 2}});
        runs.push_back(
            train(on_mesh, start, x.to(mesh, sharded("data")), labels.to(mesh, sharded("data"))));
        // A small part of the batch: the interpreter is slow, and it needs the parts of all
        // devices.
        const auto part = [&](const Array& all) {
          const int64_t rows = std::min<int64_t>(batch, 4 * devices);
          return jit([rows](Tensor in) { return in[Slice(0, rows)]; })(all);
        };
        if (mesh.is_local()) right &= on_mesh.check(start, part(x), part(labels)).ok;
      }
      const double speed_up = runs[0].seconds / runs.back().seconds;
      if (prints)
        std::printf("%7d  %7.0f us  %8.2f  %9.0f %%  %.4f  %s\n", devices,
                    1e6 * runs.back().seconds, speed_up, 100 * speed_up / devices, runs.back().loss,
                    std::string(static_cast<size_t>(std::ceil(10 * speed_up)), '=').c_str());
      same &= std::abs(runs.back().loss - runs[0].loss) < 1e-3 * std::abs(runs[0].loss);
    }
    if (prints)
      std::printf("one training on any number of devices: %s, as the interpreter says: %s\n",
                  same ? "yes" : "no", right ? "yes" : "no");
    return same && right ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
