// Embeds sentences by a BERT, such as MiniLM, and tells how near each is to the first one. FOLDER
// has config.json, model.safetensors and tokenizer.json; tools/embed_text.sh fetches one. Usage:
// embed_text FOLDER [--device NAME] [--tokens N] [--check FILE [--results PAGE]] [SENTENCE...]
//
// --check compares the embeddings with those that stand in a file; --results writes what comes of
// it.
#include <braze/braze.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "model_tool.h"

using namespace braze;

namespace {

struct Options {
  std::string folder, check, results;
  Device device = default_device();
  int64_t tokens = 256;  // of a sentence; what is behind them does not count
  std::vector<std::string> sentences;
};

Options parse(int argc, char** argv) {
  Options options;
  model_tool::Options reader(
      "embed_text FOLDER [--device NAME] [--tokens N] [--check FILE [--results PAGE]] "
      "[SENTENCE...]");
  reader.add("--device", options.device);
  reader.add("--tokens", options.tokens);
  reader.add("--check", options.check);
  reader.add("--results", options.results);
  options.sentences = reader.read(argc, argv);
  if (options.sentences.empty()) reader.fail();
  options.folder = options.sentences.front();
  options.sentences.erase(options.sentences.begin());
  if (options.sentences.empty() && options.check.empty()) reader.fail();
  return options;
}

// ---- The model --------------------------------------------------------------------------------

struct Sizes {
  int64_t layers, heads;
  double epsilon;
};

/// The numbers of config.json that are needed.
Sizes read_sizes(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto number = [&](const std::string& name) {
    const size_t at = text.find("\"" + name + "\":");
    if (at == std::string::npos) throw std::runtime_error(path + " does not say " + name);
    return std::stod(text.substr(at + name.size() + 3));
  };
  return {.layers = static_cast<int64_t>(number("num_hidden_layers")),
          .heads = static_cast<int64_t>(number("num_attention_heads")),
          .epsilon = number("layer_norm_eps")};
}

/// A matrix of the file is [out, in].
Tensor linear(const Weights& layer, const Tensor& x) {
  return dot(x, transpose(layer.at("weight"))) + layer.at("bias");
}

Tensor norm(const Weights& layer, const Tensor& x, const Sizes& sizes) {
  return nn::layer_norm(x, layer.at("weight"), layer.at("bias"), sizes.epsilon);
}

Tensor attention(const Weights& layer, const Tensor& x, const Sizes& sizes) {
  const Dim n = x.dim(0);
  const int64_t width = x.dim(1).value(), size = width / sizes.heads;
  const auto heads = [&](const char* name) {  // [heads, n, size]
    return permute(reshape(linear(layer.group("self").group(name), x), {n, sizes.heads, size}),
                   {1, 0, 2});
  };
  const Tensor scores = dot(heads("query"), transpose(heads("key"), 1, 2));
  const Tensor weights = nn::softmax(scores * (1 / std::sqrt(static_cast<double>(size))));
  const Tensor mixed = reshape(permute(dot(weights, heads("value")), {1, 0, 2}), {n, width});
  return linear(layer.group("output").group("dense"), mixed);
}

/// ids [n] -> [width]: the mean of what became of the tokens, of length 1.
Tensor embed(const Weights& stored, const Tensor& ids, const Sizes& sizes) {
  const Weights model = stored.map([](const Tensor& t) { return cast(t, f32); });
  const Weights tables = model.group("embeddings");
  const Dim n = ids.dim(0);
  const Tensor words = take(tables.at("word_embeddings.weight"), ids);
  const Tensor places = slice(tables.at("position_embeddings.weight"), 0, 0, n);
  const Tensor kind = slice(tables.at("token_type_embeddings.weight"), 0, 0, 1);
  Tensor x = norm(tables.group("LayerNorm"), words + kind + places, sizes);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const Weights layer = model.group("encoder.layer." + std::to_string(i));
    x = norm(layer.group("attention.output.LayerNorm"),
             x + attention(layer.group("attention"), x, sizes), sizes);
    const Tensor wide = gelu(linear(layer.group("intermediate.dense"), x));
    x = norm(layer.group("output.LayerNorm"), x + linear(layer.group("output.dense"), wide), sizes);
  }
  const Tensor all = mean(x, 0);
  return all / maximum(sqrt(sum(square(all))), 1e-12);
}

class Embedder {
 public:
  explicit Embedder(const Options& options)
      : options_(options),
        tokenizer_(Tokenizer::open(options.folder + "/tokenizer.json")),
        sizes_(read_sizes(options.folder + "/config.json")) {
    for (const auto& [name, array] :
         load_safetensors(options.folder + "/model.safetensors", options.device))
      if (array.dtype() == f32 || array.dtype() == f16 || array.dtype() == bf16)
        model_.add(name, array);
    const int64_t places = model_.at("embeddings.position_embeddings.weight").shape().at(0);
    most_ = std::min(options.tokens, places);
  }

  std::vector<float> operator()(const std::string& sentence) {
    std::vector<int32_t> ids = tokenizer_.encode(sentence, {.special = false});
    if (static_cast<int64_t>(ids.size()) > most_) {  // the last one ends every sentence
      ids[static_cast<size_t>(most_) - 1] = ids.back();
      ids.resize(static_cast<size_t>(most_));
    }
    const std::string n = "n:1.." + std::to_string(most_);
    if (!function_)
      function_ = jit(Embed{sizes_}, {as_given, spec(i32, {n.c_str()})},
                      {.name = "embed", .inputs = {"model", "ids"}});
    const auto count = static_cast<int64_t>(ids.size());
    return (*function_)(model_, Array::from(ids, {count}, options_.device)).to_vector<float>();
  }

 private:
  struct Embed {
    Sizes sizes;
    Tensor operator()(Weights model, Tensor ids) const { return embed(model, ids, sizes); }
  };

  const Options& options_;
  Tokenizer tokenizer_;
  Sizes sizes_;
  Parameters model_;
  int64_t most_ = 0;
  std::optional<Jitted<Embed>> function_;
};

// The errors are compared with those of the program that the file names.
bool check(Embedder& embed, const Options& options) {
  const model_tool::Checks checks = model_tool::read_checks(options.check);
  std::vector<float> all;
  for (const auto& [sentence, numbers] : checks.rows) {
    const std::vector<float> one = embed(sentence);
    all.insert(all.end(), one.begin(), one.end());
  }
  return model_tool::judge(checks, all, options.results,
                           "# Sentence embeddings on " + options.device.name() +
                               "\n\nMade by `tools/embed_text.sh --check --results PAGE` with "
                               "all-MiniLM-L6-v2. What is expected was computed by transformers.");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    const DeviceGuard device(options.device);
    Embedder embed(options);
    if (!options.check.empty()) return check(embed, options) ? 0 : 1;
    std::vector<float> first;
    for (const std::string& sentence : options.sentences) {
      const std::vector<float> now = embed(sentence);
      if (first.empty()) first = now;
      double cosine = 0;
      for (size_t i = 0; i < now.size(); ++i) cosine += static_cast<double>(first[i]) * now[i];
      std::printf("%6.3f  %s\n", cosine, sentence.c_str());
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "embed_text: " << error.what() << "\n";
    return 1;
  }
}
