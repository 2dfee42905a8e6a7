// rotated.h — rotary embeddings, which operators of two domains compute.
#pragma once

#include "braze/tensor.h"

namespace braze::onnx {

/// x [batch, length, heads, size] with its first `width` numbers rotated in pairs: neighbours if
/// `interleaved`, otherwise a number of the first half with one of the second. The cosines and
/// sines [batch or 1, length, width / 2] are those of each place.
Tensor rotated(const Tensor& x, const Tensor& cosines, const Tensor& sines, const Dim& width,
               bool interleaved);

}  // namespace braze::onnx
