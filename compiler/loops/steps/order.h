// order.h — steps that change the order of loops, or the part of the machine that takes their
// turns: `reorder`, `tuple`, `on`, `serial` and `reverse`.
#pragma once

#include "compiler/loops/steps/places.h"

namespace braze {

/// `reorder l k`: l and the only loop inside it, k, change places.
struct ReorderStep {
  static constexpr std::string_view kName = "reorder";
  LoopName outer, inner;
  void fields(auto& visit) {
    visit(outer);
    visit(inner);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const ReorderStep& step);
LoopTree take(LoopTree tree, const ReorderStep& step);

/// `tuple l k`: l and the only loop inside it, k, become one loop over the levels of both.
struct TupleStep {
  static constexpr std::string_view kName = "tuple";
  LoopName outer, inner;
  void fields(auto& visit) {
    visit(outer);
    visit(inner);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const TupleStep& step);
LoopTree take(LoopTree tree, const TupleStep& step);

/// `on l grid`: which part of the machine takes the turns of a parallel loop.
struct OnStep {
  static constexpr std::string_view kName = "on";
  LoopName loop;
  Machine machine = Machine::Grid;
  void fields(auto& visit) {
    visit(loop);
    visit(machine);
  }
};
std::optional<Refusal> legal(const LoopTree& tree, const OnStep& step);
LoopTree take(LoopTree tree, const OnStep& step);

/// `serial l`: a parallel loop becomes a stream.
struct SerialStep {
  static constexpr std::string_view kName = "serial";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const SerialStep& step);
LoopTree take(LoopTree tree, const SerialStep& step);

/// `reverse l`: the turns run from the last to the first.
struct ReverseStep {
  static constexpr std::string_view kName = "reverse";
  LoopName loop;
  void fields(auto& visit) { visit(loop); }
};
std::optional<Refusal> legal(const LoopTree& tree, const ReverseStep& step);
LoopTree take(LoopTree tree, const ReverseStep& step);

}  // namespace braze
