// package.cpp — the cost of shipping: compiling the digits classifier for four machines, opening
// the package, and loading its function with weights beside it on each device of this machine.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>

#include "bench/cases/benchmark_main.h"
#include "braze/braze.h"
#include "braze/io.h"

namespace braze {
namespace {

const std::vector<std::string> kMachines = {"x86-64-v3", "x86-64-v4", "sm_80", "sm_90a"};

struct Files {
  std::filesystem::path folder;
  std::string graph;

  Files() {
    std::string name = (std::filesystem::temp_directory_path() / "bench-package-XXXXXX").string();
    folder = mkdtemp(name.data());
    const Parameters parameters = nn::mlp_parameters({64, 256, 128, 10}, random::Key(1));
    graph = jit([](Weights w, Tensor x) { return argmax(nn::mlp(w, x), -1); },
                {as_given, spec(f32, {"n:1..1024", 64})},
                {.name = "classify", .inputs = {"parameters", "pixels"}})
                .graph(parameters, zeros({64, 64}));
    save_safetensors(weights(), {parameters.begin(), parameters.end()});
  }
  ~Files() { std::filesystem::remove_all(folder); }

  std::string weights() const { return folder / "weights.safetensors"; }
  std::string package(bool assemble) const {
    const std::string path = folder / (assemble ? "cubin.bzp" : "ptx.bzp");
    if (!std::filesystem::exists(path)) pack(path, assemble);
    return path;
  }
  void pack(const std::string& path, bool assemble) const {
    save_package(path, {{graph}},
                 {.targets = kMachines, .weights = weights(), .compile = {.assemble = assemble}});
  }
};

void pack(benchmark::State& state, const Files& files) {
  files.package(true);  // first-use initialisation is not measured
  for (auto _ : state) files.pack(files.folder / "again.bzp", true);
}

void open(benchmark::State& state, const Files& files) {
  const std::string path = files.package(true);
  for (auto _ : state) benchmark::DoNotOptimize(Package::load(path));
}

// Open, choose, bind the weights, load the code: ready for a call.
void load(benchmark::State& state, const Files& files, const Device& device, bool assemble) {
  const std::string path = files.package(assemble);
  const Array pixels = zeros({64, 64}, f32).to(device);
  for (auto _ : state) {
    const LoadedFunction f = Package::load(path).function().load(device);
    benchmark::DoNotOptimize(f);
    state.PauseTiming();
    f(pixels)[0].wait();
    state.ResumeTiming();
  }
}

void add_cases(const Files& files) {
  const auto add = [](const std::string& name, auto&&... arguments) {
    benchmark::RegisterBenchmark(name.c_str(), arguments...)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("pack_four_machines", pack, std::cref(files));
  add("open", open, std::cref(files));
  for (const Device& device : devices()) {
    if (device.kind() == DeviceKind::Cpu)
      add("load/" + device.name(), load, std::cref(files), device, true);
    if (device.kind() != DeviceKind::Cuda) continue;
    add("load/" + device.name() + "/cubin", load, std::cref(files), device, true);
    add("load/" + device.name() + "/ptx", load, std::cref(files), device, false);
  }
}

}  // namespace
}  // namespace braze

int main(int argc, char** argv) { return braze::benchmark_main(argc, argv, braze::add_cases); }
