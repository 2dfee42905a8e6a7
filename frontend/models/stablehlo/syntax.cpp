#include "frontend/models/stablehlo/syntax.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <utility>

#include "frontend/models/stablehlo/literal.h"
#include "ir/support/text.h"

namespace braze::stablehlo {

namespace {

constexpr int kMostDepth = 64;  // how deeply regions, lists and types may be nested
constexpr size_t kMostAxes = 32;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$';
}
bool is_name(char c) { return is_word(c) || c == '.' || c == '-'; }

// For each operation, the names that its pretty form gives to attributes.
struct PrettyName {
  std::string_view operation, pretty, generic;
};
constexpr PrettyName kPrettyNames[] = {
    {"stablehlo.broadcast_in_dim", "dims", "broadcast_dimensions"},
    {"stablehlo.transpose", "dims", "permutation"},
    {"stablehlo.reverse", "dims", "dimensions"},
    {"stablehlo.iota", "dim", "iota_dimension"},
    {"stablehlo.concatenate", "dim", "dimension"},
    {"stablehlo.pad", "low", "edge_padding_low"},
    {"stablehlo.pad", "high", "edge_padding_high"},
    {"stablehlo.pad", "interior", "interior_padding"},
    {"stablehlo.dynamic_slice", "sizes", "slice_sizes"},
    {"stablehlo.fft", "type", "fft_type"},
    {"stablehlo.fft", "length", "fft_length"},
    {"stablehlo.rng", "distribution", "rng_distribution"},
    {"stablehlo.rng_bit_generator", "algorithm", "rng_algorithm"},
    {"stablehlo.convolution", "dim_numbers", "dimension_numbers"},
    {"stablehlo.convolution", "stride", "window_strides"},
    {"stablehlo.convolution", "pad", "padding"},
    {"stablehlo.convolution", "lhs_dilate", "lhs_dilation"},
    {"stablehlo.convolution", "rhs_dilate", "rhs_dilation"},
    {"stablehlo.convolution", "reverse", "window_reversal"},
    {"stablehlo.custom_call", "callee", "call_target_name"},
};

std::string generic_name(std::string_view operation, std::string_view pretty) {
  for (const PrettyName& row : kPrettyNames)
    if (row.operation == operation && row.pretty == pretty) return std::string(row.generic);
  return std::string(pretty);
}

Attribute integer_attribute(int64_t value) {
  return {.kind = Attribute::Kind::Integer, .integer = value, .dictionary = {}, .dense = {}};
}
Attribute list_attribute(std::vector<Attribute> list) {
  return {.kind = Attribute::Kind::List, .list = std::move(list), .dictionary = {}, .dense = {}};
}
Attribute word_attribute(std::string_view text) {
  return {.kind = Attribute::Kind::Word,
          .text = std::string(text),
          .list = {},
          .dictionary = {},
          .dense = {}};
}
Attribute dictionary_attribute(Attributes attributes) {
  return {.kind = Attribute::Kind::Dictionary,
          .list = {},
          .dictionary = std::make_shared<const Attributes>(std::move(attributes)),
          .dense = {}};
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {
    find_aliases();
  }

  Module module() {
    Module out;
    skip_aliases();
    if (accept_word("module")) {
      if (at('@')) out.name = symbol();
      if (accept_word("attributes")) out.attributes = dictionary();
      expect('{');
      while (!accept('}')) item(out);
      trailing_location();
    }
    while (!at_end()) item(out);
    return out;
  }

 private:
  // ---- Characters -------------------------------------------------------------------------------

  // Counts the depth while a list, type or region is read.
  class Deeper {
   public:
    explicit Deeper(Reader& reader) : reader_(reader) {
      if (++reader_.depth_ > kMostDepth) reader_.fail_here("it nests too deep");
    }
    ~Deeper() { --reader_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Reader& reader_;
  };

  uint32_t line() {
    if (position_ < counted_) counted_ = 0, line_ = 1;
    const size_t end = std::min(position_, text_.size());
    line_ += static_cast<uint32_t>(std::count(text_.begin() + static_cast<ptrdiff_t>(counted_),
                                              text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    counted_ = end;
    return line_;
  }

  [[noreturn]] void fail_here(std::string_view message) {
    const std::string_view rest = text_.substr(std::min(position_, text_.size()), 24);
    const std::string_view near = rest.substr(0, rest.find('\n'));
    fail(codes::kStablehloText,
         fmt::format("{}:{}: {}, at {}", file_, line(), message, quote(near)));
  }

  bool at_end() {
    skip();
    return position_ >= text_.size();
  }
  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  char peek_next() const { return position_ + 1 < text_.size() ? text_[position_ + 1] : '\0'; }

  void skip() {
    while (position_ < text_.size()) {
      const char c = text_[position_];
      if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        ++position_;
      } else if (c == '/' && peek_next() == '/') {
        position_ = std::min(text_.find('\n', position_), text_.size());
      } else {
        return;
      }
    }
  }
  bool at(char c) {
    skip();
    return peek() == c;
  }
  bool at(std::string_view text) {
    skip();
    return text_.substr(position_, text.size()) == text;
  }
  bool accept(char c) {
    if (!at(c)) return false;
    ++position_;
    return true;
  }
  bool accept(std::string_view text) {
    if (!at(text)) return false;
    position_ += text.size();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail_here(fmt::format("expected {}", quote(std::string(1, c))));
  }
  void expect(std::string_view text) {
    if (!accept(text)) fail_here(fmt::format("expected {}", quote(text)));
  }
  bool at_word(std::string_view word) {
    return at(word) &&
           (position_ + word.size() >= text_.size() || !is_word(text_[position_ + word.size()]));
  }
  bool accept_word(std::string_view word) {
    if (!at_word(word)) return false;
    position_ += word.size();
    return true;
  }

  template <class Is>
  std::string_view run(const Is& is, std::string_view what) {
    skip();
    const size_t begin = position_;
    while (position_ < text_.size() && is(text_[position_])) ++position_;
    if (begin == position_) fail_here(fmt::format("expected {}", what));
    return text_.substr(begin, position_ - begin);
  }
  // A word, which may contain dots.
  std::string_view word() {
    return run([](char c) { return is_word(c) || c == '.'; }, "a word");
  }

  std::string string() {
    expect('"');
    std::string out;
    for (;; ++position_) {
      if (position_ >= text_.size()) fail_here("a string does not end");
      const char c = text_[position_];
      if (c == '"') break;
      if (c != '\\') {
        out += c;
        continue;
      }
      ++position_;
      const auto digit = [](char d) {
        return is_digit(d)            ? d - '0'
               : d >= 'a' && d <= 'f' ? d - 'a' + 10
               : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                      : -1;
      };
      if (digit(peek()) >= 0 && digit(peek_next()) >= 0) {
        out += static_cast<char>(digit(peek()) * 16 + digit(peek_next()));
        ++position_;
      } else {
        out += peek() == 'n' ? '\n' : peek() == 't' ? '\t' : peek();
      }
    }
    ++position_;
    return out;
  }

  std::string symbol() {
    expect('@');
    return at('"') ? string() : std::string(run(is_name, "a name"));
  }

  // The text between brackets, without the brackets. Strings in it may contain brackets.
  std::string_view between(char open, char close) {
    expect(open);
    const size_t begin = position_;
    for (int depth = 1; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (c == '"') {
        string();
        --position_;
      } else if (c == open) {
        ++depth;
      } else if (c == close && !(c == '>' && position_ > begin && text_[position_ - 1] == '-')) {
        if (--depth == 0) return text_.substr(begin, position_++ - begin);
      }
    }
    fail_here(fmt::format("{} is not closed", quote(std::string(1, open))));
  }

  // ---- Aliases ----------------------------------------------------------------------------------

  // Finds the lines "#name = ..." and "!name = ...". They may come before or after their uses.
  void find_aliases() {
    for (size_t begin = 0; begin < text_.size();) {
      const size_t end = std::min(text_.find('\n', begin), text_.size());
      const std::string_view line = text_.substr(begin, end - begin);
      if (!line.empty() && (line[0] == '#' || line[0] == '!')) {
        const size_t equals = line.find(" = ");
        if (equals != std::string_view::npos)
          aliases_.emplace(line.substr(0, equals), std::pair(begin + equals + 3, end));
      }
      begin = end + 1;
    }
  }

  // What `read` reads at the declaration of the alias. It is nullopt if there is no such alias.
  template <class Read>
  auto through_alias(std::string_view name, const Read& read) -> std::optional<decltype(read())> {
    const auto found = aliases_.find(name);
    if (found == aliases_.end()) return std::nullopt;
    const Deeper deeper(*this);  // an alias may refer to itself
    const size_t back = std::exchange(position_, found->second.first);
    auto out = read();
    position_ = back;
    return out;
  }

  // ---- Types ------------------------------------------------------------------------------------

  Type type() {
    const Deeper deeper(*this);
    skip();
    const size_t begin = position_;
    Type out;
    if (at('!')) {
      ++position_;
      const std::string_view name = run(is_name, "the name of a type");
      const std::string alias = "!" + std::string(name);
      if (auto real = through_alias(alias, [&] { return type(); })) return *real;
      if (peek() == '<') between('<', '>');
    } else if (accept('(')) {  // the type of a function
      while (!accept(')')) {
        type();
        accept(',');
      }
      expect("->");
      types_or_one();
    } else {
      const std::string_view name = word();
      if (peek() == '<') {
        const std::string_view inside = between('<', '>');
        if (name == "tensor") out.tensor = tensor_type(inside);
      }
    }
    out.text = std::string(text_.substr(begin, position_ - begin));
    return out;
  }

  // Reads "4x8xf32" or "f32". It is nullopt if Braze does not have the type.
  std::optional<TensorType> tensor_type(std::string_view inside) {
    std::vector<int64_t> dims;
    while (!inside.empty() && (is_digit(inside[0]) || inside[0] == '?')) {
      const size_t end = inside.find('x');
      if (end == std::string_view::npos || inside[0] == '?') return std::nullopt;
      int64_t extent = 0;
      const auto [stop, error] = std::from_chars(inside.data(), inside.data() + end, extent);
      if (error != std::errc() || stop != inside.data() + end) fail_here("an extent is no number");
      dims.push_back(extent);
      if (dims.size() > kMostAxes) fail_here("a tensor has too many axes");
      inside.remove_prefix(end + 1);
    }
    const auto dtype = element_type(inside.substr(0, inside.find(',')));
    if (!dtype) return std::nullopt;
    return TensorType{*dtype, Shape::of(dims)};
  }

  // Reads "t" or "(t, t)".
  std::vector<Type> types_or_one() {
    std::vector<Type> out;
    if (!accept('(')) {
      out.push_back(type());
      return out;
    }
    while (!accept(')')) {
      out.push_back(type());
      if (at('{')) dictionary();
      if (!accept(',') && !at(')')) fail_here("expected a type");
    }
    return out;
  }

  // ---- Attributes -------------------------------------------------------------------------------

  Attributes dictionary() {
    const Deeper deeper(*this);
    Attributes out;
    expect('{');
    named_values(out, '}');
    return out;
  }

  // Reads `name = value, name, ...` up to `close`.
  void named_values(Attributes& out, char close) {
    while (!accept(close)) {
      std::string name = at('"') ? string() : std::string(word());
      Attribute value = accept('=') ? attribute() : Attribute{.dictionary = {}, .dense = {}};
      out.insert_or_assign(std::move(name), std::move(value));
      if (!accept(',') && !at(close)) fail_here("expected the next attribute");
    }
  }

  // Reads a number. In a pretty form, the ':' behind it begins the types of the operation.
  Attribute number(bool is_typed = true) {
    skip();
    const size_t begin = position_;
    if (peek() == '-') ++position_;
    run([](char c) { return is_word(c) || c == '.' || c == '+'; }, "a number");
    // An exponent may have a sign.
    while ((peek() == '-' || peek() == '+') && position_ > begin &&
           (text_[position_ - 1] == 'e' || text_[position_ - 1] == 'E')) {
      ++position_;
      run(is_digit, "an exponent");
    }
    const std::string_view digits = text_.substr(begin, position_ - begin);
    Attribute out = integer_attribute(0);
    if (digits.find_first_of(".eE") != std::string_view::npos && !digits.starts_with("0x")) {
      out.kind = Attribute::Kind::Real;
      std::from_chars(digits.data(), digits.data() + digits.size(), out.real);
    } else if (digits.starts_with("0x")) {
      std::from_chars(digits.data() + 2, digits.data() + digits.size(), out.integer, 16);
    } else {
      const auto [stop, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), out.integer);
      if (error != std::errc() || stop != digits.data() + digits.size())
        fail_here("a number is malformed");
      out.real = static_cast<double>(out.integer);
    }
    if (is_typed && accept(':')) type();
    return out;
  }

  std::vector<Attribute> items(char close) {
    std::vector<Attribute> out;
    while (!accept(close)) {
      out.push_back(attribute());
      if (!accept(',') && !at(close)) fail_here("expected the next element");
    }
    return out;
  }

  Attribute literal() {
    Attribute out{.kind = Attribute::Kind::Dense, .dictionary = {}, .dense = {}};
    expect("dense");
    const std::string_view content = between('<', '>');
    expect(':');
    out.dense.type = type();
    if (!out.dense.type.tensor) return out;
    try {
      out.dense.value = read_literal(content, *out.dense.type.tensor);
    } catch (const Error& error) {
      fail_here(error.message());
    }
    return out;
  }

  Attribute attribute() {
    const Deeper deeper(*this);
    skip();
    const char c = peek();
    Attribute out{.dictionary = {}, .dense = {}};
    if (c == '"') {
      out.kind = Attribute::Kind::String;
      out.text = string();
      if (accept(':')) type();
      return out;
    }
    if (c == '@') {
      out.kind = Attribute::Kind::Symbol;
      out.text = symbol();
      while (accept("::")) out.text += "::" + symbol();
      return out;
    }
    if (c == '[') {
      ++position_;
      return list_attribute(items(']'));
    }
    if (c == '{') return dictionary_attribute(dictionary());
    if (c == '#') return dialect_attribute();
    if (c == '<') return word_attribute(between('<', '>'));
    if (c == '-' || is_digit(c)) return number();
    if (c == '(' || c == '!') return word_attribute(type().text);
    if (at("dense<")) return literal();
    if (accept("array<")) {
      word();
      if (!accept(':')) {
        expect('>');
        return list_attribute({});
      }
      return list_attribute(items('>'));
    }
    if (at_word("true") || at_word("false")) {
      out.kind = Attribute::Kind::Bool;
      out.integer = word() == "true";
      return out;
    }
    if (accept_word("unit")) return out;
    const size_t begin = position_;
    word();
    if (peek() == '<') between('<', '>');
    if (peek() == '(') between('(', ')');
    return word_attribute(text_.substr(begin, position_ - begin));
  }

  // Reads #stablehlo<precision DEFAULT>, #stablehlo.gather<a = [0], b = 1>,
  // #stablehlo.conv<[b, f]x..>, or an alias.
  Attribute dialect_attribute() {
    expect('#');
    const std::string_view name = run(is_name, "the name of an attribute");
    if (auto real = through_alias("#" + std::string(name), [&] { return attribute(); }))
      return *real;
    if (peek() != '<') return word_attribute(name);
    const size_t begin = position_;
    const std::string_view inside = between('<', '>');
    const size_t end = position_;
    const size_t first = inside.find_first_not_of(" \n");
    const size_t stop = first == std::string_view::npos
                            ? first
                            : inside.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", first);
    if (first != std::string_view::npos && stop != first && stop != std::string_view::npos &&
        inside.substr(stop).starts_with(" =")) {
      Attributes values;
      position_ = begin + 1;
      named_values(values, '>');
      position_ = end;
      return dictionary_attribute(std::move(values));
    }
    // Of "precision DEFAULT", only the value is kept.
    const size_t blank = inside.rfind(' ');
    const bool is_enumerator =
        blank != std::string_view::npos && inside.find_first_of("[,<") == std::string_view::npos;
    return word_attribute(is_enumerator ? inside.substr(blank + 1) : inside);
  }

  // The name in loc("name"), loc("name"(...)) or loc(#alias). It is "" for other locations.
  std::string location() {
    expect("loc");
    expect('(');
    std::string out;
    if (at('"')) {
      out = string();
      if (peek() == ':') out.clear();  // it is a file, followed by a line
    } else if (at('#')) {
      ++position_;
      const std::string name = "#" + std::string(run(is_name, "an alias"));
      if (auto real = through_alias(name, [&] { return location(); })) out = *real;
    }
    --position_;  // the rest is skipped, up to the bracket that closes it
    for (int depth = 1; depth > 0;) {
      ++position_;
      if (position_ >= text_.size()) fail_here("a location does not end");
      if (peek() == '"') string(), --position_;
      if (peek() == '(') ++depth;
      if (peek() == ')') --depth;
    }
    ++position_;
    return out;
  }
  std::string trailing_location() { return at("loc(") ? location() : ""; }

  // ---- Values -----------------------------------------------------------------------------------

  // Reads %name or %name#2.
  ValueName value() {
    expect('%');
    ValueName out{std::string(run([](char c) { return is_name(c); }, "a value's name")), 0};
    if (peek() == '#') {
      ++position_;
      out.number = whole();
    }
    return out;
  }
  int64_t whole() {
    const std::string_view digits = run(is_digit, "a number");
    int64_t out = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), out).ec != std::errc() ||
        out > 1 << 20)
      fail_here("a number is too large");
    return out;
  }

  std::vector<ValueName> results() {
    std::vector<ValueName> out;
    do {
      const ValueName first = value();
      const int64_t count = accept(':') ? whole() : 1;
      // The count is limited, so that a small file cannot make us list many results.
      if (out.size() + static_cast<size_t>(count) > 4096) fail_here("too many results");
      for (int64_t i = 0; i < count; ++i) out.push_back({first.name, i});
    } while (accept(','));
    expect('=');
    return out;
  }

  // ---- Operations -------------------------------------------------------------------------------

  Block block(std::vector<BlockArgument> arguments = {}) {
    const Deeper deeper(*this);
    Block out{std::move(arguments), {}};
    expect('{');
    if (accept('^')) {
      word();
      if (accept('(')) {
        while (!accept(')')) {
          const ValueName name = value();
          expect(':');
          out.arguments.push_back({name, type()});
          trailing_location();
          accept(',');
        }
      }
      expect(':');
    }
    while (!accept('}')) out.operations.push_back(operation());
    return out;
  }

  Operation operation() {
    skip();
    Operation out{.line = line()};
    if (at('%')) out.results = results();
    if (at('"')) {
      out.name = string();
      generic(out);
    } else {
      out.name = std::string(word());
      if (out.name == "call" || out.name == "return") out.name = "func." + out.name;
      if (out.name == "stablehlo.reduce")
        reduce(out);
      else if (out.name == "stablehlo.while")
        loop(out);
      else if (out.name == "stablehlo.constant" || out.name == "arith.constant")
        constant(out);
      else
        pretty(out);
    }
    trailing_location();
    return out;
  }

  void generic(Operation& out) {
    expect('(');
    while (!accept(')')) {
      out.operands.push_back(value());
      accept(',');
    }
    if (accept("<{")) {
      named_values(out.attributes, '}');
      expect('>');
    }
    if (accept('(')) {
      while (!accept(')')) {
        out.regions.push_back(block());
        accept(',');
      }
    }
    if (at('{')) merge(out.attributes, dictionary());
    expect(':');
    out.operand_types = types_or_one();
    expect("->");
    out.result_types = types_or_one();
  }

  static void merge(Attributes& to, Attributes from) {
    for (auto& [name, value] : from) to.insert_or_assign(name, std::move(value));
  }

  // Reads ": t", ": t, t", ": (t, t) -> t" or ": t -> (t, t)".
  void types(Operation& out) {
    expect(':');
    std::vector<Type> first;
    if (at('(')) {
      first = types_or_one();
    } else {
      do first.push_back(type());
      while (accept(','));
    }
    if (accept("->")) {
      out.operand_types = std::move(first);
      out.result_types = types_or_one();
      return;
    }
    if (first.empty()) fail_here("an operation has no type");
    // A select has two types: that of the condition, and that of everything else.
    const bool is_select = out.name == "stablehlo.select" && first.size() == 2;
    out.result_types = first.size() == out.results.size()
                           ? first
                           : std::vector<Type>(out.results.size(), first.back());
    if (first.size() == out.operands.size())
      out.operand_types = first;
    else
      out.operand_types.assign(out.operands.size(), first.back());
    if (is_select) out.operand_types[0] = first[0];
  }

  void constant(Operation& out) {
    if (at('{')) out.attributes = dictionary();
    Attribute value = attribute();
    Type type = value.dense.type;
    if (value.kind != Attribute::Kind::Dense) type.text = "no dense constant";
    out.attributes.insert_or_assign("value", std::move(value));
    out.result_types.push_back(std::move(type));
  }

  void pretty(Operation& out) {
    std::vector<std::string> words;
    while (!at(':')) {
      skip();
      const char c = peek();
      if (c == '%') {
        out.operands.push_back(value());
      } else if (c == ',' || c == '(' || c == ')') {
        ++position_;
      } else if (c == '@') {
        Attribute name = attribute();
        out.attributes.insert_or_assign(generic_name(out.name, "callee"), std::move(name));
      } else if (c == '{') {
        merge(out.attributes, dictionary());
      } else if (c == '[') {
        ranges(out);
      } else if (c == '<') {
        out.attributes.insert_or_assign("sharding", word_attribute(between('<', '>')));
      } else if (c == '"') {
        words.push_back(string());
      } else if (is_word(c) && !is_digit(c)) {
        const std::string name(word());
        if (accept('='))
          named(out, name);
        else
          words.push_back(name);
      } else if (c == '}' && out.operands.empty()) {
        return finish_words(out, words);  // a "return" without operands
      } else {
        fail_here(fmt::format("{} is written in an unknown way", out.name));
      }
      // A "return" without operands has no types.
      if (out.operands.empty() && words.empty() && at('}')) return;
    }
    types(out);
    finish_words(out, words);
  }

  void finish_words(Operation& out, const std::vector<std::string>& words) {
    constexpr std::string_view kNames[] = {"comparison_direction", "compare_type"};
    for (size_t i = 0; i < words.size(); ++i) {
      const bool is_compare = out.name == "stablehlo.compare" && i < 2;
      out.attributes.insert_or_assign(
          is_compare ? std::string(kNames[i]) : fmt::format("word{}", i), word_attribute(words[i]));
    }
  }

  // Reads `name = value` in a pretty form.
  void named(Operation& out, const std::string& name) {
    if (name == "contracting_dims" || name == "batching_dims") {
      Attribute left = attribute();
      if (!accept_word("x")) fail_here("expected x");
      Attribute right = attribute();
      const std::string key = name.substr(0, name.size() - 4) + "dimensions";
      out.attributes.insert_or_assign("lhs_" + key, std::move(left));
      out.attributes.insert_or_assign("rhs_" + key, std::move(right));
      return;
    }
    if (out.name == "stablehlo.convolution" && name == "dim_numbers") {
      skip();
      const size_t begin = position_;
      between('[', ']');
      expect('x');
      between('[', ']');
      expect("->");
      between('[', ']');
      out.attributes.insert_or_assign("dimension_numbers",
                                      word_attribute(text_.substr(begin, position_ - begin)));
      return;
    }
    if (out.name == "stablehlo.convolution" && name == "window") {
      for (auto& [key, value] : dictionary())
        out.attributes.insert_or_assign(generic_name(out.name, key), value);
      return;
    }
    skip();
    const bool is_number = is_digit(peek()) || peek() == '-';
    out.attributes.insert_or_assign(generic_name(out.name, name),
                                    is_number ? number(false) : attribute());
  }

  // Reads the starts, limits and strides of a slice: [0:4, 1:8:2].
  void ranges(Operation& out) {
    expect('[');
    std::vector<Attribute> starts, limits, strides;
    while (!accept(']')) {
      starts.push_back(integer_attribute(whole_64()));
      expect(':');
      limits.push_back(integer_attribute(whole_64()));
      strides.push_back(integer_attribute(accept(':') ? whole_64() : 1));
      if (!accept(',') && !at(']')) fail_here("expected the next range");
    }
    out.attributes.insert_or_assign("start_indices", list_attribute(std::move(starts)));
    out.attributes.insert_or_assign("limit_indices", list_attribute(std::move(limits)));
    out.attributes.insert_or_assign("strides", list_attribute(std::move(strides)));
  }
  int64_t whole_64() {
    const std::string_view digits = run(is_digit, "a number");
    int64_t out = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), out).ec != std::errc())
      fail_here("a number is too large");
    return out;
  }

  // Reads `(%x init: %i), ... applies OP across dimensions = [0] : types`. Without `applies OP`, a
  // reducer follows at the end.
  void reduce(Operation& out) {
    std::vector<ValueName> starts;
    do {
      expect('(');
      out.operands.push_back(value());
      expect("init");
      expect(':');
      starts.push_back(value());
      expect(')');
    } while (accept(','));
    const size_t count = starts.size();
    out.operands.insert(out.operands.end(), starts.begin(), starts.end());
    std::string applied;
    if (accept_word("applies")) applied = std::string(word());
    expect("across");
    expect("dimensions");
    expect('=');
    out.attributes.insert_or_assign("dimensions", attribute());
    if (at('{')) merge(out.attributes, dictionary());
    types(out);
    if (out.operand_types.size() != 2 * count) fail_here("a reduction has other types");
    if (!applied.empty()) {
      const Type& type = out.operand_types[count];
      Operation operation{.name = applied,
                          .results = {{"r", 0}},
                          .operands = {{"a", 0}, {"b", 0}},
                          .operand_types = {type, type},
                          .result_types = {type},
                          .line = out.line};
      Operation result{.name = "stablehlo.return",
                       .operands = {{"r", 0}},
                       .operand_types = {type},
                       .line = out.line};
      out.regions.push_back(
          {{{{"a", 0}, type}, {{"b", 0}, type}}, {std::move(operation), std::move(result)}});
      return;
    }
    trailing_location();
    expect("reducer");
    // The arguments come in pairs. In the generic form all left ones come first.
    std::vector<BlockArgument> left, right;
    while (accept('(')) {
      for (auto* list : {&left, &right}) {
        const ValueName name = value();
        expect(':');
        list->push_back({name, type()});
        trailing_location();
        accept(',');
      }
      expect(')');
    }
    left.insert(left.end(), right.begin(), right.end());
    out.regions.push_back(block(std::move(left)));
  }

  // Reads `(%a = %0, ...) : types cond {...} do {...}`.
  void loop(Operation& out) {
    std::vector<BlockArgument> arguments;
    expect('(');
    while (!accept(')')) {
      arguments.push_back({value(), {}});
      expect('=');
      out.operands.push_back(value());
      accept(',');
    }
    if (!arguments.empty()) {
      types(out);
      if (out.operand_types.size() != arguments.size()) fail_here("a loop has other types");
    }
    for (size_t i = 0; i < arguments.size(); ++i) arguments[i].type = out.operand_types[i];
    if (accept_word("attributes")) merge(out.attributes, dictionary());
    if (!accept_word("cond")) fail_here("expected cond");
    out.regions.push_back(block(arguments));
    if (!accept_word("do")) fail_here("expected do");
    out.regions.push_back(block(std::move(arguments)));
  }

  // ---- Functions --------------------------------------------------------------------------------

  // find_aliases has read them. They stand before the module and behind it.
  void skip_aliases() {
    while (at('#') || at('!')) position_ = std::min(text_.find('\n', position_), text_.size());
  }

  void item(Module& module) {
    if (at('#') || at('!')) return skip_aliases();
    if (accept_word("func.func")) return add(module, function());
    if (at("sdy.mesh")) {
      Operation mesh{.name = std::string(word()), .line = line()};
      mesh.attributes.insert_or_assign("name", attribute());
      expect('=');
      mesh.attributes.insert_or_assign("axes", attribute());
      trailing_location();
      module.others.push_back(std::move(mesh));
      return;
    }
    Operation operation = this->operation();
    if (operation.name == "builtin.module" && operation.regions.size() == 1) {
      merge(module.attributes, std::move(operation.attributes));
      for (Operation& inner : operation.regions[0].operations)
        inner.name == "func.func" ? add(module, function_of(std::move(inner)))
                                  : module.others.push_back(std::move(inner));
      return;
    }
    module.others.push_back(std::move(operation));
  }

  void add(Module& module, Function function) {
    std::string name = function.name;
    if (!module.functions.emplace(name, std::move(function)).second)
      fail_here(fmt::format("there are two functions {}", quote(name)));
  }

  Function function() {
    Function out{.line = line()};
    out.is_private = accept_word("private");
    if (!accept_word("public")) accept_word("nested");
    out.name = symbol();
    expect('(');
    while (!accept(')')) {
      Parameter parameter;
      if (at('%')) {
        parameter.name = value();
        expect(':');
      }
      parameter.type = type();
      if (at('{')) parameter.attributes = dictionary();
      parameter.label = trailing_location();
      out.arguments.push_back(std::move(parameter));
      accept(',');
    }
    if (accept("->")) function_results(out);
    if (accept_word("attributes")) dictionary();
    if (at('{')) out.body = block();
    trailing_location();
    return out;
  }

  void function_results(Function& out) {
    if (!accept('(')) {
      out.results.push_back({.type = type()});
      return;
    }
    while (!accept(')')) {
      Parameter result{.type = type()};
      if (at('{')) result.attributes = dictionary();
      out.results.push_back(std::move(result));
      accept(',');
    }
  }

  // A function that is written in the generic form.
  Function function_of(Operation operation) {
    Function out{.line = operation.line};
    const auto text = [&](const char* name) {
      const auto found = operation.attributes.find(name);
      return found == operation.attributes.end() ? std::string() : found->second.text;
    };
    const auto attributes_of = [&](const char* name, size_t i) {
      const auto found = operation.attributes.find(name);
      const bool has = found != operation.attributes.end() && i < found->second.list.size() &&
                       found->second.list[i].dictionary;
      return has ? *found->second.list[i].dictionary : Attributes();
    };
    out.name = text("sym_name");
    out.is_private = text("sym_visibility") == "private";
    if (operation.regions.size() != 1) fail_here("a function has no body");
    out.body = std::move(operation.regions[0]);
    for (size_t i = 0; i < out.body.arguments.size(); ++i)
      out.arguments.push_back({out.body.arguments[i].name, out.body.arguments[i].type,
                               attributes_of("arg_attrs", i), ""});
    out.body.arguments.clear();
    if (out.body.operations.empty()) fail_here("a function has no body");
    const std::vector<Type>& types = out.body.operations.back().operand_types;
    for (size_t i = 0; i < types.size(); ++i)
      out.results.push_back({{}, types[i], attributes_of("res_attrs", i), ""});
    return out;
  }

  std::string_view text_;
  const std::string& file_;
  size_t position_ = 0, counted_ = 0;
  uint32_t line_ = 1;
  int depth_ = 0;
  std::map<std::string_view, std::pair<size_t, size_t>, std::less<>> aliases_;
};

}  // namespace

Module parse_module(std::string_view text, const std::string& file) {
  Module out = Reader(text, file).module();
  out.bytes = text.size();
  return out;
}

}  // namespace braze::stablehlo
