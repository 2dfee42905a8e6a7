#include "runtime/execution/plan.h"

#include <algorithm>

#include "ir/graph/sizes.h"
#include "ir/ops/exchange.h"
#include "ir/program/arena.h"
#include "ir/support/text.h"
#include "ir/support/words.h"
#include "runtime/memory/array_state.h"

namespace braze {

namespace {

// With this number, a program for n: 1..64 keeps the bindings of all sizes.
constexpr size_t kMostBindings = 64;

// The approximate cost of a parallel region. Waking sleeping threads costs more; the pool takes
// that into account.
constexpr double kRegionSeconds = 2e-6;

[[noreturn]] void malformed(const Program& program, std::string_view what) {
  fail(codes::kMalformedProgram, fmt::format("program @{}: {}", program.name, what));
}

uint64_t tensor_bytes(const Program& program, const TensorType& type,
                      std::span<const int64_t> extents) {
  uint64_t bytes = size_of(type.dtype);
  bool empty = false;
  bool overflow = false;
  for (const int64_t extent : extents) {
    if (extent < 0) malformed(program, "an extent is negative");
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes);
  }
  if (empty) return 0;
  if (overflow || bytes > INT64_MAX) {
    fail(codes::kSizeOverflow,
         fmt::format("{} of a call of @{} has more bytes than can be addressed", type.to_string(),
                     program.name));
  }
  return bytes;
}

}  // namespace

void fail_argument_count(const Program& program, size_t given, std::span<const Array> bound) {
  constexpr size_t kMostShown = 8;
  size_t wanted = 0;
  std::string inputs;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (i < bound.size() && bound[i].valid()) continue;
    if (++wanted > kMostShown) continue;
    const ProgramInput& input = program.inputs[i];
    inputs += (wanted == 1 ? "" : ", ") + input.name + ": " + input.type.to_string();
  }
  if (wanted > kMostShown) inputs += ", ...";
  fail(codes::kArgument,
       fmt::format("@{} takes {}, {} given", program.name, count_text(wanted, "argument"), given),
       {.location = {}, .node = "", .fix = wanted == 0 ? "" : "give, in this order, " + inputs});
}

Plan::Plan(std::shared_ptr<const Program> program, const DeviceDriver& driver)
    : program_(std::move(program)),
      driver_(driver),
      target_(program_->target),
      exprs_(program_->symbols) {
  fail_if_any(verify(*program_), fmt::format("program @{}", program_->name));
  donated_.resize(program_->inputs.size());
  for (const ProgramInput& input : program_->inputs) {
    std::vector<int64_t>& extents = extents_.emplace_back();
    for (const Expr& e : input.type.shape) extents.push_back(e.as_constant().value_or(-1));
  }
  for (size_t i = 0; i < program_->outputs.size(); ++i) {
    const ProgramOutput& output = program_->outputs[i];
    const Slot& slot = program_->slots[output.slot];
    ResultPlan result;
    if (output.updates) {
      result = {ResultPlan::Kind::Updates, *output.updates};
      donated_[*output.updates] = true;
    } else if (slot.kind == Slot::Kind::Input) {
      result = {ResultPlan::Kind::Input, slot.index};
    } else if (slot.kind == Slot::Kind::Constant) {
      result = {ResultPlan::Kind::Constant, slot.index};
    } else if (slot.index < i) {
      result = {ResultPlan::Kind::Same, slot.index};
    }
    results_.push_back(result);
  }
  const auto add_shape = [this](const Shape& shape) {
    std::vector<uint32_t> registers;
    for (const Expr& e : shape) registers.push_back(exprs_.add(e));
    return registers;
  };
  const auto add_all = [this](const std::vector<Expr>& list) {
    std::vector<uint32_t> registers;
    for (const Expr& e : list) registers.push_back(exprs_.add(e));
    return registers;
  };
  for (const Slot& slot : program_->slots) {
    slot_dims_.push_back(add_shape(slot.type.shape));
    slot_offsets_.push_back(exprs_.add(slot.offset));
  }
  for (const ProgramOutput& output : program_->outputs) {
    output_dims_.push_back(add_shape(output.type.shape));
  }
  arena_ = exprs_.add(program_->arena_bytes);
  for (const Launch& launch : program_->launches) {
    launches_.push_back({add_all(launch.scalars), add_all(launch.instances),
                         exprs_.add(launch.bytes_read), exprs_.add(launch.bytes_written),
                         exprs_.add(launch.flops)});
  }
}

std::string Plan::input_text(size_t index) const {
  return fmt::format("argument {} (\"{}\") of @{}", index, program_->inputs[index].name,
                     program_->name);
}

std::shared_ptr<const Binding> Plan::bind(std::span<const Array> arguments) const {
  const Program& p = *program_;
  if (arguments.size() != p.inputs.size()) fail_argument_count(p, arguments.size(), {});
  std::vector<int64_t> key;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].valid()) {
      fail(codes::kEmptyArray, fmt::format("{} holds no array", input_text(i)));
    }
    const Array::State& state = *arguments[i].state();
    if (&state.driver != &driver_) {
      fail(codes::kDeviceMismatch,
           fmt::format("{} is on {}, but the program was loaded on {}", input_text(i),
                       state.driver.name(), driver_.name()),
           {.location = {},
            .node = p.inputs[i].name,
            .fix = fmt::format("copy it with .to(\"{}\")", driver_.name())});
    }
    const std::vector<int64_t>& extents = extents_[i];
    bool fits = state.dtype == p.inputs[i].type.dtype && state.shape.size() == extents.size();
    for (size_t axis = 0; fits && axis < extents.size(); ++axis) {
      if (extents[axis] < 0) {
        key.push_back(state.shape[axis]);
      } else {
        fits = state.shape[axis] == extents[axis];
      }
    }
    if (!fits) {
      fail(codes::kArgument,
           fmt::format("{} is {}, but {} is expected", input_text(i), state.type_text(),
                       p.inputs[i].type.to_string()),
           {.location = {}, .node = p.inputs[i].name, .fix = ""});
    }
  }
  {
    const std::lock_guard lock(mutex_);
    for (auto it = bindings_.begin(); it != bindings_.end(); ++it) {
      if ((*it)->key != key) continue;
      std::rotate(bindings_.begin(), it, it + 1);
      return bindings_.front();
    }
  }
  std::shared_ptr<const Binding> binding = make_binding(arguments, std::move(key));
  const std::lock_guard lock(mutex_);
  if (bindings_.size() == kMostBindings) bindings_.pop_back();
  bindings_.insert(bindings_.begin(), binding);
  return binding;
}

std::shared_ptr<const Binding> Plan::make_binding(std::span<const Array> arguments,
                                                  std::vector<int64_t> key) const {
  const Program& p = *program_;
  auto binding = std::make_shared<Binding>();
  Binding& b = *binding;
  b.key = std::move(key);

  std::vector<GivenShape> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    given.push_back({p.inputs[i].name, &p.inputs[i].type.shape, arguments[i].shape()});
  }
  const Sizes sizes = bind_sizes(given, p.symbols);
  for (const Expr& symbol : p.symbols) b.symbols.push_back(sizes(symbol.symbol_name()));

  const std::vector<int64_t> values = exprs_.run(b.symbols);
  const auto all = [&values](const std::vector<uint32_t>& registers) {
    std::vector<int64_t> out;
    for (const uint32_t r : registers) out.push_back(values[r]);
    return out;
  };
  const auto amount = [&](uint32_t r) {
    if (values[r] < 0) malformed(p, "a size is negative");
    return static_cast<uint64_t>(values[r]);
  };

  b.arena_bytes = amount(arena_);
  b.memory.temporary_bytes = Allocator::block_size(b.arena_bytes);
  for (size_t i = 0; i < p.slots.size(); ++i) {
    const Slot& slot = p.slots[i];
    b.slot_bytes.push_back(tensor_bytes(p, slot.type, all(slot_dims_[i])));
    b.offsets.push_back(0);
    if (slot.kind != Slot::Kind::Temporary || b.slot_bytes[i] == 0) continue;
    b.offsets[i] = amount(slot_offsets_[i]);
    // A slot outside of the arena would corrupt the heap. The check is cheap, because it runs once
    // for each set of sizes.
    if (b.offsets[i] > b.arena_bytes || b.slot_bytes[i] > b.arena_bytes - b.offsets[i]) {
      malformed(p, fmt::format("slot {} leaves the arena", i));
    }
  }
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    b.output_shapes.push_back(all(output_dims_[i]));
    b.output_bytes.push_back(tensor_bytes(p, p.outputs[i].type, b.output_shapes[i]));
    if (results_[i].kind == ResultPlan::Kind::Fresh) {
      b.memory.output_bytes += Allocator::block_size(b.output_bytes[i]);
    }
  }
  b.memory.peak_bytes = b.memory.output_bytes + b.memory.temporary_bytes;

  const double cores = std::max(1, target_.cores);
  for (size_t i = 0; i < launches_.size(); ++i) {
    const LaunchRegisters& registers = launches_[i];
    Binding::LaunchValues& launch = b.launches.emplace_back();
    for (const uint32_t slot : p.launches[i].buffers) launch.sizes.push_back(b.slot_bytes[slot]);
    launch.scalars = all(registers.scalars);
    launch.instances = all(registers.instances);
    launch.bytes = amount(registers.bytes_read) + amount(registers.bytes_written);
    launch.flops = amount(registers.flops);
    int64_t most = 0;
    for (const int64_t n : launch.instances) {
      if (n < 0) malformed(p, "a launch has fewer than no instances");
      most = std::max(most, n);
    }
    launch.empty = !launch.instances.empty() && most == 0;
    if (p.launches[i].artifact == Launch::kCollective)
      launch.exchanges = exchanges_of(p.launches[i], b);
    if (p.launches[i].artifact == Launch::kCustomCall)
      for (const uint32_t slot : p.launches[i].buffers)
        launch.shapes.push_back(all(slot_dims_[slot]));
    const double one_core =
        std::max(static_cast<double>(launch.bytes) * cores / target_.cache_bytes_per_second,
                 static_cast<double>(launch.flops) * cores / target_.flops_per_second);
    // A time of 0 means that the figures of the launch are not known.
    const bool tiny = one_core > 0 && one_core < 2 * kRegionSeconds;
    launch.serial = (most <= 1 && p.launches[i].members.empty()) || tiny;
    launch.seconds = launch.empty ? 0 : one_core;
    b.seconds += launch.seconds;
  }
  find_awaited(b);
  return binding;
}

// The exchanges follow from the plan and not from addresses, because all devices must do the same.
// Each device may have its results at other addresses.
std::vector<Binding::LaunchValues::Exchange> Plan::exchanges_of(const Launch& launch,
                                                                const Binding& b) const {
  const Program& p = *program_;
  std::vector<Binding::LaunchValues::Exchange> out;
  // Whether the second slot begins `bytes` behind the first one.
  const auto follows = [&](uint32_t first, uint32_t second, uint64_t bytes) {
    return p.slots[first].kind == Slot::Kind::Temporary &&
           p.slots[second].kind == Slot::Kind::Temporary &&
           b.offsets[second] == b.offsets[first] + bytes;
  };
  for (size_t member = 0; member < launch.member_count(); ++member) {
    const uint32_t *const own = &launch.buffers[2 * member], from = own[0], to = own[1];
    const uint64_t bytes = b.slot_bytes[from];
    if (bytes == 0) continue;
    if (!out.empty() && keeps_places(launch.collective.kind)) {
      Binding::LaunchValues::Exchange& before = out.back();
      const uint32_t* const first = &launch.buffers[2 * before.member];
      constexpr uint64_t kAlignment = kArenaAlignment;
      const uint64_t padded = (before.bytes + kAlignment - 1) / kAlignment * kAlignment;
      if (p.slots[first[0]].type.dtype == p.slots[from].type.dtype &&
          follows(first[0], from, padded) && follows(first[1], to, padded)) {
        before.bytes = padded + bytes;
        continue;
      }
    }
    out.push_back({member, bytes});
  }
  return out;
}

// Finds the collectives for which each launch has to wait. Ranges of memory decide, not slots, so
// that this is right for every host plan. If a plan reuses memory early, launches wait earlier.
void Plan::find_awaited(Binding& b) const {
  const Program& p = *program_;
  struct Range {
    size_t block;  // 0: the arena; the inputs; the outputs
    uint64_t begin, end;
  };
  const auto range_of = [&](uint32_t slot_index) -> std::optional<Range> {
    const Slot& slot = p.slots[slot_index];
    const uint64_t bytes = b.slot_bytes[slot_index];
    switch (slot.kind) {
      case Slot::Kind::Temporary:
        return Range{0, b.offsets[slot_index], b.offsets[slot_index] + bytes};
      case Slot::Kind::Input:
        // Memory that is never written needs no order.
        if (!donated_[slot.index]) return std::nullopt;
        return Range{1 + slot.index, 0, bytes};
      case Slot::Kind::Output:
        if (const auto updated = p.outputs[slot.index].updates)
          return Range{1 + *updated, 0, bytes};
        return Range{1 + p.inputs.size() + slot.index, 0, bytes};
      case Slot::Kind::Constant:
      case Slot::Kind::Place:
        break;
    }
    return std::nullopt;
  };
  std::vector<std::pair<uint32_t, Range>> under_way;  // the ranges that each collective accesses
  for (uint32_t i = 0; i < p.launches.size(); ++i) {
    const Launch& launch = p.launches[i];
    if (launch.artifact == Launch::kCollective) {
      for (const uint32_t slot : launch.buffers)
        if (const auto range = range_of(slot)) under_way.emplace_back(i, *range);
      continue;
    }
    if (under_way.empty() || b.launches[i].empty) continue;
    std::optional<uint32_t>& awaits = b.launches[i].awaits;
    for (const auto* slots : {&launch.buffers, &launch.zeroed}) {
      for (const uint32_t slot : *slots) {
        const auto mine = range_of(slot);
        if (!mine) continue;
        for (const auto& [collective, theirs] : under_way)
          if (theirs.block == mine->block && theirs.begin < mine->end && mine->begin < theirs.end)
            awaits = std::max(awaits.value_or(0), collective);
      }
    }
    if (awaits) std::erase_if(under_way, [&](const auto& entry) { return entry.first <= *awaits; });
  }
}

}  // namespace braze
