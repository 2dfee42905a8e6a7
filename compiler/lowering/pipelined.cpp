#include "compiler/lowering/pipelined.h"

#include <algorithm>

#include "ir/code/protocol.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr Code kBlockLimits{
    "block-limits", ErrorKind::Unsupported,
    "A pipelined program needs more resources than a block of its target has."};
constexpr int64_t kMostWarps = 32;
constexpr int64_t kGroupWarps = 4;
constexpr int64_t kMostBarriers = 16;
constexpr int64_t kMbarrierBytes = 8;

int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

PipelinedLowering::PipelinedLowering(const TileProgram& program, const Target& target)
    : ThreadLowering(program, target), layouts_(program), tiles_(program.values.size()) {
  builder_.fresh_name("rtid");
}

void PipelinedLowering::lower_phase(const Phase& phase) {
  phase_ = &phase;
  if (!phase.cluster.empty())
    block_ = {grid_symbol(phase.cluster, phase.cluster_size), phase.cluster_size};
  Phase lowered;
  lowered.grid = phase.grid;
  lowered.cluster = phase.cluster;
  lowered.cluster_size = phase.cluster_size;
  fields_.clear(), buffers_.clear(), exchanges_.clear(), barriers_.clear();
  channels_.clear(), roles_.clear(), plain_barriers_.clear();
  note_roles(phase);
  Region lets, roles;
  builder_.enter(lets);
  for (const Statement& s : phase.body.statements) {
    if (const auto* let = s.as<LetOp>())
      builder_.append(LetOp{let->symbol, uniform(let->value)}, {});
    if (const auto* channel = s.as<ChannelOp>()) declare_channel(channel->channel);
  }
  builder_.enter(roles);
  for (const Role& role : roles_) lower_role(role);
  builder_.leave();
  const Role& last = roles_.back();
  lowered.block = (last.first_warp + last.op->warps * last.op->copies) * kWarpThreads;
  place_shared(lowered);
  begin_block(lowered);
  if (std::ranges::any_of(phase.body.statements,
                          [](const Statement& s) { return s.as<AwaitOp>(); }))
    lower_await();
  builder_.leave();
  std::move(roles.statements.begin(), roles.statements.end(), std::back_inserter(lets.statements));
  lowered.body = std::move(lets);
  kernel_.phases.push_back(std::move(lowered));
}

// D1, D14: assigns warps and barriers in the order of declaration. Dots and settings of registers
// need groups of four warps that begin at a multiple of four, so roles with such groups come first.
void PipelinedLowering::note_roles(const Phase& phase) {
  int64_t warps = 0, barrier = 1;
  replicated_ = replicated_copies(phase);
  multicast_.clear();
  note_copies(phase.body);
  std::vector<const TileRoleOp*> ops;
  for (const Statement& s : phase.body.statements)
    if (const auto* op = s.as<TileRoleOp>()) ops.push_back(op);
  std::stable_partition(ops.begin(), ops.end(),
                        [](const TileRoleOp* op) { return op->warps % kGroupWarps == 0; });
  for (const TileRoleOp* op : ops) {
    Role role{op};
    role.first_warp = warps;
    warps += op->warps * op->copies;
    for_each_statement(*op->body, [&](const Statement& inner) {
      role.stores_start = role.stores_start || inner.as<StartStoreOp>();
      role.puts = role.puts || inner.as<PutOp>();
      role.copies = role.copies || by_threads_.contains(inner.as<CopyOp>());
    });
    role.one_thread = only_puts(*op->body) && !role.copies;
    if (!role.one_thread) {
      role.first_barrier = barrier;
      barrier += op->copies;
    }
    roles_.push_back(role);
  }
  for (const Statement& s : phase.body.statements) {
    const auto* token = s.as<TurnsOp>();
    if (!token) continue;
    turn_barriers_[token->token] = barrier;
    barrier += tile_[token->token].count;
  }
  if (warps <= kMostWarps && barrier <= kMostBarriers) return;
  fail(kBlockLimits,
       fmt::format("kernel @{} needs {} warps and {} barriers, but a block has only {} and {}",
                   tile_.name, warps, barrier, kMostWarps, kMostBarriers));
}

// D11, D18: finds the copies that threads must do themselves, and the channels into whose slots
// other blocks write too.
void PipelinedLowering::note_copies(const Region& region) {
  for_each_statement(region, [&](const Statement& s) {
    const auto* put = s.as<PutOp>();
    if (!put) return;
    for (const Statement& inner : put->body->statements)
      if (const auto* copy = inner.as<CopyOp>()) {
        if (!field_box(*copy, 0)) replicated_.erase(copy);  // each block makes its own copy
        if (!field_box(*copy, 0)) by_threads_.insert(copy);
        if (replicated_.contains(copy)) multicast_.insert(put->channel);
      }
  });
}

MemoryId PipelinedLowering::shared(std::string_view name, DType dtype, int64_t count, int64_t align,
                                   std::vector<SharedObject>& list) {
  Memory memory{.name = std::string(name),
                .space = MemorySpace::Shared,
                .mode = Mode::InOut,
                .dtype = dtype,
                .shape = {Expr(count)}};
  const MemoryId id = builder_.add_memory(std::move(memory));
  list.push_back({id, count * static_cast<int64_t>(size_of(dtype)), align});
  return id;
}

MemoryId PipelinedLowering::mbarriers(std::string_view name, int64_t count) {
  const MemoryId id = shared(name, DType::I64, count, kMbarrierBytes, barriers_);
  kernel_.memories[id.index].mbarrier = true;
  return id;
}

void PipelinedLowering::place_buffer(Memory&, int64_t) {
  fail(codes::kInternal, "a buffer of a pipelined program must stand in a role");
}

// D7, D10: makes the fields, the two lists of mbarriers, and the counts of a channel.
void PipelinedLowering::declare_channel(ChannelId id) {
  const Channel& channel = tile_[id];
  LoweredChannel out;
  for (const MemoryId field : channel.fields) {
    const Memory& memory = tile_[field];
    const int64_t count = memory_type(memory).count();
    out.bytes += count * static_cast<int64_t>(size_of(memory.dtype));
    memories_[field.index] = shared(memory.name, memory.dtype, channel.depth * count,
                                    memory.swizzle > 0 ? 1024 : 128, fields_);
  }
  out.writers = multicast_.contains(id) ? phase_->cluster_size : 1;
  out.full = mbarriers(channel.name + "_full", channel.depth);
  out.empty = mbarriers(channel.name + "_empty", channel.depth);
  out.releases = receivers(channel) * out.writers;
  if (role_named(channel.producer).copies) out.fills = role_named(channel.producer).threads();
  channels_[id] = out;
}

const PipelinedLowering::Role& PipelinedLowering::role_named(const std::string& name) const {
  const auto found = std::find_if(roles_.begin(), roles_.end(),
                                  [&](const Role& role) { return role.op->name == name; });
  BRAZE_CHECK(found != roles_.end(), fmt::format("there is no role {}", name));
  return *found;
}

// The number of warps that release an item.
int64_t PipelinedLowering::receivers(const Channel& channel) const {
  const TileRoleOp& role = *role_named(channel.receiver).op;
  return role.warps * (channel.only ? 1 : role.copies);
}

// D2: places all objects in shared memory.
void PipelinedLowering::place_shared(Phase& lowered) {
  int64_t end = 0;
  for (const auto* list : {&fields_, &buffers_, &exchanges_, &barriers_}) {
    for (const SharedObject& object : *list) {
      end = rounded_up(end, object.align);
      kernel_.memories[object.memory.index].scratch_offset = end;
      end += object.bytes;
      builder_.append(BufferOp{object.memory}, {});
    }
  }
  lowered.shared_bytes = end;
  if (end <= target_.l1_bytes) return;
  fail(kBlockLimits,
       fmt::format("kernel @{} needs {} bytes of shared memory, but a block of {} has only {}",
                   tile_.name, end, target_.name, target_.l1_bytes),
       {.fix = "choose a schedule with smaller tiles or fewer stages"});
}

// D15: the statements at the start of a block.
void PipelinedLowering::begin_block(const Phase& lowered) {
  const Expr tid = thread_symbol(lowered.block);
  if (!channels_.empty() || !plain_barriers_.empty()) {
    builder_.if_then({{tid, IndexComparison::Kind::Eq, 0}}, [&] {
      for (size_t i = 0; i < kernel_.tensor_maps.size(); ++i)
        builder_.instruction(Instruction::tma_prefetch, {MapPlace{TensorMapId(i)}});
      for (const auto& [id, channel] : channels_) {
        if (tile_[id].depth == 1) {
          init_slot(channel, 0);
          continue;
        }
        builder_.for_loop("i", 0, tile_[id].depth, 1, {}, [&](const Expr& slot, const auto&) {
          init_slot(channel, slot);
          return std::vector<ValueOperand>();
        });
      }
      for (const auto& [barriers, count] : plain_barriers_)
        for (int64_t i = 0; i < count; ++i)
          builder_.instruction(Instruction::mbarrier_init, {Place{barriers, i}, Expr(1)});
      builder_.instruction(Instruction::fence_mbarrier_init);
    });
  }
  if (lowered.cluster.empty()) {
    builder_.barrier(0, lowered.block);
  } else {
    builder_.instruction(Instruction::cluster_arrive);
    builder_.instruction(Instruction::cluster_wait);
  }
}

void PipelinedLowering::init_slot(const LoweredChannel& channel, const Expr& slot) {
  builder_.instruction(Instruction::mbarrier_init,
                       {Place{channel.full, slot}, Expr(channel.fills)});
  builder_.instruction(Instruction::mbarrier_init,
                       {Place{channel.empty, slot}, Expr(channel.releases)});
}

// --- Roles --------------------------------------------------------------------------------------

// D9: whether thread 0 alone does everything in the region.
bool PipelinedLowering::only_puts(const Region& region) const {
  return std::all_of(region.statements.begin(), region.statements.end(), [&](const Statement& s) {
    if (s.as<LetOp>() || s.as<PutOp>()) return true;
    if (!s.results.empty() || !(s.as<ForOp>() || s.as<IfOp>())) return false;
    const auto inner = regions_of(s);
    return std::all_of(inner.begin(), inner.end(),
                       [&](const Region* body) { return only_puts(*body); });
  });
}

void PipelinedLowering::lower_role(const Role& role) {
  role_ = role;
  accesses_.clear();
  const TileRoleOp& op = *role.op;
  builder_.role(op.name, role.first_warp, role.first_warp + op.warps * op.copies, op.registers,
                [&](const Expr& rtid) {
                  role_symbols(rtid);
                  note_frames(*op.body);
                  pass_first_turns();
                  begin_meetings(*op.body);
                  if (role.one_thread)
                    builder_.if_then({{role_.thread, IndexComparison::Kind::Eq, 0}},
                                     [&] { lower_region(*op.body); });
                  else
                    lower_region(*op.body);
                  end_role();
                });
}

// D1: the copy, warp and lane of a thread, from its number in the role.
void PipelinedLowering::role_symbols(const Expr& rtid) {
  const auto name_value = [&](std::string_view name, const Expr& value) {
    if (value.as_constant() || value.kind() == Expr::Kind::Symbol) return value;
    builder_.append(LetOp{std::string(name), value}, {});
    return let_symbol(name, value);
  };
  const int64_t threads = role_.threads();
  const TileRoleOp& op = *role_.op;
  role_.copy = op.copies > 1 ? name_value(op.symbol, floordiv(rtid, threads)) : Expr(0);
  if (!op.symbol.empty()) renamed_.insert_or_assign(op.symbol, role_.copy);
  role_.thread = mod(rtid, threads);
  role_.warp = name_value(builder_.fresh_name("warp"), floordiv(role_.thread, kWarpThreads));
  role_.lane = name_value(builder_.fresh_name("l"), mod(rtid, kWarpThreads));
  threads_ = {{role_.warp, op.warps}, {role_.lane, kWarpThreads}};
}

// D14: the copy that passes the first element passes it once before it starts.
void PipelinedLowering::pass_first_turns() {
  for (const auto& [id, barrier] : turn_barriers_) {
    const TurnToken& token = tile_[id];
    if (token.among != role_.op->name) continue;
    const int64_t copy = passer(token, id);
    const auto arrive = [&, element = token.first, token_id = id] {
      builder_.instruction(Instruction::bar_arrive,
                           {turn_barrier(token_id, element), Expr(2 * role_.threads())});
    };
    if (role_.op->copies == 1)
      arrive();
    else
      builder_.if_then({{role_.copy, IndexComparison::Kind::Eq, copy}}, arrive);
  }
}

int64_t PipelinedLowering::passer(const TurnToken& token, TokenId id) const {
  const TileRoleOp& op = *role_.op;
  std::optional<int64_t> found;
  for_each_statement(*op.body, [&](const Statement& s) {
    const auto* pass = s.as<PassOp>();
    if (!pass || pass->token != id) return;
    for (int64_t copy = 0; copy < op.copies; ++copy)
      if (pass->element.substitute(op.symbol, copy).is_constant(token.first)) found = copy;
  });
  if (!found)
    fail(kBlockLimits,
         fmt::format("kernel @{}: it is not known which copy of {} passes element {} of %{} first",
                     tile_.name, op.name, token.first, token.name));
  return *found;
}

// D17, D15. All items are received and released before the roles meet (P11), so no block signals a
// block that has ended.
void PipelinedLowering::end_role() {
  if (role_.stores_start)
    by_first_thread([&] { builder_.instruction(Instruction::bulk_wait_read, {Expr(0)}); });
  if (phase_->cluster.empty()) return;
  builder_.instruction(Instruction::bar_warp);
  builder_.instruction(Instruction::cluster_arrive);
  builder_.instruction(Instruction::cluster_wait);
}

void PipelinedLowering::by_first_thread(const std::function<void()>& then) {
  if (role_.one_thread) return then();
  builder_.if_then({{role_.thread, IndexComparison::Kind::Eq, 0}}, then);
}

// D16: a barrier for the threads of this copy of the role.
void PipelinedLowering::barrier() {
  builder_.barrier(role_.copy + role_.first_barrier, role_.threads());
  accesses_.clear();
}

// --- Statements ---------------------------------------------------------------------------------

void PipelinedLowering::lower_in_role(const Statement& s) {
  std::visit([&](const auto& op) { lower_op(op, s); }, s.op);
}

// D9: a put waits until the slot is empty, and fills it.
void PipelinedLowering::lower_op(const PutOp& op, const Statement&) {
  const Channel& channel = tile_[op.channel];
  const LoweredChannel& lowered = channels_.at(op.channel);
  const Expr item = uniform(op.item);
  const Expr place = slot(channel, item);
  const Place full{lowered.full, place};
  const auto wait = [&] {
    builder_.instruction(Instruction::mbarrier_wait,
                         {Place{lowered.empty, place}, mod(round(channel, item) + 1, 2)});
  };
  put_ = &op;
  if (lowered.fills == 1) {
    by_first_thread([&] {
      wait();
      builder_.instruction(Instruction::mbarrier_expect, {full, Expr(lowered.bytes)});
      lower_region(*op.body);
    });
  } else {  // D11: all threads arrive after their copies
    wait();
    lower_region(*op.body);
    builder_.instruction(Instruction::fence_proxy_async);
    const int64_t bytes = bulk_bytes(op);
    const auto arrive = [&] { builder_.instruction(Instruction::mbarrier_arrive, {full}); };
    if (bytes == 0)
      arrive();
    else
      builder_.if_then(
          {{role_.thread, IndexComparison::Kind::Eq, 0}},
          [&] {
            builder_.instruction(Instruction::mbarrier_expect, {full, Expr(bytes)});
          },
          arrive);
  }
  put_ = nullptr;
}

// D12: a get waits until the slot is full.
void PipelinedLowering::lower_op(const GetItemOp& op, const Statement&) {
  const Channel& channel = tile_[op.channel];
  const Expr item = uniform(op.item);
  builder_.instruction(
      Instruction::mbarrier_wait,
      {Place{channels_.at(op.channel).full, slot(channel, item)}, mod(round(channel, item), 2)});
}

// D13: a release arrives at the slot's empty barrier, once for each warp.
void PipelinedLowering::lower_op(const ReleaseOp& op, const Statement&) {
  const Channel& channel = tile_[op.channel];
  const LoweredChannel& lowered = channels_.at(op.channel);
  // Whether loads read a slot; no matrix instruction made the lanes of the warp meet then.
  bool loads = false;
  for_each_statement(*role_.op->body, [&](const Statement& s) {
    const auto* load = s.as<LoadOp>();
    if (!load || !is_on_chip(load->memory) || !windows_.contains(load->memory)) return;
    loads = loads || tile_[windows_.at(load->memory).tile].space == MemorySpace::Field;
  });
  if (loads) builder_.instruction(Instruction::bar_warp);
  const bool remote = lowered.writers > 1;
  const IndexComparison who =
      remote ? IndexComparison{role_.lane, IndexComparison::Kind::Lt, lowered.writers}
             : IndexComparison{role_.lane, IndexComparison::Kind::Eq, 0};
  builder_.if_then({who}, [&] {
    Place place{lowered.empty, slot(channel, uniform(op.item))};
    if (remote) place.rank = role_.lane;
    builder_.instruction(Instruction::mbarrier_arrive, {place});
  });
}

// D14: the barrier of each element of a token.
Expr PipelinedLowering::turn_barrier(TokenId token, const Expr& element) const {
  return element + turn_barriers_.at(token);
}
void PipelinedLowering::lower_op(const PassOp& op, const Statement&) {
  builder_.instruction(Instruction::bar_arrive,
                       {turn_barrier(op.token, uniform(op.element)), Expr(2 * role_.threads())});
}
void PipelinedLowering::lower_op(const TakeOp& op, const Statement&) {
  builder_.instruction(Instruction::bar_sync,
                       {turn_barrier(op.token, uniform(op.element)), Expr(2 * role_.threads())});
}

Kernel lower_pipelined(const TileProgram& program, const Target& target) {
  return PipelinedLowering(program, target).run();
}

}  // namespace braze
