// axes.h — steps that change axes, or how axes lie in tiles and tensors: `last`, `lead`, `flatten`,
// `residues`, `compose` and `pad`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `last i`: i becomes the last dimension of all tiles that have it. Vectors lie along the last
/// dimension.
struct LastStep {
  static constexpr std::string_view kName = "last";
  std::string axis;
  void fields(auto& visit) { visit.axis(axis); }
};
std::optional<Refusal> legal(const LoopTree& tree, const LastStep& step);
LoopTree take(LoopTree tree, const LastStep& step);

/// `lead j x 64`: turns of j begin where the number of x's element is a multiple of 64. The first
/// turn may begin before the axis does, because rows of x can have any length. Elements before the
/// axis are masked.
struct LeadStep {
  static constexpr std::string_view kName = "lead";
  LoopName loop;
  std::string tensor;
  int64_t number = 1;
  void fields(auto& visit) {
    visit(loop);
    visit.tensor(tensor);
    visit(number);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const LeadStep& step);
LoopTree take(LoopTree tree, const LeadStep& step);

/// `flatten x`: if all accesses run through neighbouring dimensions of tensor x as through one
/// dimension, these become one. A copy can have only few dimensions.
struct FlattenStep {
  static constexpr std::string_view kName = "flatten";
  std::string tensor;
  void fields(auto& visit) { visit.tensor(tensor); }
};
std::optional<Refusal> legal(const LoopTree& tree, const FlattenStep& step);
LoopTree take(LoopTree tree, const FlattenStep& step);

/// `residues x 1 2`: dimension 1 of tensor x (counted from 0) becomes two dimensions, the quotient
/// and the remainder by 2. A load of every second element then reads neighbours. If no read leaves
/// the dimension behind the remainder, both become one, because a copy can have only few
/// dimensions.
struct ResiduesStep {
  static constexpr std::string_view kName = "residues";
  std::string tensor;
  int64_t dimension = 0;
  int64_t number = 1;
  void fields(auto& visit) {
    visit.tensor(tensor);
    visit.count(dimension);
    visit(number);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const ResiduesStep& step);
LoopTree take(LoopTree tree, const ResiduesStep& step);

/// An axis, and how many neighbours along it are composed.
struct AxisTurn {
  int64_t turn = 1;
  std::string axis;
};

/// `compose p 8 y 8 x`: a turn takes 8 indices of y and 8 of x. These 64 pairs become the indices
/// of a new axis p, which has y and x as digits, so that a box of pixels is one dimension of tiles.
/// The part of a turn beyond the end of y or x is not stored. Streams along which sums run are
/// composed too, if 8 divides the extents.
struct ComposeStep {
  static constexpr std::string_view kName = "compose";
  std::string composed;
  std::vector<AxisTurn> digits;
  void fields(auto& visit) {
    visit.new_axis(composed);
    visit(digits);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const ComposeStep& step);
LoopTree take(LoopTree tree, const ComposeStep& step);

/// `pad r 80`: axis r gets the extent 80. Beyond its old end, which is that of all tensors along
/// it, loads are 0 and nothing is stored; of what is combined along it, dots alone may be, whose
/// factors are 0 there. A matrix unit multiplies whole fragments only.
struct PadStep {
  static constexpr std::string_view kName = "pad";
  std::string axis;
  int64_t extent = 1;
  void fields(auto& visit) {
    visit.axis(axis);
    visit(extent);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const PadStep& step);
LoopTree take(LoopTree tree, const PadStep& step);

}  // namespace braze
