// jit.h — jit makes a compiled function of Arrays from a C++ function of Tensors.
//
//   auto f = jit([](Tensor x, Tensor w) { return gelu(dot(x, w)); });
//   Array y = f(x, w);
//
// The function runs once for each signature (structure, dtypes, shapes and device of the arguments)
// with Tensors in place of the Arrays. The graph that it builds is compiled and kept. Later calls
// with the same signature go straight to the device. Extents that `spec` declares are symbolic: one
// compilation serves their whole range. Threads with different signatures compile at the same time,
// but the function itself runs on one thread at a time.
//
// A number can be an argument too: f(x, 0.1) and f(x, 0.2) have one signature. tensor.h says which
// dtype the number takes. So a learning rate can change without another compilation.
#pragma once

#include <concepts>
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

/// The type for which one argument is compiled.
struct Spec {
  DType dtype = DType::F32;  ///< the element type
  Dims shape;                ///< numbers, or symbols with their ranges
  bool given = false;        ///< false: the type of the argument, with constant extents

  /// "f32[n, 64]".
  std::string to_string() const;
};

/// A declared argument type, such as `spec(f32, {"n:1..64", 64})`.
Spec spec(DType dtype, Dims shape);
/// Declares an argument that is compiled for the type that it has.
inline const Spec as_given{};

/// Declarations of arguments, by their positions. Some compilers make a std::vector from any list
/// in braces, even from the members of JitOptions. This type is made from Specs only.
struct Specs {
  /// `jit(f, {spec(f32, {"n:1..64", 64}), as_given})`.
  Specs(std::initializer_list<Spec> specs) : list(specs) {}
  /// The same from a vector.
  template <std::same_as<std::vector<Spec>> Vector>
  Specs(Vector specs) : list(std::move(specs)) {}  // NOLINT: implicit on purpose
  std::vector<Spec> list;                          ///< by position
};

/// Names, donated arguments, and how to compile.
struct JitOptions {
  std::string name = "main";        ///< the graph's name in dumps and profiles, which is one word
  std::vector<int> donate;          ///< positions of the arguments that are donated
  std::vector<std::string> inputs;  ///< the arguments' names in messages; default arg0, arg1 ...
  CompileOptions compile;           ///< how to compile the graph
  /// How many signatures are kept, at least one. Those that were used longest ago are dropped.
  size_t most_specializations = 128;
  /// After this number of compilations, one warning says what changed between them. 0 disables it.
  int warn_after = 8;
  /// If true, a call waits, and fails at the first op that takes an index out of range, makes a
  /// NaN, or makes an infinity from finite operands. The error names its line and the element
  /// (docs/guides/debugging.md). The function is compiled with Precision::Strict, whatever
  /// `compile` says. Even a call that fails has consumed its donated arguments.
  bool checked = false;
};

/// The positions of donated arguments, as in `jit(f, donate{0, 1})`. Results of equal type take
/// over the memory of these arguments. The Arrays that are passed there are dead after the call.
/// Every Array of such an argument needs a result of its type. If there is none, the first call
/// throws InvalidArgument.
struct donate {
  /// Takes positions of arguments, from 0.
  donate(std::initializer_list<int> list) : arguments(list) {}
  std::vector<int> arguments;  ///< positions, from 0
};

/// Numbers that describe a compilation.
struct CompileSummary {
  int ops = 0;         ///< ops of the graph, before fusion
  int kernels = 0;     ///< launches of one call
  double seconds = 0;  ///< the time from graph to program
};

/// How the results of a call compare with those of the reference interpreter.
struct CheckReport {
  bool ok = true;  ///< no element exceeds its bound, and some element was judged
  /// The largest error, divided by its bound. Above 1, the result is wrong. Among many elements
  /// that are only rounded once, some come close to 1.
  double largest_error = 0;
  /// The share of the finite elements that are judged. The bounds of the others exceed a tenth of
  /// the greatest magnitude in their tensor, so they say almost nothing.
  double judged = 1;
  std::vector<std::string> unjudged;  ///< the paths of results without a judged element
  std::string text;                   ///< one line for each result
};

namespace detail {

/// A place where a number among the arguments takes the dtype of a Tensor.
struct NumberUse {
  size_t leaf;  ///< the number's position among the leaves
  DType dtype;
  SourceLocation where;
};

/// What the function returned for one signature.
struct Traced {
  std::vector<Tensor> outputs;
  std::vector<std::string> paths;        ///< the path of each output in the result
  std::shared_ptr<const void> skeleton;  ///< the result, with Holes as leaves
  std::vector<NumberUse> number_uses;
};

/// The typed function and its arguments. JitCore traces it if the signature is new.
class TracedCall {
 public:
  virtual size_t arguments() const = 0;
  /// The type of every leaf. The extents of leaves from Arrays are constant.
  virtual std::vector<Spec> specs() const = 0;
  /// The argument of each leaf, and the path of the leaf in it ("", ".weight", ".0").
  virtual std::vector<std::pair<int, std::string>> leaves() const = 0;
  /// Runs the function on Tensors, one for each leaf.
  virtual Traced trace(const std::vector<Tensor>& leaves) const = 0;

 protected:
  ~TracedCall() = default;
};

/// The leaves of the arguments of one call.
struct FlatCall {
  std::vector<Array> arrays;  ///< empty where a number stands, until it is on the device
  std::vector<std::pair<size_t, Operand>> numbers;  ///< by their positions among the leaves
  /// A hash of the trees of the arguments, and of which leaves are numbers. The C++ types of the
  /// numbers do not matter.
  uint64_t structure = 0;

  /// Makes Arrays of the numbers, and puts them among the other Arrays.
  void add_numbers(const Device& device);
};

/// One compiled signature. Even if the function drops it, it lives as long as somebody holds it.
struct Specialization;
using SpecializationRef = std::shared_ptr<const Specialization>;

/// The part of a jitted function that does not depend on C++ types. It is thread-safe.
class JitCore {
 public:
  JitCore(std::vector<Spec> specs, JitOptions options, std::source_location where);
  ~JitCore();

  /// The specialization for these arguments. Their numbers become Arrays. If the specialization is
  /// new, one of the threads that ask for it compiles it.
  SpecializationRef prepare(FlatCall& flat, const TracedCall& call);
  /// The text of the graph. Nothing is compiled.
  std::string graph_text(const TracedCall& call) const;
  /// The specialization of the last call. It throws InvalidArgument before the first call.
  SpecializationRef last(std::source_location where) const;
  int compile_count() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Executes one call.
std::vector<Array> run(const Specialization& specialization, std::span<const Array> arguments);
/// The constant that stands for a number in a function under construction.
Tensor constant_number(const Operand& number);
const Executable& executable(const Specialization& specialization);
std::shared_ptr<const Program> program(const SpecializationRef& specialization);
const void* skeleton(const Specialization& specialization);
Spec spec_of(const Array& array);
Spec spec_of(const Operand& number);
std::string explain(const Specialization& specialization);
CompileSummary summary(const Specialization& specialization);
CheckReport check(const Specialization& specialization, std::span<const Array> arguments);
/// An object whose address identifies the type T in this process.
template <class T>
inline const char kTypeTag = 0;

template <class... Arguments>
FlatCall flatten(const Arguments&... arguments) {
  using Trees = std::tuple<Rebind<Arguments, Tensor>...>;
  FlatCall flat{.structure = reinterpret_cast<uintptr_t>(&kTypeTag<Trees>)};
  flat.arrays.reserve(sizeof...(Arguments));
  [[maybe_unused]] auto append = [&flat]<class Leaf>(const Leaf& leaf) {
    if constexpr (Arithmetic<Leaf>) {
      flat.structure = mix(flat.structure, flat.arrays.size());
      flat.numbers.emplace_back(flat.arrays.size(), leaf);
      flat.arrays.emplace_back();
    } else {
      flat.arrays.push_back(leaf);
    }
  };
  (Tree<Arguments>::each(arguments, append), ...);
  ((flat.structure = mix(flat.structure, Tree<Arguments>::structure(arguments))), ...);
  return flat;
}

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

/// A function that is compiled when it is called. Copies share what was compiled. Any thread may
/// call it.
template <class F>
class Jitted {
 public:
  /// For `jit`.
  Jitted(F function, std::vector<Spec> specs, JitOptions options, std::source_location where)
      : function_(std::move(function)),
        core_(std::make_shared<detail::JitCore>(std::move(specs), std::move(options), where)) {}

  /// If the arguments are Arrays or numbers, it runs the compiled function. For each Tensor that
  /// the function takes or returns, the call takes or returns an Array. The call is asynchronous:
  /// results may still be under computation. It throws InvalidArgument if an argument does not fit
  /// its spec, or if arguments are on different devices. If the arguments are Tensors, inside
  /// another function, it calls the function itself.
  template <class... Arguments>
  auto operator()(const Arguments&... arguments) const {
    constexpr bool inside = (std::is_same_v<Arguments, detail::Rebind<Arguments, Tensor>> || ...);
    if constexpr (inside) {
      return function_(in_place(arguments)...);
    } else {
      using Result = typename detail::TypedCall<F, Arguments...>::Result;
      detail::FlatCall flat = detail::flatten(arguments...);
      const detail::SpecializationRef compiled = prepare(flat, arguments...);
      std::vector<Array> results = detail::run(*compiled, flat.arrays);
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
  /// Specs. Nothing is compiled.
  template <class... Arguments>
  std::string graph(const Arguments&... arguments) const {
    return core_->graph_text(detail::TypedCall<F, Arguments...>(function_, arguments...));
  }

  /// Runs the compiled function and the reference interpreter on copies of the arguments, and
  /// judges the results: either exactly, or by their error bounds.
  template <class... Arguments>
  CheckReport check(const Arguments&... arguments) const {
    detail::FlatCall flat = detail::flatten(arguments...);
    const detail::SpecializationRef compiled = prepare(flat, arguments...);
    return detail::check(*compiled, flat.arrays);
  }

  // These describe the last call. They throw InvalidArgument before the first call.

  /// The kernels of the last call's program, and why each edge was fused or not.
  std::string explain(std::source_location where = std::source_location::current()) const {
    return detail::explain(*core_->last(where));
  }
  /// The ops, kernels and compile time of the last call's program.
  CompileSummary summary(std::source_location where = std::source_location::current()) const {
    return detail::summary(*core_->last(where));
  }
  /// What the last call ran. In checked functions, it has further results with the checks'
  /// findings.
  Executable executable(std::source_location where = std::source_location::current()) const {
    return detail::executable(*core_->last(where));
  }
  /// The Program that the last call ran.
  std::shared_ptr<const Program> program(
      std::source_location where = std::source_location::current()) const {
    return detail::program(core_->last(where));
  }
  /// The number of compilations of this function. Signatures that are kept are compiled once.
  int compile_count() const { return core_->compile_count(); }

 private:
  /// The argument with which the function itself is called: a number becomes a Tensor.
  template <class Argument>
  static decltype(auto) in_place(const Argument& argument) {
    if constexpr (Arithmetic<Argument>)
      return detail::constant_number(argument);
    else
      return (argument);
  }

  template <class... Arguments>
  detail::SpecializationRef prepare(detail::FlatCall& flat, const Arguments&... arguments) const {
    return core_->prepare(flat, detail::TypedCall<F, Arguments...>(function_, arguments...));
  }

  F function_;
  std::shared_ptr<detail::JitCore> core_;
};

/// Makes a function of Arrays from `function`, which takes and returns Tensors or trees of them
/// (tree.h). `specs`, by position of the arguments, declares types with symbolic extents. Arguments
/// without a spec, and arguments that are trees, are compiled for the shapes that they have. The
/// first call throws InvalidArgument if a position or a symbol belongs to no argument.
template <class F>
Jitted<F> jit(F function, Specs specs, JitOptions options = {},
              std::source_location where = std::source_location::current()) {
  return {std::move(function), std::move(specs.list), std::move(options), where};
}
/// The same without symbolic extents.
template <class F>
Jitted<F> jit(F function, JitOptions options = {},
              std::source_location where = std::source_location::current()) {
  return {std::move(function), {}, std::move(options), where};
}
/// The same with donated arguments.
template <class F, std::same_as<donate> Donate>
Jitted<F> jit(F function, Donate arguments,
              std::source_location where = std::source_location::current()) {
  return {std::move(function), {}, {.donate = std::move(arguments.arguments)}, where};
}
/// The same with symbolic extents and donated arguments.
template <class F, std::same_as<donate> Donate>
Jitted<F> jit(F function, Specs specs, Donate arguments,
              std::source_location where = std::source_location::current()) {
  return {std::move(function),
          std::move(specs.list),
          {.donate = std::move(arguments.arguments)},
          where};
}

}  // namespace braze
