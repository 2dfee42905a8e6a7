// indexing.cpp — operations that read or write at places that other tensors contain, and sorting.
#include <algorithm>
#include <numeric>

#include "frontend/models/stablehlo/node.h"
#include "ir/support/text.h"

namespace braze::stablehlo {

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

// A sort compares all pairs, so the extent is limited.
constexpr int64_t kMostSorted = 4096;

bool has(const std::vector<int64_t>& list, int64_t axis) {
  return std::ranges::find(list, axis) != list.end();
}

// ---- Slices -------------------------------------------------------------------------------------

// The starts, if they are known. Then the operation is an ordinary slice.
std::optional<std::vector<int64_t>> known_starts(Node& n, const Tensors& starts, const Tensor& x,
                                                 const std::vector<int64_t>& sizes) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < starts.size(); ++i) {
    if (starts[i].rank() != 0) n.refuse("a start is no scalar");
    const int64_t room = extent(x, i) - sizes[i];
    const auto value = room == 0 ? nullptr : n.known(starts[i]);
    if (room != 0 && !value) return std::nullopt;
    out.push_back(room == 0 ? 0 : std::clamp<int64_t>(value->get_int(0), 0, room));
  }
  return out;
}

Tensor dynamically_sliced(Node& n) {
  const std::vector<int64_t> sizes = n.integers("slice_sizes");
  const Tensors starts = n.operands(1, n.count());
  if (starts.size() != n[0].rank() || sizes.size() != n[0].rank())
    n.refuse("its starts or sizes are of another rank");
  if (const auto known = known_starts(n, starts, n[0], sizes)) {
    Dims limits;
    for (size_t i = 0; i < sizes.size(); ++i) limits.emplace_back((*known)[i] + sizes[i]);
    return slice(n[0], to_extents(*known), limits);
  }
  return dynamic_slice(n[0], starts, to_extents(sizes));
}

Tensor dynamically_updated(Node& n) { return dynamic_update(n[0], n[1], n.operands(2, n.count())); }

// ---- Gather and scatter -------------------------------------------------------------------------

// Says where a gather or scatter finds the windows of a tensor.
struct Windows {
  std::vector<int64_t> offset_dims;  // the axes of the slices that are axes of the windows
  std::vector<int64_t> collapsed;    // axes of the operand that the slices do not have
  std::vector<int64_t> batching;     // axes of the operand that correspond to axes of the indices
  std::vector<int64_t> index_batching;  // those axes of the indices
  std::vector<int64_t> index_map;       // for each element of an index vector, the axis it indexes
  int64_t index_vector = 0;             // the axis of index vectors
};

Windows windows_of(Node& n, std::string_view within, const char* offsets, const char* collapsed,
                   const char* batching, const char* index_batching, const char* map) {
  const auto list = [&](const char* name) {
    return n.integers(name, std::vector<int64_t>(), within);
  };
  Windows out{list(offsets), list(collapsed), list(batching), list(index_batching), list(map), 0};
  const std::vector<int64_t> vector =
      n.integers("index_vector_dim", std::vector<int64_t>{0}, within);
  if (vector.size() != 1) n.refuse("its index_vector_dim is no number");
  out.index_vector = vector[0];
  n.ignore("indices_are_sorted");
  n.ignore("unique_indices");
  return out;
}

// The places of the windows' elements along one axis. It joins the axes `moving` of the operand.
struct Places {
  std::vector<int64_t> moving;  // axes of the operand, in order
  std::vector<int64_t> whole;   // all other axes; each window spans them
  Tensor places;                // [batch axes.., windows' axes among `moving`..]
  Tensor inside;                // whether each place exists; invalid if all exist
  size_t batch_rank = 0;
  std::vector<int64_t> window_axes;  // those of `moving` that are axes of the slices
};

// `sizes` are the windows' extents along the axes of the operand. If `clamps`, windows are moved so
// that they lie within the operand, as a gather does it.
Places places_of(Node& n, const Windows& w, const Tensor& x, Tensor indices,
                 const std::vector<int64_t>& sizes, bool clamps) {
  Places out;
  if (indices.dtype() != i64) indices = cast(indices, i64);
  // An index vector of one element may have no axis.
  if (w.index_vector == static_cast<int64_t>(indices.rank())) indices = expand_dims(indices, -1);
  if (w.index_vector < 0 || w.index_vector >= static_cast<int64_t>(indices.rank()) ||
      extent(indices, at(w.index_vector)) != static_cast<int64_t>(w.index_map.size()) ||
      w.batching.size() != w.index_batching.size())
    n.refuse("its indices do not fit its dimension numbers");
  Dims batch;
  for (size_t i = 0; i < indices.rank(); ++i)
    if (static_cast<int64_t>(i) != w.index_vector)
      batch.push_back(indices.dim(static_cast<int64_t>(i)));
  out.batch_rank = batch.size();
  for (size_t i = 0; i < x.rank(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    const bool moves = has(w.index_map, axis) || has(w.batching, axis) || sizes[i] != extent(x, i);
    // If a window is moved into the operand and is as long as the operand, then it begins at 0.
    const bool stays =
        clamps && sizes[i] == extent(x, i) && !has(w.collapsed, axis) && !has(w.batching, axis);
    (moves && !stays ? out.moving : out.whole).push_back(axis);
  }
  for (const int64_t axis : out.moving)
    if (!has(w.collapsed, axis) && !has(w.batching, axis)) out.window_axes.push_back(axis);
  Dims shape = batch;
  for (const int64_t axis : out.window_axes) shape.emplace_back(sizes[at(axis)]);
  out.places = full(i64, shape, 0);
  for (const int64_t axis : out.moving) {
    const int64_t count = extent(x, at(axis));
    Tensor index = full(i64, shape, 0);
    const auto mapped = std::ranges::find(w.index_map, axis);
    const auto batched = std::ranges::find(w.batching, axis);
    if (mapped != w.index_map.end()) {
      const int64_t k = mapped - w.index_map.begin();
      Tensor start = squeeze(slice(indices, w.index_vector, k, k + 1), Axes(w.index_vector));
      if (clamps) start = minimum(maximum(start, 0), count - sizes[at(axis)]);
      Dims aligned = batch;
      aligned.resize(shape.size(), Dim(1));
      index = broadcast_to(reshape(start, aligned), shape);
    } else if (batched != w.batching.end()) {
      int64_t along = w.index_batching[static_cast<size_t>(batched - w.batching.begin())];
      if (along > w.index_vector) --along;
      index = arange(i64, shape, along);
    }
    const auto window = std::ranges::find(out.window_axes, axis);
    if (window != out.window_axes.end())
      index =
          index + arange(i64, shape,
                         static_cast<int64_t>(out.batch_rank) + (window - out.window_axes.begin()));
    if (!clamps && mapped != w.index_map.end()) {
      const Tensor is_there = (index >= 0) & (index < count);
      out.inside = out.inside.valid() ? out.inside & is_there : is_there;
    }
    out.places = out.places * count + index;
  }
  return out;
}

// The operand with its moving axes joined to one axis in front.
Tensor lined(const Tensor& x, const Places& p) {
  std::vector<int64_t> order = p.moving;
  order.insert(order.end(), p.whole.begin(), p.whole.end());
  Dims shape = {Dim(1)};
  for (const int64_t axis : p.moving) shape[0] = shape[0] * x.dim(axis);
  for (const int64_t axis : p.whole) shape.push_back(x.dim(axis));
  return reshape(permute(x, order), shape);
}

// The axis of the slices that corresponds to each axis of [batch.., window axes.., whole axes..].
std::vector<int64_t> slice_axes(Node& n, const Windows& w, const Places& p, size_t rank) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < rank; ++i)
    if (!has(w.offset_dims, static_cast<int64_t>(i))) out.push_back(static_cast<int64_t>(i));
  // The axes of the windows have the same order in the slices as in the operand.
  std::vector<int64_t> in_order = p.window_axes;
  in_order.insert(in_order.end(), p.whole.begin(), p.whole.end());
  std::vector<int64_t> sorted = in_order;
  std::ranges::sort(sorted);
  if (out.size() != p.batch_rank || sorted.size() != w.offset_dims.size() ||
      !std::ranges::is_sorted(w.offset_dims))
    n.refuse("its slices do not fit its dimension numbers");
  for (const int64_t axis : in_order)
    out.push_back(
        w.offset_dims[static_cast<size_t>(std::ranges::find(sorted, axis) - sorted.begin())]);
  return out;
}

Tensor gathered(Node& n) {
  const Windows w =
      windows_of(n, "dimension_numbers", "offset_dims", "collapsed_slice_dims",
                 "operand_batching_dims", "start_indices_batching_dims", "start_index_map");
  const Tensor& x = n[0];
  const std::vector<int64_t> sizes = n.integers("slice_sizes");
  if (sizes.size() != x.rank()) n.refuse("its sizes are of another rank");
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] < 0 || sizes[i] > extent(x, i)) n.refuse("its slices are larger than the operand");
  const Places p = places_of(n, w, x, n[1], sizes, true);
  const TensorType& type = n.result();
  const std::vector<int64_t> axes = slice_axes(n, w, p, type.shape.rank());
  std::vector<int64_t> order(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) order[at(axes[i])] = static_cast<int64_t>(i);
  // Then no element is read, and the operand may have no elements.
  for (const Expr& e : type.shape)
    if (e.is_constant(0)) return full(type.dtype, to_dims(type.shape), 0);
  return permute(take(lined(x, p), p.places, 0), order);
}

// Some places may not exist. If a monoid combines the elements, the terms for such places become
// the identity. Else the operand gets one more row, which receives these terms. If there is only
// one element, no row is needed: it rewrites the value that is there.
Tensor scattered(Node& n) {
  const size_t count = n.count() / 2;
  if (n.count() != 3) n.refuse(fmt::format("a scatter into {} tensors at once", count));
  const Windows w = windows_of(n, "scatter_dimension_numbers", "update_window_dims",
                               "inserted_window_dims", "input_batching_dims",
                               "scatter_indices_batching_dims", "scatter_dims_to_operand_dims");
  const Block& block = n.region(0);
  const auto monoid = monoid_of(block);
  const bool replaces = block.operations.size() == 1 && block.arguments.size() == 2 &&
                        block.operations[0].operands == std::vector{block.arguments[1].name};
  if (!monoid && !replaces)
    n.refuse("it combines elements by a function that is no monoid of ours");
  const Tensor &x = n[0], &updates = n[2];
  for (const Dim& dim : updates.shape())
    if (dim == Dim(0)) return x;
  // The extents of the windows follow from the shape of the updates.
  std::vector<int64_t> sizes(x.rank(), 1);
  size_t next = 0;
  for (size_t i = 0; i < x.rank(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    if (has(w.collapsed, axis) || has(w.batching, axis)) continue;
    if (next >= w.offset_dims.size()) n.refuse("its updates do not fit its dimension numbers");
    const int64_t from = w.offset_dims[next++];
    if (from < 0 || at(from) >= updates.rank())
      n.refuse("its updates do not fit its dimension numbers");
    sizes[i] = extent(updates, at(from));
  }
  Places p = places_of(n, w, x, n[1], sizes, false);
  Tensor terms = permute(updates, slice_axes(n, w, p, updates.rank()));
  Tensor line = lined(x, p);
  const int64_t rows = extent(line, 0);
  if (rows == 0) return x;
  bool is_padded = false;
  if (p.inside.valid() && !n.is_all(p.inside, 1)) {
    int64_t windows = 1;
    for (size_t i = 0; i < p.batch_rank; ++i) windows *= extent(p.places, i);
    Dims aligned = p.inside.shape();
    aligned.resize(terms.rank(), Dim(1));
    const Tensor inside = reshape(p.inside, aligned);
    if (monoid) {
      const Tensor nothing = scalar_bits(x.dtype(), info(*monoid).padding(x.dtype()));
      p.places = where(p.inside, p.places, 0);
      terms = where(inside, terms, nothing);
    } else if (windows == 1 && p.window_axes.empty()) {
      p.places = where(p.inside, p.places, 0);
      terms = where(inside, terms, take(line, p.places, 0));
    } else {
      p.places = where(p.inside, p.places, rows);
      Dims high(line.rank(), Dim(0));
      high[0] = 1;
      line = pad(line, Dims(line.rank(), Dim(0)), high, scalar_bits(x.dtype(), 0));
      is_padded = true;
    }
  }
  const auto& builder = x.builder();
  Tensor out =
      detail::wrap(builder, build::scatter(builder->graph, {monoid, 0}, detail::node_of(line),
                                           detail::node_of(p.places), detail::node_of(terms),
                                           detail::place(Where::current())));
  if (is_padded) out = slice(out, 0, 0, rows);
  // The result gets the operand's axes again.
  std::vector<int64_t> order = p.moving;
  order.insert(order.end(), p.whole.begin(), p.whole.end());
  Dims shape;
  for (const int64_t axis : order) shape.push_back(x.dim(axis));
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[at(order[i])] = static_cast<int64_t>(i);
  return permute(reshape(out, shape), back);
}

// ---- Sorting ------------------------------------------------------------------------------------

// Every pair [.., other, self, ..] has been compared. An element's number is the number of elements
// that come before it. The result has the places of the elements with the numbers 0, 1, ..
Tensor places_by_number(const Tensor& is_before, const Tensor& is_behind, int64_t axis,
                        int64_t count) {
  const Dims pairs = is_before.shape();
  const Tensor other = arange(i64, pairs, axis), self = arange(i64, pairs, axis + 1);
  // Equal elements keep their order.
  const Tensor first = is_before | ((!is_behind) & (other < self));
  const Tensor number = sum(cast(first, i64), Axes(axis));
  Dims chosen = number.shape();
  chosen.insert(chosen.begin() + axis, Dim(count));
  const Tensor is_number = expand_dims(number, axis) == arange(i64, chosen, axis);
  return sum(where(is_number, arange(i64, chosen, axis + 1), full(i64, chosen, 0)), Axes(axis + 1));
}

Tensors sorted(Node& n) {
  n.ignore("is_stable");  // our sort always is
  const Tensor& x = n[0];
  const auto rank = static_cast<int64_t>(x.rank());
  int64_t axis = n.integer("dimension", -1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) n.refuse("there is no such axis");
  const int64_t count = extent(x, at(axis));
  if (count < 2) return n.operands(0, n.count());
  if (count > kMostSorted)
    n.refuse(fmt::format("a sort of {} elements: what is sorted is compared by pairs, up to {}",
                         count, kMostSorted));
  // The arguments of the comparison are two of the first operand, two of the second, and so on.
  Tensors forward, backward;
  for (const Tensor& operand : n.operands(0, n.count())) {
    const Tensor other = expand_dims(operand, axis + 1), self = expand_dims(operand, axis);
    forward.insert(forward.end(), {other, self});
    backward.insert(backward.end(), {self, other});
  }
  Dims pairs = x.shape();
  pairs.insert(pairs.begin() + axis, Dim(count));
  const auto all = [&](const Tensors& arguments) {
    return broadcast_to(n.apply(n.region(0), arguments, 1)[0], pairs);
  };
  const Tensor places = places_by_number(all(forward), all(backward), axis, count);
  Tensors out;
  for (const Tensor& operand : n.operands(0, n.count()))
    out.push_back(take_along_axis(operand, places, axis));
  return out;
}

// The greatest elements along the last axis. Floats have their total order.
Tensors top_k(Node& n) {
  const Tensor& x = n[0];
  const int64_t k = n.integer("k"), axis = static_cast<int64_t>(x.rank()) - 1;
  n.ignore("largest");
  if (axis < 0) n.refuse("there is no axis");
  const int64_t count = extent(x, at(axis));
  if (k < 0 || k > count) n.refuse(fmt::format("k is {}, of {}", k, count));
  if (count > kMostSorted)
    n.refuse(
        fmt::format("the greatest of {} elements: what is sorted is compared by pairs, up to {}",
                    count, kMostSorted));
  const Tensor keys = is_floating(x.dtype()) ? total_order(x) : x;
  const Tensor other = expand_dims(keys, axis + 1), self = expand_dims(keys, axis);
  const Tensor places = places_by_number(other > self, self > other, axis, k);
  return {take_along_axis(x, places, axis), cast(places, n.result(1).dtype)};
}

}  // namespace

const Rows& indexing_rows() {
  static const Rows kRows = {
      {"chlo.top_k", top_k},
      {"stablehlo.dynamic_slice", dynamically_sliced},
      {"stablehlo.dynamic_update_slice", dynamically_updated},
      {"stablehlo.gather", gathered},
      {"stablehlo.scatter", scattered},
      {"stablehlo.sort", sorted},
  };
  return kRows;
}

}  // namespace braze::stablehlo
