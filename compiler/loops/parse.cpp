// parse.cpp — reads the text of a loop tree.
#include <algorithm>
#include <map>
#include <optional>

#include "compiler/loops/text.h"
#include "compiler/loops/text_p.h"
#include "ir/code/layout_text.h"
#include "ir/graph/constant_text.h"
#include "ir/graph/text.h"
#include "ir/support/scanner.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

constexpr size_t kMaxDepth = 64;       // nested loops
constexpr size_t kMaxBodyDepth = 200;  // nested operations
constexpr size_t kMaxAxes = 64;
constexpr size_t kMaxLimits = 8;  // of a loop
constexpr int64_t kMaxTurn = int64_t{1} << 24;
constexpr int64_t kMaxMark = 1 << 20;

// A step of the present body, or a literal whose dtype is not known yet.
struct Term {
  uint32_t step = 0;
  std::optional<Scanner> literal;
};

class TreeParser {
 public:
  TreeParser(std::string_view text, std::string_view file_name) : scanner_(text, file_name) {}

  LoopTree parse() {
    expect_header(scanner_, "loops");
    while (scanner_.accept("symbol")) {
      new_symbol();
      tree_.symbols.push_back(parse_symbol(scanner_));
      symbols_.emplace(tree_.symbols.back().symbol_name(), tree_.symbols.back());
    }
    scanner_.expect("tree");
    tree_.name = scanner_.expect_symbol();
    tensors();
    if (scanner_.accept("target")) tree_.target = unquote(scanner_.expect_string());
    if (scanner_.accept("roles")) {
      scanner_.expect("(");
      tree_.roles.emplace();
      tree_.roles->stages = number("registers", kMostThreadRegisters);
      scanner_.expect(",");
      tree_.roles->rest = number("registers", kMostThreadRegisters);
      scanner_.expect(")");
    }
    if (scanner_.accept("registers")) tree_.registers = number("registers", kMostThreadRegisters);
    scanner_.expect("{");
    while (scanner_.accept("axis")) axis();
    scanner_.expect("phase");
    tree_.phases.push_back(region());
    while (scanner_.accept("then")) {
      scanner_.expect("phase");
      tree_.phases.push_back(region());
    }
    scanner_.expect("}");
    if (!scanner_.at_end()) scanner_.fail_here("a file holds one tree, but more text follows it");
    return std::move(tree_);
  }

 private:
  // --- The head -----------------------------------------------------------------------------

  // Checks that the next identifier may name an axis or a size.
  std::string_view new_symbol() {
    const std::string_view name = scanner_.peek().text;
    if (scanner_.peek().kind == TokenKind::Identifier && is_reserved_symbol(name))
      scanner_.fail_here(
          fmt::format("{} is a word of the language and cannot be defined", name.substr(0, 60)));
    if (symbols_.contains(name))
      scanner_.fail_here(fmt::format("{} is already defined", name.substr(0, 60)));
    return name;
  }

  int64_t number(std::string_view what, int64_t most = kMaxMark) {
    const SourceLocation where = scanner_.location();
    const int64_t n = scanner_.expect_integer();
    if (n < 1 || n > most)
      fail_at(where, fmt::format("the {} must be from 1 to {}, not {}", what, most, n));
    return n;
  }
  [[noreturn]] static void fail_at(const SourceLocation& where, std::string message) {
    fail(codes::kSyntax, std::move(message), {.location = where, .node = "", .fix = ""});
  }

  template <size_t n>
  std::optional<size_t> word(const std::string_view (&words)[n]) {
    for (size_t i = 0; i < n; ++i)
      if (!words[i].empty() && scanner_.accept(words[i])) return i;
    return std::nullopt;
  }
  template <class Enum, size_t n>
  Enum expect_word(const std::string_view (&words)[n], std::string_view what) {
    if (const auto found = word(words)) return static_cast<Enum>(*found);
    scanner_.fail_here(
        fmt::format("expected {}: {}", what, join(words, " ", [](auto w) { return w; })));
  }

  void tensors() {
    scanner_.expect("(");
    while (!scanner_.accept(")")) {
      if (!tree_.tensors.empty()) scanner_.expect(",");
      LoopTensor tensor;
      tensor.location = scanner_.location();
      tensor.name = scanner_.expect_identifier("the name of a tensor");
      if (!tensors_.emplace(tensor.name, tree_.tensors.size()).second)
        fail_at(tensor.location, fmt::format("the tensor {} is declared twice", tensor.name));
      scanner_.expect(":");
      tensor.mode = expect_word<Mode>(kModeNames, "a mode");
      tensor.type = parse_type(scanner_, sizes());
      if (scanner_.accept("strides")) tensor.strides = indices();
      if (scanner_.accept("align")) tensor.align = number("bytes");
      tensor.finite = scanner_.accept("finite");
      if (scanner_.accept("same")) {
        const auto known = tensors_.find(scanner_.expect_identifier("the name of a tensor"));
        if (known == tensors_.end() || known->second == tree_.tensors.size())
          fail_at(tensor.location,
                  fmt::format("{} is the same as no tensor before it", tensor.name));
        tensor.same = known->second;
      }
      tree_.tensors.push_back(std::move(tensor));
    }
  }

  void axis() {
    LoopAxis axis;
    axis.location = scanner_.location();
    new_symbol();
    axis.name = scanner_.expect_identifier("the name of an axis");
    scanner_.expect(":");
    axis.extent = parse_expr(scanner_, sizes());
    if (tree_.axes.size() == kMaxAxes) scanner_.fail_here("a tree can have at most 64 axes");
    axes_.emplace(axis.name, tree_.axes.size());
    tree_.axes.push_back(axis);
    symbols_.emplace(axis.name, axis.index());
  }

  // --- Names --------------------------------------------------------------------------------

  std::function<Expr(std::string_view)> sizes() {
    return [this](std::string_view name) { return lookup(name); };
  }
  Expr lookup(std::string_view name) {
    if (const auto found = symbols_.find(name); found != symbols_.end()) return found->second;
    if (const auto let = lets_.find(name); let != lets_.end()) return loaded_symbol(let->second);
    const auto axis_before = [&](const std::string& ending) -> const LoopAxis* {
      if (!in_bounds_ || !name.ends_with(ending)) return nullptr;
      const auto found = axes_.find(name.substr(0, name.size() - ending.size()));
      return found == axes_.end() ? nullptr : &tree_.axes[found->second];
    };
    if (const LoopAxis* axis = axis_before(".end")) return end_symbol(*axis);
    const size_t word = name.rfind(".limit");
    if (word != std::string_view::npos)
      for (size_t n = 0; n < kMaxLimits; ++n)
        if (const LoopAxis* axis = axis_before(".limit" + (n == 0 ? "" : std::to_string(n))))
          return limit_symbol(*axis, n);
    scanner_.fail_here(fmt::format("{} is not an axis or a size", name.substr(0, 60)));
  }
  Expr index() { return parse_expr(scanner_, sizes()); }
  std::vector<Expr> indices() {
    std::vector<Expr> out;
    scanner_.expect("[");
    if (scanner_.accept("]")) return out;
    do out.push_back(index());
    while (scanner_.accept(","));
    scanner_.expect("]");
    return out;
  }
  size_t axis_name() {
    const auto found = axes_.find(scanner_.peek().text);
    if (scanner_.peek().kind != TokenKind::Identifier || found == axes_.end())
      scanner_.fail_here("expected the name of an axis");
    scanner_.next();
    return found->second;
  }
  std::vector<size_t> axis_names() {
    std::vector<size_t> out;
    do out.push_back(axis_name());
    while (scanner_.accept(","));
    return out;
  }
  size_t tensor_name() {
    const auto found = tensors_.find(scanner_.peek().text);
    if (scanner_.peek().kind != TokenKind::Identifier || found == tensors_.end())
      scanner_.fail_here("expected the name of a tensor");
    scanner_.next();
    return found->second;
  }
  std::optional<DType> dtype() {
    if (scanner_.peek().kind != TokenKind::Identifier) return std::nullopt;
    const auto found = parse_dtype(scanner_.peek().text);
    if (found) scanner_.next();
    return found;
  }

  // --- Loops --------------------------------------------------------------------------------

  LoopRegion region() {
    LoopRegion out;
    if (++depth_ > kMaxDepth) scanner_.fail_here("loops are nested too deeply");
    scanner_.expect("{");
    while (!scanner_.accept("}")) {
      if (scanner_.at("parallel") || scanner_.at("stream"))
        out.emplace_back(loop());
      else
        out.emplace_back(task());
    }
    --depth_;
    return out;
  }

  Loop loop() {
    Loop out;
    out.location = scanner_.location();
    out.parallel = scanner_.next().text == "parallel";
    do {
      LoopLevel level{axis_name()};
      if (scanner_.accept(":")) level.turn = number("turns", kMaxTurn);
      out.levels.push_back(level);
    } while (scanner_.accept(","));
    while (!scanner_.at("{")) mark(out);
    out.body = region();
    return out;
  }

  void mark(Loop& loop) {
    if (scanner_.accept("on")) {
      loop.on = expect_word<Machine>(kMachineNames, "a part of the machine");
    } else if (scanner_.accept("in")) {
      in_bounds_ = true;
      const Expr low = index();
      scanner_.expect("..");
      loop.bounds.emplace(low, index());
      in_bounds_ = false;
    } else if (scanner_.accept("limit")) {
      loop.limit.emplace();
      body_ = &*loop.limit;
      depths_.clear();
      do {
        if (loop.limit->results.size() == kMaxLimits)
          scanner_.fail_here(fmt::format("a loop can have at most {} limits", kMaxLimits));
        loop.limit->results.push_back(known(term()));
      } while (scanner_.accept(","));
    } else if (scanner_.accept("picks")) {
      loop.picks.emplace();
      loop.picks->value = made_before();
      loop.picks->at = indices();
    } else if (scanner_.accept("down")) {
      loop.down = true;
    } else if (scanner_.accept("seek")) {
      loop.seek = true;
    } else if (scanner_.accept("ring")) {
      loop.ring = number("slots");
    } else if (scanner_.accept("unroll")) {
      loop.unroll = number("turns");
    } else if (scanner_.accept("partial")) {
      loop.partial = number("turns");
    } else if (scanner_.accept("turns")) {
      loop.turns = true;
    } else if (scanner_.accept("deal")) {
      do loop.deal.push_back(deal());
      while (scanner_.accept(","));
    } else if (scanner_.accept("parts")) {
      scanner_.expect("(");
      in_bounds_ = true;
      do loop.parts.push_back(comparison());
      while (scanner_.accept(","));
      in_bounds_ = false;
      scanner_.expect(")");
    } else {
      scanner_.fail_here("expected a mark of a loop, or \"{\"");
    }
  }

  Deal deal() {
    Deal out;
    out.order = expect_word<Deal::Order>(kOrderNames, "an order of turns");
    if (out.order == Deal::Order::Grouped) out.axis = axis_name();
    if (out.order == Deal::Order::Grouped || out.order == Deal::Order::Band ||
        out.order == Deal::Order::Persistent)
      out.number = number("turns");
    return out;
  }

  IndexComparison comparison() {
    IndexComparison out;
    out.left = index();
    out.kind = expect_word<IndexComparison::Kind>(kComparisonSigns, "a comparison");
    out.right = index();
    return out;
  }

  // --- Tasks --------------------------------------------------------------------------------

  LoopTask task() {
    LoopTask out;
    body_ = &out.body;
    depths_.clear();
    while (scanner_.accept("let")) let();
    out.location = scanner_.location();
    if (scanner_.accept("store")) {
      const Term value = term();
      scanner_.expect("to");
      out.target = tensor_name();
      out.body.results = {fixed(value, tree_.tensors[out.target].type.dtype)};
      out.at = indices();
      if (scanner_.at("(")) out.layout = parse_layout(scanner_);
      if (scanner_.accept("cache")) out.cache = expect_word<CacheHint>(kCacheNames, "a hint");
    } else {
      made(out);
    }
    lets_.clear();
    return out;
  }

  void let() {
    const std::string_view name = scanner_.expect_identifier("a name such as e0");
    if (!loaded_step(name) || lets_.contains(name))
      scanner_.fail_here("steps must be named e0, e1, .., each once");
    scanner_.expect("=");
    const uint32_t step = known(term());
    lets_.emplace(name, step);
  }

  void made(LoopTask& task) {
    const Token token = scanner_.peek();
    LoopValue value;
    value.name = scanner_.expect_value();
    scanner_.expect("[");
    if (!scanner_.accept("]")) {
      value.axes = axis_names();
      scanner_.expect("]");
    }
    std::optional<DType> own;
    if (scanner_.accept(":") && !(own = dtype())) scanner_.fail_here("expected a dtype");
    if (scanner_.accept("in")) value.storage = expect_word<Storage>(kStorageNames, "a storage");
    if (scanner_.accept("panels")) value.panel = number("indices");
    if (scanner_.at("(")) value.layout = NamedLayout{"", parse_layout(scanner_)};
    scanner_.expect("=");
    computation(task, own);
    value.dtype = own.value_or(default_dtype(task));
    task.target = tree_.values.size();
    marks(task);
    if (!values_.emplace(token.text, tree_.values.size()).second)
      fail_at(task.location, fmt::format("%{} is made twice", token.text));
    tree_.values.push_back(std::move(value));
  }

  void computation(LoopTask& task, std::optional<DType> own) {
    const auto result = [&] {
      const Term value = term();
      task.body.results.push_back(value.literal && own ? fixed(value, *own) : known(value));
    };
    const auto over = [&] {
      if (scanner_.accept("over")) task.over = axis_names();
    };
    if (scanner_.accept("compute")) {
      task.kind = LoopTask::Kind::Compute;
      result();
    } else if (scanner_.accept("stage")) {
      task.kind = LoopTask::Kind::Stage;
      result();
    } else if (scanner_.accept("dot")) {
      task.kind = LoopTask::Kind::Dot;
      result();
      scanner_.expect(",");
      result();
      over();
    } else if (scanner_.accept("fold")) {
      task.kind = LoopTask::Kind::Fold;
      if (scanner_.at("argmax") || scanner_.at("argmin")) {
        task.kind = LoopTask::Kind::Arg;
        task.arg_max = scanner_.next().text == "argmax";
      } else {
        task.monoid = monoid();
      }
      result();
      over();
    } else if (scanner_.accept("scan")) {
      task.kind = LoopTask::Kind::Scan;
      task.combiner = parse_combiner(scanner_);
      const auto results = [&] {
        do result();
        while (scanner_.accept(","));
      };
      results();
      if (scanner_.accept("after")) results();
      over();
      task.reverse = scanner_.accept("reverse");
      task.exclusive = scanner_.accept("exclusive");
      const SourceLocation where = scanner_.location();
      if (scanner_.accept("part")) task.part = static_cast<size_t>(number("parts"));
      if (task.part >= task.body.results.size())
        fail_at(where, fmt::format("the scan has no part {}", task.part));
    } else if (scanner_.accept("place")) {
      place(task);
      over();
    } else {
      scanner_.fail_here("expected a task: compute, fold, scan, dot, place or stage");
    }
  }

  void place(LoopTask& task) {
    task.kind = LoopTask::Kind::Place;
    task.replaces = scanner_.accept("set");
    if (!task.replaces) task.monoid = monoid();
    task.body.results.push_back(known(term()));
    scanner_.expect("at");
    task.body.results.push_back(known(term()));
    if (scanner_.accept("along")) task.along = axis_names();
    scanner_.expect("from");
    task.body.results.push_back(fixed(term(), task.body.steps[task.body.results[0]].dtype));
  }

  void marks(LoopTask& task) {
    for (;;) {
      const bool shifts = scanner_.accept("shift");
      if (shifts || scanner_.accept("rescale")) {
        task.shifts = shifts;
        task.rescale.emplace();
        body_ = &*task.rescale;
        depths_.clear();
        lets_.clear();
        task.rescale->results = {known(term())};
      } else if (scanner_.accept("combine")) {
        scanner_.expect("rank");
        task.combine = Combine::Rank;
      } else if (scanner_.accept("unit")) {
        task.unit = expect_word<Unit>(kUnitNames, "a unit");
      } else if (scanner_.accept("swap")) {
        task.swap = true;
      } else if (scanner_.accept("tf32")) {
        task.tf32 = true;
      } else if (scanner_.accept("unrounded")) {
        task.unrounded = true;
      } else if (scanner_.accept("ahead")) {
        task.ahead = number("turns");
      } else {
        return;
      }
    }
  }

  Monoid monoid() {
    const auto found = parse_monoid(scanner_.peek().text);
    if (!found) scanner_.fail_here("expected a monoid: sum, prod, max, min, and, or");
    scanner_.next();
    return *found;
  }

  // --- Bodies -------------------------------------------------------------------------------

  uint32_t push(LoopStep step) {
    size_t depth = 1;
    for (const uint32_t argument : step.arguments) depth = std::max(depth, depths_[argument] + 1);
    if (depth > kMaxBodyDepth)
      scanner_.fail_here("the body is nested too deeply; compute a part of it in a task before");
    depths_.push_back(depth);
    return braze::push(*body_, std::move(step));
  }

  // The step of a term. The text of a literal is read again, now with its dtype.
  uint32_t fixed(const Term& term, DType dtype) {
    if (!term.literal) return term.step;
    Scanner scanner = *term.literal;
    const HostTensor value = parse_constant(scanner, {dtype, Shape()});
    return push({.kind = LoopStep::Kind::Constant, .dtype = dtype, .bits = value.get_bits(0)});
  }
  uint32_t known(const Term& term) {
    if (term.literal)
      term.literal->fail_here("nothing gives this literal a dtype; write it as f32(..)");
    return term.step;
  }

  bool at_literal() const {
    const auto is_number = [](const Token& token) {
      return token.kind == TokenKind::Integer || token.kind == TokenKind::Float ||
             (token.kind == TokenKind::Identifier && (token.text == "inf" || token.text == "nan"));
    };
    return is_number(scanner_.peek()) || scanner_.at("true") || scanner_.at("false") ||
           (scanner_.at("-") && is_number(scanner_.peek_second())) ||
           (scanner_.at("hex") && scanner_.peek_second().kind == TokenKind::String);
  }
  Term literal() {
    Term out{0, scanner_};
    if (scanner_.accept("hex")) {
      scanner_.next();
    } else if (!scanner_.accept("true") && !scanner_.accept("false")) {
      scanner_.expect_number();
    }
    return out;
  }

  Term term() { return infix(kComparisonBinds); }

  Term infix(int binds) {
    if (binds > kFactorBinds) return primary();
    Term left = infix(binds + 1);
    for (;;) {
      const InfixRow* row = nullptr;
      for (const InfixRow& r : kInfixRows)
        if (r.binds == binds && scanner_.at(r.sign)) row = &r;
      if (!row) return left;
      const SourceLocation where = scanner_.location();
      scanner_.next();
      const Term right = infix(binds + 1);
      left = apply(row->op, {left, right}, where);
      if (binds == kComparisonBinds) return left;
    }
  }

  Term apply(ElementwiseOp op, const std::vector<Term>& terms, const SourceLocation& where,
             DType chosen = DType::F32) {
    const ElementwiseInfo& row = info(op);
    if (terms.size() != row.arity)
      fail_at(where, fmt::format("{} takes {} operands, but {} are given", row.name, row.arity,
                                 terms.size()));
    std::optional<DType> dtype;
    for (size_t i = first_of_one_dtype(op); i < terms.size(); ++i)
      if (!terms[i].literal && !dtype) dtype = body_->steps[terms[i].step].dtype;
    if (!dtype)
      fail_at(where,
              fmt::format("nothing gives the literals of {} a dtype; write one of them as f32(..)",
                          row.name));
    LoopStep step{.op = op};
    for (size_t i = 0; i < terms.size(); ++i)
      step.arguments.push_back(fixed(terms[i], i < first_of_one_dtype(op) ? DType::Bool : *dtype));
    step.dtype = row.result == ResultRule::Same      ? *dtype
                 : row.result == ResultRule::Boolean ? DType::Bool
                                                     : chosen;
    return {push(std::move(step)), std::nullopt};
  }

  std::vector<Term> arguments() {
    std::vector<Term> out;
    scanner_.expect("(");
    do out.push_back(term());
    while (scanner_.accept(","));
    scanner_.expect(")");
    return out;
  }

  Term primary() {
    const SourceLocation where = scanner_.location();
    if (at_literal()) return literal();
    if (++body_depth_ > kMaxBodyDepth) scanner_.fail_here("the body is nested too deeply");
    const Term out = operation(where);
    --body_depth_;
    return out;
  }

  Term operation(const SourceLocation& where) {
    if (scanner_.accept("-")) return apply(ElementwiseOp::neg, {primary()}, where);
    if (scanner_.accept("(")) {
      const Term out = term();
      scanner_.expect(")");
      return out;
    }
    if (scanner_.peek().kind == TokenKind::Value) return read();
    const std::string_view word = scanner_.peek().text;
    if (scanner_.peek().kind != TokenKind::Identifier)
      scanner_.fail_here("expected a body: a tensor, a value, an axis, a literal or a row");
    const Token second = scanner_.peek_second();
    const bool called = second.kind == TokenKind::Punctuation && second.text == "(";
    if (second.kind == TokenKind::Punctuation && second.text == "[") return load();
    if (!called) {
      if (const auto let = lets_.find(word); let != lets_.end()) {
        scanner_.next();
        return {let->second, std::nullopt};
      }
      return index_step(DType::I32, lookup(scanner_.next().text));
    }
    scanner_.next();
    if (const auto to = parse_dtype(word)) return convert(*to, where);
    if (word == "inside") {
      LoopStep step{.kind = LoopStep::Kind::Inside, .dtype = DType::Bool};
      step.conditions = conditions();
      return {push(std::move(step)), std::nullopt};
    }
    if (word == "index" || word.starts_with("index.")) return index_call(word, where);
    if (word == "where") return apply(ElementwiseOp::select, arguments(), where);
    constexpr std::string_view kBitcast = "bitcast.";
    if (word.starts_with(kBitcast)) {
      const auto to = parse_dtype(word.substr(kBitcast.size()));
      if (!to) fail_at(where, "bitcast needs a dtype, as in bitcast.i32(x)");
      return apply(ElementwiseOp::bitcast, arguments(), where, *to);
    }
    constexpr std::string_view kCoarse = "coarse.", kKept = "kept.";
    const bool coarse = word.starts_with(kCoarse), kept = word.starts_with(kKept);
    const auto op = parse_elementwise(word.substr(coarse ? kCoarse.size()
                                                  : kept ? kKept.size()
                                                         : 0));
    if (!op || *op == ElementwiseOp::bitcast || *op == ElementwiseOp::convert)
      fail_at(where, fmt::format("{} is not a row", quote(word.substr(0, 60))));
    const Term result = apply(*op, arguments(), where);
    body_->steps[result.step].coarse = coarse;
    if (kept) body_->steps[result.step].bits = 1;
    return result;
  }

  Term convert(DType to, const SourceLocation& where) {
    const std::vector<Term> terms = arguments();
    if (terms.size() == 1 && terms[0].literal) return {fixed(terms[0], to), std::nullopt};
    return apply(ElementwiseOp::convert, terms, where, to);
  }

  Term index_call(std::string_view word, const SourceLocation& where) {
    DType dtype = DType::I32;
    if (word != "index") {
      const auto found = parse_dtype(word.substr(word.find('.') + 1));
      if (!found) fail_at(where, "index needs a dtype, as in index.i64(i + 1)");
      dtype = *found;
    }
    scanner_.expect("(");
    const Expr e = index();
    scanner_.expect(")");
    return index_step(dtype, e);
  }
  Term index_step(DType dtype, const Expr& e) {
    return {push({.kind = LoopStep::Kind::Index, .dtype = dtype, .at = {e}}), std::nullopt};
  }

  std::vector<RangeCondition> conditions() {
    std::vector<RangeCondition> out;
    scanner_.expect("(");
    do {
      RangeCondition c;
      c.min = index();
      scanner_.expect("<=");
      c.value = index();
      scanner_.expect("<");
      c.limit = index();
      out.push_back(std::move(c));
    } while (scanner_.accept("and"));
    scanner_.expect(")");
    return out;
  }

  Term load() {
    LoopStep step{.kind = LoopStep::Kind::Load};
    step.source = tensor_name();
    step.dtype = tree_.tensors[step.source].type.dtype;
    step.at = indices();
    if (scanner_.accept("if")) step.conditions = conditions();
    if (scanner_.accept("else"))
      step.otherwise = parse_constant(scanner_, {step.dtype, Shape()}).get_bits(0);
    return {push(std::move(step)), std::nullopt};
  }

  size_t made_before() {
    const auto found = values_.find(scanner_.peek().text);
    if (scanner_.peek().kind != TokenKind::Value || found == values_.end())
      scanner_.fail_here(
          fmt::format("no task before this makes %{}", scanner_.peek().text.substr(0, 60)));
    scanner_.next();
    return found->second;
  }

  Term read() {
    const size_t found = made_before();
    const LoopValue& value = tree_.values[found];
    LoopStep step{.kind = LoopStep::Kind::Read, .dtype = value.dtype, .source = found};
    step.before = scanner_.accept("'");
    if (scanner_.at("[")) {
      step.at = indices();
    } else {
      for (const size_t axis : value.axes) step.at.push_back(tree_.axes[axis].index());
    }
    return {push(std::move(step)), std::nullopt};
  }

  Scanner scanner_;
  LoopTree tree_;
  std::map<std::string, Expr, std::less<>> symbols_;  // sizes and axes
  std::map<std::string, size_t, std::less<>> axes_, tensors_, values_;
  std::map<std::string, uint32_t, std::less<>> lets_;  // steps of the present body
  LoopBody* body_ = nullptr;
  std::vector<size_t> depths_;  // nesting depth of each step of the body
  size_t depth_ = 0, body_depth_ = 0;
  bool in_bounds_ = false;
};

}  // namespace

LoopTree parse_loops(std::string_view text, std::string_view file_name) {
  return TreeParser(text, file_name).parse();
}

}  // namespace braze
