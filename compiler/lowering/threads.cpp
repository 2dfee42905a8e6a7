#include "compiler/lowering/threads.h"

#include <algorithm>
#include <bit>

#include "ir/code/index_program.h"
#include "ir/code/walk.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr int64_t kVectorBytes = 16;

// The number of an element of an array in its thread.
Expr number_in_thread(const ValueType& type) {
  Expr element = type.lanes > 1 ? lane_symbol(type.lanes) : Expr(0);
  int64_t weight = type.lanes;
  for (size_t axis = type.rank(); axis-- > 0; weight *= type.extents[axis])
    if (type.extents[axis] > 1)
      element += position_symbol('e', axis, type.extents[axis]) * Expr(weight);
  return element;
}

}  // namespace

ThreadLowering::ThreadLowering(const TileProgram& program, const Target& target)
    : Lowering(program, target) {
  builder_.fresh_name("tid");
}

// --- Numbers of threads --------------------------------------------------------------------------

const ThreadLowering::Number& ThreadLowering::number_of(const Digit& digit) const {
  if (of_block(digit)) return block_;
  return digit.resource == Resource::Lane ? threads_.back() : threads_.front();
}

// One number for all threads counts them warp by warp.
int64_t ThreadLowering::stride_of(const Digit& digit) const {
  return of_block(digit) || threads_.size() > 1 ? digit.stride : thread_stride(digit);
}

Expr ThreadLowering::part_of(const Number& number, int64_t stride, int64_t extent) {
  return mod(floordiv(number.value, stride), extent);
}

Expr ThreadLowering::digit_value(const Digit& digit) const {
  return part_of(number_of(digit), stride_of(digit), digit.extent);
}

std::vector<Digit> ThreadLowering::numbered(const std::vector<Digit>& digits,
                                            const Number& number) const {
  std::vector<Digit> out;
  std::copy_if(digits.begin(), digits.end(), std::back_inserter(out),
               [&](const Digit& digit) { return &number_of(digit) == &number; });
  std::sort(out.begin(), out.end(),
            [this](const Digit& a, const Digit& b) { return stride_of(a) < stride_of(b); });
  return out;
}

// All digits of the number that are not used must be 0.
Condition ThreadLowering::first_of(const std::vector<Digit>& used, const Number& number) const {
  Condition out;
  int64_t next = 1;  // the stride of the first digit not visited yet
  const auto skip_to = [&](int64_t stride) {
    if (stride > next)
      out.push_back({part_of(number, next, stride / next), IndexComparison::Kind::Eq, 0});
  };
  for (const Digit& digit : numbered(used, number)) {
    skip_to(stride_of(digit));
    next = stride_of(digit) * digit.extent;
  }
  skip_to(number.count);
  return out;
}

Condition ThreadLowering::first_of(const std::vector<Digit>& used) const {
  Condition out;
  for (const Number& number : threads_) {
    const Condition own = first_of(used, number);
    out.insert(out.end(), own.begin(), own.end());
  }
  return out;
}

ThreadLowering::Number ThreadLowering::number_among(const std::vector<Digit>& digits) const {
  Number out;
  for (const Digit& digit : digits) {
    if (of_block(digit)) continue;
    out.value += digit_value(digit) * Expr(out.count);
    out.count *= digit.extent;
  }
  return out;
}

// --- Barriers ------------------------------------------------------------------------------------

void ThreadLowering::wait_for(const Access& access) {
  if (accesses_.needs_barrier(access)) barrier();
  accesses_.note(access);
}

// The accesses of a turn, in the order of memory.
std::vector<Access> ThreadLowering::accesses_of_turn(const ForOp& loop) const {
  std::vector<Access> out;
  const auto note = [&](MemoryId tile, const std::vector<Expr>& at, bool store) {
    if (auto access = shared_access(tile, at, store)) out.push_back(*std::move(access));
  };
  for_each_statement(*loop.body, [&](const Statement& s) {
    if (const auto* load = s.as<LoadOp>()) note(load->memory, load->at, false);
    if (const auto* store = s.as<StoreOp>()) note(store->memory, store->at, true);
    if (const auto* dot = s.as<StartDotOp>())
      for (const MemoryId window : {dot->a_window, dot->b_window})
        if (window) note(window, {}, false);
  });
  std::ranges::stable_sort(
      out, {}, [](const Access& access) { return std::pair(access.memory.index, access.store); });
  return out;
}

void ThreadLowering::enter_loop(const ForOp& loop) {
  std::vector<Access> turn = accesses_of_turn(loop);
  // A store to any slot waits in each turn for that of the turn before, and the loads with it.
  const bool waits_in_turns =
      std::ranges::any_of(turn, [](const Access& access) { return access.store && !access.slot; });
  const std::set<std::string> symbols = symbols_of_turns(loop);
  for (Access& access : turn) access.slot = same_in_turns(access.slot, symbols);
  if (!waits_in_turns && accesses_.waits_before_loop(turn)) barrier();
  enter_turns(loop, turn);
  accesses_.enter_loop(loop, turn, proves_less(uniform(loop.low), uniform(loop.high)) != true);
}

// --- Folds ---------------------------------------------------------------------------------------

ThreadLowering::Folder ThreadLowering::folder(Monoid monoid) {
  return {[this, monoid](const Values& a, const Values& b) {
            return Values{row(info(monoid).combine, {a[0], b[0]})};
          },
          [this, monoid](const Values& all, size_t axis) {
            return Values{builder_.fold(monoid, all[0], {static_cast<int64_t>(axis)})};
          }};
}

ThreadLowering::Folder ThreadLowering::arg_folder(bool is_max) {
  return {[this, is_max](const Values& a, const Values& b) {
            const auto [value, index] = better(is_max, a[0], a[1], b[0], b[1]);
            return Values{value, index};
          },
          [this, is_max](const Values& all, size_t axis) {
            const auto [value, index] = arg_fold_array(is_max, all[0], all[1], axis);
            return Values{value, index};
          }};
}

ThreadLowering::Values ThreadLowering::fold_digit(const Folder& folder, Values values,
                                                  const Digit& digit,
                                                  const std::vector<Digit>& others,
                                                  const Statement& s) {
  if (digit.resource == Resource::Lane) {
    if (!std::has_single_bit(static_cast<uint64_t>(digit.extent)))
      not_lowered(
          fmt::format("a reduction over {} lanes, which is not a power of two,", digit.extent), s);
    for (int64_t step = digit.extent / 2; step >= 1; step /= 2) {
      Values other;
      for (const ValueOperand& value : values) other.push_back(swapped(value, digit.stride * step));
      values = folder.combine(values, other);
    }
    return values;
  }
  const ValueType type = type_of(values[0]);
  std::vector<ValueType> types;
  for (ValueOperand& value : values) {
    types.push_back(type_of(value));
    value = of_block(digit) ? gathered_from_blocks(value, digit, others, s)
                            : gathered(value, digit, others);
  }
  values = folder.fold_array(values, of_block(digit) ? 0 : type.rank());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        of_block(digit) ? ValueOperand(builder_.regroup(values[i], types[i])) : dropped(values[i]);
  return values;
}

// Element n of thread t, of the threads along `others`, lies at (v*count + n)*threads + t for value
// v of the digit.
ValueOperand ThreadLowering::gathered(const ValueOperand& value, const Digit& digit,
                                      const std::vector<Digit>& others) {
  const ValueType type = type_of(value);
  const int64_t count = type.count() * type.lanes;
  const Number thread = number_among(others);
  const Exchange place = exchange(type.dtype, digit.extent * count * thread.count);
  const auto at = [&](const Expr& warp) {
    return place.base + (warp * Expr(count) + number_in_thread(type)) * Expr(thread.count) +
           thread.value;
  };
  std::vector<Digit> storing = others;
  storing.push_back(digit);
  wait_for({place.memory, true});
  builder_.store(value, place.memory, {at(digit_value(digit))}, {first_of(storing), {}});
  wait_for({place.memory, false});
  ValueType all = type;
  all.extents.push_back(digit.extent);
  return builder_.append(
      LoadOp{place.memory, {at(position_symbol('e', type.rank(), digit.extent))}, {}}, {all},
      "warps")[0];
}

ValueOperand ThreadLowering::dropped(const ValueOperand& value) {
  ValueType type = type_of(value);
  if (type.rank() == 1)
    return builder_.append(GetElementOp{value, {0}}, {{type.dtype, type.lanes, {}}}, "get")[0];
  type.extents.pop_back();
  return builder_.view(MovementKind::Reshape, value, type);
}

// --- Tiles in memory -----------------------------------------------------------------------------

Expr ThreadLowering::element_number(const ValueType& tile, const Positions& positions) {
  Expr out;
  for (size_t axis = 0; axis < tile.rank(); ++axis)
    out = out * Expr(tile.extents[axis]) + positions.at("d" + std::to_string(axis));
  return out;
}

void ThreadLowering::store_to_exchange(const Exchange& place, const ValueOperand& value,
                                       ValueId tile) {
  wait_for({place.memory, true});
  builder_.store(value, place.memory,
                 {place.base + element_number(tile_[tile].type, form(tile).positions)},
                 {single_store(tile), {}});
}

ThreadLowering::Scanned ThreadLowering::scan_through_memory(const TileScanOp& op, Tuple parts,
                                                            const Statement& s) {
  const auto axis = static_cast<size_t>(op.axis);
  const int64_t extent = tile_[op.operands[0].value].type.extents[axis];
  std::vector<Exchange> places;
  std::vector<uint64_t> padding, identity;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ValueType& type = tile_[op.operands[i].value].type;
    places.push_back(exchange(type.dtype, type.count()));
    padding.push_back(op.combiner.padding(i, type.dtype));
    identity.push_back(op.combiner.identity(i, type.dtype));
  }
  const auto store_all = [&] {
    for (size_t i = 0; i < parts.size(); ++i)
      store_to_exchange(places[i], parts[i], op.operands[i].value);
  };
  const auto before = [&](int64_t distance, const std::vector<uint64_t>& none) {
    store_all();
    Tuple out;
    for (size_t i = 0; i < parts.size(); ++i) {
      const ValueId tile = op.operands[i].value;
      Form own = form(tile);
      Expr& at = own.positions.at("d" + std::to_string(axis));
      at = op.reverse ? at + distance : at - distance;
      const IndexComparison there = op.reverse
                                        ? IndexComparison{at, IndexComparison::Kind::Lt, extent}
                                        : IndexComparison{at, IndexComparison::Kind::Ge, 0};
      wait_for({places[i].memory, false});
      out.emplace_back(builder_.load(
          places[i].memory, {places[i].base + element_number(tile_[tile].type, own.positions)},
          own.type, {{there}, {}}, none[i]));
    }
    return out;
  };
  for (int64_t distance = 1; distance < extent; distance *= 2)
    parts = combined(op.combiner, before(distance, padding), parts);
  Scanned out;
  if (op.totals) {
    store_all();
    for (size_t i = 0; i < parts.size(); ++i) {
      Form own = form(s.results[parts.size() + i]);
      own.positions.at("d" + std::to_string(axis)) = Expr(op.reverse ? 0 : extent - 1);
      wait_for({places[i].memory, false});
      const ValueType& type = tile_[op.operands[i].value].type;
      out.total.emplace_back(builder_.load(
          places[i].memory, {places[i].base + element_number(type, own.positions)}, own.type));
    }
  }
  out.each = op.exclusive ? before(1, identity) : parts;
  return out;
}

// --- Words ---------------------------------------------------------------------------------------

// Threads exchange 32-bit words. Bools and short integers are converted to them.
bool ThreadLowering::needs_word(DType dtype) { return !is_floating(dtype) && size_of(dtype) < 4; }

ValueOperand ThreadLowering::as_word(const ValueOperand& value) {
  return builder_.row(ElementwiseOp::convert, {value}, DType::I32);
}

ValueOperand ThreadLowering::from_word(const ValueOperand& word, DType dtype) {
  if (dtype == DType::Bool)
    return row(ElementwiseOp::ne, {word, ValueOperand::literal(DType::I32, 0)});
  return builder_.row(ElementwiseOp::convert, {word}, dtype);
}

// Shuffles move 32-bit words, so other values are converted or divided into words.
ValueOperand ThreadLowering::shuffled(Instruction shuffle, const ValueOperand& value,
                                      const Expr& lane) {
  const ValueType type = type_of(value);
  const DType dtype = type.dtype;
  if (type.lanes > 1) {
    const ValueType array{dtype, 1, {type.count() * type.lanes}};
    return builder_.regroup(shuffled(shuffle, builder_.regroup(value, array), lane), type);
  }
  if (needs_word(dtype)) return from_word(shuffled(shuffle, as_word(value), lane), dtype);
  if (size_of(dtype) == 8) {
    const auto convert = [&](const ValueOperand& v, DType to) {
      return ValueOperand(builder_.row(ElementwiseOp::convert, {v}, to));
    };
    const auto bitcast = [&](const ValueOperand& v, DType to) {
      return ValueOperand(builder_.row(ElementwiseOp::bitcast, {v}, to));
    };
    const ValueOperand bits = dtype == DType::I64 ? value : bitcast(value, DType::I64);
    const ValueOperand half = ValueOperand::literal(DType::I64, 32);
    const ValueOperand low = shuffled(shuffle, convert(bits, DType::U32), lane);
    const ValueOperand high =
        shuffled(shuffle, convert(row(ElementwiseOp::shr, {bits, half}), DType::U32), lane);
    const ValueOperand joined =
        row(ElementwiseOp::logical_or,
            {row(ElementwiseOp::shl, {convert(high, DType::I64), half}), convert(low, DType::I64)});
    return dtype == DType::I64 ? joined : bitcast(joined, dtype);
  }
  return builder_.shuffle(shuffle, value, lane);
}

// --- Clusters ------------------------------------------------------------------------------------

// Every block sends its values to all blocks. These count the bytes that arrive. The vectors of
// neighbouring threads lie side by side, in different banks.
ValueOperand ThreadLowering::gathered_from_blocks(const ValueOperand& value, const Digit& digit,
                                                  std::vector<Digit> others, const Statement& s) {
  const ValueType type = type_of(value);
  if (needs_word(type.dtype))
    return from_word(gathered_from_blocks(as_word(value), digit, others, s), type.dtype);
  const int64_t blocks = digit.extent, count = type.count() * type.lanes;
  std::erase_if(others, of_block);
  std::ranges::sort(others, {}, [](const Digit& other) {
    return std::pair(other.resource != Resource::Lane, other.stride);
  });
  const Number thread = number_among(others);
  const int64_t size = blocks * count * thread.count;
  const auto bytes = static_cast<int64_t>(size_of(type.dtype));
  const Meeting meeting = begin_meeting(type.dtype, size, s);
  int64_t together = kVectorBytes / bytes;
  while (count % together != 0) together /= 2;
  const auto at = [&](const Expr& block, const Expr& vector) {
    const Expr number = block * Expr(count / together) + vector;
    return meeting.parts.base + (number * Expr(thread.count) + thread.value) * Expr(together);
  };
  by_first_thread([&] {
    builder_.instruction(Instruction::mbarrier_expect,
                         {Place{meeting.mbarriers, meeting.mbarrier}, Expr(size * bytes)});
  });
  const Expr own = digit_value(digit);
  const ValueType flat{type.dtype, 1, {count}};
  const ValueOperand elements = type == flat ? value : ValueOperand(builder_.regroup(value, flat));
  const auto send_to = [&](const Expr& receiver) {
    const Expr rank = block_.value + (receiver - own) * Expr(digit.stride);
    for (int64_t i = 0; i < count; i += together) {
      const ValueOperand some = together == count ? elements
                                                  : builder_.view(MovementKind::Slice, elements,
                                                                  {type.dtype, 1, {together}}, {i});
      builder_.instruction(Instruction::st_async,
                           {Place{meeting.parts.memory, at(own, i / together), rank}, some,
                            Place{meeting.mbarriers, meeting.mbarrier, rank}});
    }
  };
  // If enough threads side by side hold the same values, each of them sends to one block.
  const Number& neighbours = threads_.back();
  const std::vector<Digit> holding = numbered(others, neighbours);
  const int64_t alike = holding.empty() ? neighbours.count : stride_of(holding.front());
  const bool spare = alike % blocks == 0;
  Condition senders;
  for (const Number& number : threads_) {
    Condition first = first_of(others, number);
    if (spare && &number == &neighbours)
      first[0] = {mod(number.value, alike), IndexComparison::Kind::Lt, blocks};
    senders.insert(senders.end(), first.begin(), first.end());
  }
  const auto send = [&] {
    if (spare)
      return send_to(alike == neighbours.count ? neighbours.value : mod(neighbours.value, blocks));
    for (int64_t receiver = 0; receiver < blocks; ++receiver) send_to(receiver);
  };
  if (senders.empty())
    send();
  else
    builder_.if_then(senders, send);
  builder_.instruction(Instruction::mbarrier_wait,
                       {Place{meeting.mbarriers, meeting.mbarrier}, meeting.parity});
  const auto lanes = static_cast<int32_t>(together);
  const Expr from = at(position_symbol('e', 0, blocks), position_symbol('e', 1, count / together));
  LoadOp load{meeting.parts.memory, {together > 1 ? from + lane_symbol(lanes) : from}, {}};
  load.align = together * bytes;
  const ValueOperand loaded = builder_.append(
      std::move(load), {{type.dtype, lanes, {blocks, count / together}}}, "blocks")[0];
  const ValueOperand all = builder_.regroup(loaded, {type.dtype, 1, {blocks, count}});
  return all;
}

// --- Tickets -------------------------------------------------------------------------------------

// D26: the first thread arrives for all threads.
void ThreadLowering::lower_ticket(const TicketOp& op, const Statement& s) {
  begin_ticket(s);
  const Exchange told = exchange(DType::Bool, 1);
  barrier();
  by_first_thread(
      [&] { arrive(op, [&](ValueId last) { builder_.store(last, told.memory, {told.base}); }); });
  barrier();
  define(s.results[0], builder_.load(told.memory, {told.base}, {DType::Bool, 1, {}}));
  accesses_.note({told.memory, false});
  end_ticket();
}

// The kernels after this one can begin as soon as all blocks of this one have. They wait in turn,
// and take only the room that this one leaves.
void ThreadLowering::lower_await() {
  if (!has_instruction(target_, Instruction::griddep_wait)) return;
  builder_.instruction(Instruction::griddep_launch);
  builder_.instruction(Instruction::griddep_wait);
}

}  // namespace braze
