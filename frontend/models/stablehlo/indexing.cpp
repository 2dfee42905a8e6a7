// indexing.cpp — operations that read or write at places that other tensors contain, and sorting.
#include <algorithm>
#include <numeric>
#include <set>

#include "frontend/models/stablehlo/node.h"
#include "ir/support/text.h"

namespace braze::stablehlo {

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

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

// What elements are sorted by.
struct SortKey {
  NodeId key;
  bool descending = false;
};

// Finds the keys of a comparison that was applied to `one` and `other`, and to them the other way
// round. Keys must be made of one side alone.
class SortKeys {
 public:
  SortKeys(const Graph& graph, std::set<uint32_t> ones, std::set<uint32_t> others)
      : graph_(graph), ones_(std::move(ones)), others_(std::move(others)) {}

  // The keys, the first of which decides first; none if the comparison is of another form.
  std::vector<SortKey> find(NodeId forward, NodeId backward) {
    keys_.clear();
    if (!add(forward, backward)) keys_.clear();
    return keys_;
  }

 private:
  // x < y, or x < y | (x == y & the rest).
  bool add(NodeId forward, NodeId backward) {
    if (const auto key = key_of(forward, backward)) {
      keys_.push_back(*key);
      return true;
    }
    if (!is(forward, ElementwiseOp::logical_or) || !is(backward, ElementwiseOp::logical_or))
      return false;
    for (const size_t first : {0, 1}) {
      const NodeId rest = operand(forward, 1 - first), rest_back = operand(backward, 1 - first);
      const auto key = key_of(operand(forward, first), operand(backward, first));
      if (!key || !is(rest, ElementwiseOp::logical_and) ||
          !is(rest_back, ElementwiseOp::logical_and))
        continue;
      for (const size_t equal : {0, 1}) {
        const NodeId equality = operand(rest, equal);
        if (!is(equality, ElementwiseOp::eq) ||
            (operand(equality, 0) != key->key && operand(equality, 1) != key->key) ||
            !compares_sides(equality, operand(rest_back, equal)))
          continue;
        keys_.push_back(*key);
        return add(operand(rest, 1 - equal), operand(rest_back, 1 - equal));
      }
    }
    return false;
  }

  std::optional<SortKey> key_of(NodeId forward, NodeId backward) {
    const bool less = is(forward, ElementwiseOp::lt);
    if ((!less && !is(forward, ElementwiseOp::gt)) || !compares_sides(forward, backward))
      return std::nullopt;
    // Whichever side stands on the left, the comparison says whether `one` comes first.
    const bool in_order = is_of_ones(operand(forward, 0));
    return SortKey{operand(forward, in_order ? 0 : 1), less != in_order};
  }

  // Whether the comparison is one of a value of `one` with the same value of `other`.
  bool compares_sides(NodeId forward, NodeId backward) {
    if (graph_[forward].op != graph_[backward].op || graph_[forward].operands.size() != 2)
      return false;
    const NodeId left = operand(forward, 0), right = operand(forward, 1);
    return left != right && left == operand(backward, 1) && right == operand(backward, 0) &&
           (is_of_ones(left) || is_of_ones(right));
  }

  bool is_of_ones(NodeId node) { return reaches(node, ones_) && !reaches(node, others_); }
  bool reaches(NodeId node, const std::set<uint32_t>& ends) {
    std::vector<NodeId> left = {node};
    std::set<uint32_t> seen;
    while (!left.empty()) {
      const NodeId next = left.back();
      left.pop_back();
      if (ends.contains(next.index)) return true;
      if (ones_.contains(next.index) || others_.contains(next.index)) continue;
      for (const NodeId operand : graph_[next].operands)
        if (seen.insert(operand.index).second) left.push_back(operand);
    }
    return false;
  }
  bool is(NodeId node, ElementwiseOp op) const {
    const MapOp* map = graph_[node].as<MapOp>();
    return map && map->op == op;
  }
  NodeId operand(NodeId node, size_t i) const { return graph_[node].operands[i]; }

  const Graph& graph_;
  std::set<uint32_t> ones_, others_;
  std::vector<SortKey> keys_;
};

// The order of the elements along the axis by the function of a sort. Its arguments are two of the
// first operand, two of the second, and so on.
Tensor order_by_function(Node& n, int64_t axis) {
  const auto& builder = n[0].builder();
  Tensors forward, backward;
  std::set<uint32_t> ones, others;
  for (const Tensor& one : n.operands(0, n.count())) {
    // The same elements as another value, so that both sides can be told apart.
    const NodeId node = detail::node_of(one);
    const NodeId same[] = {node};
    const Tensor other = detail::wrap(builder, build::barrier(builder->graph, node, same));
    forward.insert(forward.end(), {one, other});
    backward.insert(backward.end(), {other, one});
    ones.insert(node.index);
    others.insert(detail::node_of(other).index);
  }
  const NodeId first = detail::node_of(n.apply(n.region(0), forward, 1)[0]);
  const NodeId second = detail::node_of(n.apply(n.region(0), backward, 1)[0]);
  const auto keys =
      SortKeys(builder->graph, std::move(ones), std::move(others)).find(first, second);
  if (keys.empty())
    n.refuse(
        "a sort by a function other than x < y or x > y of keys that are made of one element each, "
        "where further keys may decide between equal ones");
  // The sorts keep the order of equal elements, so the last key comes first.
  std::optional<Tensor> order;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const Tensor of = broadcast_to(detail::wrap(builder, key->key), n[0].shape());
    const Tensor next =
        argsort(order ? take_along_axis(of, *order, axis) : of, axis, key->descending);
    order = order ? take_along_axis(*order, next, axis) : next;
  }
  return *order;
}

Tensors sorted(Node& n) {
  n.ignore("is_stable");  // our sort always is
  const Tensor& x = n[0];
  const auto rank = static_cast<int64_t>(x.rank());
  int64_t axis = n.integer("dimension", -1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) n.refuse("there is no such axis");
  const Tensor order = order_by_function(n, axis);
  Tensors out;
  for (const Tensor& operand : n.operands(0, n.count()))
    out.push_back(take_along_axis(operand, order, axis));
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
  const Tensor places = braze::top_k(is_floating(x.dtype()) ? total_order(x) : x, k, axis).indices;
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
