#include "ir/code/walk.h"

#include <algorithm>
#include <set>
#include <unordered_set>

namespace braze {

namespace {

// One overload for each operation: `f(ValueOperand&)` for operands, `v(ValueId&)` for values that
// cannot be literals, `e(Expr&)` for index expressions. It works on const and mutable statements
// alike.
template <class F, class V, class E>
struct Visitor {
  F f;
  V v;
  E e;

  template <class List>
  void operands(List& list) {
    for (auto& operand : list) f(operand);
  }
  template <class List>
  void exprs(List& list) {
    for (auto& expr : list) e(expr);
  }
  template <class C>
  void condition(C& condition) {
    for (auto& c : condition) {
      e(c.left);
      e(c.right);
    }
  }
  template <class G>
  void guard(G& guard) {
    condition(guard.condition);
    if (guard.mask) v(guard.mask);
  }
  template <class R>
  void rank(R& rank) {
    if (rank) e(*rank);
  }
  template <class O>
  void instruction_operand(O& operand) {
    if (auto* value = std::get_if<ValueOperand>(&operand)) f(*value);
    if (auto* index = std::get_if<Expr>(&operand)) e(*index);
    if (auto* place = std::get_if<Place>(&operand)) {
      e(place->at);
      rank(place->rank);
    }
    if (auto* map = std::get_if<MapPlace>(&operand)) exprs(map->at);
  }
  template <class List>
  void carried(List& list) {
    for (auto& [inside, first] : list) f(first);
  }

  template <class Op>
  void operator()(Op& op) {
    using T = std::remove_const_t<Op>;
    if constexpr (std::is_same_v<T, LetOp> || std::is_same_v<T, IndexOp>)
      e(op.value);
    else if constexpr (std::is_same_v<T, TestOp>)
      condition(op.condition);
    else if constexpr (std::is_same_v<T, LoadOp>) {
      exprs(op.at);
      guard(op.guard);
      rank(op.rank);
    } else if constexpr (std::is_same_v<T, StoreOp>) {
      f(op.value);
      exprs(op.at);
      guard(op.guard);
      rank(op.rank);
    } else if constexpr (std::is_same_v<T, RowOp> || std::is_same_v<T, PackOp> ||
                         std::is_same_v<T, TileScanOp>)
      operands(op.operands);
    else if constexpr (std::is_same_v<T, FoldOp> || std::is_same_v<T, SplatOp> ||
                       std::is_same_v<T, RegroupOp>)
      f(op.operand);
    else if constexpr (std::is_same_v<T, ViewOp>) {
      f(op.operand);
      exprs(op.offsets);
    } else if constexpr (std::is_same_v<T, GetOp>) {
      f(op.operand);
      exprs(op.positions);
    } else if constexpr (std::is_same_v<T, InstructionOp>) {
      for (auto& operand : op.operands) instruction_operand(operand);
    } else if constexpr (std::is_same_v<T, ArgFoldOp>) {
      f(op.values);
      f(op.indices);
    } else if constexpr (std::is_same_v<T, TileDotOp>) {
      if (!op.a_buffer) f(op.a);
      if (!op.b_buffer) f(op.b);
      f(op.c);
    } else if constexpr (std::is_same_v<T, ForOp>) {
      e(op.low);
      e(op.high);
      e(op.step);
      carried(op.carried);
    } else if constexpr (std::is_same_v<T, IfOp>) {
      condition(op.condition);
      if (op.flag) v(op.flag);
    } else if constexpr (std::is_same_v<T, WhileOp>)
      carried(op.carried);
    else if constexpr (std::is_same_v<T, TicketOp>) {
      exprs(op.at);
      e(op.count);
    } else if constexpr (std::is_same_v<T, LaneOp>) {
      f(op.operand);
      if (op.insert) f(op.element);
    } else if constexpr (std::is_same_v<T, ShuffleOp>) {
      f(op.a);
      f(op.b);
    } else if constexpr (std::is_same_v<T, AtomicOp>) {
      e(op.at);
      f(op.value);
    } else if constexpr (std::is_same_v<T, PutOp> || std::is_same_v<T, ReceiveOp> ||
                         std::is_same_v<T, ReleaseOp>)
      e(op.item);
    else if constexpr (std::is_same_v<T, CopyOp> || std::is_same_v<T, StartStoreOp>) {
      exprs(op.at);
      guard(op.guard);
    } else if constexpr (std::is_same_v<T, PassOp> || std::is_same_v<T, TakeOp>) {
      e(op.element);
      e(op.item);
    } else if constexpr (std::is_same_v<T, WindowOp>) {
      if (op.item) e(*op.item);
      exprs(op.offsets);
    } else if constexpr (std::is_same_v<T, StartDotOp>) {
      if (!op.a_window) f(op.a);
      f(op.c);
      condition(op.fresh_when);
    } else if constexpr (std::is_same_v<T, WaitDotOp>)
      operands(op.operands);
    else if constexpr (std::is_same_v<T, RelayoutOp>)
      f(op.operand);
    else
      static_assert(std::is_same_v<T, ConstOp> || std::is_same_v<T, BufferOp> ||
                    std::is_same_v<T, AwaitOp> || std::is_same_v<T, RoleOp> ||
                    std::is_same_v<T, UndefOp> || std::is_same_v<T, ChannelOp> ||
                    std::is_same_v<T, TurnsOp> || std::is_same_v<T, CopiesOp> ||
                    std::is_same_v<T, WaitStoreOp>);
  }
};

template <class S, class F, class V, class E>
void visit_all(S& statement, F f, V v, E e) {
  std::visit(Visitor<F, V, E>{std::move(f), std::move(v), std::move(e)}, statement.op);
}

// Statements of pipelined programs that do more than make values.
bool is_pipeline_step(const Statement& s) {
  return s.as<ChannelOp>() || s.as<TurnsOp>() || s.as<CopiesOp>() || s.as<PutOp>() ||
         s.as<ReceiveOp>() || s.as<ReleaseOp>() || s.as<CopyOp>() || s.as<PassOp>() ||
         s.as<TakeOp>() || s.as<WaitDotOp>() || s.as<StartStoreOp>() || s.as<WaitStoreOp>();
}

bool changes_state(Instruction instruction) {
  switch (instruction) {  // instructions that only compute in registers or read memory
    case Instruction::shfl_idx:
    case Instruction::shfl_bfly:
    case Instruction::shfl_up:
    case Instruction::shfl_down:
    case Instruction::elect:
    case Instruction::ldmatrix_x4:
    case Instruction::ldmatrix_x4_trans:
    case Instruction::mma_bf16:
    case Instruction::mma_f16:
    case Instruction::mma_tf32:
    case Instruction::ex2_approx:
    case Instruction::rcp_approx:
    case Instruction::tanh_approx:
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
    if (const auto* view = statement.as<WindowOp>()) return memories_.contains(view->window);
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
  visit_all(
      statement,
      [&](const ValueOperand& o) {
        if (!o.is_literal()) visit(o.value);
      },
      [&](const ValueId& v) { visit(v); }, [](const Expr&) {});
}

void for_each_operand(Statement& statement, const std::function<void(ValueOperand&)>& visit) {
  visit_all(
      statement, visit, [](ValueId&) {}, [](Expr&) {});
}

void for_each_value_id(Statement& statement, const std::function<void(ValueId&)>& visit) {
  visit_all(
      statement,
      [&](ValueOperand& o) {
        if (!o.is_literal()) visit(o.value);
      },
      visit, [](Expr&) {});
}

void for_each_expr(const Statement& statement, const std::function<void(const Expr&)>& visit) {
  visit_all(
      statement, [](const ValueOperand&) {}, [](const ValueId&) {}, visit);
}

void for_each_expr(Statement& statement, const std::function<void(Expr&)>& visit) {
  visit_all(
      statement, [](ValueOperand&) {}, [](ValueId&) {}, visit);
}

void for_each_memory(Statement& s, const std::function<void(MemoryId&)>& visit) {
  if (auto* load = s.as<LoadOp>()) visit(load->memory);
  if (auto* store = s.as<StoreOp>()) visit(store->memory);
  if (auto* ticket = s.as<TicketOp>()) visit(ticket->memory);
  if (auto* atomic = s.as<AtomicOp>()) visit(atomic->memory);
  if (auto* special = s.as<InstructionOp>())
    for (InstructionOperand& operand : special->operands)
      if (auto* place = std::get_if<Place>(&operand)) visit(place->memory);
  if (auto* dot = s.as<TileDotOp>()) {
    if (dot->a_buffer) visit(dot->a_buffer);
    if (dot->b_buffer) visit(dot->b_buffer);
  }
  if (auto* copy = s.as<CopyOp>()) {
    visit(copy->memory);
    visit(copy->field);
  }
  if (auto* view = s.as<WindowOp>()) visit(view->source);
  if (auto* dot = s.as<StartDotOp>()) {
    if (dot->a_window) visit(dot->a_window);
    visit(dot->b_window);
  }
  if (auto* store = s.as<StartStoreOp>()) {
    visit(store->window);
    visit(store->memory);
  }
}

void for_each_memory(const Statement& statement, const std::function<void(MemoryId)>& visit) {
  for_each_memory(const_cast<Statement&>(statement), [&](MemoryId& id) { visit(id); });
}

std::vector<Region*> regions_of(Statement& statement) {
  std::vector<Region*> out;
  if (auto* loop = statement.as<ForOp>()) out.push_back(&*loop->body);
  if (auto* loop = statement.as<WhileOp>()) out.push_back(&*loop->body);
  if (auto* role = statement.as<RoleOp>()) out.push_back(&*role->body);
  if (auto* role = statement.as<CopiesOp>()) out.push_back(&*role->body);
  if (auto* put = statement.as<PutOp>()) out.push_back(&*put->body);
  if (auto* branch = statement.as<IfOp>()) {
    out.push_back(&*branch->then);
    if (branch->otherwise) out.push_back(&*branch->otherwise);
  }
  return out;
}

std::vector<const Region*> regions_of(const Statement& statement) {
  const auto regions = regions_of(const_cast<Statement&>(statement));
  return {regions.begin(), regions.end()};
}

bool has_effect(const Statement& statement) {
  if (statement.as<StoreOp>() || statement.as<TicketOp>() || statement.as<AwaitOp>() ||
      statement.as<AtomicOp>() || is_pipeline_step(statement))
    return true;
  if (const auto* special = statement.as<InstructionOp>())
    return changes_state(special->instruction);
  for (const Region* region : regions_of(statement))
    if (std::any_of(region->statements.begin(), region->statements.end(), has_effect)) return true;
  return false;
}

void remove_dead_code(KernelCode& code) { DeadCode(code).run(); }

}  // namespace braze
