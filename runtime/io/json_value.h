// json_value.h — a JSON text as a tree, for files whose parts are not read in the order of the
// text. For large tables JsonReader is better.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/io/json.h"

namespace braze {

class JsonValue {
 public:
  using List = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;

  JsonValue() = default;  ///< null
  /// Reads the next value. The memory is at most a small multiple of the text.
  static JsonValue read(JsonReader& reader);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // Each returns nullptr if the value is of another kind.
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const double* number() const { return std::get_if<double>(&value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const List* list() const { return std::get_if<List>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  /// The first member of a name; null if there is none, or if this is not an object.
  const JsonValue& operator[](std::string_view name) const;

 private:
  std::variant<std::monostate, bool, double, std::string, List, Object> value_;
};

}  // namespace braze
