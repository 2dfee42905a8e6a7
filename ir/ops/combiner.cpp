#include "ir/ops/combiner.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "ir/graph/constant_text.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr Code kBadCombiner{"bad-combiner", ErrorKind::InvalidArgument,
                            "The body of a combiner is not well formed."};

[[noreturn]] void reject(const std::string& message, std::string fix = "") {
  fail(kBadCombiner, "the combiner of a scan: " + message, {.fix = std::move(fix)});
}

bool is_part_dtype(DType dtype) {
  return dtype == DType::Bool || (compute_type(dtype) == dtype && kNumeric.contains(dtype));
}

// Makes steps of the operations of a row's body.
class StepEmitter : public ScalarEmitter {
 public:
  explicit StepEmitter(CombinerBody& body) : body_(body) {}

  Scalar step(uint32_t number) { return Scalar(this, number, body_.steps[number].dtype); }

  Scalar constant(DType dtype, uint64_t bits) override {
    return step(body_.add({.kind = CombinerStep::Kind::Constant, .dtype = dtype, .bits = bits}));
  }

  Scalar apply(ElementwiseOp op, std::span<const Scalar> operands, DType result) override {
    if (info(op).op_class == OpClass::Formula) {
      const auto operand = [&](size_t i) { return i < operands.size() ? operands[i] : Scalar(); };
      return info(op).body(operand(0), operand(1), operand(2));
    }
    CombinerStep out{.dtype = result, .op = op};
    bool constants = is_machine(op);
    std::array<uint64_t, 3> bits{};
    for (size_t i = 0; i < operands.size(); ++i) {
      const CombinerStep& argument = body_.steps[operands[i].id()];
      out.arguments.push_back(operands[i].id());
      constants = constants && argument.kind == CombinerStep::Kind::Constant;
      bits[i] = argument.bits;
    }
    if (constants)
      return constant(
          result, evaluate_machine(op, operands.back().dtype(), result, bits[0], bits[1], bits[2]));
    return step(body_.add(std::move(out)));
  }

 private:
  CombinerBody& body_;
};

// The dtype of a row's result on these operands. Fails if the row does not take them.
DType row_dtype(ElementwiseOp op, const std::vector<DType>& operands) {
  const ElementwiseInfo& row = info(op);
  if (row.result == ResultRule::Chosen)
    reject(fmt::format("{} cannot be used", row.name), "convert the operands of the scan");
  if (operands.size() != row.arity)
    reject(fmt::format("{} takes {} operands, but {} are given", row.name, row.arity,
                       operands.size()));
  const size_t first = op == ElementwiseOp::select ? 1 : 0;
  if (first == 1 && operands[0] != DType::Bool)
    reject(fmt::format("the condition of {} is {}, not bool", row.name, name(operands[0])));
  for (size_t i = first; i < operands.size(); ++i)
    if (operands[i] != operands[first])
      reject(fmt::format("the operands of {} are {} and {}", row.name, name(operands[first]),
                         name(operands[i])));
  if (!row.types.contains(operands[first]))
    reject(fmt::format("{} is not defined on {}", row.name, name(operands[first])));
  return row.result == ResultRule::Boolean ? DType::Bool : operands[first];
}

bool depends_on_elements(const CombinerStep& step) {
  return step.kind != CombinerStep::Kind::Constant;
}

void check(const CombinerBody& body) {
  const size_t parts = body.dtypes.size();
  if (parts == 0 || parts > kMostCombinerParts)
    reject(fmt::format("it has {} parts, and 1 to {} are possible", parts, kMostCombinerParts));
  if (body.steps.size() > kMostCombinerSteps)
    reject(fmt::format("it has {} operations, and at most {} are possible", body.steps.size(),
                       kMostCombinerSteps));
  if (body.identity.size() != parts || body.results.size() != parts)
    reject(fmt::format("it has {} parts, but {} results and an identity of {} values", parts,
                       body.results.size(), body.identity.size()));
  for (const DType dtype : body.dtypes)
    if (!is_part_dtype(dtype))
      reject(fmt::format("a part is combined in {}", name(dtype)),
             "combine in bool, i32, i64, u32, f32 or f64");
  for (size_t i = 0; i < body.steps.size(); ++i) {
    const CombinerStep& step = body.steps[i];
    if (step.kind == CombinerStep::Kind::Constant) continue;
    if (step.kind != CombinerStep::Kind::Apply) {
      if (step.part >= parts || step.dtype != body.dtypes[step.part])
        reject(fmt::format("there is no part {} of {}", step.part, name(step.dtype)));
      continue;
    }
    std::vector<DType> operands;
    for (const uint32_t argument : step.arguments) {
      if (argument >= i) reject("an operation uses a later one");
      operands.push_back(body.steps[argument].dtype);
    }
    if (info(step.op).op_class == OpClass::Formula || row_dtype(step.op, operands) != step.dtype)
      reject(fmt::format("{} does not make {}", name(step.op), name(step.dtype)));
  }
  for (size_t part = 0; part < parts; ++part) {
    if (body.results[part] >= body.steps.size()) reject("a result is missing");
    const CombinerStep& result = body.steps[body.results[part]];
    if (!depends_on_elements(result)) reject(fmt::format("part {} is a constant", part));
    if (result.dtype != body.dtypes[part])
      reject(fmt::format("part {} is {}, but its result is {}", part, name(body.dtypes[part]),
                         name(result.dtype)));
  }
}

std::string literal_text(DType dtype, uint64_t bits) {
  HostTensor value(dtype, {});
  value.set_bits(0, bits);
  return constant_text(value);
}

uint64_t parse_literal(Scanner& scanner, DType dtype) {
  return parse_constant(scanner, {dtype, Shape()}).get_bits(0);
}

// The number in names such as x0 and e12.
std::optional<uint32_t> numbered(std::string_view word, char letter) {
  uint32_t number = 0;
  const char* end = word.data() + word.size();
  if (word.size() < 2 || word[0] != letter ||
      std::from_chars(word.data() + 1, end, number).ptr != end)
    return std::nullopt;
  return number;
}

class BodyPrinter {
 public:
  explicit BodyPrinter(const CombinerBody& body) : body_(body), uses_(body.steps.size()) {
    for (const CombinerStep& step : body.steps)
      for (const uint32_t argument : step.arguments) ++uses_[argument];
    for (const uint32_t result : body.results) ++uses_[result];
  }

  std::string text() {
    std::string lets;
    for (uint32_t i = 0; i < body_.steps.size(); ++i) {
      if (uses_[i] < 2 || body_.steps[i].kind != CombinerStep::Kind::Apply) continue;
      const std::string value = row(i);
      names_[i] = fmt::format("e{}", names_.size());
      lets += fmt::format("let {} = {}, ", names_[i], value);
    }
    std::vector<size_t> parts(body_.dtypes.size());
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = i;
    return fmt::format("from ({}) by {}({})",
                       join(parts, ", ",
                            [&](size_t i) {
                              return fmt::format("{} {}", name(body_.dtypes[i]),
                                                 literal_text(body_.dtypes[i], body_.identity[i]));
                            }),
                       lets, join(body_.results, ", ", [&](uint32_t i) { return value(i); }));
  }

 private:
  std::string value(uint32_t i) const {
    const CombinerStep& step = body_.steps[i];
    if (const auto let = names_.find(i); let != names_.end()) return let->second;
    switch (step.kind) {
      case CombinerStep::Kind::Left:
        return fmt::format("x{}", step.part);
      case CombinerStep::Kind::Right:
        return fmt::format("y{}", step.part);
      case CombinerStep::Kind::Constant:
        return fmt::format("{} {}", name(step.dtype), literal_text(step.dtype, step.bits));
      default:
        return row(i);
    }
  }
  std::string row(uint32_t i) const {
    const CombinerStep& step = body_.steps[i];
    return fmt::format("{}({})", name(step.op),
                       join(step.arguments, ", ", [&](uint32_t a) { return value(a); }));
  }

  const CombinerBody& body_;
  std::vector<int> uses_;
  std::map<uint32_t, std::string> names_;
};

class BodyParser {
 public:
  explicit BodyParser(Scanner& scanner) : scanner_(scanner) {}

  CombinerBody parse() {
    scanner_.expect("from");
    scanner_.expect("(");
    do {
      body_.dtypes.push_back(dtype());
      if (body_.dtypes.size() > kMostCombinerParts)
        scanner_.fail_here(fmt::format("a combiner has at most {} parts", kMostCombinerParts));
      body_.identity.push_back(parse_literal(scanner_, body_.dtypes.back()));
    } while (scanner_.accept(","));
    scanner_.expect(")");
    scanner_.expect("by");
    while (scanner_.accept("let")) {
      const std::string_view name = scanner_.expect_identifier("a name such as e0");
      if (numbered(name, 'e') != lets_.size())
        scanner_.fail_here("operations must be named e0, e1, .., in this order");
      scanner_.expect("=");
      lets_.push_back(value());
      scanner_.expect(",");
    }
    scanner_.expect("(");
    do body_.results.push_back(value());
    while (scanner_.accept(","));
    if (body_.results.size() != body_.dtypes.size())
      scanner_.fail_here(fmt::format("the identity has {} parts, but the result has {}",
                                     body_.dtypes.size(), body_.results.size()));
    scanner_.expect(")");
    return std::move(body_);
  }

 private:
  DType dtype() {
    const auto found = parse_dtype(scanner_.peek().text);
    if (!found) scanner_.fail_here("expected a dtype and a value, as in f32 1");
    scanner_.next();
    return *found;
  }

  uint32_t value() {
    const std::string_view word = scanner_.peek().text;
    if (scanner_.peek().kind != TokenKind::Identifier)
      scanner_.fail_here("expected x0, y0, e0, a row, or a dtype and a value");
    if (const auto to = parse_dtype(word)) {
      scanner_.next();
      return body_.add({.kind = CombinerStep::Kind::Constant,
                        .dtype = *to,
                        .bits = parse_literal(scanner_, *to)});
    }
    for (const bool left : {true, false}) {
      const auto part = numbered(word, left ? 'x' : 'y');
      if (!part) continue;
      if (*part >= body_.dtypes.size())
        scanner_.fail_here(
            fmt::format("the tuples of this combiner have {} parts", body_.dtypes.size()));
      scanner_.next();
      return body_.add({.kind = left ? CombinerStep::Kind::Left : CombinerStep::Kind::Right,
                        .dtype = body_.dtypes[*part],
                        .part = *part});
    }
    if (const auto let = numbered(word, 'e')) {
      if (*let >= lets_.size()) scanner_.fail_here(fmt::format("{} is not defined", word));
      scanner_.next();
      return lets_[*let];
    }
    const SourceLocation where = scanner_.location();
    const auto op = parse_elementwise(word);
    if (!op || info(*op).inner)
      scanner_.fail_here(fmt::format("{} is not a row", quote(word.substr(0, 60))));
    if (++depth_ > kMostCombinerSteps) scanner_.fail_here("the body is nested too deeply");
    scanner_.next();
    scanner_.expect("(");
    std::vector<uint32_t> arguments;
    do arguments.push_back(value());
    while (scanner_.accept(","));
    scanner_.expect(")");
    --depth_;
    try {
      const uint32_t out = add_row(body_, *op, arguments);
      if (body_.steps.size() > kMostCombinerSteps)
        scanner_.fail_here(fmt::format("a combiner has at most {} operations", kMostCombinerSteps));
      return out;
    } catch (const Error& error) {
      fail(codes::kSyntax, error.message(), {.location = where});
    }
  }

  Scanner& scanner_;
  CombinerBody body_;
  std::vector<uint32_t> lets_;
  size_t depth_ = 0;
};

}  // namespace

uint32_t CombinerBody::add(CombinerStep step) {
  for (uint32_t i = 0; i < steps.size(); ++i)
    if (steps[i] == step) return i;
  steps.push_back(std::move(step));
  return static_cast<uint32_t>(steps.size() - 1);
}

uint32_t add_row(CombinerBody& body, ElementwiseOp op, const std::vector<uint32_t>& arguments) {
  StepEmitter emitter(body);
  std::vector<Scalar> operands;
  std::vector<DType> dtypes;
  for (const uint32_t argument : arguments) {
    operands.push_back(emitter.step(argument));
    dtypes.push_back(operands.back().dtype());
  }
  return emitter.apply(op, operands, row_dtype(op, dtypes)).id();
}

Combiner::Combiner(CombinerBody body) : monoid_(Monoid::Sum) {
  check(body);
  // Only what a result depends on is kept, so that equal combiners are equal.
  std::vector<bool> needed(body.steps.size());
  for (const uint32_t result : body.results) needed[result] = true;
  for (size_t i = body.steps.size(); i-- > 0;)
    if (needed[i])
      for (const uint32_t argument : body.steps[i].arguments) needed[argument] = true;
  CombinerBody kept{body.dtypes, body.identity, {}, body.results};
  std::vector<uint32_t> now(body.steps.size());
  for (size_t i = 0; i < body.steps.size(); ++i) {
    if (!needed[i]) continue;
    for (uint32_t& argument : body.steps[i].arguments) argument = now[argument];
    now[i] = kept.add(std::move(body.steps[i]));
  }
  for (uint32_t& result : kept.results) result = now[result];
  body_ = std::make_shared<const CombinerBody>(std::move(kept));
}

DType Combiner::accumulation(size_t part, DType dtype) const {
  return body_ ? body_->dtypes[part] : accumulation_type(monoid_, dtype);
}

uint64_t Combiner::identity(size_t part, DType dtype) const {
  return body_ ? body_->identity[part] : info(monoid_).identity(dtype);
}

uint64_t Combiner::padding(size_t part, DType dtype) const {
  return body_ ? body_->identity[part] : info(monoid_).padding(dtype);
}

std::string Combiner::to_string() const {
  return body_ ? BodyPrinter(*body_).text() : std::string(name(monoid_));
}

uint64_t Combiner::hash() const {
  uint64_t out = hash_combine(static_cast<uint64_t>(monoid_), parts());
  if (!body_) return out;
  const auto mix = [&](uint64_t value) { out = hash_combine(out, value); };
  for (const DType dtype : body_->dtypes) mix(static_cast<uint64_t>(dtype));
  for (const uint64_t bits : body_->identity) mix(bits);
  for (const CombinerStep& step : body_->steps) {
    for (const uint64_t value :
         {static_cast<uint64_t>(step.kind), static_cast<uint64_t>(step.dtype), uint64_t{step.part},
          step.bits, static_cast<uint64_t>(step.op)})
      mix(value);
    for (const uint32_t argument : step.arguments) mix(argument);
  }
  for (const uint32_t result : body_->results) mix(result);
  return out;
}

bool operator==(const Combiner& a, const Combiner& b) {
  if (a.body_ && b.body_) return a.body_ == b.body_ || *a.body_ == *b.body_;
  return !a.body_ && !b.body_ && a.monoid_ == b.monoid_;
}

Combiner linear_recurrence(DType dtype) {
  CombinerBody body{
      {dtype, dtype}, {constant_bits_int(dtype, 1), constant_bits_int(dtype, 0)}, {}, {}};
  const auto part = [&](CombinerStep::Kind kind, uint32_t number) {
    return body.add({.kind = kind, .dtype = dtype, .part = number});
  };
  const uint32_t a = part(CombinerStep::Kind::Left, 0), b = part(CombinerStep::Kind::Left, 1);
  const uint32_t c = part(CombinerStep::Kind::Right, 0), d = part(CombinerStep::Kind::Right, 1);
  using Op = ElementwiseOp;
  body.results = {add_row(body, Op::mul, {a, c}),
                  is_floating(dtype) ? add_row(body, Op::fma, {b, c, d})
                                     : add_row(body, Op::add, {add_row(body, Op::mul, {b, c}), d})};
  return Combiner(std::move(body));
}

Combiner parse_combiner(Scanner& scanner) {
  if (scanner.at("from")) {
    const SourceLocation where = scanner.location();
    CombinerBody body = BodyParser(scanner).parse();
    try {
      return Combiner(std::move(body));
    } catch (const Error& error) {
      fail(codes::kSyntax, error.message(), {.location = where});
    }
  }
  const SourceLocation at = scanner.location();
  const std::string_view word = scanner.expect_identifier("a monoid");
  const auto monoid = parse_monoid(word);
  if (!monoid)
    fail(codes::kSyntax,
         fmt::format("{} is not a monoid; the monoids are sum, prod, max, min, and, or", word),
         {.location = at});
  return *monoid;
}

}  // namespace braze
