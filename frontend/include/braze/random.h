// random.h — random numbers as a function of an explicit key. The same key gives the same bits, on
// every device and in every run.
//
// A compiled function makes the numbers from Philox4x32-10 words (see RandomBitsOp) by exact
// arithmetic. Use a key once, and derive others with `split` or `fold_in`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "braze/array.h"
#include "braze/tensor.h"

/// Random numbers as functions of explicit keys.
namespace braze::random {

/// A key, which determines a sequence of random numbers.
struct Key {
  uint32_t low = 0;   ///< the lower half of the 64 bits of the key
  uint32_t high = 0;  ///< the upper half

  /// The key of a seed.
  explicit Key(uint64_t seed)
      : low(static_cast<uint32_t>(seed)), high(static_cast<uint32_t>(seed >> 32)) {}

  /// An independent key for each `index`.
  Key fold_in(uint64_t index) const;
  /// An independent key for each name, such as that of a parameter: "layer1.weight".
  Key fold_in(std::string_view name) const;
  /// `count` independent keys: fold_in(0), fold_in(1) ...
  std::vector<Key> split(int count) const;
  /// The key as a u32[2] array, for an argument of a compiled function.
  Array array(const Device& device = default_device()) const;
};

// ---- Arrays. A function that is compiled once for each dtype computes them on their device, and
// ---- they are complete. The dtype is floating, else InvalidArgument. --------------------------

/// Uniform in [low, high). The ends are rounded to `dtype` first. If they are equal then, every
/// element is `low`.
Array uniform(std::vector<int64_t> shape, Key key, double low = 0, double high = 1,
              DType dtype = f32, const Device& device = default_device());
/// Normal with this mean and standard deviation, rounded once to `dtype`.
Array normal(std::vector<int64_t> shape, Key key, double mean = 0, double deviation = 1,
             DType dtype = f32, const Device& device = default_device());

// ---- In graphs. `key` is u32[2], as from Key::array; another type is an InvalidArgument. ------

/// The same key as from Key::fold_in, for an `index` that is a number, or an integer tensor with
/// one element, such as the number of the step.
Tensor fold_in(const Tensor& key, const Operand& index, Where where = Where::current());
/// A u32 tensor of this shape, with 32 random bits in each element.
Tensor bits(const Tensor& key, const Dims& shape, Where where = Where::current());
/// Uniform in [0, 1): 24 random bits in f32, 53 in f64, 11 in f16, 8 in bf16.
Tensor uniform(const Tensor& key, const Dims& shape, DType dtype = f32,
               Where where = Where::current());
/// Standard normal, by the Box-Muller transform. As for `uniform`, `dtype` is floating.
Tensor normal(const Tensor& key, const Dims& shape, DType dtype = f32,
              Where where = Where::current());

}  // namespace braze::random
