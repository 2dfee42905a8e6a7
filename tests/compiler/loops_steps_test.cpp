// Random legal steps on the first trees of random graphs: whatever is legal changes no value, but
// by the order of sums, and makes a sound tree that reads back from its text.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "compiler/loops/steps/text.h"
#include "compiler/loops/text.h"
#include "compiler/loops/verify.h"
#include "ir/graph/text.h"
#include "tests/compiler/loops.h"
#include "tests/compiler/run.h"
#include "tests/fuzz/generator.h"

namespace braze {
namespace {

/// Fills the fields of a step with what the tree has.
class RandomFields {
 public:
  RandomFields(const LoopTree& tree, std::mt19937_64& random) : tree_(tree), random_(random) {
    std::map<size_t, int64_t> seen;
    for (const LoopRegion& phase : tree.phases)
      visit_loops(phase, [&](const Loop& loop) {
        for (const LoopLevel& level : loop.levels)
          loops_.push_back({tree.axes[level.axis].name, ++seen[level.axis]});
      });
  }

  // The second loop of a step is often one that comes soon behind the first.
  void operator()(LoopName& name) {
    if (loops_.empty()) return;
    size_t i = below(loops_.size());
    if (last_ && below(4) > 0) i = std::min(*last_ + 1 + below(3), loops_.size() - 1);
    last_ = i;
    name = loops_[i];
  }
  void operator()(MadeName& name) {
    name.is_value = below(2) == 0;
    name.is_value ? value(name.name) : tensor(name.name);
  }
  void operator()(int64_t& number) {
    constexpr int64_t kNumbers[] = {1, 2, 3, 4, 6, 8, 16, 64};
    number = kNumbers[below(std::size(kNumbers))];
  }
  void operator()(Machine& machine) { machine = static_cast<Machine>(1 + below(3)); }
  void operator()(Combine& how) { how = static_cast<Combine>(1 + below(2)); }
  void operator()(Unit& unit) { unit = static_cast<Unit>(1 + below(3)); }
  void operator()(Storage& storage) { storage = static_cast<Storage>(below(4)); }
  void operator()(Layout& layout) {
    const std::vector<int64_t> extents(1 + below(2), 8);
    layout = spread(extents, extents, 1);
  }
  void operator()(CacheHint& hint) { hint = static_cast<CacheHint>(1 + below(2)); }
  void operator()(IndexComparison& c) {
    std::string left, right;
    axis(left);
    axis(right);
    c = {Expr::symbol(left, {}), static_cast<IndexComparison::Kind>(below(6)),
         Expr::symbol(right, {}) + static_cast<int64_t>(below(3))};
  }
  void operator()(std::vector<DealOrder>& orders) {
    orders.push_back({Deal::Order::Band, 2, {}});
    if (below(2) == 0) orders.push_back({Deal::Order::Persistent, 8, {}});
  }
  void operator()(std::vector<AxisTurn>& digits) {
    // Most often of loops one inside the other, in their order.
    if (tree_.axes.empty()) return;
    const size_t count = below(2) + 1, first = below(tree_.axes.size());
    for (size_t i = first; i < std::min(first + count, tree_.axes.size()); ++i)
      digits.push_back({static_cast<int64_t>(below(4)) + 1, tree_.axes[i].name});
  }
  void count(int64_t& number) { number = static_cast<int64_t>(below(3)); }
  void new_axis(std::string& name) { name = below(20) == 0 ? "i" : "composed"; }
  void axis(std::string& name) { pick(tree_.axes, name); }
  void tensor(std::string& name) { pick(tree_.tensors, name); }
  void value(std::string& name) { pick(tree_.values, name); }
  void flag(bool& is, std::string_view) { is = below(2) == 0; }
  void number_if_any(int64_t& number, std::string_view) {
    number = static_cast<int64_t>(below(3)) * 8;
  }

 private:
  size_t below(size_t n) { return random_() % n; }
  template <class Things>
  void pick(const Things& things, std::string& name) {
    if (!things.empty()) name = things[below(things.size())].name;
  }

  const LoopTree& tree_;
  std::mt19937_64& random_;
  std::vector<LoopName> loops_;
  std::optional<size_t> last_;
};

template <size_t i = 0>
StepKind kind_number(size_t number) {
  if constexpr (i + 1 < std::variant_size_v<StepKind>)
    if (number != i) return kind_number<i + 1>(number);
  return std::variant_alternative_t<i, StepKind>();
}

LoopTreeStep random_step(const LoopTree& tree, std::mt19937_64& random) {
  LoopTreeStep step{kind_number(random() % std::variant_size_v<StepKind>)};
  RandomFields fields(tree, random);
  std::visit([&](auto& kind) { kind.fields(fields); }, step.kind);
  return step;
}

// Whether its values do not depend on the order in which terms are combined.
bool has_no_order(const LoopTree& tree) {
  bool out = true;
  for (const LoopRegion& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      const bool fold = task.kind == LoopTask::Kind::Fold && task.monoid != Monoid::Sum &&
                        task.monoid != Monoid::Prod;
      out &= !task.has_state() || fold || task.kind == LoopTask::Kind::Arg;
    });
  return out;
}

bool same_bits(const HostTensor& a, const HostTensor& b) {
  for (int64_t i = 0; i < a.numel(); ++i)
    if (a.get_bits(i) != b.get_bits(i)) return false;
  return a.numel() == b.numel();
}

// Of those on other things, which are nearly always legal, few are taken.
constexpr size_t kStepsOnLoops = 7;
constexpr int kAttempts = 100;
constexpr size_t kMostSteps = 10;

void expect_kept(uint64_t seed, std::map<std::string, int>& taken) {
  // A sort is no loop tree, but several kernels.
  const Graph graph =
      fuzz::random_graph(seed, {.max_elements = 256, .max_products = 2048, .sorts = false});
  const std::vector<HostTensor> inputs = fuzz::random_inputs(graph, seed);
  const LoopForms forms(graph);
  const Fusion fusion = testing::everything(forms);
  const LoopTree built = build_loops(forms, fusion, graph.name());
  LoopTree tree = built;
  LoopTreeSteps steps;
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + to_text(graph) + to_text(built));
  try {
    for (int i = 0; i < kAttempts && steps.size() < kMostSteps; ++i) {
      const LoopTreeStep step = random_step(tree, random);
      const bool changes_loops = step.kind.index() < kStepsOnLoops;
      if ((!changes_loops && random() % 4 > 0) || legal(tree, step)) continue;
      steps.push_back(step);
      tree = take(tree, step);
      const std::string text = to_text(step);
      ++taken[text.substr(0, text.find(' '))];
    }
    const std::string list = to_text(steps), text = to_text(tree);
    SCOPED_TRACE(list + "\n" + text);
    EXPECT_EQ(to_text(parse_steps(list, "printed steps")), list);
    EXPECT_EQ(to_text(take(built, parse_steps(list, "printed steps"))), text);
    const LoopTree read = parse_loops(text, "printed text");
    EXPECT_EQ(to_text(read), text);
    EXPECT_TRUE(verify(read).empty());
    const auto outputs = testing::run(read, built, graph, fusion, inputs);
    const CheckResult result = testing::check(graph, inputs, outputs);
    EXPECT_TRUE(result.ok) << result.summary();
    const bool exact = has_no_order(built);
    const auto first = testing::run(built, built, graph, fusion, inputs);
    for (size_t i = 0; exact && i < first.size(); ++i)
      EXPECT_TRUE(same_bits(first[i], outputs[i])) << "output " << i;
  } catch (const Error& error) {
    FAIL() << to_text(steps) << "\n" << to_text(tree) << error.what();
  }
}

TEST(LoopSteps, KeepTheValuesOfRandomGraphs) {
  std::map<std::string, int> taken;
  for (uint64_t seed = 0; seed < 400 && !HasFailure(); ++seed) expect_kept(seed, taken);
  // Else what was said above is said of nothing.
  for (const char* name : {"split", "slabs", "whole", "reorder", "tuple", "on", "serial", "reverse",
                           "stage", "load", "keep", "again"})
    EXPECT_GE(taken[name], 5) << name;
}

}  // namespace
}  // namespace braze
