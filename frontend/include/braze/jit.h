// jit.h — jit: from a C++ function of Tensors to a compiled function of Arrays.
//
//   auto f = jit([](Tensor x, Tensor w) { return gelu(dot(x, w)); });
//   Array y = f(x, w);
//
// The function runs once per signature (structure, dtypes, shapes, device of the arguments) with
// Tensors in place of the Arrays; what it builds is compiled and kept. Later calls with that
// signature go straight to the device. Extents declared by `spec` are symbolic: one compilation
// serves their whole range. Threads with different signatures compile at the same time; the
// function itself runs on one thread at a time.
//
// A number is an argument, too: f(x, 0.1) and f(x, 0.2) are one signature, and tensor.h says which
// dtype the number takes. So a learning rate follows a schedule without compiling again.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "braze/compile.h"
#include "braze/executable.h"
#include "braze/tensor.h"
#include "braze/tree.h"

namespace braze {

/// The type that one argument is compiled for.
struct Spec {
  DType dtype = DType::F32;  ///< of the elements
  Dims shape;                ///< numbers, or symbols with their ranges
  bool given = false;        ///< false: as the argument of the call is, all extents constant

  /// "f32[n, 64]".
  std::string to_string() const;
};

/// A declared argument type, such as `spec(f32, {"n:1..64", 64})`.
Spec spec(DType dtype, Dims shape);
/// Stands for an argument that needs no declaration.
inline const Spec as_given{};

struct JitOptions {
  std::string name = "main";        ///< of the graph, in dumps and profiles: a word
  std::vector<int> donate;          ///< positions of arguments that a call takes over
  std::vector<std::string> inputs;  ///< names of the arguments in messages; default arg0, arg1 ...
  CompileOptions compile;           ///< how to compile what was traced
  /// How many signatures stay compiled, at least one; those used longest ago go first.
  size_t most_specializations = 128;
  /// After so many compilations a warning on stderr, once, tells what changed between them; 0:
  /// never.
  int warn_after = 8;
  /// Calls wait, and fail for the first op that takes an index out of range, makes a NaN, or makes
  /// an infinity of finite operands, with its line and the element (docs/guides/debugging.md).
  /// Compiles as Precision::Strict, whatever `compile` says. A call that fails has taken its
  /// donated arguments.
  bool checked = false;
};

/// Positions of arguments whose memory the results of equal type take over: `jit(f, donate{0, 1})`.
/// The Arrays given there are dead after the call. Every Array of such an argument needs a result
/// of its type, else the first call is an InvalidArgument.
struct donate {
  donate(std::initializer_list<int> list) : arguments(list) {}
  std::vector<int> arguments;  ///< positions, from 0
};

/// What compilation made of a function.
struct CompileSummary {
  int ops = 0;         ///< of the graph, before fusion
  int kernels = 0;     ///< launches of one call
  double seconds = 0;  ///< from graph to program
};

/// How the results of a call compare with those of the reference interpreter.
struct CheckReport {
  bool ok = true;  ///< no element is out of its bound, and something was judged; see `unjudged`
  /// As a share of its bound; above 1 is wrong. Of many elements that are only rounded once, some
  /// come close to 1.
  double largest_error = 0;
  /// The share of finite elements that are judged. The bound of the others exceeds a tenth of the
  /// greatest magnitude in their tensor, so that it says next to nothing.
  double judged = 1;
  std::vector<std::string> unjudged;  ///< paths of the results of which nothing was judged
  std::string text;                   ///< one line for each result
};

namespace detail {

/// What the function built for one signature.
struct Traced {
  std::vector<Tensor> outputs;
  std::vector<std::string> paths;        ///< where each output stands in the result
  std::shared_ptr<const void> skeleton;  ///< the result with Holes for leaves
};

/// The typed function with its arguments, as JitCore sees it when a signature is new.
class TracedCall {
 public:
  virtual size_t arguments() const = 0;
  /// The type of every leaf; those that come from Arrays have constant extents.
  virtual std::vector<Spec> specs() const = 0;
  /// The argument that each leaf belongs to, and its path below that ("", ".weight", ".0").
  virtual std::vector<std::pair<int, std::string>> leaves() const = 0;
  /// Runs the function on Tensors, one for each leaf.
  virtual Traced trace(const std::vector<Tensor>& leaves) const = 0;

 protected:
  ~TracedCall() = default;
};

/// One compiled signature. Whoever holds it may go on after the function has let it go.
struct Specialization;
using SpecializationRef = std::shared_ptr<const Specialization>;

/// The part of a jitted function that knows no types. Thread-safe.
class JitCore {
 public:
  JitCore(std::vector<Spec> specs, JitOptions options, std::source_location where);
  ~JitCore();

  /// The specialization for these arguments, compiled now if it is new, by one of the threads that
  /// ask for it. `structure` identifies the C++ types and the structure of the arguments.
  SpecializationRef prepare(uint64_t structure, std::span<const Array> arguments,
                            const TracedCall& call);
  /// The graph's text, without compiling it.
  std::string graph_text(const TracedCall& call) const;
  /// The specialization of the last call. InvalidArgument before the first.
  SpecializationRef last(std::source_location where) const;
  int compile_count() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One call.
std::vector<Array> run(const Specialization& specialization, std::span<const Array> arguments);
/// Numbers given as arguments, by their place among the leaves.
using Numbers = std::vector<std::pair<size_t, Operand>>;
/// Puts the numbers among the Arrays, on their device.
void add_numbers(std::vector<Array>& arguments, const Numbers& numbers);
/// A number in place of an argument, in a function under construction.
Tensor constant_number(const Operand& number);
const Executable& executable(const Specialization& specialization);
std::shared_ptr<const Program> program(const SpecializationRef& specialization);
const void* skeleton(const Specialization& specialization);
Spec spec_of(const Array& array);
Spec spec_of(const Operand& number);
std::string explain(const Specialization& specialization);
CompileSummary summary(const Specialization& specialization);
CheckReport check(const Specialization& specialization, std::span<const Array> arguments);
/// A number that no other type has, in this process.
template <class T>
inline const char kTypeTag = 0;

inline Spec spec_of(const Spec& spec) { return spec; }
template <Arithmetic T>
Spec spec_of(T number) {
  return spec_of(Operand(number));
}

template <class F, class... Arguments>
class TypedCall final : public TracedCall {
 public:
  using Result = std::decay_t<std::invoke_result_t<const F&, Rebind<Arguments, Tensor>...>>;

  TypedCall(const F& function, const Arguments&... arguments)
      : function_(function), arguments_(arguments...) {}

  size_t arguments() const override { return sizeof...(Arguments); }
  std::vector<Spec> specs() const override {
    std::vector<Spec> out;
    auto append = [&out](const auto& leaf) { out.push_back(spec_of(leaf)); };
    std::apply([&](const Arguments&... a) { (Tree<Arguments>::each(a, append), ...); }, arguments_);
    return out;
  }
  std::vector<std::pair<int, std::string>> leaves() const override {
    std::vector<std::pair<int, std::string>> out;
    int position = 0;
    auto append = [&](const std::string& path) { out.emplace_back(position, path); };
    std::apply(
        [&](const Arguments&... a) { ((Tree<Arguments>::paths(a, "", append), ++position), ...); },
        arguments_);
    return out;
  }
  Traced trace(const std::vector<Tensor>& leaves) const override {
    size_t next = 0;
    auto take = [&]<class Leaf>(const Leaf&) {
      const Tensor& tensor = leaves[next++];
      return Arithmetic<Leaf> ? as_number(tensor) : tensor;
    };
    auto tensors = std::apply(
        [&](const Arguments&... a) {
          return std::tuple<Rebind<Arguments, Tensor>...>{
              Tree<Arguments>::template map<Tensor>(a, take)...};
        },
        arguments_);
    const Result result = std::apply(function_, std::move(tensors));
    Traced traced{.outputs = detail::leaves<Tensor>(result)};
    auto append = [&traced](const std::string& path) { traced.paths.push_back(path); };
    Tree<Result>::paths(result, "", append);
    auto empty = [](const Tensor&) { return Hole{}; };
    traced.skeleton = std::make_shared<const Rebind<Result, Hole>>(
        Tree<Result>::template map<Hole>(result, empty));
    return traced;
  }

 private:
  const F& function_;
  std::tuple<const Arguments&...> arguments_;
};

}  // namespace detail

/// A function compiled on demand. Copies share what was compiled. May be called from any thread.
template <class F>
class Jitted {
 public:
  Jitted(F function, std::vector<Spec> specs, JitOptions options, std::source_location where)
      : function_(std::move(function)),
        core_(std::make_shared<detail::JitCore>(std::move(specs), std::move(options), where)) {}

  /// With Arrays: runs the compiled function, which takes and returns Array where the function has
  /// Tensor, and takes numbers there as well; asynchronous, results may still be computing.
  /// InvalidArgument if an argument does not fit its spec, or arguments are on different devices.
  /// With Tensors, inside of another function: the function itself.
  template <class... Arguments>
  auto operator()(const Arguments&... arguments) const {
    constexpr bool inside = (std::is_same_v<Arguments, detail::Rebind<Arguments, Tensor>> || ...);
    if constexpr (inside) {
      return function_(in_place(arguments)...);
    } else {
      using Result = typename detail::TypedCall<F, Arguments...>::Result;
      std::vector<Array> flat;
      const detail::SpecializationRef compiled = prepare(flat, arguments...);
      std::vector<Array> results = detail::run(*compiled, flat);
      if constexpr (std::is_same_v<Result, Tensor>) {
        return std::move(results[0]);
      } else {
        size_t next = 0;
        return detail::refill<Array>(
            *static_cast<const detail::Rebind<Result, detail::Hole>*>(detail::skeleton(*compiled)),
            results, next);
      }
    }
  }

  /// The Graph IR that the function builds for these arguments, as text. Arguments are Arrays or
  /// Specs; nothing is compiled.
  template <class... Arguments>
  std::string graph(const Arguments&... arguments) const {
    return core_->graph_text(detail::TypedCall<F, Arguments...>(function_, arguments...));
  }

  /// Runs the compiled function and the reference interpreter on copies of the arguments, which
  /// stay as they are, and judges the results: exact where they must be, else by their error bound.
  template <class... Arguments>
  CheckReport check(const Arguments&... arguments) const {
    std::vector<Array> flat;
    const detail::SpecializationRef compiled = prepare(flat, arguments...);
    return detail::check(*compiled, flat);
  }

  // About the last call; InvalidArgument before the first.

  /// The kernels of the last call's program and why each edge was fused or not.
  std::string explain(std::source_location where = std::source_location::current()) const {
    return detail::explain(*core_->last(where));
  }
  CompileSummary summary(std::source_location where = std::source_location::current()) const {
    return detail::summary(*core_->last(where));
  }
  /// Checked functions: the results of its calls are followed by what the checks found.
  Executable executable(std::source_location where = std::source_location::current()) const {
    return detail::executable(*core_->last(where));
  }
  std::shared_ptr<const Program> program(
      std::source_location where = std::source_location::current()) const {
    return detail::program(core_->last(where));
  }
  /// How many compilations this function took, one for each signature that was not kept.
  int compile_count() const { return core_->compile_count(); }

 private:
  /// What the function itself is called with.
  template <class Argument>
  static decltype(auto) in_place(const Argument& argument) {
    if constexpr (Arithmetic<Argument>)
      return detail::constant_number(argument);
    else
      return (argument);
  }

  /// The specialization for the arguments, whose leaves become `flat`.
  template <class... Arguments>
  detail::SpecializationRef prepare(std::vector<Array>& flat, const Arguments&... arguments) const {
    using Call = detail::TypedCall<F, Arguments...>;
    flat.reserve(sizeof...(Arguments));
    detail::Numbers numbers;
    [[maybe_unused]] auto append = [&]<class Leaf>(const Leaf& leaf) {
      if constexpr (Arithmetic<Leaf>) {
        numbers.emplace_back(flat.size(), leaf);
        flat.emplace_back();
      } else {
        flat.push_back(leaf);
      }
    };
    (detail::Tree<Arguments>::each(arguments, append), ...);
    if (!numbers.empty()) detail::add_numbers(flat, numbers);
    uint64_t structure = reinterpret_cast<uintptr_t>(&detail::kTypeTag<Call>);
    ((structure = detail::mix(structure, detail::Tree<Arguments>::structure(arguments))), ...);
    return core_->prepare(structure, flat, Call(function_, arguments...));
  }

  F function_;
  std::shared_ptr<detail::JitCore> core_;
};

/// Makes a function of Arrays from `function`, which takes and returns Tensors or trees of them
/// (tree.h). `specs`, by argument position, declares types with symbolic extents; arguments without
/// one, and those that are trees, are compiled for the shapes they come with. InvalidArgument, at
/// the first call, for a position that is no argument, or a size that no argument has.
template <class F>
Jitted<F> jit(F function, std::vector<Spec> specs, JitOptions options = {},
              std::source_location where = std::source_location::current()) {
  return {std::move(function), std::move(specs), std::move(options), where};
}
/// The same without symbolic extents.
template <class F>
Jitted<F> jit(F function, JitOptions options = {},
              std::source_location where = std::source_location::current()) {
  return {std::move(function), {}, std::move(options), where};
}
/// The same, with arguments that a call takes over.
template <class F>
Jitted<F> jit(F function, donate arguments,
              std::source_location where = std::source_location::current()) {
  return {std::move(function), {}, {.donate = std::move(arguments.arguments)}, where};
}
/// The same, with symbolic extents and arguments that a call takes over.
template <class F>
Jitted<F> jit(F function, std::vector<Spec> specs, donate arguments,
              std::source_location where = std::source_location::current()) {
  return {std::move(function), std::move(specs), {.donate = std::move(arguments.arguments)}, where};
}

}  // namespace braze
