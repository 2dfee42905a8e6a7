// interpret.cpp — the engine: every statement becomes a closure over arrays that are allocated
// once.
//
//   values_[v]     the elements of value v, lanes innermost, as bits
//   symbols_[s]    the uniform symbols: sizes, grid and loop variables, lets
//   memories_[m]   where memory m lies, and who touched which element of it
#include "ir/code/interpret.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ir/code/index_program.h"
#include "ir/code/row_loops.h"
#include "ir/code/text.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr size_t kMostFindings = 50;
using Bits = std::vector<uint64_t>;

uint64_t load_bits(const std::byte* from, DType dtype) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, size_of(dtype));
  return dtype == DType::Bool ? bits != 0 : bits;
}

size_t elements(const ValueType& type) { return static_cast<size_t>(type.count() * type.lanes); }

struct MemoryState {
  std::byte* data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> shape, strides;
  int64_t length = 0;    // elements
  uintptr_t base = 0;    // for alignment
  Bits own;              // storage of workspaces and buffers
  bool tracked = false;  // elements begin uninitialised, or instances share them
  std::vector<uint8_t> initialised;
  std::vector<uint32_t> writer, reader, other_reader;  // instances
  std::vector<uint64_t> stored_by;                     // the store that wrote last
};

}  // namespace

class CodeInterpreter::Engine {
 public:
  explicit Engine(const KernelCode& code) : code_(code), memories_(code.memories.size()) {
    for (const Phase& phase : code.phases)
      if (phase.block > 0)
        fail(codes::kNotForCpu,
             fmt::format("kernel @{} is for a GPU: only its simulator runs it", code.name));
    values_.reserve(code.values.size());
    for (const Value& value : code.values) {
      value_of_.emplace("%" + value.name, ValueId(values_.size()));
      values_.emplace_back(elements(value.type));
    }
    for (const Expr& symbol : code.symbols) new_slot(symbol.symbol_name());
    for (const Memory& memory : code.memories) {
      auto& [shape, strides] = layouts_.emplace_back();
      for (const Expr& extent : memory.shape) shape.push_back(uniform(extent));
      for (const Expr& stride : memory.strides) strides.push_back(uniform(stride));
    }
    for (const Phase& phase : code.phases) {
      auto& compiled = phases_.emplace_back();
      for (const GridAxis& axis : phase.grid) compiled.extents.push_back(uniform(axis.extent));
      for (const GridAxis& axis : phase.grid) compiled.slots.push_back(new_slot(axis.symbol));
      compiled.body = compile(phase.body);
    }
  }

  std::vector<Diagnostic> run(std::span<const std::span<std::byte>> memories,
                              std::span<const int64_t> scalars) {
    findings_.clear();
    seen_.clear();
    statement_ = nullptr;
    if (bind(memories, scalars)) {
      for (size_t p = 0; p < phases_.size(); ++p) run_phase(p);
      statement_ = nullptr;
      check_outputs();
    }
    return std::move(findings_);
  }

 private:
  using Step = std::function<void()>;
  struct Block {
    std::vector<std::pair<const Statement*, Step>> steps;
  };
  struct CompiledPhase {
    std::vector<IndexProgram> extents;
    std::vector<size_t> slots;
    Block body;
  };

  // --- Findings
  // -----------------------------------------------------------------------------------

  void report(const Code& cause, const std::string& message) {
    if (findings_.size() >= kMostFindings || !seen_.emplace(statement_, cause.name).second) return;
    Diagnostic finding{&cause, {}, {}, message};
    if (statement_) {
      finding.location = statement_->location;
      finding.context = to_text(code_, *statement_);
      while (!finding.context.empty() && finding.context.back() == '\n') finding.context.pop_back();
      finding.message += fmt::format(", in {}", instance_text());
    }
    findings_.push_back(std::move(finding));
  }
  std::string instance_text() const {
    const std::vector<GridAxis>& grid = code_.phases[phase_].grid;
    size_t i = 0;
    return fmt::format("instance ({}) of phase {}",
                       join(grid, ", ",
                            [&](const GridAxis& axis) {
                              return fmt::format("{} = {}", axis.symbol,
                                                 symbols_[phases_[phase_].slots[i++]]);
                            }),
                       phase_);
  }
  std::string element_text(MemoryId id, int64_t element) const {
    return fmt::format("element {} of %{}", element, code_[id].name);
  }

  // --- Launch
  // -------------------------------------------------------------------------------------

  bool bind(std::span<const std::span<std::byte>> memories, std::span<const int64_t> scalars) {
    const auto bad = [&](const std::string& message) {
      report(codes::kBadLaunch, fmt::format("kernel @{}: {}", code_.name, message));
      return false;
    };
    if (scalars.size() != code_.symbols.size() + code_.scalar_parameters.size())
      return bad(fmt::format("{} scalars instead of {}", scalars.size(),
                             code_.symbols.size() + code_.scalar_parameters.size()));
    for (size_t i = 0; i < code_.symbols.size(); ++i) {
      const Expr& symbol = code_.symbols[i];
      symbols_[i] = scalars[i];
      if (!symbol.range().contains(scalars[i]) || scalars[i] % symbol.divisor() != 0)
        return bad(
            fmt::format("{} = {} is outside of its range", symbol.symbol_name(), scalars[i]));
    }
    for (size_t i = 0; i < code_.scalar_parameters.size(); ++i) {
      const ValueId id = code_.scalar_parameters[i];
      const size_t bytes = size_of(code_[id].type.dtype);
      const auto bits = static_cast<uint64_t>(scalars[code_.symbols.size() + i]);
      values_[id.index][0] = bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * bytes)) - 1);
    }
    size_t given = 0;
    base_ = instances_ = 0;
    for (size_t i = 0; i < memories_.size(); ++i) {
      const Memory& memory = code_.memories[i];
      if (memory.space == MemorySpace::Local) continue;
      MemoryState& state = lay_out(i);
      const size_t bytes = static_cast<size_t>(state.length) * size_of(memory.dtype);
      if (given < memories.size()) {
        const std::span<std::byte> bound = memories[given++];
        if (bound.size() < bytes)
          return bad(fmt::format("%{} has {} bytes, needs {}", memory.name, bound.size(), bytes));
        state.data = bound.data();
      } else if (memory.space == MemorySpace::Parameter) {
        return bad(fmt::format("no memory for %{}", memory.name));
      } else {
        own_storage(state);
        if (memory.zeroed) std::fill(state.own.begin(), state.own.end(), 0);
      }
      state.base = reinterpret_cast<uintptr_t>(state.data);
      if (state.length > 0 && memory.align > 1 &&
          state.base % static_cast<uintptr_t>(memory.align) != 0)
        return bad(fmt::format("%{} is not aligned to {} bytes", memory.name, memory.align));
      const auto count = static_cast<size_t>(state.length);
      state.tracked = memory.space == MemorySpace::Workspace || memory.mode != Mode::In;
      if (!state.tracked) continue;
      const bool known =
          memory.space == MemorySpace::Workspace ? memory.zeroed : memory.mode == Mode::InOut;
      state.initialised.assign(count, known);
      state.stored_by.assign(count, 0);
      for (auto* who : {&state.writer, &state.reader, &state.other_reader}) who->assign(count, 0);
    }
    if (given != memories.size())
      return bad(fmt::format("{} memories instead of {}", memories.size(), given));
    return true;
  }

  MemoryState& lay_out(size_t i) {
    MemoryState& state = memories_[i];
    const auto& [shape, strides] = layouts_[i];
    state.dtype = code_.memories[i].dtype;
    state.shape.clear();
    state.strides.assign(shape.size(), 1);
    for (const IndexProgram& extent : shape) state.shape.push_back(extent.scalar(symbols_));
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0; stride *= state.shape[axis])
      state.strides[axis] = strides.empty() ? stride : strides[axis].scalar(symbols_);
    state.length = 1;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      state.length += (state.shape[axis] - 1) * state.strides[axis];
    for (const int64_t extent : state.shape)
      if (extent <= 0) state.length = 0;
    return state;
  }
  static void own_storage(MemoryState& state) {
    state.own.resize((static_cast<size_t>(state.length) * size_of(state.dtype) + 7) / 8 + 8);
    auto address = reinterpret_cast<uintptr_t>(state.own.data());
    state.data = reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  }

  void run_phase(size_t p) {
    phase_ = p;
    const CompiledPhase& phase = phases_[p];
    // Behind a block barrier the instance of the same number continues; behind a grid barrier all
    // are new.
    if (p > 0 && code_.phases[p].barrier == PhaseBarrier::Grid) {
      base_ = instances_;
      arrivals_.clear();
    }
    std::vector<int64_t> extents;
    int64_t count = 1;
    for (const IndexProgram& extent : phase.extents) {
      extents.push_back(extent.scalar(symbols_));
      count *= std::max<int64_t>(extents.back(), 0);
    }
    for (int64_t i = 0; i < count && findings_.size() < kMostFindings; ++i) {
      int64_t rest = i;
      for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis])
        symbols_[phase.slots[axis]] = rest % extents[axis];
      instance_ = base_ + static_cast<uint32_t>(i) + 1;
      ordered_.clear();
      run(phase.body);
    }
    instances_ = std::max(instances_, base_ + static_cast<uint32_t>(count));
  }

  void run(const Block& block) {
    for (const auto& [statement, step] : block.steps) {
      statement_ = statement;
      step();
    }
  }

  void check_outputs() {
    for (size_t i = 0; i < memories_.size(); ++i) {
      const Memory& memory = code_.memories[i];
      const MemoryState& state = memories_[i];
      if (memory.space != MemorySpace::Parameter || memory.mode != Mode::Out || state.length == 0)
        continue;
      int64_t missing = 0, first = -1;
      std::vector<int64_t> at(state.shape.size());
      for (bool more = true; more;) {
        int64_t element = 0;
        for (size_t axis = 0; axis < at.size(); ++axis) element += at[axis] * state.strides[axis];
        if (!state.initialised[static_cast<size_t>(element)] && missing++ == 0) first = element;
        more = false;
        for (size_t axis = at.size(); axis-- > 0 && !more;) {
          more = ++at[axis] < state.shape[axis];
          if (!more) at[axis] = 0;
        }
      }
      if (missing == 0) continue;
      seen_.erase({nullptr, codes::kNotWritten.name});
      report(codes::kNotWritten,
             fmt::format("kernel @{}: {} elements of the output %{} are not written, first {}",
                         code_.name, missing, memory.name, element_text(MemoryId(i), first)));
    }
  }

  // --- Compilation of expressions
  // -----------------------------------------------------------------

  size_t new_slot(const std::string& name) {
    slots_[name] = symbols_.size();  // a later symbol of the same name lives where this one is gone
    symbols_.push_back(0);
    return symbols_.size() - 1;
  }

  IndexProgram program(const Expr& e, const ValueType& type) {
    return IndexProgram(e, {type, code_.target.empty() ? 'd' : 'e',
                            [this](const std::string& name) {
                              const auto found = slots_.find(name);
                              BRAZE_CHECK(found != slots_.end(), "unknown symbol " + name);
                              return found->second;
                            },
                            [this](const std::string& name) {
                              const ValueId id = value_of_.at(name);
                              return std::pair(static_cast<const Bits*>(&values_[id.index]),
                                               code_[id].type);
                            }});
  }
  IndexProgram uniform(const Expr& e) { return program(e, {DType::I64, 1, {}}); }

  struct Comparison {
    IndexProgram left, right;
    IndexComparison::Kind kind;
    bool holds(int64_t a, int64_t b) const { return braze::holds(kind, a, b); }
  };
  std::vector<Comparison> compile(const Condition& condition, const ValueType& type) {
    std::vector<Comparison> out;
    for (const IndexComparison& c : condition)
      out.push_back({program(c.left, type), program(c.right, type), c.kind});
    return out;
  }
  bool holds(const std::vector<Comparison>& condition) const {
    return std::all_of(condition.begin(), condition.end(), [&](const Comparison& c) {
      return c.holds(c.left.scalar(symbols_), c.right.scalar(symbols_));
    });
  }
  // Clears the elements where the condition does not hold.
  void narrow(const std::vector<Comparison>& condition, std::vector<uint8_t>& active) const {
    for (const Comparison& c : condition) {
      const std::vector<int64_t>&a = c.left.array(symbols_), &b = c.right.array(symbols_);
      for (size_t i = 0; i < active.size(); ++i) active[i] &= c.holds(a[i], b[i]);
    }
  }

  // An operand seen as an array of another type.
  class Source {
   public:
    Source() = default;
    Source(Engine& engine, const Operand& operand, const ValueType& as) {
      if (operand.is_literal()) {
        copy_.assign(elements(as), operand.bits);
        return;
      }
      array_ = &engine.values_[operand.value.index];
      map_ = broadcast_map(engine.code_[operand.value].type, as);
      if (!map_.empty()) copy_.resize(map_.size());
    }
    const uint64_t* get() {
      if (!array_) return copy_.data();
      if (map_.empty()) return array_->data();
      for (size_t i = 0; i < map_.size(); ++i) copy_[i] = (*array_)[map_[i]];
      return copy_.data();
    }

   private:
    const Bits* array_ = nullptr;
    std::vector<uint32_t> map_;
    Bits copy_;
  };

  const ValueType& type_of(ValueId id) const { return code_[id].type; }
  ValueType type_of(const Operand& operand) const {
    return operand.is_literal() ? ValueType{operand.dtype, 1, {}} : code_[operand.value].type;
  }
  Bits& result(const Statement& s, size_t i = 0) { return values_[s.results[i].index]; }

  // --- Statements
  // ---------------------------------------------------------------------------------

  Block compile(const Region& region) {
    const auto outer = slots_;
    Block block;
    for (const Statement& s : region.statements)
      if (Step step = std::visit([&](const auto& op) { return compile(op, s); }, s.op))
        block.steps.emplace_back(&s, std::move(step));
    slots_ = outer;
    return block;
  }

  Step compile(const LetOp& op, const Statement&) {
    IndexProgram value = uniform(op.value);
    const size_t slot = new_slot(op.symbol);
    return [this, slot, value] { symbols_[slot] = value.scalar(symbols_); };
  }

  Step compile(const ConstOp& op, const Statement& s) {
    return [&out = result(s), bits = op.bits] { std::fill(out.begin(), out.end(), bits); };
  }

  Step compile(const IndexOp& op, const Statement& s) {
    const DType dtype = type_of(s.results[0]).dtype;
    return [this, &out = result(s), dtype, value = program(op.value, type_of(s.results[0]))] {
      const std::vector<int64_t>& all = value.array(symbols_);
      for (size_t i = 0; i < out.size(); ++i) out[i] = constant_bits_int(dtype, all[i]);
    };
  }

  Step compile(const TestOp& op, const Statement& s) {
    return [this, &out = result(s), condition = compile(op.condition, type_of(s.results[0]))] {
      std::vector<uint8_t> active(out.size(), 1);
      narrow(condition, active);
      std::copy(active.begin(), active.end(), out.begin());
    };
  }

  // The places of an access, one an element; -1 where it does not take place.
  struct Access {
    MemoryId memory;
    std::vector<IndexProgram> at;
    std::vector<Comparison> condition;
    bool masked = false;
    Source mask;
    int64_t align = 0;
    int32_t lanes = 1;
    std::vector<int64_t> places;
    std::vector<uint8_t> active;
  };
  template <class Op>
  std::shared_ptr<Access> access(const Op& op, const ValueType& type) {
    auto out = std::make_shared<Access>();
    out->memory = op.memory;
    for (const Expr& e : op.at) out->at.push_back(program(e, type));
    out->condition = compile(op.guard.condition, type);
    out->masked = static_cast<bool>(op.guard.mask);
    if (out->masked)
      out->mask = Source(*this, op.guard.mask, {DType::Bool, type.lanes, type.extents});
    out->align = op.align;
    out->lanes = type.lanes;
    out->places.resize(elements(type));
    out->active.resize(elements(type));
    return out;
  }

  const std::vector<int64_t>& locate(Access& access) {
    const MemoryState& memory = memories_[access.memory.index];
    std::vector<int64_t>& places = access.places;
    std::vector<uint8_t>& active = access.active;
    std::fill(active.begin(), active.end(), 1);
    narrow(access.condition, active);
    if (access.masked) {
      const uint64_t* mask = access.mask.get();
      for (size_t i = 0; i < active.size(); ++i) active[i] &= mask[i] != 0;
    }
    std::fill(places.begin(), places.end(), 0);
    for (size_t axis = 0; axis < access.at.size(); ++axis) {
      const int64_t extent = memory.shape[axis], stride = memory.strides[axis];
      const std::vector<int64_t>& at = access.at[axis].array(symbols_);
      for (size_t i = 0; i < places.size(); ++i) {
        if (!active[i]) continue;
        if (at[i] < 0 || at[i] >= extent) {
          active[i] = 0;
          report(codes::kOutOfBounds, fmt::format("coordinate {} of %{} is {}, its extent {}", axis,
                                                  code_[access.memory].name, at[i], extent));
        }
        places[i] += at[i] * stride;
      }
    }
    if (access.align > 1) check_alignment(access, memory);
    for (size_t i = 0; i < places.size(); ++i)
      if (!active[i]) places[i] = -1;
    return places;
  }

  void check_alignment(const Access& access, const MemoryState& memory) {
    const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
    const auto lanes = static_cast<size_t>(access.lanes);
    for (size_t i = 0; i < access.places.size(); i += lanes) {
      if (!access.active[i]) continue;
      const auto address = memory.base + static_cast<uintptr_t>(access.places[i] * bytes);
      if (address % static_cast<uintptr_t>(access.align) != 0)
        report(codes::kMisaligned,
               fmt::format("the address of {} is no multiple of {}",
                           element_text(access.memory, access.places[i]), access.align));
    }
  }

  // True if what instance `other` did in this phase is not known to come before.
  bool unordered(uint32_t other) const {
    return other > base_ && other != instance_ && !ordered_.contains(other);
  }
  void note_read(MemoryId id, MemoryState& memory, size_t place) {
    if (!memory.initialised[place])
      report(codes::kUninitialisedRead,
             element_text(id, static_cast<int64_t>(place)) + " is read before it is written");
    if (memory.writer.empty()) return;
    if (unordered(memory.writer[place]))
      report(codes::kInstanceRace,
             element_text(id, static_cast<int64_t>(place)) +
                 " is read here and written by another instance of the phase");
    uint32_t& reader = memory.reader[place];
    if (reader != instance_ && reader > base_) memory.other_reader[place] = reader;
    reader = instance_;
  }
  void note_write(MemoryId id, MemoryState& memory, size_t place) {
    memory.initialised[place] = 1;
    if (memory.stored_by[place] == store_)
      report(codes::kStoredTwice,
             "two elements go to " + element_text(id, static_cast<int64_t>(place)));
    memory.stored_by[place] = store_;
    if (memory.writer.empty()) return;
    if (unordered(memory.writer[place]) || unordered(memory.reader[place]) ||
        unordered(memory.other_reader[place]))
      report(codes::kInstanceRace,
             element_text(id, static_cast<int64_t>(place)) +
                 " is written here and touched by another instance of the phase");
    memory.writer[place] = instance_;
  }

  Step compile(const LoadOp& op, const Statement& s) {
    return [this, &out = result(s), fill = op.fill, access = access(op, type_of(s.results[0]))] {
      MemoryState& memory = memories_[access->memory.index];
      const std::vector<int64_t>& places = locate(*access);
      const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
      for (size_t i = 0; i < places.size(); ++i) {
        if (places[i] < 0) {
          out[i] = fill;
          continue;
        }
        if (memory.tracked) note_read(access->memory, memory, static_cast<size_t>(places[i]));
        out[i] = load_bits(memory.data + places[i] * bytes, memory.dtype);
      }
    };
  }

  Step compile(const StoreOp& op, const Statement&) {
    const ValueType type = type_of(op.value);
    return
        [this, value = std::make_shared<Source>(*this, op.value, type), access = access(op, type)] {
          MemoryState& memory = memories_[access->memory.index];
          const uint64_t* from = value->get();
          const std::vector<int64_t>& places = locate(*access);
          const size_t bytes = size_of(memory.dtype);
          ++store_;
          for (size_t i = 0; i < places.size(); ++i) {
            if (places[i] < 0) continue;
            if (memory.tracked) note_write(access->memory, memory, static_cast<size_t>(places[i]));
            std::memcpy(memory.data + static_cast<size_t>(places[i]) * bytes, &from[i], bytes);
          }
        };
  }

  Step compile(const RowOp& op, const Statement& s) {
    const ValueType& type = type_of(s.results[0]);
    struct Row {
      std::vector<Source> operands;
      RowProgram program;
    };
    std::vector<Source> sources;
    std::vector<DType> dtypes;
    for (const Operand& operand : op.operands) {
      sources.emplace_back(*this, operand, type);
      dtypes.push_back(type_of(operand).dtype);
    }
    auto row =
        std::make_shared<Row>(Row{std::move(sources), RowProgram(op.op, dtypes, type.dtype)});
    return [&out = result(s), row] {
      const uint64_t* operands[3] = {};
      for (size_t i = 0; i < row->operands.size(); ++i) operands[i] = row->operands[i].get();
      row->program.run(out.data(), operands, out.size());
    };
  }

  // Outer, folded and inner extents of an axis; the lanes are the axis behind the last.
  static std::array<size_t, 3> split(const ValueType& type, size_t axis) {
    std::vector<int64_t> extents = type.extents;
    extents.push_back(type.lanes);
    std::array<size_t, 3> out = {1, static_cast<size_t>(extents[axis]), 1};
    for (size_t i = 0; i < extents.size(); ++i)
      if (i != axis) out[i < axis ? 0 : 2] *= static_cast<size_t>(extents[i]);
    return out;
  }

  Step compile(const FoldOp& op, const Statement& s) {
    ValueType type = type_of(op.operand);
    std::vector<std::array<size_t, 3>> folds;
    for (const int64_t axis : op.axes) {
      folds.push_back(split(type, static_cast<size_t>(axis)));
      type.extents[static_cast<size_t>(axis)] = 1;
    }
    if (op.lanes) folds.push_back(split(type, type.rank()));
    return [this, &out = result(s), from = op.operand.value, folds,
            combine = RowLoop(info(op.monoid).combine, type.dtype, type.dtype)] {
      out = values_[from.index];
      for (const auto& [outer, n, inner] : folds) fold_middle(out, outer, n, inner, combine);
    };
  }

  Step compile(const ArgFoldOp& op, const Statement& s) {
    const ValueType type = type_of(op.values);
    const auto [outer, n, inner] = split(type, static_cast<size_t>(op.axes[0]));
    const DType dtype = type.dtype, index_dtype = type_of(op.indices).dtype;
    const MachineFunction better =
        machine_function(op.is_max ? ElementwiseOp::gt : ElementwiseOp::lt, dtype, DType::Bool);
    const MachineFunction is_nan =
        is_floating(dtype) ? machine_function(ElementwiseOp::is_nan, dtype, DType::Bool) : nullptr;
    const MachineFunction less = machine_function(ElementwiseOp::lt, index_dtype, DType::Bool);
    const auto wins = [=](uint64_t v, uint64_t i, uint64_t w, uint64_t j) {
      const bool v_nan = is_nan && is_nan(v, 0, 0), w_nan = is_nan && is_nan(w, 0, 0);
      if (v_nan != w_nan) return v_nan;
      if (!v_nan && better(v, w, 0)) return true;
      if (!v_nan && better(w, v, 0)) return false;
      return less(i, j, 0) != 0;
    };
    return [this, &best = result(s, 0), &where = result(s, 1), wins, values = op.values.value,
            indices = std::make_shared<Source>(*this, op.indices,
                                               ValueType{index_dtype, type.lanes, type.extents}),
            outer = outer, n = n, inner = inner] {
      Bits v = values_[values.index], i(indices->get(), indices->get() + v.size());
      for (size_t o = 0; o < outer; ++o)
        for (size_t k = 0; k < inner; ++k) {
          const auto at = [&](size_t x) { return (o * n + x) * inner + k; };
          for (size_t left = n, half = std::bit_ceil(n) / 2; half >= 1; left = half, half /= 2)
            for (size_t x = 0; x + half < left; ++x) {
              const size_t a = at(x), b = at(x + half);
              if (wins(v[a], i[a], v[b], i[b])) continue;
              v[a] = v[b];
              i[a] = i[b];
            }
          best[o * inner + k] = v[at(0)];
          where[o * inner + k] = i[at(0)];
        }
    };
  }

  Step compile(const ScanOp& op, const Statement& s) {
    const ValueType& type = type_of(op.operand);
    const auto [outer, n, inner] = split(type, static_cast<size_t>(op.axis));
    const MachineFunction combine =
        machine_function(info(op.monoid).combine, type.dtype, type.dtype);
    const uint64_t identity = info(op.monoid).identity(type.dtype);
    return [this, &out = result(s), from = op.operand.value, op, combine, identity, outer = outer,
            n = n, inner = inner] {
      out = values_[from.index];
      for (size_t o = 0; o < outer; ++o)
        for (size_t k = 0; k < inner; ++k) {
          const auto at = [&](size_t x) -> uint64_t& {
            return out[(o * n + (op.reverse ? n - 1 - x : x)) * inner + k];
          };
          for (size_t shift = 1; shift < n; shift *= 2)
            for (size_t x = n; x-- > shift;) at(x) = combine(at(x - shift), at(x), 0);
          if (!op.exclusive) continue;
          for (size_t x = n; x-- > 1;) at(x) = at(x - 1);
          at(0) = identity;
        }
    };
  }

  // A side of a dot: the elements of a tile, or of a whole buffer, in the accumulator's dtype.
  std::function<Bits()> dot_side(const Operand& operand, MemoryId buffer, DType to, bool tf32) {
    const DType from = buffer ? code_[buffer].dtype : type_of(operand).dtype;
    const MachineFunction convert = machine_function(ElementwiseOp::convert, from, to);
    return [this, operand, buffer, convert, from, to, tf32] {
      Bits out;
      if (buffer) {
        MemoryState& memory = memories_[buffer.index];
        for (int64_t i = 0; i < memory.length; ++i) {
          note_read(buffer, memory, static_cast<size_t>(i));
          out.push_back(load_bits(memory.data + static_cast<size_t>(i) * size_of(from), from));
        }
      } else {
        out = values_[operand.value.index];
      }
      for (uint64_t& x : out) {
        if (from != to) x = convert(x, 0, 0);
        if (tf32 && (x & 0x7f800000) != 0x7f800000) x = (x + 0x1000) & 0xffffe000;
      }
      return out;
    };
  }
  std::vector<int64_t> side_extents(const Operand& operand, MemoryId buffer) const {
    if (!buffer) return type_of(operand).extents;
    std::vector<int64_t> out;
    for (const Expr& e : code_[buffer].shape) out.push_back(e.as_constant().value());
    return out;
  }

  Step compile(const TileDotOp& op, const Statement& s) {
    const DType dtype = type_of(op.c).dtype;
    const bool tf32 = op.tf32 && dtype == DType::F32;
    const auto a_extents = side_extents(op.a, op.a_buffer),
               b_extents = side_extents(op.b, op.b_buffer);
    const auto rows = static_cast<size_t>(a_extents[static_cast<size_t>(1 - op.contract_a)]);
    const auto columns = static_cast<size_t>(b_extents[static_cast<size_t>(1 - op.contract_b)]);
    const auto depth = static_cast<size_t>(a_extents[static_cast<size_t>(op.contract_a)]);
    const size_t a_row = op.contract_a == 1 ? depth : 1, a_k = op.contract_a == 1 ? 1 : rows;
    const size_t b_column = op.contract_b == 1 ? depth : 1, b_k = op.contract_b == 1 ? 1 : columns;
    return [this, &out = result(s), a = dot_side(op.a, op.a_buffer, dtype, tf32),
            b = dot_side(op.b, op.b_buffer, dtype, tf32), c = op.c.value,
            fma = machine_function(ElementwiseOp::fma, dtype, dtype), rows, columns, depth, a_row,
            a_k, b_column, b_k] {
      const Bits x = a(), y = b();
      out = values_[c.index];
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j)
          for (size_t k = 0; k < depth; ++k) {
            uint64_t& sum = out[i * columns + j];
            sum = fma(x[i * a_row + k * a_k], y[j * b_column + k * b_k], sum);
          }
    };
  }

  // Moves elements: result element i is operand element map[i].
  Step moved(const Operand& operand, const Statement& s, std::vector<uint32_t> map) {
    return [this, &out = result(s), from = operand.value, map = std::move(map)] {
      const Bits& x = values_[from.index];
      if (map.empty()) out = x;
      for (size_t i = 0; i < map.size(); ++i) out[i] = x[map[i]];
    };
  }

  Step compile(const ViewOp& op, const Statement& s) {
    const ValueType &from = type_of(op.operand.value), &to = type_of(s.results[0]);
    if (op.kind == ViewKind::Reshape) return moved(op.operand, s, {});
    if (op.kind == ViewKind::Broadcast) return moved(op.operand, s, broadcast_map(from, to));
    return moved(op.operand, s, part_map(op, from, to));
  }

  Step compile(const BufferOp& op, const Statement&) {
    return [this, id = op.memory] {
      MemoryState& state = lay_out(id.index);
      if (!state.data) own_storage(state);
      state.base = static_cast<uintptr_t>(std::max<int64_t>(code_[id].scratch_offset, 0));
      state.tracked = true;
      state.initialised.assign(static_cast<size_t>(state.length), 0);
      state.stored_by.resize(static_cast<size_t>(state.length));
    };
  }

  // What leaves a region: copied aside first, since an operand may be another's target.
  Step assign(const std::vector<Operand>& from, const std::vector<ValueId>& to) {
    auto sources = std::make_shared<std::vector<Source>>();
    for (size_t i = 0; i < to.size(); ++i) sources->emplace_back(*this, from[i], type_of(to[i]));
    return [this, sources, to, aside = std::make_shared<std::vector<Bits>>(to.size())] {
      for (size_t i = 0; i < to.size(); ++i) {
        const uint64_t* const bits = (*sources)[i].get();
        (*aside)[i].assign(bits, bits + values_[to[i].index].size());
      }
      for (size_t i = 0; i < to.size(); ++i)
        std::copy((*aside)[i].begin(), (*aside)[i].end(), values_[to[i].index].begin());
    };
  }
  template <class Op>
  static std::pair<std::vector<ValueId>, std::vector<Operand>> carried(const Op& op) {
    std::pair<std::vector<ValueId>, std::vector<Operand>> out;
    for (const auto& [inside, first] : op.carried) {
      out.first.push_back(inside);
      out.second.push_back(first);
    }
    return out;
  }
  static std::vector<Operand> operands(const std::vector<ValueId>& values) {
    return {values.begin(), values.end()};
  }

  Step compile(const ForOp& op, const Statement& s) {
    const auto [inside, first] = carried(op);
    IndexProgram low = uniform(op.low), high = uniform(op.high), step = uniform(op.step);
    const auto outer = slots_;
    const size_t slot = new_slot(op.symbol);
    auto body = std::make_shared<Block>(compile(*op.body));
    slots_ = outer;
    return [this, low, high, step, slot, body, start = assign(first, inside),
            next = assign(op.body->yields, inside), finish = assign(operands(inside), s.results)] {
      const int64_t from = low.scalar(symbols_), to = high.scalar(symbols_),
                    by = std::max<int64_t>(step.scalar(symbols_), 1);
      start();
      for (int64_t k = from; k < to; k += by) {
        symbols_[slot] = k;
        run(*body);
        next();
      }
      finish();
    };
  }

  Step compile(const IfOp& op, const Statement& s) {
    auto then = std::make_shared<Block>(compile(*op.then));
    auto otherwise = op.otherwise ? std::make_shared<Block>(compile(*op.otherwise)) : nullptr;
    Step yes = assign(op.then->yields, s.results);
    Step no = op.otherwise ? assign(op.otherwise->yields, s.results) : Step([] {});
    return [this, condition = compile(op.condition, {DType::I64, 1, {}}), flag = op.flag, then,
            otherwise, yes, no] {
      if (flag ? values_[flag.index][0] != 0 : holds(condition)) {
        run(*then);
        yes();
      } else if (otherwise) {
        run(*otherwise);
        no();
      }
    };
  }

  Step compile(const WhileOp& op, const Statement& s) {
    const auto [inside, first] = carried(op);
    auto body = std::make_shared<Block>(compile(*op.body));
    const std::vector<Operand> again(op.body->yields.begin() + 1, op.body->yields.end());
    return
        [this, body,
         more = std::make_shared<Source>(*this, op.body->yields[0], ValueType{DType::Bool, 1, {}}),
         start = assign(first, inside), next = assign(again, inside),
         finish = assign(operands(inside), s.results)] {
          start();
          for (bool repeat = true; repeat;) {
            run(*body);
            repeat = *more->get() != 0;
            next();
          }
          finish();
        };
  }

  // The value before, at a place where instances meet: all that arrived earlier is ordered before
  // this instance now.
  template <class Update>
  uint64_t meet(Access& access, bool orders, const Update& update) {
    MemoryState& memory = memories_[access.memory.index];
    const int64_t place = locate(access)[0];
    if (place < 0) return 0;
    if (!memory.initialised[static_cast<size_t>(place)])
      report(codes::kUninitialisedRead,
             element_text(access.memory, place) + " is read before it is written");
    std::byte* const at = memory.data + static_cast<size_t>(place) * size_of(memory.dtype);
    const uint64_t before = load_bits(at, memory.dtype), after = update(before);
    std::memcpy(at, &after, size_of(memory.dtype));
    auto& arrived = arrivals_[{access.memory, place}];
    if (orders) ordered_.insert(arrived.begin(), arrived.end());
    arrived.push_back(instance_);
    return before;
  }

  Step compile(const TicketOp& op, const Statement& s) {
    struct Element {
      MemoryId memory;
      std::vector<Expr> at;
      Guard guard;
      int64_t align = 0;
    };
    return [this, &out = result(s), count = uniform(op.count),
            access = access(Element{op.memory, op.at, {}, 0}, {DType::I32, 1, {}})] {
      const auto last = static_cast<uint64_t>(count.scalar(symbols_) - 1);
      const uint64_t before =
          meet(*access, true, [&](uint64_t old) { return old == last ? 0 : old + 1; });
      out[0] = before == last;
      if (!out[0]) ordered_.clear();
    };
  }

  Step compile(const AtomicOp& op, const Statement& s) {
    struct Element {
      MemoryId memory;
      std::vector<Expr> at;
      Guard guard;
      int64_t align = 0;
    };
    const DType dtype = type_of(s.results[0]).dtype;
    const MachineFunction combine =
        machine_function(op.is_max ? ElementwiseOp::max : ElementwiseOp::add, dtype, dtype);
    return [this, &out = result(s), combine, orders = op.acquire_release,
            value = std::make_shared<Source>(*this, op.value, ValueType{dtype, 1, {}}),
            access = access(Element{op.memory, {op.at}, {}, 0}, {dtype, 1, {}})] {
      const uint64_t operand = *value->get();
      out[0] = meet(*access, orders, [&](uint64_t old) { return combine(old, operand, 0); });
    };
  }

  Step compile(const AwaitOp&, const Statement&) { return nullptr; }

  Step compile(const SplatOp& op, const Statement& s) {
    return moved(op.operand, s, broadcast_map(type_of(op.operand.value), type_of(s.results[0])));
  }

  Step compile(const LaneOp& op, const Statement& s) {
    const ValueType& from = type_of(op.operand.value);
    const auto lanes = static_cast<size_t>(from.lanes), lane = static_cast<size_t>(op.lane);
    if (!op.insert) {
      std::vector<uint32_t> map(elements(type_of(s.results[0])));
      for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<uint32_t>(i * lanes + lane);
      return moved(op.operand, s, std::move(map));
    }
    return [this, &out = result(s), from = op.operand.value, lanes, lane,
            element = std::make_shared<Source>(
                *this, op.element,
                ValueType{type_of(op.operand.value).dtype, 1, type_of(op.operand.value).extents})] {
      out = values_[from.index];
      const uint64_t* const bits = element->get();
      for (size_t i = 0; i * lanes < out.size(); ++i) out[i * lanes + lane] = bits[i];
    };
  }

  Step compile(const ShuffleOp& op, const Statement& s) {
    const auto lanes = static_cast<size_t>(type_of(op.a.value).lanes), count = op.lanes.size();
    return
        [this, &out = result(s), a = op.a.value, b = op.b.value, picked = op.lanes, lanes, count] {
          for (size_t i = 0; i < out.size(); ++i) {
            const auto lane = static_cast<size_t>(picked[i % count]);
            const Bits& x = values_[lane < lanes ? a.index : b.index];
            out[i] = x[i / count * lanes + lane % lanes];
          }
        };
  }

  Step compile(const GetOp& op, const Statement& s) {
    const ValueType& from = type_of(op.operand.value);
    int64_t place = 0;
    for (size_t axis = 0; axis < from.rank(); ++axis)
      place = place * from.extents[axis] + op.at[axis];
    std::vector<uint32_t> map(elements(type_of(s.results[0])));
    for (size_t i = 0; i < map.size(); ++i)
      map[i] = static_cast<uint32_t>(place * from.lanes + static_cast<int64_t>(i));
    return moved(op.operand, s, std::move(map));
  }

  Step compile(const PackOp& op, const Statement& s) {
    const ValueType& to = type_of(s.results[0]);
    auto sources = std::make_shared<std::vector<Source>>();
    for (const Operand& operand : op.operands)
      sources->emplace_back(*this, operand, ValueType{to.dtype, to.lanes, {}});
    return [&out = result(s), sources, lanes = static_cast<size_t>(to.lanes)] {
      for (size_t i = 0; i < sources->size(); ++i)
        std::copy_n((*sources)[i].get(), lanes,
                    out.begin() + static_cast<std::ptrdiff_t>(i * lanes));
    };
  }

  template <class ForGpu>
  Step compile(const ForGpu&, const Statement&) {
    fail(codes::kNotForCpu, fmt::format("kernel @{} has statements of a GPU", code_.name));
  }

  const KernelCode& code_;
  std::vector<Bits> values_;
  std::vector<int64_t> symbols_;
  std::vector<MemoryState> memories_;
  std::vector<CompiledPhase> phases_;
  std::vector<std::pair<std::vector<IndexProgram>, std::vector<IndexProgram>>>
      layouts_;  // shapes, strides
  // Names, while compiling.
  std::unordered_map<std::string, size_t> slots_;
  std::unordered_map<std::string, ValueId> value_of_;
  // The state of a run. Instances are numbered from 1; those up to base_ ended before this phase.
  size_t phase_ = 0;
  uint32_t base_ = 0, instance_ = 0, instances_ = 0;
  uint64_t store_ = 0;
  std::unordered_set<uint32_t> ordered_;  // instances known to be done with what this one may see
  std::map<std::pair<MemoryId, int64_t>, std::vector<uint32_t>> arrivals_;
  const Statement* statement_ = nullptr;
  std::vector<Diagnostic> findings_;
  std::set<std::pair<const Statement*, std::string_view>> seen_;
};

CodeInterpreter::CodeInterpreter(const KernelCode& code)
    : engine_(std::make_unique<Engine>(code)) {}
CodeInterpreter::~CodeInterpreter() = default;

std::vector<Diagnostic> CodeInterpreter::run(std::span<const std::span<std::byte>> memories,
                                             std::span<const int64_t> scalars) {
  return engine_->run(memories, scalars);
}

std::vector<Diagnostic> run_code(const KernelCode& code,
                                 std::span<const std::span<std::byte>> memories,
                                 std::span<const int64_t> scalars) {
  return CodeInterpreter(code).run(memories, scalars);
}

}  // namespace braze
