// A small transformer learns to write like a text, character by character, and then writes. One
// compiled function is a whole step of training: forward, gradients, clipping, AdamW, in place.
// Writing keeps the keys and values of what was written in a cache.
// Usage: transformer [--device NAME] [--text FILE] [--steps N] [--rate R] [--seed N]
// [--prompt TEXT] [--characters N] [--temperature T]
#include <braze/braze.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "model_tool.h"

using namespace braze;

namespace {

// pytorch.py has the same model.
constexpr int64_t kWidth = 64, kHeads = 4, kBlocks = 2, kContext = 64, kBatch = 32;
constexpr int64_t kDefaultSteps = 400;

struct Options {
  Device device = default_device();
  std::string text = TEXT_FILE;
  int64_t steps = kDefaultSteps;
  double rate = 4e-3;  // after the warmup; then it falls along half a cosine
  uint64_t seed = 1;
  std::string prompt = "The ";
  int64_t characters = 200;  // to write
  double temperature = 0.5;  // 0: always the likeliest character
};

Options parse(int argc, char** argv) {
  Options options;
  model_tool::Options reader(
      "transformer [--device NAME] [--text FILE] [--steps N] [--rate R] [--seed N] [--prompt TEXT] "
      "[--characters N] [--temperature T]");
  reader.add("--device", options.device);
  reader.add("--text", options.text);
  reader.add("--steps", options.steps);
  reader.add("--rate", options.rate);
  reader.add("--seed", options.seed);
  reader.add("--prompt", options.prompt);
  reader.add("--characters", options.characters);
  reader.add("--temperature", options.temperature);
  if (!reader.read(argc, argv).empty()) reader.fail();
  if (options.steps < 1) throw std::runtime_error("--steps is at least 1");
  return options;
}

// ---- The text -----------------------------------------------------------------------------------

/// A text as numbers: its characters are the bytes that occur in it.
class Text {
 public:
  explicit Text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (static_cast<int64_t>(text.size()) < 20 * kContext)
      throw std::runtime_error(path + " cannot be read or is too short");
    characters_ = text;
    std::ranges::sort(characters_);
    characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
    ids_ = encode(text);
    held_out_ = static_cast<int64_t>(ids_.size()) / 10;
  }

  int64_t characters() const { return static_cast<int64_t>(characters_.size()); }
  char character(int32_t id) const { return characters_[static_cast<size_t>(id)]; }
  std::vector<int32_t> encode(const std::string& text) const {
    std::vector<int32_t> out;
    for (const char c : text) {
      const size_t id = characters_.find(c);
      if (id == std::string::npos)
        throw std::runtime_error(std::string("the text has no character '") + c + "'");
      out.push_back(static_cast<int32_t>(id));
    }
    return out;
  }

  /// Pieces of random places [kBatch, kContext + 1]: each character's successor is its label.
  Array batch(std::mt19937_64& random) const {
    const auto places = static_cast<uint64_t>(trained() - kContext);
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < kBatch; ++i) starts.push_back(static_cast<int64_t>(random() % places));
    return pieces(starts);
  }
  /// The last tenth of the text, which is not trained on: pieces one behind the other.
  Array held_out() const {
    std::vector<int64_t> starts;
    for (int64_t at = trained(); at + kContext < static_cast<int64_t>(ids_.size()); at += kContext)
      starts.push_back(at);
    return pieces(starts);
  }

 private:
  int64_t trained() const { return static_cast<int64_t>(ids_.size()) - held_out_; }
  Array pieces(const std::vector<int64_t>& starts) const {
    std::vector<int32_t> out;
    for (const int64_t start : starts)
      out.insert(out.end(), ids_.begin() + start, ids_.begin() + start + kContext + 1);
    return Array::from(out, {static_cast<int64_t>(starts.size()), kContext + 1});
  }

  std::string characters_;
  std::vector<int32_t> ids_;
  int64_t held_out_ = 0;
};

// ---- The model ----------------------------------------------------------------------------------

const nn::MultiHeadOptions kAttention{
    .heads = kHeads, .rope = nn::RopeOptions{}, .attention = {.causal = true}};

Parameters norm_parameters() { return {{"scale", ones({kWidth})}, {"shift", zeros({kWidth})}}; }

Parameters make_parameters(int64_t characters, random::Key key) {
  Parameters out = {
      {"embedding", init::normal(0.02)({characters, kWidth}, f32, key.fold_in("embedding"))}};
  for (int64_t i = 0; i < kBlocks; ++i) {
    const std::string block = "block" + std::to_string(i);
    const random::Key own = key.fold_in(block);
    out.add(block + ".attention_norm", norm_parameters());
    out.add(block + ".attention",
            nn::multi_head_attention_parameters(kWidth, kHeads, own.fold_in("attention")));
    out.add(block + ".mlp_norm", norm_parameters());
    out.add(block + ".mlp", nn::mlp_parameters({kWidth, 4 * kWidth, kWidth}, own.fold_in("mlp"),
                                               init::xavier_uniform()));
  }
  out.add("norm", norm_parameters());
  out.add("head", nn::linear_parameters(kWidth, characters, key.fold_in("head")));
  return out;
}

Tensor norm(const Weights& layer, const Tensor& x) {
  return nn::layer_norm(x, layer.at("scale"), layer.at("shift"));
}

/// The scores [..., n, characters] of what follows each of `ids` [..., n]. `attend` is the
/// attention of a block, given its number, its parameters and its input.
template <class Attend>
Tensor scores_of(const Weights& w, const Tensor& ids, Attend attend) {
  Tensor x = nn::embedding(w.at("embedding"), ids);
  for (int64_t i = 0; i < kBlocks; ++i) {
    const Weights block = w.group("block" + std::to_string(i));
    x += attend(i, block.group("attention"), norm(block.group("attention_norm"), x));
    x += nn::mlp(block.group("mlp"), norm(block.group("mlp_norm"), x),
                 [](Tensor h) { return gelu(h); });
  }
  return nn::linear(w.group("head"), norm(w.group("norm"), x));
}

Tensor scores_of(const Weights& w, const Tensor& ids) {
  return scores_of(w, ids, [](int64_t, const Weights& layer, const Tensor& x) {
    return nn::multi_head_attention(layer, x, kAttention);
  });
}

/// The mean loss of pieces [count, kContext + 1].
Tensor loss_of(const Weights& w, const Tensor& pieces) {
  return nn::cross_entropy(scores_of(w, slice(pieces, 1, 0, kContext)),
                           slice(pieces, 1, 1, kContext + 1));
}

/// (parameters, state, pieces, rate) -> the first two moved on, and the loss.
auto make_step() {
  return jit(
      [](Weights parameters, Weights state, Tensor pieces, Tensor rate) {
        const auto [loss, gradients] = value_and_grad(loss_of)(parameters, pieces);
        const auto [updated, next] =
            optim::adamw(parameters, optim::clip_by_global_norm(gradients, 1.0), state,
                         {.learning_rate = rate, .beta2 = 0.99});
        return std::tuple{updated, next, loss};
      },
      {.name = "training_step", .donate = {0, 1}});
}

// ---- Writing ------------------------------------------------------------------------------------

template <class T>
using Cache = std::vector<nn::KeyValueCache<T>>;  // of each block

/// (parameters, cache, ids [n], position [1], temperature [1], key) -> the cache with n rows more,
/// the scores [characters] of what follows the last of `ids`, and a choice [1]. With a temperature
/// above 0 it is drawn: the greatest of the scores with Gumbel noise on each is distributed as
/// their softmax.
auto make_write() {
  return jit(
      [](Weights w, Cache<Tensor> cache, Tensor ids, Tensor position, Tensor temperature,
         Tensor key) {
        Cache<Tensor> updated(cache.size());
        const auto attend = [&](int64_t i, const Weights& layer, const Tensor& x) {
          nn::MultiHeadOptions options = kAttention;
          options.attention.position = position;
          const auto block = static_cast<size_t>(i);
          const auto out = nn::multi_head_attention(layer, x, cache[block], options);
          updated[block] = out.cache;
          return out.value;
        };
        const Tensor scores = scores_of(w, ids, attend)[-1];
        const Tensor chance = random::uniform(random::fold_in(key, position), scores.shape());
        const Tensor drawn = scores / maximum(temperature, 1e-6) - log(-log(chance));
        const Tensor best = argmax(where(temperature > 0, drawn, scores));
        return std::tuple{updated, scores, cast(reshape(best, {1}), i32)};
      },
      {.name = "write", .donate = {1}});
}

class Writer {
 public:
  Writer(const Parameters& parameters, const Options& options)
      : parameters_(parameters), options_(options), write_(make_write()) {
    for (int64_t i = 0; i < kBlocks; ++i)
      cache_.push_back(nn::key_value_cache({kContext, kHeads, kWidth / kHeads}));
  }

  /// `prompt` and what follows it. When the cache is full, half of it is read again: the model has
  /// learned no longer texts.
  std::vector<int32_t> continue_from(std::vector<int32_t> prompt) {
    const size_t length = prompt.size() + static_cast<size_t>(options_.characters);
    std::vector<int32_t> out = std::move(prompt), next = last(out, kContext / 2);
    while (out.size() < length) {
      if (position_ + static_cast<int64_t>(next.size()) > kContext) {
        position_ = 0;
        next = last(out, kContext / 2);
      }
      next = read(next);
      out.push_back(next[0]);
    }
    return out;
  }

  /// How far the scores of what follows `ids`, read one by one into the cache, are from those of
  /// the model without a cache. 1 is a lot.
  double error_of_cache(const std::vector<int32_t>& ids) {
    position_ = 0;
    for (const int32_t id : ids) read({id});
    const std::vector<float> got = scores_.to_vector<float>();
    const auto whole = jit([](Weights w, Tensor all) { return scores_of(w, all)[-1]; });
    const std::vector<float> expected = whole(parameters_, array(ids)).to_vector<float>();
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
    return worst;
  }

 private:
  static std::vector<int32_t> last(const std::vector<int32_t>& ids, int64_t count) {
    return {ids.end() - std::min<int64_t>(count, static_cast<int64_t>(ids.size())), ids.end()};
  }
  static Array array(const std::vector<int32_t>& ids) {
    return Array::from(ids, {static_cast<int64_t>(ids.size())});
  }
  std::vector<int32_t> read(const std::vector<int32_t>& ids) {
    Array chosen;
    std::tie(cache_, scores_, chosen) =
        write_(parameters_, cache_, array(ids), full({1}, static_cast<double>(position_), i32),
               temperature_, key_);
    position_ += static_cast<int64_t>(ids.size());
    return chosen.to_vector<int32_t>();
  }

  const Parameters& parameters_;
  const Options& options_;
  decltype(make_write()) write_;
  Cache<Array> cache_;
  int64_t position_ = 0;
  Array temperature_ = full({1}, options_.temperature), key_ = random::Key(options_.seed).array();
  Array scores_;
};

int run(const Options& options) {
  const DeviceGuard guard(options.device);
  const Text text(options.text);
  const std::vector<int32_t> prompt = text.encode(options.prompt);
  if (prompt.empty()) throw std::runtime_error("--prompt has at least one character");

  const auto step = make_step();
  const auto evaluate = jit(loss_of);
  Parameters parameters = make_parameters(text.characters(), random::Key(options.seed)),
             state = optim::adamw_state(parameters);
  const double before = evaluate(parameters, text.held_out()).item();
  std::printf("%lld different characters, loss of the held-out tenth before %.3f\n",
              static_cast<long long>(text.characters()), before);
  std::mt19937_64 random(options.seed);
  const int64_t warmup = std::min<int64_t>(50, options.steps);
  const auto rate = optim::warmup(
      warmup, optim::cosine(options.rate, std::max<int64_t>(options.steps - warmup, 1)));
  const auto start = std::chrono::steady_clock::now();
  Array loss;
  for (int64_t i = 0; i < options.steps; ++i) {
    std::tie(parameters, state, loss) = step(parameters, state, text.batch(random), rate(i));
    if ((i + 1) % 100 == 0 || i + 1 == options.steps)
      std::printf("step %4lld  loss %.3f\n", static_cast<long long>(i + 1), loss.item());
    std::fflush(stdout);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double after = evaluate(parameters, text.held_out()).item();
  const CompileSummary summary = step.summary();
  std::printf("loss of the held-out tenth after %.3f\n", after);
  std::printf("a step: %d ops in %d kernels, %.2f ms with reading and compiling\n", summary.ops,
              summary.kernels, 1e3 * seconds / static_cast<double>(options.steps));

  Writer writer(parameters, options);
  const std::vector<int32_t> written = writer.continue_from(prompt);
  std::printf("\n");
  for (const int32_t id : written) std::putchar(text.character(id));
  std::printf("\n\n");
  const auto count = std::min<int64_t>(kContext, static_cast<int64_t>(written.size()));
  const double error = writer.error_of_cache({written.begin(), written.begin() + count});
  std::printf("scores with a cache and without differ by at most %.1e\n", error);
  // What the default text and number of steps reach with any seed.
  const bool learned = options.text != TEXT_FILE || options.steps < kDefaultSteps || after < 2.0;
  return learned && after < before && error < 1e-3 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "transformer: " << error.what() << "\n";
    return 1;
  }
}
