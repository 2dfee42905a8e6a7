// gpu.cpp — plain tile programs for a GPU: sections 7.3, 7.5 and 10 of
// docs/design/0001-languages.md. An instance is a thread block; a layout says which of its threads
// holds each element of a tile, in which register.
//
// A tile keeps its axes: the outermost register digit of an axis is an extent of the array, the
// innermost one of the last axis are the lanes of vector accesses.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/lowering/lowering.h"
#include "ir/code/layout.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr Code kSharedMemory{"shared-memory", ErrorKind::Unsupported,
                             "A kernel needs more on-chip storage than a block can have."};
constexpr Code kLayouts{"layouts-disagree", ErrorKind::InvalidArgument,
                        "The layouts of a tile program put tiles that meet in different places."};
constexpr int64_t kDefaultWarps = 4;
constexpr int64_t kSharedAlign = 128;

// How an axis's digits lie: an array in registers, threads, lanes of a vector access.
struct AxisDigits {
  int64_t array = 1;
  std::vector<Digit> threads;  // the most significant first
  int64_t lanes = 1;
};

class GpuLowering : public Lowering {
 public:
  GpuLowering(const TileProgram& program, const Target& target)
      : Lowering(program, target),
        threads_((program.warps > 0 ? program.warps : kDefaultWarps) * kWarpThreads),
        thread_(thread_symbol(threads_)) {
    builder_.fresh_name("tid");
  }

 private:
  void begin_phase(Phase& lowered) override {
    lowered.block = threads_;
    lowered.registers = tile_.registers;
    shared_ = 0;
    pending_.clear();
    exchanges_.clear();
    note_private_buffers(tile_.phases[kernel_.phases.size()].body);
  }
  void end_phase(Phase& lowered) override {
    lowered.shared_bytes = shared_;
    if (shared_ <= target_.l1_bytes) return;
    fail(kSharedMemory,
         fmt::format("kernel @{} needs {} bytes of shared memory; {} has {} for a block",
                     tile_.name, shared_, target_.name, target_.l1_bytes),
         {{}, {}, "choose a schedule with smaller tiles"});
  }

  // --- Layouts ----------------------------------------------------------------------------------

  const Layout& layout(const ValueType& tile) const {
    auto [found, added] = layouts_.try_emplace(tile.extents);
    if (added) found->second = layout_of(tile_.layouts, tile.extents, threads_);
    return found->second;
  }

  // The elements of `part` must lie where those of `whole` do: every axis that it has.
  void check_agrees(const ValueType& part, const ValueType& whole, const Statement& s) const {
    for (size_t axis = 0; axis < part.rank() && part.rank() == whole.rank(); ++axis) {
      if (part.extents[axis] == 1 || part.extents[axis] != whole.extents[axis]) continue;
      const auto own = digits(part, axis), other = digits(whole, axis);
      if (own.array == other.array && own.threads == other.threads && own.lanes == other.lanes)
        continue;
      fail(kLayouts,
           fmt::format("kernel @{}: axis {} of {} lies at {}, that of {} at {}", tile_.name, axis,
                       part.to_string(), layout(part).to_string(), whole.to_string(),
                       layout(whole).to_string()),
           {s.location, {}, "define a layout that fits both, before others"});
    }
  }

  void check_row(const RowOp& op, const Statement& s) const override {
    for (const Operand& operand : op.operands)
      if (!operand.is_literal()) check_agrees(tile_[operand.value].type, result_type(s), s);
  }

  AxisDigits digits(const ValueType& tile, size_t axis) const {
    AxisDigits out;
    const std::vector<Digit>& list = layout(tile).axes[axis];
    for (size_t i = 0; i < list.size(); ++i) {
      const bool last = axis + 1 == tile.rank() && i + 1 == list.size();
      if (is_thread_digit(list[i])) {
        out.threads.push_back(list[i]);
      } else if (last && list[i].stride == 1) {
        out.lanes = list[i].extent;
      } else if (i == 0) {
        out.array = list[i].extent;
      } else {
        fail(codes::kInternal, fmt::format("layout {} has no plain form", layout(tile).to_string()),
             {.node = tile_.name});
      }
    }
    return out;
  }

  ValueType lower_type(const ValueType& tile) const override {
    ValueType out = tile;
    for (size_t axis = 0; axis < tile.rank(); ++axis) {
      const AxisDigits own = digits(tile, axis);
      out.extents[axis] = own.array;
      if (axis + 1 == tile.rank()) out.lanes = static_cast<int32_t>(own.lanes);
    }
    return out;
  }

  bool padded(const ValueType&, const ValueType&) const override { return false; }

  // Where a bound is a multiple of the lanes, as what precedes it, it parts no vector.
  Condition per_vector(Condition condition, int32_t lanes) const override {
    const auto begins = [&](const Expr& e) {
      const Expr first = e.substitute("lane", 0);
      return first.is_multiple_of(lanes) &&
             (e - first == Expr(0) || e - first == lane_symbol(lanes));
    };
    for (IndexComparison& c : condition) {
      if (lanes == 1 || !begins(c.left) || !begins(c.right)) continue;
      const bool below = c.kind == IndexComparison::Kind::Lt && !c.right.uses("lane");
      const bool above = c.kind == IndexComparison::Kind::Le && !c.left.uses("lane");
      if (below) c.left = c.left.substitute("lane", 0);
      if (above) c.right = c.right.substitute("lane", 0);
    }
    return condition;
  }

  // The value of a thread digit in this thread.
  Expr thread_value(int64_t stride, int64_t extent) const {
    return mod(floordiv(thread_, stride), extent);
  }

  // D3: the sum of the digits' values times their weights.
  Expr position(size_t axis, const ValueType& tile, const ValueType&) const override {
    const AxisDigits own = digits(tile, axis);
    Expr sum;
    int64_t weight = 1;
    if (own.lanes > 1) sum += lane_symbol(static_cast<int32_t>(own.lanes));
    weight *= own.lanes;
    // Digits whose threads follow each other are one digit.
    for (size_t i = own.threads.size(); i-- > 0;) {
      const int64_t stride = thread_stride(own.threads[i]);
      int64_t extent = own.threads[i].extent;
      while (i > 0 && thread_stride(own.threads[i - 1]) == stride * extent)
        extent *= own.threads[--i].extent;
      sum += thread_value(stride, extent) * Expr(weight);
      weight *= extent;
    }
    if (own.array > 1) sum += position_symbol('e', axis, own.array) * Expr(weight);
    return sum;
  }

  std::vector<Digit> thread_digits(const ValueType& tile) const {
    std::vector<Digit> out;
    for (const std::vector<Digit>& axis : layout(tile).axes)
      std::copy_if(axis.begin(), axis.end(), std::back_inserter(out), is_thread_digit);
    return out;
  }

  // D5: of the threads that hold an element, one stores it.
  Condition single_store(const ValueType& tile) const override {
    return first_of(thread_digits(tile));
  }

  // Of threads that agree in the digits `used`, the first: all other digits are 0.
  Condition first_of(std::vector<Digit> used) const {
    std::sort(used.begin(), used.end(),
              [](const Digit& a, const Digit& b) { return thread_stride(a) < thread_stride(b); });
    Condition out;
    int64_t next = 1;  // stride of the first thread digit not looked at
    const auto skip_to = [&](int64_t stride) {
      if (stride > next)
        out.push_back({thread_value(next, stride / next), IndexComparison::Kind::Eq, 0});
    };
    for (const Digit& digit : used) {
      skip_to(thread_stride(digit));
      next = thread_stride(digit) * digit.extent;
    }
    skip_to(threads_);
    return out;
  }

  // --- Shared memory and barriers ---------------------------------------------------------------

  void place_buffer(Memory& lowered, int64_t bytes) override {
    lowered.space = MemorySpace::Shared;
    lowered.scratch_offset = shared_;
    shared_ += (bytes + kSharedAlign - 1) / kSharedAlign * kSharedAlign;
  }

  // Memory through which values may pass between the threads of a block.
  static bool passes_values(const Memory& memory) {
    return memory.space != MemorySpace::Parameter || memory.mode != Mode::In;
  }

  // The slots of such memory that were touched since the last barrier; nullopt: any of them.
  using Slots = std::vector<std::optional<Expr>>;
  struct Pending {
    Slots stored, loaded;
    void add(const Pending& more) {
      for (const auto& slot : more.stored) insert(stored, slot);
      for (const auto& slot : more.loaded) insert(loaded, slot);
    }
    static void insert(Slots& slots, const std::optional<Expr>& slot) {
      if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(slot);
    }
    static Pending everything() { return {{std::nullopt}, {std::nullopt}}; }
  };
  static bool may_meet(const std::optional<Expr>& a, const std::optional<Expr>& b) {
    if (!a || !b) return true;
    const Expr difference = *a - *b;
    return difference.range().contains(0) && !mod(difference, 2).is_constant(1);
  }
  static bool may_meet(const Slots& slots, const std::optional<Expr>& slot) {
    return std::any_of(slots.begin(), slots.end(),
                       [&](const auto& touched) { return may_meet(touched, slot); });
  }

  // D16. A buffer whose elements are each touched by one thread only needs no barrier.
  void before_access(MemoryId memory, bool store, const std::optional<Expr>& slot) override {
    if (!passes_values(kernel_[memory]) || is_private(memory)) return;
    // What the turn before did to memory that a loop declares.
    if (seen_.insert(memory).second && !loops_.empty()) pending_[memory] = Pending::everything();
    const Pending& before = pending_[memory];
    if (may_meet(before.stored, slot) || (store && may_meet(before.loaded, slot))) barrier();
    Pending& now = pending_[memory];
    Pending::insert(store ? now.stored : now.loaded, slot);
  }

  // A loop whose turns are being lowered.
  struct Turns {
    std::set<std::string> symbols;        // that differ between turns
    std::map<MemoryId, Pending> skipped;  // what is pending if no turn runs
  };

  // What a turn does is pending when the next begins. Loads of what was stored before the loop
  // take one barrier in front of it.
  void enter_loop(const ForOp& loop) override {
    Turns turns{{loop.symbol}, {}};
    for_each_statement(*loop.body, [&](const Statement& s) {
      if (const auto* let = s.as<LetOp>()) turns.symbols.insert(let->symbol);
      if (const auto* inner = s.as<ForOp>()) turns.symbols.insert(inner->symbol);
    });
    std::map<MemoryId, Pending> turn;
    for_each_statement(*loop.body, [&](const Statement& s) {
      if (const auto* load = s.as<LoadOp>())
        note_access(load->memory, load->at, turns,
                    [&](MemoryId memory, const std::optional<Expr>& slot) {
                      Pending::insert(turn[memory].loaded, slot);
                    });
      if (const auto* store = s.as<StoreOp>())
        note_access(store->memory, store->at, turns,
                    [&](MemoryId memory, const std::optional<Expr>& slot) {
                      Pending::insert(turn[memory].stored, slot);
                    });
    });
    for (const auto& [memory, done] : turn) {
      const Slots& stored = pending_[memory].stored;
      const bool waits = std::any_of(done.loaded.begin(), done.loaded.end(),
                                     [&](const auto& slot) { return may_meet(stored, slot); });
      if (waits && done.stored.empty()) barrier();
    }
    if (proves_less(loop.low, loop.high) != true) turns.skipped = pending_;
    for (const auto& [memory, done] : turn) pending_[memory].add(done);
    for (const MemoryId exchange : exchanges_) pending_[exchange] = Pending::everything();
    loops_.push_back(std::move(turns));
  }

  template <class F>
  void note_access(MemoryId tile_memory, const std::vector<Expr>& at, const Turns& turns,
                   const F& note) {
    const MemoryId memory = memories_[tile_memory.index];
    if (!memory || !passes_values(tile_[tile_memory]) || is_private(memory)) return;
    seen_.insert(memory);
    note(memory, within(uniform_slot(at), turns));
  }
  // The slot, if it is the same in all turns.
  static std::optional<Expr> within(const std::optional<Expr>& slot, const Turns& turns) {
    if (!slot) return std::nullopt;
    const auto names = slot->symbols();
    const bool differs = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return turns.symbols.contains(name);
    });
    return differs ? std::nullopt : slot;
  }

  void leave_loop() override {
    const Turns turns = std::move(loops_.back());
    loops_.pop_back();
    for (auto& [memory, pending] : pending_)
      for (Slots* slots : {&pending.stored, &pending.loaded})
        for (std::optional<Expr>& slot : *slots) slot = within(slot, turns);
    for (const auto& [memory, before] : turns.skipped) pending_[memory].add(before);
  }

  static void for_each_statement(const Region& region,
                                 const std::function<void(const Statement&)>& visit) {
    for (const Statement& s : region.statements) {
      visit(s);
      for (const Region* inner : regions_of(s)) for_each_statement(*inner, visit);
    }
  }

  void barrier() {
    builder_.barrier(0, threads_);
    pending_.clear();
  }

  // Memory of the tile program whose every access gives each element to the same thread: at
  // (base + d_k) with one layout, bases being multiples of the tile's extents.
  void note_private_buffers(const Region& phase) {
    private_.clear();
    std::map<uint32_t, std::vector<int64_t>> shape;  // of the tiles that access a memory
    std::map<uint32_t, bool> shared;
    const auto note = [&](MemoryId memory, const std::vector<Expr>& at, const ValueType& tile) {
      if (!passes_values(tile_[memory])) return;
      const auto [known, added] = shape.try_emplace(memory.index, tile.extents);
      bool own = known->second == tile.extents && at.size() == tile.rank();
      int64_t threads = 1;
      for (const Digit& digit : thread_digits(tile)) threads *= digit.extent;
      own = own && threads == threads_;
      for (size_t axis = 0; own && axis < at.size(); ++axis) {
        const std::string d = "d" + std::to_string(axis);
        const Expr base = at[axis].substitute(d, 0);
        own = base.is_multiple_of(tile.extents[axis]) &&
              (tile.extents[axis] == 1 ||
               at[axis].coefficient_of(d).value_or(Expr(0)).is_constant(1));
      }
      shared[memory.index] = shared[memory.index] || !own;
    };
    std::set<MemoryId> loaded, stored;
    for_each_statement(phase, [&](const Statement& s) {
      if (const auto* load = s.as<LoadOp>()) {
        loaded.insert(load->memory);
        note(load->memory, load->at, result_type(s));
      }
      if (const auto* store = s.as<StoreOp>()) {
        stored.insert(store->memory);
        if (!store->value.is_literal())
          note(store->memory, store->at, tile_[store->value.value].type);
      }
    });
    // Of device memory, what is only loaded or only stored passes nothing between threads.
    const auto one_way = [&](MemoryId id) {
      return tile_[id].space != MemorySpace::Local && !(loaded.contains(id) && stored.contains(id));
    };
    for (const auto& [memory, is_shared] : shared)
      if (!is_shared || one_way(MemoryId(memory))) private_.push_back(MemoryId(memory));
  }
  bool is_private(MemoryId memory) const {
    return std::any_of(private_.begin(), private_.end(),
                       [&](MemoryId tile) { return memories_[tile.index] == memory; });
  }

  // A place for values that pass between threads, of its own for each exchange: only the turns of a
  // loop share one.
  MemoryId exchange(DType dtype, int64_t count) {
    Memory memory{.name = "exchange",
                  .space = MemorySpace::Local,
                  .mode = Mode::InOut,
                  .dtype = dtype,
                  .shape = {Expr(count)}};
    place_buffer(memory, count * static_cast<int64_t>(size_of(dtype)));
    const MemoryId id = builder_.add_memory(std::move(memory));
    builder_.append(BufferOp{id}, {});
    exchanges_.push_back(id);
    return id;
  }

  // --- Reductions: D6 ---------------------------------------------------------------------------

  // The tile type with an axis folded.
  static ValueType folded(ValueType tile, size_t axis) {
    tile.extents[axis] = 1;
    return tile;
  }

  void lower_fold(const FoldOp& op, const Statement& s) override {
    Operand value = mapped(op.operand);
    ValueType tile = tile_[op.operand.value].type;
    for (const int64_t at : op.axes) {
      const auto axis = static_cast<size_t>(at);
      const AxisDigits own = digits(tile, axis);
      if (own.array > 1) value = builder_.fold(op.monoid, value, {at});
      std::vector<Digit> others = thread_digits(folded(tile, axis));
      others.insert(others.end(), own.threads.begin(), own.threads.end());
      for (const Digit& digit : own.threads) {
        others.erase(std::find(others.begin(), others.end(), digit));
        if (digit.resource == Resource::Warp) {
          const Operand all = gathered(value, digit, others);
          const auto last = static_cast<int64_t>(type_of(value).rank());
          value = dropped(builder_.fold(op.monoid, all, {last}));
        } else {
          for (int64_t step = digit.extent / 2; step >= 1; step /= 2)
            value = row(info(op.monoid).combine, {value, swapped(value, digit.stride * step)});
        }
      }
      if (own.lanes > 1) value = fold_lanes(op.monoid, value);
      check_agrees(folded(tile, axis), tile, s);
      tile = folded(std::move(tile), axis);
    }
    define(s.results[0], value);
  }

  void lower_arg_fold(const ArgFoldOp& op, const Statement& s) override {
    BRAZE_CHECK(op.axes.size() == 1, "an arg-reduction has one axis");
    const auto axis = static_cast<size_t>(op.axes[0]);
    const ValueType& tile = tile_[op.values.value].type;
    Operand values = mapped(op.values), indices = mapped(op.indices);
    indices = splat_to(indices, type_of(values));
    const AxisDigits own = digits(tile, axis);
    check_agrees(folded(tile, axis), tile, s);
    // The winner does not depend on the order: what is near comes first.
    std::tie(values, indices) = arg_fold_array(op.is_max, values, indices, axis);
    if (own.lanes > 1) std::tie(values, indices) = arg_fold_lanes(op.is_max, values, indices);
    std::vector<Digit> others = thread_digits(folded(tile, axis));
    others.insert(others.end(), own.threads.begin(), own.threads.end());
    for (const Digit& digit : own.threads) {
      others.erase(std::find(others.begin(), others.end(), digit));
      if (digit.resource == Resource::Warp) {
        const Operand all_values = gathered(values, digit, others);
        const Operand all_indices = gathered(indices, digit, others);
        std::tie(values, indices) =
            arg_fold_array(op.is_max, all_values, all_indices, type_of(values).rank());
        values = dropped(values);
        indices = dropped(indices);
      } else {
        for (int64_t step = digit.extent / 2; step >= 1; step /= 2) {
          const int64_t distance = digit.stride * step;
          std::tie(values, indices) = better(op.is_max, values, indices, swapped(values, distance),
                                             swapped(indices, distance));
        }
      }
    }
    define(s.results[0], values);
    define(s.results[1], indices);
  }

  // The values of all warps along `digit`, as one more array axis. `others` are the digits whose
  // threads hold other elements.
  Operand gathered(const Operand& value, const Digit& digit, const std::vector<Digit>& others) {
    const ValueType type = type_of(value);
    int64_t threads = 1;
    Expr thread;
    for (const Digit& other : others) {
      thread += thread_value(thread_stride(other), other.extent) * Expr(threads);
      threads *= other.extent;
    }
    // Element n of thread t of warp w lies at (w*count + n)*threads + t.
    const int64_t count = type.count() * type.lanes;
    const MemoryId place = exchange(type.dtype, digit.extent * count * threads);
    Expr element = type.lanes > 1 ? lane_symbol(type.lanes) : Expr(0);
    int64_t weight = type.lanes;
    for (size_t axis = type.rank(); axis-- > 0; weight *= type.extents[axis])
      if (type.extents[axis] > 1)
        element += position_symbol('e', axis, type.extents[axis]) * Expr(weight);
    const auto at = [&](const Expr& warp) {
      return (warp * Expr(count) + element) * Expr(threads) + thread;
    };
    before_access(place, /*store=*/true, {});
    std::vector<Digit> storing = others;
    storing.push_back(digit);
    builder_.append(StoreOp{value,
                            place,
                            {at(thread_value(thread_stride(digit), digit.extent))},
                            Guard{first_of(storing), {}},
                            0,
                            CacheHint::None},
                    {});
    before_access(place, /*store=*/false, {});
    ValueType all = type;
    all.extents.push_back(digit.extent);
    return builder_.append(LoadOp{place,
                                  {at(position_symbol('e', type.rank(), digit.extent))},
                                  {},
                                  0,
                                  0,
                                  CacheHint::None},
                           {all}, "warps")[0];
  }

  // Without its last array axis, of extent 1.
  Operand dropped(const Operand& value) {
    ValueType type = type_of(value);
    type.extents.pop_back();
    return builder_.view(ViewKind::Reshape, value, type);
  }

  // --- Views ------------------------------------------------------------------------------------

  // A digit of the flattened tile, neighbours that count on joined.
  struct FlatDigit {
    bool threads = false;
    int64_t stride = 0;  // of threads
    int64_t extent = 1;
    friend bool operator==(const FlatDigit&, const FlatDigit&) = default;
  };
  std::vector<FlatDigit> flattened(const ValueType& tile) const {
    std::vector<FlatDigit> out;
    for (const std::vector<Digit>& axis : layout(tile).axes) {
      for (const Digit& digit : axis) {
        const bool threads = is_thread_digit(digit);
        const FlatDigit next{threads, threads ? thread_stride(digit) : 0, digit.extent};
        const bool joins = !out.empty() && out.back().threads == threads &&
                           (!threads || out.back().stride == next.stride * next.extent);
        if (joins) {
          out.back().stride = next.stride;
          out.back().extent *= next.extent;
        } else {
          out.push_back(next);
        }
      }
    }
    return out;
  }

  bool renames(const ViewOp& op, const ValueType& from, const ValueType& to) const override {
    if (op.kind == ViewKind::Slice) return slices_registers(from, to);
    return op.kind == ViewKind::Reshape && flattened(from) == flattened(to) &&
           lower_type(from).lanes == lower_type(to).lanes;
  }

  // Whether every axis that is cut lies in the registers of each thread.
  bool slices_registers(const ValueType& from, const ValueType& to) const {
    for (size_t axis = 0; axis < from.rank(); ++axis) {
      const AxisDigits own = digits(from, axis), other = digits(to, axis);
      if (own.threads != other.threads) return false;
      if (from.extents[axis] == to.extents[axis])
        if (own.array != other.array || own.lanes != other.lanes) return false;
      if (from.extents[axis] != to.extents[axis])
        if (!own.threads.empty() || (own.lanes != other.lanes && to.extents[axis] > 1))
          return false;
    }
    return true;
  }

  Operand rename(const ViewOp& op, const Operand& value, const Statement& s) override {
    if (op.kind != ViewKind::Slice) return Lowering::rename(op, value, s);
    const ValueType to = lower_type(result_type(s));
    const int32_t lanes = type_of(value).lanes;
    std::vector<int64_t> at = op.arguments;
    const int64_t lane = at.back() % lanes;
    at.back() /= lanes;
    ValueType part = to;
    part.lanes = lanes;
    const Operand cut =
        part == type_of(value) ? value : Operand(builder_.view(ViewKind::Slice, value, part, at));
    return to.lanes == lanes ? cut : Operand(emit(LaneOp{false, cut, {}, lane}, to, s));
  }

  // Threads of a warp then read a column from different banks, which are 4 bytes wide.
  int64_t row_padding(const ValueType& tile) const override {
    return std::max<int64_t>(4 / static_cast<int64_t>(size_of(tile.dtype)), 1);
  }

  // --- Tickets: D26 -----------------------------------------------------------------------------

  void lower_ticket(const TicketOp& op, const Statement& s) override {
    const MemoryId counter = memories_[op.memory.index];
    const Expr at = offset(op.memory, op.at, renamed_);
    const MemoryId result = exchange(DType::Bool, 1);
    const ValueType i32{DType::I32, 1, {}};
    barrier();
    IfOp first;
    first.condition = {{thread_, IndexComparison::Kind::Eq, 0}};
    Region then;
    builder_.enter(then);
    const ValueId one = builder_.constant(i32, 1);
    const ValueId before =
        builder_.append(AtomicOp{false, counter, at, one, true}, {i32}, "arrived")[0];
    const ValueId count = builder_.iota(uniform(op.count) - 1, i32);
    const ValueId last = builder_.row(ElementwiseOp::eq, {before, count});
    builder_.store(last, result, {0});
    IfOp reset;
    reset.flag = last;
    Region zero;
    builder_.enter(zero);
    builder_.store(builder_.constant(i32, 0), counter, {at});
    builder_.leave();
    reset.then = std::move(zero);
    builder_.append(std::move(reset), {});
    builder_.leave();
    first.then = std::move(then);
    builder_.append(std::move(first), {});
    barrier();
    define(s.results[0], builder_.load(result, {0}, {DType::Bool, 1, {}}));
    Pending::insert(pending_[result].loaded, std::nullopt);
  }

  const int64_t threads_;
  const Expr thread_;
  mutable std::map<std::vector<int64_t>, Layout> layouts_;  // by extents of tiles
  int64_t shared_ = 0;
  std::map<MemoryId, Pending> pending_;
  std::vector<MemoryId> exchanges_;
  std::vector<MemoryId> private_;  // of the tile program
  std::set<MemoryId> seen_;        // shared objects that were accessed
  std::vector<Turns> loops_;       // the innermost last
};

}  // namespace

Kernel lower_for_gpu(const TileProgram& program, const Target& target) {
  return GpuLowering(program, target).run();
}

}  // namespace braze
