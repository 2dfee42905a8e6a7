#include "braze/collectives.h"

#include "frontend/builder/builder.h"
#include "ir/graph/along.h"
#include "ir/graph/infer.h"
#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kNoMesh{"no-mesh", ErrorKind::InvalidArgument,
                              "An axis of a mesh was named that is not there."};
inline constexpr Code kAlreadyEqual{"already-equal", ErrorKind::InvalidArgument,
                                    "A value that all devices share was combined over them."};
}  // namespace codes

using detail::builder_of;
using detail::current_builder;
using detail::node_of;
using detail::place;
using detail::wrap;

namespace {

MeshAxis find_axis(const detail::Builder& builder, std::string_view name, const char* op,
                   const SourceLocation& where) {
  if (!builder.mesh)
    fail(codes::kNoMesh,
         fmt::format("{}: the function is not for a mesh, so there is no axis {}", op, quote(name)),
         {.location = where, .node = op, .fix = "give it to spmd or data_parallel"});
  for (const MeshAxis& axis : builder.mesh->axes)
    if (axis.name == name) return axis;
  fail(codes::kNoMesh,
       fmt::format("{}: the mesh has no axis {}; it has {}", op, quote(name),
                   join(builder.mesh->axes, ", ", [](const MeshAxis& axis) { return axis.name; })),
       {.location = where, .node = op});
}

Monoid monoid_of(Reduction how) {
  switch (how) {
    case Reduction::Prod:
      return Monoid::Prod;
    case Reduction::Min:
      return Monoid::Min;
    case Reduction::Max:
      return Monoid::Max;
    default:
      return Monoid::Sum;
  }
}

void check_combined(detail::Builder& builder, const Tensor& x, const MeshAxis& axis, Reduction how,
                    const char* op, const SourceLocation& where) {
  if (!info(monoid_of(how)).types.contains(x.dtype()) ||
      (how == Reduction::Mean && !is_arithmetic_float(x.dtype())))
    fail(codes::kDTypeMismatch, fmt::format("{}: is not defined on {}", op, x.to_string()),
         {.location = where, .node = op, .fix = "cast it first"});
  if (!contains(builder.varying.of(node_of(x)), axis.name))
    fail(codes::kAlreadyEqual,
         fmt::format("{}: {} is the same on all devices along {} already", op, x.to_string(),
                     quote(axis.name)),
         {.location = where,
          .node = op,
          .fix =
              "use it as it is: gradients of replicated arguments are summed up over the devices; "
              "for their mean differentiate all_reduce(loss, axis, Reduction::Mean)"});
}

/// Throws unless the number of devices divides the extent of an axis of x.
void check_divides(const Tensor& x, int64_t along, const MeshAxis& axis, const char* op,
                   const SourceLocation& where) {
  if (to_expr(x.shape()[static_cast<size_t>(along)]).is_multiple_of(axis.size)) return;
  fail(codes::kShapeMismatch,
       fmt::format("{}: {} devices do not divide axis {} of {}", op, axis.size, along,
                   x.to_string()),
       {.location = where, .node = op, .fix = "pad it to a multiple"});
}

Tensor together(const Tensor& x, CollectiveOp op, const SourceLocation& where) {
  const auto& builder = x.builder();
  return wrap(builder, build::collective(builder->graph, std::move(op), node_of(x), where));
}

Tensor divided(const Tensor& x, int64_t count, Where call) {
  return div(x, static_cast<double>(count), call);
}

}  // namespace

Tensor all_reduce(const Tensor& x, std::string_view name, Reduction how, Where call) {
  const SourceLocation where = place(call);
  const detail::Place here(call);
  const auto& builder = builder_of(x, "all_reduce", where);
  const MeshAxis axis = find_axis(*builder, name, "all_reduce", where);
  check_combined(*builder, x, axis, how, "all_reduce", where);
  const Tensor out = together(x, {CollectiveKind::AllReduce, axis, monoid_of(how)}, where);
  return how == Reduction::Mean ? divided(out, axis.size, call) : out;
}

Tensor all_gather(const Tensor& x, std::string_view name, int64_t along, Where call) {
  const SourceLocation where = place(call);
  const detail::Place here(call);
  const auto& builder = builder_of(x, "all_gather", where);
  const MeshAxis axis = find_axis(*builder, name, "all_gather", where);
  const Tensor whole = x.rank() == 0 ? reshape(x, {1}, call) : x;
  along = detail::to_axis(along, whole.rank(), "all_gather", where);
  return wrap(builder, all_gather_along(builder->graph, axis, node_of(whole), along, where));
}

Tensor reduce_scatter(const Tensor& x, std::string_view name, int64_t along, Reduction how,
                      Where call) {
  const SourceLocation where = place(call);
  const detail::Place here(call);
  const auto& builder = builder_of(x, "reduce_scatter", where);
  const MeshAxis axis = find_axis(*builder, name, "reduce_scatter", where);
  check_combined(*builder, x, axis, how, "reduce_scatter", where);
  along = detail::to_axis(along, x.rank(), "reduce_scatter", where);
  check_divides(x, along, axis, "reduce_scatter", where);
  const Tensor out = wrap(builder, reduce_scatter_along(builder->graph, axis, monoid_of(how),
                                                        node_of(x), along, where));
  return how == Reduction::Mean ? divided(out, axis.size, call) : out;
}

Tensor broadcast(const Tensor& x, std::string_view name, int64_t root, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "broadcast", where);
  const MeshAxis axis = find_axis(*builder, name, "broadcast", where);
  return together(x, {CollectiveKind::BroadcastOver, axis, Monoid::Sum, root}, where);
}

Tensor permute(const Tensor& x, std::string_view name, int64_t shift, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "permute", where);
  const MeshAxis axis = find_axis(*builder, name, "permute", where);
  const int64_t places = (shift % axis.size + axis.size) % axis.size;
  return together(x, {CollectiveKind::Permute, axis, Monoid::Sum, places}, where);
}

Tensor all_to_all(const Tensor& x, std::string_view name, int64_t split, int64_t joined,
                  Where call) {
  const SourceLocation where = place(call);
  const detail::Place here(call);
  const auto& builder = builder_of(x, "all_to_all", where);
  const MeshAxis axis = find_axis(*builder, name, "all_to_all", where);
  split = detail::to_axis(split, x.rank(), "all_to_all", where);
  joined = detail::to_axis(joined, x.rank(), "all_to_all", where);
  check_divides(x, split, axis, "all_to_all", where);
  return wrap(builder, all_to_all_along(builder->graph, axis, node_of(x), split, joined, where));
}

Tensor axis_index(std::string_view name, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = current_builder(where);
  const MeshAxis axis = find_axis(*builder, name, "axis_index", where);
  return wrap(builder, build::axis_index(builder->graph, axis, where));
}

int64_t axis_size(std::string_view name, Where call) {
  const SourceLocation where = place(call);
  return find_axis(*current_builder(where), name, "axis_size", where).size;
}

Tensor constrain(const Tensor& x, const Sharding& sharding, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "constrain", where);
  return wrap(builder, build::node(builder->graph, ConstrainOp{sharding}, {node_of(x)}, {}, where));
}

Tensor device_mean(const Tensor& x, Where call) {
  const SourceLocation where = place(call);
  const auto& builder = builder_of(x, "device_mean", where);
  const std::string axis = builder->mesh ? builder->mesh->averaged : std::string();
  if (axis.empty() || !contains(builder->varying.of(node_of(x)), axis)) return x;
  return all_reduce(x, axis, Reduction::Mean, call);
}

Tensor masked_mean(const Tensor& x, const Tensor& mask, Where call) {
  const detail::Place here(call, "masked_mean");
  if (!is_arithmetic_float(x.dtype()) || mask.dtype() != boolean || mask.shape() != x.shape())
    fail(codes::kShapeMismatch,
         fmt::format("masked_mean: needs floats and a bool for each of them, and got {} and {}",
                     x.to_string(), mask.to_string()),
         {.location = place(call), .node = "masked_mean"});
  // The sum and the number each become a mean over the devices, so that their ratio is that of the
  // whole. 16-bit floats cannot count.
  const Tensor wide = cast(x, compute_type(x.dtype()));
  const Tensor total = device_mean(sum(where(mask, wide, 0)));
  const Tensor count = device_mean(cast(sum(cast(mask, i64)), wide.dtype()));
  return cast(total / count, x.dtype());
}

}  // namespace braze
