// decoder.h — a language model on a device, with the keys and values of the tokens that it has
// seen.
#pragma once

#include <braze/braze.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "llama.h"

namespace llama {

/// (weights, caches, ids [n], start [1], temperature [1], key) -> (caches, position [1] behind the
/// tokens, scores, next). With a temperature above 0, `next` is drawn: the greatest of the scores
/// with Gumbel noise on each is distributed as their softmax.
inline auto make_step(const Sizes& sizes, int64_t context, bool one_token) {
  const Dim n = one_token ? Dim(1) : Dim(("n:1.." + std::to_string(context)).c_str());
  return jit(
      [sizes](Weights<Tensor> weights, std::vector<Cache<Tensor>> caches, Tensor ids, Tensor start,
              Tensor temperature, Tensor key) {
        auto [scores, updated] = forward(weights, caches, ids, start, sizes);
        const Tensor position = start + cast(count(ids, 0, i64), i32);
        const Tensor chance =
            random::uniform(random::fold_in(key, reshape(position, {})), scores.shape());
        const Tensor drawn = scores / maximum(temperature, 1e-6) - log(-log(chance));
        const Tensor best = argmax(where(temperature > 0, drawn, scores));
        return std::tuple{updated, position, scores, cast(reshape(best, {1}), i32)};
      },
      {as_given, as_given, spec(i32, {n})},
      {.name = one_token ? "decode" : "prompt",
       .inputs = {"weights", "caches", "ids", "start", "temperature", "key"}});
}

struct DecoderOptions {
  int64_t context = 2048;  ///< the most tokens
  double temperature = 0;  ///< 0: always the likeliest token
  uint64_t seed = 1;
  Device device = default_device();
};

class Decoder {
 public:
  Decoder(const Sizes& sizes, Weights<Array> weights, const DecoderOptions& options)
      : device_(options.device),
        context_(std::min(options.context, sizes.context)),
        weights_(std::move(weights)),
        caches_(make_caches(sizes, context_, device_)),
        temperature_(full({1}, options.temperature, f32, device_)),
        key_(random::Key(options.seed).array(device_)),
        prompt_(make_step(sizes, context_, false)),
        decode_(make_step(sizes, context_, true)) {
    forget();
  }

  /// How many tokens may still be added.
  int64_t room() const { return context_ - count_; }

  /// Begins anew.
  void forget() {
    count_ = 0;
    start_ = zeros({1}, i32, device_);
  }

  /// Adds these tokens.
  void add(const std::vector<int32_t>& ids) {
    take(Array::from(ids, {static_cast<int64_t>(ids.size())}, device_));
  }
  /// Adds the token that the device chose. The host need not know it yet: it can read the token
  /// while the device already works on the one after it.
  void add_chosen() { take(chosen_); }
  /// Takes back the last token, if it was added alone. Its row of the caches is written again.
  void take_back() {
    --count_;
    start_ = before_;
  }

  /// The scores of what comes next, one for each token, and the token [1] that the device chose.
  const Array& scores() const { return scores_; }
  const Array& chosen() const { return chosen_; }

 private:
  void take(const Array& tokens) {
    const int64_t count = tokens.numel();
    count_ += count;
    before_ = start_;
    const auto run = [&](const auto& step) {
      std::tie(caches_, start_, scores_, chosen_) =
          step(weights_, caches_, tokens, start_, temperature_, key_);
    };
    if (count == 1)
      run(decode_);
    else
      run(prompt_);
  }

  Device device_;
  int64_t context_;
  int64_t count_ = 0;
  Weights<Array> weights_;
  std::vector<Cache<Array>> caches_;
  Array temperature_, key_, start_, before_, scores_, chosen_;
  decltype(make_step({}, 0, false)) prompt_, decode_;
};

}  // namespace llama
