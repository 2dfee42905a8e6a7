// tokenizer_json.cpp — tokenizer.json: https://huggingface.co/docs/tokenizers
//
// Each part of the file is an object with a "type". A type that Braze does not know is an error,
// which names it. "truncation" and "padding" are not read, since they are left to the caller.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/text/codes.h"
#include "frontend/text/normalize.h"
#include "frontend/text/tokenizer_p.h"
#include "ir/support/text.h"
#include "runtime/io/json_value.h"

namespace braze {

namespace {

using State = Tokenizer::State;

class Builder {
 public:
  Builder(std::string_view text, std::string name) : state_(std::make_shared<State>()) {
    state_->file = std::move(name);
    JsonReader reader(text, state_->file);
    root_ = JsonValue::read(reader);
    reader.finish();
  }

  std::shared_ptr<const State> build() {
    const JsonValue& model = root_["model"];
    if (!model.object()) malformed("there is no model");
    read_vocabulary(model["vocab"]);
    const std::vector<AddedToken> added = read_added();
    each_step(root_["normalizer"], "normalizers", [this](auto& step) { normalizer(step); });
    each_step(root_["pre_tokenizer"], "pretokenizers", [this](auto& step) { pre_tokenizer(step); });
    const std::string kind = model["type"].string() ? string(model, "type") : "BPE";
    if (kind == "BPE")
      pairs(model);
    else if (kind == "WordPiece")
      words(model);
    else
      unknown("model", kind);
    // Added tokens are written as their names say, even if other names stand for bytes.
    for (const AddedToken& t : added) state_->bytes[static_cast<size_t>(t.id)] = t.name;
    each_step(root_["decoder"], "decoders", [this](auto& step) { decoder(step); });
    state_->add_tokens(added);
    each_step(root_["post_processor"], "processors", [this](auto& step) { processor(step); });
    return std::move(state_);
  }

 private:
  // --- Values, and what is wrong with them -----------------------------------------------------

  [[noreturn]] void malformed(const std::string& what) const {
    fail(codes::kTokenizerFormat, fmt::format("{}: {}", state_->file, what));
  }
  [[noreturn]] void unknown(std::string_view part, std::string_view kind) const {
    fail(codes::kTokenizerKind,
         fmt::format("{}: the {} {}, which Braze does not have", state_->file, part, quote(kind)));
  }
  const std::string& string(const JsonValue& object, std::string_view name) const {
    const std::string* const value = object[name].string();
    if (!value) malformed(fmt::format("a string {} is expected", quote(name)));
    return *value;
  }
  bool flag(const JsonValue& object, std::string_view name, bool otherwise) const {
    const JsonValue& value = object[name];
    if (value.is_null()) return otherwise;
    if (!value.boolean()) malformed(fmt::format("{} must be true or false", quote(name)));
    return *value.boolean();
  }
  int32_t whole(const JsonValue& value, std::string_view what) const {
    const double* const number = value.number();
    constexpr double kMost = 1 << 24;  // tokens; every real file has far fewer
    if (!number || *number < 0 || *number > kMost || *number != std::floor(*number))
      malformed(fmt::format("{} must be an integer of at most {}", what, kMost));
    return static_cast<int32_t>(*number);
  }
  int32_t token(const std::string& name) const {
    const auto found = state_->ids.find(name);
    if (found == state_->ids.end()) malformed(fmt::format("{} is not a token", quote(name)));
    return found->second;
  }
  /// Calls f(step) for a single step, or for each step of a "Sequence". `list` is the key of these
  /// steps.
  template <class F>
  void each_step(const JsonValue& value, std::string_view list, const F& f) const {
    if (value.is_null()) return;
    if (string(value, "type") != "Sequence") return f(value);
    const JsonValue::List* const steps = value[list].list();
    if (!steps) malformed(fmt::format("a sequence without {}", quote(list)));
    for (const JsonValue& step : *steps) each_step(step, list, f);
  }

  // --- Tokens ----------------------------------------------------------------------------------

  void add_name(const std::string& name, int32_t id) {
    const auto at = static_cast<size_t>(id);
    if (at >= state_->names.size()) {
      // Ids with great gaps would take far more memory than the file is large.
      if (at > 4 * (most_ids_ + 1))
        malformed(fmt::format("the id {} is far beyond the number of tokens", id));
      state_->names.resize(at + 1);
    }
    state_->names[at] = name;
    state_->ids.emplace(name, id);
  }
  void read_vocabulary(const JsonValue& value) {
    const JsonValue::Object* const vocabulary = value.object();
    if (!vocabulary) malformed("the model has no table of tokens (\"vocab\")");
    const JsonValue::List* const added = root_["added_tokens"].list();
    most_ids_ = vocabulary->size() + (added ? added->size() : 0);
    for (const auto& [name, id] : *vocabulary) {
      add_name(name, whole(id, "an id"));
      vocabulary_.emplace(name, whole(id, "an id"));
    }
  }
  std::vector<AddedToken> read_added() {
    std::vector<AddedToken> out;
    if (const JsonValue::List* const added = root_["added_tokens"].list())
      for (const JsonValue& value : *added) {
        out.push_back({.name = string(value, "content"),
                       .id = whole(value["id"], "the id of an added token"),
                       .special = flag(value, "special", false),
                       .takes_left = flag(value, "lstrip", false),
                       .takes_right = flag(value, "rstrip", false),
                       .normalized = flag(value, "normalized", false)});
        if (flag(value, "single_word", false)) unknown("added token that is a", "single_word");
        add_name(out.back().name, out.back().id);
      }
    state_->bytes = state_->names;
    return out;
  }

  // --- Steps -----------------------------------------------------------------------------------

  std::string pattern(const JsonValue& value) const {
    if (value["Regex"].string()) return string(value, "Regex");
    return Pattern::literal(string(value, "String"));
  }

  void normalizer(const JsonValue& step) {
    const std::string& type = string(step, "type");
    const auto add = [this](State::Normalize f) { state_->normalizers.push_back(std::move(f)); };
    const auto form = [&](UnicodeForm f) {
      add([f](std::string_view text) { return normalized(text, f); });
    };
    if (type == "NFC") {
      form(UnicodeForm::C);
    } else if (type == "NFD") {
      form(UnicodeForm::D);
    } else if (type == "NFKC") {
      form(UnicodeForm::KC);
    } else if (type == "NFKD") {
      form(UnicodeForm::KD);
    } else if (type == "Lowercase") {
      add(lowercase);
    } else if (type == "StripAccents") {
      add(without_marks);
    } else if (type == "Prepend") {
      add([front = string(step, "prepend")](std::string_view text) {
        return text.empty() ? std::string() : front + std::string(text);
      });
    } else if (type == "Replace") {
      add([found = Pattern(pattern(step["pattern"]), state_->file),
           content = string(step, "content")](std::string_view text) {
        std::string out;
        size_t end = 0;
        found.each(text, [&](size_t from, size_t to, int) {
          out.append(text.substr(end, from - end)).append(content);
          end = to;
        });
        return out.append(text.substr(end));
      });
    } else if (type == "BertNormalizer") {
      const bool lower = flag(step, "lowercase", true);
      const BertNormalizer options{.clean = flag(step, "clean_text", true),
                                   .split_ideographs = flag(step, "handle_chinese_chars", true),
                                   .strip_accents = flag(step, "strip_accents", lower),
                                   .lower = lower};
      add([options](std::string_view text) { return normalized(text, options); });
    } else {
      unknown("normalizer", type);
    }
  }

  void cut(const std::string& text, Matches matches, bool inverted = false) {
    state_->cuts.push_back(cut_by({Pattern(text, state_->file), matches, inverted}));
  }
  Matches matches_of(const std::string& behavior) const {
    constexpr std::pair<std::string_view, Matches> kAll[] = {
        {"Removed", Matches::Removed},
        {"Isolated", Matches::Isolated},
        {"MergedWithPrevious", Matches::MergedWithPrevious},
        {"MergedWithNext", Matches::MergedWithNext},
        {"Contiguous", Matches::Contiguous}};
    for (const auto& [name, matches] : kAll)
      if (name == behavior) return matches;
    unknown("behavior", behavior);
  }

  void pre_tokenizer(const JsonValue& step) {
    const std::string& type = string(step, "type");
    if (type == "ByteLevel") {
      if (flag(step, "add_prefix_space", true))
        state_->cuts.push_back([](std::string_view piece, bool, std::vector<std::string>& out) {
          out.push_back((piece.starts_with(' ') ? "" : " ") + std::string(piece));
        });
      if (flag(step, "use_regex", true)) cut(kWordsOfGpt2, Matches::Isolated);
      bytes_ = true;
    } else if (type == "Split") {
      cut(pattern(step["pattern"]), matches_of(string(step, "behavior")),
          flag(step, "invert", false));
    } else if (type == "Digits") {
      const bool each = flag(step, "individual_digits", false);
      cut(R"(\p{N})", each ? Matches::Isolated : Matches::Contiguous);
    } else if (type == "Punctuation") {
      cut(R"([!-/:-@\[-`{-~\p{P}])",
          matches_of(step["behavior"].string() ? string(step, "behavior") : "Isolated"));
    } else if (type == "Whitespace") {
      cut(R"([\p{L}\p{M}\p{N}\p{Pc}]+|[^\p{L}\p{M}\p{N}\p{Pc}\s]+)", Matches::Removed, true);
    } else if (type == "WhitespaceSplit") {
      cut(R"(\s+)", Matches::Removed);
    } else if (type == "BertPreTokenizer") {
      cut_at_words(*state_);
    } else if (type == "Metaspace") {
      blanks(step);
    } else {
      unknown("pre_tokenizer", type);
    }
  }

  // Every blank becomes another character, which is also put before the text.
  void blanks(const JsonValue& step) {
    const std::string blank =
        step["replacement"].string() ? string(step, "replacement") : std::string(kBlank);
    std::string scheme = flag(step, "add_prefix_space", true) ? "always" : "never";
    if (step["prepend_scheme"].string()) scheme = string(step, "prepend_scheme");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      unknown("prepend_scheme", scheme);
    state_->cuts.push_back(
        [blank, scheme](std::string_view piece, bool first, std::vector<std::string>& out) {
          std::string text = replaced(piece, " ", blank);
          const bool prepend = scheme == "always" || (scheme == "first" && first);
          out.push_back((prepend && !text.starts_with(blank) ? blank : "") + text);
        });
    if (flag(step, "split", true)) cut(Pattern::literal(blank), Matches::MergedWithNext);
  }

  // --- Models ----------------------------------------------------------------------------------

  void pairs(const JsonValue& model) {
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (model[affix].string() && !model[affix].string()->empty()) unknown("BPE with a", affix);
    std::optional<int32_t> unknown_token;
    if (model["unk_token"].string()) unknown_token = token(*model["unk_token"].string());
    // If the text becomes bytes, then a token is the bytes that its name stands for.
    const auto name = [this](const std::string& text) {
      return bytes_ ? bytes_of_name(text) : std::optional(text);
    };
    Vocabulary vocabulary;
    for (const auto& [text, id] : vocabulary_)
      if (const auto bytes = name(text)) {
        vocabulary.emplace(*bytes, id);
        state_->bytes[static_cast<size_t>(id)] = *bytes;
      }
    auto out = std::make_unique<PairModel>(
        std::move(vocabulary),
        PairModel::Options{.bytes = bytes_,
                           .whole_pieces = flag(model, "ignore_merges", false),
                           .byte_fallback = flag(model, "byte_fallback", false),
                           .unknown = unknown_token,
                           .fuse_unknown = flag(model, "fuse_unk", false)});
    const JsonValue::List* const merges = model["merges"].list();
    if (!merges) malformed("the model has no list of pairs (\"merges\")");
    for (const JsonValue& merge : *merges) {
      std::string first, second;
      if (const std::string* const both = merge.string()) {
        const size_t blank = both->find(' ');
        first = both->substr(0, blank);
        if (blank != both->npos) second = both->substr(blank + 1);
      } else if (const JsonValue::List* const two = merge.list();
                 two && two->size() == 2 && (*two)[0].string() && (*two)[1].string()) {
        first = *(*two)[0].string();
        second = *(*two)[1].string();
      }
      const auto left = name(first), right = name(second);
      if (!left || !right || !out->add_pair(*left, *right))
        malformed(
            fmt::format("the pair {} {} does not consist of tokens", quote(first), quote(second)));
    }
    state_->model = std::move(out);
  }

  void words(const JsonValue& model) {
    prefix_ = model["continuing_subword_prefix"].string()
                  ? string(model, "continuing_subword_prefix")
                  : "##";
    const int32_t most = model["max_input_chars_per_word"].is_null()
                             ? 100
                             : whole(model["max_input_chars_per_word"], "max_input_chars_per_word");
    state_->model = std::make_unique<WordModel>(
        vocabulary_, prefix_, token(string(model, "unk_token")), static_cast<size_t>(most));
  }

  // --- Back to text ----------------------------------------------------------------------------

  void decoder(const JsonValue& step) {
    const std::string& type = string(step, "type");
    const auto each = [this](const auto& f) {
      for (std::string& bytes : state_->bytes) bytes = f(bytes);
    };
    if (type == "ByteLevel" || type == "Fuse") return;
    if (type == "ByteFallback") {
      each([](const std::string& bytes) {
        const auto byte = byte_of_name(bytes);
        return byte ? std::string(1, *byte) : bytes;
      });
    } else if (type == "Replace") {
      const std::string& from = string(step["pattern"], "String");
      each(
          [&](const std::string& bytes) { return replaced(bytes, from, string(step, "content")); });
    } else if (type == "Metaspace") {
      const std::string blank =
          step["replacement"].string() ? string(step, "replacement") : std::string(kBlank);
      each([&](const std::string& bytes) { return replaced(bytes, blank, " "); });
      state_->spelling = Spelling::FirstBlank;
    } else if (type == "Strip") {
      if (string(step, "content") == " " && step["start"].number() && *step["start"].number() > 0)
        state_->spelling = Spelling::FirstBlank;
    } else if (type == "WordPiece") {
      const std::string& prefix = step["prefix"].string() ? string(step, "prefix") : prefix_;
      const bool tidy = flag(step, "cleanup", true);
      each([&](const std::string& bytes) {
        if (bytes.starts_with(prefix)) return bytes.substr(prefix.size());
        const bool joins = tidy && (bytes == "." || bytes == "?" || bytes == "!" || bytes == "," ||
                                    bytes == "n't" || bytes == "'m" || bytes == "'s" ||
                                    bytes == "'ve" || bytes == "'re");
        return (joins ? "" : " ") + bytes;
      });
      state_->spelling = Spelling::Words;
    } else {
      unknown("decoder", type);
    }
  }

  void processor(const JsonValue& step) {
    const std::string& type = string(step, "type");
    if (type == "ByteLevel") return;
    if (type == "TemplateProcessing") {
      const JsonValue::List* const parts = step["single"].list();
      if (!parts) malformed("a template without \"single\"");
      std::vector<int32_t>* side = &state_->before;
      for (const JsonValue& part : *parts) {
        if (part["Sequence"].object()) {
          if (side == &state_->behind) unknown("template that takes the text", "twice");
          side = &state_->behind;
        } else {
          const std::string& name = string(part["SpecialToken"], "id");
          const JsonValue::List* const ids = step["special_tokens"][name]["ids"].list();
          if (!ids) malformed(fmt::format("the template has no ids of {}", quote(name)));
          for (const JsonValue& id : *ids) side->push_back(whole(id, "an id"));
        }
      }
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const auto id_of = [&](std::string_view name) {
        const JsonValue::List* const pair = step[name].list();
        if (!pair || pair->size() != 2) malformed(fmt::format("{} is no pair", quote(name)));
        return whole((*pair)[1], "an id");
      };
      state_->before.push_back(id_of("cls"));
      state_->behind.push_back(id_of("sep"));
    } else {
      unknown("post_processor", type);
    }
  }

  std::shared_ptr<State> state_;
  JsonValue root_;
  Vocabulary vocabulary_;  // that of the model, with the names in the file
  size_t most_ids_ = 0;
  bool bytes_ = false;  // whether a step turns the text into bytes
  std::string prefix_ = "##";
};

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, std::string name) {
  return Tokenizer(Builder(text, std::move(name)).build());
}

}  // namespace braze
