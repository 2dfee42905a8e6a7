#include "compiler/loops/rules/partial_sums.h"

#include <algorithm>
#include <map>

#include "compiler/loops/rules/facts.h"

namespace braze {

namespace {

constexpr int64_t kTerms = 256;   // of a partial sum, approximately
constexpr int64_t kUnrolled = 4;  // turns that a loop may take at once
constexpr int64_t kMost = int64_t{1} << 40;

class Parts {
 public:
  explicit Parts(const LoopTree& tree) : tree_(tree), length_(tree.axes.size()) {
    for (size_t axis = 0; axis < tree.axes.size(); ++axis)
      length_[axis] = planned_extent(tree, axis);
    for (const LoopRegion& phase : tree.phases) region(phase);
  }

  std::vector<PartialStep> steps() && { return std::move(steps_); }

 private:
  bool sums_floats(const Loop& loop) const {
    bool out = false;
    for_each_task(loop.body, [&](const LoopTask& task, const auto&) {
      out |= contains(task.over, loop.levels[0].axis) && task.has_state() &&
             task.kind != LoopTask::Kind::Scan && monoid_of(task) == Monoid::Sum &&
             is_floating(body_dtype(task));
    });
    return out;
  }

  // The number of terms that are added one after the other to a sum of the region.
  int64_t region(const LoopRegion& items) {
    int64_t terms = 1;
    for (const LoopItem& item : items)
      if (const auto* loop = std::get_if<Box<Loop>>(&item))
        terms = std::max(terms, this->loop(**loop));
    return terms;
  }

  int64_t loop(const Loop& loop) {
    std::vector<LoopName> names;
    for (const LoopLevel& level : loop.levels)
      names.push_back({tree_.axes[level.axis].name, ++loops_[level.axis]});
    std::vector<int64_t> around;
    int64_t turns = 1;
    for (const auto& [axis, turn] : loop.levels) {
      turns = std::min(turns * ((length_[axis] + turn - 1) / turn), kMost);
      around.push_back(std::exchange(length_[axis], std::min(turn, length_[axis])));
    }
    const int64_t terms = region(loop.body);
    for (size_t i = 0; i < around.size(); ++i) length_[loop.levels[i].axis] = around[i];
    if (loop.parallel || loop.levels.size() != 1 || !sums_floats(loop)) return terms;
    const int64_t all = std::min(turns * terms, kMost);
    if (all < 2 * kTerms) return all;
    const int64_t part = turns_of_part(turns, terms);
    steps_.push_back({names[0], part});
    return (turns + part - 1) / part;
  }

  // Parts of equal length need no code for a shorter one.
  static int64_t turns_of_part(int64_t turns, int64_t terms) {
    const int64_t wanted = std::max<int64_t>(kTerms / terms, 1);
    for (const int64_t multiple : {kUnrolled, int64_t{1}})
      for (int64_t away = 0; away <= wanted / 2; ++away)
        for (const int64_t part : {wanted - away, wanted + away})
          if (turns % part == 0 && part % multiple == 0) return part;
    return wanted;
  }

  const LoopTree& tree_;
  std::vector<int64_t> length_;  // of each axis: the indices that a turn of the loops around takes
  std::map<size_t, int64_t> loops_;  // of each axis: the number of its loops so far
  std::vector<PartialStep> steps_;
};

}  // namespace

void sum_in_parts(Scheduled& out) {
  for (const PartialStep& step : Parts(out.tree).steps()) out.try_take(step);
}

}  // namespace braze
