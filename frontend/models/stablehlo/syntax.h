// syntax.h — StableHLO as text: what a file of MLIR says, read into operations.
//
// MLIR prints an operation in the generic form, which all operations share, or in a form of its
// own. Both give the same Operation here: the parts of a pretty form become attributes under the
// names of the generic form, so only the reader knows about forms. Aliases (#name, !name) are
// resolved, and locations of arguments become their names.
//
// The text is untrusted: nothing is allocated beyond a small multiple of its size.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type/tensor_type.h"
#include "ir/values/host_tensor.h"

namespace braze {

namespace codes {
inline constexpr Code kStablehloText{"stablehlo-text", ErrorKind::DataLoss,
                                     "A text of StableHLO is cut off or does not follow its form."};
}  // namespace codes

namespace stablehlo {

/// A type of the text. `tensor` is empty for types that Braze does not have.
struct Type {
  std::optional<TensorType> tensor;
  std::string text;
};

struct Attribute;
using Attributes = std::map<std::string, Attribute, std::less<>>;

/// dense<...>: one element for all, or all of them.
struct Literal {
  Type type;
  std::shared_ptr<const HostTensor>
      value;  ///< of rank 0 if it is one element for all; null if the type is none of ours
};

struct Attribute {
  enum class Kind : uint8_t {
    Unit,
    Bool,
    Integer,
    Real,
    String,
    Symbol,
    List,
    Dictionary,
    Dense,
    Word
  };
  Kind kind = Kind::Unit;
  int64_t integer = 0;  ///< Integer, Bool
  double real = 0;
  /// String: without quotes. Symbol: without @. Word: the last word of `#stablehlo<precision
  /// HIGH>`, or the whole content of the brackets if an attribute is not a list of names and
  /// values.
  std::string text;
  std::vector<Attribute> list;
  std::shared_ptr<const Attributes> dictionary;
  Literal dense;
};

/// "arg0" or "3", and the number among several results.
struct ValueName {
  std::string name;
  int64_t number = 0;
  friend auto operator<=>(const ValueName&, const ValueName&) = default;
};

struct Block;

struct Operation {
  std::string name;  ///< with its dialect: "stablehlo.add", "func.call"
  std::vector<ValueName> results;
  std::vector<ValueName> operands;
  std::vector<Type> operand_types, result_types;
  Attributes attributes;
  std::vector<Block> regions;  ///< each has one block
  uint32_t line = 0;
};

struct BlockArgument {
  ValueName name;
  Type type;
};

struct Block {
  std::vector<BlockArgument> arguments;
  std::vector<Operation> operations;
};

/// An argument or result of a function.
struct Parameter {
  ValueName name;  ///< of an argument
  Type type;
  Attributes attributes;
  std::string label;  ///< from its location
};

struct Function {
  std::string name;
  bool is_private = false;
  std::vector<Parameter> arguments, results;
  Block body;
  uint32_t line = 0;
};

struct Module {
  std::string name;
  Attributes attributes;
  std::map<std::string, Function, std::less<>> functions;
  /// Operations beside the functions, such as sdy.mesh.
  std::vector<Operation> others;
};

/// `file` is for messages.
Module parse_module(std::string_view text, const std::string& file);

}  // namespace stablehlo
}  // namespace braze
