// levels.h — steps that change the levels of axes: `split`, `slabs` and `whole`, and `collapse`,
// which joins two axes.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `split j 128`: the loop becomes two loops, one with turns of 128 and inside it one with turns of
/// the old size. With `padded`, this is also done if the axis is shorter, so that tiles have this
/// size. Of a parallel loop over several axes, only the named one is split. A loop of one turn is
/// left out, unless it is dealt to the machine.
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

/// `slabs y f 64`: puts a stream over turns of 64 of f around the one task that makes y or, with
/// `beside`, around all stores side by side with it.
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

/// `whole j.2`: removes the loop. Its axis becomes a dimension of the tiles inside.
struct WholeStep {
  static constexpr std::string_view kName = "whole";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const WholeStep& step);
LoopTree take(LoopTree tree, const WholeStep& step);

/// `collapse i j`: i and its only child j become one loop over an axis ij that combines both.
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
/// The tree after the step, if the step is legal and every access runs through both axes as one, so
/// that no coordinate needs the digits of the joined axis.
std::optional<LoopTree> run_through(const LoopTree& tree, const CollapseStep& step);

}  // namespace braze
