#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

void collapse_axes(Scheduled& out) {
  // From the inside: the joined axis is the inner one of the next pair.
  std::vector<std::string> names;
  const auto nest = nest_axes(out.tree);
  for (size_t i = 0; nest && i < nest->size(); ++i) names.push_back(out.tree.axes[(*nest)[i]].name);
  for (size_t i = names.size(); i-- > 1;) {
    const size_t outer = *find_axis(out.tree, names[i - 1]), inner = *find_axis(out.tree, names[i]);
    if (out.try_take(CollapseStep{{names[i - 1]}, {names[i]}}))
      names[i - 1] = out.tree.axes[outer - (inner < outer)].name;
  }
}

}  // namespace braze
