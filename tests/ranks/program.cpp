// What each process of a test runs. Usage: rank-program SCENARIO [DEVICES_EACH]
// On CPU devices what it runs is compiled; on GPUs, where the fake driver knows kernels by name, it
// is made by hand. Prints one line a rank and fact, "rank R: ...", and ends with 0 if all is as the
// scenario says.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "braze/braze.h"
#include "braze/ranks.h"
#include "ir/graph/interpret.h"
#include "runtime/memory/allocator.h"
#include "runtime/mesh/links.h"
#include "tests/mesh/run.h"
#include "tests/runtime/cuda/fake_cuda.h"
#include "tests/runtime/cuda/kernels.h"

namespace braze {
namespace {

using testing::numbers;
using testing::parse;
using Values = std::vector<std::vector<HostTensor>>;

constexpr int64_t kElements = 384;

void say(const std::string& text) {
  // One write, so that the lines of processes do not mix.
  const std::string line = fmt::format("rank {}: {}\n", this_rank(), text);
  [[maybe_unused]] const auto written = write(STDOUT_FILENO, line.data(), line.size());
}

void wait_for(const std::vector<std::vector<Array>>& results) {
  for (const auto& device : results)
    for (const Array& result : device) result.wait();
}

/// Does what should fail and says with which error it did, or `otherwise`; the exit status.
int failure_of(const std::function<void()>& work, const std::string& otherwise) {
  try {
    work();
  } catch (const Error& error) {
    say(error.what());
    return 3;
  }
  say(otherwise);
  return 1;
}

bool on_gpus() { return default_device().kind() == DeviceKind::Cuda; }

// ---- y = 2 * collective(2 * x) along "data"
// ------------------------------------------------------

std::shared_ptr<const Program> made_by_hand(const Mesh& mesh, Collective what, int64_t elements,
                                            int64_t result) {
  test::GpuMaker m("together", {});
  m.program->mesh = {mesh.axes()[0]};
  const TensorType type{DType::F32, {elements}}, out{DType::F32, {result}};
  const uint32_t x = m.input("x", type);
  m.program->inputs[0].varying = {0};
  const uint32_t twice = m.temporary("twice", type, 0);
  const uint32_t all = m.temporary("all", out, 4 * elements);
  const uint32_t y = m.output("y", out);
  m.program->arena_bytes = 4 * elements + 4 * result;
  m.add(x, x, twice, elements);
  Launch& launch = m.program->launches.emplace_back();
  launch.artifact = Launch::kCollective;
  launch.collective = what;
  launch.buffers = {twice, all};
  launch.name = "all";
  m.add(all, all, y, result);
  return m.program;
}

std::string collective_text(const Collective& what) {
  const std::string monoid = what.monoid == Monoid::Max   ? "max"
                             : what.monoid == Monoid::Min ? "min"
                                                          : "sum";
  switch (what.kind) {
    case CollectiveKind::AllReduce:
      return "all_reduce " + monoid + " %a {over: data}";
    case CollectiveKind::AllGather:
      return "all_gather %a {over: data}";
    case CollectiveKind::ReduceScatter:
      return "reduce_scatter " + monoid + " %a {over: data}";
    case CollectiveKind::BroadcastOver:
      return fmt::format("broadcast_over %a {{over: data, root: {}}}", what.offset);
    case CollectiveKind::Permute:
      return fmt::format("permute %a {{over: data, shift: {}}}", what.offset);
    case CollectiveKind::AllToAll:
      return "all_to_all %a {over: data}";
  }
  return "";
}

Graph graph_of(const Mesh& mesh, Collective what, int64_t elements, int64_t result) {
  return parse_graph(
      fmt::format("braze 1 graph\nmesh data: {}\ngraph @together(%x: f32[{}] varying [data]) {{\n"
                  "  %a = add %x, %x : f32[{}]\n  %b = {} : f32[{}]\n"
                  "  %y = add %b, %b : f32[{}]\n  return %y as \"y\"\n}}\n",
                  mesh.axes()[0].size, elements, elements, collective_text(what), result, result),
      fmt::format("of_rank_{}.braze", this_rank()));
}

int64_t result_of(const Mesh& mesh, Collective what, int64_t elements) {
  const int64_t n = mesh.axes()[0].size;
  if (what.kind == CollectiveKind::AllGather) return elements * n;
  if (what.kind == CollectiveKind::ReduceScatter) return elements / n;
  return elements;
}

MeshExecutable load(const Mesh& mesh, Collective what, int64_t elements = kElements) {
  const int64_t result = result_of(mesh, what, elements);
  if (on_gpus()) return MeshExecutable::load(made_by_hand(mesh, what, elements, result), mesh);
  return MeshExecutable::load(
      std::make_shared<const Program>(
          compile(graph_of(mesh, what, elements, result), mesh.devices()[0].target())),
      mesh);
}

/// Of all places; each rank makes those of the others as well.
Values inputs_of(const Mesh& mesh, int64_t elements, double first) {
  Values inputs;
  for (size_t place = 0; place < mesh.size(); ++place)
    inputs.push_back({numbers(DType::I32, {elements}, first + 1000 * static_cast<double>(place))});
  for (std::vector<HostTensor>& one : inputs) {
    HostTensor floats(DType::F32, {elements});
    for (int64_t i = 0; i < elements; ++i)
      floats.set_double(i, static_cast<double>(one[0].get_int(i)));
    one[0] = std::move(floats);
  }
  return inputs;
}

std::vector<std::vector<Array>> to_mesh(const Mesh& mesh, const Values& inputs) {
  std::vector<std::vector<Array>> arguments(mesh.size());
  for (size_t place = 0; place < mesh.size(); ++place)
    for (const HostTensor& input : inputs[place])
      if (mesh.is_local(place))
        arguments[place].push_back(Array::from_host(input, mesh.devices()[place]));
  return arguments;
}

/// Whether the results on this process's devices are what the interpreter says of all devices.
bool is_right(const Mesh& mesh, const Graph& graph, const Values& inputs,
              const std::vector<std::vector<Array>>& results) {
  const Values wanted = interpret(graph, mesh.axes(), inputs);
  for (size_t place = 0; place < mesh.size(); ++place) {
    if (results[place].empty() == mesh.is_local(place)) return false;
    for (size_t o = 0; o < results[place].size(); ++o) {
      const HostTensor got = results[place][o].to_host();
      if (got.shape() != wanted[place][o].shape()) return false;
      // Whole numbers of few digits, and sums of few: exact.
      for (int64_t i = 0; i < got.numel(); ++i)
        if (got.get_double(i) != wanted[place][o].get_double(i)) return false;
    }
  }
  return true;
}

bool step(const Mesh& mesh, const MeshExecutable& run, Collective what, double first,
          int64_t elements = kElements) {
  const Values inputs = inputs_of(mesh, elements, first);
  return is_right(mesh, graph_of(mesh, what, elements, result_of(mesh, what, elements)), inputs,
                  run.run(to_mesh(mesh, inputs)));
}

constexpr Collective kAll[] = {{CollectiveKind::AllReduce, 0, Monoid::Sum},
                               {CollectiveKind::AllReduce, 0, Monoid::Max},
                               {CollectiveKind::AllReduce, 0, Monoid::Min},
                               {CollectiveKind::AllGather},
                               {CollectiveKind::ReduceScatter},
                               {CollectiveKind::BroadcastOver, 0, Monoid::Sum, 1},
                               {CollectiveKind::Permute, 0, Monoid::Sum, 1},
                               {CollectiveKind::AllToAll}};

int collectives(const Mesh& mesh) {
  for (const Collective& what : kAll) {
    Collective bounded = what;
    bounded.blocks = 2;
    const MeshExecutable free = load(mesh, what), few = load(mesh, bounded);
    for (int repeat = 0; repeat < 3; ++repeat) {
      if (step(mesh, repeat % 2 == 0 ? free : few, what, 10 * repeat)) continue;
      say(fmt::format("{} is wrong", collective_text(what)));
      return 1;
    }
  }
  // Of more than one piece, and of lengths that devices do not divide. Of the second one, only the
  // last of two devices has more than one piece.
  if (!on_gpus()) {
    const Collective sum = kAll[0];
    for (const int64_t many : {(1 << 20) + 7, (1 << 19) + 1})
      if (!step(mesh, load(mesh, sum, many), sum, -500, many)) {
        say("a long all_reduce is wrong");
        return 1;
      }
  }
  say("every collective is right");
  return 0;
}

// ---- Checkpoints --------------------------------------------------------------------------------

/// Whether the shards of this process are the same.
bool are_same(const Array& got, const Array& wanted) {
  const std::vector<Array> a = got.shards(), b = wanted.shards();
  if (a.size() != b.size() || !(got.sharding() == wanted.sharding())) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const HostTensor x = a[i].to_host(), y = b[i].to_host();
    if (x.shape() != y.shape() || !std::ranges::equal(std::span(x.data(), x.size_bytes()),
                                                      std::span(y.data(), y.size_bytes())))
      return false;
  }
  return true;
}

/// Saves arrays over the mesh, loads them over this mesh and another one, and then has one rank
/// that cannot write.
int checkpoint(const Mesh& mesh, const std::string& folder) {
  const std::string index = folder + "/c.safetensors.index.json";
  const Mesh other({{"one", 1}, {"columns", static_cast<int64_t>(mesh.size())}});
  const Array x = Array::from_host(numbers(DType::F32, {8, 4}, 1));
  const Array n = Array::from_host(numbers(DType::I64, {3}, 5));
  const std::map<std::string, Array> arrays = {{"rows", x.to(mesh, sharded("data"))},
                                               {"columns", x.to(mesh, sharded({none, "data"}))},
                                               {"same", n.to(mesh, replicated)}};
  save_checkpoint(index, arrays);
  // Whoever has returned finds all of it.
  const std::map<std::string, Array> whole = load_checkpoint(index, "cpu");
  if (whole.at("rows").to_vector<float>() != x.to_vector<float>() ||
      whole.at("columns").to_vector<float>() != x.to_vector<float>() ||
      whole.at("same").to_vector<int64_t>() != n.to_vector<int64_t>()) {
    say("a whole array is another one");
    return 1;
  }
  const std::map<std::string, Array> again = load_checkpoint(index, arrays);
  for (const auto& [name, array] : arrays)
    if (!are_same(again.at(name), array)) {
      say(name + " has come back as another");
      return 1;
    }
  const Array elsewhere = x.to(other, sharded({none, "columns"}));
  if (!are_same(load_checkpoint(index, {{"rows", elsewhere}}).at("rows"), elsewhere)) {
    say("another mesh has other values");
    return 1;
  }
  const std::string missing = folder + "/missing/c.safetensors.index.json";
  try {
    save_checkpoint(this_rank() == 1 ? missing : folder + "/d.safetensors.index.json", arrays);
    say("nothing failed");
    return 1;
  } catch (const Error& error) {
    say(std::string(error.what()));
  }
  // It may be done again.
  save_checkpoint(folder + "/e.safetensors.index.json", arrays);
  say("every checkpoint is right");
  return 0;
}

// ---- What fails ---------------------------------------------------------------------------------

/// Runs until `act`, called before each call, or a call fails.
template <class Act>
int until_failure(const Mesh& mesh, Act&& act) {
  const Collective what = kAll[0];
  const MeshExecutable run = load(mesh, what);
  try {
    for (int i = 0; i < 200; ++i) {
      act(i);
      if (!step(mesh, run, what, i)) {
        say("a result is wrong");
        return 1;
      }
    }
    say("nothing failed");
    return 0;
  } catch (const Error& error) {
    say(std::string(error.what()));
  }
  // It says the same from then on, and the devices go on.
  try {
    run.run(to_mesh(mesh, inputs_of(mesh, kElements, 0)));
    say("a call after a failure went well");
    return 1;
  } catch (const Error&) {
  }
  for (size_t place = 0; place < mesh.size(); ++place) {
    if (!mesh.is_local(place)) continue;
    const Array x = Array::from_host(numbers(DType::F32, {4}, 1), mesh.devices()[place]);
    if (x.to_vector<float>()[0] != 1) return 1;
  }
  say("goes on");
  return 3;
}

// The other ranks see in the folder STOPS that one is stopped, and say there when it may go on.
std::string file_of_stops(const std::string& name) {
  return std::string(std::getenv("STOPS")) + "/" + name;
}
void make_file(const std::string& path) { close(open(path.c_str(), O_CREAT | O_WRONLY, 0600)); }
bool is_file(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// Has another process stop this one after `seconds`, until it may go on.
void stop_after(int seconds) {
  const std::string stopped = file_of_stops("stopped"), over = file_of_stops("over");
  const pid_t self = getpid();
  if (fork() != 0) return;
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(file);
  sleep(static_cast<unsigned>(seconds));
  kill(self, SIGSTOP);
  make_file(stopped);
  while (getppid() == self && !is_file(over)) usleep(10000);
  kill(self, SIGCONT);
  _exit(0);
}

void await_stop() {
  while (!is_file(file_of_stops("stopped"))) usleep(10000);
}

/// As a program that uses MPI itself does: `level` of threads is asked for.
void begin_mpi(int level) {
  void* const library = dlopen(std::getenv("MPI_LIBRARY"), RTLD_NOW | RTLD_GLOBAL);
  auto* const begin =
      library
          ? reinterpret_cast<int (*)(int*, char***, int, int*)>(dlsym(library, "MPI_Init_thread"))
          : nullptr;
  if (!begin) throw std::runtime_error("no MPI_Init_thread");
  int given = 0;
  begin(nullptr, nullptr, level, &given);
}
void end_mpi() { reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPI_Finalize"))(); }

int run(const std::string& scenario, int each) {
  if (scenario == "own-mpi" || scenario == "own-mpi-of-one-thread") {
    begin_mpi(scenario == "own-mpi" ? 2 : 0);  // MPI_THREAD_SERIALIZED in both implementations
    if (!on_gpus()) set_cpu_device_count(each);
    const Mesh mesh({{"data", rank_count() * each}});
    const int result = collectives(mesh);
    // Calls whose results nobody reads are under way when MPI ends.
    const MeshExecutable run = load(mesh, kAll[0]);
    for (int i = 0; i < 50; ++i) run.run(to_mesh(mesh, inputs_of(mesh, kElements, i)));
    end_mpi();
    return result;
  }
  if (scenario == "ranks") {
    rank_barrier();
    say(fmt::format("of {}", rank_count()));
    return 0;
  }
  if (!on_gpus()) set_cpu_device_count(each);
  const Mesh mesh({{"data", rank_count() * each}});
  const bool guilty = this_rank() == 1;
  if (scenario == "speed") {
    // Of an all_reduce of 64 MiB, the least seen; for people, as no test judges it.
    constexpr int64_t kMany = 16 << 20;
    const MeshExecutable run = load(mesh, kAll[0], kMany);
    const std::vector<std::vector<Array>> arguments = to_mesh(mesh, inputs_of(mesh, kMany, 0));
    double least = 1e9;
    for (int i = 0; i < 8; ++i) {
      rank_barrier();
      const auto start = std::chrono::steady_clock::now();
      wait_for(run.run(arguments));
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      least = std::min(least, time.count());
    }
    say(fmt::format("{:.1f} ms, with two additions of 64 MiB", 1e3 * least));
    return 0;
  }
  if (scenario == "links") {
    say(fmt::format("latency {}", target_of(mesh).link_seconds));
    return 0;
  }
  if (scenario == "collectives") return collectives(mesh);
  if (scenario == "checkpoint") return checkpoint(mesh, std::getenv("CHECKPOINTS"));
  if (scenario == "dies")
    return until_failure(mesh, [&](int i) {
      if (guilty && i == 5) kill(getpid(), SIGKILL);
    });
  if (scenario == "throws")
    return until_failure(mesh, [&](int i) {
      if (guilty && i == 5) throw std::runtime_error("this rank has had enough");
    });
  if (scenario == "ends")
    return until_failure(mesh, [&](int i) {
      if (guilty && i == 5) std::exit(0);
    });
  if (scenario == "unread") {
    // It ends while calls are under way.
    const MeshExecutable run = load(mesh, kAll[0]);
    for (int i = 0; i < 50; ++i) run.run(to_mesh(mesh, inputs_of(mesh, kElements, i)));
    return 0;
  }
  if (scenario == "cannot-join") {
    // NCCL fails on one rank where all of them connect their GPUs.
    if (guilty)
      test::fake_cuda()->failures["nccl init"] = {0, decltype(test::FakeCuda::Failure::result){3}};
    return until_failure(mesh, [](int) {});
  }
  if (scenario == "breaks") {
    // NCCL finds a failure on one rank while an exchange is under way.
    return until_failure(mesh, [&](int i) {
      if (guilty && i == 5)
        test::fake_cuda()->failures["nccl exchange"] = {
            0, decltype(test::FakeCuda::Failure::result){6}, 1};
    });
  }
  if (scenario == "fails") {
    // A device of one rank fails in a call where the others wait for it.
    register_custom_call("test.own", DeviceKind::Cpu, [guilty](const CustomArguments& call) {
      std::ranges::copy(call.operands[0].as<float>(), call.result.as<float>().begin());
      return std::string(guilty ? "it has had enough" : "");
    });
    const Graph graph = parse(
        fmt::format("mesh data: {}\ngraph @g(%x: f32[{}] varying [data]) {{\n"
                    "  %a = custom_call %x {{target: \"test.own\"}} : f32[{}]\n"
                    "  %b = all_reduce sum %a {{over: data}} : f32[{}]\n  return %b as \"b\"\n}}\n",
                    mesh.size(), kElements, kElements, kElements));
    const MeshExecutable run = MeshExecutable::load(
        std::make_shared<const Program>(compile(graph, mesh.devices()[0].target())), mesh);
    return failure_of([&] { wait_for(run.run(to_mesh(mesh, inputs_of(mesh, kElements, 0)))); },
                      "nothing failed");
  }
  if (scenario == "stops") {
    // One rank is stopped when it has begun the call that the others begin later.
    const int status = until_failure(mesh, [&](int i) {
      if (i != 5) return;
      if (guilty)
        stop_after(1);
      else
        await_stop();
    });
    make_file(file_of_stops("over"));
    return status;
  }
  if (scenario == "stops-at-the-end") {
    if (!step(mesh, load(mesh, kAll[0]), kAll[0], 0)) return 1;
    rank_barrier();
    if (guilty) {
      stop_after(0);
      sleep(1);
    } else {
      await_stop();
    }
    return 0;
  }
  if (scenario == "sleeps" || scenario == "oversleeps")
    return until_failure(mesh, [&](int i) {
      const auto time = std::chrono::seconds(scenario == "sleeps" ? 4 : 10);
      if (guilty && i == 5) std::this_thread::sleep_for(time);
    });
  if (scenario == "no-memory") {
    // One rank takes nearly all that its device may have, and the program needs more.
    constexpr int64_t kMany = 8 << 20;
    std::vector<Array> ballast;
    Device mine;
    for (size_t place = 0; place < mesh.size(); ++place)
      if (mesh.is_local(place)) mine = mesh.devices()[place];
    const Collective what = kAll[0];
    const MeshExecutable run = load(mesh, what, kMany);
    const std::vector<std::vector<Array>> arguments = to_mesh(mesh, inputs_of(mesh, kMany, 0));
    try {
      while (guilty) ballast.push_back(Array::from_host(HostTensor(DType::F32, {1 << 20}), mine));
    } catch (const Error&) {
    }
    return failure_of([&] { wait_for(run.run(arguments)); }, "there was memory");
  }
  if (scenario == "differs" || scenario == "shapes" || scenario == "order" || scenario == "known") {
    const MeshExecutable sum = load(mesh, kAll[0]), most = load(mesh, kAll[1]);
    const Values inputs = inputs_of(mesh, kElements, 0);
    const auto call = [&] {
      if (scenario == "differs") {
        (guilty ? most : sum).run(to_mesh(mesh, inputs));
      } else if (scenario == "shapes") {
        const int64_t elements = guilty ? 2 * kElements : kElements;
        load(mesh, kAll[0], elements).run(to_mesh(mesh, inputs_of(mesh, elements, 0)));
      } else {
        // One is known to all, or both; then one rank makes another call than the others.
        step(mesh, sum, kAll[0], 0);
        if (scenario == "known") step(mesh, most, kAll[1], 0);
        wait_for((guilty ? most : sum).run(to_mesh(mesh, inputs)));
      }
    };
    return failure_of(call, "nothing failed");
  }
  if (scenario == "remote") {
    const Array x = Array::from_host(numbers(DType::F32, {8, 2}, 1));
    const Array whole = x.to(mesh, replicated), cut = x.to(mesh, sharded("data"));
    if (whole.to_vector<float>().size() != 16) return 1;
    const std::vector<float> mine = cut.shards()[0].to_vector<float>();
    if (mine.size() != 16 / mesh.size()) return 1;
    try {
      cut.to_host();
      say("remote parts were read");
      return 1;
    } catch (const Error& error) {
      say(std::string(error.what()));
    }
    const auto twice = spmd([](Tensor t) { return t + t; }, mesh,
                            {.in = {sharded("data")}, .out = {sharded("data")}});
    try {
      twice.check(x);
      say("what others computed was judged");
      return 1;
    } catch (const Error& error) {
      say(std::string(error.what()));
    }
    // The devices of this process have the same part.
    const Mesh rows({{"rows", rank_count()}, {"same", each}});
    try {
      x.to(rows, sharded("rows")).to_host();
      say("one part was read as the whole");
      return 1;
    } catch (const Error& error) {
      say(std::string(error.what()));
    }
    return 0;
  }
  say("no such scenario: " + scenario);
  return 2;
}

}  // namespace
}  // namespace braze

int main(int argc, char** argv) {
  try {
    return braze::run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 1);
  } catch (const std::exception& error) {
    std::cout << "failed: " << error.what() << std::endl;
    return 4;
  }
}
