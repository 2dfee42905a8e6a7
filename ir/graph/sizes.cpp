#include "ir/graph/sizes.h"

#include <algorithm>
#include <set>

#include "ir/graph/rewrite.h"
#include "ir/support/text.h"

namespace braze {
namespace {

std::string shape_text(std::span<const int64_t> dims) {
  return "[" + join(dims, ", ", [](int64_t d) { return std::to_string(d); }) + "]";
}

[[noreturn]] void reject(const GivenShape& shape, const std::string& why) {
  fail(codes::kBadInputs,
       fmt::format("input '{}' is declared as {}, but {} was given: {}", shape.name,
                   shape.declared->to_string(), shape_text(shape.given), why));
}

std::string range_text(const Expr& symbol) {
  const Interval range = symbol.range();
  const std::string limits = fmt::format("{}..{}", range.min, range.max);
  return symbol.divisor() > 1 ? fmt::format("a multiple of {} in {}", symbol.divisor(), limits)
                              : "in " + limits;
}

/// The only symbol of `e` for which `has` is false, if there is exactly one.
template <class Has>
std::optional<std::string> single_unknown(const Expr& e, const Has& has) {
  std::optional<std::string> unknown;
  for (const std::string& name : e.symbols()) {
    if (has(name)) continue;
    if (unknown) return std::nullopt;
    unknown = name;
  }
  return unknown;
}

/// An extent as a linear equation in one symbol: extent * times == factor * symbol + rest.
struct Equation {
  Expr factor, rest;
  int64_t times = 1;
};
/// Nothing if the extent does not depend linearly on the symbol. A linear expression that is
/// divided without remainder counts as linear.
std::optional<Equation> equation_for(const Expr& extent, const std::string& symbol) {
  if (extent.kind() == Expr::Kind::FloorDiv) {
    const auto parts = extent.operands()[1].as_constant();
    if (!parts || !extent.operands()[0].is_multiple_of(*parts)) return std::nullopt;
    auto whole = equation_for(extent.operands()[0], symbol);
    if (!whole || __builtin_mul_overflow(whole->times, *parts, &whole->times)) return std::nullopt;
    return whole;
  }
  const auto factor = extent.coefficient_of(symbol);
  if (!factor || factor->uses(symbol)) return std::nullopt;
  return Equation{*factor, extent.substitute(symbol, Expr(0))};
}

/// Solves dim == given, where `name` is the only symbol of `dim` without a value. Returns false if
/// that is impossible.
bool solve(const GivenShape& shape, const Expr& dim, int64_t given, const std::string& name,
           Sizes& sizes) {
  const auto equation = equation_for(dim, name);
  int64_t whole = 0;
  if (!equation || __builtin_mul_overflow(given, equation->times, &whole)) return false;
  const int64_t factor = sizes(equation->factor);
  if (factor == 0) return false;
  const int64_t rest = sizes(equation->rest);
  if ((whole - rest) % factor != 0)
    reject(shape, fmt::format("no integer {} makes {} equal {}", name, dim.to_string(), given));
  sizes.set(name, (whole - rest) / factor);
  return true;
}

/// Binds the symbols that one pass over all extents determines. Returns whether there were any.
bool solve_some(std::span<const GivenShape> shapes, Sizes& sizes) {
  bool progress = false;
  for (const GivenShape& shape : shapes)
    for (size_t axis = 0; axis < shape.given.size(); ++axis) {
      const Expr& dim = (*shape.declared)[axis];
      if (const auto name =
              single_unknown(dim, [&](const std::string& symbol) { return sizes.has(symbol); }))
        progress |= solve(shape, dim, shape.given[axis], *name, sizes);
    }
  return progress;
}

void check_symbol(std::span<const GivenShape> shapes, const Expr& symbol, const Sizes& sizes) {
  const std::string& name = symbol.symbol_name();
  if (!sizes.has(name))
    fail(codes::kBadInputs,
         fmt::format("the shapes of the inputs do not determine the size {}", name));
  const int64_t value = sizes(name);
  if (symbol.range().contains(value) && value % std::max<int64_t>(symbol.divisor(), 1) == 0) return;
  const std::string why =
      fmt::format("{} = {}, but {} must be {}", name, value, name, range_text(symbol));
  for (const GivenShape& shape : shapes)
    for (const Expr& dim : shape.declared->dims())
      if (dim.uses(name)) reject(shape, why);
  fail(codes::kBadInputs, why);
}

void check_extents(const GivenShape& shape, const Sizes& sizes) {
  for (size_t axis = 0; axis < shape.given.size(); ++axis) {
    const Expr& dim = (*shape.declared)[axis];
    const auto unbound = [&](const std::string& name) { return !sizes.has(name); };
    const auto names = dim.symbols();
    if (std::any_of(names.begin(), names.end(), unbound)) continue;  // check_symbol reports it
    const int64_t expected = sizes(dim);
    if (expected == shape.given[axis]) continue;
    std::string why = fmt::format("axis {} must be {}, not {}", axis, expected, shape.given[axis]);
    if (!names.empty())
      why +=
          " (" +
          join(names, ", ",
               [&](const std::string& name) { return fmt::format("{} = {}", name, sizes(name)); }) +
          " from the other extents)";
    reject(shape, why);
  }
}

}  // namespace

int64_t Sizes::operator()(std::string_view symbol) const {
  const auto found = values_.find(symbol);
  BRAZE_CHECK(found != values_.end(), "size symbol without a value");
  return found->second;
}

int64_t Sizes::operator()(const Expr& e) const {
  if (const auto constant = e.as_constant()) return *constant;
  return e.evaluate([this](std::string_view name) { return (*this)(name); });
}

std::vector<int64_t> Sizes::operator()(const Shape& shape) const {
  std::vector<int64_t> dims;
  for (const Expr& dim : shape.dims()) dims.push_back((*this)(dim));
  return dims;
}

Sizes bind_sizes(std::span<const GivenShape> shapes, std::span<const Expr> symbols) {
  for (const GivenShape& shape : shapes)
    if (shape.given.size() != shape.declared->rank())
      reject(shape, fmt::format("its rank must be {}", shape.declared->rank()));
  Sizes sizes;
  while (solve_some(shapes, sizes)) {
  }
  for (const GivenShape& shape : shapes) check_extents(shape, sizes);
  for (const Expr& symbol : symbols) check_symbol(shapes, symbol, sizes);
  return sizes;
}

Sizes check_inputs(const Graph& graph, std::span<const HostTensor> inputs) {
  if (inputs.size() != graph.inputs().size())
    fail(codes::kBadInputs, fmt::format("graph '{}' has {} inputs, but {} were given", graph.name(),
                                        graph.inputs().size(), inputs.size()));
  std::vector<GivenShape> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node& node = graph[graph.inputs()[i]];
    const std::string& name = node.as<InputOp>()->name;
    if (inputs[i].dtype() != node.type.dtype)
      fail(codes::kBadInputs, fmt::format("input '{}' is {}, but {} elements were given", name,
                                          node.type.to_string(), braze::name(inputs[i].dtype())));
    shapes.push_back({name, &node.type.shape, inputs[i].shape()});
  }
  return bind_sizes(shapes, without_dead_code(graph).symbols());
}

std::optional<Expr> undetermined_symbol(std::span<const Shape* const> inputs,
                                        std::span<const Expr> symbols) {
  std::set<std::string> known;
  const auto is_known = [&](const std::string& symbol) { return known.contains(symbol); };
  for (size_t before = SIZE_MAX; before != known.size();) {
    before = known.size();
    for (const Shape* shape : inputs)
      for (const Expr& dim : *shape)
        if (const auto symbol = single_unknown(dim, is_known); symbol && equation_for(dim, *symbol))
          known.insert(*symbol);
  }
  for (const Expr& symbol : symbols)
    if (!is_known(symbol.symbol_name())) return symbol;
  return std::nullopt;
}

void check_determined(const Graph& graph) {
  std::vector<const Shape*> shapes;
  for (const NodeId input : graph.inputs()) shapes.push_back(&graph[input].type.shape);
  check_determined(graph.name(), shapes, without_dead_code(graph).symbols());
}

void check_determined(std::string_view function, std::span<const Shape* const> inputs,
                      std::span<const Expr> symbols) {
  const auto symbol = undetermined_symbol(inputs, symbols);
  if (!symbol) return;
  const std::string& name = symbol->symbol_name();
  // An extent that contains the symbol, but does not determine it.
  const Expr* extent = nullptr;
  for (const Shape* shape : inputs)
    for (const Expr& dim : *shape)
      if (dim.uses(name)) extent = &dim;
  fail(codes::kUndeterminedSize,
       extent ? fmt::format("the extent {} does not determine {}, and no other input of @{} does, "
                            "so no call can determine it",
                            extent->to_string(), name, function)
              : fmt::format("no input of @{} has the extent {}, so no call can determine it",
                            function, name),
       {.location = {},
        .node = std::string(function),
        .fix = fmt::format("give it an input with the extent {}", name)});
}

}  // namespace braze
