#include "braze/tokenizer.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime/io/json_value.h"
#include "tests/frontend/support.h"
#include "tests/source_path.h"

namespace braze {
namespace {

// Tokenizers, strings and ids were made outside of Braze: tokenizers/make.py.
std::string folder() {
  const char* const other = std::getenv("BRAZE_TOKENIZERS");
  return (other ? other : test::source_path("tests/frontend/tokenizers")) + std::string("/");
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> strings() {
  const std::string text = read_file(folder() + "strings.json");
  JsonReader reader(text, "strings.json");
  std::vector<std::string> out;
  reader.array([&] { out.push_back(reader.string()); });
  return out;
}

class TokenizerTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerTest, IdsAreThoseOfTheReference) {
  const std::string file = GetParam();
  const Tokenizer tokenizer = Tokenizer::open(folder() + file);
  std::ifstream expected(folder() + file.substr(0, file.find('.')) + ".ids");
  const std::vector<std::string> texts = strings();
  ASSERT_GE(texts.size(), 300u);
  int wrong = 0;
  for (const std::string& text : texts) {
    std::string line;
    ASSERT_TRUE(std::getline(expected, line));
    std::istringstream numbers(line);
    const std::vector<int32_t> want{std::istream_iterator<int32_t>(numbers), {}};
    if (tokenizer.encode(text) == want) continue;
    if (++wrong <= 3) ADD_FAILURE() << "encoded otherwise: " << text;
  }
  EXPECT_EQ(wrong, 0) << "of " << texts.size();
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerTest,
                         testing::Values("bytes.json", "digits.json", "digits.gguf", "split.json",
                                         "pieces.json", "pieces.gguf", "blanks.json",
                                         "words.json"));

TEST(Tokenizer, BytesAndPiecesGiveTheTextBack) {
  for (const char* file : {"digits.json", "digits.gguf", "pieces.gguf"}) {
    const Tokenizer tokenizer = Tokenizer::open(folder() + file);
    // As text alone: "pieces" puts a blank behind every special token.
    for (const std::string& text : strings())
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
