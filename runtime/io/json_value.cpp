#include "runtime/io/json_value.h"

namespace braze {

JsonValue JsonValue::read(JsonReader& reader) {
  JsonValue out;
  switch (reader.next()) {
    case '{': {
      Object members;
      reader.object([&](std::string name) { members.emplace_back(std::move(name), read(reader)); });
      out.value_ = std::move(members);
      break;
    }
    case '[': {
      List elements;
      reader.array([&] { elements.push_back(read(reader)); });
      out.value_ = std::move(elements);
      break;
    }
    case '"':
      out.value_ = reader.string();
      break;
    case 't':
    case 'f':
      out.value_ = reader.boolean();
      break;
    case 'n':
      reader.skip();
      break;
    default:
      out.value_ = reader.number();
  }
  return out;
}

const JsonValue& JsonValue::operator[](std::string_view name) const {
  static const JsonValue kNull;
  if (const Object* const members = object())
    for (const auto& [key, value] : *members)
      if (key == name) return value;
  return kNull;
}

}  // namespace braze
