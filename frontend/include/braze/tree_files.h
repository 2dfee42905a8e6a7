// tree_files.h — saves and restores trees of Arrays (tree.h), such as the parameters of a model.
//
//   save_safetensors("weights.safetensors", state_dict(parameters, "mlp"));
//   parameters = restore(parameters, load_safetensors("weights.safetensors"), "mlp");
//
// The name of an array in a file is its path in the tree, with dots. The path consists of the names
// in a Named, the names of the members of a struct, and positions in vectors, pairs and tuples. A
// prefix is put before the name as "prefix.".
#pragma once

#include <map>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "braze/io.h"
#include "braze/named.h"
#include "braze/tree.h"

namespace braze {

namespace detail {

/// The names of the arrays of `tree` in order. It throws InvalidArgument for an empty name, which a
/// tree that is a single array has if there is no prefix.
template <class T>
std::vector<std::string> array_names(const T& tree, std::string_view prefix,
                                     std::source_location where);
void check_array_name(std::string_view name, std::source_location where);
/// The arrays of these names, in order. It throws unless `arrays` has exactly these names, and each
/// array has the dtype and shape of its counterpart in `like`. The error lists everything that is
/// wrong.
std::vector<Array> take_arrays(const std::vector<std::string>& names,
                               const std::vector<Array>& like,
                               const std::map<std::string, Array>& arrays,
                               std::source_location where);

}  // namespace detail

/// The arrays of a tree, by name.
template <class T>
std::map<std::string, Array> state_dict(
    const T& tree, std::string_view prefix = "",
    std::source_location where = std::source_location::current()) {
  const std::vector<std::string> names = detail::array_names(tree, prefix, where);
  const std::vector<Array> values = detail::leaves<Array>(tree);
  std::map<std::string, Array> out;
  for (size_t i = 0; i < names.size(); ++i)
    if (!out.emplace(names[i], values[i]).second) detail::fail_duplicate_name(names[i], where);
  return out;
}

/// The inverse of `state_dict`: the tree `like` with the arrays of the same names in `arrays`.
/// `like` determines names, dtypes and shapes; the devices are those of `arrays`. If an array is
/// missing, is not in the tree, or has another dtype or shape, InvalidArgument lists everything
/// that is wrong.
template <class T>
T restore(const T& like, const std::map<std::string, Array>& arrays, std::string_view prefix = "",
          std::source_location where = std::source_location::current()) {
  const std::vector<Array> values = detail::take_arrays(detail::array_names(like, prefix, where),
                                                        detail::leaves<Array>(like), arrays, where);
  size_t next = 0;
  return detail::refill(like, values, next);
}

template <class T>
std::vector<std::string> detail::array_names(const T& tree, std::string_view prefix,
                                             std::source_location where) {
  std::vector<std::string> names;
  auto add = [&](const std::string& path) {
    // Paths begin with a dot.
    names.push_back(prefix.empty() && !path.empty() ? path.substr(1) : std::string(prefix) + path);
    check_array_name(names.back(), where);
  };
  Tree<T>::paths(tree, "", add);
  return names;
}

}  // namespace braze
