#include "ir/program/program.h"

#include "ir/graph/text.h"
#include "ir/support/text.h"

namespace braze {

namespace {

std::string expr_text(const Expr& e) { return e.to_string(); }

std::string slot_line(const Slot& slot) {
  std::string place;
  switch (slot.kind) {
    case Slot::Kind::Input:
      place = fmt::format("input {}", slot.index);
      break;
    case Slot::Kind::Output:
      place = fmt::format("output {}", slot.index);
      break;
    case Slot::Kind::Constant:
      place = fmt::format("constant {}", slot.index);
      break;
    case Slot::Kind::Temporary:
      place = fmt::format("arena[{}]", slot.offset.to_string());
      break;
  }
  return fmt::format("{} {} {}\n", place, slot.type.to_string(), quote(slot.label));
}

std::string phase_line(std::string_view entry, const GpuPhase& phase) {
  return fmt::format("  phase {} block {} shared {}{}{}{}\n", entry, phase.block,
                     phase.shared_bytes,
                     phase.cluster > 1 ? fmt::format(" cluster {}", phase.cluster) : "",
                     phase.resident ? " resident" : "", phase.overlaps ? " overlaps" : "");
}

std::string tensor_map_line(const TensorMapRecipe& map) {
  const auto number = [](int64_t extent) { return std::to_string(extent); };
  return fmt::format("  tensormap buffer {}: {}[{}] box[{}] swizzle {}\n", map.buffer,
                     name(map.dtype), join(map.extents, ", ", expr_text),
                     join(map.box, ", ", number), map.swizzle);
}

std::string launch_lines(const Program& program, const Launch& launch) {
  const auto number = [](uint32_t i) { return std::to_string(i); };
  if (launch.artifact == Launch::kCopy)
    return fmt::format("copy slot {} to slot {} \"{}\"\n", launch.buffers.at(0),
                       launch.buffers.at(1), launch.name);
  const Artifact& artifact = program.artifacts.at(launch.artifact);
  std::string out = fmt::format("launch @{}: {} \"{}\", {}\n", artifact.kernel, artifact.format,
                                launch.name, bytes_text(artifact.code.size()));
  out += fmt::format("  buffers [{}]", join(launch.buffers, ", ", number));
  if (!launch.zeroed.empty()) out += fmt::format(" zeroed [{}]", join(launch.zeroed, ", ", number));
  out += fmt::format(" scalars [{}] instances [{}] scratch {}\n",
                     join(launch.scalars, ", ", expr_text), join(launch.instances, ", ", expr_text),
                     launch.scratch_bytes);
  for (size_t i = 0; i < launch.gpu.size(); ++i) {
    const bool named = i < artifact.entry_names.size();
    out += phase_line(named ? artifact.entry_names[i] : "?", launch.gpu[i]);
  }
  for (const TensorMapRecipe& map : launch.tensor_maps) out += tensor_map_line(map);
  if (!launch.schedule.empty()) out += fmt::format("  schedule {}\n", launch.schedule);
  out += fmt::format("  reads {} B, writes {} B, {} flops\n", launch.bytes_read.to_string(),
                     launch.bytes_written.to_string(), launch.flops.to_string());
  for (const std::string& op : launch.ops) out += fmt::format("  op {}\n", op);
  return out;
}

}  // namespace

std::string to_text(const Program& program) {
  std::string out = fmt::format("program @{}\ntarget {}\nprecision {}\n", program.name,
                                program.target.to_string(), name(program.precision));
  for (const Expr& symbol : program.symbols) out += symbol_text(symbol) + '\n';
  for (const ProgramInput& input : program.inputs) {
    out += fmt::format("input {}: {}\n", quote(input.name), input.type.to_string());
  }
  for (const ProgramOutput& output : program.outputs) {
    out += fmt::format("output {}: {} = slot {}", quote(output.name), output.type.to_string(),
                       output.slot);
    if (output.updates) out += fmt::format(" updates input {}", *output.updates);
    out += '\n';
  }
  for (size_t i = 0; i < program.slots.size(); ++i) {
    out += fmt::format("slot {}: {}", i, slot_line(program.slots[i]));
  }
  out += fmt::format("arena {} B\n", program.arena_bytes.to_string());
  for (const Launch& launch : program.launches) out += launch_lines(program, launch);
  return out;
}

}  // namespace braze
