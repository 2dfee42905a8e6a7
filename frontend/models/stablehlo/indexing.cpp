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

// The axes that a gather or scatter names. `within` is the attribute that holds them in the generic
// form.
GatherAxes axes_of(Node& n, std::string_view within, const char* windows, const char* collapsed,
                   const char* batch, const char* index_batch, const char* indexed) {
  const auto list = [&](const char* name) {
    return n.integers(name, std::vector<int64_t>(), within);
  };
  GatherAxes out{.indexed = list(indexed),
                 .windows = list(windows),
                 .collapsed = list(collapsed),
                 .batch = list(batch),
                 .index_batch = list(index_batch)};
  const std::vector<int64_t> vector =
      n.integers("index_vector_dim", std::vector<int64_t>{0}, within);
  if (vector.size() != 1) n.refuse("its index_vector_dim is no number");
  out.vector = vector[0];
  n.ignore("indices_are_sorted");
  n.ignore("unique_indices");
  return out;
}

bool spans(const GatherAxes& axes, int64_t axis) {
  return !has(axes.collapsed, axis) && !has(axes.batch, axis);
}

Tensor gathered(Node& n) {
  const GatherAxes axes =
      axes_of(n, "dimension_numbers", "offset_dims", "collapsed_slice_dims",
              "operand_batching_dims", "start_indices_batching_dims", "start_index_map");
  std::vector<int64_t> sizes = n.integers("slice_sizes");
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!spans(axes, static_cast<int64_t>(i))) sizes[i] = 1;
  return gather(n[0], n[1], to_extents(sizes), axes, Outside::Clamp);
}

// Whether all windows of a scatter are known to lie within the operand. Axes that do not exist are
// not judged here, because `scatter` refuses them.
bool are_inside(Node& n, const GatherAxes& axes) {
  const Tensor &x = n[0], &updates = n[2];
  const auto exist = [](const std::vector<int64_t>& list, size_t rank) {
    return std::ranges::all_of(list, [&](int64_t a) { return a >= 0 && at(a) < rank; });
  };
  const auto indices = n.known(n[1]);
  if (!indices || axes.indexed.empty() || !exist(axes.indexed, x.rank()) ||
      !exist(axes.windows, updates.rank()) || !exist({axes.vector}, n[1].rank() + 1))
    return false;
  std::vector<int64_t> last;  // the last start along each axis
  size_t next = 0;
  for (size_t i = 0; i < x.rank(); ++i) {
    const bool spanned = spans(axes, static_cast<int64_t>(i)) && next < axes.windows.size();
    last.push_back(extent(x, i) - (spanned ? extent(updates, at(axes.windows[next++])) : 1));
  }
  int64_t inner = 1;
  for (size_t i = at(axes.vector) + 1; i < n[1].rank(); ++i) inner *= extent(n[1], i);
  for (int64_t i = 0; i < indices->numel(); ++i) {
    const size_t element = at(i / inner) % axes.indexed.size();
    const int64_t start = indices->get_int(i);
    if (start < 0 || start > last[at(axes.indexed[element])]) return false;
  }
  return true;
}

std::optional<Scatter> scatter_of(Monoid monoid) {
  for (const Scatter how :
       {Scatter::Add, Scatter::Mul, Scatter::Max, Scatter::Min, Scatter::And, Scatter::Or})
    if (detail::monoid_of(how) == monoid) return how;
  return std::nullopt;
}

Tensor scattered(Node& n) {
  const size_t count = n.count() / 2;
  if (n.count() != 3) n.refuse(fmt::format("a scatter into {} tensors at once", count));
  const GatherAxes axes = axes_of(n, "scatter_dimension_numbers", "update_window_dims",
                                  "inserted_window_dims", "input_batching_dims",
                                  "scatter_indices_batching_dims", "scatter_dims_to_operand_dims");
  const Block& block = n.region(0);
  const auto monoid = monoid_of(block);
  const bool replaces = block.operations.size() == 1 && block.arguments.size() == 2 &&
                        block.operations[0].operands == std::vector{block.arguments[1].name};
  const auto how = monoid ? scatter_of(*monoid) : Scatter::Set;
  if (!how || (!monoid && !replaces))
    n.refuse("it combines elements by a function that is no monoid of ours");
  return scatter(n[0], n[1], n[2], axes, *how,
                 are_inside(n, axes) ? Outside::Never : Outside::Drop);
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
