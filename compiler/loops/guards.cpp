#include "compiler/loops/guards.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/graph/interpret.h"
#include "ir/ops/scalar.h"

namespace braze {

namespace {

/// What is known of a step: its bits, if it reads nothing but constants and the identity.
struct Known {
  uint64_t bits = 0;
  bool of_identity = false;
};

uint64_t apply(const LoopStep& s, const LoopBody& body, const std::vector<Known>& arguments) {
  std::vector<HostTensor> operands;
  std::vector<const HostTensor*> pointers;
  for (size_t i = 0; i < arguments.size(); ++i) {
    operands.emplace_back(body.steps[s.arguments[i]].dtype, std::vector<int64_t>{});
    operands.back().set_bits(0, arguments[i].bits);
  }
  for (const HostTensor& operand : operands) pointers.push_back(&operand);
  return evaluate_map(s.op, pointers, s.dtype).get_bits(0);
}

// Whether something that is computed from the value alone is not finite while the value is
// `identity`, and goes into a result of the body or is combined with something else. `before` says
// which of the running values is meant, that of this turn or the one before it.
bool spreads(const LoopBody& body, size_t value, bool before, uint64_t identity) {
  std::vector<std::optional<Known>> known(body.steps.size());
  const auto is_infinite = [&](uint32_t number) {
    const LoopStep& s = body.steps[number];
    return known[number] && known[number]->of_identity && is_floating(s.dtype) &&
           !std::isfinite(bits_to_double(s.dtype, known[number]->bits));
  };
  for (size_t n = 0; n < body.steps.size(); ++n) {
    const LoopStep& s = body.steps[n];
    if (s.kind == LoopStep::Kind::Constant) known[n] = Known{s.bits};
    if (s.kind == LoopStep::Kind::Read && s.source == value && s.before == before)
      known[n] = Known{identity, true};
    if (s.kind != LoopStep::Kind::Apply) continue;
    std::vector<Known> arguments;
    for (const uint32_t argument : s.arguments)
      if (known[argument]) arguments.push_back(*known[argument]);
    if (arguments.size() < s.arguments.size()) {
      if (std::ranges::any_of(s.arguments, is_infinite)) return true;
      continue;
    }
    known[n] = Known{apply(s, body, arguments)};
    for (const Known& argument : arguments) known[n]->of_identity |= argument.of_identity;
  }
  return std::ranges::any_of(body.results, is_infinite);
}

}  // namespace

std::vector<bool> guarded_values(const LoopTree& tree) {
  std::vector<const LoopTask*> tasks;
  for_each_task(tree, [&](const LoopTask& task, const auto&) { tasks.push_back(&task); });
  std::vector<bool> out(tree.values.size());
  for (const LoopTask* fold : tasks) {
    if (fold->kind != LoopTask::Kind::Fold) continue;
    const size_t value = fold->target;
    const uint64_t identity = info(fold->monoid).identity(tree.values[value].dtype);
    const auto spreads_in = [&](const LoopBody& body) {
      return spreads(body, value, true, identity) || spreads(body, value, false, identity);
    };
    for (const LoopTask* reader : tasks)
      if (reader->rescale || reader->kind == LoopTask::Kind::Compute)
        out[value] = out[value] || spreads_in(reader->body) ||
                     (reader->rescale && spreads_in(*reader->rescale));
  }
  return out;
}

}  // namespace braze
