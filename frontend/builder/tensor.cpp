#include "braze/tensor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <ostream>

#include "braze/named.h"
#include "frontend/builder/builder.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"
#include "ir/values/value_of.h"

namespace braze {

// ---- Dim --------------------------------------------------------------------------------------

namespace {

/// Removes an integer from the front of `text` and returns it.
std::optional<int64_t> take_integer(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The symbol that a text such as "n:1..64%8" describes. It is nullopt for other texts.
std::optional<Expr> parse_symbol(std::string_view text) {
  const size_t length =
      static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_word) - text.begin());
  const std::string_view name = text.substr(0, length);
  if (name.empty() || is_digit(name[0])) return std::nullopt;
  text.remove_prefix(length);
  if (!take(text, ":")) return std::nullopt;
  const auto least = take_integer(text);
  if (!least || !take(text, "..")) return std::nullopt;
  const auto greatest = take_integer(text);
  int64_t divisor = 1;
  if (take(text, "%")) divisor = take_integer(text).value_or(0);
  if (!greatest || !text.empty() || divisor < 1) return std::nullopt;
  if (*least < 0 || *greatest / divisor * divisor < *least) return std::nullopt;
  return Expr::symbol(name, {*least, *greatest}, divisor);
}

}  // namespace

void detail::fail_extent(uint64_t extent) {
  fail(codes::kBadDim, fmt::format("{} is too large for an extent", extent));
}

Dim::Dim(const char* declaration, std::source_location where) {
  const auto symbol = parse_symbol(declaration);
  if (!symbol)
    fail(codes::kBadDim, fmt::format("{} does not declare a symbolic extent", quote(declaration)),
         {.location = where,
          .fix = "write a name and its range, such as \"n:1..64\" or \"n:8..1024%8\" (multiples "
                 "of 8)"});
  if (is_reserved_symbol(symbol->symbol_name()))
    fail(codes::kBadDim,
         fmt::format("{} is a reserved name and cannot name an extent", symbol->symbol_name()),
         {.location = where, .fix = "choose another name"});
  expr_ = std::make_shared<const Expr>(*symbol);
}

Dim::Dim(std::shared_ptr<const Expr> expr) : expr_(std::move(expr)) {}

int64_t Dim::value() const {
  if (expr_)
    fail(codes::kBadDim,
         fmt::format("the extent {} is symbolic and does not have a single value", to_string()),
         {.fix = "compute with the Dim itself, or compile for a constant extent"});
  return value_;
}

std::string Dim::to_string() const { return expr_ ? expr_->to_string() : std::to_string(value_); }

Dim operator+(const Dim& a, const Dim& b) { return to_dim(to_expr(a) + to_expr(b)); }
Dim operator-(const Dim& a, const Dim& b) { return to_dim(to_expr(a) - to_expr(b)); }
Dim operator*(const Dim& a, const Dim& b) { return to_dim(to_expr(a) * to_expr(b)); }
Dim operator/(const Dim& a, const Dim& b) { return to_dim(floordiv(to_expr(a), to_expr(b))); }
bool operator==(const Dim& a, const Dim& b) { return to_expr(a) == to_expr(b); }

Expr to_expr(const Dim& dim) { return dim.is_constant() ? Expr(dim.value()) : *dim.expr(); }

Dim to_dim(const Expr& expr) {
  if (const auto value = expr.as_constant()) return Dim(*value);
  return Dim(std::make_shared<const Expr>(expr));
}

std::vector<Expr> to_exprs(const Dims& dims) {
  std::vector<Expr> out;
  for (const Dim& dim : dims) out.push_back(to_expr(dim));
  return out;
}

Shape to_shape(const Dims& dims) { return Shape(to_exprs(dims)); }

Dims to_dims(const Shape& shape) {
  Dims out;
  for (const Expr& extent : shape) out.push_back(to_dim(extent));
  return out;
}

// ---- Scopes -----------------------------------------------------------------------------------

namespace detail {
namespace {

thread_local std::shared_ptr<Builder> innermost;
thread_local std::optional<SourceLocation> outermost_place;
thread_local const char* outermost_function = nullptr;

}  // namespace

BuilderScope::BuilderScope(std::shared_ptr<Builder> builder)
    : outer_(std::exchange(innermost, std::move(builder))) {}
BuilderScope::~BuilderScope() {
  // They may hold Tensors, which hold the builder.
  innermost->custom_gradients.clear();
  innermost = std::move(outer_);
}

const std::shared_ptr<Builder>& current_builder(SourceLocation where) {
  if (!innermost)
    fail(codes::kNoTensor, "no graph is under construction here",
         {.location = where, .fix = "call this inside a function for jit"});
  return innermost;
}

Place::Place(SourceLocation where, const char* function) : outermost_(!outermost_place) {
  if (!outermost_) return;
  outermost_place = where;
  outermost_function = function;
}
Place::~Place() {
  if (!outermost_) return;
  outermost_place.reset();
  outermost_function = nullptr;
}

SourceLocation place(Where where) { return outermost_place.value_or(where); }
const char* called(const char* op) { return outermost_function ? outermost_function : op; }

// ---- Operands ---------------------------------------------------------------------------------

const std::shared_ptr<Builder>& builder_of(std::span<const Tensor* const> tensors, const char* op,
                                           SourceLocation where) {
  for (const Tensor* tensor : tensors) {
    if (!tensor->valid())
      fail(codes::kNoTensor, fmt::format("{}: an operand is an empty Tensor", op),
           {.location = where, .node = op});
    if (tensor->builder() != tensors[0]->builder())
      fail(codes::kForeignTensor,
           fmt::format("{}: the operands {} and {} belong to two functions being traced", op,
                       tensors[0]->to_string(), tensor->to_string()),
           {.location = where, .node = op, .fix = "pass values to a function as arguments"});
  }
  return tensors[0]->builder();
}

std::optional<uint64_t> number_bits(const Operand& number, DType dtype) {
  const Operand::Kind kind = number.kind();
  if (is_floating(dtype)) {
    const double value =
        kind == Operand::Kind::Integer ? static_cast<double>(number.integer()) : number.real();
    if (kind == Operand::Kind::Boolean || !is_value(value, dtype)) return std::nullopt;
    return constant_bits(dtype, value);
  }
  if (kind == Operand::Kind::Real) {
    if (!is_value(number.real(), dtype)) return std::nullopt;
    return constant_bits(dtype, number.real());
  }
  const bool negative = kind != Operand::Kind::Unsigned && number.integer() < 0;
  const auto bits = static_cast<uint64_t>(number.integer());
  return integer_bits(dtype, negative, negative ? 0 - bits : bits);
}

void fail_number(const Operand& number, DType dtype, std::string_view subject, const char* op,
                 SourceLocation where) {
  const Operand::Kind kind = number.kind();
  const bool is_real = kind == Operand::Kind::Real;
  std::string text, better;
  if (kind == Operand::Kind::Boolean && is_floating(dtype)) {
    text = "a bool";
    better = "bool";
  } else if (is_floating(dtype)) {
    text = number_text(kind == Operand::Kind::Integer ? static_cast<double>(number.integer())
                                                      : number.real());
    better = "f64";
  } else if (is_real) {
    text = number_text(number.real());
    better = "f32";
  } else {
    const bool is_unsigned = kind == Operand::Kind::Unsigned;
    text = is_unsigned ? std::to_string(static_cast<uint64_t>(number.integer()))
                       : std::to_string(number.integer());
    better = is_unsigned ? "u64" : "i64";
  }
  fail(codes::kBadNumber, fmt::format("{}: {} is not a value of {}", subject, text, name(dtype)),
       {.location = where,
        .node = op,
        .fix = fmt::format("choose a dtype that has this value, such as {}", better)});
}

namespace {

/// The number that a constant node holds.
std::optional<Operand> constant_of(const Node& node) {
  const auto* constant = node.as<ConstantOp>();
  if (!constant) return std::nullopt;
  const int64_t integer = constant->value->get_int(0);
  if (node.type.dtype == DType::I64) return Operand(integer);
  if (node.type.dtype == DType::U64) return Operand(static_cast<uint64_t>(integer));
  return Operand(constant->value->get_double(0));
}

/// A number takes another dtype, so it must be a value of that dtype. A constant is checked now. An
/// argument is recorded, and checked at every call.
void note_use(const std::shared_ptr<Builder>& builder, NodeId number, DType dtype, const char* op,
              SourceLocation where) {
  const Node& node = builder->graph[number];
  if (node.as<InputOp>()) builder->number_uses.emplace_back(number, dtype, where);
  const std::optional<Operand> known = constant_of(node);
  if (known && !number_bits(*known, dtype)) fail_number(*known, dtype, op, op, where);
}

}  // namespace

Tensor as_tensor(const Operand& operand, const std::shared_ptr<Builder>& builder, DType dtype,
                 const char* op, SourceLocation where) {
  switch (operand.kind()) {
    case Operand::Kind::Tensor: {
      const Tensor& tensor = operand.tensor();
      const bool converts = tensor.is_number() && dtype != DType::Bool &&
                            (is_floating(dtype) || tensor.dtype() != DType::F64);
      if (!converts || tensor.dtype() == dtype) return tensor;
      note_use(builder, node_of(tensor), dtype, op, where);
      return wrap(builder, build::convert(builder->graph, node_of(tensor), dtype, where));
    }
    case Operand::Kind::Array:
      return wrap(builder, build::constant(builder->graph, operand.array().to_host(), where));
    default:
      const std::optional<uint64_t> bits = number_bits(operand, dtype);
      if (!bits) fail_number(operand, dtype, op, op, where);
      return wrap(builder, build::scalar_bits(builder->graph, dtype, *bits, where));
  }
}

Tensor as_number(const Tensor& tensor) {
  const bool has_kind =
      tensor.dtype() == DType::F64 || tensor.dtype() == DType::I64 || tensor.dtype() == DType::U64;
  return Tensor(Handle{tensor.builder(), node_of(tensor), has_kind});
}

int64_t to_axis(int64_t axis, size_t rank, const char* op, SourceLocation where) {
  const auto count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count)
    fail(codes::kBadAxis,
         fmt::format("{}: there is no axis {} in a tensor with {} axes", op, axis, rank),
         {.location = where, .node = op});
  return axis < 0 ? axis + count : axis;
}

std::vector<int64_t> to_axes(const Axes& axes, size_t rank, const char* op, SourceLocation where) {
  std::vector<int64_t> out;
  if (axes.all())
    for (size_t i = 0; i < rank; ++i) out.push_back(static_cast<int64_t>(i));
  for (const int64_t axis : axes.values()) out.push_back(to_axis(axis, rank, op, where));
  std::sort(out.begin(), out.end());
  if (const auto twice = std::adjacent_find(out.begin(), out.end()); twice != out.end())
    fail(codes::kBadAxis, fmt::format("{}: axis {} is named twice", op, *twice),
         {.location = where, .node = op});
  return out;
}

// ---- Named ------------------------------------------------------------------------------------

bool is_name(std::string_view text) {
  return !text.empty() && text.front() != '.' && text.back() != '.' &&
         text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == '.'; });
}

void check_name(std::string_view name, Where where) {
  if (!is_name(name))
    fail(codes::kBadName, fmt::format("{} cannot be the name of a parameter", quote(name)),
         {.location = place(where), .fix = "use letters, digits, '_' and dots between them"});
}

void fail_duplicate_name(std::string_view name, Where where) {
  fail(codes::kBadName, fmt::format("there is a parameter {} already", quote(name)),
       {.location = place(where)});
}

void fail_unknown_name(std::string_view name, const std::vector<std::string>& names, Where where) {
  const auto same = [](const std::string& text) { return text; };
  fail(codes::kBadName,
       fmt::format("there is no parameter {} among [{}]", quote(name), join(names, ", ", same)),
       {.location = place(where)});
}

void fail_names_differ(const std::vector<std::string>& a, const std::vector<std::string>& b,
                       Where where) {
  const auto same = [](const std::string& text) { return text; };
  fail(codes::kBadName,
       fmt::format("two collections need the same names in the same order, but have [{}] and [{}]",
                   join(a, ", ", same), join(b, ", ", same)),
       {.location = place(where)});
}

uint64_t mix_name(uint64_t seed, std::string_view name) { return hash_combine(seed, hash64(name)); }

}  // namespace detail

// ---- Tensor -----------------------------------------------------------------------------------

namespace {

const TensorType& checked_type(const Tensor& tensor) {
  if (!tensor.valid()) fail(codes::kNoTensor, "this Tensor is empty");
  return detail::type_of(tensor);
}

}  // namespace

Tensor::Tensor(const detail::Handle& handle)
    : builder_(handle.builder), id_(handle.node.index), is_number_(handle.is_number) {}

DType Tensor::dtype() const { return checked_type(*this).dtype; }
size_t Tensor::rank() const { return checked_type(*this).shape.rank(); }
Dims Tensor::shape() const { return to_dims(checked_type(*this).shape); }
Dim Tensor::dim(int64_t axis) const {
  const Shape& shape = checked_type(*this).shape;
  return to_dim(shape[static_cast<size_t>(detail::to_axis(axis, shape.rank(), "dim", {}))]);
}
Dim Tensor::numel() const { return to_dim(checked_type(*this).shape.numel()); }
std::string Tensor::to_string() const {
  return valid() ? checked_type(*this).to_string() : "an empty Tensor";
}

Tensor Tensor::label(std::string name) const {
  checked_type(*this);
  builder_->graph.set_label(NodeId(id_), std::move(name));
  return *this;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << tensor.to_string();
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

}  // namespace braze
