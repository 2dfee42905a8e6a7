#include "braze/tree_files.h"

#include <algorithm>

#include "frontend/builder/builder.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"

namespace braze::detail {

namespace codes {
inline constexpr Code kOtherArrays{"other-arrays", ErrorKind::InvalidArgument,
                                   "The arrays of a file do not match the tree that is restored."};
}  // namespace codes

namespace {

std::string type_text(const Array& array) {
  return fmt::format("{}[{}]", name(array.dtype()), fmt::join(array.shape(), ", "));
}

Diagnostic finding(std::source_location where, std::string message) {
  return {.code = &codes::kOtherArrays, .location = where, .message = std::move(message)};
}

}  // namespace

void check_array_name(std::string_view name, std::source_location where) {
  if (!name.empty()) return;
  fail(codes::kOtherArrays, "a single array has no name in a file",
       {.location = where, .node = "", .fix = "give a prefix, which becomes its name"});
}

std::vector<Array> take_arrays(const std::vector<std::string>& names,
                               const std::vector<Array>& like,
                               const std::map<std::string, Array>& arrays,
                               std::source_location where) {
  std::vector<Diagnostic> wrong;
  std::vector<Array> out;
  std::vector<std::string> unused;
  for (const auto& item : arrays)
    if (std::find(names.begin(), names.end(), item.first) == names.end())
      unused.push_back(item.first);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = arrays.find(names[i]);
    if (found == arrays.end()) {
      wrong.push_back(finding(where, fmt::format("the array {} is missing{}", quote(names[i]),
                                                 did_you_mean(names[i], unused))));
      continue;
    }
    const Array& array = found->second;
    if (array.dtype() != like[i].dtype() || array.shape() != like[i].shape())
      wrong.push_back(finding(where, fmt::format("the array {} is {}, not {}", quote(names[i]),
                                                 type_text(array), type_text(like[i]))));
    out.push_back(array);
  }
  for (const std::string& name : unused)
    wrong.push_back(finding(where, fmt::format("the array {} is not in the tree", quote(name))));
  fail_if_any(wrong, "the arrays to restore");
  return out;
}

}  // namespace braze::detail
