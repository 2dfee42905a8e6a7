// sorting.cpp — the order of elements along an axis.
#include "braze/tensor.h"
#include "frontend/builder/builder.h"
#include "ir/graph/build.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The indices of the first `count` elements in the order; of all, if there is no count.
Tensor first_indices(const char* function, const Tensor& x, int64_t axis, bool descending,
                     std::optional<int64_t> count, Where call) {
  const SourceLocation where = detail::place(call);
  const char* op = detail::called(function);
  const auto& builder = detail::builder_of(x, op, where);
  axis = detail::to_axis(axis, x.rank(), op, where);
  const Dim extent = x.dim(axis);
  if (!extent.is_constant())
    fail(codes::kShapeMismatch,
         fmt::format("{}: axis {} of {} is sorted, so its extent must be a number", op, axis,
                     x.to_string()),
         {.location = where,
          .node = op,
          .fix = "pad the axis to a fixed extent with the value that comes last"});
  if (count && (*count < 0 || *count > extent.value()))
    fail(codes::kShapeMismatch,
         fmt::format("{}: {} elements are wanted of the {} along axis {} of {}", op, *count,
                     extent.value(), axis, x.to_string()),
         {.location = where, .node = op, .fix = "ask for at most as many as there are"});
  return detail::wrap(builder,
                      build::arg_sort(builder->graph, {axis, descending}, detail::node_of(x),
                                      count.value_or(extent.value()), where));
}

}  // namespace

Tensor argsort(const Tensor& x, int64_t axis, bool descending, Where where) {
  return first_indices("argsort", x, axis, descending, std::nullopt, where);
}

Tensor sort(const Tensor& x, int64_t axis, bool descending, Where where) {
  const detail::Place all(where, "sort");
  return take_along_axis(x, first_indices("sort", x, axis, descending, std::nullopt, where), axis,
                         where);
}

Chosen top_k(const Tensor& x, int64_t count, int64_t axis, bool largest, Where where) {
  const detail::Place all(where, "top_k");
  const Tensor indices = first_indices("top_k", x, axis, largest, count, where);
  return {take_along_axis(x, indices, axis, where), indices};
}

}  // namespace braze
