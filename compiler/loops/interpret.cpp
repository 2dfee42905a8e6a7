#include "compiler/loops/interpret.h"

#include <algorithm>
#include <functional>

#include "ir/graph/interpret.h"
#include "ir/graph/text.h"
#include "ir/ops/machine_semantics.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr uint64_t kNoBits = 0;

int64_t row_major(std::span<const int64_t> at, std::span<const int64_t> shape) {
  int64_t out = 0;
  for (size_t i = 0; i < at.size(); ++i) out = out * shape[i] + at[i];
  return out;
}

class TreeInterpreter {
 public:
  TreeInterpreter(const LoopTree& tree, const Graph& graph, const Sizes& sizes,
                  const std::map<NodeId, const HostTensor*>& memory)
      : tree_(tree),
        graph_(graph),
        sizes_(sizes),
        memory_(memory),
        index_(tree.axes.size()),
        bound_(tree.axes.size()) {
    for (size_t i = 0; i < tree.axes.size(); ++i) axis_of_[tree.axes[i].name] = i;
  }

  std::map<NodeId, HostTensor> run() {
    run(tree_.body);
    return std::move(stored_);
  }

 private:
  /// What a reduction has so far.
  struct State {
    HostTensor values;              // in the dtype that it combines in
    std::vector<int64_t> combined;  // terms of each element; -1: not begun
    std::vector<int64_t> first;     // of an arg-reduction: where the value is
    int64_t terms = 0;              // that an element has in the end
    bool placed = false;            // each has as many as name it
  };

  void run(const LoopRegion& region) {
    for (const LoopItem& item : region) {
      if (const auto* task = std::get_if<LoopTask>(&item)) {
        run(*task);
        continue;
      }
      const Loop& loop = *std::get<std::unique_ptr<Loop>>(item);
      begin(loop.body, loop.axis);
      const int64_t extent = sizes_(tree_.axes[loop.axis].extent);
      bound_[loop.axis] = true;
      for (index_[loop.axis] = 0; index_[loop.axis] < extent; ++index_[loop.axis]) run(loop.body);
      index_[loop.axis] = 0;
      bound_[loop.axis] = false;
    }
  }

  // Before the outermost loop that a reduction combines over: its elements have no terms yet.
  void begin(const LoopRegion& region, size_t axis) {
    for (const LoopItem& item : region) {
      if (const auto* loop = std::get_if<std::unique_ptr<Loop>>(&item)) {
        begin((*loop)->body, axis);
        continue;
      }
      const auto& task = std::get<LoopTask>(item);
      const auto& over = task.over;
      const bool begun = std::any_of(over.begin(), over.end(), [&](size_t a) { return bound_[a]; });
      if (!begun && std::find(over.begin(), over.end(), axis) != over.end()) begin(task);
    }
  }

  int64_t value(const Expr& e, const std::vector<uint64_t>& steps, const LoopTask& task) const {
    return e.evaluate([&](std::string_view name) -> int64_t {
      if (const auto axis = axis_of_.find(name); axis != axis_of_.end())
        return index_[axis->second];
      if (name.size() > 1 && name[0] == 'v' && !sizes_.has(name)) {
        const size_t step = std::stoul(std::string(name.substr(1)));
        return bits_to_int(task.body[step].dtype, steps[step]);
      }
      return sizes_(name);
    });
  }

  bool hold(const Conditions& conditions, const std::vector<uint64_t>& steps,
            const LoopTask& task) const {
    return std::all_of(conditions.begin(), conditions.end(), [&](const RangeCondition& c) {
      const int64_t v = value(c.value, steps, task);
      return value(c.min, steps, task) <= v && v < value(c.limit, steps, task);
    });
  }

  std::vector<int64_t> values(const std::vector<Expr>& at, const std::vector<uint64_t>& steps,
                              const LoopTask& task) const {
    std::vector<int64_t> out;
    for (const Expr& e : at) out.push_back(value(e, steps, task));
    return out;
  }

  // Indices that were read at run time stay within the tensor, as on devices.
  static std::vector<int64_t> clamped(std::vector<int64_t> at, std::span<const int64_t> shape) {
    for (size_t i = 0; i < at.size(); ++i)
      at[i] = std::clamp<int64_t>(at[i], 0, std::max<int64_t>(shape[i] - 1, 0));
    return at;
  }

  uint64_t step(const LoopTask& task, uint32_t number, const std::vector<uint64_t>& steps) {
    const LoopValue& s = task.body[number];
    switch (s.kind) {
      case LoopValue::Kind::Load: {
        if (!hold(s.conditions, steps, task)) return kNoBits;
        const HostTensor& tensor = *memory_.at(s.node);
        if (tensor.numel() == 0) return kNoBits;
        return tensor.get_bits(
            row_major(clamped(values(s.at, steps, task), tensor.shape()), tensor.shape()));
      }
      case LoopValue::Kind::Read:
        if (!hold(s.conditions, steps, task)) return kNoBits;
        return read(s, values(s.at, steps, task));
      case LoopValue::Kind::Index:
        return constant_bits_int(s.dtype, value(s.at[0], steps, task));
      case LoopValue::Kind::Constant:
        return s.bits;
      case LoopValue::Kind::Inside:
        return hold(s.conditions, steps, task) ? 1 : 0;
      case LoopValue::Kind::Apply:
        break;
    }
    std::vector<HostTensor> operands;
    std::vector<const HostTensor*> pointers;
    for (const uint32_t argument : s.arguments) {
      operands.emplace_back(task.body[argument].dtype, std::vector<int64_t>{});
      operands.back().set_bits(0, steps[argument]);
    }
    for (const HostTensor& operand : operands) pointers.push_back(&operand);
    return evaluate_map(s.op, pointers, s.dtype).get_bits(0);
  }

  uint64_t read(const LoopValue& s, std::vector<int64_t> at) {
    const auto found = states_.find(s.node);
    if (found == states_.end())
      fail(codes::kUnfinishedValue, "no loop before has it", {.node = name_of(s.node)});
    const State& state = found->second;
    if (state.values.numel() == 0) return kNoBits;
    const auto shape = sizes_(graph_[s.node].type.shape);
    const int64_t element = row_major(clamped(std::move(at), shape), shape);
    const auto i = static_cast<size_t>(element);
    if (state.combined[i] != state.terms && !(state.placed && state.combined[i] >= 0))
      fail(codes::kUnfinishedValue,
           fmt::format("{} of {} terms are combined", state.combined[i], state.terms),
           {.node = name_of(s.node)});
    if (!state.first.empty()) return constant_bits_int(s.dtype, state.first[i]);
    return converted(state.values.get_bits(element), state.values.dtype(), s.dtype);
  }

  static uint64_t converted(uint64_t bits, DType from, DType to) {
    return from == to ? bits : machine_function(ElementwiseOp::convert, from, to)(bits, 0, 0);
  }

  State& state_of(const LoopTask& task) {
    const auto [found, added] = states_.try_emplace(task.node);
    State& state = found->second;
    if (!added) return state;
    state.values = HostTensor(task.body[task.value].dtype, sizes_(graph_[task.node].type.shape));
    state.combined.resize(static_cast<size_t>(state.values.numel()), -1);
    state.terms = 1;
    for (const size_t axis : task.over) state.terms *= sizes_(tree_.axes[axis].extent);
    state.placed = task.kind == LoopTask::Kind::Place;
    if (task.kind == LoopTask::Kind::Arg) state.first.resize(state.combined.size());
    return state;
  }

  // At all elements that the loops around it leave open.
  void begin(const LoopTask& task) {
    State& state = state_of(task);
    const DType dtype = state.values.dtype();
    const auto shape = sizes_(graph_[task.node].type.shape);
    const std::vector<int64_t> now = index_;
    const std::function<void(size_t)> each = [&](size_t n) {
      if (n < task.axes.size() && bound_[task.axes[n]]) return each(n + 1);
      if (n < task.axes.size()) {
        const int64_t extent = sizes_(tree_.axes[task.axes[n]].extent);
        int64_t& i = index_[task.axes[n]];
        for (i = 0; i < extent; ++i) each(n + 1);
        i = now[task.axes[n]];
        return;
      }
      std::vector<uint64_t> steps(task.body.size());
      uint64_t first = task.kind == LoopTask::Kind::Arg ? 0 : info(task.monoid).padding(dtype);
      if (task.kind == LoopTask::Kind::Place) {
        for (uint32_t i = 0; i <= task.start; ++i) steps[i] = step(task, i, steps);
        first = converted(steps[task.start], task.body[task.start].dtype, dtype);
      }
      const int64_t element = row_major(values(task.at, steps, task), shape);
      state.values.set_bits(element, first);
      state.combined[static_cast<size_t>(element)] = 0;
    };
    each(0);
  }

  void run(const LoopTask& task) {
    std::vector<uint64_t> steps(task.body.size());
    for (uint32_t i = 0; i < steps.size(); ++i) steps[i] = step(task, i, steps);
    const uint64_t result = steps[task.value];
    auto at = values(task.at, steps, task);
    const auto shape = sizes_(graph_[task.node].type.shape);
    if (task.kind == LoopTask::Kind::Store) {
      auto [found, added] = stored_.try_emplace(task.node);
      if (added) found->second = HostTensor(graph_[task.node].type.dtype, shape);
      found->second.set_bits(row_major(at, shape), result);
      return;
    }
    if (task.over.empty()) begin(task);
    State& state = state_of(task);
    if (task.kind == LoopTask::Kind::Place) at[task.placed_axis] = placed(task, steps, shape);
    const int64_t element = row_major(at, shape);
    const auto i = static_cast<size_t>(element);
    ++state.combined[i];
    const DType dtype = state.values.dtype();
    const uint64_t before = state.values.get_bits(element);
    if (task.kind == LoopTask::Kind::Arg) {
      int64_t number = 0;  // of the term; of equal ones the first is the result
      for (const size_t axis : task.over)
        number = number * sizes_(tree_.axes[axis].extent) + index_[axis];
      const bool wins = state.combined[i] == 1 || beats(task.arg_max, dtype, result, before) ||
                        (number < state.first[i] && !beats(task.arg_max, dtype, before, result));
      if (wins) state.first[i] = number;
      if (!wins) return;
      return state.values.set_bits(element, result);
    }
    const auto combine = machine_function(info(task.monoid).combine, dtype, dtype);
    state.values.set_bits(element, combine(before, result, 0));
  }

  // NaN counts as greatest and as least, and the first of equal values stays.
  static bool beats(bool greatest, DType dtype, uint64_t value, uint64_t best) {
    const auto is = [&](ElementwiseOp op, uint64_t a, uint64_t b) {
      return machine_function(op, dtype, DType::Bool)(a, b, 0) != 0;
    };
    if (is(ElementwiseOp::ne, best, best)) return false;
    if (is(ElementwiseOp::ne, value, value)) return true;
    return is(greatest ? ElementwiseOp::gt : ElementwiseOp::lt, value, best);
  }

  static int64_t placed(const LoopTask& task, const std::vector<uint64_t>& steps,
                        std::span<const int64_t> shape) {
    const int64_t place = bits_to_int(task.body[task.place].dtype, steps[task.place]);
    return std::clamp<int64_t>(place, 0, shape[task.placed_axis] - 1);
  }

  std::string name_of(NodeId node) const { return GraphPrinter(graph_).value(node); }

  const LoopTree& tree_;
  const Graph& graph_;
  const Sizes& sizes_;
  const std::map<NodeId, const HostTensor*>& memory_;
  std::map<std::string, size_t, std::less<>> axis_of_;
  std::vector<int64_t> index_;  // of each axis, in the turn at hand
  std::vector<bool> bound_;     // a loop over the axis is around
  std::map<NodeId, State> states_;
  std::map<NodeId, HostTensor> stored_;
};

}  // namespace

std::map<NodeId, HostTensor> interpret(const LoopTree& tree, const Graph& graph, const Sizes& sizes,
                                       const std::map<NodeId, const HostTensor*>& memory) {
  return TreeInterpreter(tree, graph, sizes, memory).run();
}

}  // namespace braze
