// gather.cpp — gather and scatter with index vectors of several axes, windows and batch axes.
//
// The ops of the graph have one axis. So the axes of x along which windows have positions are
// joined to one axis in front, and every element of a window gets its place there.
#include <algorithm>
#include <utility>

#include "frontend/builder/builder.h"
#include "ir/support/text.h"

namespace braze {

using detail::node_of;
using detail::place;
using detail::wrap;

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

using Axes64 = std::vector<int64_t>;

bool has(const Axes64& list, int64_t axis) { return std::ranges::find(list, axis) != list.end(); }

/// A size as a tensor of rank 0.
Tensor size_of_dim(const Tensor& near, const Dim& dim) {
  return wrap(near.builder(), build::size(near.builder()->graph, to_expr(dim)));
}

/// One call of `gather` or `scatter`: its axes counted from the front, and checked.
class Windows {
 public:
  Windows(const char* op, SourceLocation where, const Tensor& x, Tensor indices,
          const GatherAxes& axes, Outside outside)
      : op_(op), where_(where), x_(x), indices_(std::move(indices)), outside_(outside) {
    if (!is_integer(indices_.dtype()))
      fail(codes::kDTypeMismatch,
           fmt::format("{}: the indices {} are no integers", op, indices_.to_string()),
           {.location = where, .node = op, .fix = "cast them to i32 or i64"});
    // A vector of one element may have no axis.
    if (axes.vector == static_cast<int64_t>(indices_.rank())) indices_ = expand_dims(indices_, -1);
    if (indices_.dtype() != i64) indices_ = cast(indices_, i64);
    vector_ = detail::to_axis(axes.vector, indices_.rank(), op, where);
    indexed_ = counted(axes.indexed, x.rank());
    collapsed_ = counted(axes.collapsed, x.rank());
    batch_ = counted(axes.batch, x.rank());
    index_batch_ = counted(axes.index_batch, indices_.rank());
    if (!(indices_.dim(vector_) == Dim(static_cast<int64_t>(indexed_.size()))))
      refuse(
          fmt::format("its indices {} have no vectors of {}, which is the number of indexed axes",
                      indices_.to_string(), indexed_.size()));
    if (batch_.size() != index_batch_.size())
      refuse(fmt::format("it has {} batch axes of x and {} of the indices", batch_.size(),
                         index_batch_.size()));
    for (size_t i = 0; i < batch_.size(); ++i) {
      if (index_batch_[i] == vector_ || has(indexed_, batch_[i]) || has(collapsed_, batch_[i]))
        refuse(fmt::format("axis {} of x cannot be a batch axis and another one, too", batch_[i]));
      if (!proves_at_most(to_expr(indices_.dim(index_batch_[i])), to_expr(x.dim(batch_[i]))))
        refuse(fmt::format("the indices {} have more batches than {} along axis {}",
                           indices_.to_string(), x.to_string(), batch_[i]));
    }
    for (int64_t axis = 0; axis < static_cast<int64_t>(indices_.rank()); ++axis)
      if (axis != vector_) batch_shape_.push_back(indices_.dim(axis));
    size_t windowed = 0;
    for (int64_t axis = 0; axis < static_cast<int64_t>(x.rank()); ++axis) windowed += spans(axis);
    if (axes.windows.size() != windowed)
      refuse(
          fmt::format("it names {} axes of windows, but of the axes of {}, {} are neither "
                      "collapsed nor batch axes",
                      axes.windows.size(), x.to_string(), windowed));
    rank_ = batch_shape_.size() + windowed;
    offsets_ = counted(axes.windows, rank_);
    if (!std::ranges::is_sorted(offsets_)) refuse("the axes of the windows are not ascending");
  }

  /// Whether a window has this axis of x.
  bool spans(int64_t axis) const { return !has(collapsed_, axis) && !has(batch_, axis); }
  /// The rank of the tensor of all windows.
  size_t rank() const { return rank_; }
  /// Its axes that are axes of one window.
  const Axes64& offsets() const { return offsets_; }

  /// Takes the extents of a window along the axes of x, and computes the places of its elements.
  void place_windows(const Dims& sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto axis = static_cast<int64_t>(i);
      const Dim extent = x_.dim(axis);
      if (!spans(axis) ? !(sizes[i] == Dim(1))
                       : !proves_at_most(to_expr(sizes[i]), to_expr(extent)))
        refuse(fmt::format("a window of {} along axis {} of {}", sizes[i].to_string(), axis,
                           x_.to_string()));
      // A window that lies within x and is as long begins at 0.
      const bool stays =
          spans(axis) && sizes[i] == extent && (outside_ != Outside::Drop || !has(indexed_, axis));
      (stays ? whole_ : moving_).push_back(axis);
      if (!stays && spans(axis)) window_axes_.push_back(axis);
    }
    Dims shape = batch_shape_;
    for (const int64_t axis : window_axes_) shape.push_back(sizes[at(axis)]);
    if (moving_.empty()) places_ = full(i64, shape, 0);
    for (const int64_t axis : moving_) {
      const Tensor index = positions(axis, sizes, shape);
      places_ = places_.valid() ? places_ * size_of_dim(x_, x_.dim(axis)) + index : index;
      if (outside_ != Outside::Drop || !has(indexed_, axis)) continue;
      const Tensor is_there = (index >= 0) & (index < size_of_dim(x_, x_.dim(axis)));
      inside_ = inside_.valid() ? inside_ & is_there : is_there;
    }
  }

  /// The places of windows along the joined axis: [batch.., axes of windows that move..].
  const Tensor& places() const { return places_; }
  /// Whether they exist. It is empty if all do.
  const Tensor& inside() const { return inside_; }
  /// The same with axes of extent 1 for the axes that are whole.
  Tensor inside_all() const {
    Dims aligned = inside_.shape();
    aligned.resize(rank_, Dim(1));
    return reshape(inside_, aligned);
  }
  /// `places`, with 0 instead of those that do not exist.
  Tensor places_within() const { return inside_.valid() ? where(inside_, places_, 0) : places_; }
  /// Whether there is one window of one place.
  bool is_single() const {
    return window_axes_.empty() &&
           std::ranges::all_of(batch_shape_, [](const Dim& dim) { return dim == Dim(1); });
  }

  /// A tensor like x with the joined axis in front, and the way back.
  Tensor joined(const Tensor& tensor) const {
    Dims shape = {Dim(1)};
    for (const int64_t axis : moving_) shape[0] = shape[0] * x_.dim(axis);
    for (const int64_t axis : whole_) shape.push_back(x_.dim(axis));
    return reshape(permute(tensor, order()), shape);
  }
  Tensor parted(const Tensor& tensor) const {
    Dims shape;
    for (const int64_t axis : order()) shape.push_back(x_.dim(axis));
    return permute(reshape(tensor, shape), inverse(order()));
  }

  /// For each axis of [batch.., axes of windows that move.., whole axes..], the axis of the tensor
  /// of all windows.
  Axes64 slice_axes() const {
    Axes64 out;
    for (int64_t axis = 0; axis < static_cast<int64_t>(rank_); ++axis)
      if (!has(offsets_, axis)) out.push_back(axis);
    Axes64 in_order = window_axes_;
    in_order.insert(in_order.end(), whole_.begin(), whole_.end());
    Axes64 sorted = in_order;
    std::ranges::sort(sorted);
    for (const int64_t axis : in_order)
      out.push_back(offsets_[at(std::ranges::find(sorted, axis) - sorted.begin())]);
    return out;
  }

  static Axes64 inverse(const Axes64& order) {
    Axes64 out(order.size());
    for (size_t i = 0; i < order.size(); ++i) out[at(order[i])] = static_cast<int64_t>(i);
    return out;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    fail(codes::kShapeMismatch, fmt::format("{}: {}", op_, why),
         {.location = where_,
          .node = op_,
          .fix = "GatherAxes in braze/tensor.h says what each list of axes means"});
  }

 private:
  Axes64 counted(const Axes64& axes, size_t rank) const {
    Axes64 out;
    for (const int64_t axis : axes) {
      out.push_back(detail::to_axis(axis, rank, op_, where_));
      if (std::ranges::count(out, out.back()) > 1)
        fail(codes::kBadAxis, fmt::format("{}: axis {} is named twice", op_, axis),
             {.location = where_, .node = op_});
    }
    return out;
  }

  Axes64 order() const {
    Axes64 out = moving_;
    out.insert(out.end(), whole_.begin(), whole_.end());
    return out;
  }

  /// The positions of the elements of all windows along one axis of x.
  Tensor positions(int64_t axis, const Dims& sizes, const Dims& shape) const {
    Tensor index;
    const auto indexed = std::ranges::find(indexed_, axis);
    const auto batch = std::ranges::find(batch_, axis);
    if (indexed != indexed_.end()) {
      const int64_t k = indexed - indexed_.begin();
      Tensor start = squeeze(slice(indices_, vector_, k, k + 1), Axes(vector_));
      if (outside_ == Outside::Clamp)
        start = minimum(maximum(start, 0), size_of_dim(x_, x_.dim(axis) - sizes[at(axis)]));
      Dims aligned = batch_shape_;
      aligned.resize(shape.size(), Dim(1));
      index = broadcast_to(reshape(start, aligned), shape);
    } else if (batch != batch_.end()) {
      const int64_t along = index_batch_[at(batch - batch_.begin())];
      index = arange(i64, shape, along > vector_ ? along - 1 : along);
    }
    const auto window = std::ranges::find(window_axes_, axis);
    if (window != window_axes_.end()) {
      const int64_t along =
          static_cast<int64_t>(batch_shape_.size()) + (window - window_axes_.begin());
      const Tensor within = arange(i64, shape, along);
      index = index.valid() ? index + within : within;
    }
    return index.valid() ? index : full(i64, shape, 0);
  }

  const char* op_;
  SourceLocation where_;
  Tensor x_, indices_;
  Outside outside_;
  int64_t vector_ = 0;
  Axes64 indexed_, collapsed_, batch_, index_batch_, offsets_;
  Dims batch_shape_;
  size_t rank_ = 0;
  Axes64 moving_, whole_;  // axes of x: those that are joined, and the others, in order
  Axes64 window_axes_;     // those of `moving_` that windows have
  Tensor places_, inside_;
};

bool is_empty(const Dims& dims) {
  return std::ranges::any_of(dims, [](const Dim& dim) { return dim == Dim(0); });
}

}  // namespace

Tensor gather(const Tensor& x, const Tensor& indices, const Dims& sizes, const GatherAxes& axes,
              Outside outside, const Operand& fill, Where call) {
  const detail::Place all(call, "gather");
  const SourceLocation here = place(call);
  const Tensor* both[] = {&x, &indices};
  const auto& builder = detail::builder_of(both, "gather", here);
  Windows windows("gather", here, x, indices, axes, outside);
  if (sizes.size() != x.rank())
    windows.refuse(fmt::format("there are {} sizes for {}", sizes.size(), x.to_string()));
  windows.place_windows(sizes);
  const Axes64 order = Windows::inverse(windows.slice_axes());
  Dims shape = windows.places().shape();
  const Tensor line = windows.joined(x);
  for (size_t i = 1; i < line.rank(); ++i) shape.push_back(line.shape()[i]);
  // Then no element is read, and x may have no elements.
  if (is_empty(shape))
    return permute(
        broadcast_to(wrap(builder, build::scalar(builder->graph, x.dtype(), 0, here)), shape),
        order);
  const Tensor taken = take(line, windows.places_within(), 0);
  if (!windows.inside().valid()) return permute(taken, order);
  return permute(where(windows.inside_all(), taken,
                       detail::as_tensor(fill, builder, x.dtype(), "gather", here)),
                 order);
}

// Some places may not exist. If a monoid combines the elements, the updates for such places become
// the identity. Else x gets one more row, which receives these updates. If there is only one place,
// no row is needed: the update rewrites the value that is there.
Tensor scatter(const Tensor& x, const Tensor& indices, const Tensor& updates,
               const GatherAxes& axes, Scatter how, Outside outside, Where call) {
  const detail::Place all(call, "scatter");
  const SourceLocation here = place(call);
  const Tensor* three[] = {&x, &indices, &updates};
  const auto& builder = detail::builder_of(three, "scatter", here);
  if (updates.dtype() != x.dtype())
    fail(codes::kDTypeMismatch,
         fmt::format("scatter: the updates {} have another dtype than {}", updates.to_string(),
                     x.to_string()),
         {.location = here, .node = "scatter", .fix = "cast the updates"});
  Windows windows("scatter", here, x, indices, axes, outside);
  if (updates.rank() != windows.rank())
    windows.refuse(
        fmt::format("the updates {} should have {} axes", updates.to_string(), windows.rank()));
  Dims sizes;
  size_t next = 0;
  for (int64_t axis = 0; axis < static_cast<int64_t>(x.rank()); ++axis)
    sizes.push_back(windows.spans(axis) ? updates.dim(windows.offsets()[next++]) : Dim(1));
  windows.place_windows(sizes);
  Tensor terms = permute(updates, windows.slice_axes());
  for (size_t i = 0; i < windows.places().rank(); ++i)
    if (!(terms.shape()[i] == windows.places().shape()[i]))
      windows.refuse(fmt::format("the updates {} are not those of indices {}", updates.to_string(),
                                 indices.to_string()));
  Tensor line = windows.joined(x), places = windows.places();
  if (is_empty(updates.shape()) || line.dim(0) == Dim(0)) return x;
  const std::optional<Monoid> monoid = detail::monoid_of(how);
  const Dim rows = line.dim(0);
  bool is_padded = false;
  if (windows.inside().valid()) {
    const auto bits = [&](uint64_t value) {
      return wrap(builder, build::scalar_bits(builder->graph, x.dtype(), value, here));
    };
    if (monoid) {
      places = windows.places_within();
      terms = where(windows.inside_all(), terms, bits(info(*monoid).padding(x.dtype())));
    } else if (windows.is_single()) {
      places = windows.places_within();
      terms = where(windows.inside_all(), terms, take(line, places, 0));
    } else {
      places = where(windows.inside(), places, size_of_dim(x, rows));
      Dims high(line.rank(), Dim(0));
      high[0] = 1;
      line = pad(line, Dims(line.rank(), Dim(0)), high, bits(0));
      is_padded = true;
    }
  }
  Tensor out = wrap(builder, build::scatter(builder->graph, {monoid, 0}, node_of(line),
                                            node_of(places), node_of(terms), here));
  if (is_padded) out = slice(out, 0, 0, rows);
  return windows.parted(out);
}

}  // namespace braze
