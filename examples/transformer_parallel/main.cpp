// A small transformer that learns sequences, on one device and over a mesh of data x model: the
// batch is cut along "data", heads and hidden units along "model". The function is the same; only
// the arguments say how they are spread. Usage: transformer_parallel [DATA [MODEL [DEVICE
// [STEPS]]]]
#include <braze/braze.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

using namespace braze;

namespace {

constexpr int64_t kLayers = 2, kWidth = 32, kHeads = 4, kHidden = 64, kWords = 16;
constexpr int64_t kBatch = 16, kLength = 12;
constexpr int kSteps = 60;

Tensor block(Weights w, Tensor x) {
  const Tensor h = nn::layer_norm(x, w["norm1.scale"], w["norm1.shift"]);
  const auto heads = [&](const char* name) { return einsum("bsd,dhe->bhse", {h, w[name]}); };
  const Tensor scores =
      einsum("bhqe,bhke->bhqk", {heads("q"), heads("k")}) / std::sqrt(double(kWidth) / kHeads);
  const Tensor column = arange(i64, Dim(kLength)), row = reshape(column, {kLength, 1});
  const Tensor seen = where(column <= row, scores, -1e9);  // nothing of what comes later
  const Tensor mixed = einsum("bhqk,bhke->bhqe", {nn::softmax(seen), heads("v")});
  const Tensor y = x + einsum("bhqe,hed->bqd", {mixed, w["o"]});
  const Tensor n = nn::layer_norm(y, w["norm2.scale"], w["norm2.shift"]);
  return y + dot(gelu(dot(n, w["up"])), w["down"]);
}

Tensor loss_of(Weights w, Tensor words) {
  const Tensor before = words[{ellipsis, Slice(0, kLength)}],
               next = words[{ellipsis, Slice(1, kLength + 1)}];
  Tensor x = nn::embedding(w["words"], before) + w["places"];
  for (int64_t layer = 0; layer < kLayers; ++layer)
    x = block(w.group("layer" + std::to_string(layer)), x);
  return nn::cross_entropy(dot(x, w["out"]), next);
}

std::pair<Weights, Tensor> step(Weights w, Tensor words) {
  const auto [loss, gradient] = value_and_grad(loss_of)(w, words);
  return {optim::sgd(w, gradient, {.learning_rate = 0.2}), loss};
}

Parameters parameters() {
  const random::Key key(1);
  uint64_t n = 0;
  const auto normal = [&](std::vector<int64_t> shape, int64_t inputs) {
    return random::normal(std::move(shape), key.fold_in(n++), 0, 1 / std::sqrt(double(inputs)));
  };
  const int64_t head = kWidth / kHeads;
  Parameters all{{"words", normal({kWords, kWidth}, 1)},
                 {"places", normal({kLength, kWidth}, 4)},
                 {"out", normal({kWidth, kWords}, kWidth)}};
  for (int64_t layer = 0; layer < kLayers; ++layer)
    all.add("layer" + std::to_string(layer),
            Parameters{{"norm1.scale", ones({kWidth})},
                       {"norm1.shift", zeros({kWidth})},
                       {"q", normal({kWidth, kHeads, head}, kWidth)},
                       {"k", normal({kWidth, kHeads, head}, kWidth)},
                       {"v", normal({kWidth, kHeads, head}, kWidth)},
                       {"o", normal({kHeads, head, kWidth}, kWidth)},
                       {"norm2.scale", ones({kWidth})},
                       {"norm2.shift", zeros({kWidth})},
                       {"up", normal({kWidth, kHidden}, kWidth)},
                       {"down", normal({kHidden, kWidth}, kHidden)}});
  return all;
}

/// Which axis of the mesh cuts which axis of a parameter.
Sharding sharding_of(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  if (last == "q" || last == "k" || last == "v" || last == "up") return sharded({none, "model"});
  if (last == "o" || last == "down") return sharded("model");
  return replicated;
}

/// Sequences in which each word follows from the one before.
Array sequences() {
  std::vector<int64_t> words;
  for (int64_t i = 0; i < kBatch; ++i)
    for (int64_t place = 0, word = i % kWords; place <= kLength; ++place) {
      words.push_back(word);
      word = (5 * word + 3) % kWords;
    }
  return Array::from(words, {kBatch, kLength + 1}, default_device());
}

template <class Step>
std::vector<double> train(const Step& one, Parameters w, const Array& words, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    Array loss;
    std::tie(w, loss) = one(w, words);
    losses.push_back(loss.item());
  }
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int data = argc > 1 ? std::atoi(argv[1]) : 2, model = argc > 2 ? std::atoi(argv[2]) : 2;
    if (data < 1 || model < 1) {
      std::cerr << "usage: transformer_parallel [DATA [MODEL [DEVICE [STEPS]]]]\n";
      return 2;
    }
    const int given = argc > 4 ? std::atoi(argv[4]) : 0, steps = given > 0 ? given : kSteps;
    const DeviceGuard guard(argc > 3 ? Device(argv[3]) : default_device());
    if (default_device().kind() == DeviceKind::Cpu) set_cpu_device_count(data * model);
    const Mesh mesh({{"data", data}, {"model", model}});

    const Parameters start = parameters();
    Parameters spread;
    for (const auto& [name, value] : start) spread.add(name, value.to(mesh, sharding_of(name)));
    const Array words = sequences();
    const auto on_mesh = distribute(step, mesh, {.in = {std::nullopt, sharded("data")}});

    const std::vector<double> alone = train(jit(step), start, words, steps),
                              together = train(on_mesh, spread, words, steps);
    bool same = true;
    for (int i = 0; i < steps; ++i) {
      same &= std::abs(together[i] - alone[i]) < 1e-3 * std::abs(alone[i]) + 1e-4;
      if (i % 10 == 9 || i == 0)
        std::cout << "step " << i + 1 << ": loss " << together[i] << " on " << mesh.to_string()
                  << ", " << alone[i] << " on one device\n";
    }
    const std::string text = on_mesh.explain();
    std::cout << text.substr(0, text.find("\n\n")) << "\n";
    const bool learned = together.back() < (steps < kSteps ? 1 : 0.5) * together.front();
    std::cout << "as on one device: " << (same ? "yes" : "no")
              << ", it learned: " << (learned ? "yes" : "no") << "\n";
    bool right = true;
    if (mesh.is_local()) {  // the interpreter needs the parts of all devices
      // One block and a few sequences: bounds of errors through several blocks would say nothing.
      const auto one = distribute(block, mesh, {.in = {std::nullopt, sharded("data")}});
      const Array x = random::normal({2 * data, kLength, kWidth}, random::Key(2));
      right = one.check(spread.group("layer0"), x).ok;
      std::cout << "as the interpreter says: " << (right ? "yes" : "no") << "\n";
    }
    return same && learned && right ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
