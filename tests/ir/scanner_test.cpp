#include "ir/support/scanner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/support/text.h"

namespace braze {
namespace {

std::string kinds(std::string_view text) {
  static constexpr const char* kNames[] = {"end",     "identifier", "value",  "symbol",
                                           "integer", "float",      "string", "punctuation"};
  std::string out;
  for (Scanner scanner(text, "test"); !scanner.at_end(); scanner.next()) {
    out +=
        fmt::format("{}:{} ", kNames[static_cast<int>(scanner.peek().kind)], scanner.peek().text);
  }
  return out;
}

template <class Function>
std::string message_of(std::string_view text, Function&& function) {
  try {
    Scanner scanner(text, "test.braze");
    function(scanner);
  } catch (const Error& error) {
    return error.location().to_string() + " " + error.message();
  }
  return "none";
}

TEST(Scanner, Tokens) {
  EXPECT_EQ(kinds(""), "");
  EXPECT_EQ(kinds("  // only a comment"), "");
  EXPECT_EQ(kinds("add _x1 dot.start"), "identifier:add identifier:_x1 identifier:dot.start ");
  EXPECT_EQ(kinds("%0 %a.1 @main"), "value:0 value:a.1 symbol:main ");
  EXPECT_EQ(kinds("1 2.5 1e9 1.5e-3 2E+4"),
            "integer:1 float:2.5 float:1e9 float:1.5e-3 float:2E+4 ");
  EXPECT_EQ(kinds("n:1..65536"),
            "identifier:n punctuation:: integer:1 punctuation:.. integer:65536 ");
  EXPECT_EQ(kinds("n..m"), "identifier:n punctuation:.. identifier:m ");
  EXPECT_EQ(kinds("a->b==c"),
            "identifier:a punctuation:-> identifier:b punctuation:== identifier:c ");
  EXPECT_EQ(
      kinds("<= >= != < = %"),
      "punctuation:<= punctuation:>= punctuation:!= punctuation:< punctuation:= punctuation:% ");
  EXPECT_EQ(kinds("\"a // b\" \"\""), "string:a // b string: ");
  EXPECT_EQ(kinds("a// c\nb"), "identifier:a identifier:b ");
  EXPECT_EQ(kinds("1. 2e 3e+ x"),
            "integer:1 punctuation:. integer:2 identifier:e integer:3 identifier:e punctuation:+ "
            "identifier:x ");
  EXPECT_EQ(kinds("a. b"), "identifier:a punctuation:. identifier:b ");
}

TEST(Scanner, Positions) {
  Scanner scanner("a  b\r\n\n  \"s\" // x\n c", "test");
  EXPECT_TRUE(scanner.at_line_start());
  EXPECT_EQ(scanner.location().to_string(), "test:1:1");
  EXPECT_EQ(scanner.peek_second().column, 4u);
  scanner.next();
  EXPECT_FALSE(scanner.at_line_start());
  EXPECT_EQ(scanner.location().to_string(), "test:1:4");
  scanner.next();
  EXPECT_TRUE(scanner.at_line_start());
  EXPECT_EQ(scanner.location().to_string(), "test:3:3");
  EXPECT_EQ(scanner.expect_string(), "s");
  EXPECT_TRUE(scanner.at_line_start());
  EXPECT_EQ(scanner.location().to_string(), "test:4:2");
  scanner.next();
  EXPECT_TRUE(scanner.at_end());
  scanner.next();
  EXPECT_TRUE(scanner.at_end());
}

TEST(Scanner, AcceptAndExpect) {
  Scanner scanner("add \"add\" -> %add", "test");
  EXPECT_FALSE(scanner.accept("sub"));
  EXPECT_TRUE(scanner.accept("add"));
  EXPECT_FALSE(scanner.accept("add"));  // a string is no keyword
  EXPECT_EQ(scanner.expect_string(), "add");
  scanner.expect("->");
  EXPECT_FALSE(scanner.at("add"));
  EXPECT_EQ(scanner.expect_value(), "add");
}

TEST(Scanner, Numbers) {
  const auto integer = [](std::string_view text) { return Scanner(text, "test").expect_integer(); };
  const auto number = [](std::string_view text) { return Scanner(text, "test").expect_number(); };
  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("-12"), -12);
  EXPECT_EQ(integer("0009"), 9);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(number("3"), 3.0);
  EXPECT_EQ(number("-2.5e3"), -2500.0);
  EXPECT_EQ(number("18446744073709551616"), 0x1p64);
  EXPECT_EQ(number("-inf"), -INFINITY);
  EXPECT_TRUE(std::isnan(number("nan")));
  EXPECT_TRUE(std::signbit(number("-0")));
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const auto value = std::bit_cast<double>(random());
    if (std::isnan(value)) continue;
    ASSERT_EQ(number(number_text(value)), value);
  }
}

TEST(Scanner, StringsReadBack) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& text : {std::string("a \"b\" \\ \n\t"), std::string("\\"), std::string(),
                                  std::string("\\x41"), all}) {
    const std::string quoted = quote(text);
    Scanner scanner(quoted, "test");
    EXPECT_EQ(unquote(scanner.expect_string()), text);
    EXPECT_TRUE(scanner.at_end());
  }
  EXPECT_EQ(unquote("\\x4"), "x4");
  EXPECT_EQ(unquote("\\xzz"), "xzz");
  EXPECT_EQ(unquote("\\"), "\\");
}

TEST(Scanner, MalformedInput) {
  const auto skip_all = [](Scanner& s) {
    while (!s.at_end()) s.next();
  };
  const auto integer = [](Scanner& s) { s.expect_integer(); };
  const auto number = [](Scanner& s) { s.expect_number(); };
  const auto identifier = [](Scanner& s) { s.expect_identifier("an op"); };
  struct Case {
    std::string text;
    std::function<void(Scanner&)> read;
    std::string message;
  };
  const std::string no_quote = "the string has no closing quote on its line";
  const std::string nul(1, '\0');
  const Case cases[] = {
      {"a \"open", skip_all, "test.braze:1:3 " + no_quote},
      {"\"open\n\"", skip_all, "test.braze:1:1 " + no_quote},
      {"\"open\\", skip_all, "test.braze:1:1 " + no_quote},
      {"\"open\\\"", skip_all, "test.braze:1:1 " + no_quote},
      {"\"open\\\n\"", skip_all, "test.braze:1:1 " + no_quote},
      {"a\n b" + nul + "c", skip_all, "test.braze:2:3 unexpected byte 0x00"},
      {nul, skip_all, "test.braze:1:1 unexpected byte 0x00"},
      {"\xc3\xa9", skip_all, "test.braze:1:1 unexpected byte 0xc3"},
      {"\x7f", skip_all, "test.braze:1:1 unexpected byte 0x7f"},
      {"\x1b[0m", skip_all, "test.braze:1:1 unexpected byte 0x1b"},
      {"9223372036854775808", integer,
       "test.braze:1:1 \"9223372036854775808\" does not fit in 64 bits"},
      {"-9223372036854775809", integer,
       "test.braze:1:1 -\"9223372036854775809\" does not fit in 64 bits"},
      {"1.5", integer, "test.braze:1:1 expected an integer, found \"1.5\""},
      {"-x", integer, "test.braze:1:2 expected an integer, found \"x\""},
      {"", integer, "test.braze:1:1 expected an integer, found the end of the text"},
      {"1e999", number, "test.braze:1:1 \"1e999\" is outside of the range of f64"},
      {"-", number, "test.braze:1:2 expected a number, found the end of the text"},
      {"%3", identifier, "test.braze:1:1 expected an op, found \"%3\""},
      {"@f", identifier, "test.braze:1:1 expected an op, found \"@f\""},
      {"\"s\"", identifier, "test.braze:1:1 expected an op, found the string \"s\""},
  };
  for (const Case& c : cases) EXPECT_EQ(message_of(c.text, c.read), c.message) << c.text;

  // Tokens of any length are read, and messages stay short.
  for (const char c : {'a', '9', '.', '%', '-'}) {
    const std::string text(1 << 20, c);
    EXPECT_EQ(message_of(text, skip_all), "none");
    for (const auto& read : std::vector<std::function<void(Scanner&)>>{integer, identifier}) {
      EXPECT_LT(message_of(text, read).size(), 200u);
    }
  }
}

TEST(Scanner, Header) {
  const auto graph = [](Scanner& s) { expect_header(s, "graph"); };
  EXPECT_EQ(message_of("braze 1 graph\n", graph), "none");
  EXPECT_EQ(message_of("braze 2 graph", graph),
            "test.braze:1:7 this is text of version 2, but this Braze reads version 1");
  EXPECT_EQ(message_of("braze 1 kernel", graph),
            "test.braze:1:9 expected a text of kind \"graph\", found \"kernel\"");
  EXPECT_EQ(
      message_of("", graph),
      "test.braze:1:1 a text begins with \"braze 1 graph\", but this one with the end of the text");
}

TEST(Scanner, RandomBytesNeverDoHarm) {
  std::mt19937 random(1);
  constexpr std::string_view kAlphabet = "ab01.%@\"\\/-><=e+ \n\t(),\0\x80";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t n = random() % 40; text.size() < n;) text += kAlphabet[random() % kAlphabet.size()];
    try {
      Scanner scanner(text, "test");
      for (size_t tokens = 0; !scanner.at_end(); scanner.next()) {
        ASSERT_LE(++tokens, text.size());
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code().name, "syntax");
    }
  }
}

}  // namespace
}  // namespace braze
