// tree_files.h — trees of Arrays (tree.h), such as a model's parameters, to and from files (io.h).
//
//   save_safetensors("weights.safetensors", state_dict(parameters, "mlp"));
//   parameters = restore(parameters, load_safetensors("weights.safetensors"), "mlp");
//
// The name of an array in a file is its path in the tree, with dots: names of a Named and of the
// members of a struct, positions in vectors, pairs and tuples. With a prefix, "prefix." is before
// it.
#pragma once

#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "braze/io.h"
#include "braze/named.h"
#include "braze/tree.h"

namespace braze {

namespace detail {

/// The names of the arrays of `tree` in order. InvalidArgument for one that is empty: that of a
/// tree that is a lone array, without a prefix.
template <class T>
std::vector<std::string> array_names(const T& tree, std::string_view prefix,
                                     std::source_location where);
void check_array_name(std::string_view name, std::source_location where);
/// The arrays of these names, in order. Fails, with everything that is wrong, unless they are what
/// `arrays` holds, and each has the dtype and shape of its counterpart in `like`.
std::vector<Array> take_arrays(const std::vector<std::string>& names,
                               const std::vector<Array>& like, const ArrayMap& arrays,
                               std::source_location where);

}  // namespace detail

/// The arrays of a tree by their names.
template <class T>
ArrayMap state_dict(const T& tree, std::string_view prefix = "",
                    std::source_location where = std::source_location::current()) {
  const std::vector<std::string> names = detail::array_names(tree, prefix, where);
  const std::vector<Array> values = detail::leaves<Array>(tree);
  ArrayMap out;
  for (size_t i = 0; i < names.size(); ++i)
    if (!out.emplace(names[i], values[i]).second) detail::fail_duplicate_name(names[i], where);
  return out;
}

/// The tree `like`, whose arrays are those of `arrays` with its names: the inverse of `state_dict`.
/// `like` gives names, dtypes and shapes; the devices are those of `arrays`. InvalidArgument, with
/// everything that is wrong, if an array is missing, too many, or of another dtype or shape.
template <class T>
T restore(const T& like, const ArrayMap& arrays, std::string_view prefix = "",
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
