// simulate_memory.cpp — loads, stores and atomics of simulated threads, and the checks of all
// accesses, including asynchronous ones.
#include <algorithm>
#include <bit>
#include <cstring>

#include "ir/kernel/simulate_p.h"
#include "ir/support/text.h"

namespace braze {

namespace {

uint64_t load_bits(const std::byte* from, DType dtype) {
  const auto load = [&](auto bits) -> uint64_t {
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  };
  switch (size_of(dtype)) {
    case 1:
      return dtype == DType::Bool ? load(uint8_t{}) != 0 : load(uint8_t{});
    case 2:
      return load(uint16_t{});
    case 4:
      return load(uint32_t{});
    default:
      return load(uint64_t{});
  }
}

}  // namespace

template <class Op>
auto Simulator::Engine::access(const Op& op, const ValueType& type) -> std::shared_ptr<Access> {
  auto out = std::make_shared<Access>();
  out->memory = op.memory;
  out->at = index(op.at.at(0), type);
  out->condition = comparisons(op.guard.condition, type);
  if (op.guard.mask) out->mask = source(op.guard.mask, {DType::Bool, type.lanes, type.extents});
  if (op.rank) out->rank = index(*op.rank);
  out->align = op.align;
  out->lanes = type.lanes;
  const auto count = static_cast<size_t>(type.count() * type.lanes) * kWarpLanes;
  out->places.resize(count);
  out->active.resize(count);
  return out;
}

std::string Simulator::Engine::place_text(MemoryId id, int64_t place) const {
  return fmt::format("element {} of %{}", place, code_[id].name);
}

// The object to which a byte of shared memory belongs, for messages.
std::string Simulator::Engine::shared_text(int64_t byte) const {
  for (size_t i = 0; i < code_.memories.size(); ++i) {
    const Memory& memory = code_.memories[i];
    if (memory.space != MemorySpace::Shared) continue;
    const int64_t size = static_cast<int64_t>(size_of(memory.dtype)),
                  bytes = memory.shape[0].as_constant().value_or(0) * size,
                  offset = byte - memory.scratch_offset;
    if (offset >= 0 && offset < bytes) return place_text(MemoryId(i), offset / size);
  }
  return fmt::format("byte {} of shared memory", byte);
}

const std::vector<int64_t>& Simulator::Engine::locate(Access& access, Warp& warp) {
  std::vector<int64_t>& places = access.places;
  std::vector<uint8_t>& active = access.active;
  for (size_t i = 0; i < active.size(); ++i) active[i] = warp.mask >> (i % kWarpLanes) & 1;
  narrow(access.condition, warp.scope(), active);
  if (access.mask) {
    const uint64_t* const mask = access.mask->get(warp);
    for (size_t i = 0; i < active.size(); ++i) active[i] &= mask[i] != 0;
  }
  const int64_t* const at = access.at.all(warp.scope());
  const Memory& memory = code_[access.memory];
  const bool fixed = memory.space == MemorySpace::Shared || memory.space == MemorySpace::Local;
  const int64_t length = fixed ? lengths_[access.memory.index].scalar(warp.scope())
                               : memories_[access.memory.index].length;
  const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
  const int64_t base =
      memory.space == MemorySpace::Shared ? memory.scratch_offset
      : fixed
          ? 0
          : static_cast<int64_t>(reinterpret_cast<uintptr_t>(memories_[access.memory.index].data));
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] = -1;
    if (!active[i]) continue;
    const auto lane = static_cast<int>(i % kWarpLanes);
    if (at[i] < 0 || at[i] >= length) {
      report(codes::kOutOfBounds,
             fmt::format("{} is accessed, but the length is {}", place_text(access.memory, at[i]),
                         length),
             &warp, lane);
      continue;
    }
    places[i] = at[i];
    const bool first = i / kWarpLanes % static_cast<size_t>(access.lanes) == 0;
    if (first && access.align > 1 && (base + at[i] * bytes) % access.align != 0)
      report(codes::kMisaligned,
             fmt::format("the address of {} is not a multiple of {}",
                         place_text(access.memory, at[i]), access.align),
             &warp, lane);
  }
  return places;
}

Actor Simulator::Engine::thread_actor(const Warp& warp, const Warp* const* self,
                                      size_t lane) const {
  return {warp.clock.stamp(run_, lane), self, 1, lane, false};
}

bool Simulator::Engine::knows(const Actor& actor, const Stamp& stamp) const {
  for (size_t i = 0; i < actor.viewer_count; ++i)
    if (!actor.viewers[i]->clock.knows(stamp, actor.lane, run_, base_)) return false;
  return true;
}

Block* Simulator::Engine::block_of_rank(int64_t rank, Warp& warp, int lane) {
  if (rank < 0 || rank >= static_cast<int64_t>(blocks_.size())) {
    report(codes::kOutOfBounds, fmt::format("the cluster has no block {}", rank), &warp, lane);
    return nullptr;
  }
  Block& block = blocks_[static_cast<size_t>(rank)];
  if (&block != warp.block && block.running == 0)
    report(codes::kPendingCopies, fmt::format("block {} has already ended", rank), &warp, lane);
  return &block;
}

void Simulator::Engine::touch_shared(Block& block, int64_t byte, int64_t bytes, const Actor& actor,
                                     bool write, Warp& warp, int lane) {
  if (byte < 0 || byte + bytes > static_cast<int64_t>(block.shared.size())) {
    report(codes::kOutOfBounds,
           fmt::format("bytes {} to {} of shared memory are accessed, but the block has only {}",
                       byte, byte + bytes, block.shared.size()),
           &warp, lane);
    return;
  }
  const size_t first = static_cast<size_t>(byte) / granule_,
               last = static_cast<size_t>(byte + bytes - 1) / granule_;
  Stamp seen;  // neighbouring granules mostly have the same history, which is checked once
  const auto known = [&](const Stamp& stamp) {
    if (stamp == seen) return true;
    const bool known_now = knows(actor, stamp);
    if (known_now) seen = stamp;
    return known_now;
  };
  Stamp fenced;
  for (size_t i = first; i <= last; ++i) {
    const Stamp writer = block.log.writer(i);
    const auto clash =
        write ? block.log.write(i, actor.stamp, known) : block.log.read(i, actor.stamp, known);
    const auto where = [&] { return shared_text(static_cast<int64_t>(i * granule_)); };
    if (clash == AccessLog::Clash::Store)
      report(codes::kThreadRace,
             where() + (write ? " is written here, and it is" : " is read here, and it is") +
                 " written by another thread; nothing orders the two",
             &warp, lane);
    if (clash == AccessLog::Clash::Load)
      report(codes::kThreadRace,
             where() + " is written here, while another thread may still read it", &warp, lane);
    if (write) continue;
    if (writer.run == 0)
      report(codes::kUninitialisedRead, where() + " is read before it is written", &warp, lane);
    if (!actor.async || writer.run == 0 || writer == fenced) continue;
    fenced = writer;
    const Warp* const storing = warp_of(writer.agent);
    if (!storing) continue;  // the asynchronous proxy itself wrote it
    const auto fence = storing->clock.fence_behind(writer);
    if (!fence || !knows(actor, *fence))
      report(codes::kNoProxyFence,
             where() +
                 " was stored by a thread without a fence.proxy.async between that and this "
                 "asynchronous access",
             &warp, lane);
  }
}

// The warp that an agent is; null for other agents. Warps are the first agents, block by block.
const Warp* Simulator::Engine::warp_of(uint16_t agent) const {
  const size_t warps = blocks_[0].warps.size(), block = agent / warps;
  return block < blocks_.size() ? &blocks_[block].warps[agent % warps] : nullptr;
}

void Simulator::Engine::touch_device(MemoryId id, int64_t place, const Actor& actor, bool write,
                                     Warp& warp, int lane) {
  DeviceMemory& memory = memories_[id.index];
  if (!memory.tracked) return;
  const auto i = static_cast<size_t>(place);
  const auto known = [&](const Stamp& stamp) { return knows(actor, stamp); };
  const auto clash =
      write ? memory.log.write(i, actor.stamp, known) : memory.log.read(i, actor.stamp, known);
  if (clash != AccessLog::Clash::None)
    report(codes::kThreadRace,
           place_text(id, place) +
               (write ? " is written here, and it is " : " is read here, and it is ") +
               (clash == AccessLog::Clash::Store ? "written" : "read") +
               " by another thread; nothing orders the two",
           &warp, lane);
  if (!write && !memory.initialised[i])
    report(codes::kUninitialisedRead, place_text(id, place) + " is read before it is written",
           &warp, lane);
  if (write) memory.initialised[i] = 1;
}

auto Simulator::Engine::load(const LoadOp& op, const Statement& s) -> Run {
  const ValueId to = s.results[0];
  const MemorySpace space = code_[op.memory].space;
  return [this, to, space, fill = op.fill, guarded = static_cast<bool>(op.guard),
          access = access(op, type_of(to))](Warp& w) {
    WarpValue& out = w.values[to.index];
    const std::vector<int64_t>& places = locate(*access, w);
    const Memory& memory = code_[access->memory];
    const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
    const int64_t* const ranks = access->rank ? access->rank->threads(w.scope()) : nullptr;
    const Warp* const self = &w;
    if (guarded) std::fill(out.begin(), out.end(), fill);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] < 0) continue;
      const size_t lane = i % kWarpLanes;
      if (space == MemorySpace::Local) {
        LocalMemory& local = w.locals[access->memory.index];
        const size_t at = static_cast<size_t>(places[i]) * kWarpLanes + lane;
        if (!local.initialised[at])
          report(codes::kUninitialisedRead,
                 place_text(access->memory, places[i]) + " is read before it is written", &w,
                 static_cast<int>(lane));
        out[i] = local.bits[at];
      } else if (space == MemorySpace::Shared) {
        Block* const block =
            ranks ? block_of_rank(ranks[lane], w, static_cast<int>(lane)) : w.block;
        if (!block) continue;
        const int64_t byte = memory.scratch_offset + places[i] * bytes;
        touch_shared(*block, byte, bytes, thread_actor(w, &self, lane), false, w,
                     static_cast<int>(lane));
        out[i] = load_bits(block->shared.data() + byte, memory.dtype);
      } else {
        DeviceMemory& state = memories_[access->memory.index];
        if (state.tracked)
          touch_device(access->memory, places[i], thread_actor(w, &self, lane), false, w,
                       static_cast<int>(lane));
        out[i] = load_bits(state.data + places[i] * bytes, memory.dtype);
      }
    }
    return Status::Next;
  };
}

auto Simulator::Engine::store(const StoreOp& op, const Statement&) -> Run {
  const ValueType type = type_of(op.value);
  const MemorySpace space = code_[op.memory].space;
  return [this, space, value = source(op.value, type), access = access(op, type)](Warp& w) mutable {
    const uint64_t* const from = value.get(w);
    const std::vector<int64_t>& places = locate(*access, w);
    const Memory& memory = code_[access->memory];
    const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
    const int64_t* const ranks = access->rank ? access->rank->threads(w.scope()) : nullptr;
    const Warp* const self = &w;
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] < 0) continue;
      const size_t lane = i % kWarpLanes;
      if (space == MemorySpace::Local) {
        LocalMemory& local = w.locals[access->memory.index];
        const size_t at = static_cast<size_t>(places[i]) * kWarpLanes + lane;
        local.initialised[at] = 1;
        local.bits[at] = from[i];
      } else if (space == MemorySpace::Shared) {
        Block* const block =
            ranks ? block_of_rank(ranks[lane], w, static_cast<int>(lane)) : w.block;
        if (!block) continue;
        const int64_t byte = memory.scratch_offset + places[i] * bytes;
        touch_shared(*block, byte, bytes, thread_actor(w, &self, lane), true, w,
                     static_cast<int>(lane));
        std::memcpy(block->shared.data() + byte, &from[i], static_cast<size_t>(bytes));
      } else {
        touch_device(access->memory, places[i], thread_actor(w, &self, lane), true, w,
                     static_cast<int>(lane));
        std::memcpy(memories_[access->memory.index].data + places[i] * bytes, &from[i],
                    static_cast<size_t>(bytes));
      }
    }
    return Status::Next;
  };
}

auto Simulator::Engine::atomic(const AtomicOp& op, const Statement& s) -> Run {
  struct Element {
    MemoryId memory;
    std::vector<Expr> at;
    Guard guard;
    std::optional<Expr> rank;
    int64_t align = 0;
  };
  const ValueType type = type_of(s.results[0]);
  const MachineFunction combine = machine_function(ElementwiseOp::add, type.dtype, type.dtype);
  return [this, to = s.results[0], combine, value = source(op.value, type),
          access = access(Element{op.memory, {op.at}, {}, {}, 0}, type)](Warp& w) mutable {
    const uint64_t* const operand = value.get(w);
    const std::vector<int64_t>& places = locate(*access, w);
    DeviceMemory& memory = memories_[access->memory.index];
    const Warp* const self = &w;
    for (size_t lane = 0; lane < kWarpLanes; ++lane) {
      if (places[lane] < 0) continue;
      const uint32_t bit = uint32_t{1} << lane;
      // It acquires everything that earlier atomics released, and then releases.
      auto& met = atomics_[{access->memory, places[lane]}];
      for (const auto& [run, told] : met) {
        if (run == run_)
          w.clock.acquire(*told, bit, w.threads);
        else
          w.clock.acquire(run, told, bit, w.threads);
      }
      Actor actor = thread_actor(w, &self, lane);
      actor.stamp.atomic = true;
      touch_device(access->memory, places[lane], actor, true, w, static_cast<int>(lane));
      std::byte* const at = memory.data + static_cast<size_t>(places[lane]) * size_of(memory.dtype);
      const uint64_t before = load_bits(at, memory.dtype),
                     after = combine(before, operand[lane], 0);
      std::memcpy(at, &after, size_of(memory.dtype));
      w.values[to.index][lane] = before;
      auto& told = met[run_];
      auto all = std::make_shared<Knowledge>(w.clock.release(bit));
      if (told) all->join(*told);
      told = std::move(all);
    }
    return Status::Next;
  };
}

}  // namespace braze
