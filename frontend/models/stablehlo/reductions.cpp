// reductions.cpp — reductions over axes and over windows, by any function of scalars. Three kinds
// are built: reductions by one of our monoids, pairs of a greatest (or least) value and its index,
// and, if there are few elements, other functions, which are applied element by element.
#include <algorithm>
#include <numeric>

#include "braze/windows.h"
#include "frontend/models/stablehlo/node.h"
#include "ir/support/text.h"

namespace braze::stablehlo {

namespace {

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

// The most elements that are reduced one by one, which happens if the function is not a monoid.
constexpr int64_t kMostUnrolled = 256;

// The operands of a reduction, their initial values, and its function.
struct Reduction {
  Node& n;
  Tensors values, starts;
  std::vector<int64_t> axes;  // in increasing order
  const Block& block;
};

// ---- Pairs of a value and an index --------------------------------------------------------------

// Whether the results of `block` depend only on comparisons of its arguments.
bool only_compares(const Block& block) {
  constexpr std::string_view kNames[] = {
      "stablehlo.and",     "stablehlo.or",      "stablehlo.xor",    "stablehlo.not",
      "stablehlo.maximum", "stablehlo.minimum", "stablehlo.select", "stablehlo.return"};
  return std::ranges::all_of(block.operations, [&](const Operation& operation) {
    if (operation.name != "stablehlo.compare")
      return std::ranges::find(kNames, operation.name) != std::end(kNames);
    const auto type = operation.attributes.find("compare_type");
    return type == operation.attributes.end() || type->second.text != "TOTALORDER";
  });
}

Tensor list_of(DType dtype, const std::vector<double>& values) {
  HostTensor out(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) out.set_double(static_cast<int64_t>(i), values[i]);
  const auto& builder = detail::current_builder({});
  return detail::wrap(builder, build::constant(builder->graph, std::move(out)));
}

// Whether the block keeps the greatest (true) or least (false) value with its index. Of equal
// values it must keep the first, and NaN must win against other values. Such a block only compares,
// so it is tried with arguments in every order. The left pair counts as the first.
std::optional<bool> keeps_extreme(const Reduction& r) {
  const DType dtype = r.values[0].dtype(), index = r.values[1].dtype();
  if (!is_integer(index) || !only_compares(r.block)) return std::nullopt;
  std::vector<double> left = {1, 2, 1}, right = {2, 1, 1};
  if (is_floating(dtype)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    left.insert(left.end(), {nan, 1, nan});
    right.insert(right.end(), {1, nan, nan});
  }
  const std::vector<double> zeros(left.size(), 0), ones(left.size(), 1);
  const Tensors out = r.n.apply(
      r.block,
      {list_of(dtype, left), list_of(index, zeros), list_of(dtype, right), list_of(index, ones)},
      2);
  const auto values = r.n.known(out[0]), indices = r.n.known(out[1]);
  if (!values || !indices || values->numel() != static_cast<int64_t>(left.size()) ||
      indices->numel() != values->numel())
    return std::nullopt;
  for (const bool greatest : {true, false}) {
    bool fits = true;
    for (size_t i = 0; i < left.size(); ++i) {
      const double a = left[i], b = right[i];
      const bool is_left = a != a || (b == b && (greatest ? a >= b : a <= b));
      const auto at_i = static_cast<int64_t>(i);
      const double value = values->get_double(at_i), expected = is_left ? a : b;
      fits &= indices->get_int(at_i) == (is_left ? 0 : 1) &&
              (value == expected || (value != value && expected != expected));
    }
    if (fits) return greatest;
  }
  return std::nullopt;
}

bool counts_along(const Tensor& x, int64_t axis) {
  const braze::Node& node = x.builder()->graph[detail::node_of(x)];
  const auto* iota = node.as<IotaOp>();
  return iota && iota->axis == axis;
}

std::optional<Tensors> extreme_pair(const Reduction& r) {
  if (r.values.size() != 2 || r.axes.size() != 1 || extent(r.values[0], at(r.axes[0])) == 0 ||
      !counts_along(r.values[1], r.axes[0]))
    return std::nullopt;
  const auto greatest = keeps_extreme(r);
  if (!greatest) return std::nullopt;
  const int64_t axis = r.axes[0];
  const Tensor& x = r.values[0];
  const Tensor value = *greatest ? max(x, axis) : min(x, axis);
  const Tensor place = cast(*greatest ? argmax(x, axis) : argmin(x, axis), r.values[1].dtype());
  // If the initial value is the worst value there is, then it changes nothing.
  const uint64_t worst = info(*greatest ? Monoid::Max : Monoid::Min).identity(x.dtype());
  if (r.n.is_all(r.starts[0], worst) && r.n.is_all(r.starts[1], 0)) return Tensors{value, place};
  return r.n.apply(r.block, {r.starts[0], r.starts[1], value, place}, 2);
}

// ---- One by one ---------------------------------------------------------------------------------

// The values, with all reduced axes joined to one axis in front.
Tensor with_first(const Tensor& x, const std::vector<int64_t>& axes, int64_t count) {
  std::vector<int64_t> order = axes;
  Dims shape = {Dim(count)};
  for (size_t i = 0; i < x.rank(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    if (std::ranges::find(axes, axis) != axes.end()) continue;
    order.push_back(axis);
    shape.push_back(x.dim(axis));
  }
  return reshape(permute(x, order), shape);
}

Tensors one_by_one(const Reduction& r) {
  int64_t count = 1;
  for (const int64_t axis : r.axes) count *= extent(r.values[0], at(axis));
  if (count > kMostUnrolled)
    r.n.refuse(
        fmt::format("a reduction of {} elements by a function that is neither a sum, a "
                    "product, the greatest, the least, and, or, nor a pair of an extreme and "
                    "its index; up to {} are done one by one",
                    count, kMostUnrolled));
  Tensors lines;
  for (const Tensor& value : r.values) lines.push_back(with_first(value, r.axes, count));
  std::vector<Tensors> terms;
  for (int64_t i = 0; i < count; ++i) {
    Tensors term;
    for (const Tensor& line : lines) term.push_back(squeeze(slice(line, 0, i, i + 1), Axes(0)));
    terms.push_back(std::move(term));
  }
  // Neighbours are combined, then pairs of neighbours, and so on.
  while (terms.size() > 1) {
    std::vector<Tensors> next;
    for (size_t i = 0; i + 1 < terms.size(); i += 2) {
      Tensors both = terms[i];
      both.insert(both.end(), terms[i + 1].begin(), terms[i + 1].end());
      next.push_back(r.n.apply(r.block, both, r.values.size()));
    }
    if (terms.size() % 2) next.push_back(terms.back());
    terms = std::move(next);
  }
  Tensors both = r.starts;
  if (terms.empty()) {
    for (size_t i = 0; i < both.size(); ++i)
      both[i] = broadcast_to(both[i], to_dims(r.n.result(i).shape));
    return both;
  }
  both.insert(both.end(), terms[0].begin(), terms[0].end());
  return r.n.apply(r.block, both, r.values.size());
}

Tensors by_block(const Reduction& r) {
  if (r.values.size() == 1) {
    if (const auto monoid = monoid_of(r.block)) {
      const Tensor total = reduced(*monoid, r.values[0], r.axes);
      const MonoidInfo& row = info(*monoid);
      const DType dtype = total.dtype();
      const bool is_neutral = r.n.is_all(r.starts[0], row.identity(dtype)) ||
                              r.n.is_all(r.starts[0], row.padding(dtype));
      return {is_neutral ? total : combined(*monoid, r.starts[0], total)};
    }
  }
  if (auto pair = extreme_pair(r)) return std::move(*pair);
  return one_by_one(r);
}

// Half of the operands are reduced. The other half are the initial values.
size_t half_of(const Node& n) {
  if (n.count() == 0 || n.count() % 2) n.refuse("its operands are no pairs");
  return n.count() / 2;
}

Tensors over_axes(Node& n) {
  const size_t count = half_of(n);
  std::vector<int64_t> axes = n.integers("dimensions");
  std::ranges::sort(axes);
  return by_block({n, n.operands(0, count), n.operands(count, 2 * count), axes, n.region(0)});
}

// ---- Windows ------------------------------------------------------------------------------------

std::vector<Window> windows_of(Node& n, const Tensor& x) {
  const size_t rank = x.rank();
  const std::vector<int64_t> ones(rank, 1);
  const auto sizes = n.integers("window_dimensions", ones);
  const auto strides = n.integers("window_strides", ones);
  const auto dilations = n.integers("window_dilations", ones);
  const auto gaps = n.integers("base_dilations", ones);
  const auto padding = n.integers("padding", std::vector<int64_t>(2 * rank, 0));
  for (const auto* list : {&sizes, &strides, &dilations, &gaps})
    if (list->size() != rank) n.refuse("its windows are of another rank");
  if (padding.size() != 2 * rank) n.refuse("its padding is of another rank");
  std::vector<Window> out;
  for (size_t i = 0; i < rank; ++i)
    out.push_back({.axis = static_cast<int64_t>(i),
                   .size = sizes[i],
                   .stride = strides[i],
                   .dilation = dilations[i],
                   .gap = gaps[i],
                   .low = padding[2 * i],
                   .high = padding[2 * i + 1]});
  return out;
}

bool is_whole(const Window& window) {
  return window.size == 1 && window.stride == 1 && window.gap == 1 && window.low == Dim(0) &&
         window.high == Dim(0);
}

// If every window reaches from its element to the first (or last) element of the axis, then the
// reduction is a scan.
std::optional<Tensor> running(Monoid monoid, const Tensor& x, const std::vector<Window>& windows) {
  std::optional<Window> along;
  for (const Window& window : windows) {
    if (is_whole(window)) continue;
    if (along) return std::nullopt;
    along = window;
  }
  if (!along) return std::nullopt;
  const int64_t count = extent(x, at(along->axis));
  const bool forward = along->low == Dim(count - 1) && along->high == Dim(0);
  const bool backward = along->high == Dim(count - 1) && along->low == Dim(0);
  if (along->size != count || along->stride != 1 || along->dilation != 1 || along->gap != 1 ||
      (!forward && !backward))
    return std::nullopt;
  const auto& builder = x.builder();
  return detail::wrap(builder, build::scan(builder->graph, {monoid, along->axis, !forward, false},
                                           detail::node_of(x), detail::place(Where::current())));
}

// The windows of x, with the taps as last axes. Axes whose windows have one element get no taps.
Tensor taps_of(const Tensor& x, const std::vector<Window>& all, const Tensor& fill) {
  std::vector<Window> list;
  for (const Window& window : all)
    if (!is_whole(window)) list.push_back(window);
  return list.empty() ? x : windows(x, list, fill);
}

Tensors under_windows(Node& n) {
  const size_t count = half_of(n);
  const Tensors values = n.operands(0, count), starts = n.operands(count, 2 * count);
  const std::vector<Window> list = windows_of(n, values[0]);
  const Block& block = n.region(0);
  const auto monoid = count == 1 ? monoid_of(block) : std::nullopt;
  // Places beyond the end count as the initial value. If that changes nothing, our own identity is
  // taken instead.
  const uint64_t neutral = monoid ? info(*monoid).padding(values[0].dtype()) : 0;
  const bool is_neutral =
      monoid && (n.is_all(starts[0], neutral) ||
                 n.is_all(starts[0], info(*monoid).identity(values[0].dtype())));
  if (is_neutral)
    if (auto scan = running(*monoid, values[0], list)) return {*scan};
  Tensors taps;
  for (size_t i = 0; i < count; ++i)
    taps.push_back(
        taps_of(values[i], list, is_neutral ? scalar_bits(values[i].dtype(), neutral) : starts[i]));
  std::vector<int64_t> axes;
  for (size_t i = values[0].rank(); i < taps[0].rank(); ++i)
    axes.push_back(static_cast<int64_t>(i));
  return by_block({n, taps, starts, axes, block});
}

// ---- Select and scatter -------------------------------------------------------------------------

// Whether the block takes the greatest (true) or least (false) of two values. Of equal values it
// must take the first.
std::optional<bool> selects_extreme(const Block& block) {
  if (block.operations.size() != 2 || block.arguments.size() != 2) return std::nullopt;
  const Operation& compare = block.operations[0];
  const std::vector<ValueName> pair = {block.arguments[0].name, block.arguments[1].name};
  const auto direction = compare.attributes.find("comparison_direction");
  if (compare.name != "stablehlo.compare" || compare.operands != pair ||
      direction == compare.attributes.end() || block.operations[1].operands != compare.results)
    return std::nullopt;
  if (direction->second.text == "GE") return true;
  if (direction->second.text == "LE") return false;
  return std::nullopt;
}

// The source of each window is added to the window's greatest (or least) element. To do so, each
// source goes to one of its window's taps, and the transpose of the windows adds up all taps of an
// element.
Tensor selected_and_scattered(Node& n) {
  const Tensor &x = n[0], &source = n[1], &start = n[2];
  const std::vector<Window> all = windows_of(n, x);
  const auto greatest = selects_extreme(n.region(0));
  if (!greatest) n.refuse("it selects neither the greatest nor the least element");
  if (monoid_of(n.region(1)) != Monoid::Sum) n.refuse("it does not add what meets in a place");
  std::vector<Window> list;
  for (const Window& window : all)
    if (!is_whole(window)) list.push_back(window);
  const Monoid monoid = *greatest ? Monoid::Max : Monoid::Min;
  const Tensor taps = taps_of(x, all, scalar_bits(x.dtype(), info(monoid).identity(x.dtype())));
  const Tensor there = taps_of(full(boolean, x.shape(), 1), all, scalar_bits(boolean, 0));
  const auto rank = static_cast<int64_t>(x.rank());
  Dims one_line = source.shape();
  int64_t count = 1;
  for (const Window& window : list) count *= window.size;
  one_line.emplace_back(count);
  Dims aligned = source.shape();
  aligned.emplace_back(1);
  const Tensor values = reshape(taps, one_line);
  const Tensor best = expand_dims(reduced(monoid, values, {rank}), -1);
  const Tensor hits = reshape(there, one_line) & (values == best);
  const Tensor first = argmax(cast(hits, i32), -1, true);
  const Tensor chosen = arange(i64, one_line, rank) == first;
  const Tensor spread = where(chosen, reshape(source, aligned), scalar(source.dtype(), 0));
  WindowsOp back;
  Dims shape = source.shape();
  std::vector<int64_t> tap_axes;
  for (size_t i = 0; i < list.size(); ++i) {
    const Window& window = list[i];
    tap_axes.push_back(rank + static_cast<int64_t>(i));
    back.axes.push_back(window.axis);
    back.taps.push_back(tap_axes.back());
    back.strides.push_back(1);
    back.dilations.push_back(-window.dilation);
    back.gaps.push_back(window.stride);
    back.low.push_back(-to_expr(window.low));
    shape[at(window.axis)] = x.dim(window.axis);
  }
  Dims with_taps = source.shape(), result = shape;
  for (const Window& window : list) {
    with_taps.emplace_back(window.size);
    result.emplace_back(window.size);
  }
  Tensor out = reshape(spread, with_taps);
  if (!list.empty()) {
    const auto& builder = x.builder();
    out = detail::wrap(builder,
                       build::windows(builder->graph, detail::node_of(out),
                                      detail::node_of(scalar(source.dtype(), 0)), std::move(back),
                                      to_shape(result), detail::place(Where::current())));
    out = reduced(Monoid::Sum, out, tap_axes);
  }
  return n.is_all(start, 0) ? out : out + start;
}

}  // namespace

const Rows& reduction_rows() {
  static const Rows kRows = {
      {"stablehlo.reduce", over_axes},
      {"stablehlo.reduce_window", under_windows},
      {"stablehlo.select_and_scatter", selected_and_scattered},
  };
  return kRows;
}

}  // namespace braze::stablehlo
