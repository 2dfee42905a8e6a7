#include "compiler/loops/tile_loops.h"

#include "compiler/loops/build.h"
#include "compiler/loops/emit.h"

namespace braze {

LoopTree first_tree(const TilingRequest& request) {
  return build_loops(request.forms, request.fusion, request.name, request.aliases, request.relaxed,
                     request.coarse, request.powers);
}

namespace {

TreeTiling emitted(Scheduled scheduled, const Target& target) {
  if (scheduled.tree.roles) scheduled.tree.target = target.name;
  TreeTiling out{std::move(scheduled.tree),
                 std::move(scheduled.steps),
                 {},
                 std::move(scheduled.refused),
                 std::move(scheduled.unlimited)};
  out.tiled.program = emit(out.tree);
  out.tiled.program.schedule = to_text(out.steps);
  for (const LoopTensor& tensor : out.tree.tensors) out.tiled.parameters.push_back(tensor.node);
  return out;
}

}  // namespace

std::variant<TreeTiling, Refusal> tile_loops(const TilingRequest& request) {
  return tile_loops(first_tree(request), request.target);
}

std::variant<TreeTiling, Refusal> tile_loops(LoopTree first, const Target& target) {
  auto made = schedule(std::move(first), target);
  if (auto* refusal = std::get_if<Refusal>(&made)) return std::move(*refusal);
  try {
    return emitted(std::get<Scheduled>(std::move(made)), target);
  } catch (const Error& error) {
    if (&error.code() != &codes::kNoEmission) throw;
    return Refusal{&codes::kNoEmission, error.message(), ""};
  }
}

TreeTiling tile_loops(LoopTree first, const Target& target, const LoopTreeSteps& steps) {
  return emitted({take(first, steps), steps, {}}, target);
}

}  // namespace braze
