// random.h — random numbers as a function of an explicit key: the same key gives the same numbers,
// on every device and in every run.
//
// Numbers come from Philox4x32-10 words; see RandomBitsOp. Use a key once: derive others with
// `split` or `fold_in`.
#pragma once

#include <cstdint>
#include <vector>

#include "braze/array.h"
#include "braze/tensor.h"

namespace braze::random {

/// A stream of random numbers. The default key is always the same.
struct Key {
  uint32_t low = 0, high = 0;  ///< the 64 bits of the key

  Key() = default;
  explicit Key(uint64_t seed)
      : low(static_cast<uint32_t>(seed)), high(static_cast<uint32_t>(seed >> 32)) {}

  /// An independent key for each `index`.
  Key fold_in(uint64_t index) const;
  /// `count` independent keys.
  std::vector<Key> split(int count) const;
  /// As u32[2], to be an argument of a compiled function.
  Array array(const Device& device = default_device()) const;
};

// ---- Arrays, made on the host. Floating dtypes; another one is InvalidArgument. --------------

/// Uniform in [low, high), whose ends are rounded to `dtype` first; always `low` if they are equal.
Array uniform(std::vector<int64_t> shape, double low = 0, double high = 1, DType dtype = f32,
              Key key = {}, const Device& device = default_device());
/// Normal with this mean and standard deviation, rounded once to `dtype`.
Array normal(std::vector<int64_t> shape, double mean = 0, double deviation = 1, DType dtype = f32,
             Key key = {}, const Device& device = default_device());
/// Standard normal f32 under `key`.
inline Array normal(std::vector<int64_t> shape, Key key) {
  return normal(std::move(shape), 0, 1, f32, key);
}
/// Uniform f32 in [0, 1) under `key`.
inline Array uniform(std::vector<int64_t> shape, Key key) {
  return uniform(std::move(shape), 0, 1, f32, key);
}

// ---- In graphs. `key` is u32[2], as Key::array gives it; another type is InvalidArgument. -----

/// A key of the graph's own, u32[2], for `index`, which may be a value of the graph (u32, rank 0),
/// such as the number of the step.
Tensor fold_in(const Tensor& key, const Operand& index, Where where = Where::current());
/// 32 random bits each: a u32 tensor of this shape.
Tensor bits(const Tensor& key, const Dims& shape, Where where = Where::current());
/// Uniform in [0, 1): 24 random bits in f32, 53 in f64, 11 in f16, 8 in bf16.
Tensor uniform(const Tensor& key, const Dims& shape, DType dtype = f32,
               Where where = Where::current());
/// Standard normal, by the Box-Muller transform. `dtype` floating, as for `uniform`.
Tensor normal(const Tensor& key, const Dims& shape, DType dtype = f32,
              Where where = Where::current());

}  // namespace braze::random
