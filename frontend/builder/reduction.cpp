// reduction.cpp — sums and other reductions, and contractions.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "braze/elementwise.h"
#include "frontend/builder/builder.h"
#include "ir/ops/combiner.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kBadCombine{
    "bad-combine", ErrorKind::InvalidArgument,
    "The function or the tuples that are given to `scan` do not fit."};
}  // namespace codes

using detail::builder_of;
using detail::node_of;
using detail::place;
using detail::wrap;

namespace {

/// The shape of x with the extents of `axes` (sorted) set to 1.
Dims keep_dims(const Tensor& x, const std::vector<int64_t>& axes) {
  Dims shape = x.shape();
  for (const int64_t axis : axes) shape[static_cast<size_t>(axis)] = Dim(1);
  return shape;
}

void check_dtype(Monoid monoid, const Tensor& x, const char* op, const SourceLocation& where) {
  if (!info(monoid).types.contains(x.dtype()))
    fail(codes::kDTypeMismatch, fmt::format("{}: is not defined on {}", op, x.to_string()),
         {.location = where, .node = op, .fix = "cast it first"});
}

Tensor reduce(const char* function, Monoid monoid, const Tensor& x, const Axes& axes, bool keepdims,
              Where call) {
  const SourceLocation where = place(call);
  const char* op = detail::called(function);
  const auto& builder = builder_of(x, op, where);
  check_dtype(monoid, x, op, where);
  const std::vector<int64_t> which = detail::to_axes(axes, x.rank(), op, where);
  if (which.empty()) return x;
  const Tensor reduced =
      wrap(builder, build::reduce(builder->graph, monoid, node_of(x), which, where));
  return keepdims ? reshape(reduced, keep_dims(x, which), call) : reduced;
}

Tensor running(const char* function, Monoid monoid, const Tensor& x, int64_t axis, Running how,
               Where call) {
  const SourceLocation where = place(call);
  const char* op = detail::called(function);
  const auto& builder = builder_of(x, op, where);
  check_dtype(monoid, x, op, where);
  axis = detail::to_axis(axis, x.rank(), op, where);
  const ScanOp attributes{monoid, axis, how.reverse, how.exclusive};
  return wrap(builder, build::scan(builder->graph, attributes, node_of(x), where));
}

// Steps of a combiner's body for the nodes of a graph whose inputs are the parts of two tuples.
class CombinerTrace {
 public:
  CombinerTrace(const std::vector<Tensor>& parts, const std::vector<double>& identity,
                SourceLocation where)
      : builder_(std::make_shared<detail::Builder>("combine")), where_(where) {
    for (size_t i = 0; i < parts.size(); ++i) {
      body_.dtypes.push_back(compute_type(parts[i].dtype()));
      body_.identity.push_back(constant_bits(body_.dtypes.back(), identity[i]));
    }
  }

  Combiner combiner(const CombineFunction& combine) && {
    const auto left = tuple(CombinerStep::Kind::Left), right = tuple(CombinerStep::Kind::Right);
    std::vector<Tensor> results;
    {
      const detail::BuilderScope scope(builder_);
      results = combine(left, right);
    }
    if (results.size() != left.size())
      fail_combine(fmt::format("`combine` returns {} tensors for tuples of {}", results.size(),
                               left.size()));
    for (size_t i = 0; i < results.size(); ++i) {
      if (builder_of(results[i], "scan", where_) != builder_)
        fail_combine("`combine` returns a tensor that does not depend on its arguments");
      const uint32_t step = this->step(node_of(results[i]));
      if (body_.steps[step].dtype != body_.dtypes[i])
        fail_combine(fmt::format("part {} is {}, but `combine` returns {}", i,
                                 name(body_.dtypes[i]), name(body_.steps[step].dtype)));
      body_.results.push_back(step);
    }
    return Combiner(std::move(body_));
  }

 private:
  [[noreturn]] void fail_combine(const std::string& message) const {
    fail(codes::kBadCombine, "scan: " + message,
         {.location = where_,
          .node = "scan",
          .fix = "make each result from the two tuples by elementwise functions"});
  }

  std::vector<Tensor> tuple(CombinerStep::Kind kind) {
    std::vector<Tensor> out;
    const bool left = kind == CombinerStep::Kind::Left;
    for (uint32_t i = 0; i < body_.dtypes.size(); ++i) {
      const NodeId input = build::input(builder_->graph, fmt::format("{}{}", left ? "x" : "y", i),
                                        {body_.dtypes[i], Shape()}, where_);
      steps_[input] = body_.add({.kind = kind, .dtype = body_.dtypes[i], .part = i});
      out.push_back(wrap(builder_, input));
    }
    return out;
  }

  uint32_t step(NodeId id) {
    if (const auto found = steps_.find(id); found != steps_.end()) return found->second;
    const Node& node = builder_->graph[id];
    std::vector<uint32_t> arguments;
    for (const NodeId operand : node.operands) arguments.push_back(step(operand));
    const auto* constant = node.as<ConstantOp>();
    const auto* row = node.as<MapOp>();
    const bool is_same = node.as<BroadcastOp>() || node.as<ReshapeOp>() || node.as<BarrierOp>();
    uint32_t out = 0;
    if (node.type.shape.rank() == 0 && constant)
      out = body_.add({.kind = CombinerStep::Kind::Constant,
                       .dtype = node.type.dtype,
                       .bits = constant->value->get_bits(0)});
    else if (node.type.shape.rank() == 0 && row && info(row->op).result != ResultRule::Chosen)
      out = add_row(body_, row->op, arguments);
    else if (node.type.shape.rank() == 0 && is_same)
      out = arguments[0];
    else
      fail_combine(fmt::format("`combine` uses {}, which is not elementwise",
                               row ? std::string(name(row->op)) : std::string(op_name(node.op))));
    if (body_.steps.size() > kMostCombinerSteps)
      fail_combine(fmt::format("`combine` has more than {} operations", kMostCombinerSteps));
    return steps_[id] = out;
  }

  std::shared_ptr<detail::Builder> builder_;
  SourceLocation where_;
  CombinerBody body_;
  std::map<NodeId, uint32_t> steps_;
};

std::vector<Tensor> scan_parts(const char* op, const Combiner& combiner,
                               const std::vector<Tensor>& parts, int64_t axis, Running how,
                               SourceLocation where) {
  std::vector<const Tensor*> all;
  std::vector<NodeId> nodes;
  for (const Tensor& part : parts) all.push_back(&part);
  const auto& builder = builder_of(all, op, where);
  for (const Tensor& part : parts) nodes.push_back(node_of(part));
  axis = detail::to_axis(axis, parts[0].rank(), op, where);
  std::vector<Tensor> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ScanOp attributes{combiner, axis, how.reverse, how.exclusive, static_cast<int64_t>(i)};
    out.push_back(wrap(builder, build::scan(builder->graph, attributes, nodes, where)));
  }
  return out;
}

void check_floating(const Tensor& x, const char* op) {
  if (!is_arithmetic_float(x.dtype()))
    fail(codes::kDTypeMismatch, fmt::format("{}: {} is not floating", op, x.to_string()),
         {.location = place(Where::current()), .node = op, .fix = "cast it to f32 first"});
}

Tensor arg_reduce(bool is_max, const Tensor& x, int64_t axis, bool keepdims, Where call) {
  const SourceLocation where = place(call);
  const char* op = is_max ? "argmax" : "argmin";
  const auto& builder = builder_of(x, op, where);
  axis = detail::to_axis(axis, x.rank(), op, where);
  const Tensor index =
      wrap(builder, build::arg_reduce(builder->graph, is_max, node_of(x), axis, where));
  return keepdims ? reshape(index, keep_dims(x, {axis}), call) : index;
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("sum", Monoid::Sum, x, axes, keepdims, where);
}
Tensor prod(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("prod", Monoid::Prod, x, axes, keepdims, where);
}
Tensor max(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("max", Monoid::Max, x, axes, keepdims, where);
}
Tensor min(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("min", Monoid::Min, x, axes, keepdims, where);
}
Tensor any(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("any", Monoid::Or, x, axes, keepdims, where);
}
Tensor all(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  return reduce("all", Monoid::And, x, axes, keepdims, where);
}

Tensor mean(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  const detail::Place place(where);
  check_floating(x, "mean");
  // The sum of a 16-bit tensor may exceed the dtype's range even if the mean does not.
  const DType wide = compute_type(x.dtype());
  return cast(sum(cast(x, wide), axes, keepdims) / count(x, axes, wide), x.dtype());
}

Tensor var(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  const detail::Place place(where);
  check_floating(x, "var");
  const Tensor wide = cast(x, compute_type(x.dtype()));
  return cast(mean(square(wide - mean(wide, axes, true)), axes, keepdims), x.dtype());
}

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keepdims, Where where) {
  const detail::Place place(where);
  check_floating(x, "logsumexp");
  const Tensor greatest = stop_gradient(max(x, axes, true));
  // An infinite maximum is not subtracted, because inf - inf is NaN.
  const Tensor shift =
      braze::where(abs(greatest) < std::numeric_limits<double>::infinity(), greatest, 0);
  const Tensor total = log(sum(exp(x - shift), axes, true)) + shift;
  if (keepdims) return total;
  Dims shape;
  const std::vector<int64_t> gone = detail::to_axes(axes, x.rank(), "logsumexp", where);
  for (int64_t i = 0; i < static_cast<int64_t>(x.rank()); ++i)
    if (!std::binary_search(gone.begin(), gone.end(), i)) shape.push_back(x.dim(i));
  return reshape(total, std::move(shape));
}

Tensor argmax(const Tensor& x, int64_t axis, bool keepdims, Where where) {
  return arg_reduce(true, x, axis, keepdims, where);
}
Tensor argmin(const Tensor& x, int64_t axis, bool keepdims, Where where) {
  return arg_reduce(false, x, axis, keepdims, where);
}

Tensor cumsum(const Tensor& x, int64_t axis, Running how, Where where) {
  return running("cumsum", Monoid::Sum, x, axis, how, where);
}
Tensor cumprod(const Tensor& x, int64_t axis, Running how, Where where) {
  return running("cumprod", Monoid::Prod, x, axis, how, where);
}
Tensor cummax(const Tensor& x, int64_t axis, Running how, Where where) {
  return running("cummax", Monoid::Max, x, axis, how, where);
}
Tensor cummin(const Tensor& x, int64_t axis, Running how, Where where) {
  return running("cummin", Monoid::Min, x, axis, how, where);
}

std::vector<Tensor> scan(const CombineFunction& combine, const std::vector<Tensor>& parts,
                         const std::vector<double>& identity, int64_t axis, Running how,
                         Where call) {
  const SourceLocation where = place(call);
  if (parts.empty() || identity.size() != parts.size() || parts.size() > kMostCombinerParts)
    fail(codes::kBadCombine,
         fmt::format("scan: {} parts and an identity of {} numbers are given", parts.size(),
                     identity.size()),
         {.location = where,
          .node = "scan",
          .fix = fmt::format("give 1 to {} parts, and a number of the identity for each",
                             kMostCombinerParts)});
  for (const Tensor& part : parts) builder_of(part, "scan", where);
  return scan_parts("scan", CombinerTrace(parts, identity, where).combiner(combine), parts, axis,
                    how, where);
}

Tensor recurrence(const Tensor& a, const Tensor& b, int64_t axis, Running how, Where call) {
  const SourceLocation where = place(call);
  const Tensor* both[] = {&a, &b};
  builder_of(both, "recurrence", where);
  for (const Tensor* x : both) check_dtype(Monoid::Sum, *x, "recurrence", where);
  return scan_parts("recurrence", linear_recurrence(compute_type(b.dtype())), {a, b}, axis, how,
                    where)[1];
}

Tensor dot_general(const Tensor& x, const Tensor& y, const DotAxes& axes, Where call) {
  const SourceLocation where = place(call);
  const Tensor* both[] = {&x, &y};
  const auto& builder = builder_of(both, "dot", where);
  DotOp op{axes.batch_left, axes.batch_right, axes.contract_left, axes.contract_right, axes.tf32};
  for (int64_t& axis : op.batch_left) axis = detail::to_axis(axis, x.rank(), "dot", where);
  for (int64_t& axis : op.contract_left) axis = detail::to_axis(axis, x.rank(), "dot", where);
  for (int64_t& axis : op.batch_right) axis = detail::to_axis(axis, y.rank(), "dot", where);
  for (int64_t& axis : op.contract_right) axis = detail::to_axis(axis, y.rank(), "dot", where);
  return wrap(builder, build::dot(builder->graph, node_of(x), node_of(y), std::move(op),
                                  axes.result, where));
}

namespace {

[[noreturn]] void fail_dot(const Tensor& x, const Tensor& y, const std::string& why,
                           SourceLocation where) {
  fail(codes::kShapeMismatch,
       fmt::format("dot: {} and {} do not multiply: {}", x.to_string(), y.to_string(), why),
       {.location = where,
        .node = "dot",
        .fix = "the last axis of the left operand is summed with the second to last (or only) axis "
               "of the right"});
}

/// 0, 1 ... count - 1.
std::vector<int64_t> first_axes(size_t count) {
  std::vector<int64_t> out(count);
  std::iota(out.begin(), out.end(), int64_t{0});
  return out;
}

}  // namespace

Tensor dot(const Tensor& x, const Tensor& y, std::optional<DType> result, Where call) {
  const detail::Place all(call);
  const SourceLocation where = place(call);
  const Tensor* both[] = {&x, &y};
  builder_of(both, "dot", where);
  if (x.rank() == 0 || y.rank() == 0) fail_dot(x, y, "a scalar has no axis to sum over", where);
  const int64_t y_axis = y.rank() == 1 ? 0 : static_cast<int64_t>(y.rank()) - 2;
  if (!(x.dim(-1) == y.dim(y_axis)))
    fail_dot(x, y, fmt::format("{} is not {}", x.dim(-1).to_string(), y.dim(y_axis).to_string()),
             where);
  DotAxes axes{.contract_left = {-1}, .contract_right = {y_axis}, .result = result};

  // The usual case: y has no batch axes, so those of x just pass through.
  if (y.rank() <= 2) return dot_general(x, y, axes);
  if (x.rank() <= 2) {
    // The product's axes are m, the batch of y, and n. The batch must come first.
    const Tensor product = dot_general(x, y, axes);
    if (x.rank() == 1) return product;
    std::vector<int64_t> order;
    for (size_t i = 1; i + 1 < product.rank(); ++i) order.push_back(static_cast<int64_t>(i));
    order.push_back(0);
    order.push_back(static_cast<int64_t>(product.rank()) - 1);
    return permute(product, std::move(order));
  }

  const Dims x_dims = x.shape(), y_dims = y.shape();
  const size_t batch = std::max(x.rank(), y.rank()) - 2;
  Dims shape(batch, Dim(1));
  for (const Dims* dims : {&x_dims, &y_dims})
    for (size_t i = 0; i + 2 < dims->size(); ++i) {
      Dim& dim = shape[batch - (dims->size() - 2) + i];
      if (dim == (*dims)[i] || (*dims)[i] == Dim(1)) continue;
      if (!(dim == Dim(1)))
        fail_dot(x, y,
                 fmt::format("the batch extents {} and {} do not broadcast", dim.to_string(),
                             (*dims)[i].to_string()),
                 where);
      dim = (*dims)[i];
    }
  const auto with_batch = [&shape](const Tensor& tensor) {
    Dims dims = shape;
    dims.push_back(tensor.dim(-2));
    dims.push_back(tensor.dim(-1));
    return broadcast_to(tensor, dims);
  };
  axes.batch_left = axes.batch_right = first_axes(batch);
  axes.contract_right = {-2};
  return dot_general(with_batch(x), with_batch(y), axes);
}

}  // namespace braze
