#include "ir/code/protocol.h"

#include <algorithm>

#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze {

namespace {

bool depends(const Expr& e, const std::set<std::string>& symbols) {
  const auto used = e.symbols();
  return std::any_of(used.begin(), used.end(), [&](const std::string& symbol) {
    return symbol[0] == '%' || symbols.contains(symbol);
  });
}

// `ranked` are the symbols that depend on the block's rank.
void note_replicated(const Region& region, std::set<std::string> ranked,
                     std::set<const CopyOp*>& out) {
  for (const Statement& s : region.statements) {
    if (const auto* let = s.as<LetOp>(); let && depends(let->value, ranked))
      ranked.insert(let->symbol);
    if (const auto* loop = s.as<ForOp>();
        loop && (depends(loop->low, ranked) || depends(loop->high, ranked)))
      ranked.insert(loop->symbol);
    if (const auto* copy = s.as<CopyOp>();
        copy && std::none_of(copy->at.begin(), copy->at.end(),
                             [&](const Expr& e) { return depends(e, ranked); }))
      out.insert(copy);
    for (const Region* inner : regions_of(s)) note_replicated(*inner, ranked, out);
  }
}

void find_multicast(const Region& region, const std::set<const CopyOp*>& replicated,
                    std::set<ChannelId>& out) {
  for (const Statement& s : region.statements) {
    if (const auto* put = s.as<PutOp>())
      for (const Statement& inner : put->body->statements)
        if (const auto* copy = inner.as<CopyOp>(); copy && replicated.contains(copy))
          out.insert(put->channel);
    for (const Region* inner : regions_of(s)) find_multicast(*inner, replicated, out);
  }
}

constexpr int64_t kMostSkipped =
    4096;  // the greatest number of other receivers' items between two items of a receiver

bool overlap(const ChipRange& a, const ChipRange& b) {
  if (a.buffer != b.buffer) return false;
  for (size_t axis = 0; axis < a.begin.size(); ++axis)
    if (a.end[axis] <= b.begin[axis] || b.end[axis] <= a.begin[axis]) return false;
  return true;
}

}  // namespace

std::set<const CopyOp*> replicated_copies(const Phase& phase) {
  std::set<const CopyOp*> out;
  if (!phase.cluster.empty()) note_replicated(phase.body, {phase.cluster}, out);
  return out;
}

std::string RoleCopy::to_string() const {
  std::string out = role->name;
  if (role->copies > 1) out = fmt::format("copy {} of {}", number, out);
  if (blocks > 1) out += fmt::format(" of block {}", block);
  return out;
}

Protocol::Protocol(const KernelCode& code, const Phase& phase, std::vector<RoleCopy> copies,
                   Report report, Only only)
    : code_(code),
      copies_of_(std::move(copies)),
      report_(std::move(report)),
      only_(std::move(only)),
      copies_(copies_of_.size()) {
  for (CopyState& copy : copies_) {
    copy.knows.resize(copies_.size());
    copy.turns.resize(copies_.size());
  }
  find_multicast(phase.body, replicated_copies(phase), multicast_);
  for (const Statement& s : phase.body.statements) {
    const auto* turns = s.as<TurnsOp>();
    if (!turns) continue;
    const TurnToken& token = code[turns->token];
    for (int64_t block = 0; block < phase.cluster_size; ++block) {
      TurnState& first = turns_[{block, {turns->token, token.first}}];
      first.passed = 0;  // it counts as passed when the roles begin
      first.knows = first.turns = Clock(copies_.size());
    }
  }
}

bool Protocol::waits(size_t copy) {
  copies_[copy].waits_at = statement_;
  return false;
}

void Protocol::event(size_t copy) {
  CopyState& me = copies_[copy];
  me.knows[copy] = me.turns[copy] = ++me.events;
}

void Protocol::join(Clock& into, const Clock& from) {
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

bool Protocol::receives(size_t copy, ChannelId channel, int64_t item) const {
  const RoleCopy& me = copies_of_[copy];
  return me.role->name == code_[channel].receiver &&
         (!code_[channel].only || only_(me.block, channel, item) == me.number);
}

std::string Protocol::item_text(ChannelId channel, int64_t item) const {
  return fmt::format("item {} of %{}", item, code_[channel].name);
}

// --- Channels -----------------------------------------------------------------------------------

bool Protocol::put(size_t copy, ChannelId channel, int64_t item) {
  ChannelState& own = state(copy, channel);
  CopyState& me = copies_[copy];
  if (const auto before = own.before(item, code_[channel].depth); before != own.items.end()) {
    for (size_t other = 0; other < copies_.size(); ++other) {
      if (copies_of_[other].block != copies_of_[copy].block ||
          !receives(other, channel, before->first))
        continue;
      const auto receipt = before->second.receipts.find(other);
      if (receipt == before->second.receipts.end() || !receipt->second.released) return waits(copy);
      join(me.knows, receipt->second.at_release);
    }
  }
  const int64_t next = static_cast<int64_t>(own.puts.size());
  expect(item == next, "P10", [&] {
    return fmt::format("{} is put, but item {} is the next one to put", item_text(channel, item),
                       next);
  });
  own.puts.emplace_back(statement_, item);
  return true;
}

void Protocol::fill(size_t copy, ChannelId channel, int64_t item) {
  event(copy);
  ItemState& state = this->state(copy, channel).items[item];
  state.by = statement_;
  state.full = true;
  state.at_put = copies_[copy].knows;
}

bool Protocol::get(size_t copy, ChannelId channel, int64_t item) {
  CopyState& me = copies_[copy];
  const auto last = me.got.find(channel);
  const int64_t last_got = last == me.got.end() ? -1 : last->second;
  int64_t due = last_got + 1;
  while (due < std::min(item, kMostSkipped + last_got) && !receives(copy, channel, due)) ++due;
  expect(item == due && receives(copy, channel, item), "P10", [&] {
    return fmt::format("{} gets {}, but {}", copies_of_[copy].to_string(), item_text(channel, item),
                       item == due ? "that item belongs to another copy"
                                   : fmt::format("item {} is the next one to get", due));
  });
  auto& own = state(copy, channel);
  auto& items = own.items;
  const auto found = items.find(item);
  if (found == items.end() || !found->second.full) {
    me.waits_for = {channel, item};
    return waits(copy);
  }
  me.waits_for.reset();
  const int64_t depth = code_[channel].depth;
  if (const auto before = own.before(item, depth); code_[channel].only && before != items.end()) {
    for (const auto& [other, receipt] : before->second.receipts)
      expect(me.turns[other] >= receipt.event, "P19", [&] {
        return fmt::format(
            "{} gets {}, but no get, pass or take of the receivers ensures that item {}, which "
            "uses the same slot, was gotten before",
            copies_of_[copy].to_string(), item_text(channel, item), item - depth);
      });
  }
  me.got[channel] = item;
  join(me.knows, found->second.at_put);
  event(copy);
  found->second.receipts[copy] = {statement_, me.events, false, {}};
  return true;
}

void Protocol::release(size_t copy, ChannelId channel, int64_t item) {
  CopyState& me = copies_[copy];
  auto& receipts = state(copy, channel).items[item].receipts;
  const auto held = receipts.find(copy);
  const bool holds = held != receipts.end() && !held->second.released;
  expect(holds, "P10", [&] {
    return fmt::format("{} releases {}, but does not hold it", copies_of_[copy].to_string(),
                       item_text(channel, item));
  });
  const auto last = me.released.find(channel);
  expect(last == me.released.end() || last->second < item, "P10", [&] {
    return fmt::format("{} is released after a later item; items must be released in order",
                       item_text(channel, item));
  });
  me.released[channel] = item;
  for (const Dot& dot : me.dots)
    expect(std::find(dot.reads.begin(), dot.reads.end(), Item(channel, item)) == dot.reads.end(),
           "P13", [&] {
             return fmt::format(
                 "a dot in flight still reads {}; a dot.wait must come before the release",
                 item_text(channel, item));
           });
  if (!holds) return;
  event(copy);
  held->second.released = true;
  held->second.at_release = me.knows;
}

void Protocol::expect_held(size_t copy, ChannelId channel, int64_t item) {
  const auto& items = state(copy, channel).items;
  const auto found = items.find(item);
  bool held = found != items.end();
  if (held) {
    const auto receipt = found->second.receipts.find(copy);
    held = receipt != found->second.receipts.end() && !receipt->second.released;
  }
  expect(held, "P4", [&] {
    return fmt::format("{} uses {}, but does not hold it", copies_of_[copy].to_string(),
                       item_text(channel, item));
  });
}

// --- Tokens -------------------------------------------------------------------------------------

void Protocol::pass(size_t copy, TokenId token, int64_t element, int64_t item) {
  CopyState& me = copies_[copy];
  TurnState& turn = turns_[{copies_of_[copy].block, {token, element}}];
  const auto turn_text = [&] {
    return fmt::format("%{}[{}, {}]", code_[token].name, element, item);
  };
  expect(element >= 0 && element < code_[token].count, "P14", [&] {
    return fmt::format("{} names an element that the token does not have", turn_text());
  });
  expect(!turn.passer || *turn.passer == copy, "P14", [&] {
    return fmt::format("{} is passed by {}, but the turn before was passed by {}", turn_text(),
                       copies_of_[copy].to_string(),
                       copies_of_[turn.passer.value_or(copy)].to_string());
  });
  expect(item == turn.passed + 1, "P14", [&] {
    return fmt::format("{} is passed, but item {} is the next one to pass", turn_text(),
                       turn.passed + 1);
  });
  const bool taken = turn.passed < 0 || (turn.taken >= turn.passed && turn.taker &&
                                         me.knows[*turn.taker] >= turn.take_event);
  expect(taken, "P14", [&] {
    return fmt::format("{} may be passed before the previous turn is taken", turn_text());
  });
  event(copy);
  turn.passer = copy;
  turn.passed = item;
  turn.by = statement_;
  turn.knows = me.knows;
  turn.turns = me.turns;
}

bool Protocol::take(size_t copy, TokenId token, int64_t element, int64_t item) {
  CopyState& me = copies_[copy];
  TurnState& turn = turns_[{copies_of_[copy].block, {token, element}}];
  const auto turn_text = [&] {
    return fmt::format("%{}[{}, {}]", code_[token].name, element, item);
  };
  expect(!turn.taker || *turn.taker == copy, "P14", [&] {
    return fmt::format("{} is taken by {}, but the turn before was taken by {}", turn_text(),
                       copies_of_[copy].to_string(),
                       copies_of_[turn.taker.value_or(copy)].to_string());
  });
  expect(item == turn.taken + 1, "P14", [&] {
    return fmt::format("{} is taken, but item {} is the next one to take", turn_text(),
                       turn.taken + 1);
  });
  if (turn.passed < item) return waits(copy);
  join(me.knows, turn.knows);
  join(me.turns, turn.turns);
  event(copy);
  turn.taker = copy;
  turn.taken = item;
  turn.take_event = me.events;
  return true;
}

// --- Dots and stores ----------------------------------------------------------------------------

int64_t Protocol::start_dot(size_t copy, std::vector<Item> reads) {
  CopyState& me = copies_[copy];
  for (const auto& [channel, item] : reads) expect_held(copy, channel, item);
  me.dots.push_back({++me.started, statement_, std::move(reads)});
  return me.started;
}

void Protocol::wait_dots(size_t copy, int64_t pending) {
  CopyState& me = copies_[copy];
  while (static_cast<int64_t>(me.dots.size()) > pending) {
    me.settled = me.dots.front().number;
    me.dots.pop_front();
  }
}

// A value stays in flight under its name, even when the dot is done. The result of a dot.wait is
// the name of the settled value.
void Protocol::expect_settled(size_t copy, int64_t dot, ValueId value) {
  expect(dot == 0, "P7", [&] {
    return fmt::format(
        "%{} is still in flight: {} dots were started after its own, and no dot.wait has waited "
        "for it",
        code_[value].name, copies_[copy].started - dot);
  });
}

void Protocol::start_store(size_t copy, ChipRange range) {
  copies_[copy].stores.push_back(std::move(range));
}

void Protocol::wait_stores(size_t copy, int64_t pending) {
  auto& stores = copies_[copy].stores;
  while (static_cast<int64_t>(stores.size()) > pending) stores.pop_front();
}

void Protocol::expect_free(size_t copy, const ChipRange& range) {
  const auto& stores = copies_[copy].stores;
  expect(std::none_of(stores.begin(), stores.end(),
                      [&](const ChipRange& other) { return overlap(range, other); }),
         "P9", [&] {
           return fmt::format("a store.start may still read %{}; a store.wait must come before",
                              code_[range.buffer].name);
         });
}

// --- Meetings and ends --------------------------------------------------------------------------

bool Protocol::meet(size_t copy, const std::function<void(int64_t)>& arrive) {
  CopyState& me = copies_[copy];
  const RoleCopy& role = copies_of_[copy];
  Meeting& meeting = meetings_[{{role.role, role.number}, me.meetings}];
  if (!me.meets) {
    me.meets = true;
    event(copy);
    if (meeting.knows.empty()) meeting.knows.resize(copies_.size());
    join(meeting.knows, me.knows);
    ++meeting.arrived;
    arrive(me.meetings);
  }
  if (meeting.arrived < role.blocks) return waits(copy);
  join(me.knows, meeting.knows);
  me.meets = false;
  ++me.meetings;
  return true;
}

void Protocol::end_role(size_t copy) {
  CopyState& me = copies_[copy];
  me.ended = true;
  for (const Dot& dot : me.dots)
    report_(dot.by, "P7",
            "this dot is still in flight at the end of the role; a dot.wait must come after it");
}

void Protocol::end() {
  for (const auto& [where, channel] : channels_) {
    const auto& [block, id] = where;
    for (const auto& [number, item] : channel.items) {
      for (size_t copy = 0; copy < copies_.size(); ++copy) {
        if (copies_of_[copy].block != block || !receives(copy, id, number)) continue;
        const auto receipt = item.receipts.find(copy);
        if (receipt == item.receipts.end())
          report_(item.by, "P11",
                  fmt::format("{} is put, but {} never gets it", item_text(id, number),
                              copies_of_[copy].to_string()));
        else if (!receipt->second.released)
          report_(receipt->second.by, "P10",
                  fmt::format("{} gets {}, but never releases it", copies_of_[copy].to_string(),
                              item_text(id, number)));
      }
    }
    const auto first = channels_.find({0, id});
    if (multicast_.contains(id) && first != channels_.end() && channel.puts != first->second.puts)
      report_(
          channel.puts.empty() ? first->second.puts[0].first : channel.puts[0].first, "P16",
          fmt::format(
              "block {} and block 0 put different items of %{}, which is multicast to all blocks",
              block, code_[id].name));
  }
  for (const auto& [where, turn] : turns_)
    if (turn.by && turn.passed > turn.taken + 1)
      report_(turn.by, "P14",
              fmt::format("items of %{}[{}] are passed, but never taken",
                          code_[where.second.first].name, where.second.second));
}

void Protocol::stuck() {
  bool explained = false;
  std::vector<std::string> waiting;
  const Statement* first = nullptr;
  for (size_t copy = 0; copy < copies_.size(); ++copy) {
    const CopyState& me = copies_[copy];
    if (me.ended || !me.waits_at) continue;
    if (!first) first = me.waits_at;
    waiting.push_back(copies_of_[copy].to_string());
    for (size_t other = 0; other < copies_.size(); ++other) {
      const RoleCopy &mine = copies_of_[copy], &theirs = copies_of_[other];
      if (!copies_[other].ended) continue;
      if (me.waits_for && mine.block == theirs.block &&
          theirs.role->name == code_[me.waits_for->first].producer) {
        report_(me.waits_at, "P11",
                fmt::format("{} is waited for, but never put",
                            item_text(me.waits_for->first, me.waits_for->second)));
        explained = true;
      }
      if (me.meets && theirs.role == mine.role && theirs.number == mine.number) {
        report_(
            me.waits_at, "P17",
            fmt::format("block {} ends after {} such reductions, but block {} waits for one more",
                        theirs.block, copies_[other].meetings, mine.block));
        explained = true;
      }
    }
  }
  if (!explained)
    report_(first, "P12",
            fmt::format("no role can continue: these wait for each other: {}",
                        braze::join(waiting, ", ", [](const std::string& text) { return text; })));
}

}  // namespace braze
