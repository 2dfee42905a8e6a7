// spmd.h — one function on all devices of a mesh.
//
//   Mesh mesh({{"data", 4}});
//   auto step = spmd(train_step, mesh, {.in = {replicated, sharded("data")},
//                                       .out = {replicated, replicated}, .donate = {0}});
//   auto easy = data_parallel(train_step, mesh, {.batch = {1}, .donate = {0}});
//   auto auto_cut = distribute(train_step, mesh, {.in = {std::nullopt, sharded("data")}});
//
// The function is traced once, for the types of one shard, and runs on every device on its own;
// what devices do together are ops inside of it (collectives.h). That given to `distribute` is an
// ordinary function of whole tensors, and Braze finds what each device does of it. Arguments are
// Arrays, spread over the mesh already or brought there at the call, and numbers; results are
// Arrays spread over the mesh. docs/guides/many_devices.md begins with ten lines.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "braze/collectives.h"
#include "braze/jit.h"
#include "braze/mesh.h"

namespace braze {

struct SpmdOptions {
  /// How each argument is spread, with all its arrays; those without an entry are replicated.
  std::vector<Sharding> in;
  /// How each result is: of a function that returns a pair or tuple, each part with all its arrays;
  /// those without an entry are replicated. A result that differs between devices which the
  /// sharding takes for equal is an InvalidArgument.
  std::vector<Sharding> out;
  std::vector<int> donate = {};  ///< positions of arguments that a call takes over
  /// Declared types of whole arguments, by position, such as spec(f32, {"n:2..64%2", 64}): one
  /// compilation serves all sizes. The devices divide an extent that is cut.
  std::vector<Spec> types = {};
  std::string name = "main";             ///< as JitOptions::name
  std::vector<std::string> inputs = {};  ///< names of the arguments in messages
  CompileOptions compile = {};           ///< how to compile what was traced
};

struct DataParallelOptions {
  /// Positions of the arguments whose first axis is cut. All others are replicated.
  std::vector<int> batch;
  std::vector<int> donate = {};  ///< positions of arguments that a call takes over
  /// Declared types of whole arguments, by position, such as spec(f32, {"n:2..64%2", 64}): one
  /// compilation serves all sizes. The devices divide an extent that is cut.
  std::vector<Spec> types = {};
  std::string name = "main";             ///< as JitOptions::name
  std::vector<std::string> inputs = {};  ///< names of the arguments in messages
  CompileOptions compile = {};           ///< how to compile what was traced
};

struct DistributeOptions {
  /// How each argument comes, with all its arrays. Of those without an entry, or with
  /// `std::nullopt`, an Array that is spread over the mesh comes as it is; another one as the
  /// `constrain` says that the function calls on it, else whole.
  std::vector<std::optional<Sharding>> in = {};
  /// How each result goes: of a function that returns a pair or tuple, each part with all its
  /// arrays. Those without an entry take over the sharding of the argument whose memory they take
  /// over, or go as they are made.
  std::vector<std::optional<Sharding>> out = {};
  std::vector<int> donate = {};  ///< positions of arguments that a call takes over
  /// Declared types of whole arguments, by position, such as spec(f32, {"n:2..64%2", 64}): one
  /// compilation serves all sizes. The devices divide an extent that is cut.
  std::vector<Spec> types = {};
  std::string name = "main";             ///< as JitOptions::name
  std::vector<std::string> inputs = {};  ///< names of the arguments in messages
  CompileOptions compile = {};           ///< how to compile what was traced
};

namespace detail {

/// What spmd, data_parallel and distribute come to.
struct SpmdPlan {
  enum class Kind : uint8_t {
    Shards,  ///< `options` say what each device has
    Batch,   ///< `batch` says what is cut, along the mesh's only axis
    Whole,   ///< the function is of whole tensors; `in` and `out` say what is known of them
  };
  SpmdOptions options;
  Kind kind = Kind::Shards;
  std::vector<int> batch = {};
  std::vector<std::optional<Sharding>> in = {}, out = {};
};

/// One compiled signature.
struct SpmdSpecialization;
using SpmdRef = std::shared_ptr<const SpmdSpecialization>;

/// The part of such a function that knows no types. Thread-safe.
class SpmdCore {
 public:
  SpmdCore(Mesh mesh, SpmdPlan plan, std::source_location where);
  ~SpmdCore();

  /// The specialization for these arguments. `parts`: the number of parts of the result, 0 if it is
  /// neither pair nor tuple.
  SpmdRef prepare(uint64_t structure, std::vector<Array>& arguments, const TracedCall& call,
                  size_t parts);
  SpmdRef last() const;
  std::string graph_text(const TracedCall& call) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::vector<Array> run(const SpmdSpecialization& specialization, std::span<const Array> arguments);
const void* skeleton(const SpmdSpecialization& specialization);
std::string explain(const SpmdSpecialization& specialization);
std::shared_ptr<const Program> program(const SpmdRef& specialization);
/// Judges the results on all devices by what the graph says that all devices do.
CheckReport check(const SpmdSpecialization& specialization, std::span<const Array> arguments);

template <class T>
inline constexpr size_t kParts = 0;
template <class... Parts>
inline constexpr size_t kParts<std::tuple<Parts...>> = sizeof...(Parts);
template <class A, class B>
inline constexpr size_t kParts<std::pair<A, B>> = 2;

}  // namespace detail

/// A function compiled on demand for a mesh. Copies share what was compiled. May be called from any
/// thread.
template <class F>
class Spmd {
 public:
  Spmd(F function, Mesh mesh, detail::SpmdPlan plan, std::source_location where)
      : function_(std::move(function)),
        core_(std::make_shared<detail::SpmdCore>(std::move(mesh), std::move(plan), where)) {}

  /// Runs the function on every device, asynchronously; takes Arrays and numbers, and returns
  /// Arrays over the mesh, where the function has Tensors.
  template <class... Arguments>
  auto operator()(const Arguments&... arguments) const {
    using Result = typename detail::TypedCall<F, Arguments...>::Result;
    std::vector<Array> flat;
    const detail::SpmdRef compiled = prepare(flat, arguments...);
    std::vector<Array> results = detail::run(*compiled, flat);
    size_t next = 0;
    return detail::refill<Array>(
        *static_cast<const detail::Rebind<Result, detail::Hole>*>(detail::skeleton(*compiled)),
        results, next);
  }

  /// Runs it on copies of the arguments, which stay as they are, and judges the results on all
  /// devices by the reference interpreter, which runs all of them.
  template <class... Arguments>
  CheckReport check(const Arguments&... arguments) const {
    std::vector<Array> flat;
    const detail::SpmdRef compiled = prepare(flat, arguments...);
    return detail::check(*compiled, flat);
  }

  /// The Graph IR that each device runs, as text; of a function of whole tensors, what it says
  /// itself. Nothing is compiled.
  template <class... Arguments>
  std::string graph(const Arguments&... arguments) const {
    return core_->graph_text(detail::TypedCall<F, Arguments...>(function_, arguments...));
  }
  /// The kernels and collectives of the last call's program; of those that `distribute` inserted,
  /// the reasons and bytes. InvalidArgument before the first.
  std::string explain() const { return detail::explain(*core_->last()); }
  std::shared_ptr<const Program> program() const { return detail::program(core_->last()); }

 private:
  template <class... Arguments>
  detail::SpmdRef prepare(std::vector<Array>& flat, const Arguments&... arguments) const {
    using Call = detail::TypedCall<F, Arguments...>;
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
    if (!numbers.empty()) detail::add_numbers_on(Device("cpu"), flat, numbers);
    uint64_t structure = reinterpret_cast<uintptr_t>(&detail::kTypeTag<Call>);
    ((structure = detail::mix(structure, detail::Tree<Arguments>::structure(arguments))), ...);
    return core_->prepare(structure, flat, Call(function_, arguments...),
                          detail::kParts<typename Call::Result>);
  }

  F function_;
  std::shared_ptr<detail::SpmdCore> core_;
};

/// Makes a function of Arrays over `mesh` from `function`, which takes and returns Tensors or trees
/// of them, and runs on each device with its shards. InvalidArgument, at the first call, for a
/// sharding that does not fit: the message has the fix.
template <class F>
Spmd<F> spmd(F function, Mesh mesh, SpmdOptions options = {},
             std::source_location where = std::source_location::current()) {
  return {std::move(function), std::move(mesh), {.options = std::move(options)}, where};
}

/// The same for training on parts of a batch: the first axis of the arguments in `batch` is cut
/// along the only axis of the mesh, and losses that `function` differentiates are means over all
/// devices, so that their gradients are those of the whole batch. Results that all devices share
/// come back replicated; others are joined along their first axis, which they need to have.
template <class F>
Spmd<F> data_parallel(F function, Mesh mesh, DataParallelOptions options = {},
                      std::source_location where = std::source_location::current()) {
  SpmdOptions spread{.in = {},
                     .out = {},
                     .donate = std::move(options.donate),
                     .types = std::move(options.types),
                     .name = std::move(options.name),
                     .inputs = std::move(options.inputs),
                     .compile = std::move(options.compile)};
  return {std::move(function),
          std::move(mesh),
          {.options = std::move(spread),
           .kind = detail::SpmdPlan::Kind::Batch,
           .batch = std::move(options.batch)},
          where};
}

/// The same of an ordinary function of whole tensors. Arguments, results and `constrain` inside of
/// it say how some values are spread; how the others are follows from the ops, and collectives are
/// inserted where they are needed: `explain()` lists them. InvalidArgument, at the first call, for
/// values that are spread in ways that exclude each other.
template <class F>
Spmd<F> distribute(F function, Mesh mesh, DistributeOptions options = {},
                   std::source_location where = std::source_location::current()) {
  SpmdOptions spread{.in = {},
                     .out = {},
                     .donate = std::move(options.donate),
                     .types = std::move(options.types),
                     .name = std::move(options.name),
                     .inputs = std::move(options.inputs),
                     .compile = std::move(options.compile)};
  return {std::move(function),
          std::move(mesh),
          {.options = std::move(spread),
           .kind = detail::SpmdPlan::Kind::Whole,
           .in = std::move(options.in),
           .out = std::move(options.out)},
          where};
}

}  // namespace braze
