#include "braze/quantized.h"

#include "frontend/builder/builder.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kWord = 32;  // bits

[[noreturn]] void reject(const Quantized<Tensor>& weight, Where where) {
  std::vector<std::string> parts{weight.low.to_string()};
  for (const Tensor& high : weight.high) parts.push_back(high.to_string());
  parts.push_back(weight.scales.to_string());
  for (const Tensor& offsets : weight.offsets) parts.push_back(offsets.to_string());
  fail(
      codes::kShapeMismatch,
      fmt::format("dequantize: {} are not the parts of a quantised tensor", fmt::join(parts, ", ")),
      {.location = detail::place(where),
       .node = "dequantize",
       .fix = "use the parts that GgufFile::load_quantized makes"});
}

/// The extents of a quantized tensor [..., k, n]. Its parts are [..., rows, n], and each row of a
/// part stands for k / rows rows of the tensor.
struct Layout {
  int64_t k = 0;
  Dims lead;
  Dim n = 0;

  /// The shape [..., rows, k / rows, n] for a part [..., rows, n].
  Dims split(const Tensor& part) const {
    const int64_t rows = part.dim(-2).value();
    Dims out = lead;
    out.insert(out.end(), {rows, k / rows, n});
    return out;
  }
  Dims whole() const {
    Dims out = lead;
    out.insert(out.end(), {k, n});
    return out;
  }
};

/// `part` with every number repeated for all k that it stands for. The result is [..., k, n].
Tensor spread(const Tensor& part, const Layout& layout) {
  const auto axis = static_cast<int64_t>(part.rank()) - 1;
  return reshape(broadcast_to(expand_dims(part, axis), layout.split(part)), layout.whole());
}

/// The numbers of `bits` bits that the words hold, one for each k. The bits above a number are
/// those that follow it in its word.
Tensor digits(const Tensor& words, int64_t bits, const Layout& layout) {
  const auto axis = static_cast<int64_t>(words.rank()) - 1;
  const Dims split = layout.split(words);
  const Tensor place = arange(words.dtype(), split, axis);
  return reshape(shr(broadcast_to(expand_dims(words, axis), split), place * bits), layout.whole());
}

bool fits(const Tensor& part, const Tensor& like) {
  if (part.dtype() != like.dtype() || part.rank() != like.rank()) return false;
  for (size_t i = 0; i < part.rank(); ++i)
    if (i + 2 != part.rank() &&
        !(part.dim(static_cast<int64_t>(i)) == like.dim(static_cast<int64_t>(i))))
      return false;
  return part.dim(-2).is_constant();
}

}  // namespace

Tensor dequantize(const Quantized<Tensor>& weight, Where where) {
  const detail::Place place(where, "dequantize");
  const Tensor& low = weight.low;
  const bool is_word = low.dtype() == i32 || low.dtype() == u32;
  if (!is_word || low.rank() < 2 || !fits(low, low) || weight.high.size() > 1 ||
      weight.offsets.size() > 1)
    reject(weight, where);
  Layout layout{.k = low.dim(-2).value() * kWord / 4, .lead = low.shape(), .n = low.dim(-1)};
  layout.lead.erase(layout.lead.end() - 2, layout.lead.end());
  int64_t bits = 4;
  Tensor q = digits(low, 4, layout) & 15;
  if (!weight.high.empty()) {
    const Tensor& high = weight.high[0];
    if (!fits(high, low)) reject(weight, where);
    const int64_t more = layout.k == 0 ? 4 : high.dim(-2).value() * kWord / layout.k;
    if (more < 1 || more > 4 || more * layout.k != high.dim(-2).value() * kWord)
      reject(weight, where);
    q = q | shl(digits(high, more, layout) & ((1 << more) - 1), 4);
    bits += more;
  }
  // The number's highest bit is its sign, and right shifts of signed words repeat it.
  if (low.dtype() == i32) q = shr(shl(q, kWord - bits), kWord - bits);
  const auto numbers = [&](const Tensor& part) {
    if (part.rank() != low.rank() || !(part.dtype() == f16 || part.dtype() == f32) ||
        !part.dim(-2).is_constant() || part.dim(-2).value() == 0 ||
        layout.k % part.dim(-2).value() != 0 || !(part.dim(-1) == layout.n))
      reject(weight, where);
    return spread(cast(part, f32), layout);
  };
  const Tensor scales = numbers(weight.scales);
  return weight.offsets.empty() ? cast(q, f32) * scales
                                : fma(cast(q, f32), scales, numbers(weight.offsets[0]));
}

Quantized<Tensor> columns(const Quantized<Tensor>& weight, const Tensor& indices, Where where) {
  const detail::Place place(where, "columns");
  const auto of = [&](const Tensor& part) { return take(part, indices, -1); };
  Quantized<Tensor> out{
      .low = of(weight.low), .high = {}, .scales = of(weight.scales), .offsets = {}};
  for (const Tensor& high : weight.high) out.high.push_back(of(high));
  for (const Tensor& offsets : weight.offsets) out.offsets.push_back(of(offsets));
  return out;
}

}  // namespace braze
