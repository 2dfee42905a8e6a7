#include "compiler/loops/rules/facts.h"
#include "compiler/loops/rules/rules.h"

namespace braze {

void collapse_axes(Scheduled& out, const std::vector<size_t>& nest) {
  // From the inside: the joined axis is the inner one of the next pair.
  std::vector<std::string> names;
  for (const size_t axis : nest) names.push_back(out.tree.axes[axis].name);
  for (size_t i = names.size(); i-- > 1;) {
    const size_t outer = *find_axis(out.tree, names[i - 1]), inner = *find_axis(out.tree, names[i]);
    if (out.try_take(CollapseStep{{names[i - 1]}, {names[i]}}))
      names[i - 1] = out.tree.axes[outer - (inner < outer)].name;
  }
}

}  // namespace braze
