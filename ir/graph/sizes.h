// sizes.h — the values that size symbols take in one call, found from the shapes of the inputs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

namespace codes {
inline constexpr Code kBadInputs{"bad-inputs", ErrorKind::InvalidArgument,
                                 "The inputs of a call do not fit the inputs of the graph."};
inline constexpr Code kUndeterminedSize{
    "undetermined-size", ErrorKind::InvalidArgument,
    "The outputs need a size that the shapes of the inputs do not determine, in no call."};
}  // namespace codes

/// A value for every size symbol.
class Sizes {
 public:
  int64_t operator()(std::string_view symbol) const;
  int64_t operator()(const Expr& e) const;
  std::vector<int64_t> operator()(const Shape& shape) const;

  bool has(std::string_view symbol) const { return values_.find(symbol) != values_.end(); }
  void set(std::string_view symbol, int64_t value) {
    values_.insert_or_assign(std::string(symbol), value);
  }

 private:
  std::map<std::string, int64_t, std::less<>> values_;
};

/// A named parameter and the shape that a caller gave for it.
struct GivenShape {
  std::string_view name;
  const Shape* declared;
  std::span<const int64_t> given;
};

/// Finds the values of the symbols for which the declared shapes equal the given ones. Throws an
/// InvalidArgument that names the parameter, the symbol and its range, if a rank or extent differs,
/// if two extents disagree on a symbol, if a value is out of its symbol's range or no multiple of
/// its divisor, or if a symbol of `symbols` stays undetermined.
Sizes bind_sizes(std::span<const GivenShape> shapes, std::span<const Expr> symbols);

/// Checks number and dtypes of the inputs of `graph`, then binds the sizes that its outputs need.
Sizes check_inputs(const Graph& graph, std::span<const HostTensor> inputs);

/// One of `symbols` that bind_sizes finds in no call: it does not occur in the shapes of the
/// inputs, or only in extents such as n*m whose other symbols are not determined either.
std::optional<Expr> undetermined_symbol(std::span<const Shape* const> inputs,
                                        std::span<const Expr> symbols);

/// Throws kUndeterminedSize if the nodes that the outputs of `graph` need have such a symbol.
void check_determined(const Graph& graph);
/// The same for a function that is given by its name, the shapes of its inputs and its symbols.
void check_determined(std::string_view function, std::span<const Shape* const> inputs,
                      std::span<const Expr> symbols);

}  // namespace braze
