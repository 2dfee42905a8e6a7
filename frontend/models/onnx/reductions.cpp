// reductions.cpp — operators that combine elements along axes.
#include <numeric>

#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

// The axes to reduce. It is nullopt if x stays as it is.
std::optional<Axes> axes_to_reduce(OnnxNode& n) {
  std::vector<int64_t> axes = n.axes(1).value_or(std::vector<int64_t>{});
  const bool stays = n.integer("noop_with_empty_axes", 0) != 0;
  if (axes.empty()) {
    if (stays || n[0].rank() == 0) return std::nullopt;
    axes.resize(n[0].rank());
    std::iota(axes.begin(), axes.end(), int64_t{0});
  }
  return Axes(n.axes_of(axes, n[0].rank()));
}

using Reduce = Tensor (*)(const Tensor&, const Axes&, bool, Where);
using Map = Tensor (*)(const Tensor&);

Tensor as_is(const Tensor& x) { return x; }
Tensor magnitude(const Tensor& x) { return abs(x); }
Tensor squared(const Tensor& x) { return square(x); }
Tensor root(const Tensor& x) { return sqrt(x); }
Tensor logarithm(const Tensor& x) { return log(x); }

// Reduces `before` of x, and applies `after` to the result. Floats shorter than f32 are computed in
// f32 and rounded once.
template <Reduce reduce, Map before = as_is, Map after = as_is>
Tensor reduced(OnnxNode& n) {
  const auto axes = axes_to_reduce(n);
  const bool keep = n.integer("keepdims", 1) != 0;
  const Tensor x = before(widened(n[0]));
  return cast(after(axes ? reduce(x, *axes, keep, Where::current()) : x), n[0].dtype());
}

// The greatest or least element. Bools have a reduction of their own.
template <Reduce reduce, Reduce of_bools>
Tensor extreme(OnnxNode& n) {
  const auto axes = axes_to_reduce(n);
  const bool keep = n.integer("keepdims", 1) != 0;
  if (!axes) return n[0];
  return (n[0].dtype() == boolean ? of_bools : reduce)(n[0], *axes, keep, Where::current());
}

Tensor average(const Tensor& x, const Axes& axes, bool keep, Where) {
  if (is_floating(x.dtype())) return mean(x, axes, keep);
  return sum(x, axes, keep) / count(x, axes, x.dtype());
}

template <bool is_max>
Tensor place_of_extreme(OnnxNode& n) {
  const int64_t axis = n.axis(n.integer("axis", 0), n[0].rank());
  const bool keep = n.integer("keepdims", 1) != 0;
  const bool last = n.integer("select_last_index", 0) != 0;
  const Tensor x = last ? reverse(n[0], Axes(axis)) : n[0];
  const Tensor place = is_max ? argmax(x, axis, keep) : argmin(x, axis, keep);
  return last ? count(x, Axes(axis), i64) - 1 - place : place;
}

template <Tensor (*scan)(const Tensor&, int64_t, Running, Where)>
Tensor running(OnnxNode& n) {
  const int64_t axis = n.axis(n.number(1, "axis"), n[0].rank());
  const Running how{.reverse = n.integer("reverse", 0) != 0,
                    .exclusive = n.integer("exclusive", 0) != 0};
  return scan(n[0], axis, how, Where::current());
}

}  // namespace

const Rows& reduction_rows() {
  static const Rows kRows = {
      {"ArgMax", place_of_extreme<true>},
      {"ArgMin", place_of_extreme<false>},
      {"CumProd", running<cumprod>, 26},
      {"CumSum", running<cumsum>, 11},
      {"ReduceL1", reduced<sum, magnitude>},
      {"ReduceL2", reduced<sum, squared, root>},
      {"ReduceLogSum", reduced<sum, as_is, logarithm>},
      {"ReduceLogSumExp", reduced<logsumexp>},
      {"ReduceMax", extreme<max, any>},
      {"ReduceMean", reduced<average>},
      {"ReduceMin", extreme<min, all>},
      {"ReduceProd", reduced<prod>},
      {"ReduceSum", reduced<sum>},
      {"ReduceSumSquare", reduced<sum, squared>},
  };
  return kRows;
}

}  // namespace braze::onnx
