// interpret_pipelined.cpp — runs pipelined tile programs: the copies of roles take turns, and each
// runs until it has to wait. Asynchronous operations move their data when they start; the protocol
// checks who may access it.
#include "ir/code/interpret_p.h"
#include "ir/code/walk.h"

namespace braze {

namespace {

// Statements by which copies of roles wait for and signal each other.
bool is_protocol(const Statement& s) {
  const auto* fold = s.as<FoldOp>();
  return s.as<PutOp>() || s.as<GetItemOp>() || s.as<ReleaseOp>() || s.as<PassOp>() ||
         s.as<TakeOp>() || s.as<StartDotOp>() || s.as<WaitDotOp>() || s.as<StartStoreOp>() ||
         s.as<WaitStoreOp>() || (fold && fold->cluster);
}

// The values that a statement reads and that must be settled.
std::vector<ValueId> settled_operands(const Statement& s) {
  std::vector<ValueId> out;
  if (const auto* dot = s.as<StartDotOp>()) {
    if (!dot->a_window) out.push_back(dot->a.value);
    return out;
  }
  if (s.as<WaitDotOp>() || s.as<ForOp>() || s.as<PutOp>()) return out;
  for_each_value(s, [&](ValueId v) { out.push_back(v); });
  return out;
}

void all_settled_operands(const Statement& s, std::vector<ValueId>& out) {
  const auto own = settled_operands(s);
  out.insert(out.end(), own.begin(), own.end());
  for (const Region* inner : regions_of(s))
    for (const Statement& statement : inner->statements) all_settled_operands(statement, out);
}

}  // namespace

bool has_protocol(const Statement& s) {
  if (is_protocol(s)) return true;
  const auto inner = regions_of(s);
  return std::any_of(inner.begin(), inner.end(), [](const Region* region) {
    return std::any_of(region->statements.begin(), region->statements.end(), has_protocol);
  });
}

// --- Compilation --------------------------------------------------------------------------------

std::vector<RoleCopy> CodeInterpreter::Engine::copies_of(const Phase& phase) {
  std::vector<RoleCopy> out;
  for (int64_t block = 0; block < phase.cluster_size; ++block)
    for (const Statement& s : phase.body.statements)
      if (const auto* role = s.as<TileRoleOp>())
        for (int64_t copy = 0; copy < role->copies; ++copy)
          out.push_back({role, copy, block, static_cast<size_t>(phase.cluster_size)});
  return out;
}

void CodeInterpreter::Engine::compile_roles(const Phase& phase, CompiledPhase& compiled) {
  for (const RoleCopy& copy : copies_of(phase)) {
    ++context_;
    if (compiled.copies.empty() || compiled.copies.back()->copy.block != copy.block)
      field_context_ = context_;
    CompiledCopy& out = *compiled.copies.emplace_back(std::make_unique<CompiledCopy>());
    out.copy = copy;
    const auto outer = slots_;
    if (!phase.cluster.empty()) symbols_[new_slot(phase.cluster)] = copy.block;
    for (const Statement& s : phase.body.statements)
      if (s.as<LetOp>()) append(s, out.head);
    out.item_slot = new_slot("item");
    out.only.resize(code_.channels.size());
    for (const Statement& s : phase.body.statements)
      if (const auto* channel = s.as<ChannelOp>()) {
        const Channel& declared = code_[channel->channel];
        if (declared.only) out.only[channel->channel.index] = uniform(*declared.only);
        for (const MemoryId field : declared.fields)
          out.fields.emplace_back(field, &memory(field), declared.depth);
      }
    if (!copy.role->symbol.empty()) symbols_[new_slot(copy.role->symbol)] = copy.number;
    out.body = compile(*copy.role->body);
    slots_ = outer;
  }
}

// Compiles a statement of pipelined programs. Returns false for other statements, which are
// compiled as in a plain program.
bool CodeInterpreter::Engine::append_pipelined(const Statement& s, Block& block) {
  const auto add = [&](Step step) {
    block.steps.emplace_back(&s, std::move(step));
    return true;
  };
  append_checks(s, block);
  const auto by_item = [&](const auto& op, auto&& call) {
    return add([this, channel = op.channel, item = uniform(op.item), call] {
      call(channel, item.scalar(symbols_));
    });
  };
  const auto by_turn = [&](const auto& op, auto&& call) {
    return add([this, token = op.token, element = uniform(op.element), item = uniform(op.item),
                call] { call(token, element.scalar(symbols_), item.scalar(symbols_)); });
  };
  if (const auto* put = s.as<PutOp>()) {
    append_put(*put, s, block);
    return true;
  }
  if (const auto* get = s.as<GetItemOp>())
    return by_item(*get, [this](ChannelId channel, int64_t item) {
      thread_->waits = !protocol_->get(thread_->copy, channel, item);
    });
  if (const auto* release = s.as<ReleaseOp>())
    return by_item(*release, [this](ChannelId channel, int64_t item) {
      protocol_->release(thread_->copy, channel, item);
    });
  if (const auto* pass = s.as<PassOp>())
    return by_turn(*pass, [this](TokenId token, int64_t element, int64_t item) {
      protocol_->pass(thread_->copy, token, element, item);
      arrivals_of_turns_[{block_of(*thread_), token, element}] = told();
    });
  if (const auto* take = s.as<TakeOp>())
    return by_turn(*take, [this](TokenId token, int64_t element, int64_t item) {
      thread_->waits = !protocol_->take(thread_->copy, token, element, item);
      if (thread_->waits) return;
      const auto& told = arrivals_of_turns_[{block_of(*thread_), token, element}];
      thread_->ordered.insert(told.begin(), told.end());
    });
  if (const auto* view = s.as<MemoryViewOp>()) return add(window(*view));
  if (const auto* dot = s.as<StartDotOp>()) return add(start_dot(*dot, s));
  if (const auto* wait = s.as<WaitDotOp>()) return add(wait_dot(*wait, s));
  if (const auto* store = s.as<StartStoreOp>()) return add(start_store(*store));
  if (const auto* wait = s.as<WaitStoreOp>())
    return add([this, n = wait->pending] { protocol_->wait_stores(thread_->copy, n); });
  if (const auto* fold = s.as<FoldOp>(); fold && fold->cluster) return add(cluster_fold(*fold, s));
  if (s.as<ChannelOp>() || s.as<TurnsOp>() || s.as<TileRoleOp>()) return true;
  if (!skeleton_) return false;
  // Skeletons run without values.
  if (const auto* let = s.as<LetOp>()) {
    const auto symbols = let->value.symbols();
    const bool known = std::none_of(symbols.begin(), symbols.end(), [&](const std::string& name) {
      return name[0] == '%' || !slots_.contains(name);
    });
    return !known;
  }
  return !(s.as<BufferOp>() || ((s.as<ForOp>() || s.as<IfOp>()) && has_protocol(s)));
}

// Appends the checks of P4, P7 and P9: values that a statement reads are settled, items that it
// reads are held, and memory that it overwrites is free.
void CodeInterpreter::Engine::append_checks(const Statement& s, Block& block) {
  std::vector<ValueId> operands;
  if ((s.as<ForOp>() || s.as<IfOp>()) && !has_protocol(s) && skeleton_)
    all_settled_operands(s, operands);
  else
    operands = settled_operands(s);
  for (const ValueId operand : operands) {
    if (type_of(operand).rank() != 2) continue;  // it is no accumulator
    block.steps.emplace_back(&s, [this, operand, &dot = flight(operand)] {
      protocol_->expect_settled(thread_->copy, dot, operand);
    });
  }
  if (const auto* load = s.as<LoadOp>(); load && code_[load->memory].space == MemorySpace::Window)
    block.steps.emplace_back(&s, [this, &window = memory(load->memory)] {
      if (window.item)
        protocol_->expect_held(thread_->copy, window.item->first, window.item->second);
    });
  const auto frees = [&](MemoryId id) {
    block.steps.emplace_back(&s, [this, &buffer = memory(id), id] {
      protocol_->expect_free(thread_->copy, range_of(buffer, id));
    });
  };
  if (const auto* store = s.as<StoreOp>();
      store && code_[store->memory].space == MemorySpace::Window)
    frees(store->memory);
}

void CodeInterpreter::Engine::append_put(const PutOp& op, const Statement& s, Block& block) {
  const auto outer = slots_;
  const IndexProgram item = uniform(op.item);
  block.steps.emplace_back(&s, [this, channel = op.channel, item] {
    thread_->waits = !protocol_->put(thread_->copy, channel, item.scalar(symbols_));
  });
  for (const Statement& inner : op.body->statements) {
    if (const auto* copied = inner.as<CopyOp>()) {
      if (!skeleton_) block.steps.emplace_back(&inner, copy(*copied, op));
    } else {
      append(inner, block);
    }
  }
  block.steps.emplace_back(&s, [this, channel = op.channel, item] {
    protocol_->fill(thread_->copy, channel, item.scalar(symbols_));
  });
  slots_ = outer;
}

// --- Running ------------------------------------------------------------------------------------

void CodeInterpreter::Engine::run_instance(const CompiledPhase& phase) {
  std::vector<RoleCopy> copies;
  std::vector<Thread> threads(phase.copies.size());
  for (size_t i = 0; i < threads.size(); ++i) {
    const CompiledCopy& copy = *phase.copies[i];
    copies.push_back(copy.copy);
    threads[i].number = ++instances_;
    threads[i].copy = i;
    threads[i].stack = {{&copy.head}};
    advance(threads[i]);
    threads[i].stack = {{&copy.body}};
  }
  begin_slots(phase);
  arrivals_of_turns_.clear();
  meetings_.clear();
  const auto receiver = [&](int64_t block, ChannelId channel, int64_t item) {
    const auto own = std::find_if(phase.copies.begin(), phase.copies.end(),
                                  [&](const auto& copy) { return copy->copy.block == block; });
    symbols_[(*own)->item_slot] = item;
    return (*own)->only[channel.index]->scalar(symbols_);
  };
  protocol_.emplace(
      code_, code_.phases[phase_], std::move(copies),
      [this](const Statement* s, const char* rule, const std::string& message) {
        broken(s, rule, message);
      },
      receiver);
  run_copies(threads);
  protocol_.reset();
}

void CodeInterpreter::Engine::run_copies(std::vector<Thread>& threads) {
  std::vector<Thread*> running;
  for (Thread& thread : threads) running.push_back(&thread);
  while (!running.empty()) {
    bool moved = false;
    std::erase_if(running, [&](Thread* thread) {
      const uint64_t before = thread->steps;
      const bool ended = advance(*thread);
      moved = moved || ended || thread->steps != before;
      if (ended) protocol_->end_role(thread->copy);
      return ended;
    });
    if (exhausted()) return;
    if (!moved) return protocol_->stuck();
  }
  protocol_->end();
}

void CodeInterpreter::Engine::broken(const Statement* s, const char* rule,
                                     const std::string& message) {
  if (skeleton_) {
    if (rules_seen_.emplace(s, rule).second) broken_rules.push_back({s, rule, message});
    return;
  }
  statement_ = s;
  report(codes::kProtocol, fmt::format("{}: {}", rule, message));
}

void CodeInterpreter::Engine::begin_slots(const CompiledPhase& phase) {
  for (const auto& copy : phase.copies) {
    for (const auto& [field, state, depth] : copy->fields) {
      lay_out(field, *state);
      state->length *= depth;
      if (skeleton_) continue;
      if (!state->data) own_storage(*state);
      state->tracked = true;
      state->initialised.assign(static_cast<size_t>(state->length), 0);
      state->stored_by.assign(static_cast<size_t>(state->length), 0);
    }
  }
}

// --- On the chip --------------------------------------------------------------------------------

// The part of a buffer that a window shows. A buffer is a window of itself.
ChipRange CodeInterpreter::Engine::range_of(const MemoryState& window, MemoryId id) const {
  if (!window.whole) return {id, std::vector<int64_t>(window.shape.size()), window.shape};
  ChipRange out{window.source, window.corner, window.corner};
  const size_t missing = out.end.size() - window.shape.size();
  for (size_t axis = 0; axis < out.end.size(); ++axis)
    out.end[axis] += axis < missing ? 1 : window.shape[axis - missing];
  return out;
}

CodeInterpreter::Engine::Step CodeInterpreter::Engine::window(const MemoryViewOp& op) {
  std::vector<IndexProgram> offsets;
  for (const Expr& e : op.offsets) offsets.push_back(uniform(e));
  std::optional<IndexProgram> item;
  ChannelId channel;
  if (op.item) {
    item = uniform(*op.item);
    for (size_t i = 0; i < code_.channels.size(); ++i) {
      const auto& fields = code_.channels[i].fields;
      if (std::find(fields.begin(), fields.end(), op.source) != fields.end())
        channel = ChannelId(i);
    }
  }
  return [this, id = op.window, &out = memory(op.window), source_id = op.source,
          &source = memory(op.source), offsets, item, channel] {
    lay_out(id, out);
    const size_t missing = source.shape.size() - out.shape.size();
    out.strides.assign(source.strides.begin() + static_cast<std::ptrdiff_t>(missing),
                       source.strides.end());
    out.tracked = true;
    out.whole = &source.storage();
    out.source = source.whole ? source.source : source_id;
    out.corner.assign(offsets.size(), 0);
    out.first = source.first;
    for (size_t axis = 0; axis < offsets.size(); ++axis) {
      out.corner[axis] = offsets[axis].scalar(symbols_);
      out.first += out.corner[axis] * source.strides[axis];
    }
    if (source.whole) {  // a window of a window: adds the coordinates in the buffer
      const size_t left_out = source.corner.size() - out.corner.size();
      std::vector<int64_t> corner = source.corner;
      for (size_t axis = 0; axis < out.corner.size(); ++axis)
        corner[left_out + axis] += out.corner[axis];
      out.corner = std::move(corner);
      out.item = source.item;
    }
    if (!item) return;
    const int64_t number = item->scalar(symbols_);
    out.item = {channel, number};
    const int64_t depth = code_[channel].depth;
    out.first += ((number % depth + depth) % depth) * (source.length / depth);
  };
}

CodeInterpreter::Engine::Step CodeInterpreter::Engine::copy(const CopyOp& op, const PutOp& put) {
  return [this, &field = memory(op.field), item = uniform(put.item),
          depth = code_[put.channel].depth, from = access(op, memory_type(code_[op.field]))] {
    const std::vector<int64_t>& places = locate(*from);
    MemoryState& memory = *from->memory;
    const size_t bytes = size_of(memory.dtype), count = places.size();
    const auto slot = static_cast<size_t>((item.scalar(symbols_) % depth + depth) % depth);
    for (size_t i = 0; i < count; ++i) {
      std::byte* const to = field.data + (slot * count + i) * bytes;
      field.initialised[slot * count + i] = 1;
      std::memset(to, 0, bytes);
      if (places[i] < 0) continue;
      const auto place = static_cast<size_t>(places[i]);
      if (memory.tracked) note_read(from->id, memory, place);
      std::memcpy(to, memory.data + place * bytes, bytes);
    }
  };
}

CodeInterpreter::Engine::Step CodeInterpreter::Engine::start_dot(const StartDotOp& op,
                                                                 const Statement& s) {
  const std::function<bool()> fresh =
      op.fresh ? [this, when = compile(op.fresh_when, {DType::I64, 1, {}})] { return holds(when); }
               : std::function<bool()>([] { return false; });
  std::vector<const MemoryState*> windows;
  for (const MemoryId id : {op.a_window, op.b_window})
    if (id) windows.push_back(&memory(id));
  const Step compute = skeleton_ ? Step([] {}) : dot(op, s, fresh);
  return [this, compute, windows, &flight = flight(s.results[0])] {
    std::vector<Protocol::Item> reads;
    for (const MemoryState* window : windows)
      if (window->item) reads.push_back(*window->item);
    flight = protocol_->start_dot(thread_->copy, std::move(reads));
    compute();
  };
}

CodeInterpreter::Engine::Step CodeInterpreter::Engine::wait_dot(const WaitDotOp& op,
                                                                const Statement& s) {
  std::vector<std::pair<int64_t*, int64_t*>> flights;
  std::vector<std::pair<const Bits*, Bits*>> values;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    flights.emplace_back(&flight(op.operands[i].value), &flight(s.results[i]));
    values.emplace_back(&value(op.operands[i].value), &result(s, i));
  }
  return [this, n = op.pending, flights, values] {
    protocol_->wait_dots(thread_->copy, n);
    for (const auto& [from, to] : flights)
      *to = protocol_->in_flight(thread_->copy, *from) ? *from : 0;
    for (const auto& [from, to] : values) *to = *from;
  };
}

CodeInterpreter::Engine::Step CodeInterpreter::Engine::start_store(const StartStoreOp& op) {
  std::shared_ptr<Access> to;
  if (!skeleton_) to = access(op, memory_type(code_[op.window]));
  return [this, id = op.window, &window = memory(op.window), to] {
    protocol_->start_store(thread_->copy, range_of(window, id));
    if (!to) return;
    const std::vector<int64_t>& places = locate(*to);
    MemoryState &memory = *to->memory, &storage = window.storage();
    const size_t bytes = size_of(memory.dtype);
    ++store_;
    size_t i = 0;
    for_each_place(window, [&](int64_t from) {
      const int64_t place = places[i++];
      if (place < 0) return;
      note_read(id, storage, static_cast<size_t>(from));
      if (memory.tracked) note_write(to->id, memory, static_cast<size_t>(place));
      std::memcpy(memory.data + static_cast<size_t>(place) * bytes,
                  storage.data + static_cast<size_t>(from) * bytes, bytes);
    });
  };
}

// Each block leaves its part of the fold. The last block to arrive lets all continue.
CodeInterpreter::Engine::Step CodeInterpreter::Engine::cluster_fold(const FoldOp& op,
                                                                    const Statement& s) {
  const DType dtype = type_of(op.operand).dtype;
  return [this, &from = value(op.operand.value), &out = result(s),
          combine = RowLoop(info(op.monoid).combine, dtype, dtype)] {
    const RoleCopy& me = phases_[phase_].copies[thread_->copy]->copy;
    std::map<int64_t, Bits>* parts = nullptr;
    const auto key = [&](int64_t number) { return std::tuple(me.role, me.number, number); };
    const bool met = protocol_->meet(thread_->copy, [&](int64_t number) {
      thread_->meeting = number;
      meetings_[key(number)][me.block] = from;
    });
    thread_->waits = !met;
    if (!met || skeleton_) return;
    parts = &meetings_[key(thread_->meeting)];
    out.clear();
    for (const auto& [block, part] : *parts) out.insert(out.end(), part.begin(), part.end());
    fold_middle(out, 1, parts->size(), from.size(), combine);
  };
}

}  // namespace braze
