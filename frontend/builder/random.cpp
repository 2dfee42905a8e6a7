#include "braze/random.h"

#include <cmath>
#include <numbers>

#include "braze/elementwise.h"
#include "frontend/builder/builder.h"
#include "ir/support/text.h"
#include "ir/values/host_tensor.h"
#include "ir/values/philox.h"

namespace braze::random {
namespace {

/// Random bits that make one uniform number: as many as the dtype keeps below 1.
int uniform_bits(DType dtype) {
  switch (dtype) {
    case DType::F16:
      return 11;
    case DType::BF16:
      return 8;
    default:
      return 24;
  }
}

void check_floating(DType dtype, const char* what, SourceLocation where) {
  if (!is_floating(dtype))
    fail(codes::kDTypeMismatch,
         fmt::format("random::{}: {} is no floating dtype", what, name(dtype)),
         {.location = where, .fix = "make floating numbers and cast them"});
}

// The functions on the host and in graphs are the same formulas; a test compares them.

double host_uniform(const std::array<uint32_t, 2>& key, uint64_t i, uint64_t count, DType dtype) {
  const uint32_t word = philox_word(i, key);
  if (dtype == DType::F64) {
    const uint32_t low = philox_word(count + i, key);
    return ((word >> 5) * 0x1p26 + (low >> 6)) * 0x1p-53;
  }
  const int bits = uniform_bits(dtype);
  return std::ldexp(static_cast<double>(word >> (32 - bits)), -bits);
}

double rounded(double value, DType dtype) {
  HostTensor scalar(dtype, {});
  scalar.set_double(0, value);
  return scalar.get_double(0);
}

/// The next lower number of a floating dtype.
uint64_t predecessor(uint64_t bits, DType dtype) {
  const uint64_t sign = uint64_t{1} << (8 * size_of(dtype) - 1);
  if ((bits & ~sign) == 0) return sign | 1;
  return bits & sign ? bits + 1 : bits - 1;
}

/// Rounds `value` down, and to less than `limit`: the nearest might be the limit, and the ends of
/// an interval would get half of what the numbers between them get.
void set_below(HostTensor& tensor, int64_t i, double value, double limit) {
  tensor.set_double(i, value);
  const double nearest = tensor.get_double(i);
  if (nearest > value || nearest >= limit)
    tensor.set_bits(i, predecessor(tensor.get_bits(i), tensor.dtype()));
}

/// One Box-Muller number, from two words.
template <class Real>
Real box_muller(uint32_t first, uint32_t second) {
  // Within (0, 1], so that the logarithm is finite.
  const Real radius = static_cast<Real>(first) * Real(0x1p-32) + Real(0x1p-33);
  const Real angle = static_cast<Real>(second) * Real(2 * std::numbers::pi * 0x1p-32);
  const Real log_radius = static_cast<Real>(std::log(static_cast<double>(radius)));
  const Real cosine = static_cast<Real>(std::cos(static_cast<double>(angle)));
  return std::sqrt(Real(-2) * log_radius) * cosine;
}

}  // namespace

Key Key::fold_in(uint64_t index) const {
  // Words of numbers drawn under a key have the counter's upper half zero; derived keys do not.
  const auto block = philox4x32(
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 1}, {low, high});
  Key key;
  key.low = block[0];
  key.high = block[1];
  return key;
}

std::vector<Key> Key::split(int count) const {
  std::vector<Key> keys;
  for (int i = 0; i < count; ++i) keys.push_back(fold_in(static_cast<uint64_t>(i)));
  return keys;
}

Array Key::array(const Device& device) const {
  return Array::from(std::vector<uint32_t>{low, high}, {2}, device);
}

Array uniform(std::vector<int64_t> shape, double low, double high, DType dtype, Key key,
              const Device& device) {
  check_floating(dtype, "uniform", {});
  HostTensor host(dtype, std::move(shape));
  const auto count = static_cast<uint64_t>(host.numel());
  low = rounded(low, dtype);
  high = rounded(high, dtype);
  const double limit = low < high ? high : INFINITY;
  for (uint64_t i = 0; i < count; ++i) {
    const double unit = host_uniform({key.low, key.high}, i, count, dtype);
    set_below(host, static_cast<int64_t>(i), low + (high - low) * unit, limit);
  }
  return Array::from_host(host, device);
}

Array normal(std::vector<int64_t> shape, double mean, double deviation, DType dtype, Key key,
             const Device& device) {
  check_floating(dtype, "normal", {});
  HostTensor host(dtype, std::move(shape));
  const auto count = static_cast<uint64_t>(host.numel());
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t first = philox_word(i, {key.low, key.high});
    const uint32_t second = philox_word(count + i, {key.low, key.high});
    const double unit = dtype == DType::F64 ? box_muller<double>(first, second)
                                            : static_cast<double>(box_muller<float>(first, second));
    host.set_double(static_cast<int64_t>(i), mean + deviation * unit);
  }
  return Array::from_host(host, device);
}

Tensor fold_in(const Tensor& key, const Operand& index, Where where) {
  const detail::Place place(where);
  // The first words under a key that the index changed; an odd factor maps no two indices to one.
  const Tensor mixed = logical_xor(key, (fill(u32, {2}, 1) + index) * 0x9E3779B9u);
  return bits(mixed, {2});
}

Tensor bits(const Tensor& key, const Dims& shape, Where where) {
  const SourceLocation at = detail::place(where);
  const char* op = detail::called("random::bits");
  const auto& builder = detail::builder_of(key, op, at);
  if (!(detail::type_of(key) == TensorType{DType::U32, {2}}))
    fail(codes::kDTypeMismatch, fmt::format("{}: {} is no key", op, key.to_string()),
         {.location = at, .node = op, .fix = "a key is u32[2], such as random::Key(1).array()"});
  return detail::wrap(
      builder, build::random_bits(builder->graph, detail::node_of(key), to_shape(shape), at));
}

namespace {

/// Two words for each element.
std::pair<Tensor, Tensor> two_words(const Tensor& key, const Dims& shape) {
  Dims both = shape;
  both.insert(both.begin(), Dim(2));
  const Tensor words = bits(key, both);
  return {reshape(slice(words, 0, 0, 1), shape), reshape(slice(words, 0, 1, 2), shape)};
}

}  // namespace

Tensor uniform(const Tensor& key, const Dims& shape, DType dtype, Where where) {
  const detail::Place place(where, "random::uniform");
  check_floating(dtype, "uniform", detail::place(where));
  if (dtype == DType::F64) {
    const auto [high, low] = two_words(key, shape);
    return (cast(shr(high, 5), f64) * 0x1p26 + cast(shr(low, 6), f64)) * 0x1p-53;
  }
  const int count = uniform_bits(dtype);
  return cast(cast(shr(bits(key, shape), 32 - count), f32) * std::ldexp(1.0, -count), dtype);
}

Tensor normal(const Tensor& key, const Dims& shape, DType dtype, Where where) {
  const detail::Place place(where, "random::normal");
  check_floating(dtype, "normal", detail::place(where));
  const DType wide = compute_type(dtype);
  const auto [first, second] = two_words(key, shape);
  const Tensor radius = cast(first, wide) * 0x1p-32 + 0x1p-33;
  const Tensor angle = cast(second, wide) * (2 * std::numbers::pi * 0x1p-32);
  return cast(sqrt(log(radius) * -2.0) * cos(angle), dtype);
}

}  // namespace braze::random
