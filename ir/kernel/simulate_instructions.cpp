// simulate_instructions.cpp — the effect of each row of the instruction table on the simulated GPU.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ir/code/walk.h"
#include "ir/kernel/matrix_layout.h"
#include "ir/kernel/simulate_p.h"
#include "ir/support/text.h"
#include "ir/values/half.h"

namespace braze {

namespace {

constexpr int64_t kMostBytes = (1 << 20) - 1;  // that an mbarrier can count
constexpr int64_t kChunk = 16;                 // bytes that no swizzle separates

template <class Visit>
void for_each_lane(uint32_t mask, const Visit& visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<size_t>(std::countr_zero(mask)));
}

float number(uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return bf16_to_float(static_cast<uint16_t>(bits));
    case DType::F16:
      return f16_to_float(static_cast<uint16_t>(bits));
    default: {  // tf32: the low bits of an f32 do not count
      const auto word = static_cast<uint32_t>(bits);
      const bool finite = (word & 0x7f800000) != 0x7f800000;
      return std::bit_cast<float>(finite ? word & 0xffffe000 : word);
    }
  }
}
uint64_t float_bits(float value) {
  return std::bit_cast<uint32_t>(std::isnan(value) ? std::numeric_limits<float>::quiet_NaN()
                                                   : value);
}
float float_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

// A small matrix of `Element`s in row-major order.
template <class Element>
struct MatrixOf {
  size_t rows, columns;
  std::vector<Element> elements;
  MatrixOf(size_t r, size_t c) : rows(r), columns(c), elements(r * c) {}
  Element& at(size_t row, size_t column) { return elements[row * columns + column]; }
  Element at(size_t row, size_t column) const { return elements[row * columns + column]; }
};
using Matrix = MatrixOf<float>;

// c += a * b, the contracted axis in ascending order.
template <class Element>
void multiply(const MatrixOf<Element>& a, const MatrixOf<Element>& b, MatrixOf<Element>& c) {
  for (size_t i = 0; i < c.rows; ++i)
    for (size_t k = 0; k < a.columns; ++k) {
      const Element x = a.at(i, k);
      for (size_t j = 0; j < c.columns; ++j) c.at(i, j) = std::fma(x, b.at(k, j), c.at(i, j));
    }
}

}  // namespace

// The operands of an instruction, ready to be evaluated.
struct Simulator::Engine::Operands {
  struct One {
    WarpIndex index;  // an integer, or the element of a place
    std::optional<WarpIndex> rank;
    std::vector<WarpIndex> at;  // coordinates of a tensor map
    MemoryId memory;
    std::optional<MatrixLayout> matrix;
    ValueId value;
    TensorMapId map;
  };
  std::vector<One> all;
  std::vector<ValueId> results;
  std::vector<ValueId> reads;  // values that must be settled
  int64_t columns = 0;
  Instruction instruction{};

  int64_t integer(size_t i, const Warp& w, size_t lane) const {
    return all[i].index.threads(w.scope())[lane];
  }
  int64_t constant(size_t i, const Warp& w) const { return all[i].index.scalar(w.scope()); }
};

auto Simulator::Engine::operands(const InstructionOp& op, const Statement& s)
    -> std::shared_ptr<Operands> {
  auto out = std::make_shared<Operands>();
  out->results = s.results;
  out->columns = op.columns;
  out->instruction = op.instruction;
  for (const InstructionOperand& operand : op.operands) {
    Operands::One& one = out->all.emplace_back();
    if (const auto* value = std::get_if<ValueOperand>(&operand)) {
      one.value = value->value;
    } else if (const auto* integer = std::get_if<Expr>(&operand)) {
      one.index = index(*integer);
    } else if (const auto* place = std::get_if<Place>(&operand)) {
      one.memory = place->memory;
      one.index = index(place->at);
      if (place->rank) one.rank = index(*place->rank);
      one.matrix = place->matrix;
    } else {
      const auto& map = std::get<MapPlace>(operand);
      one.map = map.map;
      for (const Expr& e : map.at) one.at.push_back(index(e));
    }
  }
  const InstructionResult result = info(op.instruction).result;
  const bool asynchronous = info(op.instruction).meeting == Meeting::Group;
  for (const auto& one : out->all) {
    // Accumulators and tied values may be undefined or in flight, because they are only passed on.
    const bool passed =
        result == InstructionResult::Tied || (asynchronous && one.value == out->all[2].value);
    if (one.value && !passed) out->reads.push_back(one.value);
  }
  return out;
}

// --- mbarriers

void Simulator::Engine::advance(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.told.join(barrier.arriving);
  barrier.arriving.clear();
  ++barrier.phase;
  barrier.told.learn(barrier.agent, barrier.phase);
  barrier.pending = barrier.count;
  if (barrier.phase >= barrier.waited + 2)
    report(codes::kMbarrierMisuse,
           barrier.name + " completes a second phase before any thread has waited for the first");
}

void Simulator::Engine::complete_bytes(Mbarrier& barrier, int64_t bytes, Warp& warp, int lane) {
  barrier.copied = barrier.phase + 1;
  barrier.bytes -= bytes;
  if (std::abs(barrier.bytes) > kMostBytes)
    report(codes::kMbarrierBytes,
           fmt::format(
               "the bytes of {} are {} away from zero, which is more than an mbarrier can count",
               barrier.name, std::abs(barrier.bytes)),
           &warp, lane);
  advance(barrier);
}

void Simulator::Engine::arrive(Mbarrier& barrier, Warp& warp, uint32_t lanes) {
  const int lane = std::countr_zero(lanes);
  if (barrier.pending == 0) {
    report(codes::kMbarrierMisuse,
           fmt::format("{} gets more than the {} arrivals of a phase", barrier.name, barrier.count),
           &warp, lane);
    return;
  }
  barrier.arriving.join(warp.clock.release(lanes));
  --barrier.pending;
  advance(barrier);
}

Mbarrier* Simulator::Engine::mbarrier_at(Operands& operands, size_t operand, Warp& warp,
                                         size_t lane, bool by_others) {
  const auto& one = operands.all[operand];
  const Memory& memory = code_[one.memory];
  const int64_t element = one.index.threads(warp.scope())[lane];
  const int64_t length = lengths_[one.memory.index].scalar(warp.scope());
  const auto thread = static_cast<int>(lane);
  if (element < 0 || element >= length) {
    report(codes::kOutOfBounds,
           fmt::format("{} is used, but the length is {}", place_text(one.memory, element), length),
           &warp, thread);
    return nullptr;
  }
  Block* block = warp.block;
  if (one.rank) block = block_of_rank(one.rank->threads(warp.scope())[lane], warp, thread);
  if (!block) return nullptr;
  const auto found = block->mbarriers.find(memory.scratch_offset + 8 * element);
  if (found == block->mbarriers.end()) {
    report(codes::kMbarrierMisuse,
           place_text(one.memory, element) + " is used before its mbarrier.init", &warp, thread);
    return nullptr;
  }
  Mbarrier& barrier = found->second;
  const Warp* const self = &warp;
  if (!knows(thread_actor(warp, &self, lane), barrier.init))
    report(codes::kThreadRace,
           barrier.name + " is used here, and nothing ensures that its mbarrier.init came before",
           &warp, thread);
  if ((by_others || block != warp.block) && !barrier.fenced)
    report(codes::kNoProxyFence, barrier.name + " is used without a fence.mbarrier_init", &warp,
           thread);
  return &barrier;
}

// --- Copies

ThreadCopies& Simulator::Engine::copies_of(Warp& warp, size_t lane) {
  const auto [found, made] = warp.copies.try_emplace(lane);
  if (made) {
    found->second.agent = new_agent();
    found->second.bulk_agent = new_agent();
    new_agent();  // the agent bulk_agent + 1 is for the writes of bulk stores
  }
  return found->second;
}

// Moves a tensor map's box between device memory and `byte` of a block's shared memory.
void Simulator::Engine::copy_box(const TensorMap& map, const std::vector<int64_t>& corner,
                                 Block& block, int64_t byte, const Actor& device,
                                 const Actor& shared, bool load, Warp& warp, int lane) {
  const size_t rank = map.box.size();
  const auto size = static_cast<int64_t>(size_of(map.dtype));
  // Elsewhere a machine of compute capability 9.0 stops with an illegal instruction.
  if (corner[rank - 1] * size % kChunk != 0)
    report(
        codes::kMisaligned,
        fmt::format("the box begins {} bytes after the begin of a row, which is no multiple of {}",
                    corner[rank - 1] * size, kChunk),
        &warp, lane);
  const TensorMapLayout& layout = maps_[static_cast<size_t>(&map - code_.tensor_maps.data())];
  std::vector<int64_t> extents;
  for (const WarpIndex& extent : layout.extents)
    extents.push_back(extent.scalar({&symbols_, nullptr}));
  const int64_t length = memories_[map.memory.index].length;
  std::byte* const data = memories_[map.memory.index].data;
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < rank; ++axis) rows *= map.box[axis];
  const int64_t inner = map.box[rank - 1], per_chunk = kChunk / size;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row, offset = 0, stride = extents[rank - 1];
    bool inside = true;
    for (size_t axis = rank - 1; axis-- > 0; rest /= map.box[axis], stride *= extents[axis]) {
      const int64_t at = corner[axis] + rest % map.box[axis];
      inside &= at >= 0 && at < extents[axis];
      offset += at * stride;
    }
    for (int64_t c = 0; c < inner; c += per_chunk) {
      const int64_t linear = byte + (row * inner + c) * size, place = swizzled(linear, map.swizzle);
      touch_shared(block, place, kChunk, shared, load, warp, lane);
      if (place < 0 || place + kChunk > static_cast<int64_t>(block.shared.size())) return;
      std::byte* const chunk = block.shared.data() + place;
      for (int64_t i = 0; i < per_chunk; ++i) {
        const int64_t column = corner[rank - 1] + c + i, element = offset + column;
        const bool exists = inside && column >= 0 && column < extents[rank - 1];
        std::byte* const at = chunk + i * size;
        if (!exists) {
          if (load) std::memset(at, 0, static_cast<size_t>(size));
          continue;
        }
        if (element >= length) {
          report(codes::kOutOfBounds,
                 place_text(map.memory, element) + " is copied, but is outside of the tensor",
                 &warp, lane);
          continue;
        }
        touch_device(map.memory, element, device, !load, warp, lane);
        if (load)
          std::memcpy(at, data + element * size, static_cast<size_t>(size));
        else
          std::memcpy(data + element * size, at, static_cast<size_t>(size));
      }
    }
  }
}

Status Simulator::Engine::group_meets(Warp& warp,
                                      const std::function<void(std::span<Warp* const>)>& run) {
  WarpGroup& group = warp.block->groups[warp.index / kGroupWarps];
  if (warp.stage != 0) return group.meetings == warp.meeting ? Status::Blocked : Status::Next;
  if (group.at && group.at != step_) {
    report(codes::kDivergence, "the warps of a group execute different statements here", &warp);
    stopped_ = true;
    return Status::Blocked;
  }
  group.at = step_;
  if (++group.arrived < kGroupWarps) {
    warp.stage = 1;
    warp.meeting = group.meetings;
    return Status::Blocked;
  }
  std::array<Warp*, kGroupWarps> warps;
  for (size_t i = 0; i < kGroupWarps; ++i)
    warps[i] = &warp.block->warps[warp.index / kGroupWarps * kGroupWarps + i];
  run(warps);
  group.at = nullptr;
  group.arrived = 0;
  ++group.meetings;
  return Status::Next;
}

// --- The rows

struct InstructionTable {
  using Engine = Simulator::Engine;
  using Operands = Engine::Operands;
  using Function = Status (*)(Engine&, Operands&, Warp&);

  static size_t first_lane(const Warp& w) {
    return static_cast<size_t>(std::countr_zero(w.mask | uint32_t{1} << 31));
  }

  // --- Barriers of warps

  static NamedBarrier* join_barrier(Engine& e, Operands& o, Warp& w) {
    const int64_t id = o.integer(0, w, first_lane(w)), threads = o.constant(1, w);
    if (id < 0 || id >= static_cast<int64_t>(kNamedBarriers)) {
      e.report(codes::kBarrierMisuse, fmt::format("the block has no barrier {}", id), &w);
      return nullptr;
    }
    NamedBarrier& barrier = w.block->barriers[static_cast<size_t>(id)];
    if (barrier.threads != 0 && barrier.threads != threads)
      e.report(codes::kBarrierMisuse,
               fmt::format("barrier {} counts {} threads here, but {} elsewhere", id, threads,
                           barrier.threads),
               &w);
    barrier.threads = threads;
    barrier.told.join(w.clock.release(w.mask));
    barrier.arrived += kWarpLanes;
    return &barrier;
  }
  static void finish_barrier(NamedBarrier& barrier) {
    if (barrier.arrived < barrier.threads) return;
    for (Warp* waiting : barrier.waiting) {
      waiting->clock.acquire(barrier.told, waiting->threads, waiting->threads);
      waiting->stage = 2;
    }
    barrier = {};
  }
  static Status bar_sync(Engine& e, Operands& o, Warp& w) {
    if (w.stage == 0) {
      NamedBarrier* const barrier = join_barrier(e, o, w);
      if (!barrier) return Status::Next;
      w.stage = 1;
      barrier->waiting.push_back(&w);
      finish_barrier(*barrier);
    }
    return w.stage == 2 ? Status::Next : Status::Blocked;
  }
  static Status bar_arrive(Engine& e, Operands& o, Warp& w) {
    if (NamedBarrier* const barrier = join_barrier(e, o, w)) finish_barrier(*barrier);
    return Status::Next;
  }
  static Status bar_warp(Engine&, Operands&, Warp&) { return Status::Next; }

  static Status cluster_arrive(Engine& e, Operands&, Warp& w) {
    ClusterBarrier& barrier = e.cluster_;
    size_t all = 0;
    for (const Block& block : e.blocks_) all += block.warps.size();
    if (w.at_cluster)
      e.report(codes::kBarrierMisuse,
               "the warp arrives a second time without a cluster.wait between", &w);
    w.at_cluster = true;
    barrier.arriving.join(w.clock.release(w.mask));
    w.cluster_meeting = barrier.generation;
    if (++barrier.arrived < all) return Status::Next;
    barrier.arrived = 0;
    ++barrier.generation;
    barrier.told = std::move(barrier.arriving);
    barrier.arriving.clear();
    return Status::Next;
  }
  static Status cluster_wait(Engine& e, Operands&, Warp& w) {
    if (!w.at_cluster) {
      e.report(codes::kBarrierMisuse, "the warp waits without a cluster.arrive before", &w);
      return Status::Next;
    }
    w.stage = 1;
    if (e.cluster_.generation == w.cluster_meeting) return Status::Blocked;
    w.clock.acquire(e.cluster_.told, w.threads, w.threads);
    w.at_cluster = false;
    return Status::Next;
  }

  // --- Exchange in a warp

  template <class From>
  static Status shuffle(Operands& o, Warp& w, const From& from) {
    const WarpValue& in = w.values[o.all[0].value.index];
    WarpValue& out = w.values[o.results[0].index];
    const int64_t* const by = o.all[1].index.threads(w.scope());
    for (size_t t = 0; t < kWarpLanes; ++t) {
      const int64_t lane = from(static_cast<int64_t>(t), by[t]);
      const size_t source = lane < 0 || lane > 31 ? t : static_cast<size_t>(lane);
      for (size_t i = 0; i < out.size(); i += kWarpLanes) out[i + t] = in[i + source];
    }
    return Status::Next;
  }
  static Status shfl_idx(Engine&, Operands& o, Warp& w) {
    return shuffle(o, w, [](int64_t, int64_t lane) { return lane & 31; });
  }
  static Status shfl_bfly(Engine&, Operands& o, Warp& w) {
    return shuffle(o, w, [](int64_t t, int64_t by) { return t ^ by; });
  }
  static Status shfl_up(Engine&, Operands& o, Warp& w) {
    return shuffle(o, w, [](int64_t t, int64_t by) { return t - by; });
  }
  static Status shfl_down(Engine&, Operands& o, Warp& w) {
    return shuffle(o, w, [](int64_t t, int64_t by) { return t + by; });
  }

  // --- Asynchronous copies

  // The byte of a place in shared memory at which an access of `bytes` bytes begins; -1 if the
  // access is not inside its object.
  static int64_t shared_byte(Engine& e, Operands& o, size_t operand, Warp& w, size_t lane,
                             int64_t bytes) {
    const auto& one = o.all[operand];
    const Memory& memory = e.code_[one.memory];
    const auto size = static_cast<int64_t>(size_of(memory.dtype));
    const int64_t element = one.index.threads(w.scope())[lane],
                  length = e.lengths_[one.memory.index].scalar(w.scope());
    if (element >= 0 && element * size + bytes <= length * size)
      return memory.scratch_offset + element * size;
    e.report(codes::kOutOfBounds,
             fmt::format("{} bytes from {} on are used, but the length is {}", bytes,
                         e.place_text(one.memory, element), length),
             &w, static_cast<int>(lane));
    return -1;
  }
  static void check_aligned(Engine& e, int64_t byte, int64_t align, std::string_view what, Warp& w,
                            size_t lane) {
    if (byte % align != 0)
      e.report(codes::kMisaligned,
               fmt::format("the {} at byte {} is not aligned to {} bytes", what, byte, align), &w,
               static_cast<int>(lane));
  }

  // Reads `bytes` bytes of device memory from an element on. Returns false if they are not inside
  // the memory.
  static bool read_device(Engine& e, Operands& o, size_t operand, Warp& w, size_t lane,
                          int64_t bytes, int64_t align, std::byte* to) {
    const MemoryId id = o.all[operand].memory;
    const DeviceMemory& memory = e.memories_[id.index];
    const auto size = static_cast<int64_t>(size_of(memory.dtype));
    const int64_t element = o.all[operand].index.threads(w.scope())[lane], count = bytes / size;
    if (element < 0 || element + count > memory.length) {
      e.report(codes::kOutOfBounds,
               fmt::format("{} elements from {} on are used, but the length is {}", count,
                           e.place_text(id, element), memory.length),
               &w, static_cast<int>(lane));
      return false;
    }
    check_aligned(e,
                  static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.data) %
                                       static_cast<uintptr_t>(align)) +
                      element * size,
                  align, "source", w, lane);
    const Warp* const self = &w;
    for (int64_t i = 0; i < count; ++i)
      e.touch_device(id, element + i, e.thread_actor(w, &self, lane), false, w,
                     static_cast<int>(lane));
    std::memcpy(to, memory.data + element * size, static_cast<size_t>(bytes));
    return true;
  }

  static Status cp_async(Engine& e, Operands& o, Warp& w) {
    const int64_t bytes = o.constant(2, w);
    for_each_lane(w.mask, [&](size_t lane) {
      const int64_t read = o.integer(3, w, lane);
      if (read < 0 || read > bytes)
        return e.report(
            codes::kOutOfBounds,
            fmt::format("the copy reads {} bytes, which is not from 0 to its {}", read, bytes), &w,
            static_cast<int>(lane));
      const int64_t byte = shared_byte(e, o, 0, w, lane, bytes);
      if (byte < 0) return;
      check_aligned(e, byte, bytes, "target", w, lane);
      ThreadCopies& copies = e.copies_of(w, lane);
      const auto group = static_cast<uint32_t>(copies.first + copies.groups.size() - 1);
      const Warp* const self = &w;
      const Actor actor{{e.run_, group, 0, copies.agent, 0, false}, &self, 1, lane, false};
      e.touch_shared(*w.block, byte, bytes, actor, true, w, static_cast<int>(lane));
      const auto first = static_cast<size_t>(byte) / e.granule_,
                 last = static_cast<size_t>(byte + bytes - 1) / e.granule_;
      copies.groups.back().push_back({first, last + 1});
      std::byte* const to = w.block->shared.data() + byte;
      std::memset(to, 0, static_cast<size_t>(bytes));
      if (read > 0) read_device(e, o, 1, w, lane, read, bytes, to);
    });
    return Status::Next;
  }
  static Status cp_async_commit(Engine& e, Operands&, Warp& w) {
    for_each_lane(w.mask, [&](size_t lane) { e.copies_of(w, lane).groups.emplace_back(); });
    return Status::Next;
  }
  // Groups that have arrived count from now on as stores by the thread itself.
  static Status cp_async_wait(Engine& e, Operands& o, Warp& w) {
    const auto kept = static_cast<size_t>(o.constant(0, w));
    for_each_lane(w.mask, [&](size_t lane) {
      ThreadCopies& copies = e.copies_of(w, lane);
      while (copies.groups.size() > kept + 1) {
        for (const auto& [begin, end] : copies.groups.front())
          for (size_t i = begin; i < end; ++i) {
            const Stamp& writer = w.block->log.writer(i);
            if (writer.agent == copies.agent && writer.epoch == copies.first)
              w.block->log.set_writer(i, w.clock.stamp(e.run_, lane));
          }
        copies.groups.erase(copies.groups.begin());
        ++copies.first;
      }
    });
    return Status::Next;
  }

  // The agent of the copies that complete on an mbarrier in its present phase.
  static Actor copy_actor(Engine& e, const Mbarrier& barrier, const Warp* const* self,
                          size_t lane) {
    return {{e.run_, barrier.phase + 1, 0, barrier.agent, 0, false}, self, 1, lane, true};
  }

  static std::vector<int64_t> corner(Operands& o, size_t operand, Warp& w, size_t lane) {
    std::vector<int64_t> out;
    for (const WarpIndex& at : o.all[operand].at) out.push_back(at.threads(w.scope())[lane]);
    return out;
  }
  static int64_t box_bytes(const TensorMap& map) {
    auto bytes = static_cast<int64_t>(size_of(map.dtype));
    for (const int64_t extent : map.box) bytes *= extent;
    return bytes;
  }
  static int64_t box_align(const TensorMap& map) {
    return map.swizzle == 0 ? 128 : 8 * map.swizzle;
  }

  static void load_box(Engine& e, Operands& o, Warp& w, size_t lane, uint32_t ranks) {
    const TensorMap& map = e.code_[o.all[1].map];
    const int64_t byte = shared_byte(e, o, 0, w, lane, box_bytes(map));
    if (byte < 0) return;
    check_aligned(e, byte, box_align(map), "box", w, lane);
    const Warp* const self = &w;
    for_each_lane(ranks, [&](size_t rank) {
      Block* const block = e.block_of_rank(static_cast<int64_t>(rank), w, static_cast<int>(lane));
      if (!block) return;
      // The mbarrier at the same offset in the other block.
      auto& place = o.all[2];
      const auto own = place.rank;
      place.rank = WarpIndex(Expr(static_cast<int64_t>(rank)), {DType::I64, 1, {}}, {});
      Mbarrier* const barrier = e.mbarrier_at(o, 2, w, lane, true);
      place.rank = own;
      if (!barrier) return;
      e.copy_box(map, corner(o, 1, w, lane), *block, byte, e.thread_actor(w, &self, lane),
                 copy_actor(e, *barrier, &self, lane), true, w, static_cast<int>(lane));
      e.complete_bytes(*barrier, box_bytes(map), w, static_cast<int>(lane));
    });
  }
  static Status tma_load(Engine& e, Operands& o, Warp& w) {
    for_each_lane(w.mask,
                  [&](size_t lane) { load_box(e, o, w, lane, uint32_t{1} << w.block->rank); });
    return Status::Next;
  }
  static Status tma_load_multicast(Engine& e, Operands& o, Warp& w) {
    for_each_lane(w.mask, [&](size_t lane) {
      load_box(e, o, w, lane, static_cast<uint32_t>(o.integer(3, w, lane)));
    });
    return Status::Next;
  }
  static Status tma_store(Engine& e, Operands& o, Warp& w) {
    for_each_lane(w.mask, [&](size_t lane) {
      const TensorMap& map = e.code_[o.all[0].map];
      const int64_t byte = shared_byte(e, o, 1, w, lane, box_bytes(map));
      if (byte < 0) return;
      check_aligned(e, byte, box_align(map), "box", w, lane);
      ThreadCopies& copies = e.copies_of(w, lane);
      copies.bulk_open = true;
      const Warp* const self = &w;
      Actor read{{e.run_, copies.bulk_committed + 1, 0, copies.bulk_agent, 0, false},
                 &self,
                 1,
                 lane,
                 true};
      Actor write = read;
      ++write.stamp.agent;
      e.copy_box(map, corner(o, 0, w, lane), *w.block, byte, write, read, false, w,
                 static_cast<int>(lane));
    });
    return Status::Next;
  }
  static Status bulk_commit(Engine& e, Operands&, Warp& w) {
    for_each_lane(w.mask, [&](size_t lane) {
      ThreadCopies& copies = e.copies_of(w, lane);
      ++copies.bulk_committed;
      copies.bulk_open = false;
    });
    return Status::Next;
  }
  static Status wait_for_bulk(Engine& e, Operands& o, Warp& w, bool written) {
    const auto kept = static_cast<uint32_t>(o.constant(0, w));
    for_each_lane(w.mask, [&](size_t lane) {
      ThreadCopies& copies = e.copies_of(w, lane);
      if (copies.bulk_committed <= kept) return;
      const uint32_t done = copies.bulk_committed - kept, bit = uint32_t{1} << lane;
      copies.bulk_read = std::max(copies.bulk_read, done);
      w.clock.learn(copies.bulk_agent, done, bit, w.threads);
      if (written)
        w.clock.learn(static_cast<uint16_t>(copies.bulk_agent + 1), done, bit, w.threads);
    });
    return Status::Next;
  }
  static Status bulk_wait_read(Engine& e, Operands& o, Warp& w) {
    return wait_for_bulk(e, o, w, false);
  }
  static Status bulk_wait(Engine& e, Operands& o, Warp& w) { return wait_for_bulk(e, o, w, true); }
  static Status tma_prefetch(Engine&, Operands&, Warp&) { return Status::Next; }

  static Status st_async(Engine& e, Operands& o, Warp& w) {
    const ValueId value = o.all[1].value;
    const DType dtype = e.type_of(value).dtype;
    const size_t size = size_of(dtype), count = w.values[value.index].size() / kWarpLanes;
    for_each_lane(w.mask, [&](size_t lane) {
      const auto bytes = static_cast<int64_t>(size * count);
      const auto thread = static_cast<int>(lane);
      Mbarrier* const barrier = e.mbarrier_at(o, 2, w, lane, true);
      const int64_t byte = shared_byte(e, o, 0, w, lane, bytes);
      const auto& rank = o.all[0].rank;
      Block* const block =
          rank ? e.block_of_rank(rank->threads(w.scope())[lane], w, thread) : w.block;
      if (!barrier || !block || byte < 0) return;
      if (barrier->home != block)
        e.report(codes::kMbarrierMisuse, "the mbarrier and the target are in different blocks", &w,
                 thread);
      check_aligned(e, byte, bytes, "target", w, lane);
      const Warp* const self = &w;
      e.touch_shared(*block, byte, bytes, copy_actor(e, *barrier, &self, lane), true, w, thread);
      for (size_t i = 0; i < count; ++i)
        std::memcpy(block->shared.data() + byte + static_cast<int64_t>(i * size),
                    &w.values[value.index][i * kWarpLanes + lane], size);
      // Like an arrival, the completion releases what the thread did before.
      barrier->arriving.join(w.clock.release(uint32_t{1} << lane));
      e.complete_bytes(*barrier, bytes, w, thread);
    });
    return Status::Next;
  }

  // --- mbarriers and fences

  static Status mbarrier_init(Engine& e, Operands& o, Warp& w) {
    const int64_t count = o.constant(1, w);
    for_each_lane(w.mask, [&](size_t lane) {
      const auto& one = o.all[0];
      const int64_t element = o.integer(0, w, lane), byte = shared_byte(e, o, 0, w, lane, 8);
      if (byte < 0) return;
      const auto [found, made] = w.block->mbarriers.try_emplace(byte);
      if (!made || count < 1)
        return e.report(codes::kMbarrierMisuse,
                        made ? fmt::format("the count {} is below 1", count)
                             : e.place_text(one.memory, element) + " is initialised a second time",
                        &w, static_cast<int>(lane));
      Mbarrier& barrier = found->second;
      barrier.home = w.block;
      barrier.name = e.place_text(one.memory, element);
      barrier.agent = e.new_agent();
      barrier.init = w.clock.stamp(e.run_, lane);
      barrier.count = barrier.pending = count;
    });
    return Status::Next;
  }
  static Status fence_mbarrier_init(Engine&, Operands&, Warp& w) {
    for (auto& [byte, barrier] : w.block->mbarriers)
      if (barrier.init.agent == w.clock.agent() && (w.mask >> barrier.init.lane & 1) != 0)
        barrier.fenced = true;
    return Status::Next;
  }
  static Status mbarrier_arrive(Engine& e, Operands& o, Warp& w) {
    for_each_lane(w.mask, [&](size_t lane) {
      if (Mbarrier* const barrier = e.mbarrier_at(o, 0, w, lane, false))
        e.arrive(*barrier, w, uint32_t{1} << lane);
    });
    return Status::Next;
  }
  static Status mbarrier_expect(Engine& e, Operands& o, Warp& w) {
    for_each_lane(w.mask, [&](size_t lane) {
      Mbarrier* const barrier = e.mbarrier_at(o, 0, w, lane, false);
      if (!barrier) return;
      const int64_t bytes = o.integer(1, w, lane);
      barrier->bytes += bytes;
      if (bytes < 0 || std::abs(barrier->bytes) > kMostBytes)
        e.report(codes::kMbarrierBytes,
                 fmt::format("{} would expect {} bytes, which an mbarrier cannot count",
                             barrier->name, barrier->bytes),
                 &w, static_cast<int>(lane));
      e.arrive(*barrier, w, uint32_t{1} << lane);
    });
    return Status::Next;
  }

  // Lets those of `lanes` continue whose phase is complete, and returns the others.
  static uint32_t try_lanes(Engine& e, Operands& o, Warp& w, uint32_t lanes) {
    // Lanes that wait for the same mbarrier learn together. Usually all lanes do.
    std::vector<std::pair<Mbarrier*, uint32_t>> passed;
    uint32_t left = 0;
    for_each_lane(lanes, [&](size_t lane) {
      Mbarrier* const barrier = e.mbarrier_at(o, 0, w, lane, false);
      if (!barrier) return;
      const auto parity = static_cast<uint32_t>(o.integer(1, w, lane));
      if (w.stage != 0 && barrier->phase >= w.phases[lane] + 2)
        e.report(
            codes::kMbarrierMisuse,
            fmt::format("{} completed more than one phase while this thread waited", barrier->name),
            &w, static_cast<int>(lane));
      w.phases[lane] = w.stage == 0 ? barrier->phase : w.phases[lane];
      const uint32_t bit = uint32_t{1} << lane;
      if ((barrier->phase & 1) == (parity & 1)) {
        left |= bit;
      } else if (!passed.empty() && passed.back().first == barrier) {
        passed.back().second |= bit;
      } else {
        passed.emplace_back(barrier, bit);
      }
    });
    for (const auto& [barrier, mask] : passed) {
      w.clock.acquire(barrier->told, mask, w.threads);
      barrier->waited = std::max(barrier->waited, barrier->phase);
    }
    return left;
  }
  static Status mbarrier_wait(Engine& e, Operands& o, Warp& w) {
    w.left = try_lanes(e, o, w, w.stage == 0 ? w.mask : w.left);
    w.stage = 1;
    return w.left != 0 ? Status::Blocked : Status::Next;
  }
  static Status fence_proxy_async(Engine&, Operands&, Warp& w) {
    w.clock.fence(w.mask);
    return Status::Next;
  }

  // --- Matrices

  // Calls `visit(chunk, matrix, row)` for the eight rows of the four matrices, whose addresses the
  // lanes give.
  template <class Visit>
  static void for_each_row(Engine& e, Operands& o, Warp& w, bool write, const Visit& visit) {
    const Warp* const self = &w;
    for_each_lane(w.mask, [&](size_t lane) {
      const int64_t byte = shared_byte(e, o, 0, w, lane, kChunk);
      if (byte < 0) return;
      check_aligned(e, byte, kChunk, "row", w, lane);
      e.touch_shared(*w.block, byte, kChunk, e.thread_actor(w, &self, lane), write, w,
                     static_cast<int>(lane));
      visit(w.block->shared.data() + byte, lane / 8, lane % 8);
    });
  }
  static Status load_matrices(Engine& e, Operands& o, Warp& w, bool transposed) {
    WarpValue& out = w.values[o.results[0].index];
    for_each_row(e, o, w, false, [&](const std::byte* chunk, size_t matrix, size_t row) {
      for (size_t column = 0; column < 8; ++column) {
        uint16_t bits = 0;
        std::memcpy(&bits, chunk + 2 * column, 2);
        const size_t r = transposed ? column : row, c = transposed ? row : column;
        out[(matrix * 2 + c % 2) * kWarpLanes + r * 4 + c / 2] = bits;
      }
    });
    return Status::Next;
  }
  static Status stmatrix_x4(Engine& e, Operands& o, Warp& w) {
    const WarpValue& in = w.values[o.all[1].value.index];
    for_each_row(e, o, w, true, [&](std::byte* chunk, size_t matrix, size_t row) {
      for (size_t column = 0; column < 8; ++column) {
        const auto bits = static_cast<uint16_t>(
            in[(matrix * 2 + column % 2) * kWarpLanes + row * 4 + column / 2]);
        std::memcpy(chunk + 2 * column, &bits, 2);
      }
    });
    return Status::Next;
  }
  static Status ldmatrix_x4(Engine& e, Operands& o, Warp& w) {
    return load_matrices(e, o, w, false);
  }
  static Status ldmatrix_x4_trans(Engine& e, Operands& o, Warp& w) {
    return load_matrices(e, o, w, true);
  }

  static void read_a(const WarpValue& bits, DType dtype, size_t top, Matrix& a) {
    for (size_t i = 0; i < bits.size(); ++i) {
      const size_t r = i / kWarpLanes, thread = i % kWarpLanes;
      const auto [row, column] =
          dtype == DType::F32 ? tf32_place(thread, r) : accumulator_place(thread, r);
      a.at(top + row, column) = number(bits[i], dtype);
    }
  }
  static void read_accumulator(const WarpValue& bits, size_t top, Matrix& c) {
    for (size_t i = 0; i < bits.size(); ++i) {
      const auto [row, column] = accumulator_place(i % kWarpLanes, i / kWarpLanes);
      c.at(top + row, column) = float_of(bits[i]);
    }
  }
  static void write_accumulator(const Matrix& c, size_t top, WarpValue& bits) {
    for (size_t i = 0; i < bits.size(); ++i) {
      const auto [row, column] = accumulator_place(i % kWarpLanes, i / kWarpLanes);
      bits[i] = float_bits(c.at(top + row, column));
    }
  }

  static Status multiply_in_warp(Operands& o, Warp& w, DType dtype) {
    const size_t depth = dtype == DType::F32 ? 8 : 16;
    Matrix a(16, depth), b(depth, 8), c(16, 8);
    read_a(w.values[o.all[0].value.index], dtype, 0, a);
    // The layout of B is that of the upper half of A, transposed.
    const WarpValue& bits = w.values[o.all[1].value.index];
    for (size_t i = 0; i < bits.size(); ++i) {
      const size_t r = i / kWarpLanes, thread = i % kWarpLanes;
      const size_t k =
          dtype == DType::F32 ? r * 4 + thread % 4 : r / 2 * 8 + thread % 4 * 2 + r % 2;
      b.at(k, thread / 4) = number(bits[i], dtype);
    }
    read_accumulator(w.values[o.all[2].value.index], 0, c);
    multiply(a, b, c);
    write_accumulator(c, 0, w.values[o.results[0].index]);
    return Status::Next;
  }
  static Status mma_bf16(Engine&, Operands& o, Warp& w) {
    return multiply_in_warp(o, w, DType::BF16);
  }
  static Status mma_f16(Engine&, Operands& o, Warp& w) {
    return multiply_in_warp(o, w, DType::F16);
  }
  static Status mma_tf32(Engine&, Operands& o, Warp& w) {
    return multiply_in_warp(o, w, DType::F32);
  }

  // Matrices of f64, of `rows` x `depth` and `depth` x 8 elements.
  static Status multiply_doubles(Operands& o, Warp& w, size_t rows, size_t depth) {
    MatrixOf<double> a(rows, depth), b(depth, 8), c(rows, 8);
    const auto for_each = [](const WarpValue& bits, const auto& visit) {
      for (size_t i = 0; i < bits.size(); ++i) visit(i, i / kWarpLanes, i % kWarpLanes);
    };
    const WarpValue &left = w.values[o.all[0].value.index], &right = w.values[o.all[1].value.index],
                    &sums = w.values[o.all[2].value.index];
    for_each(left, [&](size_t i, size_t r, size_t thread) {
      const auto [row, column] = tf32_place(thread, r);
      a.at(row, column) = std::bit_cast<double>(left[i]);
    });
    for_each(right, [&](size_t i, size_t r, size_t thread) {
      b.at(r * 4 + thread % 4, thread / 4) = std::bit_cast<double>(right[i]);
    });
    const auto sum_at = [&](size_t r, size_t thread) -> double& {
      const auto [row, column] = accumulator_place(thread, r);
      return c.at(row, column);
    };
    for_each(sums, [&](size_t i, size_t r, size_t thread) {
      sum_at(r, thread) = std::bit_cast<double>(sums[i]);
    });
    multiply(a, b, c);
    WarpValue& out = w.values[o.results[0].index];
    for_each(out, [&](size_t i, size_t r, size_t thread) {
      const double sum = sum_at(r, thread);
      out[i] =
          std::bit_cast<uint64_t>(std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum);
    });
    return Status::Next;
  }
  static Status mma_f64(Engine&, Operands& o, Warp& w) { return multiply_doubles(o, w, 8, 4); }
  static Status mma_f64_wide(Engine&, Operands& o, Warp& w) {
    return multiply_doubles(o, w, 16, 8);
  }

  // Reads a matrix operand as the asynchronous proxy does. The result is indexed by (mn, k).
  static void read_operand(Engine& e, Operands& o, size_t operand, std::span<Warp* const> warps,
                           DType dtype, Matrix& out) {
    Warp& w = *warps[0];
    const auto& one = o.all[operand];
    const auto size = static_cast<int64_t>(size_of(dtype));
    const int64_t start = shared_byte(e, o, operand, w, 0, kChunk);
    if (start < 0) return;
    const WarpGroup& group = w.block->groups[w.index / kGroupWarps];
    const Actor actor{{e.run_, group.committed + 1, 0, group.agent, 0, false},
                      warps.data(),
                      warps.size(),
                      0,
                      true};
    const bool k_major = one.matrix->k_major;
    const size_t outer = k_major ? out.rows : out.columns, inner = k_major ? out.columns : out.rows,
                 per_chunk = static_cast<size_t>(kChunk / size);
    for (size_t i = 0; i < outer; ++i)
      for (size_t j = 0; j < inner; j += per_chunk) {
        const auto mn = static_cast<int64_t>(k_major ? i : j),
                   k = static_cast<int64_t>(k_major ? j : i);
        const int64_t byte = matrix_byte(*one.matrix, start, mn, k, size);
        e.touch_shared(*w.block, byte, kChunk, actor, false, w, -1);
        if (byte < 0 || byte + kChunk > static_cast<int64_t>(w.block->shared.size())) return;
        for (size_t c = 0; c < per_chunk; ++c) {
          uint64_t bits = 0;
          std::memcpy(&bits, w.block->shared.data() + byte + static_cast<int64_t>(c) * size,
                      static_cast<size_t>(size));
          (k_major ? out.at(i, j + c) : out.at(j + c, i)) = number(bits, dtype);
        }
      }
  }

  static Status multiply_in_group(Engine& e, Operands& o, Warp& w, DType dtype) {
    return e.group_meets(w, [&](std::span<Warp* const> warps) {
      const size_t depth = dtype == DType::F32 ? 8 : 16, n = static_cast<size_t>(o.columns);
      Matrix a(64, depth), transposed(n, depth), b(depth, n), c(64, n);
      const int64_t scale = o.integer(3, *warps[0], 0);
      const ValueId sum = o.all[2].value, result = o.results[0];
      WarpGroup& group = w.block->groups[w.index / kGroupWarps];
      if (o.all[0].value) {
        for (size_t i = 0; i < warps.size(); ++i)
          read_a(warps[i]->values[o.all[0].value.index], dtype, 16 * i, a);
      } else {
        read_operand(e, o, 0, warps, dtype, a);
      }
      read_operand(e, o, 1, warps, dtype, transposed);
      for (size_t j = 0; j < n; ++j)
        for (size_t k = 0; k < depth; ++k) b.at(k, j) = transposed.at(j, k);
      for (size_t i = 0; i < warps.size(); ++i) {
        if (scale == 0) continue;
        if (warps[i]->undefined[sum.index] != 0)
          e.report(codes::kUndefinedValue,
                   fmt::format("the accumulator %{} is undefined", e.code_[sum].name), warps[i]);
        read_accumulator(warps[i]->values[sum.index], 16 * i, c);
      }
      multiply(a, b, c);
      group.open = true;
      for (size_t i = 0; i < warps.size(); ++i) {
        write_accumulator(c, 16 * i, warps[i]->values[result.index]);
        warps[i]->undefined[result.index] = 0;
        warps[i]->flight[result.index] = group.committed + 1;
      }
    });
  }
  static Status wgmma_bf16(Engine& e, Operands& o, Warp& w) {
    return multiply_in_group(e, o, w, DType::BF16);
  }
  static Status wgmma_f16(Engine& e, Operands& o, Warp& w) {
    return multiply_in_group(e, o, w, DType::F16);
  }
  static Status wgmma_tf32(Engine& e, Operands& o, Warp& w) {
    return multiply_in_group(e, o, w, DType::F32);
  }

  // The results are the operands. Results of groups after `done` stay in flight.
  static void tie(Operands& o, size_t first, Warp& w, uint32_t done) {
    for (size_t i = 0; i < o.results.size(); ++i) {
      const size_t from = o.all[first + i].value.index, to = o.results[i].index;
      w.values[to] = w.values[from];
      w.undefined[to] = w.undefined[from];
      w.flight[to] = w.flight[from] > done ? w.flight[from] : 0;
    }
  }
  static Status wgmma_fence(Engine& e, Operands& o, Warp& w) {
    return e.group_meets(w, [&](std::span<Warp* const> warps) {
      for (Warp* warp : warps) tie(o, 0, *warp, 0);
    });
  }
  static Status wgmma_commit(Engine& e, Operands&, Warp& w) {
    return e.group_meets(w, [](std::span<Warp* const> warps) {
      WarpGroup& group = warps[0]->block->groups[warps[0]->index / kGroupWarps];
      ++group.committed;
      group.open = false;
    });
  }
  static Status wgmma_wait(Engine& e, Operands& o, Warp& w) {
    return e.group_meets(w, [&](std::span<Warp* const> warps) {
      WarpGroup& group = w.block->groups[w.index / kGroupWarps];
      const auto kept = static_cast<uint32_t>(o.constant(0, w));
      if (group.committed > kept) group.waited = std::max(group.waited, group.committed - kept);
      for (Warp* warp : warps) {
        warp->clock.learn(group.agent, group.waited, warp->threads, warp->threads);
        tie(o, 1, *warp, group.waited);
      }
    });
  }

  // --- The rest

  static Status griddep_wait(Engine&, Operands&, Warp&) { return Status::Next; }
  static Status griddep_launch(Engine&, Operands&, Warp&) { return Status::Next; }
};

auto Simulator::Engine::instruction(const InstructionOp& op, const Statement& s) -> Run {
  static constexpr InstructionTable::Function kFunctions[] = {
#define INSTRUCTION(id, text, operands, meeting, result, capability) &InstructionTable::id,
#include "ir/code/instructions.def"
#undef INSTRUCTION
  };
  return [this, operands = operands(op, s), meeting = info(op.instruction).meeting,
          run = kFunctions[static_cast<size_t>(op.instruction)]](Warp& w) {
    if (w.stage == 0) {
      check_operands(operands->reads, {}, w);
      if (meeting != Meeting::Thread) {
        if (w.mask != w.threads)
          report(codes::kDivergence,
                 fmt::format("only {} of the warp's {} threads execute this statement; all must",
                             std::popcount(w.mask), std::popcount(w.threads)),
                 &w);
        w.clock.meet();
      }
    }
    return run(*this, *operands, w);
  };
}

}  // namespace braze
