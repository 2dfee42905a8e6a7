#include "ir/code/static_loops.h"

#include <algorithm>
#include <unordered_set>

#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// The meaning of names in one turn of a loop.
struct Renaming {
  std::unordered_map<std::string, Expr> symbols;  // including %names
  std::unordered_map<ValueId, ValueId> values;
  std::unordered_map<MemoryId, MemoryId> memories;
};

class Expander {
 public:
  explicit Expander(KernelCode& code) : code_(code) {
    for (const Value& value : code.values) names_.insert(value.name);
    for (const Memory& memory : code.memories) names_.insert(memory.name);
  }

  void run() {
    for (Phase& phase : code_.phases) {
      Renaming none;
      phase.body = copy(phase.body, none, /*rename=*/false);
    }
  }

 private:
  std::string fresh_name(const std::string& name) {
    std::string made;
    size_t& used = used_[name];
    do made = fmt::format("{}.{}", name, ++used);
    while (!names_.insert(made).second);
    return made;
  }

  ValueId value(ValueId id, const Renaming& names) const {
    const auto found = names.values.find(id);
    return found == names.values.end() ? id : found->second;
  }
  MemoryId memory(MemoryId id, const Renaming& names) const {
    const auto found = names.memories.find(id);
    return found == names.memories.end() ? id : found->second;
  }
  void map_value(ValueId from, ValueId to, Renaming& names) {
    names.values[from] = to;
    names.symbols.insert_or_assign("%" + code_[from].name, value_symbol(code_, to));
  }
  ValueId new_value(ValueId id, Renaming& names) {
    const ValueId made(code_.values.size());
    Value copied = code_.values[id.index];
    copied.name = fresh_name(copied.name);
    code_.values.push_back(std::move(copied));
    map_value(id, made, names);
    return made;
  }
  MemoryId new_memory(MemoryId id, Renaming& names) {
    const MemoryId made(code_.memories.size());
    Memory copied = code_.memories[id.index];
    copied.name = fresh_name(copied.name);
    code_.memories.push_back(std::move(copied));
    names.memories[id] = made;
    return made;
  }

  // The operand as a value. A literal becomes a constant.
  ValueId as_value(const ValueOperand& operand, const ValueType& type, Region& out) {
    if (!operand.is_literal()) return operand.value;
    const ValueId made(code_.values.size());
    code_.values.push_back({fresh_name("c"), type});
    Statement constant{ConstOp{operand.bits}, {made}, {}};
    out.statements.push_back(std::move(constant));
    return made;
  }
  ValueOperand renamed(const ValueOperand& operand, const Renaming& names) const {
    return operand.is_literal() ? operand : ValueOperand(value(operand.value, names));
  }

  // Copies a region. `names` is passed by value, because regions inside see the names of the
  // regions around them, but not the other way round.
  Region copy(const Region& region, Renaming names, bool rename) {
    Region out;
    append(region, names, rename, out);
    for (const ValueOperand& yielded : region.yields) out.yields.push_back(renamed(yielded, names));
    return out;
  }

  void append(const Region& region, Renaming& names, bool rename, Region& out) {
    for (const Statement& statement : region.statements) {
      if (const auto* loop = statement.as<ForOp>(); loop && loop->is_static)
        expand(*loop, statement, names, out);
      else
        out.statements.push_back(copy(statement, names, rename));
    }
  }

  void expand(const ForOp& loop, const Statement& statement, Renaming& names, Region& out) {
    const int64_t low = loop.low.as_constant().value(), high = loop.high.as_constant().value(),
                  step = loop.step.as_constant().value();
    std::vector<ValueId> carried;
    for (const auto& [inside, first] : loop.carried)
      carried.push_back(as_value(renamed(first, names), code_[inside].type, out));
    for (int64_t k = low; k < high; k += step) {
      Renaming turn = names;
      turn.symbols.insert_or_assign(loop.symbol, Expr(k));
      for (size_t i = 0; i < carried.size(); ++i)
        map_value(loop.carried[i].first, carried[i], turn);
      append(*loop.body, turn, /*rename=*/true, out);
      for (size_t i = 0; i < carried.size(); ++i)
        carried[i] =
            as_value(renamed(loop.body->yields[i], turn), code_[loop.carried[i].first].type, out);
    }
    for (size_t i = 0; i < statement.results.size(); ++i)
      map_value(statement.results[i], carried[i], names);
  }

  Statement copy(const Statement& statement, Renaming& names, bool rename) {
    // The regions of the copy are replaced by renamed ones below.
    Statement made = statement;
    for_each_value_id(made, [&](ValueId& id) { id = value(id, names); });
    for_each_expr(made, [&](Expr& e) { e = e.substitute(names.symbols); });
    rename_memories(made, names);
    fold_offsets(made);
    if (auto* let = made.as<LetOp>(); let && rename) {
      const std::string old = let->symbol;
      let->symbol = fresh_name(old);
      names.symbols.insert_or_assign(old, let_symbol(let->symbol, let->value));
    }
    if (auto* buffer = made.as<BufferOp>(); buffer && rename)
      buffer->memory = new_memory(buffer->memory, names);
    if (auto* view = made.as<MemoryViewOp>(); view && rename)
      view->window = new_memory(view->window, names);
    Renaming inside = names;
    if (rename) {
      if (auto* loop = made.as<ForOp>()) {
        const std::string old = loop->symbol;
        loop->symbol = fresh_name(old);
        inside.symbols.insert_or_assign(
            old, loop_symbol(loop->symbol, loop->low, loop->high, loop->step));
        for (auto& [value, first] : loop->carried) value = new_value(value, inside);
      }
    }
    for (Region* region : regions_of(made)) *region = copy(*region, inside, rename);
    if (rename)
      for (ValueId& result : made.results) result = new_value(result, names);
    return made;
  }

  void rename_memories(Statement& s, const Renaming& names) const {
    if (names.memories.empty()) return;
    for_each_memory(s, [&](MemoryId& id) { id = memory(id, names); });
  }

  // Turns offsets that have become constants into numbers.
  static void fold_offsets(Statement& s) {
    const auto fold = [](std::vector<Expr>& exprs, std::vector<int64_t>& numbers) {
      for (const Expr& e : exprs)
        if (!e.as_constant()) return;
      for (const Expr& e : exprs) numbers.push_back(*e.as_constant());
      exprs.clear();
    };
    if (auto* view = s.as<MovementOp>()) fold(view->offsets, view->arguments);
    if (auto* get = s.as<GetElementOp>()) fold(get->positions, get->at);
  }

  KernelCode& code_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, size_t> used_;
};

}  // namespace

int64_t body_copies(const ForOp& loop) {
  const auto low = loop.low.as_constant(), high = loop.high.as_constant(),
             step = loop.step.as_constant();
  const bool whole = loop.is_static || loop.unroll == 0;
  if (!low || !high || !step) return whole ? 1 : loop.unroll;
  const int64_t turns = std::max<int64_t>((*high - *low + *step - 1) / *step, 0);
  return whole ? turns : std::min(turns, loop.unroll);
}

void expand_static_loops(KernelCode& code) { Expander(code).run(); }

}  // namespace braze
