// spmd.h — one function on all devices of a mesh.
//
//   Mesh mesh({{"data", 4}});
//   auto step = spmd(train_step, mesh, {.in = {replicated, sharded("data")},
//                                       .out = {replicated, replicated}, .donate = {0}});
//   auto easy = data_parallel(train_step, mesh, {.batch = {1}, .donate = {0}});
//   auto auto_cut = distribute(train_step, mesh, {.in = {std::nullopt, sharded("data")}});
//
// The function is traced once, for the types of one shard, and every device runs it on its own
// shards. To let the devices work together, the function calls a collective (collectives.h). A
// function for `distribute` is an ordinary function of whole tensors, and Braze finds out which
// part of it each device computes. Arguments are numbers and Arrays. An Array that is not spread
// over the mesh yet is brought there by the call. Results are Arrays over the mesh.
// docs/guides/many_devices.md begins with ten lines.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "braze/collectives.h"
#include "braze/jit.h"
#include "braze/mesh.h"

namespace braze {

/// How `spmd` spreads arguments and results over the mesh, and how it compiles.
struct SpmdOptions {
  /// The sharding of each argument, which holds for all arrays in it. Arguments without an entry
  /// are replicated.
  std::vector<Sharding> in;
  /// The sharding of each result. If the function returns a pair or tuple, there is one for each
  /// part, which holds for all arrays in it. Results without an entry are replicated. If a result
  /// differs between devices that hold the same part by its sharding, the call throws
  /// InvalidArgument.
  std::vector<Sharding> out;
  std::vector<int> donate = {};  ///< positions of arguments that a call takes over
  /// Declared types of whole arguments, by position, such as spec(f32, {"n:2..64%2", 64}). One
  /// compilation serves all sizes. The number of devices must divide an extent that is cut.
  std::vector<Spec> types = {};
  std::string name = "main";             ///< as JitOptions::name
  std::vector<std::string> inputs = {};  ///< names of the arguments in messages
  CompileOptions compile = {};           ///< how to compile what was traced
};

/// Which arguments `data_parallel` cuts, and how it compiles.
struct DataParallelOptions {
  /// Positions of the arguments whose first axis is cut. All others are replicated.
  std::vector<int> batch;
  std::vector<int> donate = {};  ///< positions of arguments that a call takes over
  /// Declared types of whole arguments, by position, such as spec(f32, {"n:2..64%2", 64}). One
  /// compilation serves all sizes. The number of devices must divide an extent that is cut.
  std::vector<Spec> types = {};
  std::string name = "main";             ///< as JitOptions::name
  std::vector<std::string> inputs = {};  ///< names of the arguments in messages
  CompileOptions compile = {};           ///< how to compile what was traced
};

/// What `distribute` is told about the sharding of arguments and results, and how it compiles.
struct DistributeOptions {
  /// The sharding of each argument, which holds for all arrays in it. Without an entry, or with
  /// `std::nullopt`, an Array that is spread over the mesh keeps its sharding. Any other Array has
  /// the sharding of the `constrain` that the function calls on it, or else it is replicated.
  std::vector<std::optional<Sharding>> in = {};
  /// The sharding of each result. If the function returns a pair or tuple, there is one for each
  /// part, which holds for all arrays in it. A result without an entry that takes over the memory
  /// of an argument has the sharding of that argument. Other results keep the sharding that they
  /// were computed with.
  std::vector<std::optional<Sharding>> out = {};
  std::vector<int> donate = {};  ///< positions of arguments that a call takes over
  /// Declared types of whole arguments, by position, such as spec(f32, {"n:2..64%2", 64}). One
  /// compilation serves all sizes. The number of devices must divide an extent that is cut.
  std::vector<Spec> types = {};
  std::string name = "main";             ///< as JitOptions::name
  std::vector<std::string> inputs = {};  ///< names of the arguments in messages
  CompileOptions compile = {};           ///< how to compile what was traced
};

namespace detail {

/// What spmd, data_parallel and distribute have in common.
struct SpmdPlan {
  enum class Kind : uint8_t {
    Shards,  ///< `options` say which part each device has
    Batch,   ///< `batch` says which arguments are cut along the mesh's only axis
    Whole,   ///< the function is of whole tensors, and `in` and `out` say how some are spread
  };
  SpmdOptions options;
  Kind kind = Kind::Shards;
  std::vector<int> batch = {};
  std::vector<std::optional<Sharding>> in = {}, out = {};
};

/// One compiled signature.
struct SpmdSpecialization;
using SpmdRef = std::shared_ptr<const SpmdSpecialization>;

/// The part of such a function that does not depend on C++ types. It is thread-safe.
class SpmdCore {
 public:
  SpmdCore(Mesh mesh, SpmdPlan plan, std::source_location where);
  ~SpmdCore();

  /// The specialization for these arguments. `parts` is the number of parts of the result, or 0 if
  /// the result is neither a pair nor a tuple.
  SpmdRef prepare(FlatCall& flat, const TracedCall& call, size_t parts);
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
/// Judges the results of all devices. The interpreter computes what all of them do by the graph.
CheckReport check(const SpmdSpecialization& specialization, std::span<const Array> arguments);

/// The arrays of `pad_batch`, and the mask behind them.
std::vector<Array> padded(std::span<const Array> arrays, int64_t multiple);

template <class T>
inline constexpr size_t kParts = 0;
template <class... Parts>
inline constexpr size_t kParts<std::tuple<Parts...>> = sizeof...(Parts);
template <class A, class B>
inline constexpr size_t kParts<std::pair<A, B>> = 2;

}  // namespace detail

/// A function that is compiled for a mesh when it is called. Copies share what was compiled. Any
/// thread may call it.
template <class F>
class Spmd {
 public:
  /// For `spmd`, `data_parallel` and `distribute`.
  Spmd(F function, Mesh mesh, detail::SpmdPlan plan, std::source_location where)
      : function_(std::move(function)),
        core_(std::make_shared<detail::SpmdCore>(std::move(mesh), std::move(plan), where)) {}

  /// Runs the function on every device. The call is asynchronous. For each Tensor that the function
  /// takes, the call takes an Array or a number. For each Tensor that the function returns, the
  /// call returns an Array over the mesh.
  template <class... Arguments>
  auto operator()(const Arguments&... arguments) const {
    using Result = typename detail::TypedCall<F, Arguments...>::Result;
    detail::FlatCall flat = detail::flatten(arguments...);
    const detail::SpmdRef compiled = prepare(flat, arguments...);
    std::vector<Array> results = detail::run(*compiled, flat.arrays);
    size_t next = 0;
    return detail::refill<Array>(
        *static_cast<const detail::Rebind<Result, detail::Hole>*>(detail::skeleton(*compiled)),
        results, next);
  }

  /// Runs the function on copies of the arguments, which do not change, and compares the results of
  /// all devices with those of the reference interpreter.
  template <class... Arguments>
  CheckReport check(const Arguments&... arguments) const {
    detail::FlatCall flat = detail::flatten(arguments...);
    const detail::SpmdRef compiled = prepare(flat, arguments...);
    return detail::check(*compiled, flat.arrays);
  }

  /// The Graph IR that each device runs, as text. For `distribute`, the graph of the whole
  /// function. Nothing is compiled.
  template <class... Arguments>
  std::string graph(const Arguments&... arguments) const {
    return core_->graph_text(detail::TypedCall<F, Arguments...>(function_, arguments...));
  }
  /// The kernels and collectives of the last call's program, with the reason and the bytes of each
  /// collective that `distribute` inserted. It throws InvalidArgument before the first call.
  std::string explain() const { return detail::explain(*core_->last()); }
  /// The Program that the last call ran. It throws InvalidArgument before the first call.
  std::shared_ptr<const Program> program() const { return detail::program(core_->last()); }

 private:
  template <class... Arguments>
  detail::SpmdRef prepare(detail::FlatCall& flat, const Arguments&... arguments) const {
    using Call = detail::TypedCall<F, Arguments...>;
    return core_->prepare(flat, Call(function_, arguments...),
                          detail::kParts<typename Call::Result>);
  }

  F function_;
  std::shared_ptr<detail::SpmdCore> core_;
};

/// Makes a function of Arrays over `mesh` from `function`, which takes and returns Tensors or trees
/// of them. Each device runs `function` on its shards. If a sharding does not fit, the first call
/// throws InvalidArgument with a fix.
template <class F>
Spmd<F> spmd(F function, Mesh mesh, SpmdOptions options = {},
             std::source_location where = std::source_location::current()) {
  return {std::move(function), std::move(mesh), {.options = std::move(options)}, where};
}

/// The same for training on parts of a batch. The mesh has one axis, and the first axis of each
/// argument in `batch` is cut along it. Losses that `function` differentiates become means over all
/// devices, so their gradients are those of the whole batch. Results that are equal on all devices
/// are returned replicated. The parts of other results, which must have an axis, are joined along
/// their first axis.
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

/// The same for an ordinary function of whole tensors. The shardings of arguments and results, and
/// calls of `constrain` inside the function, say how some values are spread. The shardings of the
/// other values follow from the ops. Collectives are inserted if they are needed, and `explain()`
/// lists them. The first call throws InvalidArgument if two shardings contradict each other.
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

/// The arrays of a batch with rows added, so that `multiple`, such as the number of devices,
/// divides the number of rows, and behind them a mask: bool [rows], true for the rows of the batch.
/// With `masked_mean`, only these count.
///
///   auto [images, labels, mask] = pad_batch(4, last_images, last_labels);
///
/// Each array has the batch along its first axis. It keeps its dtype and its device, and an array
/// that needs no rows is returned as it is. An added row is a copy of the last one, so no op meets
/// numbers that the batch does not have. InvalidArgument unless `multiple` is at least 1, all
/// arrays have the same number of rows, and none is spread over a mesh yet.
template <class... Arrays>
auto pad_batch(int64_t multiple, const Arrays&... arrays) {
  static_assert(sizeof...(Arrays) > 0, "a batch has arrays");
  const std::vector<Array> given{arrays...}, all = detail::padded(given, multiple);
  return [&]<size_t... I>(std::index_sequence<I...>) { return std::tuple{all[I]...}; }
  (std::make_index_sequence<sizeof...(Arrays) + 1>());
}

}  // namespace braze
