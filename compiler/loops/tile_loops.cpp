#include "compiler/loops/tile_loops.h"

#include "compiler/loops/build.h"
#include "compiler/loops/emit.h"

namespace braze {

LoopTree first_tree(const TilingRequest& request) {
  // An approximate 2^x pays only on machines that have a unit for it.
  const bool special = request.target.kind == TargetKind::Gpu;
  return build_loops(request.forms, request.fusion, request.name, request.aliases, request.relaxed,
                     special, request.coarse);
}

namespace {

TreeTiling emitted(Scheduled scheduled, const Target& target) {
  if (scheduled.tree.roles) scheduled.tree.target = target.name;
  TreeTiling out{std::move(scheduled.tree), {}, std::move(scheduled.refused)};
  out.tiled.program = emit(out.tree);
  out.tiled.program.schedule = to_text(scheduled.steps);
  for (const LoopTensor& tensor : out.tree.tensors) out.tiled.parameters.push_back(tensor.node);
  return out;
}

}  // namespace

std::variant<TreeTiling, Refusal> tile_loops(const TilingRequest& request) {
  auto made = schedule(first_tree(request), request.target);
  if (auto* refusal = std::get_if<Refusal>(&made)) return std::move(*refusal);
  try {
    return emitted(std::get<Scheduled>(std::move(made)), request.target);
  } catch (const Error& error) {
    if (&error.code() != &codes::kNoEmission) throw;
    return Refusal{&codes::kNoEmission, error.message(), ""};
  }
}

TreeTiling tile_loops(const TilingRequest& request, const LoopTreeSteps& steps) {
  return emitted({take(first_tree(request), steps), steps, {}}, request.target);
}

}  // namespace braze
