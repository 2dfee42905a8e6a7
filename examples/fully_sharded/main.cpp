// Fully sharded data parallelism: each device keeps a part of every parameter and of the
// optimizer's state, gathers a parameter where it is used, and gets its part of the gradient. The
// checkpoint is one file a device. Usage: fully_sharded [DEVICES [DEVICE [FOLDER]]], or with a
// device of each of two processes: mpirun -n 2 fully_sharded 2. All processes have to see the
// FOLDER, where the checkpoint is written.
#include <braze/braze.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

using namespace braze;

namespace {

constexpr int kSteps = 20;

Tensor loss_of(Weights parts, Tensor x, Tensor y) {
  // Whole where it is used; on one device this says nothing.
  const Weights w = parts.map([](const Tensor& part) { return constrain(part, replicated); });
  return nn::cross_entropy(nn::mlp(w, x), y);
}

std::tuple<Weights, Weights, Tensor> step(Weights w, Weights state, Tensor x, Tensor y) {
  const auto [loss, gradient] = value_and_grad(loss_of)(w, x, y);
  const auto [updated, next] = optim::adamw(w, gradient, state, {.learning_rate = 0.01});
  return {updated, next, loss};
}

template <class Step>
double train(const Step& one, Parameters& w, Parameters& state, const Array& x, const Array& y) {
  Array loss;
  for (int i = 0; i < kSteps; ++i) std::tie(w, state, loss) = one(w, state, x, y);
  return loss.item();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int devices = argc > 1 ? std::atoi(argv[1]) : 2;
    if (devices < 1) {
      std::cerr << "usage: fully_sharded [DEVICES [DEVICE [FOLDER]]]\n";
      return 2;
    }
    const DeviceGuard guard(argc > 2 ? Device(argv[2]) : default_device());
    if (default_device().kind() == DeviceKind::Cpu) set_cpu_device_count(devices);
    const Mesh mesh({{"data", devices}});

    const Parameters start = nn::mlp_parameters({32, 64, 8}, random::Key(1));
    const Array x = random::normal({16 * devices, 32}, random::Key(2));
    const Array y = jit([](Tensor in) { return argmax(in[{ellipsis, Slice(0, 8)}], -1); })(x);

    Parameters whole = start, whole_state = optim::adamw_state(whole);
    const double alone = train(jit(step), whole, whole_state, x, y);

    // The first axis of each parameter, and of its state, is cut.
    Parameters parts = start.map([&](const Array& p) { return p.to(mesh, sharded("data")); });
    Parameters state = optim::adamw_state(parts);
    const auto on_mesh = distribute(
        step, mesh,
        {.in = {std::nullopt, std::nullopt, sharded("data"), sharded("data")}, .donate = {0, 1}});
    // The interpreter needs the parts of all devices.
    const bool right = !mesh.is_local() || on_mesh.check(parts, state, x, y).ok;
    const double together = train(on_mesh, parts, state, x, y);
    for (const auto& [name, value] : parts)
      std::cout << name << ": " << value.shards()[0].size_bytes() << " of "
                << whole[name].size_bytes() << " bytes on each device\n";
    const std::string text = on_mesh.explain();
    std::cout << text.substr(0, text.find("\n\n")) << "\n";

    // Written as it is spread, and read as whole arrays.
    const std::filesystem::path parent =
        argc > 3 ? argv[3] : std::filesystem::temp_directory_path();
    const std::filesystem::path folder =
        parent / ("fully_sharded-" + (mesh.is_local() ? std::to_string(getpid()) : "of-all"));
    std::filesystem::create_directories(folder);
    const std::string index = folder / "step.safetensors.index.json";
    save_checkpoint(index, state_dict(parts));
    const Parameters loaded = restore(start, load_checkpoint(index));
    bool kept = true;
    for (const auto& [name, value] : loaded) {
      const std::vector<Array> read = value.to(mesh, sharded("data")).shards(),
                               written = parts[name].shards();
      for (size_t i = 0; i < read.size(); ++i)
        kept &= read[i].to_vector<float>() == written[i].to_vector<float>();
    }
    rank_barrier();  // all have read it
    if (this_rank() == 0) std::filesystem::remove_all(folder);

    const bool same = std::abs(together - alone) < 1e-3 * std::abs(alone) + 1e-4;
    std::cout << "loss " << together << " over " << mesh.to_string() << ", " << alone
              << " on one device\nas on one device: " << (same ? "yes" : "no")
              << ", checkpoint: " << (kept ? "kept" : "differs") << "\n";
    if (mesh.is_local()) std::cout << "as the interpreter says: " << (right ? "yes" : "no") << "\n";
    return same && kept && right ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
