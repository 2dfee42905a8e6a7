#include "compiler/loops/interpret.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "compiler/loops/guards.h"
#include "ir/graph/interpret.h"
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

// The indices of an axis that the present turns of the loops around take; without loops, all of it.
struct Range {
  int64_t begin = 0, end = 0;
};

class TreeInterpreter {
 public:
  TreeInterpreter(const LoopTree& tree, const Sizes& sizes, std::vector<HostTensor>& tensors)
      : tree_(tree),
        sizes_(sizes),
        tensors_(tensors),
        states_(tree.values.size()),
        index_(tree.axes.size()),
        loops_(tree.axes.size()),
        guards_(guarded_values(tree)) {
    for (size_t i = 0; i < tree.axes.size(); ++i) {
      axis_of_[tree.axes[i].name] = i;
      range_.push_back({0, sizes_(tree.axes[i].extent)});
    }
    shared_ = range_;
    for (size_t i = 0; i < tree.tensors.size(); ++i) {
      const LoopTensor& tensor = tree.tensors[i];
      if (tensor.mode == Mode::Out)
        tensors_[i] = HostTensor(tensor.type.dtype, sizes_(tensor.type.shape));
    }
    for (size_t v = 0; v < tree.values.size(); ++v) {
      State& state = states_[v];
      for (const size_t axis : tree.values[v].axes) state.shape.push_back(range_[axis].end);
    }
  }

  void run() {
    for (const LoopRegion& phase : tree_.phases) run(phase);
  }

 private:
  enum class Progress : uint8_t { None, Running, Done };

  /// The state of a value under computation.
  struct State {
    std::vector<int64_t> shape;
    HostTensor values, before;        // in the dtype in which the value combines; before this turn
    std::vector<Progress> progress;   // of each element
    std::vector<int64_t> first;       // of an arg-reduction: the number of the best term
    std::vector<HostTensor> carried;  // of a scan: the parts of the total, at index 0 of its axis
    std::optional<uint64_t> none;     // the result of a reduction without terms
  };

  // Statements up to this item run first, for all parts. Those after it run when the parts are one.
  struct Combining {
    const LoopItem* item;
    bool is_over;
  };

  // --- Loops --------------------------------------------------------------------------------

  void run(const LoopRegion& region) {
    size_t first = 0, last = region.size();
    for (size_t i = 0; combining_ && i < region.size(); ++i) {
      const bool own = &region[i] == combining_->item;
      if (!own && !contains_item(region[i], combining_->item)) continue;
      if (combining_->is_over)
        first = own ? i + 1 : i;
      else
        last = i + 1;
    }
    for (size_t i = first; i < last; ++i) {
      if (const auto* task = std::get_if<LoopTask>(&region[i]))
        run(*task);
      else
        run(*std::get<Box<Loop>>(region[i]));
    }
  }

  static bool contains_item(const LoopItem& outer, const LoopItem* inner) {
    const auto* loop = std::get_if<Box<Loop>>(&outer);
    return loop && std::ranges::any_of((*loop)->body, [&](const LoopItem& item) {
             return &item == inner || contains_item(item, inner);
           });
  }

  // The item after which the partial states of a task are combined: what of `item` makes them, if
  // parallel loops stand around that.
  static const LoopItem* maker_of(const LoopItem& item, const LoopTask& task) {
    const auto* loop = std::get_if<Box<Loop>>(&item);
    if (!loop || !(*loop)->parallel) return &item;
    for (const LoopItem& inner : (*loop)->body) {
      bool makes = false;
      each_task(inner, [&](const LoopTask& t) { makes |= &t == &task; });
      if (makes) return maker_of(inner, task);
    }
    return &item;
  }

  void run(const Loop& loop) {
    // The states that begin with this loop. Partial states are combined before the statements that
    // follow their tasks run.
    std::vector<const LoopTask*> begun;
    const LoopItem* maker = nullptr;
    for (const LoopItem& item : loop.body)
      each_task(item, [&](const LoopTask& task) {
        const auto around = [&](size_t axis) { return loops_[axis] > 0; };
        if (!runs_over_any(loop, task.over) ||
            std::any_of(task.over.begin(), task.over.end(), around))
          return;
        begin(task);
        begun.push_back(&task);
        if (task.combine == Combine::None) return;
        maker = maker_of(item, task);
      });
    const auto finish_all = [&] {
      for (const LoopTask* task : begun) finish(*task);
    };
    if (!maker) {
      turns(loop, 0);
      return finish_all();
    }
    const auto around = std::exchange(combining_, Combining{maker, false});
    turns(loop, 0);
    finish_all();
    combining_->is_over = true;
    turns(loop, 0);
    combining_ = around;
  }

  template <class Visit>
  static void each_task(const LoopItem& item, const Visit& visit) {
    if (const auto* task = std::get_if<LoopTask>(&item)) return visit(*task);
    for (const LoopItem& inner : std::get<Box<Loop>>(item)->body) each_task(inner, visit);
  }

  // Runs the turns of the levels from `level` on.
  void turns(const Loop& loop, size_t level) {
    if (level == loop.levels.size()) return run(loop.body);
    const auto [axis, turn] = loop.levels[level];
    const Range outer = range_[axis], shared = shared_[axis];
    Range all = outer;
    if (loop.limit) limits_ = limits_of(loop);
    if (loop.bounds) {
      all.begin = bound(loop.bounds->first);
      all.end = std::min(all.end, bound(loop.bounds->second));
    }
    const int64_t count = all.end > all.begin ? (all.end - all.begin + turn - 1) / turn : 0;
    const bool kept = kept_;
    ++loops_[axis];
    for (int64_t t = 0; t < count; ++t) {
      int64_t begin = all.begin + turn * (loop.down ? count - 1 - t : t), end = all.end;
      keep(loop, begin, turn);
      if (loop.picks) {
        begin = picked(loop, t) * turn;
        end = outer.end;
      }
      range_[axis] = {std::max(begin, outer.begin), std::min(begin + turn, end)};
      if (loop.on != Machine::Group) shared_[axis] = range_[axis];
      turns(loop, level + 1);
    }
    kept_ = kept;
    --loops_[axis];
    range_[axis] = outer;
    shared_[axis] = shared;
  }

  // The turn that the list of the loop has at a place.
  int64_t picked(const Loop& loop, int64_t place) {
    const LoopTask none;
    const size_t value = loop.picks->value;
    LoopStep read{.kind = LoopStep::Kind::Read,
                  .dtype = tree_.values[value].dtype,
                  .source = value,
                  .at = loop.picks->at};
    read.at.emplace_back(place);
    const LoopBody body{{read}, {0}};
    Evaluation at{none, body};
    stand(shared_);
    return bits_to_int(read.dtype, evaluate(0, at));
  }

  // Comparisons that are marked as kept count as true in the turns of which the loop says so.
  void keep(const Loop& loop, int64_t begin, int64_t turn) {
    bool any = false, all = true;
    for (const IndexComparison& part : loop.parts) {
      if (!compares_limit(tree_, loop, part)) continue;
      any = true;
      for (const int64_t index : {begin, begin + turn - 1}) {
        const std::string& axis = tree_.axes[loop.levels[0].axis].name;
        const int64_t left = bound(part.left.substitute(axis, index)),
                      right = bound(part.right.substitute(axis, index));
        using Kind = IndexComparison::Kind;
        all =
            all && (part.kind == Kind::Lt ? left < right : part.kind == Kind::Ge && left >= right);
      }
    }
    if (any) kept_ = all;
  }

  int64_t bound(const Expr& e) const {
    return e.evaluate([&](std::string_view name) -> int64_t {
      if (const auto axis = axis_of_.find(name); axis != axis_of_.end())
        return shared_[axis->second].begin;
      if (name.ends_with(".end"))
        return shared_[axis_of_.find(name.substr(0, name.size() - 4))->second].end;
      if (const auto limit = limits_.find(name); limit != limits_.end()) return limit->second;
      return sizes_(name);
    });
  }

  // The limits of a loop that begins here, by the names of their symbols.
  std::map<std::string, int64_t, std::less<>> limits_of(const Loop& loop) {
    const LoopTask none;
    Evaluation at{none, *loop.limit};
    stand(shared_);
    std::map<std::string, int64_t, std::less<>> out;
    for (size_t n = 0; n < loop.limit->results.size(); ++n) {
      const uint32_t result = loop.limit->results[n];
      const int64_t number = bits_to_int(loop.limit->steps[result].dtype, evaluate(result, at));
      out[limit_symbol(tree_.axes[loop.levels[0].axis], n).symbol_name()] =
          std::clamp(number, kLimits.min, kLimits.max);
    }
    return out;
  }

  // --- Bodies -------------------------------------------------------------------------------

  // Evaluates the steps of a body on demand, once for each element.
  struct Evaluation {
    const LoopTask& task;
    const LoopBody& body;
    // Whether this is the last rescale, which replaces a guarded total by the true one.
    bool last_rescale = false;
    bool guarded = false;  // whether the total was guarded
    std::vector<uint64_t> bits = std::vector<uint64_t>(body.steps.size());
    std::vector<bool> known = std::vector<bool>(body.steps.size());
  };

  int64_t value(const Expr& e, Evaluation& at) {
    if (const auto constant = e.as_constant()) return *constant;
    return e.evaluate([&](std::string_view name) -> int64_t {
      if (const auto axis = axis_of_.find(name); axis != axis_of_.end())
        return index_[axis->second];
      if (const auto step = loaded_step(name))
        return bits_to_int(at.body.steps[*step].dtype, evaluate(*step, at));
      return sizes_(name);
    });
  }
  std::vector<int64_t> values(const std::vector<Expr>& list, Evaluation& at) {
    std::vector<int64_t> out;
    for (const Expr& e : list) out.push_back(value(e, at));
    return out;
  }
  bool hold(const std::vector<RangeCondition>& conditions, Evaluation& at) {
    return std::all_of(conditions.begin(), conditions.end(), [&](const RangeCondition& c) {
      const int64_t v = value(c.value, at);
      return value(c.min, at) <= v && v < value(c.limit, at);
    });
  }

  static bool inside(std::span<const int64_t> at, std::span<const int64_t> shape) {
    for (size_t i = 0; i < at.size(); ++i)
      if (at[i] < 0 || at[i] >= shape[i]) return false;
    return true;
  }
  // Indices that were loaded are clamped to the tensor, as on devices.
  static std::vector<int64_t> clamped(std::vector<int64_t> at, std::span<const int64_t> shape) {
    for (size_t i = 0; i < at.size(); ++i)
      at[i] = std::clamp<int64_t>(at[i], 0, std::max<int64_t>(shape[i] - 1, 0));
    return at;
  }

  uint64_t evaluate(uint32_t number, Evaluation& at) {
    if (at.known[number]) return at.bits[number];
    at.known[number] = true;
    return at.bits[number] = compute(at.body.steps[number], at);
  }

  uint64_t compute(const LoopStep& s, Evaluation& at) {
    switch (s.kind) {
      case LoopStep::Kind::Load: {
        if (!hold(s.conditions, at)) return s.otherwise.value_or(kNoBits);
        const HostTensor& tensor = tensors_[s.source];
        const auto place = values(s.at, at);
        if (s.otherwise && !inside(place, tensor.shape())) return *s.otherwise;
        if (tensor.numel() == 0) return kNoBits;
        return tensor.get_bits(row_major(clamped(place, tensor.shape()), tensor.shape()));
      }
      case LoopStep::Kind::Read:
        if (!hold(s.conditions, at)) return kNoBits;
        return read(s, values(s.at, at), at);
      case LoopStep::Kind::Index:
        return constant_bits_int(s.dtype, value(s.at[0], at));
      case LoopStep::Kind::Constant:
        return s.bits;
      case LoopStep::Kind::Inside:
        return hold(s.conditions, at) ? 1 : 0;
      case LoopStep::Kind::Apply:
        if (is_kept(s) && kept_) return 1;
        break;
    }
    std::vector<HostTensor> operands;
    std::vector<const HostTensor*> pointers;
    for (const uint32_t argument : s.arguments) {
      const uint64_t bits = evaluate(argument, at);
      operands.emplace_back(at.body.steps[argument].dtype, std::vector<int64_t>{});
      operands.back().set_bits(0, bits);
    }
    for (const HostTensor& operand : operands) pointers.push_back(&operand);
    return evaluate_map(s.op, pointers, s.dtype).get_bits(0);
  }

  uint64_t read(const LoopStep& s, std::vector<int64_t> place, Evaluation& at) {
    const State& state = states_[s.source];
    const LoopValue& value = tree_.values[s.source];
    const auto unfinished = [&](const std::string& why) {
      fail(codes::kUnfinishedValue, why, {.node = "%" + value.name});
    };
    if (state.progress.empty() && checked_numel(state.shape) == 0) return kNoBits;
    if (state.progress.empty()) unfinished("no earlier loop made it");
    const int64_t element = row_major(clamped(std::move(place), state.shape), state.shape);
    const Progress progress = state.progress[static_cast<size_t>(element)];
    if (progress == Progress::None) unfinished("the earlier loops did not make it at this index");
    if (!state.first.empty())
      return constant_bits_int(value.dtype, state.first[static_cast<size_t>(element)]);
    uint64_t bits = state.values.get_bits(element);
    if (progress == Progress::Running) {
      if (!at.task.rescale && at.task.kind != LoopTask::Kind::Compute)
        unfinished("not all of its terms are combined yet");
      // As long as a running value has seen no element, bodies use 0 in place of an identity that
      // spreads.
      if (s.before)
        bits = state.before.get_bits(element);
      else if (bits == state.none && guards_[s.source])
        bits = kNoBits;
    } else if (at.last_rescale && s.before && bits == state.none && guards_[s.source]) {
      at.guarded = true;
      bits = kNoBits;
    }
    return converted(bits, state.values.dtype(), value.dtype);
  }

  static uint64_t converted(uint64_t bits, DType from, DType to) {
    return from == to ? bits : machine_function(ElementwiseOp::convert, from, to)(bits, 0, 0);
  }

  // --- Tasks --------------------------------------------------------------------------------

  // Visits all positions of the axes in their ranges; the last axis is the fastest.
  template <class Visit>
  void each(const std::vector<size_t>& axes, const std::vector<Range>& ranges, const Visit& visit,
            size_t n = 0) {
    if (n == axes.size()) return visit();
    const size_t axis = axes[n];
    const int64_t now = index_[axis];
    for (index_[axis] = ranges[axis].begin; index_[axis] < ranges[axis].end; ++index_[axis])
      each(axes, ranges, visit, n + 1);
    index_[axis] = now;
  }
  // Sets every axis to the beginning of its range. For an axis over which the task does not run,
  // loops of single turns leave exactly that index.
  void stand(const std::vector<Range>& ranges) {
    for (size_t i = 0; i < ranges.size(); ++i) index_[i] = ranges[i].begin;
  }

  int64_t element_of(const LoopTask& task) const {
    std::vector<int64_t> at;
    for (const size_t axis : tree_.values[task.target].axes) at.push_back(index_[axis]);
    return row_major(at, states_[task.target].shape);
  }

  State& state_of(const LoopTask& task) {
    State& state = states_[task.target];
    if (!state.progress.empty()) return state;
    state.values = HostTensor(body_dtype(task), state.shape);
    state.before = state.values;
    state.progress.resize(static_cast<size_t>(state.values.numel()));
    if (task.kind == LoopTask::Kind::Arg) state.first.resize(state.progress.size());
    if (task.kind == LoopTask::Kind::Scan)
      for (size_t part = 0; part < task.combiner.parts(); ++part)
        state.carried.emplace_back(
            task.combiner.accumulation(part, task.body.steps[task.body.results[part]].dtype),
            state.shape);
    return state;
  }

  void begin(const LoopTask& task) {
    State& state = state_of(task);
    stand(range_);
    const DType dtype = state.values.dtype();
    const bool arg = task.kind == LoopTask::Kind::Arg, scan = task.kind == LoopTask::Kind::Scan;
    if (!arg && !scan) state.none = info(monoid_of(task)).identity(dtype);
    const uint64_t nothing = arg || scan ? 0 : info(monoid_of(task)).padding(dtype);
    each(tree_.values[task.target].axes, range_, [&] {
      uint64_t bits = nothing;
      if (task.kind == LoopTask::Kind::Place) {
        Evaluation at{task, task.body};
        const uint32_t start = task.body.results[2];
        bits = converted(evaluate(start, at), task.body.steps[start].dtype, dtype);
      }
      const int64_t element = element_of(task);
      state.values.set_bits(element, bits);
      state.progress[static_cast<size_t>(element)] = Progress::Running;
      for (size_t part = 0; part < state.carried.size(); ++part) {
        HostTensor& total = state.carried[part];
        uint64_t first = task.combiner.padding(part, total.dtype());
        if (task.begins_after()) {
          Evaluation at{task, task.body};
          first = evaluate(task.body.results[state.carried.size() + part], at);
        }
        total.set_bits(element, first);
      }
      if (arg) state.first[static_cast<size_t>(element)] = -1;
    });
  }

  void finish(const LoopTask& task) {
    State& state = states_[task.target];
    stand(range_);
    each(tree_.values[task.target].axes, range_,
         [&] { state.progress[static_cast<size_t>(element_of(task))] = Progress::Done; });
    if (!task.rescale || task.shifts) return;
    each(tree_.values[task.target].axes, range_, [&] {
      Evaluation at{task, *task.rescale, /*last_rescale=*/true};
      const uint64_t ratio = evaluate(task.rescale->results[0], at);
      if (at.guarded) change(state.values, ElementwiseOp::mul, element_of(task), ratio);
    });
  }

  static void change(HostTensor& values, ElementwiseOp op, int64_t element, uint64_t by) {
    const DType dtype = values.dtype();
    values.set_bits(element, machine_function(op, dtype, dtype)(values.get_bits(element), by, 0));
  }

  void run(const LoopTask& task) {
    switch (task.kind) {
      case LoopTask::Kind::Compute:
        return assign(task, range_);
      case LoopTask::Kind::Stage:
        return assign(task, shared_);
      case LoopTask::Kind::Store:
        return store(task);
      default:
        break;
    }
    const bool whole = std::none_of(task.over.begin(), task.over.end(),
                                    [&](size_t axis) { return loops_[axis] > 0; });
    if (whole) begin(task);
    State& state = state_of(task);
    stand(range_);
    const std::vector<size_t>& axes = tree_.values[task.target].axes;
    each(axes, range_, [&] {
      const int64_t element = element_of(task);
      state.before.set_bits(element, state.values.get_bits(element));
    });
    if (task.rescale)
      each(axes, range_, [&] {
        Evaluation at{task, *task.rescale};
        const ElementwiseOp op = task.shifts ? ElementwiseOp::add : ElementwiseOp::mul;
        change(state.values, op, element_of(task), evaluate(task.rescale->results[0], at));
      });
    if (task.kind == LoopTask::Kind::Scan) {
      scan(task, state);
    } else {
      std::vector<size_t> all;
      for (const size_t axis : axes)
        if (!contains(task.along, axis)) all.push_back(axis);
      all.insert(all.end(), task.over.begin(), task.over.end());
      each(all, range_, [&] { combine(task, state); });
    }
    if (whole) finish(task);
  }

  void assign(const LoopTask& task, const std::vector<Range>& ranges) {
    State& state = state_of(task);
    stand(ranges);
    each(tree_.values[task.target].axes, ranges, [&] {
      Evaluation at{task, task.body};
      const int64_t element = element_of(task);
      state.values.set_bits(element, evaluate(task.body.results[0], at));
      state.progress[static_cast<size_t>(element)] = Progress::Done;
    });
  }

  // Stores at all indices of the axes on which the body or the coordinates depend.
  void store(const LoopTask& task) {
    std::vector<size_t> axes;
    for_each_expr(task, [&](const Expr& e) {
      for (const std::string& name : e.symbols())
        if (const auto axis = axis_of_.find(name);
            axis != axis_of_.end() && !contains(axes, axis->second))
          axes.push_back(axis->second);
    });
    stand(range_);
    HostTensor& tensor = tensors_[task.target];
    each(axes, range_, [&] {
      Evaluation at{task, task.body};
      const auto place = values(task.at, at);
      if (inside(place, tensor.shape()))
        tensor.set_bits(row_major(place, tensor.shape()), evaluate(task.body.results[0], at));
    });
  }

  void scan(const LoopTask& task, State& state) {
    const size_t along = task.over[0];
    std::vector<size_t> rest;
    for (const size_t axis : tree_.values[task.target].axes)
      if (axis != along) rest.push_back(axis);
    const auto scalar = [](DType dtype, uint64_t bits) {
      HostTensor out(dtype, {});
      out.set_bits(0, bits);
      return out;
    };
    const auto apply = [](ElementwiseOp op, const std::vector<HostTensor>& arguments,
                          std::optional<DType> dtype) {
      std::vector<const HostTensor*> list;
      for (const HostTensor& argument : arguments) list.push_back(&argument);
      return evaluate_map(op, list, dtype.value_or(arguments[0].dtype()));
    };
    each(rest, range_, [&] {
      const int64_t now = index_[along];
      const auto [begin, end] = range_[along];
      index_[along] = 0;
      const int64_t total = element_of(task);
      for (int64_t i = 0; i < end - begin; ++i) {
        index_[along] = task.reverse ? end - 1 - i : begin + i;
        Evaluation at{task, task.body};
        std::vector<HostTensor> before, own;
        for (size_t part = 0; part < state.carried.size(); ++part) {
          const DType dtype = state.carried[part].dtype();
          before.push_back(scalar(dtype, state.carried[part].get_bits(total)));
          const DType from = task.body.steps[task.body.results[part]].dtype;
          own.push_back(
              scalar(dtype, converted(evaluate(task.body.results[part], at), from, dtype)));
        }
        const std::vector<HostTensor> after = task.combiner.combine(before, own, apply, scalar);
        for (size_t part = 0; part < state.carried.size(); ++part)
          state.carried[part].set_bits(total, after[part].get_bits(0));
        const HostTensor& made = (task.exclusive ? before : after)[task.part];
        state.values.set_bits(element_of(task), made.get_bits(0));
        state.progress[static_cast<size_t>(element_of(task))] = Progress::Done;
      }
      index_[along] = now;
    });
  }

  void combine(const LoopTask& task, State& state) {
    Evaluation at{task, task.body};
    const DType dtype = state.values.dtype();
    uint64_t term = evaluate(task.body.results[0], at);
    if (task.kind == LoopTask::Kind::Dot) {
      const DType own = task.body.steps[task.body.results[0]].dtype;
      term = machine_function(ElementwiseOp::mul, dtype, dtype)(
          converted(term, own, dtype), converted(evaluate(task.body.results[1], at), own, dtype),
          0);
    }
    if (task.kind == LoopTask::Kind::Place && !go_to_place(task, at)) return;
    const int64_t element = element_of(task);
    const uint64_t before = state.values.get_bits(element);
    if (task.kind == LoopTask::Kind::Arg) {
      int64_t number = 0;  // the number of the term; among equal terms the first wins
      for (const size_t axis : task.over)
        number = number * sizes_(tree_.axes[axis].extent) + index_[axis];
      int64_t& first = state.first[static_cast<size_t>(element)];
      const bool wins = first < 0 || beats(task.arg_max, dtype, term, before) ||
                        (number < first && !beats(task.arg_max, dtype, before, term));
      if (!wins) return;
      first = number;
      return state.values.set_bits(element, term);
    }
    if (task.replaces) return state.values.set_bits(element, term);
    const auto combine = machine_function(info(monoid_of(task)).combine, dtype, dtype);
    state.values.set_bits(element, combine(before, term, 0));
  }

  // Sets the indices of the axes along which the places lie. Returns false if the place lies
  // outside of this turn.
  bool go_to_place(const LoopTask& task, Evaluation& at) {
    const uint32_t step = task.body.results[1];
    int64_t extent = 1;
    for (const size_t axis : task.along) extent *= sizes_(tree_.axes[axis].extent);
    int64_t place = bits_to_int(task.body.steps[step].dtype, evaluate(step, at));
    place = std::clamp<int64_t>(place, 0, extent - 1);
    for (size_t i = task.along.size(); i-- > 0;) {
      const size_t axis = task.along[i];
      const int64_t own = sizes_(tree_.axes[axis].extent);
      index_[axis] = place % own;
      place /= own;
      if (index_[axis] < range_[axis].begin || index_[axis] >= range_[axis].end) return false;
    }
    return true;
  }

  // NaN beats every other value, and the first of equal values stays.
  static bool beats(bool greatest, DType dtype, uint64_t value, uint64_t best) {
    const auto is = [&](ElementwiseOp op, uint64_t a, uint64_t b) {
      return machine_function(op, dtype, DType::Bool)(a, b, 0) != 0;
    };
    if (is(ElementwiseOp::ne, best, best)) return false;
    if (is(ElementwiseOp::ne, value, value)) return true;
    return is(greatest ? ElementwiseOp::gt : ElementwiseOp::lt, value, best);
  }

  const LoopTree& tree_;
  const Sizes& sizes_;
  std::vector<HostTensor>& tensors_;
  std::map<std::string, size_t, std::less<>> axis_of_;
  std::vector<State> states_;   // by value
  std::vector<int64_t> index_;  // of each axis, for the present element
  std::vector<int> loops_;      // for each axis, how many loops around run over it
  std::vector<bool> guards_;    // by value
  // The present range of each axis; and the same if loops on group are ignored.
  std::vector<Range> range_, shared_;
  std::optional<Combining> combining_;
  // Of the loop whose bounds are being computed, by symbol.
  std::map<std::string, int64_t, std::less<>> limits_;
  bool kept_ = false;  // whether the present turn is one that a loop around keeps whole
};

}  // namespace

void interpret(const LoopTree& tree, const Sizes& sizes, std::vector<HostTensor>& tensors) {
  const size_t given = tensors.size();
  for (size_t t = 0; t < tree.tensors.size(); ++t) {
    const LoopTensor& tensor = tree.tensors[t];
    if (!tensor.same) {
      if (t >= given)
        fail(codes::kInternal, fmt::format("the tensor {} is not given", tensor.name));
      continue;
    }
    HostTensor again(tensor.type.dtype, sizes(tensor.type.shape));
    std::copy_n(tensors[*tensor.same].data(), again.size_bytes(), again.data());
    tensors.resize(std::max(tensors.size(), t + 1));
    tensors[t] = std::move(again);
  }
  TreeInterpreter(tree, sizes, tensors).run();
  tensors.resize(given);
}

}  // namespace braze
