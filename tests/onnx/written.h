// written.h — files of ONNX, written by hand: the messages of onnx.proto, field by field.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

namespace braze::test::onnx {

// A protobuf field: a message, a text or bytes.
inline std::string varint(int64_t value) {
  std::string out;
  auto rest = static_cast<uint64_t>(value);
  for (; rest >= 128; rest >>= 7) out += static_cast<char>(rest % 128 + 128);
  return out + static_cast<char>(rest);
}
inline std::string field(int number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(static_cast<int64_t>(bytes.size())) + bytes;
}
inline std::string number(int field, int value) {
  return {static_cast<char>(field << 3), static_cast<char>(value)};
}

// A value of the graph: field 11 has its inputs, 12 its outputs, 13 the values between nodes.
inline std::string value(int list, const std::string& name, int type,
                         std::initializer_list<std::string> extents) {
  std::string shape;
  for (const std::string& extent : extents)
    shape += field(1, isdigit(extent[0]) ? number(1, std::stoi(extent)) : field(2, extent));
  return field(list, field(1, name) + field(2, field(1, number(1, type) + field(2, shape))));
}
inline std::string input(const std::string& name, int type,
                         std::initializer_list<std::string> extents) {
  return value(11, name, type, extents);
}
inline std::string node(const std::string& op, std::initializer_list<std::string> inputs,
                        const std::string& output, const std::string& more = "") {
  std::string text;
  for (const std::string& name : inputs) text += field(1, name);
  return field(1, text + field(2, output) + field(3, "the " + op) + field(4, op) + more);
}
inline std::string output(const std::string& name) {
  return field(12, field(1, name) + field(2, field(1, number(1, 1))));
}
inline std::string model_of(const std::string& graph, int opset = 17) {
  return number(1, 8) + field(7, graph) + field(8, number(2, opset));
}
// A tensor of f32.
inline std::string floats(const std::string& name, const std::vector<int>& shape,
                          const std::vector<float>& values) {
  std::string dims;
  for (const int extent : shape) dims += number(1, extent);
  const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  return field(5, dims + number(2, 1) + field(8, name) + field(9, bytes));
}
// One with the values 0, 1, ...
inline std::string weight(const std::string& name, const std::vector<int>& shape) {
  const int count = std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>());
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0F);
  return floats(name, shape, values);
}

// A list of integers of 64 bits.
inline std::string integers(const std::string& name, std::initializer_list<int64_t> values) {
  const std::vector<int64_t> list(values);
  const std::string bytes(reinterpret_cast<const char*>(list.data()), list.size() * 8);
  return field(5, number(1, static_cast<int>(list.size())) + number(2, 7) + field(8, name) +
                      field(9, bytes));
}

// Attributes of a node.
inline std::string attribute(const std::string& name, float value) {
  std::string bytes(4, ' ');
  std::memcpy(bytes.data(), &value, 4);
  return field(5, field(1, name) + std::string(1, 2 << 3 | 5) + bytes + "\xa0\x01\x01");
}
inline std::string attribute(const std::string& name, const char* text) {
  return field(5, field(1, name) + field(4, text) + "\xa0\x01\x03");
}
inline std::string attribute(const std::string& name, int value) {
  return field(5, field(1, name) + std::string(1, 3 << 3) + varint(value) + "\xa0\x01\x02");
}
inline std::string attribute(const std::string& name, std::initializer_list<int> values) {
  std::string list;
  for (const int each : values) list += varint(each);
  return field(5, field(1, name) + field(8, list) + "\xa0\x01\x07");
}

}  // namespace braze::test::onnx
