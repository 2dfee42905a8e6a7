// verify.cpp — checks the rules of loop trees:
//
//   L1  names are unique, and numbers refer to what exists; exactly one task makes a value, and it
//       stands before all that read the value
//   L2  the operands of a row have one dtype, which the row takes; results fit their destination
//   L3  an access has a coordinate for each axis, over axes, sizes and integer steps before it
//   L4  a body depends only on the task's own axes and on those of loops of single turns around it
//   L5  the turn of a loop divides the turn of the loop around it over the same axis
//   L6  tiles have constant extents: an axis of a task without a loop around it is constant
//   L7  rank stands directly in grid, group in rank or grid; only parallel loops have a machine
//   L8  a reduction over the axis of a parallel loop has `combine`, and the loop is on grid or rank
//   L9  a loop's bounds are over axes of the loops around it; a limit is an integer from memory or
//       a workspace, at indices that the loops around take one by one, or at numbers of their
//       turns; so is a list of turns
//   L10 marks stand only where they have a meaning
//   L11 only values that follow a running value, by a ratio or a shift, read it
#include "compiler/loops/verify.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/loops/text.h"
#include "compiler/loops/text_p.h"
#include "ir/code/check.h"
#include "ir/graph/coarse.h"
#include "ir/support/text.h"

namespace braze {

namespace {

class TreeChecker {
 public:
  explicit TreeChecker(const LoopTree& tree) : tree_(tree), made_(tree.values.size()) {}

  std::vector<Diagnostic> run() {
    check_head();
    if (!findings_.empty()) return std::move(findings_);
    for (const LoopRegion& phase : tree_.phases) {
      check_numbers(phase);
      if (!findings_.empty()) return std::move(findings_);
    }
    for (const LoopRegion& phase : tree_.phases) check(phase);
    context_.clear();
    where_ = {};
    expect(!tree_.phases.empty(), "L1", "the tree has no phase; it needs at least one");
    expect(
        !tree_.roles || tree_.registers == 0, "L10",
        "a tree with roles cannot have `registers`: its roles say how many registers a thread has");
    expect(!tree_.roles || stages_ > 0, "L10",
           "there is no stage, so a role for copies would have nothing to do");
    for (size_t v = 0; v < made_.size(); ++v)
      expect(made_[v] != nullptr, "L1", fmt::format("no task makes %{}", tree_.values[v].name));
    check_running();
    return std::move(findings_);
  }

 private:
  void expect(bool holds, const char* rule, const std::string& message) {
    if (holds) return;
    findings_.push_back(
        {&codes::kBrokenRule, where_, context_, fmt::format("{}: {}", rule, message)});
  }

  // --- Names and numbers --------------------------------------------------------------------

  void check_head() {
    std::set<std::string> symbols, tensors, values;
    for (const Expr& symbol : tree_.symbols) {
      expect(symbol.kind() == Expr::Kind::Symbol && symbols.insert(symbol.symbol_name()).second,
             "L1", fmt::format("the size {} is declared twice", symbol.to_string()));
    }
    sizes_ = symbols;
    for (const LoopAxis& axis : tree_.axes) {
      where_ = axis.location;
      expect(only_sizes(axis.extent), "L3",
             fmt::format("the extent of axis {} can use sizes only", axis.name));
      expect(symbols.insert(axis.name).second, "L1", fmt::format("{} is defined twice", axis.name));
    }
    for (const LoopTensor& tensor : tree_.tensors) {
      where_ = tensor.location;
      expect(tensors.insert(tensor.name).second, "L1",
             fmt::format("the tensor {} is declared twice", tensor.name));
      for (const Expr& extent : tensor.type.shape)
        expect(only_sizes(extent), "L3",
               fmt::format("the shape of {} can use sizes only", tensor.name));
      expect(tensor.strides.empty() || tensor.strides.size() == tensor.type.shape.rank(), "L3",
             fmt::format("{} must have a stride for each axis, or none", tensor.name));
      expect(!tensor.same ||
                 (tensor.mode == Mode::In && tree_.tensors[*tensor.same].mode == Mode::In &&
                  tree_.tensors[*tensor.same].type.dtype == tensor.type.dtype),
             "L3", fmt::format("{} is the same as a tensor of another mode or dtype", tensor.name));
    }
    where_ = {};
    for (const LoopValue& value : tree_.values) {
      expect(values.insert(value.name).second, "L1", fmt::format("%{} is made twice", value.name));
      for (const size_t axis : value.axes)
        expect(
            axis < tree_.axes.size() && std::count(value.axes.begin(), value.axes.end(), axis) == 1,
            "L1", fmt::format("an axis of %{} does not exist, or is named twice", value.name));
    }
  }
  bool only_sizes(const Expr& e) const {
    const auto names = e.symbols();
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return sizes_.contains(name); });
  }

  // Checks the numbers in a region, so that the checks that follow can rely on them.
  void check_numbers(const LoopRegion& region) {
    for (const LoopItem& item : region) {
      if (const auto* loop = std::get_if<Box<Loop>>(&item)) {
        where_ = (*loop)->location;
        expect(!(*loop)->levels.empty(), "L1", "a loop must run over at least one axis");
        for (const LoopLevel& level : (*loop)->levels)
          expect(level.axis < tree_.axes.size() && level.turn >= 1, "L1",
                 "the axis of a loop does not exist");
        if (const auto& limit = (*loop)->limit)
          check_numbers(*limit, std::max<size_t>(limit->results.size(), 1));
        if (const auto& picks = (*loop)->picks)
          expect(picks->value < tree_.values.size() &&
                     tree_.values[picks->value].axes.size() == picks->at.size() + 1,
                 "L1", "the list of turns does not exist, or has not one axis more than are given");
        for (const Deal& deal : (*loop)->deal)
          expect(deal.axis < tree_.axes.size(), "L1",
                 "the axis of an order of turns does not exist");
        check_numbers((*loop)->body);
        continue;
      }
      const auto& task = std::get<LoopTask>(item);
      where_ = task.location;
      expect(task.target < (task.makes_value() ? tree_.values.size() : tree_.tensors.size()), "L1",
             "the value or tensor that a task makes does not exist");
      for (const auto* list : {&task.over, &task.along})
        for (const size_t axis : *list)
          expect(axis < tree_.axes.size(), "L1", "an axis of a task does not exist");
      const size_t results = task.kind == LoopTask::Kind::Dot     ? 2
                             : task.kind == LoopTask::Kind::Place ? 3
                             : task.kind == LoopTask::Kind::Scan
                                 ? task.combiner.parts() * (task.begins_after() ? 2 : 1)
                                 : 1;
      check_numbers(task.body, results);
      if (task.rescale) check_numbers(*task.rescale, 1);
    }
  }
  void check_numbers(const LoopBody& body, size_t results) {
    for (size_t i = 0; i < body.steps.size(); ++i) {
      const LoopStep& s = body.steps[i];
      const bool load = s.kind == LoopStep::Kind::Load, read = s.kind == LoopStep::Kind::Read;
      expect(!load || s.source < tree_.tensors.size(), "L1", "the tensor of a load does not exist");
      expect(!read || s.source < tree_.values.size(), "L1", "the value of a read does not exist");
      expect(s.kind != LoopStep::Kind::Index || s.at.size() == 1, "L1",
             "an index step needs one index expression");
      expect(s.kind != LoopStep::Kind::Apply || s.arguments.size() == info(s.op).arity, "L1",
             "a row does not have as many operands as it takes");
      expect(
          !is_kept(s) || infix_row(s.op) == nullptr || infix_row(s.op)->binds == kComparisonBinds,
          "L10", "only a comparison can be kept");
      expect(!s.coarse || (s.dtype == DType::F32 && has_coarse_body(s.op)), "L1",
             "a row has no coarse body for this dtype");
      for (const uint32_t argument : s.arguments)
        expect(argument < i, "L1", "an operand does not come before its step");
    }
    expect(body.results.size() == results, "L1",
           "the body does not have as many results as its task needs");
    for (const uint32_t result : body.results)
      expect(result < body.steps.size(), "L1", "a result of the body does not exist");
  }

  // --- Loops --------------------------------------------------------------------------------

  void check(const LoopRegion& region) {
    for (const LoopItem& item : region) {
      if (const auto* loop = std::get_if<Box<Loop>>(&item))
        check(**loop);
      else
        check(std::get<LoopTask>(item));
    }
  }

  void check(const Loop& loop) {
    where_ = loop.location;
    context_ = to_text(tree_, loop);
    check_levels(loop);
    check_machine(loop);
    check_bounds(loop);
    check_limit(loop);
    check_picks(loop);
    check_marks(loop);
    around_.push_back(&loop);
    check(loop.body);
    around_.pop_back();
  }

  void check_levels(const Loop& loop) {
    for (size_t i = 0; i < loop.levels.size(); ++i) {
      const LoopLevel& level = loop.levels[i];
      const LoopAxis& axis = tree_.axes[level.axis];
      for (size_t k = 0; k < i; ++k)
        expect(loop.levels[k].axis != level.axis, "L5",
               fmt::format("the loop runs over {} twice", axis.name));
      if (const LoopLevel* outer = level_of(level.axis))
        expect(outer->turn % level.turn == 0, "L5",
               fmt::format("the turns of {} do not divide the turns of {} of the loop around",
                           level.turn, outer->turn));
    }
  }

  void check_machine(const Loop& loop) {
    if (loop.on == Machine::None) return;
    expect(loop.parallel, "L7",
           "a stream cannot be dealt to parts of the machine, because its turns run one after the "
           "other");
    const Machine parent = around_.empty() ? Machine::None : around_.back()->on;
    switch (loop.on) {
      case Machine::Grid:
        expect(around_.empty(), "L7", "a loop on grid must stand around all others");
        break;
      case Machine::Rank:
        expect(parent == Machine::Grid, "L7",
               "a loop on rank must stand directly inside a loop on grid");
        break;
      default:
        expect(parent == Machine::Grid || parent == Machine::Rank, "L7",
               "a loop on group must stand directly inside a loop on rank or grid");
    }
  }

  void check_bounds(const Loop& loop) {
    if (!loop.bounds) return;
    expect(loop.levels.size() == 1, "L9", "a loop over several axes cannot have bounds");
    const std::set<std::string> limits = limits_of(loop);
    for (const Expr* bound : {&loop.bounds->first, &loop.bounds->second})
      for (std::string name : bound->symbols()) {
        if (sizes_.contains(name) || limits.contains(name)) continue;
        if (name.ends_with(".end")) name.resize(name.size() - 4);
        const size_t axis = axis_named(name);
        const bool around = axis < tree_.axes.size() && level_of(axis, /*groups=*/false);
        expect(around, "L9",
               fmt::format("a bound uses {}, which is not an axis of a loop around (a loop on "
                           "group does not count)",
                           name));
      }
  }
  std::set<std::string> limits_of(const Loop& loop) const {
    std::set<std::string> out;
    for (size_t n = 0; loop.limit && n < loop.limit->results.size(); ++n)
      out.insert(limit_symbol(tree_.axes[loop.levels[0].axis], n).symbol_name());
    return out;
  }
  void check_limit(const Loop& loop) {
    if (!loop.limit) return;
    const LoopBody& body = *loop.limit;
    expect(loop.levels.size() == 1 && !loop.parallel, "L9",
           "only a stream over one axis can have a limit");
    for (const uint32_t result : body.results) {
      const DType dtype = body.steps[result].dtype;
      expect(is_integer(dtype) && dtype != DType::U64, "L9",
             fmt::format("a limit must be an integer of a dtype that i64 holds, but is {}",
                         name(dtype)));
    }
    for (const LoopStep& s : body.steps) {
      check_step(body, s);
      expect(s.kind != LoopStep::Kind::Read || is_left(s.source), "L9",
             "a limit can read only those values of the kernel that an earlier phase has left in "
             "a workspace");
      for_each_expr(s, [&](const Expr& e) { check_limit_index(e); });
    }
  }
  void check_picks(const Loop& loop) {
    if (!loop.picks) return;
    expect(loop.levels.size() == 1 && !loop.parallel && !loop.down && loop.bounds, "L9",
           "only a stream over one axis that runs up, within bounds, can have a list of turns");
    expect(is_left(loop.picks->value) && is_integer(tree_.values[loop.picks->value].dtype), "L9",
           "a list of turns has integers that an earlier phase has left in a workspace");
    for (const Expr& e : loop.picks->at) check_limit_index(e);
  }
  bool is_left(size_t value) const {
    return made_[value] && tree_.values[value].storage == Storage::Workspace;
  }
  // A coordinate of what is loaded where a loop begins.
  void check_limit_index(const Expr& e) {
    check_coordinate(e, nullptr, 0);
    if (is_turn(e)) return;
    for (const std::string& symbol : e.symbols()) {
      const size_t axis = axis_named(symbol);
      if (axis == tree_.axes.size()) continue;
      const LoopLevel* level = level_of(axis);
      expect(
          level && level->turn == 1, "L9",
          fmt::format("a limit depends on {}, which no loop around takes index by index", symbol));
    }
  }
  // Whether a coordinate is the number of the present turn of a loop around.
  bool is_turn(const Expr& e) const {
    if (e.kind() != Expr::Kind::FloorDiv || e.operands()[0].kind() != Expr::Kind::Symbol)
      return false;
    const size_t axis = axis_named(e.operands()[0].symbol_name());
    const LoopLevel* level = axis < tree_.axes.size() ? level_of(axis, /*groups=*/false) : nullptr;
    const auto turn = e.operands()[1].as_constant();
    return level && turn && *turn % level->turn == 0;
  }
  size_t axis_named(std::string_view name) const {
    size_t i = 0;
    while (i < tree_.axes.size() && tree_.axes[i].name != name) ++i;
    return i;
  }

  void check_marks(const Loop& loop) {
    const bool stream = !loop.parallel;
    expect(loop.ring == 0 || has_stage(loop.body), "L10",
           "a loop with a ring must have a stage inside, or a value that is computed on chip");
    expect(loop.unroll == 0 || stream, "L10", "only a stream can be unrolled");
    if (loop.partial > 0) {
      expect(stream, "L10", "only a stream can have partial sums");
      const auto why = no_partial_sums(tree_, loop);
      expect(!why, "L10", why.value_or(""));
    }
    expect(!loop.turns || (stream && in_group()), "L10",
           "only a stream inside of a loop on group can have turns");
    for (const IndexComparison& part : loop.parts) {
      const bool decides =
          std::any_of(loop.levels.begin(), loop.levels.end(), [&](const LoopLevel& level) {
            const std::string& name = tree_.axes[level.axis].name;
            return part.left.uses(name) || part.right.uses(name);
          });
      expect(decides, "L10", "the condition of a part must use the axis of the loop");
      for (Expr e : {part.left, part.right}) {
        for (const std::string& limit : limits_of(loop)) e = e.substitute(limit, 0);
        check_coordinate(e, nullptr, 0);
      }
    }
    expect(loop.deal.empty() || loop.on == Machine::Grid, "L10",
           "only a loop on grid can be dealt");
    for (size_t i = 0; i < loop.deal.size(); ++i) {
      const Deal& deal = loop.deal[i];
      if (deal.order == Deal::Order::Persistent)
        expect(i + 1 == loop.deal.size(), "L10", "persistent must be the last order of turns");
      if (deal.order == Deal::Order::Grouped)
        expect(runs_over(loop, deal.axis), "L10",
               "an axis that is grouped must be an axis of the loop");
    }
  }
  bool has_stage(const LoopRegion& region) const {
    return std::any_of(region.begin(), region.end(), [&](const LoopItem& item) {
      const auto* task = std::get_if<LoopTask>(&item);
      return task ? is_made_ahead(tree_, *task) : has_stage(std::get<Box<Loop>>(item)->body);
    });
  }
  bool in_group() const {
    return std::any_of(around_.begin(), around_.end(),
                       [](const Loop* loop) { return loop->on == Machine::Group; });
  }
  // The innermost level of an axis in the loops around; null if no loop runs over it.
  const LoopLevel* level_of(size_t axis, bool groups = true) const {
    for (size_t i = around_.size(); i-- > 0;)
      for (const LoopLevel& level : around_[i]->levels)
        if (level.axis == axis && (groups || around_[i]->on != Machine::Group)) return &level;
    return nullptr;
  }

  // --- Tasks --------------------------------------------------------------------------------

  void check(const LoopTask& task) {
    where_ = task.location;
    context_ = to_text(tree_, task);
    check_body(task.body, task);
    if (task.rescale) check_body(*task.rescale, task);
    check_results(task);
    check_tile(task);
    check_state(task);
    check_marks(task);
    if (task.kind == LoopTask::Kind::Stage) ++stages_;
    if (!task.makes_value()) return;
    const LoopTask*& made = made_[task.target];
    expect(!made, "L1", fmt::format("%{} is made twice", tree_.values[task.target].name));
    made = &task;
    places_[&task] = around_;
  }

  void check_body(const LoopBody& body, const LoopTask& task) {
    for (uint32_t i = 0; i < body.steps.size(); ++i) {
      const LoopStep& s = body.steps[i];
      for_each_expr(s, [&](const Expr& e) { check_coordinate(e, &body, i); });
      check_step(body, s);
      if (s.kind != LoopStep::Kind::Read) continue;
      const LoopValue& value = tree_.values[s.source];
      expect(made_[s.source] != nullptr, "L1",
             fmt::format("%{} is read before it is made", value.name));
      expect(!s.before || &body != &task.body, "L11",
             fmt::format("only a ratio can read the value that %{} had before", value.name));
      expect(!s.before || (made_[s.source] && made_[s.source]->has_state()), "L11",
             fmt::format("%{} is no running value, so it had none before", value.name));
      reads_.push_back({&task, around_, s.source, &body != &task.body, where_, context_});
    }
  }

  void check_step(const LoopBody& body, const LoopStep& s) {
    switch (s.kind) {
      case LoopStep::Kind::Load: {
        const LoopTensor& tensor = tree_.tensors[s.source];
        expect(s.at.size() == tensor.type.shape.rank(), "L3",
               fmt::format("{} has {} axes, but a different number of coordinates is given",
                           tensor.name, tensor.type.shape.rank()));
        expect(s.dtype == tensor.type.dtype, "L2",
               fmt::format("a load of {} does not have its dtype", tensor.name));
        expect(tensor.mode != Mode::Out, "L2",
               fmt::format("{} is an `out` tensor and cannot be read", tensor.name));
        return;
      }
      case LoopStep::Kind::Read: {
        const LoopValue& value = tree_.values[s.source];
        expect(s.at.size() == value.axes.size(), "L3",
               fmt::format("%{} has {} axes, but a different number of coordinates is given",
                           value.name, value.axes.size()));
        return;
      }
      case LoopStep::Kind::Index:
        expect(is_integer(s.dtype), "L2", "an index must be an integer");
        return;
      case LoopStep::Kind::Inside:
        expect(s.dtype == DType::Bool, "L2", "a condition must be a bool");
        return;
      case LoopStep::Kind::Constant:
        return;
      case LoopStep::Kind::Apply:
        break;
    }
    std::optional<DType> dtype;
    for (size_t i = 0; i < s.arguments.size(); ++i) {
      const DType own = body.steps[s.arguments[i]].dtype;
      if (i < first_of_one_dtype(s.op)) {
        expect(own == DType::Bool, "L2", "the first operand of where must be a bool");
        continue;
      }
      expect(!dtype || *dtype == own, "L2",
             fmt::format("{} cannot combine {} and {}; its operands must have one dtype",
                         name(s.op), name(dtype.value_or(own)), name(own)));
      dtype = own;
    }
    expect(dtype && info(s.op).types.contains(*dtype), "L2",
           fmt::format("{} is not defined on {}", name(s.op), name(dtype.value_or(s.dtype))));
  }

  // A coordinate is an expression over axes, sizes, and integer steps of `body` before step
  // `limit`.
  void check_coordinate(const Expr& e, const LoopBody* body, uint32_t limit) {
    for (const std::string& name : e.symbols()) {
      if (sizes_.contains(name) || axis_named(name) < tree_.axes.size()) continue;
      const auto step = loaded_step(name);
      const bool before = step && body && *step < limit;
      expect(before && is_integer(body->steps[*step].dtype), "L3",
             fmt::format(
                 "a coordinate uses {}, which is not an axis, a size or an integer step before it",
                 name));
    }
  }

  DType dtype_of(const LoopTask& task, size_t result) const {
    return task.body.steps[task.body.results[result]].dtype;
  }

  void check_results(const LoopTask& task) {
    const DType first = dtype_of(task, 0);
    if (task.kind == LoopTask::Kind::Store) {
      const LoopTensor& tensor = tree_.tensors[task.target];
      expect(first == tensor.type.dtype, "L2",
             fmt::format("a value of {} is stored to {}, which holds {}; convert it", name(first),
                         tensor.name, name(tensor.type.dtype)));
      expect(task.at.size() == tensor.type.shape.rank(), "L3",
             fmt::format("{} has {} axes, but a different number of coordinates is given",
                         tensor.name, tensor.type.shape.rank()));
      expect(tensor.mode != Mode::In, "L2",
             fmt::format("{} is an `in` tensor and cannot be written", tensor.name));
      for (const Expr& e : task.at)
        check_coordinate(e, &task.body, static_cast<uint32_t>(task.body.steps.size()));
      return;
    }
    const LoopValue& value = tree_.values[task.target];
    expect(value.panel == 0 || !value.axes.empty(), "L2",
           fmt::format("%{} has panels, which only a value with axes can have", value.name));
    if (task.kind == LoopTask::Kind::Compute || task.kind == LoopTask::Kind::Stage)
      expect(value.dtype == first, "L2", fmt::format("%{} is {}", value.name, name(first)));
    if (task.kind == LoopTask::Kind::Stage) {
      expect(task.body.steps[task.body.results[0]].kind == LoopStep::Kind::Load, "L2",
             "a stage must copy what one load reads");
      expect(value.storage != Storage::Registers, "L2",
             fmt::format("the copy %{} must be on chip or in a workspace", value.name));
    }
    if (task.makes_value())
      expect(tree_.values[task.target].storage != Storage::Result ||
                 task.kind == LoopTask::Kind::Place,
             "L2", "only the sums of a placed reduction can be in the memory of the result");
    if (task.kind == LoopTask::Kind::Dot)
      expect(first == dtype_of(task, 1) && kNumeric.contains(first), "L2",
             "the factors of a dot must be numbers of one dtype");
    if (task.kind == LoopTask::Kind::Scan) check_parts(task);
    if (task.kind == LoopTask::Kind::Fold || task.kind == LoopTask::Kind::Place)
      expect(task.replaces || info(task.monoid).types.contains(first), "L2",
             fmt::format("{} is not defined on {}", name(task.monoid), name(first)));
    if (task.kind == LoopTask::Kind::Arg)
      expect(is_integer(value.dtype) && kOrdered.contains(first), "L2",
             fmt::format(
                 "an arg-reduction needs an integer result and values with an order, not {} and {}",
                 name(value.dtype), name(first)));
    if (task.kind == LoopTask::Kind::Place) {
      expect(is_integer(dtype_of(task, 1)), "L2", "a place must be an integer");
      expect(dtype_of(task, 2) == first || value.dtype == dtype_of(task, 2), "L2",
             "the terms do not have the dtype of what they are added to");
      for (const size_t axis : task.along)
        expect(contains(value.axes, axis), "L4", "a value can be placed only along its own axes");
    }
    if (task.kind == LoopTask::Kind::Scan)
      expect(task.over.size() == 1, "L4", "a scan must run along one axis");
    if (task.rescale)
      expect(task.rescale->steps[task.rescale->results[0]].dtype == body_dtype(task), "L2",
             "the ratio does not have the dtype in which the state is combined");
  }

  // Checks that a scan's combiner takes the results of its body.
  void check_parts(const LoopTask& task) {
    const size_t parts = task.combiner.parts();
    expect(task.part < parts, "L2", fmt::format("the combiner makes {} parts", parts));
    LoopBody first = task.body;
    first.results.erase(first.results.begin(),
                        first.results.begin() + static_cast<std::ptrdiff_t>(parts));
    remove_dead_steps(first);
    for (const LoopStep& s : first.steps)
      for (const Expr& e : s.at)
        expect(task.over.empty() || !e.uses(tree_.axes[task.over[0]].name), "L4",
               "what a scan begins with depends on the axis along which it runs");
    for (size_t i = 0; i < parts; ++i) {
      const DType dtype = dtype_of(task, i);
      expect(!task.begins_after() || dtype_of(task, parts + i) == compute_type(dtype), "L2",
             fmt::format("part {} begins with {}", i, name(dtype_of(task, i))));
      if (const auto monoid = task.combiner.monoid())
        expect(info(*monoid).types.contains(dtype), "L2",
               fmt::format("{} is not defined on {}", name(*monoid), name(dtype)));
      else
        expect(compute_type(dtype) == task.combiner.accumulation(i, dtype), "L2",
               fmt::format("part {} is {}, but is combined in {}", i, name(dtype),
                           name(task.combiner.accumulation(i, dtype))));
    }
  }

  // Checks that the body varies only along axes that the tile of the task has.
  void check_tile(const LoopTask& task) {
    std::set<size_t> own(task.over.begin(), task.over.end());
    std::set<std::string> used;
    const auto note = [&](const Expr& e) {
      for (const std::string& name : e.symbols()) used.insert(name);
    };
    for_each_expr(task.body, note);
    if (task.kind == LoopTask::Kind::Store) {
      for (const Expr& e : task.at) note(e);
      for (const std::string& name : used)
        if (axis_named(name) < tree_.axes.size()) own.insert(axis_named(name));
    } else {
      const LoopValue& value = tree_.values[task.target];
      own.insert(value.axes.begin(), value.axes.end());
      for (const size_t axis : task.over)
        expect(task.kind == LoopTask::Kind::Scan || !contains(value.axes, axis), "L4",
               fmt::format("%{} has the axis {}, but is combined along it", value.name,
                           tree_.axes[axis].name));
    }
    for (const std::string& name : used) {
      const size_t axis = axis_named(name);
      if (axis == tree_.axes.size() || own.contains(axis)) continue;
      const LoopLevel* level = level_of(axis);
      expect(level && level->turn == 1, "L4",
             fmt::format("the body depends on {}, which is not an axis of the task", name));
    }
    for (const size_t axis : own) {
      if (contains(task.along, axis) || level_of(axis)) continue;
      expect(tree_.axes[axis].extent.as_constant().has_value(), "L6",
             fmt::format("no loop runs over {}, and its extent is not constant",
                         tree_.axes[axis].name));
    }
  }

  // Checks the loops around over which the partial states of a task are combined.
  void check_state(const LoopTask& task) {
    if (!task.has_state()) return;
    bool combined = false;
    for (const Loop* loop : around_) {
      if (!loop->parallel) continue;
      for (const size_t axis : task.over) {
        if (!runs_over(*loop, axis)) continue;
        combined = true;
        expect(task.combine == Combine::Rank && loop->on == Machine::Rank, "L8",
               fmt::format("this is state of the parallel loop over {}, so the loop must be on "
                           "rank, and the state combined by rank",
                           tree_.axes[axis].name));
      }
    }
    expect(task.combine == Combine::None || combined, "L8",
           "this is marked as combined, but no parallel loop around makes parts of it");
  }

  bool streams_over(const std::vector<size_t>& axes) const {
    return std::ranges::any_of(around_,
                               [&](const Loop* loop) { return runs_over_any(*loop, axes); });
  }

  void check_marks(const LoopTask& task) {
    const bool dot = task.kind == LoopTask::Kind::Dot;
    expect(dot || (task.unit == Unit::None && !task.swap && !task.tf32), "L10",
           "only a dot can have a unit");
    expect(!task.swap || task.unit == Unit::Wgmma, "L10", "only a wgmma can have swapped factors");
    expect(!task.unrounded || sums_products(task), "L10",
           "only a sum of products of floats may add them before they are rounded");
    expect(!task.rescale || dot || task.kind == LoopTask::Kind::Fold, "L10",
           "only a fold or a dot can be rescaled");
    const bool sum = task.kind == LoopTask::Kind::Fold && task.monoid == Monoid::Sum;
    expect(!task.shifts || (task.rescale && sum), "L10", "only a sum can be shifted");
    expect(!task.rescale || streams_over(task.over), "L10",
           "no loop around carries a state that this could change");
    expect(task.combine == Combine::None || dot || task.kind == LoopTask::Kind::Fold ||
               task.kind == LoopTask::Kind::Arg,
           "L10", "only a fold, a dot or an arg-reduction can be combined");
    const bool stream = !around_.empty() && !around_.back()->parallel;
    expect(task.ahead == 0 || (stream && task.makes_value()), "L10",
           "only a task of a stream can run ahead");
  }

  // --- Running values -----------------------------------------------------------------------

  struct ReadOfValue {
    const LoopTask* reader;
    std::vector<const Loop*> around;
    size_t value;
    bool in_ratio;
    SourceLocation where;
    std::string context;
  };

  // Whether the reader stands in the loops whose turns still combine the value.
  bool inside_of(const ReadOfValue& read) const {
    const LoopTask* maker = made_[read.value];
    if (!maker || !maker->has_state() || maker->combine != Combine::None) return false;
    const auto& home = places_.at(maker);
    for (size_t i = 0; i < home.size() && i < read.around.size() && home[i] == read.around[i]; ++i)
      for (const size_t axis : maker->over)
        if (runs_over(*home[i], axis)) {
          // Each turn of a scan makes the values of its own elements.
          return maker->kind != LoopTask::Kind::Scan ||
                 !contains(tree_.values[read.value].axes, axis);
        }
    return false;
  }

  void check_running() {
    // Values that were computed from running values.
    std::set<size_t> running;
    for (const ReadOfValue& read : reads_) {
      where_ = read.where;
      context_ = read.context;
      const bool is_running = inside_of(read) || running.contains(read.value);
      if (!is_running || read.in_ratio) continue;
      if (read.reader->kind == LoopTask::Kind::Compute)
        running.insert(read.reader->target);
      else
        expect(read.reader->rescale.has_value(), "L11",
               fmt::format("%{} is not final here, and the task that reads it does not follow it",
                           tree_.values[read.value].name));
    }
  }

  const LoopTree& tree_;
  std::vector<Diagnostic> findings_;
  std::set<std::string> sizes_;
  std::vector<const Loop*> around_;
  std::vector<const LoopTask*> made_;  // the task that makes each value; null if none was found yet
  std::map<const LoopTask*, std::vector<const Loop*>> places_;
  std::vector<ReadOfValue> reads_;
  size_t stages_ = 0;
  SourceLocation where_;
  std::string context_;
};

}  // namespace

std::vector<Diagnostic> verify(const LoopTree& tree) { return TreeChecker(tree).run(); }

}  // namespace braze
