// windows_gpu.h — the rules for folds over windows on a GPU.
#pragma once

#include "compiler/loops/rules/reductions.h"

namespace braze {

/// Tiles a tree with one walk of folds that reads through windows: few terms for each of many
/// results, where windows move along a line (a pooling, a sum of products with weights), or many
/// terms for each of few results, where a line has the taps of windows that move along the walk
/// (the gradient of these weights). Returns false if it is no such tree, or has too little work for
/// that; the tree is then as it was.
bool tile_windows_for_gpu(Scheduled& out, const Target& target);

}  // namespace braze
