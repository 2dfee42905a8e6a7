// axes.h — steps that change how axes lie in tiles: `last` and `lead`.
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

/// `flatten x`: neighbouring dimensions of tensor x that all accesses run through as one become
/// one, so that copies have fewer.
struct FlattenStep {
  static constexpr std::string_view kName = "flatten";
  std::string tensor;
  void fields(auto& visit) { visit.tensor(tensor); }
};
std::optional<Refusal> legal(const LoopTree& tree, const FlattenStep& step);
LoopTree take(LoopTree tree, const FlattenStep& step);

}  // namespace braze
