// split_gaps.h — products over windows whose elements have gaps between them.
//
// If windows put gaps between the elements that they show, most of what a product reads is zeros,
// and it reads under the condition that a place holds an element. But which taps of a window show
// elements depends only on the remainder of the window's place. So there is one product for each
// remainder, over windows without gaps and with the taps that show elements, and their results are
// interleaved.
//
// A product may also sum over the places of such windows, as the gradient of the weights of a
// product over windows does. Each place shows at most one element in a tap, and each element is
// shown at most once. So the product takes windows of the other factor, one for each element, which
// have no gaps if the first ones had no strides. It has fewer terms, because there are more places
// than elements. Zeros around the other factor are multiplied: an infinity that the first windows
// did not show may make NaN.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph/graph.h"

namespace braze {

/// Windows along one axis, by the remainder of their place. Those with one remainder are windows
/// without gaps: `stride`, `dilation` and `low` are theirs, and the taps that they show are
/// `first_tap`, `first_tap + tap_step` ..
struct WindowResidues {
  struct Taps {
    int64_t first_tap = 0, count = 0, low = 0;
  };
  int64_t tap_step = 1, stride = 1, dilation = 1;
  std::vector<Taps> taps;  ///< by remainder; there are as many as places until the taps repeat
};

/// The residues of windows with `taps` taps along axis number `i` of `op`; none if it is not known
/// where they begin.
std::optional<WindowResidues> residues_of(const WindowsOp& op, size_t i, const Expr& taps);

/// From this number of multiply-adds on, several launches take less time than one product that
/// reads under conditions.
inline constexpr double kLeastSplitGaps = 1 << 24;
/// One product becomes at most as many.
inline constexpr size_t kMostSplitGaps = 32;

/// The graph in which products over windows with gaps are one product for each remainder, if these
/// have `least` multiply-adds or more together, and in which products that sum over more places of
/// windows than there are elements sum over the elements.
Graph split_gaps(const Graph& graph, double least = kLeastSplitGaps);

}  // namespace braze
