#include "ir/kernel/simulate.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ir/code/index_program.h"
#include "ir/code/static_loops.h"
#include "ir/code/text.h"
#include "ir/code/walk.h"
#include "ir/kernel/simulate_p.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr size_t kMostFindings = 50;
constexpr uint64_t kMostStatements = 20'000'000;  // of one warp
constexpr int kIdleRounds = 1000;                 // of warps that only poll

size_t elements(const ValueType& type) { return static_cast<size_t>(type.count() * type.lanes); }

// Calls `visit` for every thread of the mask.
template <class Visit>
void for_each_lane(uint32_t mask, const Visit& visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<size_t>(std::countr_zero(mask)));
}

// Operations that only move elements, so that what is undefined stays undefined.
bool is_move(const Statement& s) {
  return s.as<MovementOp>() || s.as<GetElementOp>() || s.as<PackOp>() || s.as<RegroupOp>() ||
         s.as<SplatOp>() || s.as<LaneOp>() || s.as<ShuffleOp>();
}

}  // namespace

// --- The kernel as steps

Simulator::Engine::Engine(const KernelCode& kernel) : code_(kernel) {
  expand_static_loops(code_);
  for (const Value& value : code_.values)
    value_of_.emplace("%" + value.name, ValueId(value_of_.size()));
  for (const Expr& symbol : code_.symbols) new_slot(symbol.symbol_name(), true);
  size_t smallest = 8;
  for (const Memory& memory : code_.memories) {
    lengths_.push_back(index(memory.shape.at(0)));
    if (memory.space == MemorySpace::Shared) smallest = std::min(smallest, size_of(memory.dtype));
  }
  granule_ = smallest;
  for (const TensorMap& map : code_.tensor_maps) {
    TensorMapLayout& layout = maps_.emplace_back();
    for (const Expr& extent : map.extents) layout.extents.push_back(index(extent));
  }
  for (const Phase& phase : code_.phases) {
    const auto outer = slots_;
    CompiledPhase& compiled = phases_.emplace_back();
    for (const GridAxis& axis : phase.grid) compiled.extents.push_back(index(axis.extent));
    for (const GridAxis& axis : phase.grid) compiled.slots.push_back(new_slot(axis.symbol, true));
    if (!phase.cluster.empty()) compiled.cluster_slot = new_slot(phase.cluster, true);
    compiled.thread_slot = new_slot("tid", false);
    emit(phase.body, compiled.steps);
    compiled.slots_end = slot_uniform_.size();
    slots_ = outer;
  }
}

size_t Simulator::Engine::new_slot(const std::string& name, bool uniform) {
  slots_[name] = {slot_uniform_.size(), uniform};
  slot_uniform_.push_back(uniform);
  return slot_uniform_.size() - 1;
}

WarpIndex::Names Simulator::Engine::names() {
  return {[this](const std::string& name) {
            const auto found = slots_.find(name);
            BRAZE_CHECK(found != slots_.end(), "unknown symbol " + name);
            return WarpIndex::Symbol{found->second.first, found->second.second};
          },
          [this](const std::string& name) {
            const ValueId id = value_of_.at(name);
            return std::pair(id, type_of(id));
          }};
}

WarpIndex Simulator::Engine::index(const Expr& e, const ValueType& type) {
  return WarpIndex(e, type, names());
}

// Whether an expression may have different values in the threads of a warp.
bool Simulator::Engine::varies(const Expr& e) const {
  const auto symbols = e.symbols();
  return std::any_of(symbols.begin(), symbols.end(), [&](const std::string& name) {
    return name[0] == '%' || !slots_.at(name).second;
  });
}

auto Simulator::Engine::comparisons(const Condition& condition, const ValueType& type)
    -> std::vector<Comparison> {
  std::vector<Comparison> out;
  for (const IndexComparison& c : condition)
    out.push_back({index(c.left, type), index(c.right, type), c.kind});
  return out;
}

void Simulator::Engine::narrow(const std::vector<Comparison>& condition, const WarpScope& scope,
                               std::vector<uint8_t>& active) {
  for (const Comparison& c : condition) {
    const int64_t *a = c.left.all(scope), *b = c.right.all(scope);
    for (size_t i = 0; i < active.size(); ++i) active[i] &= holds(c.kind, a[i], b[i]);
  }
}

uint32_t Simulator::Engine::threads_where(const std::vector<Comparison>& condition,
                                          const Warp& warp) {
  uint32_t out = warp.mask;
  for (const Comparison& c : condition) {
    const int64_t *a = c.left.threads(warp.scope()), *b = c.right.threads(warp.scope());
    for_each_lane(out, [&](size_t t) {
      if (!holds(c.kind, a[t], b[t])) out &= ~(uint32_t{1} << t);
    });
  }
  return out;
}

ValueType Simulator::Engine::type_of(const ValueOperand& operand) const {
  return operand.is_literal() ? ValueType{operand.dtype, 1, {}} : type_of(operand.value);
}

auto Simulator::Engine::source(const ValueOperand& operand, const ValueType& as) const -> Source {
  Source out;
  if (operand.is_literal()) {
    out.copy.assign(elements(as) * kWarpLanes, operand.bits);
    return out;
  }
  out.value = operand.value;
  out.map = broadcast_map(type_of(operand.value), as);
  if (!out.map.empty()) out.copy.resize(out.map.size() * kWarpLanes);
  return out;
}

const uint64_t* Simulator::Engine::Source::get(const Warp& warp) {
  if (!value) return copy.data();
  const WarpValue& from = warp.values[value.index];
  if (map.empty()) return from.data();
  for (size_t i = 0; i < map.size(); ++i)
    std::copy_n(from.begin() + map[i] * static_cast<std::ptrdiff_t>(kWarpLanes), kWarpLanes,
                copy.begin() + static_cast<std::ptrdiff_t>(i * kWarpLanes));
  return copy.data();
}

void Simulator::Engine::emit(const Region& region, std::vector<Step>& steps) {
  const auto outer = slots_;
  for (const Statement& s : region.statements) emit(s, steps);
  slots_ = outer;
}

void Simulator::Engine::emit(const Statement& s, std::vector<Step>& steps) {
  if (const auto* let = s.as<LetOp>()) {
    const bool uniform = !varies(let->value);
    const size_t slot = new_slot(let->symbol, uniform);
    steps.push_back({&s, [value = index(let->value), slot, uniform](Warp& w) {
                       if (uniform)
                         w.symbols[slot][0] = value.scalar(w.scope());
                       else
                         std::copy_n(value.threads(w.scope()), kWarpLanes, w.symbols[slot].begin());
                       return Status::Next;
                     }});
    return;
  }
  if (const auto* branch = s.as<IfOp>()) return emit_if(*branch, s, steps);
  if (const auto* loop = s.as<ForOp>()) return emit_for(*loop, s, steps);
  if (const auto* role = s.as<RoleOp>()) return emit_role(*role, s, steps);
  if (const auto* special = s.as<InstructionOp>()) {
    steps.push_back({&s, instruction(*special, s)});
    return;
  }
  Run run = pure(s);
  if (!run) return;
  std::vector<ValueId> reads;
  for_each_value(s, [&](ValueId v) { reads.push_back(v); });
  const std::vector<ValueId> passes_on = is_move(s) ? s.results : std::vector<ValueId>();
  steps.push_back({&s, [this, reads, passes_on, run = std::move(run)](Warp& w) {
                     check_operands(reads, passes_on, w);
                     return run(w);
                   }});
}

// Reports reads of values that are in flight or undefined. These may only be passed on.
void Simulator::Engine::check_operands(const std::vector<ValueId>& reads,
                                       const std::vector<ValueId>& passes_on, Warp& warp) {
  for (const ValueId v : reads) {
    if (warp.flight[v.index] != 0)
      report(codes::kUndefinedValue,
             fmt::format("%{} is still in flight, because no wgmma.wait has waited for it",
                         code_[v].name),
             &warp);
    if (warp.undefined[v.index] == 0) continue;
    for (const ValueId result : passes_on) warp.undefined[result.index] = 1;
    if (passes_on.empty())
      report(codes::kUndefinedValue, fmt::format("%{} is undefined", code_[v].name), &warp);
  }
}

// Assigns values in the active threads. They are copied first, because one operand may be the
// target of another.
std::function<void(Warp&)> Simulator::Engine::assign(const std::vector<ValueOperand>& from,
                                                     const std::vector<ValueId>& to) {
  auto sources = std::make_shared<std::vector<Source>>();
  for (size_t i = 0; i < to.size(); ++i) sources->push_back(source(from[i], type_of(to[i])));
  return [sources, to, aside = std::make_shared<std::vector<WarpValue>>(to.size()),
          states = std::vector<std::pair<uint8_t, uint32_t>>(to.size())](Warp& w) mutable {
    for (size_t i = 0; i < to.size(); ++i) {
      const uint64_t* const bits = (*sources)[i].get(w);
      (*aside)[i].assign(bits, bits + w.values[to[i].index].size());
      const ValueId v = (*sources)[i].value;
      states[i] = v ? std::pair(w.undefined[v.index], w.flight[v.index])
                    : std::pair<uint8_t, uint32_t>(0, 0);
    }
    const bool all = w.mask == w.threads;
    for (size_t i = 0; i < to.size(); ++i) {
      WarpValue& out = w.values[to[i].index];
      const WarpValue& in = (*aside)[i];
      if (all) {
        out.assign(in.begin(), in.end());
      } else {
        for (size_t e = 0; e < out.size(); e += kWarpLanes)
          for_each_lane(w.mask, [&](size_t t) { out[e + t] = in[e + t]; });
      }
      if (w.mask == 0) continue;
      w.undefined[to[i].index] = states[i].first;
      w.flight[to[i].index] = states[i].second;
    }
  };
}

void Simulator::Engine::emit_if(const IfOp& op, const Statement& s, std::vector<Step>& steps) {
  auto condition = comparisons(op.condition, {DType::I64, 1, {}});
  const size_t head = steps.size();
  steps.push_back({&s, nullptr});
  emit(*op.then, steps);
  const size_t middle = steps.size();
  steps.push_back({&s, nullptr});
  if (op.otherwise) emit(*op.otherwise, steps);
  const size_t tail = steps.size();
  steps.push_back({&s, nullptr});
  steps[head].run = [condition = std::move(condition), flag = op.flag, middle](Warp& w) {
    uint32_t yes = 0;
    if (flag) {
      const WarpValue& bits = w.values[flag.index];
      for_each_lane(w.mask, [&](size_t t) { yes |= (bits[t] != 0 ? 1U : 0U) << t; });
    } else {
      yes = threads_where(condition, w);
    }
    Frame& frame = w.frames.emplace_back();
    frame.outside = w.mask;
    frame.other = w.mask & ~yes;
    w.mask = yes;
    if (yes != 0) return Status::Next;
    w.at = middle;
    return Status::Jumped;
  };
  steps[middle].run = [yes = assign(op.then->yields, s.results), tail](Warp& w) mutable {
    if (w.mask != 0) yes(w);
    w.mask = w.frames.back().other;
    if (w.mask != 0) return Status::Next;
    w.at = tail;
    return Status::Jumped;
  };
  auto no = op.otherwise ? assign(op.otherwise->yields, s.results) : nullptr;
  steps[tail].run = [no](Warp& w) mutable {
    if (no && w.mask != 0) no(w);
    w.mask = w.frames.back().outside;
    w.frames.pop_back();
    return Status::Next;
  };
}

namespace {

template <class Op>
std::pair<std::vector<ValueId>, std::vector<ValueOperand>> carried(const Op& op) {
  std::pair<std::vector<ValueId>, std::vector<ValueOperand>> out;
  for (const auto& [inside, first] : op.carried) {
    out.first.push_back(inside);
    out.second.push_back(first);
  }
  return out;
}
std::vector<ValueOperand> operands_of(const std::vector<ValueId>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

void Simulator::Engine::emit_for(const ForOp& op, const Statement& s, std::vector<Step>& steps) {
  const auto [inside, first] = carried(op);
  const bool uniform = !varies(op.low) && !varies(op.high) && !varies(op.step);
  steps.push_back({&s, [start = assign(first, inside), low = index(op.low), high = index(op.high),
                        step = index(op.step)](Warp& w) mutable {
                     start(w);
                     Frame& frame = w.frames.emplace_back();
                     frame.outside = w.mask;
                     std::copy_n(low.threads(w.scope()), kWarpLanes, frame.k.begin());
                     std::copy_n(high.threads(w.scope()), kWarpLanes, frame.high.begin());
                     std::copy_n(step.threads(w.scope()), kWarpLanes, frame.step.begin());
                     return Status::Next;
                   }});
  const size_t head = steps.size();
  steps.push_back({&s, nullptr});
  const auto outer = slots_;
  const size_t slot = new_slot(op.symbol, uniform);
  emit(*op.body, steps);
  slots_ = outer;
  const size_t again = steps.size();
  steps.push_back({&s, nullptr});
  const size_t tail = steps.size();
  steps.push_back({&s, nullptr});
  steps[head].run = [slot, uniform, tail](Warp& w) {
    const Frame& frame = w.frames.back();
    uint32_t more = 0;
    for_each_lane(w.mask, [&](size_t t) {
      if (frame.k[t] < frame.high[t]) more |= uint32_t{1} << t;
    });
    w.mask = more;
    if (more == 0) {
      w.at = tail;
      return Status::Jumped;
    }
    if (uniform)
      w.symbols[slot][0] = frame.k[static_cast<size_t>(std::countr_zero(more))];
    else
      w.symbols[slot] = frame.k;
    return Status::Next;
  };
  steps[again].run = [next = assign(op.body->yields, inside), head](Warp& w) mutable {
    next(w);
    Frame& frame = w.frames.back();
    for_each_lane(w.mask, [&](size_t t) { frame.k[t] += std::max<int64_t>(frame.step[t], 1); });
    w.at = head;
    return Status::Jumped;
  };
  steps[tail].run = [finish = assign(operands_of(inside), s.results)](Warp& w) mutable {
    w.mask = w.frames.back().outside;
    w.frames.pop_back();
    finish(w);
    return Status::Next;
  };
}

void Simulator::Engine::emit_role(const RoleOp& op, const Statement& s, std::vector<Step>& steps) {
  const size_t head = steps.size();
  steps.push_back({&s, nullptr});
  const auto outer = slots_;
  const size_t slot = new_slot("rtid", false);
  emit(*op.body, steps);
  slots_ = outer;
  const auto begin = static_cast<size_t>(op.begin), end = static_cast<size_t>(op.end);
  steps[head].run = [slot, begin, end, behind = steps.size()](Warp& w) {
    if (w.index < begin || w.index >= end) {
      w.at = behind;
      return Status::Jumped;
    }
    for (size_t t = 0; t < kWarpLanes; ++t)
      w.symbols[slot][t] = static_cast<int64_t>((w.index - begin) * kWarpLanes + t);
    return Status::Next;
  };
}

// Result element i is operand element map[i]; without a map, operand element i.
auto Simulator::Engine::moved(const ValueOperand& operand, const Statement& s,
                              std::vector<uint32_t> map) -> Run {
  if (operand.is_literal()) {
    return [to = s.results[0], bits = operand.bits](Warp& w) {
      std::fill(w.values[to.index].begin(), w.values[to.index].end(), bits);
      return Status::Next;
    };
  }
  return [from = operand.value, to = s.results[0], map = std::move(map)](Warp& w) {
    const WarpValue& x = w.values[from.index];
    WarpValue& out = w.values[to.index];
    if (map.empty()) out = x;
    for (size_t i = 0; i < map.size(); ++i)
      std::memcpy(out.data() + i * kWarpLanes, x.data() + map[i] * kWarpLanes,
                  kWarpLanes * sizeof(uint64_t));
    return Status::Next;
  };
}

namespace {

// The extents outside, along and inside of an axis. Lanes and threads are inside.
std::array<size_t, 3> split(const ValueType& type, size_t axis) {
  std::vector<int64_t> extents = type.extents;
  extents.push_back(type.lanes);
  std::array<size_t, 3> out = {1, static_cast<size_t>(extents[axis]), kWarpLanes};
  for (size_t i = 0; i < extents.size(); ++i)
    if (i != axis) out[i < axis ? 0 : 2] *= static_cast<size_t>(extents[i]);
  return out;
}

std::vector<uint32_t> element_map(const GetElementOp& op, const ValueType& from) {
  int64_t place = 0;
  for (size_t axis = 0; axis < from.rank(); ++axis)
    place = place * from.extents[axis] + op.at[axis];
  std::vector<uint32_t> map(static_cast<size_t>(from.lanes));
  for (size_t i = 0; i < map.size(); ++i)
    map[i] = static_cast<uint32_t>(place * from.lanes + static_cast<int64_t>(i));
  return map;
}

}  // namespace

// Statements that are neither control flow nor instructions.
auto Simulator::Engine::pure(const Statement& s) -> Run {
  if (const auto* load_op = s.as<LoadOp>()) return load(*load_op, s);
  if (const auto* store_op = s.as<StoreOp>()) return store(*store_op, s);
  if (const auto* atomic_op = s.as<AtomicOp>()) return atomic(*atomic_op, s);
  if (const auto* op = s.as<BufferOp>()) {
    if (code_[op->memory].space != MemorySpace::Local) return nullptr;
    return [id = op->memory, length = lengths_[op->memory.index]](Warp& w) {
      LocalMemory& local = w.locals[id.index];
      const auto count = static_cast<size_t>(length.scalar(w.scope())) * kWarpLanes;
      local.bits.resize(count);
      local.initialised.assign(count, 0);
      return Status::Next;
    };
  }
  if (s.results.empty()) return nullptr;
  const ValueType& type = type_of(s.results[0]);
  const ValueId to = s.results[0];
  if (const auto* op = s.as<ConstOp>()) {
    return [to, bits = op->bits](Warp& w) {
      std::fill(w.values[to.index].begin(), w.values[to.index].end(), bits);
      return Status::Next;
    };
  }
  if (s.as<UndefOp>()) {
    return [to](Warp& w) {
      w.undefined[to.index] = 1;
      return Status::Next;
    };
  }
  if (const auto* op = s.as<IndexOp>()) {
    return [to, dtype = type.dtype, value = index(op->value, type)](Warp& w) {
      WarpValue& out = w.values[to.index];
      const int64_t* const all = value.all(w.scope());
      for (size_t i = 0; i < out.size(); ++i) out[i] = constant_bits_int(dtype, all[i]);
      return Status::Next;
    };
  }
  if (const auto* op = s.as<TestOp>()) {
    return [to, condition = comparisons(op->condition, type),
            active = std::vector<uint8_t>()](Warp& w) mutable {
      WarpValue& out = w.values[to.index];
      active.assign(out.size(), 1);
      narrow(condition, w.scope(), active);
      std::copy(active.begin(), active.end(), out.begin());
      return Status::Next;
    };
  }
  if (const auto* op = s.as<RowOp>()) {
    std::vector<Source> sources;
    std::vector<DType> dtypes;
    for (const ValueOperand& operand : op->operands) {
      sources.push_back(source(operand, type));
      dtypes.push_back(type_of(operand).dtype);
    }
    auto program = std::make_shared<RowProgram>(op->op, dtypes, type.dtype);
    return [to, sources = std::move(sources), program](Warp& w) mutable {
      const uint64_t* from[3] = {};
      for (size_t i = 0; i < sources.size(); ++i) from[i] = sources[i].get(w);
      WarpValue& out = w.values[to.index];
      program->run(out.data(), from, out.size());
      return Status::Next;
    };
  }
  if (const auto* op = s.as<FoldOp>()) {
    ValueType shrinking = type_of(op->operand);
    std::vector<std::array<size_t, 3>> folds;
    for (const int64_t axis : op->axes) {
      folds.push_back(split(shrinking, static_cast<size_t>(axis)));
      shrinking.extents[static_cast<size_t>(axis)] = 1;
    }
    if (op->lanes) folds.push_back(split(shrinking, shrinking.rank()));
    return [to, from = op->operand.value, folds,
            combine = RowLoop(info(op->monoid).combine, type.dtype, type.dtype)](Warp& w) {
      WarpValue& out = w.values[to.index];
      out = w.values[from.index];
      for (const auto& [outer, n, inner] : folds) fold_middle(out, outer, n, inner, combine);
      return Status::Next;
    };
  }
  if (const auto* op = s.as<MovementOp>()) {
    const ValueType& from = type_of(op->operand.value);
    if (op->kind == MovementKind::Reshape) return moved(op->operand, s, {});
    if (op->kind == MovementKind::Broadcast)
      return moved(op->operand, s, broadcast_map(from, type));
    return moved(op->operand, s, part_map(*op, from, type));
  }
  if (const auto* op = s.as<RegroupOp>()) return moved(op->operand, s, {});
  if (const auto* op = s.as<SplatOp>())
    return moved(op->operand, s, broadcast_map(type_of(op->operand.value), type));
  if (const auto* op = s.as<GetElementOp>())
    return moved(op->operand, s, element_map(*op, type_of(op->operand.value)));
  if (const auto* op = s.as<LaneOp>()) {
    const auto lanes = static_cast<size_t>(type_of(op->operand.value).lanes),
               lane = static_cast<size_t>(op->lane);
    std::vector<uint32_t> map(elements(type));
    for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<uint32_t>(i * lanes + lane);
    return moved(op->operand, s, std::move(map));
  }
  if (const auto* op = s.as<ShuffleOp>()) {
    const auto lanes = static_cast<size_t>(type_of(op->a.value).lanes);
    return [to, a = op->a.value, b = op->b.value, picked = op->lanes, lanes](Warp& w) {
      WarpValue& out = w.values[to.index];
      for (size_t i = 0; i * kWarpLanes < out.size(); ++i) {
        const auto lane = static_cast<size_t>(picked[i % picked.size()]);
        const WarpValue& x = w.values[lane < lanes ? a.index : b.index];
        std::copy_n(x.data() + (i / picked.size() * lanes + lane % lanes) * kWarpLanes, kWarpLanes,
                    out.data() + i * kWarpLanes);
      }
      return Status::Next;
    };
  }
  if (const auto* op = s.as<PackOp>()) {
    std::vector<Source> sources;
    for (const ValueOperand& operand : op->operands)
      sources.push_back(source(operand, {type.dtype, type.lanes, {}}));
    const auto each = static_cast<size_t>(type.lanes) * kWarpLanes;
    return [to, sources = std::move(sources), each](Warp& w) mutable {
      for (size_t i = 0; i < sources.size(); ++i)
        std::copy_n(sources[i].get(w), each, w.values[to.index].data() + i * each);
      return Status::Next;
    };
  }
  BRAZE_CHECK(false, "a statement of Tile IR in a kernel");
  return nullptr;
}

// --- Findings

void Simulator::Engine::report(const Code& cause, const std::string& message, const Warp* warp,
                               int lane) {
  const Statement* statement = step_ ? step_->statement : nullptr;
  if (full() || !seen_.emplace(statement, cause.name).second) return;
  Diagnostic finding{&cause, {}, {}, message};
  if (statement) {
    finding.location = statement->location;
    finding.context = to_text(code_, *statement);
    while (!finding.context.empty() && finding.context.back() == '\n') finding.context.pop_back();
  }
  if (warp) {
    const Phase& phase = code_.phases[phase_];
    size_t axis = 0;
    finding.message += fmt::format(
        ", in block ({}){} of phase {}, ",
        join(phase.grid, ", ",
             [&](const GridAxis& a) { return fmt::format("{} = {}", a.symbol, grid_[axis++]); }),
        phase.cluster.empty() ? "" : fmt::format(", {} = {}", phase.cluster, warp->block->rank),
        phase_);
    finding.message +=
        lane < 0 ? fmt::format("warp {}", warp->index)
                 : fmt::format("thread {}", warp->index * kWarpLanes + static_cast<size_t>(lane));
  }
  findings_.push_back(std::move(finding));
}

bool Simulator::Engine::full() const { return findings_.size() >= kMostFindings; }

// --- Launch

std::vector<Diagnostic> Simulator::Engine::run(std::span<const std::span<std::byte>> memories,
                                               std::span<const int64_t> scalars) {
  findings_.clear();
  seen_.clear();
  step_ = nullptr;
  stopped_ = false;
  run_ = base_ = 0;
  if (bind(memories, scalars)) {
    for (size_t p = 0; p < phases_.size() && !stopped_; ++p) run_phase(p);
    step_ = nullptr;
    if (!stopped_) check_outputs();
  }
  return std::move(findings_);
}

bool Simulator::Engine::bind(std::span<const std::span<std::byte>> memories,
                             std::span<const int64_t> scalars) {
  const auto bad = [&](const std::string& message) {
    report(codes::kBadLaunch, fmt::format("kernel @{}: {}", code_.name, message));
    return false;
  };
  const size_t sizes = code_.symbols.size();
  if (scalars.size() != sizes + code_.scalar_parameters.size())
    return bad(fmt::format("the launch passes {} scalars, but the kernel takes {}", scalars.size(),
                           sizes + code_.scalar_parameters.size()));
  symbols_.assign(slot_uniform_.size(), Lanes{});
  for (size_t i = 0; i < sizes; ++i) {
    const Expr& symbol = code_.symbols[i];
    symbols_[i].fill(scalars[i]);
    if (!symbol.range().contains(scalars[i]) || scalars[i] % symbol.divisor() != 0)
      return bad(fmt::format(
          "{} = {} is not in the range of this symbol, or not a multiple of its divisor",
          symbol.symbol_name(), scalars[i]));
  }
  scalar_bits_.clear();
  for (size_t i = 0; i < code_.scalar_parameters.size(); ++i) {
    const size_t bytes = size_of(type_of(code_.scalar_parameters[i]).dtype);
    const auto bits = static_cast<uint64_t>(scalars[sizes + i]);
    scalar_bits_.push_back(bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * bytes)) - 1));
  }
  memories_.resize(code_.memories.size());
  atomics_.clear();
  size_t given = 0;
  for (size_t i = 0; i < code_.memories.size(); ++i) {
    const Memory& memory = code_.memories[i];
    if (!is_device_memory(memory)) continue;
    DeviceMemory& state = memories_[i];
    state.dtype = memory.dtype;
    state.length = length_of(MemoryId(i));
    const size_t bytes = static_cast<size_t>(state.length) * size_of(memory.dtype);
    if (given < memories.size()) {
      const std::span<std::byte> bound = memories[given++];
      if (bound.size() < bytes)
        return bad(fmt::format("the memory for %{} has {} bytes, but {} are needed", memory.name,
                               bound.size(), bytes));
      state.data = bound.data();
    } else if (memory.space == MemorySpace::Parameter) {
      return bad(fmt::format("the launch passes no memory for %{}", memory.name));
    } else {
      state.own.assign((bytes + 7) / 8 + 8, 0);
      const auto address = reinterpret_cast<uintptr_t>(state.own.data());
      state.data = reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
    }
    if (state.length > 0 && memory.align > 1 &&
        reinterpret_cast<uintptr_t>(state.data) % static_cast<uintptr_t>(memory.align) != 0)
      return bad(fmt::format("%{} is not aligned to {} bytes", memory.name, memory.align));
    state.tracked = memory.space == MemorySpace::Workspace || memory.mode != Mode::In;
    if (!state.tracked) continue;
    const bool known =
        memory.space == MemorySpace::Workspace ? memory.zeroed : memory.mode == Mode::InOut;
    state.initialised.assign(static_cast<size_t>(state.length), known);
    state.log.resize(static_cast<size_t>(state.length));
    state.log.clear();
  }
  if (given != memories.size())
    return bad(fmt::format("the launch passes {} pieces of memory, but the kernel takes {}",
                           memories.size(), given));
  return true;
}

int64_t Simulator::Engine::length_of(MemoryId id) const {
  return std::max<int64_t>(lengths_[id.index].scalar({&symbols_, nullptr}), 0);
}

void Simulator::Engine::run_phase(size_t p) {
  phase_ = p;
  base_ = run_;  // each phase is a launch
  atomics_.clear();
  const CompiledPhase& phase = phases_[p];
  std::vector<int64_t> extents;
  int64_t count = 1;
  for (const WarpIndex& extent : phase.extents) {
    extents.push_back(std::max<int64_t>(extent.scalar({&symbols_, nullptr}), 0));
    count *= extents.back();
  }
  start_cluster(p);
  grid_.resize(extents.size());
  for (int64_t i = 0; i < count && !full() && !stopped_; ++i) {
    int64_t rest = i;
    for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis])
      grid_[axis] = rest % extents[axis];
    ++run_;
    run_cluster(p);
  }
}

// Prepares the storage of the blocks of a cluster, which all clusters of a phase use one after the
// other.
void Simulator::Engine::start_cluster(size_t p) {
  const Phase& phase = code_.phases[p];
  const size_t warps = (static_cast<size_t>(phase.block) + kWarpLanes - 1) / kWarpLanes;
  blocks_.clear();
  blocks_.resize(static_cast<size_t>(phase.cluster_size));
  for (size_t b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    block.rank = b;
    block.shared.resize(static_cast<size_t>(phase.shared_bytes));
    block.log.resize(block.shared.size() / granule_ + 1);
    block.warps.resize(warps);
    for (size_t w = 0; w < warps; ++w) {
      Warp& warp = block.warps[w];
      warp.block = &block;
      warp.index = w;
      const size_t threads =
          std::min(kWarpLanes, static_cast<size_t>(phase.block) - w * kWarpLanes);
      warp.threads = threads == kWarpLanes ? UINT32_MAX : (uint32_t{1} << threads) - 1;
      warp.symbols = symbols_;
      warp.values.clear();
      for (const Value& value : code_.values)
        warp.values.emplace_back(elements(value.type) * kWarpLanes);
      warp.locals.resize(code_.memories.size());
    }
  }
}

void Simulator::Engine::run_cluster(size_t p) {
  const CompiledPhase& phase = phases_[p];
  const auto& parameters = code_.scalar_parameters;
  next_agent_ = 0;
  cluster_ = {};
  for (Block& block : blocks_) {
    block.log.clear();
    block.mbarriers.clear();
    block.barriers = {};
    block.running = block.warps.size();
    for (Warp& warp : block.warps) {
      warp.mask = warp.threads;
      warp.at = 0;
      warp.done = false;
      warp.frames.clear();
      warp.undefined.assign(code_.values.size(), 0);
      warp.flight.assign(code_.values.size(), 0);
      warp.copies.clear();
      warp.clock.reset(new_agent());
      warp.stage = 0;
      warp.at_cluster = false;
      warp.statements = 0;
      for (size_t axis = 0; axis < grid_.size(); ++axis)
        warp.symbols[phase.slots[axis]].fill(grid_[axis]);
      if (!code_.phases[p].cluster.empty())
        warp.symbols[phase.cluster_slot].fill(static_cast<int64_t>(block.rank));
      for (size_t t = 0; t < kWarpLanes; ++t)
        warp.symbols[phase.thread_slot][t] = static_cast<int64_t>(warp.index * kWarpLanes + t);
      for (size_t i = 0; i < parameters.size(); ++i)
        std::fill(warp.values[parameters[i].index].begin(), warp.values[parameters[i].index].end(),
                  scalar_bits_[i]);
    }
  }
  for (Block& block : blocks_) {
    block.groups.assign((block.warps.size() + kGroupWarps - 1) / kGroupWarps, {});
    for (WarpGroup& group : block.groups) group.agent = new_agent();
  }
  int idle = 0;
  for (bool running = true; running && !stopped_;) {
    running = false;
    bool moved_on = false;
    for (Block& block : blocks_)
      for (Warp& warp : block.warps) {
        if (warp.done || stopped_) continue;
        moved_on |= run_warp(warp, phase.steps);
        running |= !warp.done;
      }
    idle = moved_on ? 0 : idle + 1;
    const bool polling = std::any_of(blocks_.begin(), blocks_.end(), [](const Block& b) {
      return std::any_of(b.warps.begin(), b.warps.end(),
                         [](const Warp& w) { return !w.done && w.stage == 0; });
    });
    if (running && idle > (polling ? kIdleRounds : 0)) report_deadlock(phase.steps);
  }
  if (!stopped_) finish_cluster();
}

// Runs a warp until it has to wait or ends. Returns whether it did more than poll.
bool Simulator::Engine::run_warp(Warp& warp, const std::vector<Step>& steps) {
  bool moved_on = false;
  while (warp.at < steps.size()) {
    step_ = &steps[warp.at];
    const Status status = step_->run(warp);
    if (stopped_) return true;
    if (status == Status::Blocked) return moved_on;
    moved_on = true;
    warp.stage = 0;
    step_->was_run |= warp.mask != 0;
    thread_statements += static_cast<uint64_t>(std::popcount(warp.mask));
    if (status != Status::Jumped) ++warp.at;
    if (++warp.statements > kMostStatements) {
      report(codes::kEndless,
             fmt::format("the warp ran more than {} statements, so its loop probably never ends",
                         kMostStatements),
             &warp);
      stopped_ = true;
      return true;
    }
  }
  warp.done = true;
  --warp.block->running;
  return true;
}

void Simulator::Engine::report_deadlock(const std::vector<Step>& steps) {
  stopped_ = true;
  int told = 0;
  for (const Block& block : blocks_)
    for (const Warp& warp : block.warps) {
      if (warp.done || told == 4) continue;
      step_ = &steps[warp.at];
      const size_t before = findings_.size();
      report(codes::kDeadlock, "what this statement waits for can no longer happen", &warp);
      told += findings_.size() > before;
    }
  for (const Block& block : blocks_)
    for (const auto& [byte, barrier] : block.mbarriers)
      if (barrier.bytes != 0 && barrier.pending == 0) {
        step_ = nullptr;
        report(codes::kMbarrierBytes,
               fmt::format("{} of block {} is wrong by {} bytes in phase {}: {}", barrier.name,
                           block.rank, std::abs(barrier.bytes), barrier.phase,
                           barrier.bytes > 0 ? "fewer bytes came than were expected"
                                             : "more bytes came than were expected"));
      }
}

// Reports a block that ends without knowing that other blocks no longer access its memory.
void Simulator::Engine::check_remote_accesses(const Block& block) {
  const auto safe = [&](const Stamp& stamp) {
    const Warp* const by = stamp.run == 0 ? nullptr : warp_of(stamp.agent);
    if (!by || by->block == &block) return true;
    return std::any_of(block.warps.begin(), block.warps.end(),
                       [&](const Warp& w) { return w.clock.knows(stamp, 0, run_, base_); });
  };
  for (size_t i = 0; i < block.log.size(); ++i) {
    const auto& readers = block.log.readers(i);
    if (safe(block.log.writer(i)) && std::all_of(readers.begin(), readers.end(), safe)) continue;
    report(codes::kPendingCopies,
           fmt::format("kernel @{}: block {} may end while another block still uses its {}",
                       code_.name, block.rank, shared_text(static_cast<int64_t>(i * granule_))));
    return;
  }
}

void Simulator::Engine::finish_cluster() {
  step_ = nullptr;
  for (const Block& block : blocks_) {
    if (blocks_.size() > 1) check_remote_accesses(block);
    for (const auto& [byte, barrier] : block.mbarriers) {
      if (barrier.bytes != 0)
        report(codes::kMbarrierBytes,
               fmt::format("kernel @{}: at the end, {} has {} bytes {}", code_.name, barrier.name,
                           std::abs(barrier.bytes),
                           barrier.bytes > 0 ? "that never came" : "that nobody expected"));
      if (barrier.pending != barrier.count && barrier.bytes == 0)
        report(
            codes::kMbarrierMisuse,
            fmt::format("kernel @{}: at the end, {} has {} of the {} arrivals of a phase",
                        code_.name, barrier.name, barrier.count - barrier.pending, barrier.count));
      if (barrier.copied > barrier.waited)
        report(codes::kPendingCopies,
               fmt::format("kernel @{}: no thread waits for the last copies that complete on {}",
                           code_.name, barrier.name));
    }
    for (const WarpGroup& group : block.groups)
      if (group.open || group.waited < group.committed)
        report(codes::kPendingCopies,
               fmt::format("kernel @{}: a wgmma is still running at the end", code_.name));
    for (const Warp& warp : block.warps) {
      if (warp.at_cluster)
        report(codes::kBarrierMisuse,
               fmt::format("kernel @{}: warp {} ends between cluster.arrive and cluster.wait",
                           code_.name, warp.index));
      for (const auto& [lane, copies] : warp.copies) {
        const bool loads = std::any_of(copies.groups.begin(), copies.groups.end(),
                                       [](const auto& group) { return !group.empty(); });
        if (loads || copies.bulk_open || copies.bulk_read < copies.bulk_committed)
          report(codes::kPendingCopies,
                 fmt::format("kernel @{}: thread {} ends while its copies still use shared memory",
                             code_.name, warp.index * kWarpLanes + lane));
      }
    }
  }
}

void Simulator::Engine::check_outputs() {
  for (size_t i = 0; i < memories_.size(); ++i) {
    const Memory& memory = code_.memories[i];
    if (memory.space != MemorySpace::Parameter || memory.mode != Mode::Out) continue;
    const std::vector<uint8_t>& written = memories_[i].initialised;
    const auto missing = std::count(written.begin(), written.end(), 0);
    if (missing == 0) continue;
    seen_.erase({nullptr, codes::kNotWritten.name});
    report(codes::kNotWritten,
           fmt::format("kernel @{} does not write {} elements of the output %{}; the first is {}",
                       code_.name, missing, memory.name,
                       std::find(written.begin(), written.end(), 0) - written.begin()));
  }
}

// --- Public

Simulator::Simulator(const KernelCode& kernel) : engine_(std::make_unique<Engine>(kernel)) {}
Simulator::~Simulator() = default;

std::vector<Diagnostic> Simulator::run(std::span<const std::span<std::byte>> memories,
                                       std::span<const int64_t> scalars) {
  return run_members(engine_->code(), memories, scalars,
                     [&](const auto& own, const auto& words) { return engine_->run(own, words); });
}

std::set<uint32_t> Simulator::Engine::lines_run() const {
  std::set<uint32_t> out;
  for (const CompiledPhase& phase : phases_)
    for (const Step& step : phase.steps)
      if (step.was_run) out.insert(step.statement->location.line);
  return out;
}

std::set<uint32_t> Simulator::lines_run() const { return engine_->lines_run(); }

uint64_t Simulator::thread_statements() const { return engine_->thread_statements; }

bool is_gpu_kernel(const KernelCode& code) {
  return std::any_of(code.phases.begin(), code.phases.end(),
                     [](const Phase& phase) { return phase.block > 0; });
}

std::vector<Diagnostic> run_kernel(const KernelCode& kernel,
                                   std::span<const std::span<std::byte>> memories,
                                   std::span<const int64_t> scalars) {
  if (is_gpu_kernel(kernel)) return Simulator(kernel).run(memories, scalars);
  return run_code(kernel, memories, scalars);
}

}  // namespace braze
