// syntax.h — reads the text of an MLIR file with StableHLO into operations.
//
// MLIR prints an operation in the generic form, which all operations have, or in a pretty form of
// its own. Both become the same Operation here: the parts of a pretty form become attributes with
// the names of the generic form. So only the reader knows about forms. Aliases (#name, !name) are
// resolved, and locations of arguments become their names.
//
// The text is untrusted, so the reader takes no more memory than a small multiple of its size.
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

/// A type in the text. `tensor` is nullopt if Braze does not have the type.
struct Type {
  std::optional<TensorType> tensor;
  std::string text;
};

struct Attribute;
using Attributes = std::map<std::string, Attribute, std::less<>>;

/// The content of dense<...>: all elements, or one element that stands for all of them.
struct Literal {
  Type type;
  /// It has rank 0 if it stands for all elements. It is null if Braze does not have the type.
  std::shared_ptr<const HostTensor> value;
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
  int64_t integer = 0;  ///< for Integer and Bool
  double real = 0;
  /// A String without its quotes, or a Symbol without its @. For a Word, it is the last word, such
  /// as HIGH in `#stablehlo<precision HIGH>`, or the whole content of the brackets.
  std::string text;
  std::vector<Attribute> list;
  std::shared_ptr<const Attributes> dictionary;
  Literal dense;
};

/// The name of a value, such as "arg0" or "3", and its number if there are several results.
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
  ValueName name;  ///< that of an argument
  Type type;
  Attributes attributes;
  std::string label;  ///< the name in its location
};

struct Function {
  std::string name;
  bool is_private = false;
  std::vector<Parameter> arguments, results;
  Block body;
  uint32_t line = 0;
};

struct Module {
  size_t bytes = 0;  ///< the size of the text
  std::string name;
  Attributes attributes;
  std::map<std::string, Function, std::less<>> functions;
  /// Operations beside the functions, such as sdy.mesh.
  std::vector<Operation> others;
};

/// Reads a module. Messages name `file`.
Module parse_module(std::string_view text, const std::string& file);

}  // namespace stablehlo
}  // namespace braze
