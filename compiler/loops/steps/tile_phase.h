// tile_phase.h — what the steps `limit` and `pick` share: a phase that looks at what the turns of a
// walk read, before the walk. It has one index for each turn of the loops around, and one for each
// turn of the walk.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/loops/steps/places.h"

namespace braze {

/// Makes the steps of a body, one after the other.
struct BodyMaker {
  const LoopTree& tree;
  LoopBody body = {};

  uint32_t push(LoopStep s);
  /// Reads a value at its own axes.
  uint32_t read(size_t value);
  uint32_t index(const Expr& e, DType dtype);
  uint32_t apply(ElementwiseOp op, DType dtype, std::vector<uint32_t> arguments);
  /// The body, with the result of a step.
  LoopBody result(uint32_t step);
};

/// Whether the loops around take the axis index by index.
bool takes_one(const LoopTree& tree, const std::vector<const Loop*>& around, size_t axis);
/// Why an earlier phase cannot compute the body; nullopt if it can.
std::optional<std::string> why_not_loaded(const LoopTree& tree, const LoopBody& body);

class TilePhase {
 protected:
  TilePhase(LoopTree& tree, const ItemPlace& place);

  /// The values of the least and the greatest of a number.
  struct Extremes {
    size_t least, greatest;
  };
  struct Digits {
    Expr index;                         // of the axis, over those of the phase
    std::optional<size_t> inner;        // the axis of what a turn takes
    std::optional<size_t> number = {};  // the axis of the turns of the loops around
  };

  size_t new_axis(const std::string& name, const Expr& extent);
  size_t value(const std::string& name, DType dtype, std::vector<size_t> axes);
  /// Gives the phase axes for the turns of an axis of the loops around, and for what a turn takes.
  void cut(size_t axis);
  /// The same for the walk. All other axes are cut before.
  void cut_walk();
  /// The body at the indices of the phase.
  LoopBody placed(LoopBody body) const;
  /// The least and the greatest of a number along the axis `inner`, or the number itself if it does
  /// not differ along one. Their tasks are added to the region.
  Extremes extremes(const LoopBody& number, std::vector<size_t> axes, std::optional<size_t> inner,
                    LoopRegion& region);
  /// A task in the region that folds the body over an axis, into a new value.
  size_t fold(LoopRegion& region, const char* name, DType dtype, Monoid monoid,
              std::vector<size_t> axes, std::vector<size_t> over, LoopBody body);
  /// Whether a comparison holds for all pairs of numbers in a turn, or for some pair.
  static uint32_t holds(BodyMaker& b, ElementwiseOp op, const Extremes& x, const Extremes& y,
                        bool all);
  static void add_stream(LoopRegion& region, size_t axis, LoopRegion body);

  LoopTree& out_;
  std::vector<const Loop*> around_;
  size_t walk_;
  int64_t turn_;
  DType dtype_ = DType::I32;     // of numbers of turns
  size_t tile_ = 0;              // the axis of the walk's turns
  std::optional<size_t> inner_;  // the axis of what a turn of the walk takes
  std::vector<size_t> grid_;     // the axes of turns of the loops around
  std::vector<Expr> numbers_;    // the present turns of these loops
  std::map<size_t, Digits> digits_;
};

}  // namespace braze
