#include "compiler/planning/overlap.h"

#include <algorithm>
#include <set>
#include <string>

#include "ir/code/walk.h"
#include "ir/kernel/gpu_rules.h"

namespace braze {

namespace {

// A kernel that runs longer than this many times the price of a launch would gain little. It keeps
// the loads past the coherent caches, which the assembler can move more freely.
constexpr double kShortRun = 16;

constexpr int64_t kRegisterFile = 65536;  // of a multiprocessor
// The share of a thread's registers that values may take which are loaded before a wait.
constexpr double kEarlyShare = 0.25;
constexpr int64_t kMostEarlyRegisters = 48;

bool accesses_device(const TileProgram& program, const Statement& statement) {
  bool out = false;
  for_each_memory(statement, [&](MemoryId id) {
    const MemorySpace space = program[id].space;
    out |= space == MemorySpace::Parameter || space == MemorySpace::Workspace;
  });
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
    room_ = std::min(kMostEarlyRegisters, static_cast<int64_t>(kEarlyShare * kRegisterFile /
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

}  // namespace

bool can_overlap(const Target& target) {
  return target.kind == TargetKind::Gpu && has_instruction(target, Instruction::griddep_wait);
}

bool should_overlap(const TileProgram& program, const LoopTree& tree, double seconds,
                    const Target& target) {
  bool multiplies = false;
  for (const auto& phase : tree.phases)
    for_each_task(phase, [&](const LoopTask& task, const auto&) {
      multiplies |= task.kind == LoopTask::Kind::Dot && task.unit != Unit::None;
    });
  return can_overlap(target) && !program.resident && !multiplies &&
         seconds < (kShortRun + 1) * target.launch_seconds;
}

void await_predecessors(TileProgram& program) {
  for (Phase& phase : program.phases) {
    std::vector<Statement>& statements = phase.body.statements;
    const auto first = std::ranges::find_if(statements, [&](const Statement& s) {
      return s.as<CopiesOp>() || accesses_device(program, s);
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
  for (Phase& phase : kernel.phases) loads.move(phase);
}

}  // namespace braze
