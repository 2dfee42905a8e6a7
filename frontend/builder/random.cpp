#include "braze/random.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <utility>

#include "braze/elementwise.h"
#include "braze/jit.h"
#include "compiler/passes/graph_emitter.h"
#include "frontend/builder/builder.h"
#include "ir/ops/math_bodies.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"
#include "ir/values/host_tensor.h"
#include "ir/values/philox.h"
#include "ir/values/value_of.h"
#include "runtime/memory/array_state.h"

namespace braze::random {
namespace {

/// The number of random bits in one uniform number: as many as the dtype can represent below 1.
int uniform_bits(DType dtype) { return std::min(info(dtype).fraction, 23) + 1; }

void check_floating(DType dtype, const char* what, SourceLocation where) {
  if (!is_arithmetic_float(dtype))
    fail(codes::kDTypeMismatch,
         fmt::format("random::{}: {} is not a floating dtype", what, name(dtype)),
         {.location = where, .fix = "make floating numbers and cast them"});
}

void check_finite(const char* what, const char* parameter, double value, DType dtype) {
  if (!std::isfinite(value) || !is_value(value, dtype))
    fail(codes::kBadNumber,
         fmt::format("random::{}: {} is {}, which is not a finite number of {}", what, parameter,
                     number_text(value), name(dtype)),
         {.fix = "give finite numbers, or a dtype that can represent them"});
}

// When numbers are drawn with a key, the upper half of the counter is zero. When a key is derived,
// it is not, so the two never get the same words.
constexpr uint32_t kByIndex = 1, kByName = 2;

Key derived(const Key& key, uint64_t index, uint32_t kind) {
  const auto block =
      philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, kind},
                 {key.low, key.high});
  return Key(block[0] | uint64_t{block[1]} << 32);
}

}  // namespace

Key Key::fold_in(uint64_t index) const { return derived(*this, index, kByIndex); }

Key Key::fold_in(std::string_view name) const { return derived(*this, hash64(name), kByName); }

std::vector<Key> Key::split(int count) const {
  std::vector<Key> keys;
  for (int i = 0; i < count; ++i) keys.push_back(fold_in(static_cast<uint64_t>(i)));
  return keys;
}

Array Key::array(const Device& device) const {
  return Array::from(std::vector<uint32_t>{low, high}, {2}, device);
}

// ---- In graphs --------------------------------------------------------------------------------

namespace {

void check_key(const Tensor& key, const char* op, SourceLocation where) {
  detail::builder_of(key, op, where);
  if (!(detail::type_of(key) == TensorType{DType::U32, {2}}))
    fail(codes::kDTypeMismatch, fmt::format("{}: {} is not a key", op, key.to_string()),
         {.location = where, .node = op, .fix = "a key is u32[2], such as random::Key(1).array()"});
}

/// Element `i` of a vector, as a scalar.
Tensor element(const Tensor& vector, int64_t i) {
  return reshape(slice(vector, 0, i, i + 1), Dims{});
}

/// Two random words for each element.
std::pair<Tensor, Tensor> two_words(const Tensor& key, const Dims& shape) {
  Dims both = shape;
  both.insert(both.begin(), Dim(2));
  const Tensor words = bits(key, both);
  return {reshape(slice(words, 0, 0, 1), shape), reshape(slice(words, 0, 1, 2), shape)};
}

/// `function` applied to each element of x. Functions that are made of machine rows give the same
/// bits on every device. The interpreter's own logarithm and cosine would be those of the host's
/// library.
template <class Function>
Tensor of_scalars(const Tensor& x, Function function) {
  GraphEmitter emitter(x.builder()->graph, detail::place(Where::current()), true);
  return detail::wrap(x.builder(), GraphEmitter::node(function(emitter.value(detail::node_of(x)))));
}

/// The cosine of an angle that is `word` (u32) / 2^32 of a turn. The angle is taken as n quarter
/// turns and a rest.
Scalar cosine_of_turn(const Scalar& word, DType dtype) {
  const Scalar half_turns = convert(bitcast(word, DType::I32), dtype) * 0x1p-31;
  const Scalar n = round_even(half_turns * 2.0);
  const Scalar rest = (half_turns - n * 0.5) * std::numbers::pi;
  const Scalar z = rest * rest, none = rest.constant(0);
  const bool wide = dtype == DType::F64;
  const Scalar sine =
      wide ? math::sin_of_parts_f64(rest, none, z) : math::sin_of_parts_f32(rest, none, z);
  const Scalar cosine =
      wide ? math::cos_of_parts_f64(rest, none, z) : math::cos_of_parts_f32(rest, none, z);
  const Scalar quarter = convert(n, DType::I32);
  const auto has = [&](const Scalar& x, int64_t bit) {
    return ne(bit_and(x, x.constant(static_cast<double>(bit))), x.constant(0));
  };
  const Scalar value = select(has(quarter, 1), sine, cosine);
  return select(has(quarter + 1.0, 2), -value, value);
}

}  // namespace

Tensor fold_in(const Tensor& key, const Operand& index, Where where) {
  const detail::Place place(where, "random::fold_in");
  const SourceLocation at = detail::place(where);
  check_key(key, "random::fold_in", at);
  const bool is_tensor = index.kind() == Operand::Kind::Tensor;
  if (is_tensor && !is_integer(index.tensor().dtype()))
    fail(codes::kDTypeMismatch,
         fmt::format("random::fold_in: the index {} is not an integer", index.tensor().to_string()),
         {.location = at, .node = "random::fold_in", .fix = "cast it to i64"});
  const Tensor wide = is_tensor
                          ? cast(reshape(index.tensor(), Dims{}), i64)
                          : detail::as_tensor(index, key.builder(), i64, "random::fold_in", at);
  const auto multiply = [](uint32_t factor, const Tensor& x) {
    const Tensor product = cast(x, i64) * factor;
    return std::pair(cast(shr(product, 32), u32), cast(product, u32));
  };
  const auto block = philox4x32<Tensor>(
      {cast(wide, u32), cast(shr(wide, 32), u32), full(u32, {}, 0), full(u32, {}, kByIndex)},
      {element(key, 0), element(key, 1)}, multiply);
  return concat({reshape(block[0], {1}), reshape(block[1], {1})});
}

Tensor bits(const Tensor& key, const Dims& shape, Where where) {
  const SourceLocation at = detail::place(where);
  check_key(key, detail::called("random::bits"), at);
  const auto& builder = key.builder();
  return detail::wrap(
      builder, build::random_bits(builder->graph, detail::node_of(key), to_shape(shape), at));
}

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

namespace {

/// Normal numbers in f32, or in f64 if `dtype` is f64.
Tensor wide_normal(const Tensor& key, const Dims& shape, DType dtype) {
  const DType wide = compute_type(dtype);
  const auto [first, second] = two_words(key, shape);
  // It lies within (0, 1], so its logarithm is finite.
  const Tensor share = cast(first, wide) * 0x1p-32 + 0x1p-33;
  const Tensor log = of_scalars(share, [](const Scalar& x) { return math::log(x); });
  return sqrt(log * -2.0) *
         of_scalars(second, [wide](const Scalar& x) { return cosine_of_turn(x, wide); });
}

}  // namespace

Tensor normal(const Tensor& key, const Dims& shape, DType dtype, Where where) {
  const detail::Place place(where, "random::normal");
  check_floating(dtype, "normal", detail::place(where));
  return cast(wide_normal(key, shape, dtype), dtype);
}

// ---- Arrays -----------------------------------------------------------------------------------

namespace {

/// Builds random numbers of a shape. The parameters of the distribution are a vector of f64.
using Draw = Tensor (*)(const Tensor& key, const Dims& shape, DType dtype,
                        const Tensor& parameters);

/// The memory of `flat` as an Array of another shape. Nobody else may hold `flat`.
Array reshaped(const Array& flat, std::vector<int64_t> shape) {
  flat.wait();
  Array::State& state = *flat.state();
  auto same = std::make_shared<Array::State>(state.dtype, std::move(shape), state.driver,
                                             state.data, std::move(state.buffer), nullptr);
  same->home = state.home;
  return Array(std::move(same));
}

/// An Array of the numbers that `draw` builds. The function is compiled once for any number of
/// elements. Its first argument is the memory that the result takes over, which has this number.
Array drawn(const char* name, Draw draw, std::vector<int64_t> shape, Key key,
            const std::vector<double>& parameters, DType dtype, const Device& device) {
  const auto function = [draw](Tensor memory, Tensor k, Tensor p) {
    return draw(k, memory.shape(), memory.dtype(), p);
  };
  using Compiled = Jitted<std::decay_t<decltype(function)>>;
  static std::mutex mutex;
  static auto* const functions = new std::map<std::pair<Draw, DType>, Compiled>;
  const auto compiled = [&] {
    const std::lock_guard lock(mutex);
    const auto known = functions->find({draw, dtype});
    if (known != functions->end()) return known->second;
    const JitOptions options{.name = name, .donate = {0}};
    const Compiled fresh(function, {spec(dtype, {"n:0..1099511627776"})}, options,
                         std::source_location::current());
    return functions->emplace(std::pair(draw, dtype), fresh).first->second;
  }();
  const Array memory = make_array(dtype, {checked_numel(shape)}, device, nullptr);
  const auto count = static_cast<int64_t>(parameters.size());
  return reshaped(compiled(memory, key.array(device), Array::from(parameters, {count}, device)),
                  std::move(shape));
}

/// `value` (f64), rounded down to `dtype`. If it were rounded to the nearest number, it could
/// become the end of the interval, and both ends would be half as likely as the numbers between
/// them.
Tensor rounded_down(const Tensor& value, DType dtype) {
  if (dtype == DType::F64) return value;
  const int kept = dtype == DType::F32 ? 24 : uniform_bits(dtype);
  const int64_t dropped = (int64_t{1} << (53 - kept)) - 1;
  const Tensor magnitude = bitcast(value, i64) + braze::where(value < 0, full(i64, {}, dropped), 0);
  return cast(bitcast(magnitude & ~dropped, f64), dtype);
}

/// The greatest number of a floating dtype below `value`.
double next_below(double value, DType dtype) {
  const uint64_t sign = uint64_t{1} << (8 * size_of(dtype) - 1);
  uint64_t bits = constant_bits(dtype, value);
  if ((bits & ~sign) == 0)
    bits = sign | 1;
  else
    bits = bits & sign ? bits + 1 : bits - 1;
  return bits_to_double(dtype, bits);
}

}  // namespace

Array uniform(std::vector<int64_t> shape, Key key, double low, double high, DType dtype,
              const Device& device) {
  check_floating(dtype, "uniform", {});
  check_finite("uniform", "low", low, dtype);
  check_finite("uniform", "high", high, dtype);
  if (low > high)
    fail(codes::kBadNumber,
         fmt::format("random::uniform: low is {}, above high, which is {}", number_text(low),
                     number_text(high)),
         {.fix = "give the lower end first"});
  check_finite("uniform", "high - low", high - low, DType::F64);
  const auto rounded = [dtype](double x) { return bits_to_double(dtype, constant_bits(dtype, x)); };
  const Draw draw = [](const Tensor& k, const Dims& dims, DType type, const Tensor& parameters) {
    const Tensor from = element(parameters, 0), width = element(parameters, 1) - from;
    const Tensor value = from + width * cast(uniform(k, dims, type), f64);
    return minimum(rounded_down(value, type), cast(element(parameters, 2), type));
  };
  low = rounded(low);
  high = rounded(high);
  const double greatest = low < high ? next_below(high, dtype) : low;
  return drawn("random.uniform", draw, std::move(shape), key, {low, high, greatest}, dtype, device);
}

Array normal(std::vector<int64_t> shape, Key key, double mean, double deviation, DType dtype,
             const Device& device) {
  check_floating(dtype, "normal", {});
  check_finite("normal", "mean", mean, dtype);
  check_finite("normal", "deviation", deviation, dtype);
  const Draw draw = [](const Tensor& k, const Dims& dims, DType type, const Tensor& parameters) {
    const Tensor unit = cast(wide_normal(k, dims, type), f64);
    return cast(element(parameters, 0) + element(parameters, 1) * unit, type);
  };
  return drawn("random.normal", draw, std::move(shape), key, {mean, deviation}, dtype, device);
}

}  // namespace braze::random
