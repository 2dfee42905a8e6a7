#include "compiler/loops/steps/text.h"

#include <charconv>

#include "compiler/loops/text_p.h"
#include "compiler/loops/verify.h"
#include "ir/code/layout_text.h"
#include "ir/support/scanner.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kMaxNumber = int64_t{1} << 24;
constexpr size_t kMaxSteps = 4096;

bool has_number(Deal::Order order) {
  return order == Deal::Order::Band || order == Deal::Order::Grouped ||
         order == Deal::Order::Persistent;
}

class StepPrinter {
 public:
  explicit StepPrinter(std::string_view name) : out_(name) {}
  std::string text() && { return std::move(out_); }

  void operator()(const LoopName& name) { word(name.to_string()); }
  void operator()(const MadeName& name) { word(name.to_string()); }
  void operator()(int64_t number) { word(std::to_string(number)); }
  void operator()(Machine machine) { word(kMachineNames[static_cast<size_t>(machine)]); }
  void operator()(Combine how) { word(kCombineNames[static_cast<size_t>(how)]); }
  void operator()(Unit unit) { word(kUnitNames[static_cast<size_t>(unit)]); }
  void operator()(const Layout& layout) { word(layout.to_string()); }
  void operator()(CacheHint hint) { word(kCacheNames[static_cast<size_t>(hint)]); }
  void operator()(Storage storage) { word(kStorageNames[static_cast<size_t>(storage)]); }
  void operator()(const IndexComparison& c) {
    word(fmt::format("({} {} {})", c.left.to_string(),
                     kComparisonSigns[static_cast<size_t>(c.kind)], c.right.to_string()));
  }
  void operator()(const std::vector<DealOrder>& orders) {
    word(join(orders, ", ", [](const DealOrder& order) {
      std::string out(kOrderNames[static_cast<size_t>(order.order)]);
      if (order.order == Deal::Order::Grouped) out += " " + order.axis;
      if (has_number(order.order)) out += fmt::format(" {}", order.number);
      return out;
    }));
  }
  void count(int64_t number) { word(std::to_string(number)); }
  void operator()(const std::vector<AxisTurn>& digits) {
    for (const AxisTurn& digit : digits) word(fmt::format("{} {}", digit.turn, digit.axis));
  }
  void axis(const std::string& name) { word(name); }
  void new_axis(const std::string& name) { word(name); }
  void tensor(const std::string& name) { word(name); }
  void value(const std::string& name) { word("%" + name); }
  void flag(bool is, std::string_view name) {
    if (is) word(name);
  }
  void number_if_any(int64_t number, std::string_view name) {
    if (number > 0) word(fmt::format("{} {}", name, number));
  }

 private:
  void word(std::string_view text) { out_ += fmt::format(" {}", text); }
  std::string out_;
};

class StepReader {
 public:
  explicit StepReader(Scanner& scanner) : scanner_(scanner) {}

  // The number of a loop follows a dot. The scanner reads the axis and the number as one word.
  void operator()(LoopName& name) {
    const std::string_view word = scanner_.peek().text;
    const size_t dot = word.rfind('.');
    if (dot != std::string_view::npos && scanner_.peek().kind == TokenKind::Identifier) {
      const char* end = word.data() + word.size();
      const auto read = std::from_chars(word.data() + dot + 1, end, name.number);
      if (read.ec != std::errc() || read.ptr != end || name.number < 1)
        scanner_.fail_here("a loop is named by its axis and a number from 1 on, as in j.2");
    }
    name.axis = scanner_.expect_identifier("the name of a loop").substr(0, dot);
  }
  void operator()(MadeName& name) {
    name.is_value = scanner_.peek().kind == TokenKind::Value;
    name.name = name.is_value ? scanner_.expect_value()
                              : scanner_.expect_identifier("a tensor or a %value");
  }
  void operator()(int64_t& number) { integer(number, 1); }
  void count(int64_t& number) { integer(number, 0); }
  void operator()(Machine& machine) { word(machine, kMachineNames, "a part of the machine"); }
  void operator()(Combine& how) { word(how, kCombineNames, "how to combine"); }
  void operator()(Unit& unit) { word(unit, kUnitNames, "a unit"); }
  void operator()(Layout& layout) { layout = parse_layout(scanner_); }
  void operator()(CacheHint& hint) { word(hint, kCacheNames, "a hint"); }
  void operator()(Storage& storage) { word(storage, kStorageNames, "a storage"); }
  void operator()(IndexComparison& c) {
    const auto symbol = [](std::string_view name) { return Expr::symbol(name, {}); };
    scanner_.expect("(");
    c.left = parse_expr(scanner_, symbol);
    word(c.kind, kComparisonSigns, "a comparison");
    c.right = parse_expr(scanner_, symbol);
    scanner_.expect(")");
  }
  void operator()(std::vector<DealOrder>& orders) {
    do {
      DealOrder order;
      word(order.order, kOrderNames, "an order of turns");
      if (order.order == Deal::Order::Grouped) axis(order.axis);
      if (has_number(order.order)) (*this)(order.number);
      orders.push_back(std::move(order));
    } while (scanner_.accept(","));
  }
  void operator()(std::vector<AxisTurn>& digits) {
    do {
      AxisTurn digit;
      (*this)(digit.turn);
      axis(digit.axis);
      digits.push_back(std::move(digit));
    } while (scanner_.peek().kind == TokenKind::Integer);
  }
  void axis(std::string& name) { name = scanner_.expect_identifier("the name of an axis"); }
  void new_axis(std::string& name) { axis(name); }
  void tensor(std::string& name) { name = scanner_.expect_identifier("the name of a tensor"); }
  void value(std::string& name) { name = scanner_.expect_value(); }
  void flag(bool& is, std::string_view name) { is = scanner_.accept(name); }
  void number_if_any(int64_t& number, std::string_view name) {
    if (scanner_.accept(name)) integer(number, 1);
  }

 private:
  void integer(int64_t& number, int64_t least) {
    const Token token = scanner_.peek();
    if (token.kind != TokenKind::Integer) scanner_.fail_here("expected a number");
    int64_t read = 0;
    const char* end = token.text.data() + token.text.size();
    const auto result = std::from_chars(token.text.data(), end, read);
    if (result.ec != std::errc() || result.ptr != end || read < least || read > kMaxNumber)
      scanner_.fail_here(
          fmt::format("a number of a step must be from {} to {}", least, kMaxNumber));
    scanner_.next();
    number = read;
  }
  template <class Enum, size_t n>
  void word(Enum& out, const std::string_view (&words)[n], std::string_view what) {
    for (size_t i = 0; i < n; ++i)
      if (!words[i].empty() && scanner_.accept(words[i])) {
        out = static_cast<Enum>(i);
        return;
      }
    scanner_.fail_here(fmt::format("expected {}:{}", what, join(words, "", [](std::string_view w) {
                                     return w.empty() ? std::string() : " " + std::string(w);
                                   })));
  }
  Scanner& scanner_;
};

template <size_t i = 0>
std::optional<StepKind> read_kind(Scanner& scanner) {
  if constexpr (i < std::variant_size_v<StepKind>) {
    using Step = std::variant_alternative_t<i, StepKind>;
    if (!scanner.accept(Step::kName)) return read_kind<i + 1>(scanner);
    Step step;
    StepReader reader(scanner);
    step.fields(reader);
    return step;
  }
  return std::nullopt;
}

template <size_t i = 0>
void step_names(std::vector<std::string>& out) {
  if constexpr (i < std::variant_size_v<StepKind>) {
    out.emplace_back(std::variant_alternative_t<i, StepKind>::kName);
    step_names<i + 1>(out);
  }
}

}  // namespace

LoopTreeSteps parse_steps(Scanner& scanner) {
  LoopTreeSteps out;
  while (!scanner.at_end()) {
    const SourceLocation location = scanner.location();
    auto kind = read_kind(scanner);
    if (!kind) {
      std::vector<std::string> names;
      step_names(names);
      scanner.fail_here(fmt::format("expected a step: {}", fmt::join(names, ", ")));
    }
    if (out.size() == kMaxSteps) scanner.fail_here("a schedule can have at most 4096 steps");
    out.push_back({std::move(*kind), location});
    if (!scanner.accept(";")) break;
  }
  if (!scanner.at_end()) scanner.fail_here("expected \";\" between steps");
  return out;
}

LoopTreeSteps parse_steps(std::string_view text, std::string_view file_name) {
  Scanner scanner(text, file_name);
  return parse_steps(scanner);
}

std::string to_text(const LoopTreeStep& step) {
  return std::visit(
      [](auto kind) {
        StepPrinter printer(decltype(kind)::kName);
        kind.fields(printer);
        return std::move(printer).text();
      },
      step.kind);
}

std::string to_text(const LoopTreeSteps& steps) {
  return join(steps, "; ", [](const LoopTreeStep& step) { return to_text(step); });
}

std::optional<Refusal> legal(const LoopTree& tree, const LoopTreeStep& step) {
  return std::visit([&](const auto& kind) { return legal(tree, kind); }, step.kind);
}

LoopTree take(const LoopTree& tree, const LoopTreeStep& step) {
  if (const auto refusal = legal(tree, step))
    fail(*refusal->code, fmt::format("{}: {}", to_text(step), refusal->why),
         {.location = step.location, .node = "", .fix = refusal->fix});
  LoopTree out = std::visit([&](const auto& kind) { return take(tree, kind); }, step.kind);
  const auto findings = verify(out);
  BRAZE_CHECK(findings.empty(), fmt::format("the step {} made a tree that breaks a rule: {}",
                                            to_text(step), findings[0].to_string()));
  return out;
}

LoopTree take(const LoopTree& tree, const LoopTreeSteps& steps) {
  LoopTree out = tree;
  for (const LoopTreeStep& step : steps) out = take(out, step);
  return out;
}

}  // namespace braze
