#include "compiler/loops/rules/summed_nest.h"

namespace braze {

const Loop* only_loop(const LoopRegion& region) {
  const Loop* loop = region.size() == 1 ? as_loop(region.front()) : nullptr;
  return loop && loop->levels.size() == 1 ? loop : nullptr;
}

std::variant<SummedNest, Refusal> find_summed_nest(const LoopTree& tree) {
  SummedNest out;
  if (tree.phases.size() != 1) return no_rule("the tree of a product must have one phase");
  const LoopRegion* region = &tree.phases[0];
  for (const Loop* loop; (loop = only_loop(*region)) && loop->parallel; region = &loop->body)
    out.nest.push_back(loop->levels[0].axis);
  if (region->empty()) return no_rule("there is no product");
  const auto* first = std::get_if<Box<Loop>>(&region->front());
  if (!first) return no_rule("no loop runs along a summed axis");
  for (size_t i = 1; i < region->size(); ++i) {
    const auto* task = std::get_if<LoopTask>(&(*region)[i]);
    if (!task || task->makes_value())
      return no_rule("other loops follow the product, and read what its other turns have made");
    out.stores.push_back(task);
  }
  out.loop = &**first;
  for (const Loop* loop = out.loop; loop; loop = only_loop(loop->body)) {
    if (loop->parallel || loop->levels.size() != 1)
      return no_rule("the loops over the summed axes must be streams");
    out.summed.push_back(loop->levels[0].axis);
    out.inside = &loop->body;
  }
  return out;
}

}  // namespace braze
