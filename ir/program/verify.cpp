#include "ir/program/verify.h"

#include <algorithm>

#include "ir/graph/infer.h"
#include "ir/program/arena.h"
#include "ir/support/text.h"

namespace braze {

namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  std::vector<Diagnostic> run() {
    for (size_t i = 0; i < program_.slots.size(); ++i) check_slot(i);
    for (size_t i = 0; i < program_.outputs.size(); ++i) check_output(i);
    check_results();
    check_mesh();
    for (const Artifact& artifact : program_.artifacts) check_artifact(artifact);
    for (const Launch& launch : program_.launches) check_launch(launch);
    check_symbols();
    return std::move(findings_);
  }

 private:
  void report(std::string context, std::string message) {
    findings_.push_back({&codes::kMalformedProgram, {}, std::move(context), std::move(message)});
  }

  void check_slot(size_t i) {
    const Slot& slot = program_.slots[i];
    const std::string context = fmt::format("slot {}", i);
    const auto holds = [&](size_t count) {
      if (slot.index < count) return true;
      report(context, "the slot refers to an argument, result or constant that does not exist");
      return false;
    };
    const auto is_type = [&](const TensorType& type) {
      if (slot.type != type)
        report(context, "the slot does not have the type of its argument or result");
    };
    switch (slot.kind) {
      case Slot::Kind::Input:
        if (holds(program_.inputs.size())) is_type(program_.inputs[slot.index].type);
        break;
      case Slot::Kind::Output:
        if (holds(program_.outputs.size())) is_type(program_.outputs[slot.index].type);
        break;
      case Slot::Kind::Constant:
        if (holds(program_.constants.size())) check_constant(context, slot);
        break;
      case Slot::Kind::Place:
        if (holds(program_.mesh.size())) is_type({DType::I64, Shape()});
        break;
      case Slot::Kind::Temporary:
        if (!slot.offset.is_multiple_of(kArenaAlignment))
          report(context,
                 fmt::format("the offset of the slot is not a multiple of {}", kArenaAlignment));
        break;
    }
  }

  void check_constant(const std::string& context, const Slot& slot) {
    const auto& value = program_.constants[slot.index];
    if (!value)
      report(context, "the constant is missing");
    else if (slot.type != TensorType{value->dtype(), Shape::of(value->shape())})
      report(context, "the slot does not have the type of its constant");
  }

  void check_output(size_t i) {
    const ProgramOutput& output = program_.outputs[i];
    const std::string context = fmt::format("output {}", i);
    if (output.slot >= program_.slots.size())
      report(context, "the output refers to a slot that does not exist");
    if (!output.updates) return;
    if (*output.updates >= program_.inputs.size())
      report(context, "the output updates an input that does not exist");
    else if (program_.inputs[*output.updates].type != output.type)
      report(context, "the output updates an input of a different type");
  }

  // Checks that the memory of each result outlives the call, and that no two results own the same
  // memory.
  void check_results() {
    if (!findings_.empty()) return;  // the checks below rely on those before
    std::vector<bool> donated(program_.inputs.size());
    for (const ProgramOutput& output : program_.outputs) {
      if (!output.updates) continue;
      if (donated[*output.updates]) report({}, "two outputs update one input");
      donated[*output.updates] = true;
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      if (program_.outputs[i].updates) continue;
      const Slot& slot = program_.slots[program_.outputs[i].slot];
      const std::string context = fmt::format("output {}", i);
      if (slot.kind == Slot::Kind::Temporary || slot.kind == Slot::Kind::Place ||
          (slot.kind == Slot::Kind::Output && slot.index > i))
        report(context, fmt::format("output {} is a slot that does not outlive the call", i));
      if (slot.kind == Slot::Kind::Input && donated[slot.index])
        report(context, "an input is both returned and updated");
    }
  }

  void check_mesh() {
    for (size_t i = 0; i < program_.mesh.size(); ++i) {
      const MeshAxis& axis = program_.mesh[i];
      if (axis.name.empty() || axis.size < 1 || axis.size > kMostDevices)
        report("mesh", fmt::format("an axis of the mesh must have a name and 1 to {} devices",
                                   kMostDevices));
      if (i > 0 && !(program_.mesh[i - 1].name < axis.name))
        report("mesh", "the axes of the mesh are not in the order of their names");
    }
    for (const ProgramInput& input : program_.inputs)
      for (const uint32_t axis : input.varying)
        if (axis >= program_.mesh.size())
          report(input.name, "the input varies along an axis that the mesh does not have");
  }

  void check_artifact(const Artifact& artifact) {
    const auto wrong = [&](std::string_view what) {
      report("@" + artifact.kernel, fmt::format("kernel @{} has {}", artifact.kernel, what));
    };
    if (artifact.format == "image") {
      for (const uint64_t entry : artifact.entries)
        if (entry >= artifact.code.size()) return wrong("an entry that is outside of its code");
    }
    if (!artifact.facts.empty() && artifact.facts.size() != artifact.entry_names.size())
      wrong("facts for a number of phases other than its own");
  }

  void check_launch(const Launch& launch) {
    const std::string context = fmt::format("launch {}", quote(launch.name));
    const auto wrong = [&](std::string_view what) { report(context, std::string(what)); };
    for (const auto* list : {&launch.buffers, &launch.zeroed}) {
      for (const uint32_t slot : *list)
        if (slot >= program_.slots.size())
          return wrong("the launch refers to a slot that does not exist");
    }
    if (launch.artifact == Launch::kCopy) {
      if (launch.buffers.size() != 2) wrong("a copy must be between two slots");
      return;
    }
    if (launch.artifact == Launch::kCollective) return check_collective(launch, context);
    if (launch.artifact == Launch::kCustomCall) return check_custom_call(launch, context);
    if (launch.artifact >= program_.artifacts.size())
      return wrong("the launch refers to an artifact that does not exist");
    if (launch.scratch_bytes < 0) wrong("the scratch of the launch is negative");
    if (launch.buffers.size() % launch.member_count() != 0)
      wrong("the members of the launch do not have equally many buffers");
    check_phases(launch, program_.artifacts[launch.artifact], context);
    for (const TensorMapRecipe& map : launch.tensor_maps) check_map(map, launch, context);
  }

  void check_custom_call(const Launch& launch, const std::string& context) {
    const auto wrong = [&](std::string_view what) { report(context, std::string(what)); };
    if (launch.custom.target.empty()) wrong("the custom call does not name its function");
    if (launch.buffers.empty()) return wrong("the custom call has no result");
    const uint32_t result = launch.buffers.back();
    if (std::ranges::count(launch.buffers, result) > 1)
      wrong("the custom call writes to a slot that it reads");
    const Slot::Kind kind = program_.slots[result].kind;
    if (kind == Slot::Kind::Constant || kind == Slot::Kind::Place)
      wrong("the custom call writes to a constant");
  }

  // Checks that the sizes of both slots of each member are those of the kind of collective, and
  // that no slot that is written is another slot of the launch.
  void check_collective(const Launch& launch, const std::string& context) {
    const auto wrong = [&](std::string_view what) { report(context, std::string(what)); };
    const Collective& c = launch.collective;
    if (c.axis >= program_.mesh.size())
      return wrong("the collective is along an axis that the mesh does not have");
    if (launch.buffers.size() != 2 * launch.member_count())
      return wrong("a collective must be between two slots");
    if (c.blocks < 0) return wrong("a collective has fewer than no blocks");
    for (size_t b = 0; b < launch.buffers.size(); b += 2) {
      if (std::ranges::count(launch.buffers, launch.buffers[b + 1]) > 1)
        return wrong("the collective writes to a slot that it uses for something else");
      check_member(c, launch.buffers[b], launch.buffers[b + 1], context);
    }
  }

  void check_member(const Collective& c, uint32_t operand_slot, uint32_t result_slot,
                    const std::string& context) {
    const auto wrong = [&](std::string_view what) { report(context, std::string(what)); };
    const MeshAxis& axis = program_.mesh[c.axis];
    const TensorType &from = program_.slots[operand_slot].type,
                     &to = program_.slots[result_slot].type;
    try {
      const CollectiveOp op{c.kind, axis, c.monoid, c.offset};
      const TensorType* operand = &from;
      if (infer_type(op, {&operand, 1}, to) != to)
        wrong("the slots of the collective do not have the types that it needs");
    } catch (const Error& error) {
      wrong(error.message());
    }
    const Slot& target = program_.slots[result_slot];
    if (target.kind == Slot::Kind::Constant || target.kind == Slot::Kind::Place)
      wrong("the collective writes to a constant");
  }

  void check_phases(const Launch& launch, const Artifact& artifact, const std::string& context) {
    const bool is_gpu = artifact.format == "ptx" || artifact.format == "cubin";
    const size_t phases = is_gpu ? artifact.entry_names.size() : artifact.entries.size();
    const bool has_phases = is_gpu || artifact.format == "image";
    if ((has_phases && launch.instances.size() != phases) ||
        (is_gpu && launch.gpu.size() != phases))
      report(context, fmt::format("kernel @{} and its launch have different numbers of phases",
                                  artifact.kernel));
  }

  void check_map(const TensorMapRecipe& map, const Launch& launch, const std::string& context) {
    if (map.buffer >= launch.buffers.size())
      return report(context, "a tensor map refers to a buffer that does not exist");
    const bool fits = map.extents.size() == map.box.size() &&
                      std::all_of(map.box.begin(), map.box.end(),
                                  [](int64_t extent) { return extent >= 1 && extent <= 256; });
    if (!fits) report(context, "the box of a tensor map is not valid");
  }

  // The values of symbols are found from the inputs, so each symbol must be declared.
  void check_symbols() {
    const auto declared = [this](const Expr& e) {
      for (const std::string& name : e.symbols()) {
        const auto is_this = [&](const Expr& symbol) { return symbol.symbol_name() == name; };
        if (std::none_of(program_.symbols.begin(), program_.symbols.end(), is_this))
          report(name, fmt::format("the symbol {} is not declared", name));
      }
    };
    const auto all = [&](const auto& list) { std::for_each(list.begin(), list.end(), declared); };
    for (const ProgramInput& input : program_.inputs) all(input.type.shape);
    for (const ProgramOutput& output : program_.outputs) all(output.type.shape);
    for (const Slot& slot : program_.slots) {
      all(slot.type.shape);
      declared(slot.offset);
    }
    for (const Launch& launch : program_.launches) {
      all(launch.scalars);
      all(launch.instances);
    }
    declared(program_.arena_bytes);
  }

  const Program& program_;
  std::vector<Diagnostic> findings_;
};

}  // namespace

std::vector<Diagnostic> verify(const Program& program) { return Verifier(program).run(); }

}  // namespace braze
