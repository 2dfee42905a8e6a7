// levels.h — steps on the levels of axes: `split`, `slabs`, `whole`, and `collapse` of two axes.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `split j 128`: turns of 128, and inside them turns of the old size. With `padded`, also if the
/// axis is shorter than that, so that tiles have this size.
struct SplitStep {
  static constexpr std::string_view kName = "split";
  LoopName loop;
  int64_t turn = 1;
  bool padded = false;
  void fields(auto& visit) {
    visit(loop);
    visit(turn);
    visit.flag(padded, "padded");
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const SplitStep& step);
LoopTree take(LoopTree tree, const SplitStep& step);

/// `slabs y f 64`: a stream over turns of 64 of f around the one task that makes y; with `beside`
/// around all stores side by side with it.
struct SlabsStep {
  static constexpr std::string_view kName = "slabs";
  MadeName made;
  std::string axis;
  int64_t turn = 1;
  bool beside = false;
  void fields(auto& visit) {
    visit(made);
    visit.axis(axis);
    visit(turn);
    visit.flag(beside, "beside");
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const SlabsStep& step);
LoopTree take(const LoopTree& tree, const SlabsStep& step);

/// `whole j.2`: the loop is removed, and its axis becomes a dimension of the tiles inside.
struct WholeStep {
  static constexpr std::string_view kName = "whole";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const WholeStep& step);
LoopTree take(LoopTree tree, const WholeStep& step);

/// `collapse i j`: i and its only child j become one loop over the axis ij of their product.
struct CollapseStep {
  static constexpr std::string_view kName = "collapse";
  LoopName outer, inner;
  void fields(auto& visit) {
    visit(outer);
    visit(inner);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const CollapseStep& step);
LoopTree take(const LoopTree& tree, const CollapseStep& step);
/// Whether the step is legal and every access also runs through both axes, so that no index needs
/// the digits of the joined axis.
bool runs_through(const LoopTree& tree, const CollapseStep& step);

}  // namespace braze
