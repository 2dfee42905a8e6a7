// named.h — named parameters: ordered collections of Arrays or Tensors, nested by dotted prefixes.
//
// The parameters of a model are `Parameters` outside a compiled function and `Weights` inside.
// `jit` turns one into the other and keeps the names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace braze {

class Array;
class Tensor;

namespace detail {
/// Throws unless `name` consists of letters, digits, '_', and single dots between them.
void check_name(std::string_view name, std::source_location where);
[[noreturn]] void fail_duplicate_name(std::string_view name, std::source_location where);
[[noreturn]] void fail_unknown_name(std::string_view name, const std::vector<std::string>& names,
                                    std::source_location where);
[[noreturn]] void fail_names_differ(const std::vector<std::string>& a,
                                    const std::vector<std::string>& b, std::source_location where);
/// `seed` with `name` mixed in.
uint64_t mix_name(uint64_t seed, std::string_view name);
}  // namespace detail

/// A name, and the source line that wrote it. Operators need this type because they cannot take a
/// second argument.
struct NameHere {
  /// Converts from text and remembers the line of the caller.
  template <class Text>
  requires std::is_convertible_v<const Text&, std::string_view> NameHere(  // NOLINT: implicit
      const Text& name, std::source_location line = std::source_location::current())
      : text(name), where(line) {}
  std::string_view text;       ///< the name
  std::source_location where;  ///< the line that wrote it
};

/// Named values, in the order in which they were added.
template <class T>
class Named {
 public:
  using Item = std::pair<std::string, T>;  ///< a name and its value

  Named() = default;
  /// The items in order. It throws InvalidArgument if a name occurs twice.
  Named(std::initializer_list<Item> items) {
    for (const auto& [name, value] : items) add(name, value);
  }

  /// The values of a map in the order of their names, such as the arrays of a file. It throws
  /// InvalidArgument if a name cannot be the name of a parameter (see `add`).
  explicit Named(const std::map<std::string, T>& values,
                 std::source_location where = std::source_location::current()) {
    for (const auto& [name, value] : values) add(name, value, where);
  }

  /// Appends a value. It throws InvalidArgument if the name exists, or if it has characters other
  /// than letters, digits, '_' and inner dots.
  void add(std::string name, T value,
           std::source_location where = std::source_location::current()) {
    detail::check_name(name, where);
    if (contains(name)) detail::fail_duplicate_name(name, where);
    structure_ = detail::mix_name(structure_, name);
    items_.emplace_back(std::move(name), std::move(value));
  }
  /// Appends every value of `group` under the name "prefix.name".
  void add(const std::string& prefix, const Named& group,
           std::source_location where = std::source_location::current()) {
    for (const auto& [name, value] : group) add(prefix + "." + name, value, where);
  }

  /// Whether there is a value of this name.
  bool contains(std::string_view name) const { return find(name) < items_.size(); }
  /// The value of a name. If there is none, InvalidArgument lists the names that exist.
  const T& at(std::string_view name,
              std::source_location where = std::source_location::current()) const {
    const size_t i = find(name);
    if (i == items_.size()) detail::fail_unknown_name(name, names(), where);
    return items_[i].second;
  }
  /// The same as `at`.
  const T& operator[](NameHere name) const { return at(name.text, name.where); }
  /// Replaces the value of a name that exists.
  void set(std::string_view name, T value,
           std::source_location where = std::source_location::current()) {
    const size_t i = find(name);
    if (i == items_.size()) detail::fail_unknown_name(name, names(), where);
    items_[i].second = std::move(value);
  }
  /// The values whose names begin with "prefix.". Their names here are the rest. It throws
  /// InvalidArgument if there are none.
  Named group(std::string_view prefix,
              std::source_location where = std::source_location::current()) const {
    Named out;
    for (const auto& [name, value] : items_)
      if (name.size() > prefix.size() + 1 && name.starts_with(prefix) && name[prefix.size()] == '.')
        out.add(name.substr(prefix.size() + 1), value, where);
    if (out.empty()) detail::fail_unknown_name(prefix, names(), where);
    return out;
  }

  /// All names, in order.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& item : items_) out.push_back(item.first);
    return out;
  }
  size_t size() const { return items_.size(); }  ///< the number of values
  bool empty() const { return items_.empty(); }  ///< whether there are none
  auto begin() const { return items_.begin(); }  ///< over Items, in order
  auto end() const { return items_.end(); }      ///< after the last Item

  /// The collection of `f(value)` under the same names.
  template <class F>
  auto map(F&& f) const {
    Named<std::decay_t<std::invoke_result_t<F&, const T&>>> out;
    out.structure_ = structure_;
    for (const auto& [name, value] : items_) out.items_.emplace_back(name, f(value));
    return out;
  }
  /// The collection of `f(value, other's value)`. It throws InvalidArgument unless both have the
  /// same names.
  template <class U, class F>
  auto zip(const Named<U>& other, F&& f,
           std::source_location where = std::source_location::current()) const {
    if (structure() != other.structure()) detail::fail_names_differ(names(), other.names(), where);
    Named<std::decay_t<std::invoke_result_t<F&, const T&, const U&>>> out;
    out.structure_ = structure_;
    for (size_t i = 0; i < size(); ++i)
      out.items_.emplace_back(items_[i].first, f(items_[i].second, other.items_[i].second));
    return out;
  }

  /// A hash of the names in order. It is equal for collections with the same names.
  uint64_t structure() const { return structure_; }

 private:
  template <class U>
  friend class Named;

  size_t find(std::string_view name) const {
    size_t i = 0;
    while (i < items_.size() && items_[i].first != name) ++i;
    return i;
  }

  std::vector<Item> items_;
  uint64_t structure_ = 0;
};

/// Named Arrays: a model's parameters, an optimizer's state.
using Parameters = Named<Array>;
/// The same inside a compiled function.
using Weights = Named<Tensor>;

}  // namespace braze
