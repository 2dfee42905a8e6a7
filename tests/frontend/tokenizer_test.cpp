#include "braze/tokenizer.h"

#include "tests/frontend/support.h"
#include "tests/frontend/tokenizer_strings.h"
#include "tests/source_path.h"

namespace braze {
namespace {

// Tokenizers and strings were made outside of Braze (tokenizers/make.py); tokenizer-cases compares
// the ids.
std::string folder() { return test::source_path("tests/frontend/tokenizers") + "/"; }

TEST(Tokenizer, BytesAndPiecesGiveTheTextBack) {
  for (const char* file : {"digits.json", "digits.gguf", "pieces.gguf"}) {
    const Tokenizer tokenizer = Tokenizer::open(folder() + file);
    // As text alone: "pieces" puts a blank behind every special token.
    for (const std::string& text : test::read_strings(folder() + "strings.json"))
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, {.special = false})), text) << file;
  }
}

TEST(Tokenizer, PiecesOfATextAreItsText) {
  const Tokenizer tokenizer = Tokenizer::open(folder() + "words.json");
  const auto ids = tokenizer.encode("Unaffected kernels, 2 of them.");
  EXPECT_EQ(tokenizer.decode(ids), "unaffected kernels, 2 of them.");
  EXPECT_EQ(tokenizer.decode(ids, true), "[CLS] unaffected kernels, 2 of them. [SEP]");
  EXPECT_EQ(tokenizer.piece(-1), "");
  EXPECT_EQ(tokenizer.piece(static_cast<int32_t>(tokenizer.size())), "");
}

TEST(Tokenizer, SpecialTokensOfATextCanBeLeftText) {
  const Tokenizer tokenizer = Tokenizer::open(folder() + "digits.gguf");
  const int32_t end = tokenizer.id("<|end|>").value();
  EXPECT_EQ(tokenizer.encode("<|end|>"), std::vector<int32_t>{end});
  const auto text = tokenizer.encode("<|end|>", {.special = false});
  EXPECT_GT(text.size(), 1u);
  EXPECT_EQ(tokenizer.decode(text), "<|end|>");
  EXPECT_EQ(tokenizer.decode({{end}}), "");
  EXPECT_FALSE(tokenizer.id("<|start|>"));
  EXPECT_EQ(Tokenizer::open(folder() + "words.json").encode("a", {.frame = false}).size(), 1u);
}

std::string error(const std::string& text) {
  return error_of([&] { Tokenizer::from_json(text, "t.json"); });
}

TEST(Tokenizer, WhatIsNotKnownIsNamed) {
  const auto with = [](const std::string& part) {
    return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, )" + part + "}";
  };
  EXPECT_EQ(error(with(R"("normalizer": null)")), "");
  EXPECT_CONTAINS(error(with(R"("normalizer": {"type": "Nmt"})")), "the normalizer \"Nmt\"");
  EXPECT_CONTAINS(error(with(R"("pre_tokenizer": {"type": "UnicodeScripts"})")),
                  "\"UnicodeScripts\"");
  EXPECT_CONTAINS(error(with(R"("decoder": {"type": "CTC"})")), "the decoder \"CTC\"");
  EXPECT_CONTAINS(error(R"({"model": {"type": "Unigram", "vocab": {}}})"), "the model \"Unigram\"");
  EXPECT_CONTAINS(
      error(with(R"("normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""})")),
      "the pattern \"(\"");
}

TEST(Tokenizer, FilesThatAreMalformedAreErrors) {
  EXPECT_CONTAINS(error("[]"), "there is no model");
  EXPECT_CONTAINS(error("{"), "at byte 1 of its JSON");
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a c"]}})"),
                  "the pair \"a\" \"c\" does not consist of tokens");
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": 1.5}}})"),
                  "an integer of at most");
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": 9999999}}})"), "far beyond");
  EXPECT_CONTAINS(error(R"({"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "u"}})"),
                  "\"u\" is not a token");
  const Tokenizer tokenizer = Tokenizer::open(folder() + "digits.json");
  EXPECT_CONTAINS(error_of([&] { tokenizer.encode("\xff"); }), "not UTF-8");
}

}  // namespace
}  // namespace braze
