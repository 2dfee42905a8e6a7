// cascades.h — random graphs with large dots: cascades of them, as in attention, and products with
// windows, as in convolution, with their gradients or without. The same for one seed everywhere.
//
// The graphs of generator.h are too small for the rules that serve these.
#pragma once

#include <cstdint>

#include "ir/graph/graph.h"

namespace braze::fuzz {

/// Two dots with a softmax between, in one of many spellings: masks by position, from memory, by
/// documents or added; biases, slopes, soft caps, dropout; heads that share keys, by reshape or
/// broadcast; widths, lengths and dtypes of many kinds. Some return gradients.
Graph random_cascade(uint64_t seed);

/// A product of windows of images with filters, of random strides, dilations, gaps and padding,
/// with something made of it. Some return gradients.
Graph random_windowed_product(uint64_t seed);

}  // namespace braze::fuzz
