#include "runtime/io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ir/support/utf8.h"
#include "tests/runtime/programs.h"

namespace braze::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string skip_error(std::string_view text) {
  return error_of([&] {
    JsonReader reader(text, "x.json");
    reader.skip();
    reader.finish();
  });
}

std::string read_string(std::string_view text) {
  JsonReader reader(text, "x.json");
  std::string value = reader.string();
  reader.finish();
  return value;
}

uint64_t read_integer(std::string_view text) {
  JsonReader reader(text, "x.json");
  const uint64_t value = reader.integer();
  reader.finish();
  return value;
}

TEST(Json, ReadsWhatIsAskedFor) {
  const std::string text = R"( {"a" : [1, 2,18446744073709551615], "b":"x" , "c":{},"d":[]} )";
  JsonReader reader(text, "x.json");
  std::vector<uint64_t> numbers;
  std::string word, names;
  reader.object([&](const std::string& name) {
    names += name;
    if (name == "a") return reader.array([&] { numbers.push_back(reader.integer()); });
    if (name == "b") return void(word = reader.string());
    reader.skip();
  });
  reader.finish();
  EXPECT_THAT(numbers, ElementsAre(1, 2, UINT64_MAX));
  EXPECT_EQ(word, "x");
  EXPECT_EQ(names, "abcd");
}

TEST(Json, SkipsEveryKindOfValue) {
  for (const char* text :
       {"0", "-0", "10", "-12.50e+3", "1E9", "1e-9", "0.5", "true", "false", "null", "\"\"", "[]",
        "{}", " [ 1 , [ ] , { } ] ", R"({"a":[{"b":null}],"a":"twice"})", "\t\r\n 7\n"})
    EXPECT_EQ(skip_error(text), "") << text;
}

TEST(Json, StringsAreUnescaped) {
  EXPECT_EQ(read_string(R"("a\"\\\/\b\f\n\r\t")"), "a\"\\/\b\f\n\r\t");
  EXPECT_EQ(read_string(R"("\u0041\u00e4\u20AC\ud83d\ude00")"),
            "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(read_string(R"("\u0000")"), std::string(1, '\0'));
  EXPECT_EQ(read_string("\"\xc3\xa4\x7f\""), "\xc3\xa4\x7f");
  for (const std::string& text : {std::string("plain"), std::string("q\"b\\s/\n\t\1\x7f\xc3\xa4"),
                                  std::string("nul\0nul", 7)})
    EXPECT_EQ(read_string(json_string(text)), text);
}

TEST(Json, MalformedTextNamesTheByte) {
  const std::string deep(65, '['), deep_enough = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(skip_error(deep_enough), "");
  const std::pair<std::string, const char*> table[] = {
      {"", "a value (at byte 0"},
      {"  ", "a value (at byte 2"},
      {"nul", "a value"},
      {"True", "a value"},
      {"nan", "a value"},
      {"Infinity", "a value"},
      {"'a'", "a value"},
      {"01", "begins with 0"},
      {"-", "a value"},
      {"+1", "a value"},
      {"1.", "fraction"},
      {".5", "a value"},
      {"1e", "exponent"},
      {"1 2", "goes on after its end (at byte 2"},
      {"{} x", "goes on"},
      {std::string("1\0", 2), "goes on"},
      {"[1,]", "a value (at byte 3"},
      {"[1 2]", "a ']' (at byte 3"},
      {"[1", "a ']'"},
      {"[,1]", "a value"},
      {"{\"a\":1,}", "a '\"' (at byte 7"},
      {"{\"a\" 1}", "a ':'"},
      {"{a:1}", "a '\"'"},
      {"{\"a\":1", "a '}'"},
      {"{1:1}", "a '\"'"},
      {"[}", "a value"},
      {"// c\n1", "a value"},
      {"\"a", "a string does not end (at byte 2"},
      {"\"\\", "escape that JSON"},
      {"\"\\x\"", "escape that JSON"},
      {"\"\\u12\"", "4 digits"},
      {"\"\\u12g4\"", "4 digits"},
      {"\"\\u-123\"", "4 digits"},
      {"\"\\ud83d\"", "surrogate"},
      {"\"\\ud83dxxxxxx\"", "surrogate"},
      {"\"\\ud83d\\u0041\"", "surrogate"},
      {"\"\\ude00\\ud83d\"", "surrogate"},
      {"\"a\nb\"", "control character"},
      {std::string("\"a\0b\"", 5), "control character"},
      {"\"\xff\"", "UTF-8"},
      {"\"\xc3\"", "UTF-8"},
      {"\"\xc0\x80\"", "UTF-8"},
      {"\"\xed\xa0\x80\"", "UTF-8"},
      {"\xef\xbb\xbf{}", "a value (at byte 0"},
      {deep, "more than 64 levels (at byte 65"},
      {std::string(1 << 20, '['), "more than 64 levels"},
  };
  for (const auto& [text, message] : table)
    EXPECT_THAT(skip_error(text), AllOf(StartsWith("json-syntax:"), HasSubstr(message)))
        << text.substr(0, 100);
}

TEST(Json, IntegersAreExactOrErrors) {
  EXPECT_EQ(read_integer("0"), 0u);
  EXPECT_EQ(read_integer(" 9007199254740993 "), 9007199254740993u) << "no double holds it";
  EXPECT_EQ(read_integer("18446744073709551615"), UINT64_MAX);
  for (const auto& [text, message] : {std::pair("18446744073709551616", "2^64"),
                                      {"-1", "unsigned number"},
                                      {"1.0", "an integer without"},
                                      {"1e3", "an integer without"},
                                      {"00", "begins with 0"},
                                      {"\"1\"", "number"},
                                      {"", "number"},
                                      {"99999999999999999999999999", "2^64"}})
    EXPECT_THAT(error_of([&, text = text] { read_integer(text); }), HasSubstr(message)) << text;
}

TEST(Json, Utf8IsThatOfTheStandard) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8(
      "a\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"));
  for (const char* bad : {"\x80", "\xbf", "\xc1\xbf", "\xc2", "\xc2\x7f", "\xe0\x9f\xbf",
                          "\xe2\x82", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x90\x80", "\xfe", "\xff"})
    EXPECT_FALSE(is_utf8(bad));
}

}  // namespace
}  // namespace braze::test
