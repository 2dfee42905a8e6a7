// emit_ahead.cpp — streams in which the first dots of a turn run before the last dot of the turn
// before it (E12). A turn of the emitted loop starts its own first dots and then the last dot of
// the turn before, and computes while that dot multiplies. The loop carries the factor that the
// last dot takes from registers.
#include <algorithm>

#include "compiler/loops/emit_p.h"

namespace braze {

namespace {

bool runs_ahead(const LoopItem& item) {
  const auto* task = std::get_if<LoopTask>(&item);
  return task && task->ahead > 0;
}

}  // namespace

// The dot of a loop that runs one turn later than the others. Null if there is none.
const LoopTask* TreeEmitter::late_dot(const LoopRegion& region) const {
  if (std::none_of(region.begin(), region.end(), runs_ahead)) return nullptr;
  const auto* last = std::get_if<LoopTask>(&region.back());
  const auto refuse_here = [&](const char* why) {
    for (const LoopItem& item : region)
      if (runs_ahead(item)) refuse(std::get<LoopTask>(item).location, why);
  };
  if (!tree_.roles || !last || last->kind != LoopTask::Kind::Dot || !is_asynchronous(*last) ||
      last->ahead > 0)
    refuse_here("a task can run ahead only in a loop that ends in an asynchronous dot");
  for (const LoopItem& item : region) {
    const auto* task = std::get_if<LoopTask>(&item);
    if (!task || task->ahead > 1)
      refuse_here("a task can run ahead by one turn only, in a loop without loops inside");
  }
  return last;
}

// Whether only the late dot of a loop reads this stage.
bool TreeEmitter::is_late(const LoopRegion& region, const LoopTask& stage) const {
  const LoopTask* late = late_dot(region);
  if (!late) return false;
  return std::none_of(region.begin(), region.end(), [&](const LoopItem& item) {
    const auto* task = std::get_if<LoopTask>(&item);
    return task && task != late && reads(task->body, stage.target);
  });
}

void TreeEmitter::in_late_turn(const Stream& stream, const Expr& index,
                               const std::function<void()>& body) {
  counters_.push_back({index, stream.turns});
  in_turn(stream.loop.levels[0], begin_of(stream, index), /*shared=*/true, body);
  counters_.pop_back();
}

void TreeEmitter::stream_ahead(const Stream& stream, const LoopTask& late) {
  const LoopRegion& items = stream.loop.body;
  if (!stream.nonempty || !counters_.empty())
    refuse(stream.loop.location,
           "a loop with a task that runs ahead must surely have a turn, and must not stand inside "
           "a loop whose turns channels count");
  const auto pipes = [&](bool of_late, const std::function<void(Pipe&)>& visit) {
    for (Pipe& pipe : pipes_)
      if (pipe.region == &items && is_late(items, *pipe.stages.front()) == of_late) visit(pipe);
  };
  const auto turns_from = [&](const Expr& first, const Expr& last, const auto& body) {
    const auto count = (last - first).as_constant();
    if (count && *count <= 0) return;
    body(first, last);
  };
  if (part_ == Part::Stages) {
    const auto copy = [&](const Expr& index, bool of_late) {
      in_late_turn(stream, index, [&] { pipes(of_late, [&](Pipe& pipe) { put(pipe); }); });
    };
    copy(0, false);
    turns_from(1, stream.turns, [&](const Expr& first, const Expr& last) {
      builder_.for_loop(turn_name(stream.loop.levels[0].axis), first, last, 1, {},
                        [&](const Expr& index, const auto&) {
                          copy(index, false);
                          copy(index - 1, true);
                          return std::vector<ValueOperand>();
                        });
    });
    return copy(stream.turns - 1, true);
  }

  ValueId factor;  // the factor that the turn before made for the late dot
  const auto start_late = [&](const Expr& index) {
    in_late_turn(stream, index, [&] {
      pipes(true, [&](Pipe& pipe) { get(pipe); });
      start_dot(late, factor);
    });
  };
  const auto finish_late = [&] {
    wait(0);
    pipes(true, [&](Pipe& pipe) {
      release(pipe, *pipe.held);
      pipe.held.reset();
    });
  };
  // Makes everything that a turn computes. `behind`: also the late dot of the turn before.
  const auto turn = [&](const Expr& index, bool behind) {
    in_late_turn(stream, index, [&] {
      if (stream.loop.turns && behind) group_turn_ = {item() - 1};
      // The late dot starts after the tasks that run ahead.
      bool starts = behind;
      const auto start = [&] {
        if (!starts) return;
        starts = false;
        const Counter own = counters_.back();
        counters_.pop_back();
        start_late(index - 1);
        counters_.push_back(own);
      };
      for (const LoopItem& it : items) {
        const auto& t = std::get<LoopTask>(it);
        if (t.kind == LoopTask::Kind::Stage || &t == &late) continue;
        if (t.ahead == 0) start();
        pipes(false, [&](Pipe& pipe) {
          const bool read = std::ranges::any_of(
              pipe.stages, [&](const LoopTask* stage) { return reads(t.body, stage->target); });
          if (read && !pipe.held) get(pipe);
        });
        task(t);
        pipes(false, [&](Pipe& pipe) {
          if (!pipe.held || !pipe.readers.empty()) return;
          release(pipe, *pipe.held);
          pipe.held.reset();
        });
      }
      start();
      if (behind) {
        finish_late();
        if (late.rescale) rescale(late);
      }
      factor = left_factor(late);
      pipes(false, [&](Pipe& pipe) {
        if (!pipe.held) return;
        if (!pipe.readers.empty()) wait(0);
        release(pipe, *pipe.held);
        pipe.held.reset();
      });
      group_turn_.reset();
    });
  };

  // The first turn stands before the loop. Then come the turns in which a condition is not decided,
  // and then those in which it holds.
  const Expr cut = undecided(stream);
  const bool decided = cut.is_constant(0);
  in_decided(stream, decided, [&] { turn(0, false); });
  const auto loop = [&](const Expr& first, const Expr& last) {
    std::vector<ValueOperand> initial;
    for (const LoopTask* t : stream.carried) initial.emplace_back(states_.at(t->target));
    initial.emplace_back(factor);
    const auto results =
        builder_.for_loop(turn_name(stream.loop.levels[0].axis), first, last, 1, initial,
                          [&](const Expr& index, const std::vector<ValueId>& values) {
                            for (size_t i = 0; i < stream.carried.size(); ++i)
                              states_[stream.carried[i]->target] = values[i];
                            factor = values.back();
                            turn(index, true);
                            std::vector<ValueOperand> yields;
                            for (const LoopTask* t : stream.carried)
                              yields.emplace_back(states_.at(t->target));
                            yields.emplace_back(factor);
                            return yields;
                          });
    for (size_t i = 0; i < stream.carried.size(); ++i)
      states_[stream.carried[i]->target] = results[i];
    factor = results.back();
  };
  const Expr from = max(1, cut);
  turns_from(1, from, loop);
  in_decided(stream, true, [&] { turns_from(from, stream.turns, loop); });
  start_late(stream.turns - 1);
  finish_late();
}

}  // namespace braze
