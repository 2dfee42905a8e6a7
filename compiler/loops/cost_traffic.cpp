// cost_traffic.cpp — the memory that a tree loads and stores.
#include <algorithm>
#include <cmath>

#include "compiler/loops/cost_p.h"
#include "compiler/loops/rules/facts.h"
#include "compiler/loops/steps/factors.h"
#include "ir/target/features.h"

namespace braze {

void add_beside_products(const LoopTree& tree, Work& out) {
  // Shares of the rate of memory, measured on an H200: of what is loaded and stored row by row
  // beside a slab of sums on chip, of what is loaded for sums or factors in registers, and of rows
  // of results that bulk copies cannot store.
  constexpr double kByRows = 0.25, kByRegisters = 0.35, kOddRows = 0.25;
  bool by_rows = false;
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    by_rows |=
        task.kind == LoopTask::Kind::Compute && tree.values[task.target].storage == Storage::Chip;
  });
  std::set<size_t> moved;
  const auto add = [&](size_t tensor, double rate) {
    if (!moved.insert(tensor).second) return;
    const double bytes = bytes_of(tree.tensors[tensor]);
    out.beside_products += bytes;
    out.slowly += bytes / rate;
  };
  for_each_task(tree.phases[0], [&](const LoopTask& task, const auto&) {
    if (task.unit == Unit::Wgmma)
      for (const LoopStep& s : task.body.steps)
        if (s.kind == LoopStep::Kind::Load) add(s.source, kByRegisters);
    if (task.makes_value()) return;
    const TensorType& type = tree.tensors[task.target].type;
    const Expr row = type.shape[type.shape.rank() - 1] * static_cast<int64_t>(size_of(type.dtype));
    if (by_rows)
      add(task.target, kByRows);
    else if (!row.is_multiple_of(kCopiedRowBytes))
      add(task.target, kOddRows);
    for (const LoopStep& s : task.body.steps)
      if (s.kind == LoopStep::Kind::Load) add(s.source, by_rows ? kByRows : kByRegisters);
  });
}

double bulk_lines(const LoopTree& tree, const LoopTask& task,
                  const std::vector<const Loop*>& around) {
  constexpr double kLine = 128, kSector = 32;
  const LoopStep& load = task.body.steps[task.body.results[0]];
  if (load.kind != LoopStep::Kind::Load || load.at.empty()) return 0;
  const auto size = static_cast<int64_t>(size_of(load.dtype));
  std::set<size_t> axes;
  auto row = static_cast<double>(size);
  for (const Expr& e : load.at)
    for (const std::string& symbol : e.symbols())
      if (const auto axis = find_axis(tree, symbol)) axes.insert(*axis);
  double elements = times(tree, around, axes);
  // Groups, and blocks of a cluster with tiles of their own, share a copy if they do not differ in
  // what they read.
  const Loop* block = around.front();
  for (const Loop* loop : around) {
    for (const auto& [axis, turn] : loop->levels)
      if ((loop->on == Machine::Group || (loop->on == Machine::Rank && turn > 1)) &&
          !axes.contains(axis))
        elements /= most(extent_in(tree, {block}, axis)) / static_cast<double>(turn);
    if (loop->on == Machine::Rank) block = loop;
  }
  for (const size_t axis : axes) {
    // An axis that is composed of several has neighbours along the inner one.
    const Expr last = load.at.back().substitute(tree.axes[axis].name, 0);
    const Expr inner = load.at.back() - last;
    const Expr index = tree.axes[axis].index();
    if (inner == index)
      row *= most(extent_in(tree, around, axis));
    else if (inner.kind() == Expr::Kind::Mod && inner.operands()[0] == index)
      row *= std::min(most(inner.operands()[1]), most(extent_in(tree, around, axis)));
  }
  row = std::min(row, kLine);
  const Shape& shape = tree.tensors[load.source].type.shape;
  auto divisor = static_cast<int64_t>(kLine);  // of the place where a row begins
  while (shape.rank() > 1 && divisor > 1 &&
         !(shape[shape.rank() - 1] * size).is_multiple_of(divisor))
    divisor /= 2;
  const auto start = static_cast<double>(divisor);
  const double lines = 1 + std::max(row - start, 0.0) / kLine;
  const double sectors = start < kSector ? 1 + kSector / std::max(row, kSector) : 1;
  return elements * static_cast<double>(size) / row * lines * sectors;
}

namespace {

// The bytes of the lines of the nearest cache that a warp's load touches, for each of its elements:
// a line for each lane where neighbouring lanes are far apart in memory. `tile`: the axes of the
// task.
double line_bytes(const LoopTree& tree, const LoopTask& task, const std::set<size_t>& tile,
                  const std::vector<const Loop*>& around, const Expr& offset, double element) {
  constexpr int64_t kLanes = 32;
  constexpr double kLine = 128, kAccess = 16;
  const Layout* layout = task.layout ? &*task.layout : nullptr;
  if (task.makes_value() && tree.values[task.target].layout)
    layout = &tree.values[task.target].layout->layout;
  if (!layout) return element;
  std::vector<int64_t> strides;  // in elements, of each dimension of the tile
  for (const size_t axis : tile) {
    if (extent_in(tree, around, axis).is_constant(1)) continue;
    const auto coefficient = offset.coefficient_of(tree.axes[axis].name);
    const auto stride = coefficient ? coefficient->as_constant() : std::nullopt;
    if (!stride) return element;
    strides.push_back(*stride);
  }
  if (strides.size() != layout->rank()) return element;
  std::set<int64_t> lines;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    int64_t place = 0;
    for (size_t d = 0; d < strides.size(); ++d) {
      int64_t weight = strides[d];
      for (auto digit = layout->axes[d].rbegin(); digit != layout->axes[d].rend(); ++digit) {
        if (digit->resource == Resource::Lane)
          place += lane / digit->stride % digit->extent * weight;
        weight *= digit->extent;
      }
    }
    lines.insert(static_cast<int64_t>(std::floor(static_cast<double>(place) * element / kLine)));
  }
  // Neighbours in registers are loaded together.
  double together = 1;
  for (size_t d = 0; d < strides.size(); ++d)
    if (strides[d] == 1 && !layout->axes[d].empty() &&
        layout->axes[d].back().resource == Resource::Register)
      together = std::min(static_cast<double>(layout->axes[d].back().extent), kAccess / element);
  const double touched = kLine * static_cast<double>(lines.size()) / (kLanes * together);
  return touched <= kLine / 8 ? element : touched;
}

// A turn that a loop leaves out because its term has another place takes this share of the time of
// a turn that loads.
constexpr double kSought = 0.125;

// The memory that the tasks load and store.
class Traffic {
 public:
  Traffic(const LoopTree& tree, const Target& target, Work& out)
      : tree_(tree), target_(target), out_(out), read_(tree.tensors.size()) {}

  void add() {
    std::vector<double> written(tree_.tensors.size());
    for_each_task(tree_, [&](const LoopTask& task, const std::vector<const Loop*>& around) {
      const auto axes = axes_of_steps(tree_, task.body);
      const std::set<size_t> tile = all_axes(tree_, task);
      for (size_t i = 0; i < axes.size(); ++i)
        if (task.body.steps[i].kind == LoopStep::Kind::Load)
          add_load(task, task.body.steps[i], axes[i], tile, around);
      if (!task.makes_value())
        written[task.target] += elements_along(tree_, stored_axes(task, axes)) *
                                static_cast<double>(size_of(tree_.tensors[task.target].type.dtype));
    });
    for (size_t t = 0; t < tree_.tensors.size(); ++t) {
      out_.read += std::min(read_[t], bytes_of(tree_.tensors[t]));
      out_.written += std::min(written[t], bytes_of(tree_.tensors[t]));
    }
    if (target_.kind == TargetKind::Gpu) add_workspaces();
  }

 private:
  // Fitted to products of few rows in `blocks/bert-short` and `steps/mlp` on an H200.
  static constexpr double kNearTurn = 0.45;

  // A place that was loaded, and the innermost loop around the load that runs its turns in order.
  struct Seen {
    size_t tensor;
    Expr offset;
    const Loop* walk;
  };

  // Whether a loop has at most one turn. What tasks of such loops load alike is loaded once.
  bool is_one_turn(const Loop& loop) const {
    return loop.levels.size() == 1 && loop.levels[0].turn > 1 &&
           tree_.axes[loop.levels[0].axis].extent.range().max <= loop.levels[0].turn;
  }

  // Whether a loop around takes several turns of the loop at once.
  static bool is_in_groups(const Loop& loop, const std::vector<const Loop*>& around) {
    return std::ranges::any_of(around, [&](const Loop* other) {
      return other != &loop && !other->parallel && other->levels[0].axis == loop.levels[0].axis &&
             other->levels[0].turn > 1;
    });
  }

  // What one phase leaves for the next one is written and read.
  void add_workspaces() {
    for (const LoopValue& value : tree_.values) {
      if (value.storage != Storage::Workspace) continue;
      const double bytes = elements_along(tree_, {value.axes.begin(), value.axes.end()}) *
                           static_cast<double>(size_of(value.dtype));
      const bool cached = bytes <= static_cast<double>(target_.l3_bytes);
      (cached ? out_.cached_again : out_.read_again) += 2 * bytes;
    }
  }

  void add_load(const LoopTask& task, const LoopStep& load, const std::set<size_t>& axes,
                const std::set<size_t>& tile, const std::vector<const Loop*>& around) {
    const LoopTensor& tensor = tree_.tensors[load.source];
    const Expr offset = linear_offset(load.at, tensor.type.shape);
    const Loop* walk = nullptr;
    double turns = 1, parallel = 1;
    bool seeks = false, grouped = false;
    for (size_t i = 0; i < around.size(); ++i)
      if (const Loop* loop = around[i]; loop->parallel) {
        for (const auto& [axis, turn] : loop->levels)
          parallel *= std::ceil(static_cast<double>(planned_extent(tree_, axis)) /
                                static_cast<double>(turn));
      } else if (!is_one_turn(*loop)) {
        walk = loop;
        seeks |= loop->seek;
        // The places of a group of terms are compared at once, and each block has its share of
        // hits.
        if (loop->seek && target_.kind == TargetKind::Gpu && is_in_groups(*loop, around)) {
          grouped = true;
          const double group = mean_length(
              tree_, {around.begin(), around.begin() + static_cast<std::ptrdiff_t>(i)}, *loop);
          turns *= std::max(group / parallel, 1.0);
          continue;
        }
        // With a ring, several turns wait for their data at the same time, and so do turns that are
        // written one after the other. These take elements one by one, mostly from near caches.
        if (loop->ring > 2) turns /= static_cast<double>(loop->ring - 1);
        if (loop->unroll > 1) turns *= kNearTurn / static_cast<double>(loop->unroll);
        for (const auto& [axis, turn] : loop->levels)
          turns *= std::max(
              mean_length(tree_, {around.begin(), around.begin() + static_cast<std::ptrdiff_t>(i)},
                          *loop) /
                  static_cast<double>(turn),
              1.0);
      }
    out_.turns = std::max(out_.turns, turns * (seeks && !grouped ? kSought : 1));
    bool again = false;
    for (const Seen& other : seen_) {
      if (other.tensor != load.source || !(other.offset == offset)) continue;
      if (other.walk == walk) return;
      again = true;
    }
    seen_.push_back({load.source, offset, walk});
    const auto element = static_cast<double>(size_of(tensor.type.dtype));
    const double bytes = elements_along(tree_, axes) * element;
    // What a multiprocessor can keep beside other data, it loads once.
    const double keeps = static_cast<double>(target_.l1_bytes) / 2;
    // One of the conditions, as those of the parts of a concatenation, holds in half of all places.
    const double share = load.conditions.empty() ? 1 : 0.5;
    const double all = seeks ? bytes : times(tree_, around, axes) * element * share;
    if (target_.kind == TargetKind::Gpu)
      out_.lines += all / element * line_bytes(tree_, task, tile, around, offset, element);
    out_.loaded += bytes <= keeps ? std::min(bytes * target_.cores, all) : all;
    if (!again) {
      read_[load.source] += bytes;
      return;
    }
    double instances = 1;
    for (const Loop* loop : around)
      for (const auto& [axis, turn] : loop->levels)
        if (loop->on == Machine::Grid && axes.contains(axis))
          instances *= std::ceil(static_cast<double>(planned_extent(tree_, axis)) /
                                 static_cast<double>(turn));
    const double own = bytes / instances;
    const double at_once = std::min(instances, static_cast<double>(target_.cores));
    if (own <= static_cast<double>(target_.l2_bytes)) return;
    const bool cached = own * at_once <= static_cast<double>(target_.l3_bytes);
    (cached ? out_.cached_again : out_.read_again) += bytes;
  }

  std::set<size_t> stored_axes(const LoopTask& task,
                               const std::vector<std::set<size_t>>& axes) const {
    std::set<size_t> out;
    for (const Expr& e : task.at)
      for (const std::string& symbol : e.symbols()) {
        if (const auto axis = find_axis(tree_, symbol)) out.insert(*axis);
        if (const auto step = loaded_step(symbol))
          out.insert(axes[*step].begin(), axes[*step].end());
      }
    return out;
  }

  const LoopTree& tree_;
  const Target& target_;
  Work& out_;
  std::vector<double> read_;
  std::vector<Seen> seen_;
};

}  // namespace

void add_traffic(const LoopTree& tree, const Target& target, Work& out) {
  Traffic(tree, target, out).add();
}

}  // namespace braze
