// kinds_p.h — what the files of kinds share: how inputs are described, and small functions.
#pragma once

#include <cmath>
#include <string>
#include <utility>

#include "bench/sweep/workloads.h"

namespace braze::sweep {

using Results = std::optional<std::vector<Tensor>>;
using S = const Settings&;
using W = const Weights&;
using Extents = std::vector<int64_t>;

/// Uniform, of mean 0 and variance 1.
inline Input values(std::string name, DType dtype, Extents shape) {
  const double bound = std::sqrt(3.0);
  return {std::move(name), dtype, std::move(shape), -bound, bound};
}
/// A matrix whose products keep the variance.
inline Input weight(std::string name, DType dtype, Extents shape, int64_t summed) {
  const double bound = std::sqrt(3.0 / static_cast<double>(summed));
  return {std::move(name), dtype, std::move(shape), -bound, bound};
}
inline Input between(std::string name, DType dtype, Extents shape, double low, double high) {
  return {std::move(name), dtype, std::move(shape), low, high};
}
inline Input indices(std::string name, Extents shape, int64_t count, DType dtype = DType::I64) {
  return {std::move(name), dtype, std::move(shape), 0, static_cast<double>(count)};
}

inline bool is_narrow(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }
/// Statistics of 16-bit values are made in f32.
inline Tensor widen(const Tensor& x) { return is_narrow(x.dtype()) ? cast(x, f32) : x; }

/// Images are [batch, height, width, channels], but for convolutions of layout=first.
inline Extents image(S s, int64_t channels) {
  return {s["batch"], s["height"], s["width"], channels};
}

/// The kinds of kinds_fields.cpp.
std::map<std::string, Kind, std::less<>> kinds_of_fields();

}  // namespace braze::sweep
