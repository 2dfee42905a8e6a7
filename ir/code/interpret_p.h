// interpret_p.h — the engine of the interpreter: every statement becomes a closure over arrays that
// are allocated once. Private to the interpreter. interpret_pipelined.cpp has the statements of
// pipelined programs.
//
//   value(v)       the elements of value v, lanes innermost, as bits
//   symbols_[s]    the uniform symbols: sizes, grid and loop variables, lets
//   memory(m)      where memory m lies, and which instances accessed which element
//
// An instance of a plain program is one sequential program. An instance of a pipelined program has
// many, the copies of its roles. Each copy has its own values, symbols and buffers: a *context*, in
// which the role's statements are compiled again. Regions are entered through an explicit stack, so
// that a copy can stop at a step that has to wait, and others continue.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "ir/code/index_program.h"
#include "ir/code/interpret.h"
#include "ir/code/protocol.h"
#include "ir/code/row_loops.h"
#include "ir/code/text.h"
#include "ir/ops/scalar.h"
#include "ir/support/text.h"

namespace braze {

using Bits = std::vector<uint64_t>;

inline uint64_t load_bits(const std::byte* from, DType dtype) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, size_of(dtype));
  return dtype == DType::Bool ? bits != 0 : bits;
}

inline size_t elements(const ValueType& type) {
  return static_cast<size_t>(type.count() * type.lanes);
}

struct MemoryState {
  std::byte* data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> shape, strides;
  int64_t length = 0;    // number of elements
  uintptr_t base = 0;    // for alignment
  Bits own;              // storage of workspaces and buffers
  bool tracked = false;  // whether elements begin uninitialised, or instances share them
  std::vector<uint8_t> initialised;
  std::vector<uint32_t> writer, reader, other_reader;  // instances
  std::vector<uint64_t> stored_by;                     // the store that last wrote each element
  // A window of a buffer or slot: elements are those of `whole`, counted from `first`.
  MemoryState* whole = nullptr;
  int64_t first = 0;
  MemoryId source;              // the buffer or field
  std::vector<int64_t> corner;  // in its coordinates
  std::optional<std::pair<ChannelId, int64_t>> item;

  MemoryState& storage() { return whole ? *whole : *this; }
};

class CodeInterpreter::Engine {
 public:
  explicit Engine(const KernelCode& code, bool skeleton = false)
      : code_(code), skeleton_(skeleton) {
    for (const Phase& phase : code.phases)
      if (phase.block > 0)
        fail(codes::kNotForCpu,
             fmt::format("kernel @{} is for a GPU, so only the simulator can run it", code.name));
    // Steps refer to values and memories by address, so all contexts are counted first.
    size_t contexts = 1;
    for (const Phase& phase : code.phases) contexts += copies_of(phase).size();
    values_.resize(contexts * code.values.size());
    flight_.resize(values_.size());
    memories_.resize(contexts * code.memories.size());
    for (size_t i = 0; i < code.values.size(); ++i)
      value_of_.emplace("%" + code.values[i].name, ValueId(i));
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
      if (code.pipelined)
        compile_roles(phase, compiled);
      else
        compiled.body = compile(phase.body);
    }
  }

  /// The rules that a skeleton has broken.
  std::vector<BrokenRule> broken_rules;

  void run_skeleton(std::span<const int64_t> sizes) {
    std::copy(sizes.begin(), sizes.end(), symbols_.begin());
    for (size_t p = 0; p < phases_.size(); ++p) run_phase(p);
  }

  const KernelCode& code() const { return code_; }

  std::vector<Diagnostic> run(std::span<const std::span<std::byte>> memories,
                              std::span<const int64_t> scalars) {
    findings_.clear();
    seen_.clear();
    statement_ = nullptr;
    thread_ = nullptr;
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
  // A region that is being run. At its end, `again` says whether it must run once more.
  struct Activation {
    const Block* block = nullptr;
    size_t next = 0;
    const std::function<bool()>* again = nullptr;
  };
  // One sequential program: an instance, or a copy of a role in an instance. All accesses since it
  // last signalled others have the same number.
  struct Thread {
    uint32_t number = 0;
    std::unordered_set<uint32_t>
        ordered;  // numbers whose accesses are known to come before those of this thread
    std::vector<Activation> stack;
    bool waits = false;  // the step must be tried again
    uint64_t steps = 0;
    size_t copy = 0;  // of its phase
    int64_t meeting = 0;
  };
  // A copy of a role, compiled.
  struct CompiledCopy {
    RoleCopy copy;
    Block head, body;
    std::vector<std::optional<IndexProgram>> only;  // by channel, over the symbol `item`
    size_t item_slot = 0;
    std::vector<std::tuple<MemoryId, MemoryState*, int64_t>> fields;  // channels and their depths
  };
  struct CompiledPhase {
    std::vector<IndexProgram> extents;
    std::vector<size_t> slots;
    Block body;
    std::vector<std::unique_ptr<CompiledCopy>> copies;  // of a pipelined phase
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
    const std::string copy = thread_ && code_.pipelined
                                 ? phases_[phase_].copies[thread_->copy]->copy.to_string() + ", "
                                 : "";
    return fmt::format("{}instance ({}) of phase {}", copy,
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
      return bad(fmt::format("the launch passes {} scalars, but the kernel takes {}",
                             scalars.size(),
                             code_.symbols.size() + code_.scalar_parameters.size()));
    for (size_t i = 0; i < code_.symbols.size(); ++i) {
      const Expr& symbol = code_.symbols[i];
      symbols_[i] = scalars[i];
      if (!symbol.range().contains(scalars[i]) || scalars[i] % symbol.divisor() != 0)
        return bad(fmt::format(
            "{} = {} is not in the range of this symbol, or not a multiple of its divisor",
            symbol.symbol_name(), scalars[i]));
    }
    for (size_t i = 0; i < code_.scalar_parameters.size(); ++i) {
      const ValueId id = code_.scalar_parameters[i];
      const size_t bytes = size_of(code_[id].type.dtype);
      const auto bits = static_cast<uint64_t>(scalars[code_.symbols.size() + i]);
      Bits& value = values_[id.index];
      value.assign(1, bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * bytes)) - 1));
    }
    size_t given = 0;
    base_ = instances_ = 0;
    for (size_t i = 0; i < code_.memories.size(); ++i) {
      const Memory& memory = code_.memories[i];
      if (is_on_chip(memory)) continue;
      MemoryState& state = lay_out(MemoryId(i), memories_[i]);
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
      return bad(fmt::format("the launch passes {} pieces of memory, but the kernel takes {}",
                             memories.size(), given));
    return true;
  }

  MemoryState& lay_out(MemoryId id, MemoryState& state) {
    const auto& [shape, strides] = layouts_[id.index];
    state.dtype = code_[id].dtype;
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
    if (p > 0) {  // all instances are new
      base_ = instances_;
      arrivals_.clear();
    }
    std::vector<int64_t> extents;
    int64_t count = 1;
    for (const IndexProgram& extent : phase.extents) {
      extents.push_back(extent.scalar(symbols_));
      count *= std::max<int64_t>(extents.back(), 0);
    }
    // A skeleton runs the first instance, the last one, and one between them.
    const int64_t step = skeleton_ ? std::max<int64_t>((count - 1) / 2, 1) : 1;
    for (int64_t i = 0; i < count && findings_.size() < kMostFindings; i += step) {
      int64_t rest = i;
      for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis])
        symbols_[phase.slots[axis]] = rest % extents[axis];
      if (code_.pipelined) {
        run_instance(phase);
        continue;
      }
      Thread thread{base_ + static_cast<uint32_t>(i) + 1, {}, {{&phase.body}}};
      advance(thread);
    }
    if (!code_.pipelined) instances_ = std::max(instances_, base_ + static_cast<uint32_t>(count));
  }

  // Runs until the end (true), or to a step that has to wait (false).
  bool advance(Thread& thread) {
    thread_ = &thread;
    std::vector<Activation>& stack = thread.stack;
    while (!stack.empty()) {
      Activation& top = stack.back();
      if (top.next == top.block->steps.size()) {
        if (top.again && (*top.again)())
          top.next = 0;
        else
          stack.pop_back();
        continue;
      }
      const auto& [statement, step] = top.block->steps[top.next++];
      statement_ = statement;
      if (protocol_) protocol_->at(statement);
      step();
      if (!thread.waits) {
        ++thread.steps;
        if (exhausted()) return false;
        continue;
      }
      thread.waits = false;
      --stack.back().next;
      return false;
    }
    return true;
  }
  // The greatest number of steps of a skeleton.
  bool exhausted() const { return skeleton_ && thread_->steps > kMostSkeletonSteps; }
  void enter(const Block& block, const std::function<bool()>* again = nullptr) {
    thread_->stack.push_back({&block, 0, again});
  }

  void check_outputs() {
    for (size_t i = 0; i < code_.memories.size(); ++i) {
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
             fmt::format("kernel @{} does not write {} elements of the output %{}; the first is {}",
                         code_.name, missing, memory.name, element_text(MemoryId(i), first)));
    }
  }

  // --- Compilation of expressions
  // -----------------------------------------------------------------

  size_t new_slot(const std::string& name) {
    slots_[name] = symbols_.size();  // replaces a symbol of that name that is out of scope
    symbols_.push_back(0);
    return symbols_.size() - 1;
  }

  IndexProgram program(const Expr& e, const ValueType& type) {
    return IndexProgram(e, {type, code_.pipelined || code_.target.empty() ? 'd' : 'e',
                            [this](const std::string& name) {
                              const auto found = slots_.find(name);
                              BRAZE_CHECK(found != slots_.end(), "unknown symbol " + name);
                              return found->second;
                            },
                            [this](const std::string& name) {
                              const ValueId id = value_of_.at(name);
                              return std::pair(static_cast<const Bits*>(&value(id)),
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
  // Clears `active` for elements for which the condition does not hold.
  void narrow(const std::vector<Comparison>& condition, std::vector<uint8_t>& active) const {
    for (const Comparison& c : condition) {
      const std::vector<int64_t>&a = c.left.array(symbols_), &b = c.right.array(symbols_);
      for (size_t i = 0; i < active.size(); ++i) active[i] &= c.holds(a[i], b[i]);
    }
  }

  // An operand, broadcast as an array of another type.
  class Source {
   public:
    Source() = default;
    Source(Engine& engine, const ValueOperand& operand, const ValueType& as) {
      if (operand.is_literal()) {
        copy_.assign(elements(as), operand.bits);
        return;
      }
      array_ = &engine.value(operand.value);
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
  ValueType type_of(const ValueOperand& operand) const {
    return operand.is_literal() ? ValueType{operand.dtype, 1, {}} : code_[operand.value].type;
  }
  // The number of a value in the context that is being compiled. All contexts share scalar
  // parameters.
  size_t value_index(ValueId id) const {
    const auto& shared = code_.scalar_parameters;
    const bool own = std::find(shared.begin(), shared.end(), id) == shared.end();
    return (own ? context_ * code_.values.size() : 0) + id.index;
  }
  Bits& value(ValueId id) {
    Bits& out = values_[value_index(id)];
    if (out.empty() && !skeleton_) out.resize(elements(type_of(id)));
    return out;
  }
  Bits& result(const Statement& s, size_t i = 0) { return value(s.results[i]); }
  static bool is_on_chip(const Memory& memory) {
    return memory.space == MemorySpace::Local || memory.space == MemorySpace::Field ||
           memory.space == MemorySpace::Window;
  }
  // Each copy has its own buffers, and each block its own fields.
  MemoryState& memory(MemoryId id) {
    const Memory& declared = code_[id];
    const size_t context = declared.space == MemorySpace::Field ? field_context_
                           : is_on_chip(declared)               ? context_
                                                                : 0;
    return memories_[context * code_.memories.size() + id.index];
  }

  // --- Statements
  // ---------------------------------------------------------------------------------

  Block compile(const Region& region) {
    const auto outer = slots_;
    Block block;
    for (const Statement& s : region.statements) append(s, block);
    slots_ = outer;
    return block;
  }
  void append(const Statement& s, Block& block) {
    if (code_.pipelined && append_pipelined(s, block)) return;
    if (Step step = std::visit([&](const auto& op) { return compile(op, s); }, s.op))
      block.steps.emplace_back(&s, std::move(step));
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

  // The places of an access, one for each element; -1 for elements that take no part.
  struct Access {
    MemoryId id;
    MemoryState* memory = nullptr;
    std::vector<IndexProgram> at;
    std::vector<Comparison> condition;
    bool masked = false, clip = false;
    Source mask;
    int64_t align = 0;
    int32_t lanes = 1;
    std::vector<int64_t> places;
    std::vector<uint8_t> active;
  };
  template <class Op>
  std::shared_ptr<Access> access(const Op& op, const ValueType& type) {
    auto out = std::make_shared<Access>();
    out->id = op.memory;
    out->memory = &memory(op.memory);
    for (const Expr& e : op.at) out->at.push_back(program(e, type));
    out->condition = compile(op.guard.condition, type);
    out->masked = static_cast<bool>(op.guard.mask);
    if (out->masked)
      out->mask = Source(*this, op.guard.mask, {DType::Bool, type.lanes, type.extents});
    out->clip = op.guard.clip;
    if constexpr (requires { op.align; }) out->align = op.align;
    out->lanes = type.lanes;
    out->places.resize(elements(type));
    out->active.resize(elements(type));
    return out;
  }

  const std::vector<int64_t>& locate(Access& access) {
    const MemoryState& memory = *access.memory;
    std::vector<int64_t>& places = access.places;
    std::vector<uint8_t>& active = access.active;
    std::fill(active.begin(), active.end(), 1);
    narrow(access.condition, active);
    if (access.masked) {
      const uint64_t* mask = access.mask.get();
      for (size_t i = 0; i < active.size(); ++i) active[i] &= mask[i] != 0;
    }
    std::fill(places.begin(), places.end(), memory.first);
    for (size_t axis = 0; axis < access.at.size(); ++axis) {
      const int64_t extent = memory.shape[axis], stride = memory.strides[axis];
      const std::vector<int64_t>& at = access.at[axis].array(symbols_);
      for (size_t i = 0; i < places.size(); ++i) {
        if (!active[i]) continue;
        if (at[i] < 0 || at[i] >= extent) {
          active[i] = 0;
          if (access.clip) continue;
          report(codes::kOutOfBounds,
                 fmt::format("coordinate {} of %{} is {}, but the extent there is {}", axis,
                             code_[access.id].name, at[i], extent));
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
               fmt::format("the address of {} is not a multiple of {}",
                           element_text(access.id, access.places[i]), access.align));
    }
  }

  // Whether it is not known that the accesses of `other` in this phase come before this one.
  bool unordered(uint32_t other) const {
    return other > base_ && other != thread_->number && !thread_->ordered.contains(other);
  }
  void note_read(MemoryId id, MemoryState& memory, size_t place) {
    if (!memory.initialised[place])
      report(codes::kUninitialisedRead,
             element_text(id, static_cast<int64_t>(place)) + " is read before it is written");
    if (memory.writer.empty()) return;
    if (unordered(memory.writer[place]))
      report(codes::kInstanceRace,
             element_text(id, static_cast<int64_t>(place)) +
                 " is read here, and another instance of the phase writes it");
    uint32_t& reader = memory.reader[place];
    if (reader != thread_->number && reader > base_) memory.other_reader[place] = reader;
    reader = thread_->number;
  }
  void note_write(MemoryId id, MemoryState& memory, size_t place) {
    memory.initialised[place] = 1;
    if (memory.stored_by[place] == store_)
      report(codes::kStoredTwice,
             "two elements of this store go to " + element_text(id, static_cast<int64_t>(place)));
    memory.stored_by[place] = store_;
    if (memory.writer.empty()) return;
    if (unordered(memory.writer[place]) || unordered(memory.reader[place]) ||
        unordered(memory.other_reader[place]))
      report(codes::kInstanceRace,
             element_text(id, static_cast<int64_t>(place)) +
                 " is written here, and another instance of the phase accesses it");
    memory.writer[place] = thread_->number;
  }

  Step compile(const LoadOp& op, const Statement& s) {
    return [this, &out = result(s), fill = op.fill, access = access(op, type_of(s.results[0]))] {
      const std::vector<int64_t>& places = locate(*access);
      MemoryState& memory = access->memory->storage();
      const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
      for (size_t i = 0; i < places.size(); ++i) {
        if (places[i] < 0) {
          out[i] = fill;
          continue;
        }
        if (memory.tracked) note_read(access->id, memory, static_cast<size_t>(places[i]));
        out[i] = load_bits(memory.data + places[i] * bytes, memory.dtype);
      }
    };
  }

  Step compile(const StoreOp& op, const Statement&) {
    const ValueType type = type_of(op.value);
    return
        [this, value = std::make_shared<Source>(*this, op.value, type), access = access(op, type)] {
          const uint64_t* from = value->get();
          const std::vector<int64_t>& places = locate(*access);
          MemoryState& memory = access->memory->storage();
          const size_t bytes = size_of(memory.dtype);
          ++store_;
          for (size_t i = 0; i < places.size(); ++i) {
            if (places[i] < 0) continue;
            if (memory.tracked) note_write(access->id, memory, static_cast<size_t>(places[i]));
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
    for (const ValueOperand& operand : op.operands) {
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

  // The extents outside, along and inside of an axis. The lanes are the axis after the last one.
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
    return [&out = result(s), &from = value(op.operand.value), folds,
            combine = RowLoop(info(op.monoid).combine, type.dtype, type.dtype)] {
      out = from;
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
    return [&best = result(s, 0), &where = result(s, 1), wins, &values = value(op.values.value),
            indices = std::make_shared<Source>(*this, op.indices,
                                               ValueType{index_dtype, type.lanes, type.extents}),
            outer = outer, n = n, inner = inner] {
      Bits v = values, i(indices->get(), indices->get() + v.size());
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

  Step compile(const TileScanOp& op, const Statement& s) {
    if (op.combiner.body()) return scan_tuples(op, s);
    const ValueType& type = type_of(op.operands[0]);
    const auto [outer, n, inner] = split(type, static_cast<size_t>(op.axis));
    const MonoidInfo& monoid = info(*op.combiner.monoid());
    const MachineFunction combine = machine_function(monoid.combine, type.dtype, type.dtype);
    const uint64_t identity = monoid.identity(type.dtype);
    Bits* const totals = op.totals ? &result(s, 1) : nullptr;
    return [&out = result(s), &from = value(op.operands[0].value), totals, op, combine, identity,
            outer = outer, n = n, inner = inner] {
      out = from;
      for (size_t o = 0; o < outer; ++o)
        for (size_t k = 0; k < inner; ++k) {
          const auto at = [&](size_t x) -> uint64_t& {
            return out[(o * n + (op.reverse ? n - 1 - x : x)) * inner + k];
          };
          for (size_t shift = 1; shift < n; shift *= 2)
            for (size_t x = n; x-- > shift;) at(x) = combine(at(x - shift), at(x), 0);
          if (totals) (*totals)[o * inner + k] = at(n - 1);
          if (!op.exclusive) continue;
          for (size_t x = n; x-- > 1;) at(x) = at(x - 1);
          at(0) = identity;
        }
    };
  }

  // The body of a combiner, applied to one pair of tuples at a time.
  class Combining {
   public:
    explicit Combining(const CombinerBody& body) : body_(body), bits_(body.steps.size()) {
      for (const CombinerStep& step : body_.steps) {
        std::vector<DType> dtypes;
        for (const uint32_t a : step.arguments) dtypes.push_back(body_.steps[a].dtype);
        const bool applies = step.kind == CombinerStep::Kind::Apply;
        rows_.push_back(applies ? std::make_unique<RowProgram>(step.op, dtypes, step.dtype)
                                : nullptr);
      }
    }
    /// Replaces `right` by the combination of the two tuples.
    void operator()(const Bits& left, Bits& right) {
      for (size_t i = 0; i < body_.steps.size(); ++i) {
        const CombinerStep& step = body_.steps[i];
        if (step.kind == CombinerStep::Kind::Left) bits_[i] = left[step.part];
        if (step.kind == CombinerStep::Kind::Right) bits_[i] = right[step.part];
        if (step.kind == CombinerStep::Kind::Constant) bits_[i] = step.bits;
        if (!rows_[i]) continue;
        const uint64_t* operands[3] = {};
        for (size_t a = 0; a < step.arguments.size(); ++a) operands[a] = &bits_[step.arguments[a]];
        rows_[i]->run(&bits_[i], operands, 1);
      }
      for (size_t part = 0; part < right.size(); ++part) right[part] = bits_[body_.results[part]];
    }

   private:
    const CombinerBody body_;
    Bits bits_;
    std::vector<std::unique_ptr<RowProgram>> rows_;
  };

  Step scan_tuples(const TileScanOp& op, const Statement& s) {
    const auto [outer, n, inner] = split(type_of(op.operands[0]), static_cast<size_t>(op.axis));
    std::vector<const Bits*> from;
    std::vector<Bits*> out;
    for (const ValueOperand& operand : op.operands) from.push_back(&value(operand.value));
    for (size_t i = 0; i < s.results.size(); ++i) out.push_back(&result(s, i));
    return [from, out, op, combine = std::make_shared<Combining>(*op.combiner.body()),
            outer = outer, n = n, inner = inner] {
      const size_t parts = from.size();
      std::vector<Bits> line(n, Bits(parts));
      for (size_t o = 0; o < outer; ++o)
        for (size_t k = 0; k < inner; ++k) {
          const auto at = [&](size_t x) {
            return (o * n + (op.reverse ? n - 1 - x : x)) * inner + k;
          };
          for (size_t x = 0; x < n; ++x)
            for (size_t part = 0; part < parts; ++part) line[x][part] = (*from[part])[at(x)];
          for (size_t shift = 1; shift < n; shift *= 2)
            for (size_t x = n; x-- > shift;) (*combine)(line[x - shift], line[x]);
          for (size_t part = 0; part < parts; ++part) {
            if (op.totals) (*out[parts + part])[o * inner + k] = line[n - 1][part];
            for (size_t x = 0; x < n; ++x)
              (*out[part])[at(x)] = !op.exclusive ? line[x][part]
                                    : x == 0      ? op.combiner.body()->identity[part]
                                                  : line[x - 1][part];
          }
        }
    };
  }

  // A side of a dot: the elements of a tile, or of a whole buffer, in the accumulator's dtype.
  std::function<Bits()> dot_side(const ValueOperand& operand, MemoryId buffer, DType to,
                                 bool tf32) {
    const DType from = buffer ? code_[buffer].dtype : type_of(operand).dtype;
    const MachineFunction convert = machine_function(ElementwiseOp::convert, from, to);
    MemoryState* const memory = buffer ? &this->memory(buffer) : nullptr;
    const Bits* const tile = buffer ? nullptr : &value(operand.value);
    return [this, tile, memory, buffer, convert, from, to, tf32] {
      Bits out;
      if (buffer)
        for_each_place(*memory, [&](int64_t place) {
          MemoryState& storage = memory->storage();
          note_read(buffer, storage, static_cast<size_t>(place));
          out.push_back(
              load_bits(storage.data + place * static_cast<int64_t>(size_of(from)), from));
        });
      else
        out = *tile;
      for (uint64_t& x : out) {
        if (from != to) x = convert(x, 0, 0);
        if (tf32 && (x & 0x7f800000) != 0x7f800000) x = (x + 0x1000) & 0xffffe000;
      }
      return out;
    };
  }
  // The places of all elements of a buffer or window, in row-major order.
  static void for_each_place(const MemoryState& memory, const std::function<void(int64_t)>& visit) {
    std::vector<int64_t> at(memory.shape.size());
    for (bool more = true; more;) {
      int64_t place = memory.first;
      for (size_t axis = 0; axis < at.size(); ++axis) place += at[axis] * memory.strides[axis];
      visit(place);
      more = false;
      for (size_t axis = at.size(); axis-- > 0 && !more;) {
        more = ++at[axis] < memory.shape[axis];
        if (!more) at[axis] = 0;
      }
    }
  }
  std::vector<int64_t> side_extents(const ValueOperand& operand, MemoryId buffer) const {
    if (!buffer) return type_of(operand).extents;
    std::vector<int64_t> out;
    for (const Expr& e : code_[buffer].shape) out.push_back(e.as_constant().value());
    return out;
  }

  Step compile(const TileDotOp& op, const Statement& s) {
    return dot(op, s, [] { return false; });
  }
  // `fresh`: the accumulator is taken as zero.
  template <class Dot>
  Step dot(const Dot& op, const Statement& s, const std::function<bool()>& fresh) {
    MemoryId a_memory, b_memory;
    ValueOperand b_tile;
    if constexpr (requires { op.a_window; }) {
      a_memory = op.a_window, b_memory = op.b_window;
    } else {
      a_memory = op.a_buffer, b_memory = op.b_buffer, b_tile = op.b;
    }
    const DType dtype = type_of(op.c).dtype;
    const bool tf32 = op.tf32 && dtype == DType::F32;
    const auto a_extents = side_extents(op.a, a_memory), b_extents = side_extents(b_tile, b_memory);
    const auto rows = static_cast<size_t>(a_extents[static_cast<size_t>(1 - op.contract_a)]);
    const auto columns = static_cast<size_t>(b_extents[static_cast<size_t>(1 - op.contract_b)]);
    const auto depth = static_cast<size_t>(a_extents[static_cast<size_t>(op.contract_a)]);
    const size_t a_row = op.contract_a == 1 ? depth : 1, a_k = op.contract_a == 1 ? 1 : rows;
    const size_t b_column = op.contract_b == 1 ? depth : 1, b_k = op.contract_b == 1 ? 1 : columns;
    return [&out = result(s), a = dot_side(op.a, a_memory, dtype, tf32),
            b = dot_side(b_tile, b_memory, dtype, tf32), &c = value(op.c.value), fresh,
            fma = machine_function(ElementwiseOp::fma, dtype, dtype), rows, columns, depth, a_row,
            a_k, b_column, b_k] {
      const Bits x = a(), y = b();
      out = c;
      if (fresh()) std::fill(out.begin(), out.end(), 0);
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j)
          for (size_t k = 0; k < depth; ++k) {
            uint64_t& sum = out[i * columns + j];
            sum = fma(x[i * a_row + k * a_k], y[j * b_column + k * b_k], sum);
          }
    };
  }

  // Moves elements: result element i is operand element map[i].
  Step moved(const ValueOperand& operand, const Statement& s, std::vector<uint32_t> map) {
    return [&out = result(s), &x = value(operand.value), map = std::move(map)] {
      if (map.empty()) out = x;
      for (size_t i = 0; i < map.size(); ++i) out[i] = x[map[i]];
    };
  }

  Step compile(const MovementOp& op, const Statement& s) {
    const ValueType &from = type_of(op.operand.value), &to = type_of(s.results[0]);
    if (op.kind == MovementKind::Reshape) return moved(op.operand, s, {});
    if (!op.offsets.empty()) return sliced(op, s);
    if (op.kind == MovementKind::Broadcast) return moved(op.operand, s, broadcast_map(from, to));
    return moved(op.operand, s, part_map(op, from, to));
  }

  // A slice at offsets over loop variables.
  Step sliced(const MovementOp& op, const Statement& s) {
    const ValueType &from = type_of(op.operand.value), &to = type_of(s.results[0]);
    std::vector<IndexProgram> offsets;
    for (const Expr& e : op.offsets) offsets.push_back(uniform(e));
    return [this, &out = result(s), &x = value(op.operand.value), offsets, from, to] {
      MovementOp part{MovementKind::Slice, {}, {}};
      for (const IndexProgram& offset : offsets) part.arguments.push_back(offset.scalar(symbols_));
      const std::vector<uint32_t> map = part_map(part, from, to);
      for (size_t i = 0; i < map.size(); ++i) out[i] = x[map[i]];
    };
  }

  Step compile(const BufferOp& op, const Statement&) {
    return [this, id = op.memory, &state = memory(op.memory)] {
      lay_out(id, state);
      if (skeleton_) return;
      if (!state.data) own_storage(state);
      state.base = static_cast<uintptr_t>(std::max<int64_t>(code_[id].scratch_offset, 0));
      state.tracked = true;
      state.initialised.assign(static_cast<size_t>(state.length), 0);
      state.stored_by.resize(static_cast<size_t>(state.length));
    };
  }

  // Assigns the values that leave a region. They are copied aside first, because one operand may be
  // the target of another. A value in flight stays in flight.
  Step assign(const std::vector<ValueOperand>& from, const std::vector<ValueId>& to) {
    struct Move {
      Source from;
      Bits* to = nullptr;
      const int64_t* from_flight = nullptr;
      int64_t* to_flight = nullptr;
      Bits aside;
      int64_t flight = 0;
    };
    auto moves = std::make_shared<std::vector<Move>>();
    for (size_t i = 0; i < to.size(); ++i) {
      Move& move = moves->emplace_back();
      if (!skeleton_) move.from = Source(*this, from[i], type_of(to[i]));
      move.to = &value(to[i]);
      if (!from[i].is_literal()) move.from_flight = &flight(from[i].value);
      move.to_flight = &flight(to[i]);
    }
    return [this, moves] {
      for (Move& move : *moves) {
        move.flight = move.from_flight ? *move.from_flight : 0;
        if (skeleton_) continue;
        const uint64_t* const bits = move.from.get();
        move.aside.assign(bits, bits + move.to->size());
      }
      for (Move& move : *moves) {
        *move.to_flight = move.flight;
        std::copy(move.aside.begin(), move.aside.end(), move.to->begin());
      }
    };
  }
  // The number, from 1 in its copy, of the dot that makes the value; 0 if it is known to be done.
  int64_t& flight(ValueId id) { return flight_[value_index(id)]; }
  template <class Op>
  static std::pair<std::vector<ValueId>, std::vector<ValueOperand>> carried(const Op& op) {
    std::pair<std::vector<ValueId>, std::vector<ValueOperand>> out;
    for (const auto& [inside, first] : op.carried) {
      out.first.push_back(inside);
      out.second.push_back(first);
    }
    return out;
  }
  static std::vector<ValueOperand> operands(const std::vector<ValueId>& values) {
    return {values.begin(), values.end()};
  }

  Step compile(const ForOp& op, const Statement& s) {
    const auto [inside, first] = carried(op);
    IndexProgram low = uniform(op.low), high = uniform(op.high), step = uniform(op.step);
    const auto outer = slots_;
    struct Loop {
      Block body;
      int64_t k = 0, to = 0, by = 1;
      std::function<bool()> again;
    };
    auto loop = std::make_shared<Loop>();
    const size_t slot = new_slot(op.symbol);
    loop->body = compile(*op.body);
    slots_ = outer;
    Step finish = assign(operands(inside), s.results);
    loop->again = [this, slot, &state = *loop, next = assign(op.body->yields, inside), finish] {
      next();
      state.k += state.by;
      symbols_[slot] = state.k;
      if (state.k < state.to) return true;
      finish();
      return false;
    };
    return [this, low, high, step, slot, loop, start = assign(first, inside), finish] {
      loop->k = low.scalar(symbols_), loop->to = high.scalar(symbols_);
      loop->by = std::max<int64_t>(step.scalar(symbols_), 1);
      start();
      symbols_[slot] = loop->k;
      if (loop->k < loop->to)
        enter(loop->body, &loop->again);
      else
        finish();
    };
  }

  Step compile(const IfOp& op, const Statement& s) {
    struct Branch {
      Block body;
      std::function<bool()> again;
    };
    const auto branch = [&](const Region& region) {
      auto out = std::make_shared<Branch>(Branch{compile(region), nullptr});
      out->again = [yield = assign(region.yields, s.results)] {
        yield();
        return false;
      };
      return out;
    };
    auto then = branch(*op.then);
    auto otherwise = op.otherwise ? branch(*op.otherwise) : nullptr;
    Bits* const flag = op.flag ? &value(op.flag) : nullptr;
    return [this, condition = compile(op.condition, {DType::I64, 1, {}}), flag, then, otherwise] {
      if (flag ? (*flag)[0] != 0 : holds(condition))
        enter(then->body, &then->again);
      else if (otherwise)
        enter(otherwise->body, &otherwise->again);
    };
  }

  // The numbers of the accesses that others may rely on when this thread signals them: its own and
  // those that it knows. Later accesses of a copy of a role get a new number; instances keep theirs
  // over block barriers.
  std::unordered_set<uint32_t> told() {
    std::unordered_set<uint32_t> out = thread_->ordered;
    out.insert(thread_->number);
    if (code_.pipelined) {
      thread_->ordered.insert(thread_->number);
      thread_->number = ++instances_;
    }
    return out;
  }

  // Updates an element at which instances meet, and returns its value before. The accesses of all
  // that arrived earlier now come before those of this instance.
  template <class Update>
  uint64_t meet(Access& access, const Update& update) {
    MemoryState& memory = *access.memory;
    const int64_t place = locate(access)[0];
    if (place < 0) return 0;
    if (!memory.initialised[static_cast<size_t>(place)])
      report(codes::kUninitialisedRead,
             element_text(access.id, place) + " is read before it is written");
    std::byte* const at = memory.data + static_cast<size_t>(place) * size_of(memory.dtype);
    const uint64_t before = load_bits(at, memory.dtype), after = update(before);
    std::memcpy(at, &after, size_of(memory.dtype));
    std::unordered_set<uint32_t>& arrived = arrivals_[{access.id, place}];
    const std::unordered_set<uint32_t> mine = told();
    thread_->ordered.insert(arrived.begin(), arrived.end());
    arrived.insert(mine.begin(), mine.end());
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
      const std::unordered_set<uint32_t> known = thread_->ordered;
      const uint32_t number = thread_->number;
      const uint64_t before =
          meet(*access, [&](uint64_t old) { return old == last ? 0 : old + 1; });
      out[0] = before == last;
      if (out[0]) return;
      // Only the last arrival may rely on what the others did.
      thread_->ordered = known;
      thread_->ordered.insert(number);
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
    const MachineFunction combine = machine_function(ElementwiseOp::add, dtype, dtype);
    return [this, &out = result(s), combine,
            value = std::make_shared<Source>(*this, op.value, ValueType{dtype, 1, {}}),
            access = access(Element{op.memory, {op.at}, {}, 0}, {dtype, 1, {}})] {
      const uint64_t operand = *value->get();
      out[0] = meet(*access, [&](uint64_t old) { return combine(old, operand, 0); });
    };
  }

  Step compile(const AwaitOp&, const Statement&) { return nullptr; }

  Step compile(const SplatOp& op, const Statement& s) {
    return moved(op.operand, s, broadcast_map(type_of(op.operand.value), type_of(s.results[0])));
  }

  Step compile(const LaneOp& op, const Statement& s) {
    const ValueType& from = type_of(op.operand.value);
    const auto lanes = static_cast<size_t>(from.lanes), lane = static_cast<size_t>(op.lane);
    std::vector<uint32_t> map(elements(type_of(s.results[0])));
    for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<uint32_t>(i * lanes + lane);
    return moved(op.operand, s, std::move(map));
  }

  Step compile(const ShuffleOp& op, const Statement& s) {
    const auto lanes = static_cast<size_t>(type_of(op.a.value).lanes), count = op.lanes.size();
    return [&out = result(s), &a = value(op.a.value), &b = value(op.b.value), picked = op.lanes,
            lanes, count] {
      for (size_t i = 0; i < out.size(); ++i) {
        const auto lane = static_cast<size_t>(picked[i % count]);
        const Bits& x = lane < lanes ? a : b;
        out[i] = x[i / count * lanes + lane % lanes];
      }
    };
  }

  Step compile(const GetElementOp& op, const Statement& s) {
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
    for (const ValueOperand& operand : op.operands)
      sources->emplace_back(*this, operand, ValueType{to.dtype, to.lanes, {}});
    return [&out = result(s), sources, lanes = static_cast<size_t>(to.lanes)] {
      for (size_t i = 0; i < sources->size(); ++i)
        std::copy_n((*sources)[i].get(), lanes,
                    out.begin() + static_cast<std::ptrdiff_t>(i * lanes));
    };
  }

  template <class ForGpu>
  Step compile(const ForGpu&, const Statement&) {
    fail(codes::kNotForCpu,
         fmt::format("kernel @{} has statements for GPUs, so only the simulator can run it",
                     code_.name));
  }

  // --- Pipelined programs: interpret_pipelined.cpp
  // ---------------------------------------------------------------------------------------------

  static std::vector<RoleCopy> copies_of(const Phase& phase);
  void compile_roles(const Phase& phase, CompiledPhase& compiled);
  bool append_pipelined(const Statement& s, Block& block);
  void append_checks(const Statement& s, Block& block);
  void append_put(const PutOp& op, const Statement& s, Block& block);
  int64_t block_of(const Thread& thread) const {
    return phases_[phase_].copies[thread.copy]->copy.block;
  }
  void run_instance(const CompiledPhase& phase);
  void run_copies(std::vector<Thread>& threads);
  void broken(const Statement* s, const char* rule, const std::string& message);
  void begin_slots(const CompiledPhase& phase);
  ChipRange range_of(const MemoryState& window, MemoryId id) const;
  Step window(const MemoryViewOp& op);
  Step copy(const CopyOp& op, const PutOp& put);
  Step start_dot(const StartDotOp& op, const Statement& s);
  Step wait_dot(const WaitDotOp& op, const Statement& s);
  Step start_store(const StartStoreOp& op);
  Step cluster_fold(const FoldOp& op, const Statement& s);

  const KernelCode& code_;
  const bool skeleton_;
  // By context, and in it by the number in the program.
  std::vector<Bits> values_;
  std::vector<int64_t> flight_;
  std::vector<MemoryState> memories_;
  std::vector<int64_t> symbols_;
  std::vector<CompiledPhase> phases_;
  std::vector<std::pair<std::vector<IndexProgram>, std::vector<IndexProgram>>>
      layouts_;  // shapes, strides
  // Names, while compiling.
  std::unordered_map<std::string, size_t> slots_;
  std::unordered_map<std::string, ValueId> value_of_;
  size_t context_ = 0, field_context_ = 0;
  // The state of a run. Instances are numbered from 1; those up to base_ ended before this phase.
  size_t phase_ = 0;
  uint32_t base_ = 0, instances_ = 0;
  uint64_t store_ = 0;
  Thread* thread_ = nullptr;
  std::optional<Protocol> protocol_;  // of the present instance
  std::map<std::tuple<int64_t, TokenId, int64_t>, std::unordered_set<uint32_t>>
      arrivals_of_turns_;  // by block, token, element
  std::map<std::tuple<const TileRoleOp*, int64_t, int64_t>, std::map<int64_t, Bits>>
      meetings_;  // the blocks' parts
  std::set<std::pair<const Statement*, std::string_view>> rules_seen_;
  std::map<std::pair<MemoryId, int64_t>, std::unordered_set<uint32_t>> arrivals_;
  const Statement* statement_ = nullptr;
  std::vector<Diagnostic> findings_;
  std::set<std::pair<const Statement*, std::string_view>> seen_;
  static constexpr size_t kMostFindings = 50;
  static constexpr uint64_t kMostSkeletonSteps = 4096;
};

}  // namespace braze
