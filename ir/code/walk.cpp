#include "ir/code/walk.h"

#include <algorithm>
#include <unordered_set>

#include "ir/code/statements.h"

namespace braze {

namespace {

// Visitors of what a statement reads, for const and mutable statements alike.
template <class F>
struct Values : LeafVisitor<Values<F>> {
  const F& f;
  void value(auto& value) { f(value); }
};
template <class F>
struct Indices : LeafVisitor<Indices<F>> {
  const F& f;
  void index(auto& index) { f(index); }
};
template <class F>
struct Memories : LeafVisitor<Memories<F>> {
  const F& f;
  void memory(auto& memory, MemoryUse) { f(memory); }
};
template <class R>
struct Regions : LeafVisitor<Regions<R>> {
  std::vector<R*> found;
  void region(auto& region) { found.push_back(&region); }
};

template <template <class> class Visitor, class S, class F>
void visit_leaves(S& statement, const F& f) {
  Visitor<F> visitor{{}, f};
  std::visit([&](auto& op) { visit_parts(op, visitor); }, statement.op);
}
template <class R, class S>
std::vector<R*> find_regions(S& statement) {
  Regions<R> visitor;
  std::visit([&](auto& op) { visit_parts(op, visitor); }, statement.op);
  return std::move(visitor.found);
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

bool changes_state(Instruction instruction) {
  switch (instruction) {  // instructions that only compute in registers or read memory
    case Instruction::shfl_idx:
    case Instruction::shfl_bfly:
    case Instruction::shfl_up:
    case Instruction::shfl_down:
    case Instruction::ldmatrix_x4:
    case Instruction::ldmatrix_x4_trans:
    case Instruction::mma_bf16:
    case Instruction::mma_f16:
    case Instruction::mma_tf32:
    case Instruction::mma_f64:
    case Instruction::mma_f64_wide:
      return false;
    default:
      return true;
  }
}

// Collects the values that live statements read, from the end backwards. Statements whose results
// are not read are removed.
class DeadCode {
 public:
  explicit DeadCode(KernelCode& code) : code_(code) {}

  void run() {
    for (size_t p = code_.phases.size(); p-- > 0;) sweep(code_.phases[p].body);
  }

 private:
  void read(ValueId value) { used_.insert(code_[value].name); }
  void read(const Expr& e) {
    for (const std::string& symbol : e.symbols())
      used_.insert(symbol[0] == '%' ? symbol.substr(1) : symbol);
  }

  bool is_live(const Statement& statement) const {
    if (const auto* let = statement.as<LetOp>()) return used_.contains(let->symbol);
    if (const auto* buffer = statement.as<BufferOp>()) return memories_.contains(buffer->memory);
    if (const auto* view = statement.as<MemoryViewOp>()) return memories_.contains(view->window);
    if (has_effect(statement)) return true;
    return std::any_of(statement.results.begin(), statement.results.end(),
                       [&](ValueId r) { return used_.contains(code_[r].name); });
  }

  void sweep(Region& region) {
    for (const ValueOperand& yielded : region.yields)
      if (!yielded.is_literal()) read(yielded.value);
    std::vector<Statement> kept;
    for (size_t i = region.statements.size(); i-- > 0;) {
      Statement& statement = region.statements[i];
      if (!is_live(statement)) continue;
      for (Region* inner : regions_of(statement)) sweep(*inner);
      for_each_value(statement, [&](ValueId v) { read(v); });
      for_each_expr(statement, [&](const Expr& e) { read(e); });
      for_each_memory(statement, [&](MemoryId memory) { memories_.insert(memory); });
      kept.push_back(std::move(statement));
    }
    std::reverse(kept.begin(), kept.end());
    region.statements = std::move(kept);
  }

  KernelCode& code_;
  std::unordered_set<std::string> used_;
  std::set<MemoryId> memories_;
};

}  // namespace

void for_each_value(const Statement& statement, const std::function<void(ValueId)>& visit) {
  visit_leaves<Values>(statement, Overloaded{[&](const ValueOperand& o) {
                                               if (!o.is_literal()) visit(o.value);
                                             },
                                             [&](const ValueId& v) { visit(v); }});
}

void for_each_operand(Statement& statement, const std::function<void(ValueOperand&)>& visit) {
  visit_leaves<Values>(statement,
                       Overloaded{[&](ValueOperand& o) { visit(o); }, [](const ValueId&) {}});
}

void for_each_value_id(Statement& statement, const std::function<void(ValueId&)>& visit) {
  visit_leaves<Values>(statement, Overloaded{[&](ValueOperand& o) {
                                               if (!o.is_literal()) visit(o.value);
                                             },
                                             [&](ValueId& v) { visit(v); }});
}

void for_each_expr(const Statement& statement, const std::function<void(const Expr&)>& visit) {
  visit_leaves<Indices>(statement, visit);
}
void for_each_expr(Statement& statement, const std::function<void(Expr&)>& visit) {
  visit_leaves<Indices>(statement, visit);
}

void for_each_memory(Statement& statement, const std::function<void(MemoryId&)>& visit) {
  visit_leaves<Memories>(statement, visit);
}
void for_each_memory(const Statement& statement, const std::function<void(MemoryId)>& visit) {
  visit_leaves<Memories>(statement, visit);
}

std::vector<Region*> regions_of(Statement& statement) { return find_regions<Region>(statement); }
std::vector<const Region*> regions_of(const Statement& statement) {
  return find_regions<const Region>(statement);
}

void for_each_statement(const Region& region, const std::function<void(const Statement&)>& visit) {
  for (const Statement& s : region.statements) {
    visit(s);
    for (const Region* inner : regions_of(s)) for_each_statement(*inner, visit);
  }
}

std::set<std::string> symbols_of(const Region& region) {
  std::set<std::string> out;
  for_each_statement(region, [&](const Statement& s) {
    if (const auto* let = s.as<LetOp>()) out.insert(let->symbol);
    if (const auto* loop = s.as<ForOp>()) out.insert(loop->symbol);
  });
  return out;
}

bool has_effect(const Statement& statement) {
  if (const auto* special = statement.as<InstructionOp>())
    return changes_state(special->instruction);
  if (info(statement).effect == Effect::Acts) return true;
  for (const Region* region : regions_of(statement))
    if (std::any_of(region->statements.begin(), region->statements.end(), has_effect)) return true;
  return false;
}

void remove_dead_code(KernelCode& code) { DeadCode(code).run(); }

}  // namespace braze
