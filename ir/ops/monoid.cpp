#include "ir/ops/monoid.h"

#include <limits>

#include "ir/ops/scalar.h"

namespace braze {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// constant_bits saturates, so the infinities become the least and greatest integers. For bool it
// would make both true, so bool has its own limits.
uint64_t least(DType dtype) { return dtype == DType::Bool ? 0 : constant_bits(dtype, -kInfinity); }
uint64_t greatest(DType dtype) { return constant_bits(dtype, kInfinity); }
uint64_t zero(DType dtype) { return constant_bits_int(dtype, 0); }
uint64_t one(DType dtype) { return constant_bits_int(dtype, 1); }
uint64_t all_ones(DType dtype) { return constant_bits_int(dtype, -1); }

constexpr MonoidInfo kMonoids[] = {
    {"sum", ElementwiseOp::add, kNumeric, zero},
    {"prod", ElementwiseOp::mul, kNumeric, one},
    {"max", ElementwiseOp::max, kOrdered, least},
    {"min", ElementwiseOp::min, kOrdered, greatest},
    {"and", ElementwiseOp::logical_and, kLogical, all_ones},
    {"or", ElementwiseOp::logical_or, kLogical, zero},
};

}  // namespace

uint64_t MonoidInfo::padding(DType dtype) const {
  return combine == ElementwiseOp::add && is_floating(dtype) ? constant_bits(dtype, -0.0)
                                                             : identity(dtype);
}

const MonoidInfo& info(Monoid monoid) { return kMonoids[static_cast<size_t>(monoid)]; }

std::optional<Monoid> parse_monoid(std::string_view text) {
  for (size_t i = 0; i < std::size(kMonoids); ++i)
    if (kMonoids[i].name == text) return static_cast<Monoid>(i);
  return std::nullopt;
}

DType accumulation_type(Monoid monoid, DType dtype) {
  return monoid == Monoid::Sum || monoid == Monoid::Prod ? compute_type(dtype) : dtype;
}

}  // namespace braze
