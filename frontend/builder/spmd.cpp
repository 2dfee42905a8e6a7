#include "braze/spmd.h"

#include <algorithm>

#include "compiler/passes/distribute.h"
#include "frontend/builder/compiled.h"
#include "frontend/builder/tracing.h"
#include "ir/graph/check.h"
#include "ir/graph/origins.h"
#include "ir/graph/text.h"
#include "ir/program/exchanges.h"
#include "ir/program/program.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "runtime/cache/memory_cache.h"
#include "runtime/mesh/links.h"
#include "runtime/mesh/mesh_executable.h"
#include "runtime/mesh/mesh_state.h"

namespace braze {

namespace codes {
inline constexpr Code kNotEqual{"not-equal", ErrorKind::InvalidArgument,
                                "A result differs between devices that its sharding takes for "
                                "equal, or the reverse."};
inline constexpr Code kBadBatch{"bad-batch", ErrorKind::InvalidArgument,
                                "Arrays cannot be padded as one batch."};
inline constexpr Code kNotCalledSpmd{"not-called", ErrorKind::InvalidArgument,
                                     "A compiled function was asked about before its first call."};
inline constexpr Code kCheckedRemote{"checked-remote", ErrorKind::Unsupported,
                                     "Results of other processes cannot be judged."};
}  // namespace codes

namespace detail {

namespace {

constexpr size_t kMostSpecializations = 128;

/// The arrays that a specialization serves as one leaf of its arguments.
struct Leaf {
  LeafSignature type;
  std::optional<Sharding> sharding;  // only if the compilation depends on it
};

}  // namespace

struct SpmdSpecialization {
  explicit SpmdSpecialization(Mesh over) : mesh(std::move(over)) {}

  uint64_t structure = 0;
  Mesh mesh;
  std::vector<Leaf> leaves;  // those of the whole arguments
  std::vector<Sharding> in, out;
  std::shared_ptr<const Graph> graph;  // what one device computes
  MeshExecutable executable;
  std::shared_ptr<const void> skeleton;
  std::vector<NumberUse> number_uses;
  std::string collectives;  // tells which collectives were inserted

  bool admits(uint64_t wanted, std::span<const Array> arguments,
              std::span<const std::optional<Sharding>> shardings) const {
    if (wanted != structure || arguments.size() != leaves.size()) return false;
    for (size_t i = 0; i < leaves.size(); ++i)
      if (!leaves[i].type.admits(arguments[i]) || leaves[i].sharding != shardings[i]) return false;
    return true;
  }
};

struct SpmdCore::State {
  State(Mesh m, SpmdPlan p, std::source_location w)
      : mesh(std::move(m)),
        plan(std::move(p)),
        where(w),
        tracer{plan.options.name, plan.options.donate, plan.options.inputs, w},
        specializations(kMostSpecializations) {}

  const Mesh mesh;
  const SpmdPlan plan;
  const std::source_location where;
  const Tracer tracer;
  MemoryCache<SpmdRef> specializations;

  [[noreturn]] void refuse(const Code& code, const std::string& message, std::string fix) const {
    fail(code, fmt::format("{}: {}", plan.options.name, message),
         {.location = where, .node = plan.options.name, .fix = std::move(fix)});
  }

  Sharding sharding_of(int position) const {
    if (plan.kind == SpmdPlan::Kind::Batch) {
      const bool cut = std::ranges::find(plan.batch, position) != plan.batch.end();
      return cut ? sharded(mesh.axes()[0].name) : replicated;
    }
    const auto i = static_cast<size_t>(position);
    return i < plan.options.in.size() ? plan.options.in[i] : replicated;
  }

  std::string leaf_name(const std::pair<int, std::string>& place) const {
    return tracer.argument_name(place.first) + place.second;
  }

  /// The shape of a shard.
  Dims part_of(const Spec& spec, const Sharding& sharding, const std::string& leaf) const {
    const std::string what = fmt::format("{}, {},", leaf, spec.to_string());
    std::vector<int64_t> whole;
    for (const Dim& dim : spec.shape) whole.push_back(dim.is_constant() ? dim.value() : 0);
    const std::vector<int64_t> known =
        shard_shape(whole, sharding, mesh, fmt::format("{}: {}", plan.options.name, what));
    Dims part(known.begin(), known.end());
    for (size_t axis = 0; axis < part.size(); ++axis) {
      if (spec.shape[axis].is_constant()) continue;
      part[axis] = spec.shape[axis];
      if (axis >= sharding.axes().size() || sharding.axes()[axis].empty()) continue;
      const int64_t parts = mesh.size(sharding.axes()[axis]);
      const Expr extent = to_expr(part[axis]);
      if (!extent.is_multiple_of(parts))
        refuse(codes::kBadSharding,
               fmt::format("{} cannot be {}: {} devices may not divide its axis {}", what,
                           sharding.to_string(), parts, axis),
               fmt::format("declare it as a multiple: \"{}:{}..{}%{}\"", extent.to_string(), parts,
                           extent.range().max, parts));
      part[axis] = to_dim(floordiv(extent, parts));
    }
    return part;
  }

  /// The types of the leaves' shards. `shardings` gets how each leaf is spread.
  std::vector<Spec> shards_of(const TracedCall& call, std::vector<Sharding>& shardings) const {
    tracer.check_donations(call);
    const auto places = call.leaves();
    std::vector<Spec> specs = tracer.leaf_specs(call, plan.options.types);
    if (plan.options.in.size() > call.arguments())
      refuse(codes::kBadSharding,
             fmt::format("{} arguments have a sharding, {} are given", plan.options.in.size(),
                         call.arguments()),
             "");
    for (const int position : plan.batch)
      if (position < 0 || static_cast<size_t>(position) >= call.arguments())
        refuse(codes::kBadSharding, fmt::format("there is no argument {} to cut", position), "");
    for (size_t i = 0; i < specs.size(); ++i) {
      shardings.push_back(sharding_of(places[i].first));
      specs[i].shape = part_of(specs[i], shardings.back(), leaf_name(places[i]));
    }
    return specs;
  }

  TracedMesh traced_mesh(const std::vector<Sharding>& shardings) const {
    TracedMesh out{mesh.axes(), {}, {}};
    if (plan.kind == SpmdPlan::Kind::Batch) {
      if (mesh.axes().size() != 1)
        refuse(codes::kBadMesh,
               fmt::format("data_parallel needs a mesh of one axis, and this one is {}",
                           mesh.to_string()),
               "use spmd");
      out.averaged = mesh.axes()[0].name;
    }
    for (const Sharding& sharding : shardings) {
      std::vector<MeshAxis>& varying = out.varying.emplace_back();
      for (const std::string& axis : sharding.axes())
        if (!axis.empty()) varying.push_back({axis, mesh.size(axis)});
    }
    return out;
  }

  /// Which of the results a path belongs to. The path begins with the number of the result.
  static size_t part_of(const std::string& path, size_t parts) {
    return parts == 0 ? 0 : static_cast<size_t>(std::stoul(path.substr(1)));
  }

  /// How the results are spread, as the user said. It throws if that is not true.
  std::vector<Sharding> results_of(const Graph& graph, const std::vector<std::string>& paths,
                                   size_t parts) const {
    const std::vector<AxisSet> varying = varying_axes(graph);
    std::vector<Sharding> out;
    if (plan.options.out.size() > std::max<size_t>(parts, 1))
      refuse(codes::kNotEqual,
             fmt::format("{} results have a sharding, and there {} {}", plan.options.out.size(),
                         parts > 1 ? "are" : "is", std::max<size_t>(parts, 1)),
             "");
    for (size_t o = 0; o < graph.outputs().size(); ++o) {
      const NodeId node = graph.outputs()[o].node;
      const AxisSet& differs = varying[node.index];
      const TensorType& type = graph[node].type;
      const std::string what =
          fmt::format("the result{}, {} on each device,", paths[o], type.to_string());
      if (plan.kind == SpmdPlan::Kind::Batch) {
        if (!differs.empty() && type.shape.rank() == 0)
          refuse(codes::kNotEqual, fmt::format("{} differs between devices", what),
                 "return device_mean(x), or all_reduce(x, axis)");
        out.push_back(differs.empty() ? replicated : sharded(differs[0].name));
        continue;
      }
      const size_t part = part_of(paths[o], parts);
      const Sharding said = part < plan.options.out.size() ? plan.options.out[part] : replicated;
      if (said.axes().size() > type.shape.rank())
        refuse(codes::kBadSharding,
               fmt::format("{} cannot be {}: it has {} axes", what, said.to_string(),
                           type.shape.rank()),
               "");
      for (const MeshAxis& axis : differs)
        if (std::ranges::find(said.axes(), axis.name) == said.axes().end())
          refuse(codes::kNotEqual,
                 fmt::format("{} differs between the devices along {}, and is to be {}", what,
                             quote(axis.name), said.to_string()),
                 fmt::format("combine it, as all_reduce(x, {0}) does, or say sharded({0})",
                             quote(axis.name)));
      for (const std::string& axis : said.axes())
        if (!axis.empty() && !contains(differs, axis))
          refuse(codes::kNotEqual,
                 fmt::format("{} is the same on all devices along {}, and is to be {}", what,
                             quote(axis), said.to_string()),
                 "say replicated");
      out.push_back(said);
    }
    return out;
  }

  /// How the arguments are spread. It has nullopt if the specialization does not depend on it.
  std::vector<std::optional<Sharding>> deciding(std::span<const Array> arguments) const {
    std::vector<std::optional<Sharding>> out;
    for (const Array& argument : arguments) {
      out.emplace_back();
      if (plan.kind == SpmdPlan::Kind::Whole && argument.is_spread() &&
          argument.spread()->mesh == mesh)
        out.back() = argument.sharding();
    }
    return out;
  }

  SpmdRef make(uint64_t structure, const TracedCall& call, size_t parts,
               std::span<const Spec> types,
               std::span<const std::optional<Sharding>> shardings) const {
    auto made = std::make_shared<SpmdSpecialization>(mesh);
    made->structure = structure;
    for (size_t i = 0; i < types.size(); ++i)
      made->leaves.push_back({LeafSignature(types[i]), shardings[i]});
    if (plan.kind == SpmdPlan::Kind::Whole)
      make_of_whole(*made, call, parts);
    else
      make_of_shards(*made, call, parts);
    made->executable = MeshExecutable::load(
        compiled_program(*made->graph, target_of(mesh), plan.options.compile), mesh);
    return made;
  }

  void make_of_shards(SpmdSpecialization& made, const TracedCall& call, size_t parts) const {
    const std::vector<Spec> specs = shards_of(call, made.in);
    const TracedMesh over = traced_mesh(made.in);
    Traced traced;
    made.graph = std::make_shared<const Graph>(tracer.trace(call, specs, traced, &over));
    made.skeleton = traced.skeleton;
    made.number_uses = std::move(traced.number_uses);
    made.out = results_of(*made.graph, traced.paths, parts);
  }

  void make_of_whole(SpmdSpecialization& made, const TracedCall& call, size_t parts) const {
    tracer.check_donations(call);
    const auto places = call.leaves();
    if (plan.in.size() > call.arguments() || plan.out.size() > std::max<size_t>(parts, 1))
      refuse(codes::kBadSharding,
             fmt::format("{} arguments and {} results have a sharding, and there are {} and {}",
                         plan.in.size(), plan.out.size(), call.arguments(),
                         std::max<size_t>(parts, 1)),
             "");
    std::vector<std::optional<Sharding>> in, out;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto position = static_cast<size_t>(places[i].first);
      in.push_back(position < plan.in.size() ? plan.in[position] : std::nullopt);
      if (!in.back()) in.back() = made.leaves[i].sharding;
    }
    Traced traced;
    const Graph whole = tracer.trace(call, tracer.leaf_specs(call, plan.options.types), traced);
    for (const std::string& path : traced.paths) {
      const size_t part = part_of(path, parts);
      out.push_back(part < plan.out.size() ? plan.out[part] : std::nullopt);
    }
    Distributed distributed = distribute(whole, mesh.axes(), in, out);
    made.skeleton = traced.skeleton;
    made.number_uses = std::move(traced.number_uses);
    made.in = std::move(distributed.inputs);
    made.out = std::move(distributed.outputs);
    made.collectives = distributed.explanation(target_of(mesh));
    made.graph = std::make_shared<const Graph>(std::move(distributed.graph));
  }

  /// Spreads an argument over the mesh.
  void place(Array& argument, const Sharding& sharding,
             const std::pair<int, std::string>& leaf) const {
    if (argument.is_spread() &&
        !(argument.spread()->mesh == mesh && argument.sharding() == sharding)) {
      const Mesh& own = argument.spread()->mesh;
      const bool looks_equal = own.axes() == mesh.axes() && own != mesh;
      refuse(codes::kBadSharding,
             fmt::format("{} is {} over the mesh {}{}, and has to be {} over {}", leaf_name(leaf),
                         argument.sharding().to_string(), own.to_string(),
                         looks_equal ? " of other devices" : "", sharding.to_string(),
                         mesh.to_string()),
             "move it with .to(mesh, sharding)");
    }
    if (!argument.is_spread()) argument = argument.to(mesh, sharding);
  }
};

SpmdCore::SpmdCore(Mesh mesh, SpmdPlan plan, std::source_location where)
    : state_(std::make_unique<State>(std::move(mesh), std::move(plan), where)) {
  if (!is_name(state_->plan.options.name))
    fail(codes::kBadName,
         fmt::format("{} cannot be the name of a function", quote(state_->plan.options.name)),
         {.location = where, .fix = "use letters, digits, '_' and dots between them"});
}
SpmdCore::~SpmdCore() = default;

SpmdRef SpmdCore::prepare(FlatCall& flat, const TracedCall& call, size_t parts) {
  refuse_if_forked();
  State& state = *state_;
  flat.add_numbers(Device("cpu"));
  std::vector<Array>& arguments = flat.arrays;
  const auto places = call.leaves();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!arguments[i].valid())
      state.refuse(codes::kBadSharding, state.leaf_name(places[i]) + " is an empty Array", "");
  const std::vector<std::optional<Sharding>> shardings = state.deciding(arguments);
  std::optional<SpmdRef> known = state.specializations.find(
      [&](const SpmdRef& made) { return made->admits(flat.structure, arguments, shardings); });
  if (!known) {
    state.tracer.refuse_recursion();
    const std::vector<Spec> types = state.tracer.leaf_specs(call, state.plan.options.types);
    std::string key = fmt::format("{:x}", flat.structure);
    for (size_t i = 0; i < types.size(); ++i) {
      key += " " + types[i].to_string();
      if (shardings[i]) key += " " + shardings[i]->to_string();
    }
    known = state.specializations.get_or_make(
        hash128(key), [&] { return state.make(flat.structure, call, parts, types, shardings); });
  }
  state.tracer.check_numbers(flat, call, (*known)->number_uses);
  for (size_t i = 0; i < arguments.size(); ++i)
    state.place(arguments[i], (*known)->in[i], places[i]);
  return *known;
}

SpmdRef SpmdCore::last() const {
  std::optional<SpmdRef> last = state_->specializations.last_used();
  if (!last)
    state_->refuse(codes::kNotCalledSpmd, "it was not called yet, so nothing is compiled",
                   "call it first");
  return std::move(*last);
}

std::string SpmdCore::graph_text(const TracedCall& call) const {
  if (state_->plan.kind == SpmdPlan::Kind::Whole) {
    Traced traced;
    state_->tracer.refuse_recursion();
    const std::vector<Spec> types = state_->tracer.leaf_specs(call, state_->plan.options.types);
    return to_text(state_->tracer.trace(call, types, traced));
  }
  std::vector<Sharding> shardings;
  const std::vector<Spec> specs = state_->shards_of(call, shardings);
  const TracedMesh over = state_->traced_mesh(shardings);
  Traced traced;
  state_->tracer.refuse_recursion();
  return to_text(state_->tracer.trace(call, specs, traced, &over));
}

namespace {

/// The arguments that each device gets.
std::vector<std::vector<Array>> by_device(const Mesh& mesh, std::span<const Array> arguments) {
  std::vector<std::vector<Array>> out(mesh.size());
  for (const Array& argument : arguments)
    for (size_t device = 0; device < mesh.size(); ++device)
      if (mesh.is_local(device)) out[device].push_back(argument.spread()->shards[device]);
  return out;
}

}  // namespace

std::vector<Array> run(const SpmdSpecialization& specialization, std::span<const Array> arguments) {
  const Mesh& mesh = specialization.mesh;
  const std::vector<std::vector<Array>> results =
      specialization.executable.run(by_device(mesh, arguments));
  std::vector<Array> out;
  for (size_t o = 0; o < specialization.out.size(); ++o) {
    std::vector<Array> shards;
    for (const std::vector<Array>& device : results)
      shards.push_back(device.empty() ? Array() : device[o]);
    out.push_back(spread_array(mesh, specialization.out[o], std::move(shards)));
  }
  return out;
}

std::vector<Array> padded(std::span<const Array> arrays, int64_t multiple) {
  const auto refuse = [](std::string why, std::string fix) {
    fail(codes::kBadBatch, "pad_batch: " + why,
         {.location = {}, .node = "pad_batch", .fix = std::move(fix)});
  };
  if (multiple < 1)
    refuse(fmt::format("the number of rows cannot be a multiple of {}", multiple),
           "give the number of devices");
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].valid()) refuse(fmt::format("array {} is an empty Array", i), "");
    if (arrays[i].is_spread())
      refuse(fmt::format("array {} is spread over a mesh", i), "pad it before that");
    if (arrays[i].shape().empty() || arrays[i].shape()[0] != arrays[0].shape()[0])
      refuse(fmt::format("array {} is {}, and array 0 is {}", i, spec_of(arrays[i]).to_string(),
                         spec_of(arrays[0]).to_string()),
             "the first axis of each array is that of the batch");
  }
  const int64_t rows = arrays[0].shape()[0], short_of = rows % multiple;
  const int64_t all = short_of == 0 ? rows : rows + (multiple - short_of);
  std::vector<Array> out;
  for (const Array& array : arrays) {
    if (rows == all) {
      out.push_back(array);
      continue;
    }
    const HostTensor given = array.to_host();
    std::vector<int64_t> shape = array.shape();
    shape[0] = all;
    HostTensor wider(array.dtype(), std::move(shape));
    const size_t row = given.size_bytes() / static_cast<size_t>(rows);
    std::copy_n(given.data(), given.size_bytes(), wider.data());
    for (size_t at = given.size_bytes(); at < wider.size_bytes(); at += row)
      std::copy_n(wider.data() + at - row, row, wider.data() + at);
    out.push_back(Array::from_host(wider, array.device()));
  }
  HostTensor mask(DType::Bool, {all});
  for (int64_t i = 0; i < all; ++i) mask.set_bits(i, i < rows);
  out.push_back(Array::from_host(mask, arrays[0].device()));
  return out;
}

const void* skeleton(const SpmdSpecialization& specialization) {
  return specialization.skeleton.get();
}

std::string explain(const SpmdSpecialization& specialization) {
  const Program& program = specialization.executable.program();
  std::string text = specialization.collectives;
  if (!text.empty()) text += "\n";
  if (const std::string exchanges = exchanges_text(program); !exchanges.empty())
    text += exchanges + "\n";
  return text + with_locations(program.report, program.locations);
}

std::shared_ptr<const Program> program(const SpmdRef& specialization) {
  return {specialization, &specialization->executable.program()};
}

CheckReport check(const SpmdSpecialization& specialization, std::span<const Array> arguments) {
  const Mesh& mesh = specialization.mesh;
  if (!mesh.is_local())
    fail(codes::kCheckedRemote,
         "check() judges the results of all devices, and some are of other processes",
         {.location = {}, .node = "", .fix = "check it in one process, over CPU devices"});
  std::vector<std::vector<HostTensor>> inputs;
  std::vector<std::vector<Array>> copies;
  for (const std::vector<Array>& device : by_device(mesh, arguments)) {
    std::vector<HostTensor>& values = inputs.emplace_back();
    std::vector<Array>& copied = copies.emplace_back();
    for (const Array& argument : device) {
      values.push_back(argument.to_host());
      copied.push_back(Array::from_host(values.back(), argument.device()));
    }
  }
  std::vector<HostTensor> got;
  for (const std::vector<Array>& device : specialization.executable.run(copies))
    for (const Array& result : device) got.push_back(result.to_host());
  const AllShards all = all_shards(*specialization.graph, mesh.axes());
  std::span<const NodeId> by_nccl;
  if (mesh.devices()[0].kind() == DeviceKind::Cuda) by_nccl = all.combinations;
  return report_of(check_outputs(all.graph, inputs_of(all, inputs), got,
                                 specialization.executable.program().precision, by_nccl));
}

}  // namespace detail
}  // namespace braze
