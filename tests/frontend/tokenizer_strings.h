// tokenizer_strings.h — the strings that tests of tokenizers encode.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/io/json_value.h"

namespace braze::test {

/// The strings of a JSON file that consists of an array of them.
inline std::vector<std::string> read_strings(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  JsonReader reader(text, path);
  std::vector<std::string> out;
  reader.array([&] { out.push_back(reader.string()); });
  return out;
}

}  // namespace braze::test
