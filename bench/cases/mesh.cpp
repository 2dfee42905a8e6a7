// mesh.cpp — what several devices do together, timed: an all_reduce, a training step, and a block
// whose heads and hidden units are divided. bench/peers/mesh.py does the same with PyTorch, and
// bench/mesh_floors.py runs and compares both.
//
// Beside the training step over several devices it times what the step would take if nothing were
// exchanged (the step of one device, on all devices at once) and the exchange alone. What the
// exchange adds to the step, in its own time, is the share of it that is not hidden.
//
// Usage: bench-mesh all_reduce|training|block DEVICES [DEVICE] [small] [divided] [bytes=NUMBER]
//                   [trace=FILE]
// One process with all devices, or several that meet. With `small` everything is tiny, for tests.
// With `divided`, each device keeps a part of the optimizer's state and updates its part of the
// parameters in the training step.
// NUMBER is the only size of an all_reduce that is timed.
// FILE is for a timeline of three training steps; %p in it is the number of the process.
#include <braze/braze.h>
#include <braze/trace.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using namespace braze;

namespace {

/// Of the transformer that is trained; of each device a batch of its own.
struct Model {
  int64_t layers, width, heads, words, batch, length;
};
constexpr Model kModel = {14, 1024, 16, 16384, 8, 1024};  // 210M parameters
constexpr Model kSmallModel = {1, 16, 2, 32, 2, 8};

/// Of the block: Llama-3 8B's, with as many keys as queries.
struct Block {
  int64_t width, heads, head, hidden, tokens;
};
constexpr Block kBlock = {4096, 32, 128, 14336, 4096};
constexpr Block kSmallBlock = {16, 4, 4, 32, 8};

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;

/// Seconds of one `call`: the median of some runs, each of `calls` calls and a wait for the last.
template <class Call, class Wait>
double time_of(int calls, const Call& call, const Wait& wait) {
  for (int i = 0; i < 3; ++i) call();
  wait();
  std::vector<double> times;
  for (int run = 0; run < 7; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    wait();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count() / calls);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void say(const std::string& what, int64_t devices, double seconds) {
  if (this_rank() == 0)
    std::printf("%s on %d: %.1f us\n", what.c_str(), static_cast<int>(devices), 1e6 * seconds);
}

// --- all_reduce ----------------------------------------------------------------------------------

/// Seconds in which each of so many threads copies memory of so many bytes, which takes as much
/// traffic as an all_reduce of CPU devices needs.
double time_of_copies(int64_t threads, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  const auto count = static_cast<size_t>(threads);
  std::vector<std::vector<char>> from(count, std::vector<char>(size, 1)), to = from;
  return time_of(
      1,
      [&] {
        std::vector<std::thread> copies;
        for (size_t i = 0; i < count; ++i)
          copies.emplace_back([&, i] { std::memcpy(to[i].data(), from[i].data(), size); });
        for (std::thread& copy : copies) copy.join();
      },
      [] {});
}

/// Ones, so many on each device, which makes its own.
Array ones_on_each(const Mesh& mesh, int64_t elements) {
  const auto make = spmd(
      [elements](Tensor one) {
        return broadcast_to(one + 0.0 * cast(axis_index("data"), f32), {elements});
      },
      mesh, {.in = {replicated}, .out = {sharded("data")}});
  return make(ones({}));
}

void time_all_reduce(const Mesh& mesh, bool small, int64_t only) {
  const int64_t devices = mesh.axes()[0].size;
  const bool on_gpus = default_device().kind() == DeviceKind::Cuda;
  const SpmdOptions options{.in = {sharded("data")}, .out = {replicated}};
  // Every call waits for nobody; the last one is waited for.
  for (const int64_t bytes : {kKiB * 8, kMiB, kMiB * 64, kGiB}) {
    if ((small && bytes > kKiB * 8) || (!on_gpus && bytes > kMiB * 64)) break;
    if (only > 0 && bytes != only) continue;
    // The results of calls that are under way have to fit into memory.
    const int calls = static_cast<int>(std::clamp<int64_t>(kGiB / (bytes * devices), 2, 20));
    const Array x = ones_on_each(mesh, bytes / 4);
    const auto sum = spmd([](Tensor y) { return all_reduce(y, "data"); }, mesh, options);
    Array result;
    say("all_reduce of " + std::to_string(bytes) + " bytes, a call", devices,
        time_of(
            calls, [&] { result = sum(x); }, [&] { result.wait(); }));
    say("all_reduce of " + std::to_string(bytes) + " bytes, a call and its wait", devices,
        time_of(
            1, [&] { (result = sum(x)).wait(); }, [] {}));
  }
  if (!on_gpus && !small && rank_count() == 1)
    say("copies of 67108864 bytes, one of each thread", devices,
        time_of_copies(devices, kMiB * 64));
  if (only > 0) return;
  // One after the other within one call, each of half of what came out before.
  constexpr int kInside = 20;
  const auto many = spmd(
      [](Tensor y) {
        for (int i = 0; i < kInside; ++i)
          y = all_reduce(y * (0.5 + 0.0 * cast(axis_index("data"), f32)), "data");
        return y;
      },
      mesh, options);
  const Array x = ones_on_each(mesh, 2048);
  Array result;
  say("all_reduce of 8192 bytes, within a call", devices,
      time_of(
          4, [&] { result = many(x); }, [&] { result.wait(); }) /
          kInside);
}

// --- A training step -----------------------------------------------------------------------------

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t length = q.dim(-2).value(), head = q.dim(-1).value();
  const Tensor scores = cast(einsum("...qe,...ke->...qk", {q, k}), f32) / std::sqrt(double(head));
  const Tensor column = arange(i64, Dim(length)), row = reshape(column, {length, 1});
  const Tensor seen = where(column <= row, scores, -INFINITY);
  return einsum("...qk,...ke->...qe", {cast(nn::softmax(seen), v.dtype()), v});
}

Tensor layer(const Weights& w, const Tensor& x, int64_t heads) {
  const int64_t width = x.dim(-1).value();
  const Tensor h = nn::layer_norm(x, w["norm1.scale"], w["norm1.shift"]);
  const auto projected = [&](const char* name) {
    return transpose(reshape(dot(h, w[name]), {x.dim(0), x.dim(1), heads, width / heads}), 1, 2);
  };
  const Tensor mixed = transpose(attention(projected("q"), projected("k"), projected("v")), 1, 2);
  const Tensor y = x + dot(reshape(mixed, x.shape()), w["o"]);
  const Tensor n = nn::layer_norm(y, w["norm2.scale"], w["norm2.shift"]);
  return y + dot(gelu(dot(n, w["up"])), w["down"]);
}

Parameters parameters_of(const Model& m) {
  const random::Key key(1);
  uint64_t n = 0;
  const auto normal = [&](std::vector<int64_t> shape) {
    return random::normal(std::move(shape), key.fold_in(n++), 0, 0.02, bf16);
  };
  const auto fill = [&](double value) { return full({m.width}, value, bf16); };
  Parameters all{{"words", normal({m.words, m.width})},
                 {"places", normal({m.length, m.width})},
                 {"norm.scale", fill(1)},
                 {"norm.shift", fill(0)},
                 {"out", normal({m.width, m.words})}};
  for (int64_t i = 0; i < m.layers; ++i)
    all.add("layer" + std::to_string(i), Parameters{{"norm1.scale", fill(1)},
                                                    {"norm1.shift", fill(0)},
                                                    {"q", normal({m.width, m.width})},
                                                    {"k", normal({m.width, m.width})},
                                                    {"v", normal({m.width, m.width})},
                                                    {"o", normal({m.width, m.width})},
                                                    {"norm2.scale", fill(1)},
                                                    {"norm2.shift", fill(0)},
                                                    {"up", normal({m.width, 4 * m.width})},
                                                    {"down", normal({4 * m.width, m.width})}});
  return all;
}

/// Seconds in which all devices do the step of one device at the same time. It uses up `w`. What
/// this takes longer than on one device alone is no communication's fault: devices of one host
/// share its power, its memory and the thread that submits.
template <class Step>
double time_apart(const Mesh& mesh, const Step& step, const Parameters& w, const Array& words) {
  struct One {
    Device device;
    Parameters w, state;
    Array words, loss;
  };
  std::vector<One> all;
  for (size_t place = 0; place < mesh.size(); ++place) {
    if (!mesh.is_local(place)) continue;
    const Device device = mesh.devices()[place];
    const auto there = [&device](const Array& x) { return x.to(device); };
    all.push_back({device, w.map(there), optim::adamw_state(w).map(there), there(words), {}});
  }
  const auto one = jit(step, donate{0, 1});
  return time_of(
      3,
      [&] {
        for (One& d : all) {
          const DeviceGuard guard(d.device);
          std::tie(d.w, d.state, d.loss) = one(d.w, d.state, d.words, d.words);
        }
      },
      [&] {
        for (const One& d : all) d.loss.wait();
      });
}

/// Seconds in which gradients of all parameters are averaged, with nothing beside.
double time_exchange(const Mesh& mesh, const Parameters& w) {
  const int64_t devices = mesh.axes()[0].size;
  const Parameters gradients = w.map([&](const Array& x) {
    std::vector<int64_t> shape = x.shape();
    shape[0] *= devices;
    return zeros(shape, x.dtype()).to(mesh, sharded("data"));
  });
  const auto mean = spmd(
      [](const Weights& g) {
        return g.map([](const Tensor& x) { return all_reduce(x, "data", Reduction::Mean); });
      },
      mesh, {.in = {sharded("data")}, .out = {replicated}});
  Parameters result;
  return time_of(
      3, [&] { result = mean(gradients); },
      [&] {
        for (const auto& [name, value] : result) value.wait();
      });
}

/// The same with a part of each matrix on each device. Vectors are too small for that.
Parameters divided_matrices(const Mesh& mesh, const Parameters& all) {
  return all.map([&](const Array& x) {
    return x.to(mesh, x.shape().size() > 1 ? sharded("data") : replicated);
  });
}

void time_training(const Mesh& mesh, const Model& m, bool divided, const std::string& trace) {
  const int64_t devices = mesh.axes()[0].size;
  const auto loss_of = [m](Weights w, Tensor words, Tensor next) {
    Tensor x = nn::embedding(w["words"], words) + w["places"];
    for (int64_t i = 0; i < m.layers; ++i)
      x = layer(w.group("layer" + std::to_string(i)), x, m.heads);
    x = nn::layer_norm(x, w["norm.scale"], w["norm.shift"]);
    return nn::cross_entropy(cast(dot(x, w["out"]), f32), next);
  };
  const auto step = [loss_of](Weights w, Weights state, Tensor words, Tensor next) {
    const auto [loss, gradient] = value_and_grad(loss_of)(w, words, next);
    const auto [updated, moments] = optim::adamw(w, gradient, state, {.learning_rate = 3e-4});
    return std::tuple{updated, moments, loss};
  };
  Parameters w = parameters_of(m), state = optim::adamw_state(w);
  int64_t count = 0;
  for (const auto& [name, value] : w) count += value.numel();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < devices * m.batch * m.length; ++i) ids.push_back(i * 7919 % m.words);
  const Array words = Array::from(ids, {devices * m.batch, m.length});
  Array loss;
  const auto run = [&](const auto& one, const Array& x) {
    const double seconds = time_of(
        3, [&] { std::tie(w, state, loss) = one(w, state, x, x); }, [&] { loss.wait(); });
    say("training step of " + std::to_string(count) + " parameters", devices, seconds);
    if (this_rank() == 0) std::printf("  loss %.3f\n", loss.item());
    if (trace.empty()) return;
    rank_barrier();
    start_trace(trace);
    for (int i = 0; i < 3; ++i) std::tie(w, state, loss) = one(w, state, x, x);
    loss.wait();
    stop_trace();
  };
  if (devices == 1) return run(jit(step, donate{0, 1}), words);
  if (divided) {
    state = divided_matrices(mesh, state);
    return run(distribute(step, mesh,
                          {.in = {replicated, std::nullopt, sharded("data"), sharded("data")},
                           .donate = {0, 1}}),
               words.to(mesh, sharded("data")));
  }
  const Parameters first = parameters_of(m);
  run(data_parallel(step, mesh, {.batch = {2, 3}, .donate = {0, 1}}),
      words.to(mesh, sharded("data")));
  w = state = {};
  say("its communication alone", devices, time_exchange(mesh, first));
  say("the same step without communication", devices,
      time_apart(mesh, step, first,
                 Array::from(std::vector<int64_t>(ids.begin(), ids.begin() + m.batch * m.length),
                             {m.batch, m.length})));
}

// --- A block whose heads and hidden units are divided --------------------------------------------

void time_block(const Mesh& mesh, const Block& b) {
  const random::Key key(2);
  uint64_t n = 0;
  const auto normal = [&](std::vector<int64_t> shape) {
    return random::normal(std::move(shape), key.fold_in(n++), 0, 0.02, bf16);
  };
  const Parameters all{
      {"norm1", full({b.width}, 1.0, bf16)},     {"q", normal({b.width, b.heads, b.head})},
      {"k", normal({b.width, b.heads, b.head})}, {"v", normal({b.width, b.heads, b.head})},
      {"o", normal({b.heads, b.head, b.width})}, {"norm2", full({b.width}, 1.0, bf16)},
      {"gate", normal({b.width, b.hidden})},     {"up", normal({b.width, b.hidden})},
      {"down", normal({b.hidden, b.width})}};
  const auto block = [](Weights w, Tensor x) {
    const Tensor h = nn::rms_norm(x, w["norm1"]);
    const auto heads = [&](const char* name) { return einsum("sd,dhe->hse", {h, w[name]}); };
    const Tensor mixed = attention(heads("q"), heads("k"), heads("v"));
    const Tensor y = x + einsum("hqe,hed->qd", {mixed, w["o"]});
    const Tensor g = nn::rms_norm(y, w["norm2"]);
    return y + dot(silu(dot(g, w["gate"])) * dot(g, w["up"]), w["down"]);
  };
  const int64_t devices = mesh.axes()[0].size;
  const Array x = normal({b.tokens, b.width});
  Array result;
  const auto run = [&](const auto& one, const Parameters& w, const Array& from) {
    say("block of " + std::to_string(b.width) + ", " + std::to_string(b.tokens) + " tokens",
        devices,
        time_of(
            10, [&] { result = one(w, from); }, [&] { result.wait(); }));
  };
  if (devices == 1) return run(jit(block), all, x);
  Parameters parts;
  for (const auto& [name, value] : all) {
    const bool by_columns =
        name == "q" || name == "k" || name == "v" || name == "gate" || name == "up";
    const bool by_rows = name == "o" || name == "down";
    parts.add(name, value.to(mesh, by_columns ? sharded({none, "data"})
                                   : by_rows  ? sharded("data")
                                              : replicated));
  }
  run(distribute(block, mesh), parts, x.to(mesh, replicated));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string work = argc > 1 ? argv[1] : "";
    const int64_t devices = argc > 2 ? std::atoll(argv[2]) : 1;
    const DeviceGuard guard(argc > 3 ? Device(argv[3]) : default_device());
    bool small = false, divided = false;
    int64_t only = 0;
    std::string trace;
    for (int i = 4; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "small") small = true;
      if (word == "divided") divided = true;
      if (word.starts_with("bytes=")) only = std::atoll(word.substr(6).c_str());
      if (word.starts_with("trace=")) trace = word.substr(6);
    }
    if (default_device().kind() == DeviceKind::Cpu) set_cpu_device_count(static_cast<int>(devices));
    const Mesh mesh({{"data", devices}});
    if (work == "all_reduce") {
      time_all_reduce(mesh, small, only);
    } else if (work == "training") {
      time_training(mesh, small ? kSmallModel : kModel, divided, trace);
    } else if (work == "block") {
      time_block(mesh, small ? kSmallBlock : kBlock);
    } else {
      std::cerr << "usage: bench-mesh all_reduce|training|block DEVICES [DEVICE] [small] [divided] "
                   "[bytes=NUMBER] [trace=FILE]\n";
      return 2;
    }
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
