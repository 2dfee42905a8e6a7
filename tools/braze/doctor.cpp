// doctor.cpp — braze doctor: is this machine fit to run Braze, and does Braze work on it?
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "braze/array.h"
#include "braze/executable.h"
#include "braze/ranks.h"
#include "braze/version.h"
#include "compiler/codegen/code_generator.h"
#include "compiler/codegen/ptx_assembler.h"
#include "ir/graph/check.h"
#include "ir/graph/text.h"
#include "ir/support/env.h"
#include "ir/support/nvtx.h"
#include "ir/support/text.h"
#include "runtime/devices/cpu/host_target.h"
#include "runtime/devices/cuda/cuda_system.h"
#include "runtime/devices/cuda/nccl.h"
#include "runtime/io/signature.h"
#include "runtime/mesh/links.h"
#include "runtime/profile/speeds.h"
#include "runtime/ranks/mpi.h"
#include "tools/braze/arguments.h"
#include "tools/braze/cache.h"
#include "tools/braze/calibrate.h"
#include "tools/braze/command.h"
#include "tools/braze/inputs.h"
#include "tools/braze/links.h"
#include "tools/braze/report.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

struct Options {
  bool env = false, json = false, calibrate = false;
};

struct Fact {
  std::string name;
  std::string value;
};

/// Elementwise rows, a math row, a reduction and a contraction, in sizes that are not multiples of
/// a vector.
constexpr std::string_view kSelfTest = R"(braze 1 graph
graph @self_test(%x: f32[37, 51], %w: f32[51, 19]) {
  %0 = dot %x, %w {contract: [1] x [0]} : f32[37, 19]
  %1 = reduce max %0 {axes: [1]} : f32[37]
  %2 = broadcast %1 {axes: [0]} : f32[37, 19]
  %3 = sub %0, %2 : f32[37, 19]
  %4 = exp %3 : f32[37, 19]
  %5 = reduce sum %4 {axes: [1]} : f32[37]
  return %4 as "scaled", %5 as "sums"
}
)";

struct TestResult {
  std::string device;
  bool ok = false;
  std::string text;
};

// Compiles a small graph for a device, runs it there, and compares with the interpreter.
TestResult self_test(const Device& device) {
  const auto start = std::chrono::steady_clock::now();
  try {
    const Graph graph = parse_graph(kSelfTest, "self test");
    auto program = std::make_shared<const Program>(compile(graph, device.target()));
    const Inputs inputs = make_inputs(*program, {});
    std::vector<Array> arguments;
    for (const HostTensor& value : inputs.values)
      arguments.push_back(Array::from_host(value, device));
    std::vector<HostTensor> outputs;
    for (const Array& output : Executable::load(program, device).run(arguments))
      outputs.push_back(output.to_host());
    const CheckResult check = check_outputs(graph, inputs.values, outputs);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (!check.ok || check.coverage().vacuous()) return {device.name(), false, check.summary()};
    return {device.name(), true,
            fmt::format("compiled in {}, {} in total", seconds_text(program->compile_seconds),
                        seconds_text(taken.count()))};
  } catch (const Error& error) {
    return {device.name(), false, error.what()};
  }
}

uint64_t memory_bytes(int unit) {
  const long pages = sysconf(unit), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(size) : 0;
}

std::string caches_text(const Target& target) {
  const auto size = [](int64_t bytes) { return bytes_text(static_cast<uint64_t>(bytes)); };
  return fmt::format("L1 {}, L2 {} per core, L3 {}", size(target.l1_bytes), size(target.l2_bytes),
                     size(target.l3_bytes));
}

// By what figures programs for several devices like this one are compiled.
std::string collectives_text(const Target& target) {
  try {
    const Target used = with_links(target);
    std::error_code error;
    const bool measured = std::filesystem::exists(links_file(target), error);
    return fmt::format(
        "{} each, {}", link_text(used.link_seconds, used.link_bytes_per_second),
        measured ? "measured" : "not measured here: `braze doctor --calibrate` does so");
  } catch (const Error& error) {
    return error.what();
  }
}

// Facts about the target, or why this processor has none.
void add_target(std::vector<Fact>& facts) {
  try {
    const Target& target = Device("cpu").target();
    facts.push_back({"target", target.name});
    facts.push_back({"threads", std::to_string(target.cores)});
    facts.push_back({"caches", caches_text(target)});
    const Speeds measured = measure_speeds(Device("cpu"));
    facts.push_back({"speeds", fmt::format("{:.3g} GB/s copied from memory, {:.3g} GFLOP/s of f32",
                                           measured.copy_bytes_per_second / 1e9,
                                           measured.flops_per_second / 1e9)});
    facts.push_back({"collectives", collectives_text(target)});
  } catch (const Error& error) {
    facts.push_back({"target", error.what()});
  }
}

std::string assembler_text() {
  constexpr const char* kFix =
      "NVIDIA's assembler inside Braze is faster; run `tools/setup.sh --gpu` and build again for "
      "it";
  const PtxAssembler* assembler = ptx_assembler();
  if (!assembler)
    return fmt::format("none; the CUDA driver compiles PTX each time it is loaded. {}", kFix);
  if (!assembler->is_in_process())
    return fmt::format("{}, started as a process for each program. {}", assembler->name(), kFix);
  return assembler->name();
}

// What makes and runs code for GPUs, or what is missing.
void add_gpus(std::vector<Fact>& facts) {
  facts.push_back({"PTX assembler", assembler_text()});
  facts.push_back(
      {"NVRTC", nvrtc_name().empty() ? "none; --codegen nvrtc needs libnvrtc.so" : nvrtc_name()});
  facts.push_back({"NVTX", nvtx::is_built_in()
                               ? "ranges for profilers"
                               : "none; this Braze was built without its headers (from the CUDA "
                                 "toolkit, or the wheel nvidia-nvtx)"});
  facts.push_back({"NCCL", nccl_text()});
  // Without the user's word it is "0" now: who opens NCCL says so.
  const char* const multicast = std::getenv("NCCL_NVLS_ENABLE");
  if (cuda::nccl().api && multicast && std::string_view(multicast) != "0")
    facts.push_back(
        {"Multicast",
         fmt::format(
             "NVLink's is on, by NCCL_NVLS_ENABLE={}; sums over GPUs may have other bits in "
             "each run",
             multicast)});
  const std::vector<std::string> plugins = mpi_plugins();
  facts.push_back({"MPI", plugins.empty()
                              ? std::string("none; no plugin is built; `tools/setup.sh --mpi` "
                                            "installs what it needs")
                              : "plugins " + join(plugins, ", ",
                                                  [](const std::string& file) { return file; })});
  const CudaSystem& system = CudaSystem::get();
  if (!system.missing().empty()) {
    facts.push_back(
        {"GPUs", fmt::format("none: {}. All other devices work without it", system.missing())});
    return;
  }
  facts.push_back({"CUDA driver", fmt::format("serves CUDA {}", system.driver_version())});
  for (size_t i = 0; i < system.gpus().size(); ++i) {
    const GpuFacts& gpu = system.gpus()[i];
    const std::optional<Target> target = gpu_target(gpu);
    facts.push_back(
        {fmt::format("cuda:{}", i),
         fmt::format("{}, compute capability {} ({}), {}, {} multiprocessors", gpu.name,
                     capability_text(gpu), target ? target->name : "Braze has no code for it",
                     bytes_text(gpu.memory_bytes), gpu.multiprocessors)});
  }
  if (const std::string links = gpu_links_text(); !links.empty()) {
    facts.push_back({"GPU links", links});
    facts.push_back({"GPU collectives", collectives_text(Device("cuda:0").target())});
  }
}

std::vector<Fact> facts_of_machine() {
  std::vector<Fact> facts = {
      {"version", fmt::format("Braze {}, LLVM {}", BRAZE_VERSION, llvm_version())},
      {"instructions", fmt::format("{}", fmt::join(host_features(), " "))},
      {"cores", fmt::format("{} usable", usable_cores())},
      {"memory", fmt::format("{}, {} free", bytes_text(memory_bytes(_SC_PHYS_PAGES)),
                             bytes_text(memory_bytes(_SC_AVPHYS_PAGES)))},
  };
  add_target(facts);
  add_gpus(facts);
  facts.push_back({"program cache", summary(view_cache())});
  facts.push_back({"signatures", has_signatures()
                                     ? "Ed25519, by libsodium"
                                     : "none; this Braze was built without libsodium"});
  std::vector<std::string> names;
  for (const Device& device : devices()) names.push_back(device.name());
  facts.push_back({"devices", fmt::format("{}", fmt::join(names, ", "))});
  return facts;
}

void print_env(bool as_json) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> items;
  for (const EnvVariable& variable : env_variables()) {
    const auto value = read_env(variable);
    rows.push_back({variable.name, value.value_or("(not set)"), std::string(variable.meaning)});
    items.push_back(json::object({{"name", json::string(variable.name)},
                                  {"value", value ? json::string(*value) : "null"},
                                  {"meaning", json::string(variable.meaning)}}));
  }
  if (as_json) return json::print({{"environment", json::array(items)}});
  fmt::print("{}", table(rows));
}

// The processor, and the default device if that is another.
std::vector<Device> devices_to_test() {
  std::vector<Device> chosen = {Device("cpu")};
  if (default_device() != chosen[0]) chosen.push_back(default_device());
  return chosen;
}

void print_json(const std::vector<Fact>& facts, const std::vector<TestResult>& tests) {
  json::Members members;
  for (const Fact& fact : facts) members.emplace_back(fact.name, json::string(fact.value));
  std::vector<std::string> items;
  for (const TestResult& test : tests) {
    items.push_back(json::object({{"device", json::string(test.device)},
                                  {"ok", json::boolean(test.ok)},
                                  {"text", json::string(test.text)}}));
  }
  members.emplace_back("self_tests", json::array(items));
  json::print(members);
}

void print_text(const std::vector<Fact>& facts, const std::vector<TestResult>& tests) {
  for (const Fact& fact : facts) fmt::print("  {:<16}{}\n", fact.name, fact.value);
  for (const TestResult& test : tests) {
    fmt::print("  {:<16}{}: {}\n", "test of " + test.device,
               test.ok ? paint(Colour::Green, "ok", STDOUT_FILENO)
                       : paint(Colour::Red, "FAILED", STDOUT_FILENO),
               test.text);
  }
}

// Measures the devices of one kind, and keeps what programs over them are compiled by.
void calibrate(DeviceKind kind, bool as_json, std::vector<std::string>& items) {
  const DeviceGuard guard(kind == DeviceKind::Cpu ? "cpu" : "cuda:0");
  const auto count = static_cast<int64_t>(device_count(kind)) * rank_count();
  const Links links = measure_links(Mesh({{"all", count}}));
  const Target& target = links.target;
  if (this_rank() != 0) return;
  keep_links(target);
  if (as_json) {
    items.push_back(json::object({{"target", json::string(target.name)},
                                  {"devices", std::to_string(links.devices)},
                                  {"link_s", json::number(target.link_seconds)},
                                  {"link_bytes_per_s", json::number(target.link_bytes_per_second)},
                                  {"copy_s", json::number(links.copy_seconds)},
                                  {"copy_bytes_per_s", json::number(links.copy_bytes_per_second)},
                                  {"file", json::string(links_file(target))}}));
    return;
  }
  fmt::print("  {:<16}{} each\n", fmt::format("{} of {}", links.devices, target.name),
             link_text(target.link_seconds, target.link_bytes_per_second));
  if (links.copy_seconds > 0)
    fmt::print("  {:<16}{} each\n", "copies",
               link_text(links.copy_seconds, links.copy_bytes_per_second));
  fmt::print("  {:<16}{}\n", "kept in", links_file(target));
}

Exit calibrate(bool as_json) {
  if (rank_count() == 1 && device_count(DeviceKind::Cpu) < 2) set_cpu_device_count(2);
  std::vector<std::string> items;
  const auto of = [&](DeviceKind kind) {
    if (device_count(kind) * rank_count() > 1) calibrate(kind, as_json, items);
  };
  of(DeviceKind::Cpu);
  if (cuda::nccl().api) of(DeviceKind::Cuda);
  if (as_json && this_rank() == 0) json::print({{"links", json::array(items)}});
  return Exit::Ok;
}

Exit doctor(const Options& options) {
  if (options.calibrate) return calibrate(options.json);
  if (options.env) {
    print_env(options.json);
    return Exit::Ok;
  }
  const std::vector<Fact> facts = facts_of_machine();
  std::vector<TestResult> tests;
  for (const Device& device : devices_to_test()) tests.push_back(self_test(device));
  (options.json ? print_json : print_text)(facts, tests);
  for (const TestResult& test : tests) {
    if (!test.ok) return Exit::Internal;
  }
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.add_flag("--env", options->env, "Show the environment variables that Braze reads");
  arguments.add_flag(
      "--calibrate", options->calibrate,
      "Measure how fast devices exchange data, and keep it for programs over several");
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return doctor(*options); };
}

}  // namespace

const Command kDoctor = {"doctor", "Describes this machine, and tests Braze on it.",
                         "  braze doctor\n"
                         "  braze doctor --env        # environment variables and their values\n"
                         "  braze doctor --calibrate  # how fast devices exchange data\n",
                         add};

}  // namespace braze::tool
