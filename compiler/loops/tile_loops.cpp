#include "compiler/loops/tile_loops.h"

#include "compiler/loops/build.h"
#include "compiler/loops/emit.h"

namespace braze {

std::variant<TreeTiling, Refusal> tile_loops(const TilingRequest& request) {
  auto made = schedule(build_loops(request.forms, request.fusion, request.name, request.aliases),
                       request.target);
  if (auto* refusal = std::get_if<Refusal>(&made)) return std::move(*refusal);
  auto& scheduled = std::get<Scheduled>(made);
  TreeTiling out;
  out.tree = std::move(scheduled.tree);
  try {
    out.tiled.program = emit(out.tree);
  } catch (const Error& error) {
    if (&error.code() != &codes::kNoEmission) throw;
    return Refusal{&codes::kNoEmission, error.message(), ""};
  }
  out.tiled.program.schedule = to_text(scheduled.steps);
  for (const LoopTensor& tensor : out.tree.tensors) out.tiled.parameters.push_back(tensor.node);
  return out;
}

}  // namespace braze
