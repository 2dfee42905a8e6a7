#include "compiler/planning/overlap.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "compiler/loops/cost.h"
#include "ir/code/walk.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

// A kernel that runs longer than this many times the price of a launch would gain little. It keeps
// the loads past the coherent caches, which the assembler can move more freely.
constexpr double kShortRun = 16;
// Of products that run longer than this, the copies that begin early take from the kernel before
// what they win (on an H200, chains of products with 33 MB of weights each became 6 % faster, and
// those with 117 MB 2 % slower).
constexpr double kShortProduct = 8;
// Products that multiply for more than this share of their time do not wait for memory.
constexpr double kMostMultiplying = 0.5;

// The share of a thread's registers that values may take which are loaded before a wait.
constexpr double kEarlyShare = 0.25;
constexpr int64_t kMostEarlyRegisters = 48;

bool accesses_device(const TileProgram& program, const Statement& statement) {
  bool out = false;
  for_each_memory(statement, [&](MemoryId id) { out |= is_device_memory(program[id]); });
  for (const Region* inner : regions_of(statement))
    out |= std::ranges::any_of(inner->statements,
                               [&](const Statement& s) { return accesses_device(program, s); });
  return out;
}

bool is_wait(const Statement& s) {
  const auto* special = s.as<InstructionOp>();
  return special && special->instruction == Instruction::griddep_wait;
}

class EarlyLoads {
 public:
  EarlyLoads(const Kernel& kernel, const std::vector<bool>& unwritten) : kernel_(kernel) {
    size_t parameter = 0;
    for (const Memory& memory : kernel.memories) {
      const bool is_parameter = memory.space == MemorySpace::Parameter;
      unwritten_.push_back(is_parameter && memory.mode == Mode::In && unwritten.at(parameter));
      parameter += is_parameter;
    }
  }

  void move(Phase& phase) {
    std::vector<Statement>& statements = phase.body.statements;
    const auto wait = std::ranges::find_if(statements, is_wait);
    if (wait == statements.end()) return;
    late_.clear();
    room_ =
        std::min(kMostEarlyRegisters, static_cast<int64_t>(kEarlyShare * kMultiprocessorRegisters /
                                                           static_cast<double>(phase.block)));
    auto end = wait + 1;
    while (end != statements.end() && !has_effect(*end) && regions_of(*end).empty()) ++end;
    std::vector<Statement> early, rest;
    for (auto s = wait; s != end; ++s) {
      const bool moves = can_move(*s);
      if (!moves) note_late(*s);
      (moves ? early : rest).push_back(std::move(*s));
    }
    const auto next = std::ranges::move(early, wait).out;
    std::ranges::move(rest, next);
  }

 private:
  bool can_move(const Statement& s) {
    const auto* load = s.as<LoadOp>();
    if (load ? !unwritten_[load->memory.index]
             : !(s.as<LetOp>() || s.as<ConstOp>() || s.as<IndexOp>() || s.as<TestOp>()))
      return false;
    bool depends = false;
    for_each_value(s, [&](ValueId v) { depends |= late_.contains("%" + kernel_[v].name); });
    for_each_expr(s, [&](const Expr& e) {
      for (const std::string& symbol : e.symbols()) depends |= late_.contains(symbol);
    });
    if (depends) return false;
    if (!load) return true;
    const int64_t registers = registers_of(*load, kernel_[s.results[0]].type);
    if (registers > room_) return false;
    room_ -= registers;
    return true;
  }

  // Elements at one place are loaded once.
  static int64_t registers_of(const LoadOp& load, const ValueType& type) {
    std::set<Expr> places = {load.at[0]};
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      const std::string symbol = "e" + std::to_string(axis);
      std::set<Expr> next;
      for (const Expr& place : places) {
        const int64_t extent = place.uses(symbol) ? type.extents[axis] : 1;
        for (int64_t i = 0; i < extent; ++i) next.insert(place.substitute(symbol, i));
      }
      places = std::move(next);
    }
    const int64_t bytes = type.lanes * static_cast<int64_t>(size_of(type.dtype));
    return static_cast<int64_t>(places.size()) * ((bytes + 3) / 4);
  }

  void note_late(const Statement& s) {
    for (const ValueId v : s.results) late_.insert("%" + kernel_[v].name);
    if (const auto* let = s.as<LetOp>()) late_.insert(let->symbol);
  }

  const Kernel& kernel_;
  std::vector<bool> unwritten_;  // by memory
  std::set<std::string> late_;   // values and symbols that are defined after the wait
  int64_t room_ = 0;             // registers
};

// The bulk copies of a role that fill a ring of slots. Those of what no kernel writes begin before
// the role waits, as many as there are slots; in the loop, they are left out for these items. The
// mbarrier of a slot counts their bytes before it is told how many to expect, and its phase cannot
// end before that, since the arrival that tells it is still missing.
class EarlyCopies {
 public:
  EarlyCopies(const Kernel& kernel, const std::vector<bool>& unwritten) {
    std::map<uint32_t, bool> of_memory;
    size_t parameter = 0;
    for (size_t i = 0; i < kernel.memories.size(); ++i) {
      if (kernel.memories[i].space != MemorySpace::Parameter) continue;
      const bool unwritten_here = unwritten.at(parameter++);
      of_memory[static_cast<uint32_t>(i)] = kernel.memories[i].mode == Mode::In && unwritten_here;
    }
    for (const TensorMap& map : kernel.tensor_maps)
      unwritten_.push_back(of_memory.at(map.memory.index));
  }

  void move(Phase& phase) {
    std::vector<Statement>& statements = phase.body.statements;
    const auto wait = std::ranges::find_if(statements, is_wait);
    if (wait == statements.end()) return;
    if (!std::all_of(wait + 1, statements.end(),
                     [](const Statement& s) { return s.as<RoleOp>() != nullptr; }))
      return;
    symbols_.merge(symbols_of(phase.body));
    bool any = false;
    std::vector<Region> early;
    for (auto s = wait + 1; s != statements.end(); ++s) {
      RoleOp& role = *s->as<RoleOp>();
      any |= collect(*role.body, {}, early.emplace_back());
    }
    if (!any) return;
    // Each role waits for itself, after the copies that it has begun.
    size_t n = 0;
    for (auto s = wait + 1; s != statements.end(); ++s) {
      RoleOp& role = *s->as<RoleOp>();
      std::vector<Statement>& first = early[n++].statements;
      first.push_back(*wait);
      role.body->statements.insert(role.body->statements.begin(),
                                   std::make_move_iterator(first.begin()),
                                   std::make_move_iterator(first.end()));
    }
    statements.erase(wait);
  }

 private:
  using Places = std::unordered_map<std::string, Expr>;

  bool is_early(const Statement& s) const {
    const auto* op = s.as<InstructionOp>();
    return op && op->instruction == Instruction::tma_load &&
           unwritten_[std::get<MapPlace>(op->operands[1]).map.index];
  }
  // A copy, or the copies of several boxes for one item.
  bool has_early_copies(const Statement& s) const {
    if (is_early(s)) return true;
    const auto* loop = s.as<ForOp>();
    return loop && loop->carried.empty() && !loop->body->statements.empty() &&
           std::ranges::all_of(loop->body->statements,
                               [&](const Statement& inner) { return is_early(inner); });
  }

  // Adds to `out` the copies of the first loop over items in `region` that can begin early, and
  // takes them out of this loop. `places`: what symbols are where it begins.
  bool collect(Region& region, Places places, Region& out) {
    for (Statement& s : region.statements) {
      if (const auto* let = s.as<LetOp>()) {
        places.insert_or_assign(let->symbol, let->value.substitute(places));
      } else if (auto* branch = s.as<IfOp>()) {
        if (branch->flag || branch->otherwise) continue;
        Region inside;
        if (!collect(*branch->then, places, inside)) continue;
        add_branch(substituted(branch->condition, places), std::move(inside), out);
        return true;
      } else if (auto* loop = s.as<ForOp>()) {
        if (!loop->carried.empty()) continue;
        if (std::ranges::any_of(loop->body->statements,
                                [&](const Statement& inner) { return has_early_copies(inner); }))
          return collect_items(*loop, places, out);
        // In a loop over tiles, the number of an item is known only modulo the number of slots.
        return false;
      }
    }
    return false;
  }

  bool collect_items(ForOp& loop, const Places& places, Region& out) {
    if (!loop.step.is_constant(1)) return false;
    // The number of an item, and how many slots there are.
    std::optional<Expr> item;
    std::optional<int64_t> slots;
    for (const Statement& s : loop.body->statements)
      if (const auto* op = s.as<InstructionOp>(); op && op->instruction == Instruction::tma_load) {
        Expr at = std::get<Place>(op->operands[2]).at;
        std::optional<int64_t> depth;
        if (at.kind() == Expr::Kind::Mod) {
          depth = at.operands()[1].as_constant();
          at = Expr(at.operands()[0]);
        }
        if (item && (!(*item == at) || slots != depth)) return false;
        item = at;
        slots = depth;
      }
    if (!item) return false;
    const Expr low = loop.low.substitute(places), high = loop.high.substitute(places);
    const Expr turns = high - low;
    const Expr count = slots ? min(turns, *slots) : turns;
    if (count.range().max < 1) return false;
    const std::string symbol = unused("early");
    const Expr n = loop_symbol(symbol, 0, count, 1);
    Places here = places;
    here.insert_or_assign(loop.symbol, low + n);
    for (const Statement& s : loop.body->statements)
      if (const auto* let = s.as<LetOp>())
        here.insert_or_assign(let->symbol, let->value.substitute(here));
    // The first items go to the slots in order.
    if (!(item->substitute(here) == n)) return false;
    ForOp early{.symbol = symbol, .low = 0, .high = count};
    Region copies, rest;
    for (Statement& s : loop.body->statements) {
      if (!has_early_copies(s)) {
        rest.statements.push_back(std::move(s));
        continue;
      }
      Statement copy = s;
      substitute(copy, here);
      copies.statements.push_back(std::move(copy));
      Region later;
      later.statements.push_back(std::move(s));
      const Expr limit = slots ? Expr(*slots) : loop.high - loop.low;
      add_branch({{*item, IndexComparison::Kind::Ge, limit}}, std::move(later), rest);
    }
    early.body = std::move(copies);
    *loop.body = std::move(rest);
    Statement made;
    made.op = std::move(early);
    out.statements.push_back(std::move(made));
    return true;
  }

  // The expressions of a copy, or of the copies of several boxes.
  void substitute(Statement& s, const Places& places) {
    Places inner = places;
    if (auto* loop = s.as<ForOp>()) {
      const std::string symbol = unused(loop->symbol);
      inner.insert_or_assign(loop->symbol, loop_symbol(symbol, loop->low, loop->high, loop->step));
      loop->symbol = symbol;
    }
    for_each_expr(s, [&](Expr& e) { e = e.substitute(places); });
    for (Region* region : regions_of(s))
      for (Statement& nested : region->statements) substitute(nested, inner);
  }

  static Condition substituted(Condition condition, const Places& places) {
    for (IndexComparison& c : condition) {
      c.left = c.left.substitute(places);
      c.right = c.right.substitute(places);
    }
    return condition;
  }

  static void add_branch(Condition condition, Region then, Region& out) {
    std::erase_if(condition, [](const IndexComparison& c) { return holds_always(c); });
    if (condition.empty()) {
      std::ranges::move(then.statements, std::back_inserter(out.statements));
      return;
    }
    IfOp branch;
    branch.condition = std::move(condition);
    branch.then = std::move(then);
    Statement made;
    made.op = std::move(branch);
    out.statements.push_back(std::move(made));
  }

  std::string unused(std::string name) {
    const std::string base = name.substr(0, name.find('.'));
    for (int n = 1; !symbols_.insert(name).second; ++n) name = base + "." + std::to_string(n);
    return name;
  }

  std::vector<bool> unwritten_;  // by tensor map
  std::set<std::string> symbols_;
};

}  // namespace

bool can_overlap(const Target& target) {
  return target.kind == TargetKind::Gpu && has_instruction(target, Instruction::griddep_wait);
}

bool should_overlap(const TileProgram& program, const LoopTree& tree, double seconds,
                    const Target& target) {
  bool multiplies = false, asynchronous = false;
  for (const auto& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      if (task.kind != LoopTask::Kind::Dot || task.unit == Unit::None) return;
      (task.unit == Unit::Wgmma ? asynchronous : multiplies) = true;
    });
  if (!can_overlap(target) || program.resident || multiplies ||
      seconds >= ((asynchronous ? kShortProduct : kShortRun) + 1) * target.launch_seconds)
    return false;
  return !asynchronous ||
         cost_of(tree, target).flops / matrix_rate(target) < kMostMultiplying * seconds;
}

void await_predecessors(TileProgram& program) {
  for (Phase& phase : program.phases) {
    std::vector<Statement>& statements = phase.body.statements;
    const auto first = std::ranges::find_if(statements, [&](const Statement& s) {
      return s.as<TileRoleOp>() || accesses_device(program, s);
    });
    Statement wait;
    wait.op = AwaitOp{};
    statements.insert(first, std::move(wait));
  }
}

std::vector<bool> unwritten_nodes(const Graph& graph) {
  std::vector<bool> out(graph.size());
  for (uint32_t i = 0; i < out.size(); ++i) out[i] = graph[NodeId(i)].as<ConstantOp>() != nullptr;
  for (const NodeId input : graph.inputs()) out[input.index] = true;
  for (const GraphOutput& output : graph.outputs())
    if (output.updates) out[graph.inputs()[*output.updates].index] = false;
  return out;
}

void load_before_waits(Kernel& kernel, const std::vector<bool>& unwritten) {
  EarlyLoads loads(kernel, unwritten);
  EarlyCopies copies(kernel, unwritten);
  for (Phase& phase : kernel.phases) {
    loads.move(phase);
    copies.move(phase);
  }
}

}  // namespace braze
