// quantized.h — weights that stay quantised in memory and become floats only when they are used.
//
//   GgufFile file = GgufFile::open("model.gguf");
//   Quantized<Array> weight = file.load_quantized("blk.0.ffn_up.weight");
//   auto f = jit([](Tensor x, Quantized<Tensor> w) { return dot(x, dequantize(w)); });
//   Array y = f(x, weight);                   // one kernel, which reads 5 bits for each weight
//
// `dequantize` builds ordinary elementwise ops: shifts, masks, a product and a sum. The compiler
// does not know what they are for.
#pragma once

#include "braze/gguf.h"
#include "braze/tensor.h"
#include "braze/tree.h"

namespace braze {

BRAZE_TREE(Quantized, low, high, scales, offsets)

/// The values, f32 [..., k, n]. It throws InvalidArgument unless the parts fit each other
/// (braze/gguf.h).
Tensor dequantize(const Quantized<Tensor>& weight, Where where = Where::current());

/// Columns of a quantised matrix [k, n]. For indices of shape [m], the result is the quantised
/// matrix [k, m]. Columns are rows of the file, so this selects rows of an embedding.
Quantized<Tensor> columns(const Quantized<Tensor>& weight, const Tensor& indices,
                          Where where = Where::current());

}  // namespace braze
