// elementwise.cpp — the elementwise functions and operators on Tensors.
#include "braze/elementwise.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "frontend/builder/builder.h"
#include "ir/ops/elementwise.h"
#include "ir/support/text.h"

namespace braze {
namespace detail {
namespace {

constexpr const char* kOrdinals[] = {"first", "second", "third"};

std::string types_text(const Graph& graph, std::span<const NodeId> operands) {
  std::string out;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i > 0) out += i + 1 == operands.size() ? " and " : ", ";
    out += graph[operands[i]].type.to_string();
  }
  return out;
}

std::string types_text(TypeSet types) {
  std::string out;
  for (const DType dtype : kAllDTypes) {
    if (!types.contains(dtype)) continue;
    if (!out.empty()) out += ", ";
    out += name(dtype);
  }
  return out;
}

}  // namespace

Shape broadcast_shape(const Graph& graph, std::span<const NodeId> operands, const char* op,
                      SourceLocation where) {
  size_t rank = 0;
  for (const NodeId operand : operands) rank = std::max(rank, graph[operand].type.shape.rank());
  std::vector<Expr> dims(rank, Expr(1));
  for (const NodeId operand : operands) {
    const Shape& shape = graph[operand].type.shape;
    for (size_t i = 0; i < shape.rank(); ++i) {
      Expr& dim = dims[rank - shape.rank() + i];
      if (dim == shape[i] || shape[i].is_constant(1)) continue;
      if (!dim.is_constant(1))
        fail(codes::kShapeMismatch,
             fmt::format("{}: {} do not broadcast, {} is not {}", op, types_text(graph, operands),
                         shape[i].to_string(), dim.to_string()),
             {.location = where,
              .node = op,
              .fix = "axes align at the end; expand_dims or reshape one so that extents meet "
                     "equal ones or 1"});
      dim = shape[i];
    }
  }
  return Shape(std::move(dims));
}

Tensor elementwise(ElementwiseOp op, std::span<const Operand> operands, Where call) {
  const SourceLocation where = place(call);
  const ElementwiseInfo& row = info(op);
  const bool is_select = op == ElementwiseOp::select;
  const char* op_name = called(is_select ? "where" : row.name.data());  // names are literals

  std::vector<const Tensor*> tensors;
  std::optional<DType> dtype;   // that of the first Tensor or Array
  std::optional<DType> number;  // that of the numbers, which counts if there is no other
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    if (operand.kind() == Operand::Kind::Tensor) tensors.push_back(&operand.tensor());
    if (dtype || (is_select && i == 0)) continue;
    if (operand.kind() == Operand::Kind::Array) dtype = operand.array().dtype();
    if (operand.kind() != Operand::Kind::Tensor || !operand.tensor().valid()) continue;
    const DType own = operand.tensor().dtype();
    if (!operand.tensor().is_number())
      dtype = own;
    else if (number != DType::F64)
      number = own;
  }
  const bool is_number = !dtype && number;
  if (is_number) dtype = number;
  const std::shared_ptr<Builder>& builder =
      tensors.empty() ? current_builder(where) : builder_of(tensors, op_name, where);
  if (!dtype)
    fail(codes::kNoTensor, fmt::format("{}: an operation on numbers alone has no dtype", op_name),
         {.location = where, .node = op_name, .fix = "make one of them a tensor with full"});

  Graph& graph = builder->graph;
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < operands.size(); ++i) {
    const DType wanted = is_select && i == 0 ? DType::Bool : *dtype;
    nodes.push_back(node_of(as_tensor(operands[i], builder, wanted, op_name, where)));
  }
  if (is_select && graph[nodes[0]].type.dtype != DType::Bool)
    fail(
        codes::kDTypeMismatch,
        fmt::format("{}: the condition is {}, not bool", op_name, graph[nodes[0]].type.to_string()),
        {.location = where, .node = op_name, .fix = "compare it with something, as in x > 0"});
  for (size_t i = 0; i < nodes.size(); ++i) {
    const DType got = graph[nodes[i]].type.dtype;
    const DType wanted = is_select && i == 0 ? DType::Bool : *dtype;
    if (got != wanted)
      fail(codes::kDTypeMismatch,
           fmt::format("{}: {} have different dtypes, and there is no implicit promotion", op_name,
                       types_text(graph, nodes)),
           {.location = where,
            .node = op_name,
            .fix = fmt::format("cast the {} operand with cast(..., {})", kOrdinals[i],
                               wanted == DType::Bool ? "boolean" : name(wanted))});
  }
  if (!row.types.contains(*dtype))
    fail(codes::kDTypeMismatch,
         fmt::format("{}: is not defined on {}, only on {}", op_name, types_text(graph, nodes),
                     types_text(row.types)),
         {.location = where,
          .node = op_name,
          .fix = is_stored_float(*dtype) ? "cast the operands to f32" : "cast the operands first"});

  const Shape shape = broadcast_shape(graph, nodes, op_name, where);
  for (NodeId& node : nodes) node = build::broadcast_to(graph, node, shape, where);
  const Tensor result = wrap(builder, build::map(graph, op, std::move(nodes), where));
  return is_number ? as_number(result) : result;
}

}  // namespace detail

#define BRAZE_DEFINE_1(function, op)                                \
  Tensor function(const Tensor& x, Where where) {                   \
    const Operand operands[] = {Operand(x, where)};                 \
    return detail::elementwise(ElementwiseOp::op, operands, where); \
  }
#define BRAZE_DEFINE_2(function, op)                                 \
  Tensor function(const Operand& x, const Operand& y, Where where) { \
    const Operand operands[] = {x, y};                               \
    return detail::elementwise(ElementwiseOp::op, operands, where);  \
  }
#define BRAZE_DEFINE_3(function, op)                                                   \
  Tensor function(const Operand& x, const Operand& y, const Operand& z, Where where) { \
    const Operand operands[] = {x, y, z};                                              \
    return detail::elementwise(ElementwiseOp::op, operands, where);                    \
  }
#include "frontend/elementwise_functions.inc"

// An operator cannot have a parameter for the location, so the operands bring it.
#define BRAZE_OPERATOR(symbol, op)                                      \
  Tensor operator symbol(const Operand& x, const Operand& y) {          \
    const Operand operands[] = {x, y};                                  \
    return detail::elementwise(ElementwiseOp::op, operands, x.where()); \
  }
BRAZE_OPERATOR(+, add)
BRAZE_OPERATOR(-, sub)
BRAZE_OPERATOR(*, mul)
BRAZE_OPERATOR(/, div)
BRAZE_OPERATOR(%, rem)
BRAZE_OPERATOR(==, eq)
BRAZE_OPERATOR(!=, ne)
BRAZE_OPERATOR(<, lt)
BRAZE_OPERATOR(<=, le)
BRAZE_OPERATOR(>, gt)
BRAZE_OPERATOR(>=, ge)
BRAZE_OPERATOR(&, logical_and)
BRAZE_OPERATOR(|, logical_or)
BRAZE_OPERATOR(^, logical_xor)

Tensor operator-(const Operand& x) {
  return detail::elementwise(ElementwiseOp::neg, {&x, 1}, x.where());
}
Tensor operator~(const Operand& x) {
  return detail::elementwise(ElementwiseOp::logical_not, {&x, 1}, x.where());
}
Tensor operator!(const Operand& x) { return ~x; }

Tensor& operator+=(Tensor& x, const Operand& y) { return x = Operand(x, y.where()) + y; }
Tensor& operator-=(Tensor& x, const Operand& y) { return x = Operand(x, y.where()) - y; }
Tensor& operator*=(Tensor& x, const Operand& y) { return x = Operand(x, y.where()) * y; }
Tensor& operator/=(Tensor& x, const Operand& y) { return x = Operand(x, y.where()) / y; }

Tensor where(const Operand& condition, const Operand& x, const Operand& y, Where where) {
  const Operand operands[] = {condition, x, y};
  return detail::elementwise(ElementwiseOp::select, operands, where);
}

Tensor cast(const Tensor& x, DType dtype, Where where) {
  const SourceLocation at = detail::place(where);
  const auto& builder = detail::builder_of(x, "cast", at);
  if (x.dtype() == dtype) return detail::wrap(builder, detail::node_of(x));  // no longer a number
  return detail::wrap(builder, build::convert(builder->graph, detail::node_of(x), dtype, at));
}

Tensor bitcast(const Tensor& x, DType dtype, Where where) {
  const SourceLocation at = detail::place(where);
  const auto& builder = detail::builder_of(x, "bitcast", at);
  if (x.dtype() == dtype) return x;
  return detail::wrap(builder, build::bitcast(builder->graph, detail::node_of(x), dtype, at));
}

namespace {

/// x^exponent for a positive exponent. For each of its bits, from the highest down, it squares, and
/// multiplies if the bit is set.
Tensor product_power(const Tensor& x, int64_t exponent) {
  Tensor power = x;
  for (int bit = std::bit_width(static_cast<uint64_t>(exponent)) - 1; --bit >= 0;) {
    power = power * power;
    if (exponent >> bit & 1) power = power * x;
  }
  return power;
}

bool has_integer(DType dtype, int64_t value) {
  const auto number = static_cast<double>(value);
  return bits_to_double(dtype, constant_bits(dtype, number)) == number;
}

}  // namespace

Tensor detail::integer_power(const Tensor& x, int64_t exponent, Where where) {
  const Place place(where, "pow");
  const SourceLocation at = detail::place(where);
  builder_of(x, "pow", at);
  const auto like_x = [&](const Tensor& power) { return x.is_number() ? as_number(power) : power; };
  // Only in this range can f64 represent every integer.
  constexpr int64_t kGreatest = int64_t{1} << 53;
  if (exponent < -kGreatest || exponent > kGreatest)
    fail(codes::kBadNumber, fmt::format("pow: the exponent {} is out of range", exponent),
         {.location = at, .node = "pow", .fix = "use an exponent between -2^53 and 2^53"});
  if (exponent == 0) return ones_like(x);
  const DType dtype = x.dtype();
  if (!is_floating(dtype)) {
    if (exponent < 0)
      fail(codes::kDTypeMismatch,
           fmt::format("pow: {} to the power {} has no integer values", x.to_string(), exponent),
           {.location = at, .node = "pow", .fix = "cast x to a floating dtype"});
    return product_power(x, exponent);
  }
  if (exponent == 1) return x;
  if (exponent == -1) return reciprocal(x);
  DType wide = compute_type(dtype);
  if (1 < exponent && exponent <= 4)
    return like_x(cast(product_power(cast(x, wide), exponent), dtype));
  // If the dtype rounded the exponent, then it would be another exponent. For example, an odd one
  // could become even.
  wide = has_integer(dtype, exponent) ? dtype : has_integer(wide, exponent) ? wide : DType::F64;
  return like_x(cast(braze::pow(cast(x, wide), static_cast<double>(exponent)), dtype));
}

namespace {

/// x in a dtype that can be compared. That is f32 for floats shorter than that.
Tensor comparable(const Tensor& x, const char* op, Where where) {
  const SourceLocation at = detail::place(where);
  detail::builder_of(x, op, at);
  if (!is_floating(x.dtype()))
    fail(codes::kDTypeMismatch, fmt::format("{}: {} is not of a floating dtype", op, x.to_string()),
         {.location = at, .node = op, .fix = "every integer is finite"});
  return cast(x, compute_type(x.dtype()));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Tensor is_finite(const Tensor& x, Where where) {
  const detail::Place all(where, "is_finite");
  return abs(comparable(x, "is_finite", where)) < kInfinity;
}

Tensor is_inf(const Tensor& x, Where where) {
  const detail::Place all(where, "is_inf");
  return abs(comparable(x, "is_inf", where)) == kInfinity;
}

Tensor next_after(const Operand& from, const Operand& to, Where where) {
  const detail::Place all(where, "next_after");
  // What is computed with the sum finds the operands' common dtype and shape.
  const Tensor sum = add(from, to);
  const DType dtype = sum.dtype();
  if (!is_floating(dtype))
    fail(codes::kDTypeMismatch, fmt::format("next_after: {} is not floating", sum.to_string()),
         {.location = detail::place(where), .node = "next_after", .fix = "add 1, or subtract it"});
  const auto& builder = sum.builder();
  const auto whole = [&](const Operand& x) {
    return broadcast_to(detail::as_tensor(x, builder, dtype, "next_after", detail::place(where)),
                        sum.shape());
  };
  const Tensor x = whole(from), y = whole(to);
  const DType as = size_of(dtype) == 8 ? i64 : size_of(dtype) == 4 ? i32 : i16;
  const Tensor bits = bitcast(x, as);
  // The bits without the sign count the numbers from zero on.
  const Tensor is_outwards = (x < y) == (x > 0.0);
  const Tensor neighbour = bitcast(braze::where(is_outwards, bits + 1, bits - 1), dtype);
  const Tensor least = bitcast(full_like(bits, 1), dtype);
  const Tensor from_zero = braze::where(y < 0.0, -least, least);
  return braze::where(is_nan(x) | is_nan(y), sum,
                      braze::where(x == y, y, braze::where(x == 0.0, from_zero, neighbour)));
}

Tensor stop_gradient(const Tensor& x, Where where) {
  const detail::Place place(where);
  // Two bitcasts, to an integer dtype and back: no gradient flows through integers. The pair is
  // removed when the function is complete.
  switch (x.dtype()) {
    case DType::F64:
      return bitcast(bitcast(x, i64), f64);
    case DType::F32:
      return bitcast(bitcast(x, i32), f32);
    case DType::F16:
      return bitcast(bitcast(x, bf16), f16);
    case DType::BF16:
      return bitcast(bitcast(x, f16), bf16);
    default:
      return x;
  }
}

}  // namespace braze
