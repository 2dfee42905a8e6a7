// pack_factors.h — brings factors of products into the form that matrix units need.
#pragma once

#include "ir/graph/graph.h"

namespace braze {

/// The graph in which rows of factors of large 16-bit products are multiples of 16 bytes, so that
/// asynchronous copies can read them: if a factor consists of windows, its rows get zeros at their
/// end. So do the rows of other factors, if each of their elements is used often.
Graph pack_factors(const Graph& graph);
/// Only the second of these, for machines without asynchronous matrix instructions: their copies
/// take 16 bytes at once too.
Graph align_factors(const Graph& graph);

}  // namespace braze
