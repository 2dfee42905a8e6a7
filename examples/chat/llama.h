// llama.h — a language model of the Llama family, from a .gguf file: its weights, and one step of
// it.
//
// Weights stay quantised in memory; the kernels of the products expand them. Keys and values of
// all tokens so far are kept in arrays of a fixed capacity that each step takes over and writes
// rows of.
#pragma once

#include <braze/braze.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace llama {

using namespace braze;

/// A matrix [in, out]: blocks, or plain numbers where the file has such.
template <class T>
struct Weight {
  std::vector<Quantized<T>> blocks;
  std::vector<T> plain;
};
BRAZE_TREE(Weight, blocks, plain)

template <class T>
struct Layer {
  T attention_norm, mlp_norm;
  std::vector<Weight<T>> attention;  // side by side: of queries, keys and values
  Weight<T> output, gate, up, down;
};
BRAZE_TREE(Layer, attention_norm, mlp_norm, attention, output, gate, up, down)

template <class T>
struct Weights {
  std::vector<Layer<T>> layers;
  Weight<T> embedding;             // [width, tokens]
  std::vector<Weight<T>> unembed;  // none: the embedding serves
  T norm;
};
BRAZE_TREE(Weights, layers, embedding, unembed, norm)

/// Keys and values [capacity, kv_heads, head] of one layer.
template <class T>
using Cache = nn::KeyValueCache<T>;

struct Sizes {
  int64_t layers, width, heads, kv_heads, head, tokens, context;
  double epsilon, base;  // of the norms; of the angles of positions
};

inline Sizes sizes_of(const GgufFile& file) {
  const std::string name = file.string("general.architecture");
  if (name != "llama") throw std::runtime_error(file.path() + " is of the family " + name);
  const auto whole = [&](const char* key) { return file.integer("llama." + std::string(key)); };
  const int64_t width = whole("embedding_length"), heads = whole("attention.head_count");
  return {.layers = whole("block_count"),
          .width = width,
          .heads = heads,
          .kv_heads = whole("attention.head_count_kv"),
          .head = width / heads,
          .tokens = file.tensor("token_embd.weight").shape.at(0),
          .context = whole("context_length"),
          .epsilon = file.number("llama.attention.layer_norm_rms_epsilon"),
          .base = file.has("llama.rope.freq_base") ? file.number("llama.rope.freq_base") : 10000};
}

// ---- Weights ------------------------------------------------------------------------------------

/// Where a file's rows of a head go: llama.cpp has the two parts of each rotated pair side by side
/// (RopePairs::Neighbours); here all first parts stand before all second ones (Halves), which
/// vectors take as they are.
inline std::vector<int64_t> halves(int64_t heads, int64_t size) {
  std::vector<int64_t> order;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t part = 0; part < 2; ++part)
      for (int64_t i = 0; i < size / 2; ++i) order.push_back(h * size + 2 * i + part);
  return order;
}

inline Weight<Array> load(const GgufFile& file, const std::string& name, const Device& device,
                          const std::vector<int64_t>& order = {}) {
  if (file.tensor(name).blocks)
    return {.blocks = {file.load_quantized(name, device, order)}, .plain = {}};
  const Array rows = file.load(name, device);
  const auto arranged = jit([](Tensor w, Tensor o) { return cast(transpose(take(w, o)), f32); });
  const auto straight = jit([](Tensor w) { return cast(transpose(w), f32); });
  const auto count = static_cast<int64_t>(order.size());
  return {.blocks = {},
          .plain = {order.empty() ? straight(rows)
                                  : arranged(rows, Array::from(order, {count}, device))}};
}

/// Whether two matrices can become one, side by side.
inline bool are_alike(const Weight<Array>& a, const Weight<Array>& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.dtype() == y.dtype() && x.shape().front() == y.shape().front();
  };
  if (a.blocks.empty() || b.blocks.empty())
    return a.blocks.empty() && b.blocks.empty() && same(a.plain[0], b.plain[0]);
  const Quantized<Array>&x = a.blocks[0], &y = b.blocks[0];
  return same(x.low, y.low) && same(x.scales, y.scales) && x.high.size() == y.high.size() &&
         std::ranges::equal(x.high, y.high, same) && std::ranges::equal(x.offsets, y.offsets, same);
}

/// Joins neighbours that are stored in the same way, so that their products are one.
inline std::vector<Weight<Array>> joined(const std::vector<Weight<Array>>& parts) {
  std::vector<Weight<Array>> out;
  const auto join = jit([](Weight<Tensor> a, Weight<Tensor> b) {
    const auto beside = [](const Tensor& x, const Tensor& y) { return concat({x, y}, 1); };
    const auto all = [&](std::vector<Tensor> x, const std::vector<Tensor>& y) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = beside(x[i], y[i]);
      return x;
    };
    Weight<Tensor> both;
    both.plain = all(a.plain, b.plain);
    for (size_t i = 0; i < a.blocks.size(); ++i) {
      const Quantized<Tensor>&x = a.blocks[i], &y = b.blocks[i];
      both.blocks.push_back({.low = beside(x.low, y.low),
                             .high = all(x.high, y.high),
                             .scales = beside(x.scales, y.scales),
                             .offsets = all(x.offsets, y.offsets)});
    }
    return both;
  });
  for (const Weight<Array>& part : parts) {
    if (!out.empty() && are_alike(out.back(), part))
      out.back() = join(out.back(), part);
    else
      out.push_back(part);
  }
  return out;
}

inline Weights<Array> load_weights(const GgufFile& file, const Device& device) {
  const Sizes sizes = sizes_of(file);
  Weights<Array> out;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const auto name = [i](const char* part) {
      return "blk." + std::to_string(i) + "." + part + ".weight";
    };
    out.layers.push_back(
        {.attention_norm = file.load(name("attn_norm"), device),
         .mlp_norm = file.load(name("ffn_norm"), device),
         .attention =
             joined({load(file, name("attn_q"), device, halves(sizes.heads, sizes.head)),
                     load(file, name("attn_k"), device, halves(sizes.kv_heads, sizes.head)),
                     load(file, name("attn_v"), device)}),
         .output = load(file, name("attn_output"), device),
         .gate = load(file, name("ffn_gate"), device),
         .up = load(file, name("ffn_up"), device),
         .down = load(file, name("ffn_down"), device)});
  }
  out.embedding = load(file, "token_embd.weight", device);
  if (file.has_tensor("output.weight")) out.unembed = {load(file, "output.weight", device)};
  out.norm = file.load("output_norm.weight", device);
  return out;
}

inline std::vector<Cache<Array>> make_caches(const Sizes& sizes, int64_t capacity,
                                             const Device& device) {
  std::vector<Cache<Array>> out;
  for (int64_t i = 0; i < sizes.layers; ++i)
    out.push_back(nn::key_value_cache({capacity, sizes.kv_heads, sizes.head}, f32, device));
  return out;
}

// ---- The model ----------------------------------------------------------------------------------

inline Tensor matrix(const Weight<Tensor>& weight) {
  return weight.blocks.empty() ? weight.plain[0] : dequantize(weight.blocks[0]);
}

/// x times matrices that stand side by side.
inline Tensor product(const Tensor& x, const std::vector<Weight<Tensor>>& weights) {
  std::vector<Tensor> parts;
  for (const Weight<Tensor>& weight : weights) parts.push_back(dot(x, matrix(weight)));
  return parts.size() == 1 ? parts[0] : concat(parts, 1);
}

inline Tensor embed(const Weight<Tensor>& table, const Tensor& ids) {
  return transpose(table.blocks.empty() ? take(table.plain[0], ids, 1)
                                        : dequantize(columns(table.blocks[0], ids)));
}

/// The tokens of a step are at `start` and behind it.
struct Place {
  Tensor start;      // [1]
  Tensor positions;  // [n]
};

inline Tensor attention(const Layer<Tensor>& layer, const Cache<Tensor>& cache, const Tensor& x,
                        const Place& at, const Sizes& sizes, Cache<Tensor>& updated) {
  const Dim n = x.dim(0);
  const int64_t turned = sizes.heads + sizes.kv_heads;
  const Tensor all = reshape(product(x, layer.attention), {n, turned + sizes.kv_heads, sizes.head});
  const nn::RopeOptions turns{.base = sizes.base};
  const Tensor queries = nn::rope(slice(all, 1, 0, sizes.heads), at.positions, turns);
  const Tensor keys = nn::rope(slice(all, 1, sizes.heads, turned), at.positions, turns);
  const Tensor values = slice(all, 1, turned, turned + sizes.kv_heads);
  updated = nn::append(cache, keys, values, at.start);
  const Tensor mixed =
      nn::attention(queries, updated.keys, updated.values, {.causal = true, .position = at.start});
  return dot(reshape(mixed, {n, sizes.width}), matrix(layer.output));
}

/// The scores of what comes behind the last of `ids` [n], one for each token, and the caches with
/// n rows more. `start` [1] is the first token's position. It is a value on the device, which
/// bounds the kernels' loops over the caches' rows.
inline std::pair<Tensor, std::vector<Cache<Tensor>>> forward(
    const Weights<Tensor>& weights, const std::vector<Cache<Tensor>>& caches, const Tensor& ids,
    const Tensor& start, const Sizes& sizes) {
  const Dim n = ids.dim(0);
  const Place at{start, start + arange(i32, n)};
  std::vector<Cache<Tensor>> updated(caches.size());
  Tensor x = embed(weights.embedding, ids);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const Layer<Tensor>& layer = weights.layers[i];
    x += attention(layer, caches[i], nn::rms_norm(x, layer.attention_norm, sizes.epsilon), at,
                   sizes, updated[i]);
    const Tensor h = nn::rms_norm(x, layer.mlp_norm, sizes.epsilon);
    x += dot(silu(dot(h, matrix(layer.gate))) * dot(h, matrix(layer.up)), matrix(layer.down));
  }
  const Tensor last = nn::rms_norm(slice(x, 0, n - 1, n), weights.norm, sizes.epsilon);
  const Weight<Tensor>& head = weights.unembed.empty() ? weights.embedding : weights.unembed[0];
  return {reshape(dot(last, matrix(head)), {sizes.tokens}), updated};
}

}  // namespace llama
