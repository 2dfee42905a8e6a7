// words.h — words for messages and files: counts with nouns, and names that are not taken.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

/// "1 file", "2 files".
std::string count_text(size_t count, std::string_view one);

/// `name`, or name-2, name-3 ...: the first that is not in `taken`.
std::string unused_name(const std::string& name, const std::vector<std::string>& taken);

/// The names of a program's or a graph's outputs, all different. Outputs without a name are called
/// "output0", "output1" ..., by their position.
template <class Outputs>
std::vector<std::string> output_names(const Outputs& outputs) {
  std::vector<std::string> names;
  for (const auto& output : outputs) names.push_back(output.name);
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].empty()) names[i] = unused_name("output" + std::to_string(i), names);
  return names;
}

}  // namespace braze
