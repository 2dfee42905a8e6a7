// indexing.cpp — parts of Tensors (x[{...}], split, triangles, take_along_axis), and repetitions.
#include <algorithm>
#include <numeric>

#include "frontend/builder/builder.h"
#include "ir/support/text.h"

namespace braze {

using detail::place;
using detail::to_axis;

namespace {

size_t at_axis(int64_t axis) { return static_cast<size_t>(axis); }

[[noreturn]] void fail_index(const std::string& why, SourceLocation where, std::string fix = {}) {
  fail(codes::kBadAttribute, why, {.location = where, .node = "x[{...}]", .fix = std::move(fix)});
}

/// The place counted from the start. A negative number counts from the end. An expression is taken
/// as it is.
Dim from_start(const Dim& at, const Dim& extent) {
  return at.is_constant() && at.value() < 0 ? extent + at : at;
}

/// False if a number is certainly not a place of the axis. A negative number counts from the end.
/// With `room` 0, which is for the end of a Slice, the place behind the last one is allowed too.
bool may_be_within(const Dim& at, const Dim& extent, int64_t room) {
  if (!at.is_constant() || !extent.is_constant()) return true;
  const int64_t place = from_start(at, extent).value();
  return place >= 0 && place + room <= extent.value();
}

/// Cuts `x` along an axis into parts that begin at multiples of `size`.
std::vector<Tensor> cut(const Tensor& x, int64_t size, int64_t axis) {
  const int64_t extent = x.dim(axis).value();
  std::vector<Tensor> parts;
  for (int64_t start = 0; start < extent || parts.empty(); start += size)
    parts.push_back(slice(x, axis, start, std::min(start + size, extent)));
  return parts;
}

/// The axis counted from the front. Its extent must be a number, and `count`, the number or size of
/// the parts, must be positive.
int64_t axis_to_cut(const char* op, const Tensor& x, int64_t count, int64_t axis,
                    SourceLocation where) {
  detail::builder_of(x, op, where);
  axis = to_axis(axis, x.rank(), op, where);
  if (count >= 1 && x.dim(axis).is_constant()) return axis;
  fail(codes::kBadAttribute,
       fmt::format("{}: axis {} of {} cannot be divided by {}", op, axis, x.to_string(), count),
       {.location = where,
        .node = op,
        .fix = "give a number from 1 on; for a symbolic extent give all sizes: split(x, {n, m})"});
}

void check_count(const char* op, int64_t count, SourceLocation where) {
  if (count < 0)
    fail(codes::kBadAttribute, fmt::format("{}: the count {} is negative", op, count),
         {.location = where, .node = op});
}

/// `x` with only those elements of its matrices that a function of row and column keeps.
template <class Keeps>
Tensor triangle(const char* op, const Tensor& x, Where where, Keeps keeps) {
  const detail::Place all(where, op);
  const SourceLocation at = place(where);
  detail::builder_of(x, op, at);
  if (x.rank() < 2)
    fail(codes::kShapeMismatch, fmt::format("{}: {} is not a matrix", op, x.to_string()),
         {.location = at, .node = op, .fix = "give a tensor of two axes or more"});
  const Tensor rows = expand_dims(arange(i64, x.dim(-2)), 1), columns = arange(i64, x.dim(-1));
  return braze::where(keeps(rows, columns), x, zeros_like(x));
}

}  // namespace

// ---- x[{...}] ---------------------------------------------------------------------------------

Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  if (indices.size() == 0) return *this;
  const detail::Place all(indices.begin()->where(), "x[{...}]");
  const SourceLocation at = place(indices.begin()->where());
  detail::builder_of(*this, "x[{...}]", at);
  size_t given = 0, ellipses = 0;
  for (const Index& index : indices) {
    given += index.kind() == Index::Kind::Place || index.kind() == Index::Kind::Slice;
    ellipses += index.kind() == Index::Kind::Ellipsis;
  }
  if (given > rank() || ellipses > 1)
    fail_index(
        fmt::format("x[{{...}}]: {} indices and {} ellipses for {}", given, ellipses, to_string()),
        at, "give at most one index for each axis, and one ellipsis");

  const Dims extents = shape();
  Dims starts, limits, kept;
  std::vector<int64_t> strides, backwards;
  const auto take_axis = [&](const Slice& part, bool is_place) {
    const size_t axis = starts.size();
    const Dim& extent = extents[axis];
    if (is_place && !may_be_within(*part.start, extent, 1))
      fail_index(fmt::format("x[{{...}}]: there is no index {} on axis {} of {}",
                             part.start->to_string(), axis, to_string()),
                 at, "indices go from 0, or from the end as negative numbers");
    for (const auto& end : {part.start, part.stop})
      if (!is_place && end && !may_be_within(*end, extent, 0))
        fail_index(fmt::format("x[{{...}}]: a Slice from or to {} is out of range on axis {} of {}",
                               end->to_string(), axis, to_string()),
                   at, "leave an end out to reach the end of the axis");
    Dim start = from_start(part.start.value_or(part.step < 0 ? Dim(-1) : Dim(0)), extent);
    Dim stop = is_place ? start + 1 : extent;
    if (!is_place && part.stop) stop = from_start(*part.stop, extent);
    if (part.step == 0)
      fail_index(fmt::format("x[{{...}}]: the step of axis {} is 0", axis), at, "1 takes all");
    if (part.step < 0) {
      // The axis is reversed below, so the start is counted from the end.
      backwards.push_back(static_cast<int64_t>(axis));
      start = extent - 1 - start;
      stop = part.stop ? extent - 1 - stop : extent;
    }
    starts.push_back(start);
    limits.push_back(stop);
    strides.push_back(std::abs(part.step));
    const Expr stride(strides.back());
    if (!is_place) kept.push_back(to_dim(ceildiv(to_expr(stop) - to_expr(start), stride)));
  };
  const auto take_rest = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) take_axis(Slice(), false);
  };
  for (const Index& index : indices) {
    switch (index.kind()) {
      case Index::Kind::Place:
        take_axis(index.slice(), true);
        break;
      case Index::Kind::Slice:
        take_axis(index.slice(), false);
        break;
      case Index::Kind::Ellipsis:
        take_rest(rank() - given);
        break;
      case Index::Kind::NewAxis:
        kept.emplace_back(1);
        break;
    }
  }
  take_rest(rank() - starts.size());
  const Tensor turned = backwards.empty() ? *this : reverse(*this, backwards);
  return reshape(braze::slice(turned, starts, limits, strides), kept);
}

Tensor Tensor::operator[](const Index& index) const { return (*this)[{index}]; }

// ---- Parts ------------------------------------------------------------------------------------

std::vector<Tensor> split(const Tensor& x, const Dims& sizes, int64_t axis, Where where) {
  const detail::Place all(where, "split");
  const SourceLocation at = place(where);
  detail::builder_of(x, "split", at);
  axis = to_axis(axis, x.rank(), "split", at);
  Dim sum = 0;
  for (const Dim& size : sizes) {
    if (size.is_constant() && size.value() < 0)
      fail(codes::kShapeMismatch, fmt::format("split: a part has the size {}", size.value()),
           {.location = at, .node = "split"});
    sum = sum + size;
  }
  if (!(sum == x.dim(axis)))
    fail(codes::kShapeMismatch,
         fmt::format("split: the sizes add up to {}, but axis {} of {} has {}", sum.to_string(),
                     axis, x.to_string(), x.dim(axis).to_string()),
         {.location = at, .node = "split"});
  std::vector<Tensor> parts;
  Dim start = 0;
  for (const Dim& size : sizes) {
    parts.push_back(slice(x, axis, start, start + size));
    start = start + size;
  }
  return parts;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t axis, Where where) {
  const detail::Place all(where, "split");
  axis = axis_to_cut("split", x, size, axis, place(where));
  return cut(x, size, axis);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t axis, Where where) {
  const detail::Place all(where, "chunk");
  axis = axis_to_cut("chunk", x, count, axis, place(where));
  const int64_t extent = x.dim(axis).value();
  return cut(x, std::max<int64_t>((extent + count - 1) / count, 1), axis);
}

Tensor tril(const Tensor& x, int64_t diagonal, Where where) {
  return triangle("tril", x, where, [=](const Tensor& row, const Tensor& column) {
    return column - row <= diagonal;
  });
}

Tensor triu(const Tensor& x, int64_t diagonal, Where where) {
  return triangle("triu", x, where, [=](const Tensor& row, const Tensor& column) {
    return column - row >= diagonal;
  });
}

Tensor take_along_axis(const Tensor& x, const Tensor& indices, int64_t axis, Where where) {
  const detail::Place all(where, "take_along_axis");
  const SourceLocation at = place(where);
  const Tensor* both[] = {&x, &indices};
  const auto& builder = detail::builder_of(both, "take_along_axis", at);
  axis = to_axis(axis, x.rank(), "take_along_axis", at);
  bool fits = indices.rank() == x.rank() && (indices.dtype() == i32 || indices.dtype() == i64);
  Dims shape = x.shape();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    const Dim extent = indices.shape()[i];
    if (i == at_axis(axis))
      shape[i] = extent;
    else
      fits = extent == shape[i] || extent == Dim(1);
  }
  if (!fits)
    fail(codes::kShapeMismatch,
         fmt::format("take_along_axis: {} cannot be indices along axis {} of {}",
                     indices.to_string(), axis, x.to_string()),
         {.location = at,
          .node = "take_along_axis",
          .fix = "give indices of i32 or i64 with the axes of x; on axes other than the indexed "
                 "one, extents are those of x or 1"});
  // The indices pass through a `take` along this axis first. It judges them by the axis, and it
  // returns the places that they denote.
  const auto along = [&](const Expr& value) {
    return detail::wrap(builder, build::size(builder->graph, value, at));
  };
  const Tensor within = take(arange(i64, x.dim(axis)), indices);
  const std::vector<Expr> strides = row_major_strides(to_shape(x.shape()));
  Tensor offset = broadcast_to(within, shape) * along(strides[at_axis(axis)]);
  for (size_t i = 0; i < shape.size(); ++i)
    if (i != at_axis(axis))
      offset += arange(i64, shape, static_cast<int64_t>(i)) * along(strides[i]);
  return take(reshape(x, {x.numel()}), offset);
}

// ---- Repetitions ------------------------------------------------------------------------------

Tensor repeat(const Tensor& x, int64_t count, int64_t axis, Where where) {
  const detail::Place all(where, "repeat");
  const SourceLocation at = place(where);
  detail::builder_of(x, "repeat", at);
  axis = to_axis(axis, x.rank(), "repeat", at);
  check_count("repeat", count, at);
  Dims spread = x.shape(), shape = x.shape();
  spread.insert(spread.begin() + axis + 1, Dim(count));
  shape[at_axis(axis)] = shape[at_axis(axis)] * count;
  return reshape(broadcast_to(expand_dims(x, axis + 1), spread), shape);
}

Tensor tile(const Tensor& x, std::vector<int64_t> counts, Where where) {
  const detail::Place all(where, "tile");
  const SourceLocation at = place(where);
  detail::builder_of(x, "tile", at);
  if (counts.size() != x.rank())
    fail(codes::kBadAttribute,
         fmt::format("tile: there are {} counts for {}", counts.size(), x.to_string()),
         {.location = at, .node = "tile", .fix = "give one for each axis"});
  Dims apart, spread, shape;
  for (size_t i = 0; i < counts.size(); ++i) {
    check_count("tile", counts[i], at);
    const Dim extent = x.shape()[i];
    apart.emplace_back(1);
    apart.push_back(extent);
    spread.emplace_back(counts[i]);
    spread.push_back(extent);
    shape.push_back(extent * counts[i]);
  }
  return reshape(broadcast_to(reshape(x, apart), spread), shape);
}

}  // namespace braze
