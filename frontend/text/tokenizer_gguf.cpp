// tokenizer_gguf.cpp — makes the tokenizer that the metadata of a .gguf file describes.
#include <algorithm>
#include <map>
#include <tuple>

#include "braze/gguf.h"
#include "frontend/text/codes.h"
#include "frontend/text/normalize.h"
#include "frontend/text/tokenizer_p.h"
#include "ir/support/text.h"
#include "ir/support/utf8.h"

namespace braze {

namespace {

// The kinds of tokens, with ggml's numbers.
constexpr int64_t kUnknown = 2, kControl = 3, kUserDefined = 4;

/// How byte level tokenizers with these names cut a text. There is one step for each pattern.
struct Cutting {
  std::vector<std::string_view> names;
  std::vector<const char*> patterns;
  bool compose = false;       ///< the text is first brought to normal form C
  bool whole_pieces = false;  ///< see PairModel
};

const std::vector<Cutting>& cuttings() {
  static const char* const kDigit = R"(\p{N})";
  static const char* const kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const char* const kQwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::vector<Cutting> kAll = {
      {{"gpt-2", "phi-2", "mpt", "olmo", "jina-v1-en", "jina-v2-es", "jina-v2-de", "roberta-bpe"},
       {kWordsOfGpt2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"},
       {kDigit, kWordsOfGpt2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx", "smaug-bpe"}, {kLlama3}, false, true},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen"}, {kQwen2}, true},
  };
  return kAll;
}

class Builder {
 public:
  explicit Builder(const GgufFile& file)
      : file_(file), state_(std::make_shared<Tokenizer::State>()) {
    state_->file = file.path();
  }

  std::shared_ptr<const Tokenizer::State> build() {
    state_->names = file_.strings("tokenizer.ggml.tokens");
    state_->bytes = state_->names;
    kinds_.assign(state_->names.size(), 1);
    if (file_.has("tokenizer.ggml.token_type"))
      kinds_ = file_.integers("tokenizer.ggml.token_type");
    if (kinds_.size() != state_->names.size())
      malformed(fmt::format("{} tokens, but {} token types", state_->names.size(), kinds_.size()));
    for (size_t i = 0; i < state_->names.size(); ++i) {
      if (!is_utf8(state_->names[i])) malformed(fmt::format("token {} is not UTF-8", i));
      state_->ids.emplace(state_->names[i], static_cast<int32_t>(i));
    }
    const std::string model = file_.string("tokenizer.ggml.model");
    if (model == "gpt2")
      byte_pairs();
    else if (model == "llama")
      character_pairs();
    else if (model == "bert")
      words();
    else
      fail(codes::kTokenizerKind,
           fmt::format("{}: the tokenizer is of the kind {}; Braze has gpt2, llama and bert",
                       file_.path(), quote(model)));
    std::vector<AddedToken> added;
    for (size_t i = 0; i < kinds_.size(); ++i)
      if (kinds_[i] == kControl || kinds_[i] == kUserDefined ||
          (kinds_[i] == kUnknown && model == "llama"))
        added.push_back({.name = state_->names[i],
                         .id = static_cast<int32_t>(i),
                         .special = kinds_[i] != kUserDefined});
    state_->add_tokens(added);
    return std::move(state_);
  }

 private:
  [[noreturn]] void malformed(const std::string& what) const {
    fail(codes::kTokenizerFormat, fmt::format("{}: {}", file_.path(), what));
  }
  bool flag(std::string_view key, bool otherwise) const {
    return file_.has(key) ? file_.boolean(key) : otherwise;
  }
  int32_t token(std::string_view key) const {
    const int64_t id = file_.integer(key);
    if (id < 0 || id >= static_cast<int64_t>(state_->names.size()))
      malformed(fmt::format("{} is {}, which is not a token", key, id));
    return static_cast<int32_t>(id);
  }
  void frame(bool begin, bool end) {
    if (flag("tokenizer.ggml.add_bos_token", begin))
      state_->before.push_back(token("tokenizer.ggml.bos_token_id"));
    if (flag("tokenizer.ggml.add_eos_token", end))
      state_->behind.push_back(token("tokenizer.ggml.eos_token_id"));
  }

  void byte_pairs() {
    const std::string name =
        file_.has("tokenizer.ggml.pre") ? file_.string("tokenizer.ggml.pre") : "gpt-2";
    const auto& all = cuttings();
    const auto cutting = std::find_if(all.begin(), all.end(), [&](const Cutting& c) {
      return std::find(c.names.begin(), c.names.end(), name) != c.names.end();
    });
    if (cutting == all.end())
      fail(codes::kTokenizerKind,
           fmt::format("{}: Braze does not know the pre-tokenizer {}", file_.path(), quote(name)),
           {.fix = "use the model's tokenizer.json"});
    if (cutting->compose)
      state_->normalizers.push_back(
          [](std::string_view text) { return normalized(text, UnicodeForm::C); });
    for (const char* pattern : cutting->patterns)
      state_->cuts.push_back(cut_by({Pattern(pattern, file_.path())}));
    Vocabulary vocabulary;
    for (size_t i = 0; i < state_->names.size(); ++i)
      if (const auto bytes = bytes_of_name(state_->names[i])) {
        if (kinds_[i] != kControl && kinds_[i] != kUserDefined) state_->bytes[i] = *bytes;
        vocabulary.emplace(*bytes, static_cast<int32_t>(i));
      }
    auto model = std::make_unique<PairModel>(
        std::move(vocabulary),
        PairModel::Options{.bytes = true, .whole_pieces = cutting->whole_pieces});
    for (const std::string& merge : file_.strings("tokenizer.ggml.merges")) {
      const size_t blank = merge.find(' ');
      const auto left = bytes_of_name(merge.substr(0, blank));
      const auto right =
          blank == merge.npos ? std::nullopt : bytes_of_name(merge.substr(blank + 1));
      if (!left || !right || !model->add_pair(*left, *right))
        malformed(fmt::format("the pair {} does not consist of tokens", quote(merge)));
    }
    state_->model = std::move(model);
    frame(false, false);
  }

  // Pairs are joined in the order of the scores of the tokens that they become.
  void character_pairs() {
    const std::vector<double> scores = file_.numbers("tokenizer.ggml.scores");
    if (scores.size() != state_->names.size())
      malformed(fmt::format("{} tokens, but {} scores", state_->names.size(), scores.size()));
    struct Pair {
      std::string_view left, right;
      double score;
    };
    std::vector<Pair> pairs;
    for (size_t i = 0; i < state_->names.size(); ++i) {
      const std::string_view name = state_->names[i];
      if (kinds_[i] == kControl || kinds_[i] == kUnknown) continue;
      for (size_t at = utf8_length(name); at < name.size(); at += utf8_length(name.substr(at)))
        if (state_->ids.contains(name.substr(0, at)) && state_->ids.contains(name.substr(at)))
          pairs.push_back({name.substr(0, at), name.substr(at), scores[i]});
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
      return std::tuple(a.score, a.left.size(), a.right.size()) >
             std::tuple(b.score, b.left.size(), b.right.size());
    });
    auto model = std::make_unique<PairModel>(
        state_->ids,
        PairModel::Options{.byte_fallback = true,
                           .unknown = file_.has("tokenizer.ggml.unknown_token_id")
                                          ? std::optional(token("tokenizer.ggml.unknown_token_id"))
                                          : std::nullopt,
                           .fuse_unknown = true});
    for (const Pair& pair : pairs) model->add_pair(pair.left, pair.right);
    state_->model = std::move(model);
    const bool blank_first = flag("tokenizer.ggml.add_space_prefix", true);
    state_->normalizers.push_back([blank_first](std::string_view text) {
      return (blank_first ? std::string(kBlank) : "") + replaced(text, " ", kBlank);
    });
    for (std::string& bytes : state_->bytes) {
      if (const auto byte = byte_of_name(bytes))
        bytes = *byte;
      else
        bytes = replaced(bytes, kBlank, " ");
    }
    if (blank_first) state_->spelling = Spelling::FirstBlank;
    frame(true, false);
  }

  // The names of tokens that begin a word begin with U+2581. The names of others have no mark.
  void words() {
    Vocabulary vocabulary;
    constexpr std::string_view kPrefix = "##";
    for (size_t i = 0; i < state_->names.size(); ++i) {
      const std::string_view name = state_->names[i];
      const bool begins = name.starts_with(kBlank);
      const std::string word(begins ? name.substr(kBlank.size()) : name);
      vocabulary.emplace(begins || kinds_[i] == kControl ? word : std::string(kPrefix) + word,
                         static_cast<int32_t>(i));
      state_->bytes[i] = (begins || kinds_[i] == kControl ? " " : "") + word;
    }
    state_->normalizers.push_back(
        [](std::string_view text) { return normalized(text, BertNormalizer{}); });
    cut_at_words(*state_);
    state_->model = std::make_unique<WordModel>(std::move(vocabulary), std::string(kPrefix),
                                                token("tokenizer.ggml.unknown_token_id"), 100);
    state_->spelling = Spelling::Words;
    state_->before.push_back(token(file_.has("tokenizer.ggml.cls_token_id")
                                       ? "tokenizer.ggml.cls_token_id"
                                       : "tokenizer.ggml.bos_token_id"));
    state_->behind.push_back(token(file_.has("tokenizer.ggml.seperator_token_id")
                                       ? "tokenizer.ggml.seperator_token_id"
                                       : "tokenizer.ggml.eos_token_id"));
  }

  const GgufFile& file_;
  std::shared_ptr<Tokenizer::State> state_;
  std::vector<int64_t> kinds_;
};

}  // namespace

Tokenizer Tokenizer::from_gguf(const GgufFile& file) { return Tokenizer(Builder(file).build()); }

}  // namespace braze
