// tree.h — trees: the structured arguments and results of functions for `jit` and `grad`.
//
// A tree is a leaf (a Tensor inside the function, an Array outside), or a std::vector, std::pair,
// std::tuple or Named of trees, or your own struct template over the leaf type. For a struct,
// BRAZE_TREE lists its members, in the namespace of the struct:
//
//   template <class T> struct Layer { T weight, bias; };
//   BRAZE_TREE(Layer, weight, bias)
//
// A function that takes Layer<Tensor> is called with Layer<Array>. In files, arrays have the names
// of the members.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "braze/named.h"

namespace braze::detail {

/// A leaf without a value. A tree of Holes has only a structure.
struct Hole {};

/// `seed` with `value` mixed in.
constexpr uint64_t mix(uint64_t seed, uint64_t value) {
  uint64_t x = (seed ^ (value + 0x9e3779b97f4a7c15ull)) * 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}

/// How to walk a tree. The primary template is a leaf.
///   Rebind<To>          the tree with leaves of another type
///   map<To>(tree, f)    that tree, with leaves f(leaf), in order
///   each(tree, f)       calls f(leaf) in order
///   paths(tree, p, f)   calls f(path) in order, paths being p extended by indices and names
///   structure(tree)     equal for trees of equal structure
template <class T>
struct Tree {
  template <class To>
  using Rebind = To;
  template <class To, class F>
  static To map(const T& leaf, F& f) {
    return f(leaf);
  }
  template <class F>
  static void each(const T& leaf, F& f) {
    f(leaf);
  }
  template <class F>
  static void paths(const T&, const std::string& path, F& f) {
    f(path);
  }
  static uint64_t structure(const T&) { return 1; }
};

template <class T>
struct Tree<std::vector<T>> {
  template <class To>
  using Rebind = std::vector<typename Tree<T>::template Rebind<To>>;
  template <class To, class F>
  static Rebind<To> map(const std::vector<T>& tree, F& f) {
    Rebind<To> out;
    out.reserve(tree.size());
    for (const T& part : tree) out.push_back(Tree<T>::template map<To>(part, f));
    return out;
  }
  template <class F>
  static void each(const std::vector<T>& tree, F& f) {
    for (const T& part : tree) Tree<T>::each(part, f);
  }
  template <class F>
  static void paths(const std::vector<T>& tree, const std::string& path, F& f) {
    for (size_t i = 0; i < tree.size(); ++i)
      Tree<T>::paths(tree[i], path + "." + std::to_string(i), f);
  }
  static uint64_t structure(const std::vector<T>& tree) {
    uint64_t hash = mix(2, tree.size());
    for (const T& part : tree) hash = mix(hash, Tree<T>::structure(part));
    return hash;
  }
};

template <class T>
struct Tree<Named<T>> {
  template <class To>
  using Rebind = Named<typename Tree<T>::template Rebind<To>>;
  template <class To, class F>
  static Rebind<To> map(const Named<T>& tree, F& f) {
    return tree.map([&f](const T& part) { return Tree<T>::template map<To>(part, f); });
  }
  template <class F>
  static void each(const Named<T>& tree, F& f) {
    for (const auto& item : tree) Tree<T>::each(item.second, f);
  }
  template <class F>
  static void paths(const Named<T>& tree, const std::string& path, F& f) {
    for (const auto& [name, part] : tree) Tree<T>::paths(part, path + "." + name, f);
  }
  static uint64_t structure(const Named<T>& tree) {
    uint64_t hash = mix(mix(3, tree.size()), tree.structure());
    for (const auto& item : tree) hash = mix(hash, Tree<T>::structure(item.second));
    return hash;
  }
};

/// The common part of pairs, tuples and structs, which have a fixed number of parts.
template <class... Parts>
struct TreeOfParts {
  template <class F>
  static void each(const std::tuple<const Parts&...>& parts, F& f) {
    std::apply([&f](const Parts&... part) { (Tree<Parts>::each(part, f), ...); }, parts);
  }
  template <class F>
  static void paths(const std::tuple<const Parts&...>& parts, const std::string& path, F& f) {
    size_t i = 0;
    std::apply(
        [&](const Parts&... part) {
          (Tree<Parts>::paths(part, path + "." + std::to_string(i++), f), ...);
        },
        parts);
  }
  static uint64_t structure(const std::tuple<const Parts&...>& parts) {
    uint64_t hash = 4;
    std::apply(
        [&](const Parts&... part) { ((hash = mix(hash, Tree<Parts>::structure(part))), ...); },
        parts);
    return hash;
  }
  /// The parts as a tuple. Because of the braces, the calls have the order of the parts.
  template <class To, class F>
  static auto map(const std::tuple<const Parts&...>& parts, F& f) {
    return std::apply(
        [&f](const Parts&... part) {
          return std::tuple<typename Tree<Parts>::template Rebind<To>...>{
              Tree<Parts>::template map<To>(part, f)...};
        },
        parts);
  }
};

template <class... Parts>
struct Tree<std::tuple<Parts...>> : TreeOfParts<Parts...> {
  template <class To>
  using Rebind = std::tuple<typename Tree<Parts>::template Rebind<To>...>;
};

template <class A, class B>
struct Tree<std::pair<A, B>> : TreeOfParts<A, B> {
  template <class To>
  using Rebind =
      std::pair<typename Tree<A>::template Rebind<To>, typename Tree<B>::template Rebind<To>>;
  template <class To, class F>
  static Rebind<To> map(const std::pair<A, B>& tree, F& f) {
    auto first = Tree<A>::template map<To>(tree.first, f);
    return {std::move(first), Tree<B>::template map<To>(tree.second, f)};
  }
};

template <template <class> class Struct, class T>
requires requires(Struct<T>& value) { braze_fields(value); }
struct Tree<Struct<T>> {
  template <class To>
  using Rebind = Struct<To>;
  template <class F>
  static void with_fields(const Struct<T>& tree, F&& f) {
    std::apply([&f](const auto&... part) { (f(part), ...); }, braze_fields(tree));
  }
  template <class Part>
  using Of = Tree<std::remove_cvref_t<Part>>;
  template <class To, class F>
  static Struct<To> map(const Struct<T>& tree, F& f) {
    Struct<To> out;
    auto to = braze_fields(out);
    auto from = braze_fields(tree);
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(to) = Of<decltype(std::get<I>(from))>::template map<To>(std::get<I>(from), f)),
       ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(from)>>());
    return out;
  }
  template <class F>
  static void each(const Struct<T>& tree, F& f) {
    with_fields(tree, [&f](const auto& part) { Of<decltype(part)>::each(part, f); });
  }
  template <class F>
  static void paths(const Struct<T>& tree, const std::string& path, F& f) {
    size_t i = 0;
    with_fields(tree, [&](const auto& part) {
      Of<decltype(part)>::paths(part, path + "." + std::string(braze_field_names(tree)[i++]), f);
    });
  }
  static uint64_t structure(const Struct<T>& tree) {
    uint64_t hash = 5;
    with_fields(
        tree, [&hash](const auto& part) { hash = mix(hash, Of<decltype(part)>::structure(part)); });
    return hash;
  }
};

template <class T, class To>
using Rebind = typename Tree<T>::template Rebind<To>;

/// The leaves of a tree in order.
template <class Leaf, class T>
std::vector<Leaf> leaves(const T& tree) {
  std::vector<Leaf> out;
  auto append = [&out](const Leaf& leaf) { out.push_back(leaf); };
  Tree<T>::each(tree, append);
  return out;
}

/// The tree with leaves from `values`. They begin at `next`, which is moved behind the last one.
template <class To, class T>
Rebind<T, To> refill(const T& tree, const std::vector<To>& values, size_t& next) {
  auto take = [&](const auto&) { return values[next++]; };
  return Tree<T>::template map<To>(tree, take);
}

}  // namespace braze::detail

// Expands to macro(first), macro(second) ... for up to 64 arguments.
#define BRAZE_DETAIL_PARENS ()
#define BRAZE_DETAIL_EXPAND(...) \
  BRAZE_DETAIL_EXPAND_2(         \
      BRAZE_DETAIL_EXPAND_2(BRAZE_DETAIL_EXPAND_2(BRAZE_DETAIL_EXPAND_2(__VA_ARGS__))))
#define BRAZE_DETAIL_EXPAND_2(...) \
  BRAZE_DETAIL_EXPAND_3(           \
      BRAZE_DETAIL_EXPAND_3(BRAZE_DETAIL_EXPAND_3(BRAZE_DETAIL_EXPAND_3(__VA_ARGS__))))
#define BRAZE_DETAIL_EXPAND_3(...) \
  BRAZE_DETAIL_EXPAND_4(           \
      BRAZE_DETAIL_EXPAND_4(BRAZE_DETAIL_EXPAND_4(BRAZE_DETAIL_EXPAND_4(__VA_ARGS__))))
#define BRAZE_DETAIL_EXPAND_4(...) __VA_ARGS__
#define BRAZE_DETAIL_EACH(macro, ...) BRAZE_DETAIL_EXPAND(BRAZE_DETAIL_NEXT(macro, __VA_ARGS__))
#define BRAZE_DETAIL_NEXT(macro, first, ...) \
  macro(first) __VA_OPT__(, BRAZE_DETAIL_AGAIN BRAZE_DETAIL_PARENS(macro, __VA_ARGS__))
#define BRAZE_DETAIL_AGAIN() BRAZE_DETAIL_NEXT
#define BRAZE_DETAIL_MEMBER(name) value.name
#define BRAZE_DETAIL_NAME(name) std::string_view(#name)

/// Makes a tree of a struct template over the leaf type, given its members. Write it after the
/// struct, in the same namespace.
#define BRAZE_TREE(Struct, ...)                                           \
  template <class BrazeLeaf>                                              \
  auto braze_fields(Struct<BrazeLeaf>& value) {                           \
    return std::tie(BRAZE_DETAIL_EACH(BRAZE_DETAIL_MEMBER, __VA_ARGS__)); \
  }                                                                       \
  template <class BrazeLeaf>                                              \
  auto braze_fields(const Struct<BrazeLeaf>& value) {                     \
    return std::tie(BRAZE_DETAIL_EACH(BRAZE_DETAIL_MEMBER, __VA_ARGS__)); \
  }                                                                       \
  template <class BrazeLeaf>                                              \
  constexpr auto braze_field_names(const Struct<BrazeLeaf>&) {            \
    return std::array{BRAZE_DETAIL_EACH(BRAZE_DETAIL_NAME, __VA_ARGS__)}; \
  }
