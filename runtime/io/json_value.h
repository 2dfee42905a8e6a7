// json_value.h — a JSON text as a tree, for files whose parts are read in another order than they
// stand in. Big tables are better read by JsonReader itself.
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
  /// The value that comes next. Memory is within a multiple of the text.
  static JsonValue read(JsonReader& reader);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // nullptr if it is something else.
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const double* number() const { return std::get_if<double>(&value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const List* list() const { return std::get_if<List>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  /// A member, the first of its name; null if there is none, or this is no object.
  const JsonValue& operator[](std::string_view name) const;

 private:
  std::variant<std::monostate, bool, double, std::string, List, Object> value_;
};

}  // namespace braze
