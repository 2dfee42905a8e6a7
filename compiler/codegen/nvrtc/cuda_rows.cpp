// cuda_rows.cpp — machine rows as expressions of CUDA C++, one table entry each.
//
//   r.x r.y r.z   operands: names or literals
//   r.type        their dtype (of y and z for select); short floats are integers of their bits
//   r.result      the result's dtype
//
// NVRTC is told not to contract and not to approximate, so an operator on floats does exactly what
// the row says.
#include <cmath>
#include <cstring>

#include "compiler/codegen/nvrtc/cuda_preamble.h"
#include "compiler/codegen/nvrtc/nvrtc_p.h"
#include "ir/ops/elementwise.h"
#include "ir/ops/machine_semantics.h"
#include "ir/support/text.h"

namespace braze::codegen {

namespace {

using Op = ElementwiseOp;

struct Row {
  DType type, result;
  std::string x, y, z;

  bool is_float() const { return is_floating(type); }
};

std::string call(std::string_view function, const Row& r) {
  return fmt::format("b::{}({}, {})", function, r.x, r.y);
}
std::string infix(std::string_view op, const Row& r) {
  return fmt::format("({} {} {})", r.x, op, r.y);
}

// Integers wrap. Signed operators in C++ do not promise that, so integers use a function.
std::string arithmetic(std::string_view op, std::string_view wrapping, const Row& r) {
  return r.is_float() ? infix(op, r) : call(wrapping, r);
}

std::string extreme(std::string_view function, std::string_view logical, const Row& r) {
  return r.type == DType::Bool ? infix(logical, r) : call(function, r);
}

std::string logic(std::string_view op, const Row& r) {
  return fmt::format("{}{}", r.type == DType::Bool ? "(bool)" : "", infix(op, r));
}

// A call of a function whose name for float is that for double with an f at the end.
std::string real_function(std::string_view name, const Row& r) {
  return fmt::format("{}{}({})", name, r.type == DType::F32 ? "f" : "", r.x);
}

std::string widen(DType from, const std::string& x) {
  return fmt::format("b::{}_to_f32({})", name(from), x);
}
std::string narrow(DType to, const std::string& x) {
  return fmt::format("b::f32_to_{}({})", name(to), x);
}

// Shorter integers become `int` implicitly.
std::string integer_to_real(DType from, DType to, const std::string& x) {
  const bool is_long = size_of(from) == 8;
  const std::string_view integer = is_unsigned_integer(from) && size_of(from) >= 4
                                       ? (is_long ? "ull" : "uint")
                                       : (is_long ? "ll" : "int");
  return fmt::format("__{}2{}_rn({})", integer, to == DType::F64 ? "double" : "float", x);
}

std::string to_bool(const Row& r) {
  if (is_short_float(r.type))
    return fmt::format("(({} & {}) != 0)", r.x, is_half(r.type) ? "0x7fff" : "0x7f");
  return fmt::format("({} != 0)", r.x);
}

std::string convert(const Row& r) {
  const DType from = r.type, to = r.result;
  if (from == to) return r.x;
  if (from == DType::Bool)
    return fmt::format("({} ? {} : {})", r.x,
                       cuda_literal(to, evaluate_machine(Op::convert, DType::Bool, to, 1)),
                       cuda_literal(to, 0));
  if (to == DType::Bool) return to_bool(r);
  if (is_integer(from)) {
    if (is_integer(to)) return fmt::format("({})({})", cuda_type(to), r.x);
    if (!is_short_float(to)) return integer_to_real(from, to, r.x);
    const std::string exact = size_of(from) == 8 ? fmt::format("b::sticky({})", r.x)
                                                 : integer_to_real(from, DType::F64, r.x);
    return narrow(to, fmt::format("b::round_to_odd({})", exact));
  }
  if (is_short_float(from)) {
    const std::string wide = widen(from, r.x);
    if (to == DType::F32) return wide;
    if (to == DType::F64) return fmt::format("(double)({})", wide);
    return is_short_float(to) ? narrow(to, wide) : fmt::format("b::to_{}({})", name(to), wide);
  }
  if (is_integer(to)) return fmt::format("b::to_{}({})", name(to), r.x);
  if (to == DType::F64) return fmt::format("(double)({})", r.x);
  if (to == DType::F32) return fmt::format("__double2float_rn({})", r.x);
  return narrow(to, from == DType::F64 ? fmt::format("b::round_to_odd({})", r.x) : r.x);
}

std::string bitcast(const Row& r) {
  if (is_floating(r.type) == is_floating(r.result) || is_short_float(r.type) ||
      is_short_float(r.result))
    return fmt::format("({})({})", cuda_type(r.result), r.x);
  if (r.is_float()) return fmt::format("({})b::bits({})", cuda_type(r.result), r.x);
  return fmt::format("b::real(({})({}))", size_of(r.type) == 4 ? "u32" : "u64", r.x);
}

std::string negate(const Row& r) {
  if (r.is_float()) return fmt::format("(-{})", r.x);
  return fmt::format("b::wrap_sub(({})0, {})", cuda_type(r.type), r.x);
}

std::string absolute(const Row& r) {
  if (r.is_float()) return real_function("fabs", r);
  if (is_unsigned_integer(r.type)) return r.x;
  return fmt::format("({} < 0 ? {} : {})", r.x, negate(r), r.x);
}

std::string fused(const Row& r) {
  return fmt::format("__fma{}_rn({}, {}, {})", r.type == DType::F32 ? "f" : "", r.x, r.y, r.z);
}

using Emitter = std::string (*)(const Row&);

constexpr MachineTable<Emitter> kRows = {
    {Op::add, [](const Row& r) { return arithmetic("+", "wrap_add", r); }},
    {Op::sub, [](const Row& r) { return arithmetic("-", "wrap_sub", r); }},
    {Op::mul, [](const Row& r) { return arithmetic("*", "wrap_mul", r); }},
    {Op::div, [](const Row& r) { return arithmetic("/", "divide", r); }},
    {Op::rem, [](const Row& r) { return call("remainder", r); }},
    {Op::fma, fused},
    {Op::neg, negate},
    {Op::abs, absolute},
    {Op::min, [](const Row& r) { return extreme("minimum", "&&", r); }},
    {Op::max, [](const Row& r) { return extreme("maximum", "||", r); }},
    {Op::sqrt,
     [](const Row& r) {
       return fmt::format("__{}sqrt_rn({})", r.type == DType::F32 ? "f" : "d", r.x);
     }},
    {Op::floor, [](const Row& r) { return real_function("floor", r); }},
    {Op::ceil, [](const Row& r) { return real_function("ceil", r); }},
    {Op::round_even, [](const Row& r) { return real_function("rint", r); }},
    {Op::trunc, [](const Row& r) { return real_function("trunc", r); }},
    {Op::eq, [](const Row& r) { return infix("==", r); }},
    {Op::ne, [](const Row& r) { return infix("!=", r); }},
    {Op::lt, [](const Row& r) { return infix("<", r); }},
    {Op::le, [](const Row& r) { return infix("<=", r); }},
    {Op::gt, [](const Row& r) { return infix(">", r); }},
    {Op::ge, [](const Row& r) { return infix(">=", r); }},
    {Op::logical_and, [](const Row& r) { return logic("&", r); }},
    {Op::logical_or, [](const Row& r) { return logic("|", r); }},
    {Op::logical_xor, [](const Row& r) { return logic("^", r); }},
    {Op::logical_not,
     [](const Row& r) { return fmt::format("{}({})", r.type == DType::Bool ? "!" : "~", r.x); }},
    {Op::shl, [](const Row& r) { return call("shift_left", r); }},
    {Op::shr, [](const Row& r) { return call("shift_right", r); }},
    {Op::select, [](const Row& r) { return fmt::format("({} ? {} : {})", r.x, r.y, r.z); }},
    {Op::is_nan, [](const Row& r) { return fmt::format("({0} != {0})", r.x); }},
    {Op::convert, convert},
    {Op::bitcast, bitcast},
    {Op::inverse, [](const Row& r) { return fmt::format("b::inverse({})", r.x); }},
    {Op::approx_inverse, [](const Row& r) { return fmt::format("b::approx_inverse({})", r.x); }},
    {Op::approx_exp2, [](const Row& r) { return fmt::format("b::approx_exp2({})", r.x); }},
};

}  // namespace

std::string_view cuda_type(DType dtype) {
  constexpr DTypeTable<std::string_view> kTypes = {
      {DType::Bool, "bool"},  {DType::I8, "i8"},     {DType::U8, "u8"},     {DType::I16, "i16"},
      {DType::U16, "u16"},    {DType::I32, "int"},   {DType::U32, "u32"},   {DType::I64, "i64"},
      {DType::U64, "u64"},    {DType::F16, "u16"},   {DType::BF16, "u16"},  {DType::F32, "float"},
      {DType::F64, "double"}, {DType::F8E4M3, "u8"}, {DType::F8E5M2, "u8"},
  };
  return kTypes[dtype];
}

std::string cuda_literal(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::Bool:
      return bits ? "true" : "false";
    case DType::F32: {
      const auto word = static_cast<uint32_t>(bits);
      float value = 0;
      std::memcpy(&value, &word, sizeof value);
      return std::isfinite(value) ? fmt::format("({:a}f)", value)
                                  : fmt::format("__int_as_float({:#x})", word);
    }
    case DType::F64: {
      double value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return std::isfinite(value) ? fmt::format("({:a})", value)
                                  : fmt::format("__longlong_as_double({:#x}ll)", bits);
    }
    default:
      return fmt::format("({}){:#x}{}", cuda_type(dtype),
                         bits & (~uint64_t{0} >> (64 - 8 * size_of(dtype))),
                         size_of(dtype) == 8 ? "ull" : "u");
  }
}

std::string cuda_preamble() {
  std::string text = kCudaTypes;
  for (const DType dtype : kAllDTypes)
    if (is_integer(dtype))
      text +=
          fmt::format("{}({}, {}, {})\n", is_signed_integer(dtype) ? "SIGNED" : "UNSIGNED",
                      cuda_type(dtype), size_of(dtype) == 8 ? "u64" : "u32", 8 * size_of(dtype));
  return text + kCudaFunctions;
}

std::string cuda_row(ElementwiseOp op, DType operand, DType result,
                     const std::vector<std::string>& operands) {
  const auto at = [&](size_t i) { return i < operands.size() ? operands[i] : std::string(); };
  Row row{operand, result, at(0), at(1), at(2)};
  const bool moves = op == Op::select || op == Op::convert || op == Op::bitcast;
  if (!is_half(operand) || moves) return kRows[op](row);
  // 16-bit floats compute in f32 and round once.
  for (std::string* value : {&row.x, &row.y, &row.z})
    if (!value->empty()) *value = widen(operand, *value);
  row.type = DType::F32;
  const std::string wide = kRows[op](row);
  return info(op).result == ResultRule::Same ? narrow(operand, wide) : wide;
}

}  // namespace braze::codegen
