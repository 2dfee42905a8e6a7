#include "ir/tile/pipeline_rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/code/walk.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"
#include "ir/target/target.h"
#include "ir/tile/layouts.h"

namespace braze {

namespace {

constexpr int64_t kMostWarps = 32;
constexpr int64_t kDotRows = 64, kMostDotColumns = 256;

class PipelineRules {
 public:
  PipelineRules(const TileProgram& program, const ReportRule& report)
      : program_(program),
        report_(report),
        layouts_(program, [&](const Statement& s, const std::string& message) {
          report_(&s, "P5", message);
        }) {}

  void run() {
    for (const Phase& phase : program_.phases) {
      phase_ = &phase;
      roles_.clear();
      last_role_ = nullptr;
      shared_bytes_ = 0;
      for (const Statement& s : phase.body.statements) note_role(s);
      for (const Statement& s : phase.body.statements) check_top(s);
      check_sums();
    }
  }

 private:
  void expect(bool holds, const char* rule, const std::string& message) {
    if (!holds) report_(statement_, rule, message);
  }

  // --- The head of a phase: P1, P2, P8 ----------------------------------------------------------

  void note_role(const Statement& s) {
    const auto* role = s.as<TileRoleOp>();
    if (!role) return;
    statement_ = last_role_ = &s;
    expect(roles_.emplace(role->name, role).second, "P1",
           fmt::format("there are two roles with the name {}", role->name));
  }
  const TileRoleOp* role(const std::string& name) {
    const auto found = roles_.find(name);
    expect(found != roles_.end(), "P1", fmt::format("there is no role with the name {}", name));
    return found == roles_.end() ? nullptr : found->second;
  }

  void check_top(const Statement& s) {
    statement_ = &s;
    if (const auto* let = s.as<LetOp>()) {
      lets_.insert(let->symbol);
    } else if (const auto* channel = s.as<ChannelOp>()) {
      check_channel(program_[channel->channel]);
    } else if (const auto* token = s.as<TurnsOp>()) {
      const TurnToken& turns = program_[token->token];
      role(turns.among);
      expect(turns.first >= 0 && turns.first < turns.count, "P1",
             fmt::format("%{} has no element {}", turns.name, turns.first));
    } else if (const auto* op = s.as<TileRoleOp>()) {
      role_ = op;
      check_region(*op->body);
      role_ = nullptr;
    } else if (!s.as<AwaitOp>()) {
      expect(false, "P1",
             "a pipelined phase holds only lets, channels, tokens, roles and await_predecessors; "
             "put this statement into a role");
    }
  }

  void check_channel(const Channel& channel) {
    const TileRoleOp* const producer = role(channel.producer);
    role(channel.receiver);
    expect(!producer || producer->copies == 1, "P2",
           fmt::format("the producer of %{} must be a role of one copy", channel.name));
    expect(!channel.fields.empty(), "P3",
           fmt::format("the channel %{} has no field", channel.name));
    for (const MemoryId field : channel.fields) {
      const ValueType type = memory_type(program_[field]);
      shared_bytes_ += channel.depth * type.count() * static_cast<int64_t>(size_of(type.dtype));
      check_swizzle(program_[field]);
    }
    if (!channel.only) return;
    for (const std::string& symbol : channel.only->symbols()) {
      const bool size = std::any_of(program_.symbols.begin(), program_.symbols.end(),
                                    [&](const Expr& e) { return e.symbol_name() == symbol; });
      expect(symbol == "item" || size || lets_.contains(symbol), "P2",
             fmt::format("`only` uses {}; it can use item, sizes and lets only", symbol));
    }
  }

  void check_swizzle(const Memory& memory) {
    if (memory.swizzle == 0) return;
    const ValueType type = memory_type(memory);
    const auto panel = memory.swizzle / static_cast<int64_t>(size_of(type.dtype));
    expect(type.rank() >= 2 && type.extents.back() % panel == 0 &&
               type.extents[type.rank() - 2] % 8 == 0,
           "P5",
           fmt::format("the last extent of %{} must be a multiple of {} elements, and the extent "
                       "before a multiple of 8, for its swizzle",
                       memory.name, panel));
  }

  void check_sums() {
    statement_ = last_role_;
    int64_t warps = 0, registers = 0, given = 0;
    for (const auto& [name, copies] : roles_) {
      warps += copies->warps * copies->copies;
      registers += copies->registers * copies->warps * copies->copies * kWarpThreads;
      given += copies->registers > 0;
      const bool whole =
          copies->registers == 0 ||
          (copies->warps % 4 == 0 && copies->registers % 8 == 0 && copies->registers >= 24);
      expect(whole, "P8",
             fmt::format("role {} asks for registers, so its warps must be a multiple of 4, and "
                         "the registers a multiple of 8 from 24 on",
                         name));
    }
    expect(!roles_.empty(), "P1", "a pipelined phase needs at least one role");
    expect(warps <= kMostWarps, "P8",
           fmt::format("the roles have {} warps, but a block can have only {}", warps, kMostWarps));
    expect(given == 0 || given == static_cast<int64_t>(roles_.size()), "P8",
           "some roles state their registers and others do not; state them for all or for none");
    if (given > 0 && warps > 0 && warps <= kMostWarps) {
      const int64_t threads = warps * kWarpThreads;
      const int64_t launch = launch_registers(threads) * threads;
      expect(registers <= launch, "P8",
             fmt::format("the roles ask for {} registers, but the launch has only {}", registers,
                         launch));
    }
    const auto target = find_target(program_.target);
    expect(target && target->kind == TargetKind::Gpu, "P8",
           fmt::format("the target {} is not a GPU", quote(program_.target)));
    if (target)
      expect(shared_bytes_ <= target->l1_bytes, "P8",
             fmt::format("the phase uses {} bytes of on-chip memory, but {} has only {}",
                         shared_bytes_, target->name, target->l1_bytes));
  }

  // --- Statements -------------------------------------------------------------------------------

  void check_region(const Region& region) {
    for (const Statement& s : region.statements) {
      statement_ = &s;
      check(s);
      for (const ValueId result : s.results) check_layout(result);
      if (!s.as<PutOp>())
        for (const Region* inner : regions_of(s)) check_region(*inner);
    }
  }

  void check(const Statement& s) {
    if (const auto* put = s.as<PutOp>()) {
      expect(program_[put->channel].producer == role_->name, "P1",
             fmt::format("role {} puts into a channel that it does not produce", role_->name));
      check_put(*put);
    } else if (const auto* get = s.as<GetItemOp>()) {
      expect_receiver(get->channel);
    } else if (const auto* release = s.as<ReleaseOp>()) {
      expect_receiver(release->channel);
    } else if (s.as<CopyOp>()) {
      expect(false, "P1", "a copy must stand inside a put");
    } else if (const auto* pass = s.as<PassOp>()) {
      expect_among(pass->token);
    } else if (const auto* take = s.as<TakeOp>()) {
      expect_among(take->token);
    } else if (const auto* buffer = s.as<BufferOp>()) {
      const ValueType type = memory_type(program_[buffer->memory]);
      shared_bytes_ += role_->copies * type.count() * static_cast<int64_t>(size_of(type.dtype));
      check_swizzle(program_[buffer->memory]);
    } else if (const auto* view = s.as<MemoryViewOp>()) {
      check_window(*view);
    } else if (const auto* store = s.as<StoreOp>()) {
      const auto window = windows_.find(store->memory);
      const bool slot = window != windows_.end() && window->second->item;
      expect(!slot, "P9", "a slot of a channel can be filled by a copy only");
    } else if (const auto* dot = s.as<StartDotOp>()) {
      check_dot(*dot);
    } else if (s.as<TileRoleOp>() || s.as<ChannelOp>() || s.as<TurnsOp>()) {
      expect(false, "P1", "this statement must stand at the top of a phase, outside of the roles");
    }
  }

  void expect_receiver(ChannelId id) {
    expect(program_[id].receiver == role_->name, "P1",
           fmt::format("role {} is not the receiver of %{}", role_->name, program_[id].name));
  }
  void expect_among(TokenId id) {
    expect(program_[id].among == role_->name, "P1",
           fmt::format("%{} is not a token of role {}", program_[id].name, role_->name));
  }

  // P3: a put copies every field once, and contains nothing else.
  void check_put(const PutOp& put) {
    const Channel& channel = program_[put.channel];
    std::map<MemoryId, int> copies;
    for (const MemoryId field : channel.fields) copies[field] = 0;
    const Statement* const outer = statement_;
    for (const Statement& s : put.body->statements) {
      statement_ = &s;
      const auto* copy = s.as<CopyOp>();
      expect(copy || s.as<LetOp>(), "P3", "a put can hold only copies and lets");
      if (!copy) continue;
      const auto field = copies.find(copy->field);
      expect(field != copies.end(), "P3",
             fmt::format("%{} is not a field of %{}", program_[copy->field].name, channel.name));
      if (field != copies.end()) ++field->second;
      expect(program_[copy->memory].dtype == program_[copy->field].dtype, "P3",
             "the copy's memory and field have different dtypes");
    }
    statement_ = outer;
    for (const auto& [field, count] : copies)
      expect(count == 1, "P3",
             fmt::format("the put copies %{} {} times; it must copy each field once",
                         program_[field].name, count));
  }

  void check_window(const MemoryViewOp& op) {
    windows_.emplace(op.window, &op);
    const Memory& source = program_[op.source];
    expect(source.space == MemorySpace::Field || source.space == MemorySpace::Local, "P1",
           "a view must be of a buffer or of a channel's field");
    expect((source.space == MemorySpace::Field) == op.item.has_value(), "P4",
           "a view of a field must name the item, and a view of a buffer cannot");
    expect(op.offsets.size() == source.shape.size(), "P6",
           fmt::format("the view has {} offsets, but its memory has {} axes", op.offsets.size(),
                       source.shape.size()));
    if (op.item) {
      const auto own = std::find_if(
          program_.channels.begin(), program_.channels.end(), [&](const Channel& channel) {
            return std::find(channel.fields.begin(), channel.fields.end(), op.source) !=
                   channel.fields.end();
          });
      expect(own->receiver == role_->name, "P4",
             fmt::format("role {} is not the receiver of %{} and holds no items of it", role_->name,
                         own->name));
    }
    const ValueType part = memory_type(program_[op.window]), whole = memory_type(source);
    bool inside = part.rank() <= whole.rank() && part.dtype == whole.dtype &&
                  op.offsets.size() == whole.rank();
    for (size_t i = 0; inside && i < whole.rank(); ++i) {
      const size_t missing = whole.rank() - part.rank();
      const int64_t extent = i < missing ? 1 : part.extents[i - missing];
      const Interval range = op.offsets[i].range();
      inside = range.min >= 0 && range.max + extent <= whole.extents[i];
    }
    expect(inside, "P6", fmt::format("the view is not inside %{}", source.name));
  }

  // --- Dots: P6 ---------------------------------------------------------------------------------

  void check_dot(const StartDotOp& op) {
    const Value& sum = program_[op.c.value];
    const bool shape = sum.type.dtype == DType::F32 && sum.type.rank() == 2 &&
                       sum.type.extents[0] == kDotRows && sum.type.extents[1] % 8 == 0 &&
                       sum.type.extents[1] <= kMostDotColumns;
    expect(
        shape, "P6",
        fmt::format("the accumulator must be f32[64, N] with N a multiple of 8 up to 256, not {}",
                    sum.type.to_string()));
    if (shape)
      expect(layouts_[op.c.value] == accumulator_layout(sum.type.extents[1]), "P6",
             fmt::format("the accumulator has the layout {}, but the unit needs {}",
                         layouts_[op.c.value].to_string(),
                         accumulator_layout(sum.type.extents[1]).to_string()));
    const ValueType b = memory_type(program_[op.b_window]);
    const ValueType a =
        op.a_window ? memory_type(program_[op.a_window]) : program_[op.a.value].type;
    const bool matrices = a.rank() == 2 && b.rank() == 2 && a.dtype == b.dtype &&
                          (op.contract_a | 1) == 1 && (op.contract_b | 1) == 1;
    expect(matrices, "P6", "the operands of a dot must be two matrices of one dtype");
    if (!matrices || !shape) return;
    const auto at = [](const ValueType& type, int64_t axis) {
      return type.extents[static_cast<size_t>(axis)];
    };
    const int64_t depth = at(a, op.contract_a);
    expect(depth == at(b, op.contract_b) && at(a, 1 - op.contract_a) == kDotRows &&
               at(b, 1 - op.contract_b) == sum.type.extents[1],
           "P6", "the extents of the operands do not fit each other or the accumulator");
    const bool tf32 = a.dtype == DType::F32;
    expect(is_half(a.dtype) || (tf32 && op.tf32), "P6",
           fmt::format("a dot of {} is not possible; it takes f16, bf16, or f32 as tf32",
                       name(a.dtype)));
    expect(depth % (tf32 ? 8 : 16) == 0, "P6",
           fmt::format(
               "the contracted extent {} is not a multiple of the unit's depth, 16 (8 for tf32)",
               depth));
    expect(!tf32 || ((!op.a_window || op.contract_a == 1) && op.contract_b == 1), "P6",
           "operands of 32 bits must have the contracted axis innermost");
    check_operand(op.b_window);
    if (op.a_window)
      check_operand(op.a_window);
    else
      expect(layouts_[op.a.value] == dot_operand_layout(depth, tf32), "P6",
             fmt::format("an operand in registers must have the layout {}",
                         dot_operand_layout(depth, tf32).to_string()));
  }

  // P6: the operand in on-chip storage is swizzled, and the view begins at a panel and at a
  // multiple of eight rows.
  void check_operand(MemoryId id) {
    const auto window = windows_.find(id);
    const MemoryId source = window == windows_.end() ? id : window->second->source;
    const Memory& memory = program_[source];
    expect(memory.swizzle > 0, "P6",
           fmt::format("%{} needs a swizzle to be an operand of a dot", memory.name));
    if (window == windows_.end() || memory.swizzle == 0) return;
    const auto panel = memory.swizzle / static_cast<int64_t>(size_of(memory.dtype));
    const std::vector<Expr>& offsets = window->second->offsets;
    const bool begins = offsets.size() >= 2 && offsets.back().is_multiple_of(panel) &&
                        offsets[offsets.size() - 2].is_multiple_of(8);
    expect(begins, "P6",
           fmt::format("the view of %{} must begin at a whole panel of its swizzle", memory.name));
  }

  // --- Layouts: P5 ------------------------------------------------------------------------------

  void check_layout(ValueId value) {
    const Layout& layout = layouts_[value];
    for (const std::vector<Digit>& axis : layout.axes)
      expect(std::none_of(axis.begin(), axis.end(),
                          [](const Digit& digit) { return digit.resource == Resource::Block; }),
             "P5",
             fmt::format("the layout {} has block digits; each block has a tile of its own, and "
                         "`reduce .. cluster` combines them",
                         layout.to_string()));
    for (const Resource resource : {Resource::Warp, Resource::Lane, Resource::Register}) {
      std::vector<Digit> digits;
      for (const std::vector<Digit>& axis : layout.axes)
        std::copy_if(axis.begin(), axis.end(), std::back_inserter(digits),
                     [&](const Digit& digit) { return digit.resource == resource; });
      std::sort(digits.begin(), digits.end(),
                [](const Digit& a, const Digit& b) { return a.stride < b.stride; });
      int64_t end = 1;
      bool apart = true, dense = true;
      for (const Digit& digit : digits) {
        apart = apart && digit.stride >= end && digit.stride % end == 0;
        dense = dense && digit.stride == end;
        end = digit.stride * digit.extent;
      }
      expect(apart, "P5", fmt::format("digits of the layout {} overlap", layout.to_string()));
      const int64_t limit = resource == Resource::Warp   ? role_->warps
                            : resource == Resource::Lane ? kWarpThreads
                                                         : end;
      expect(end <= limit, "P5",
             fmt::format("the layout {} needs more threads than the role has", layout.to_string()));
      expect(resource != Resource::Register || dense, "P5",
             fmt::format("the register digits of the layout {} leave gaps", layout.to_string()));
    }
  }

  const TileProgram& program_;
  const ReportRule& report_;
  const TileLayouts layouts_;
  const Phase* phase_ = nullptr;
  const Statement* statement_ = nullptr;
  const Statement* last_role_ = nullptr;
  const TileRoleOp* role_ = nullptr;
  std::map<std::string, const TileRoleOp*> roles_;
  std::set<std::string> lets_;
  std::map<MemoryId, const MemoryViewOp*> windows_;
  int64_t shared_bytes_ = 0;
};

}  // namespace

void check_pipeline_rules(const TileProgram& program, const ReportRule& report) {
  PipelineRules(program, report).run();
}

}  // namespace braze
