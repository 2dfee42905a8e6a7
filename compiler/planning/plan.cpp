#include "compiler/planning/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "compiler/loops/steps/factors.h"
#include "compiler/planning/beside.h"
#include "compiler/planning/order.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/ops/exchange.h"
#include "ir/program/arena.h"
#include "ir/program/exchanges.h"
#include "ir/support/text.h"

namespace braze {

namespace {

Expr bytes_of(const TensorType& type) {
  return type.shape.numel() * Expr(static_cast<int64_t>(size_of(type.dtype)));
}
Expr rounded(const Expr& bytes) { return ceildiv(bytes, kArenaAlignment) * Expr(kArenaAlignment); }

std::string label_of(const Graph& graph, NodeId node) {
  if (const auto* input = graph[node].as<InputOp>()) return input->name;
  if (!graph[node].label.empty()) return graph[node].label;
  return fmt::format("{}.{}", op_name(graph[node].op), node.index);
}

// The expressions with these values of the kernel's symbols; as they are without values.
std::vector<Expr> with_sizes(std::vector<Expr> all, const Kernel& kernel,
                             const std::vector<int64_t>& values) {
  if (values.empty()) return all;
  std::unordered_map<std::string, Expr> sizes;
  for (size_t i = 0; i < kernel.symbols.size(); ++i)
    sizes.emplace(kernel.symbols[i].symbol_name(), values[i]);
  for (Expr& e : all) e = e.substitute(sizes);
  return all;
}

// The expressions with the sizes of a member.
std::vector<Expr> of_member_sizes(std::vector<Expr> all, const Kernel& kernel, size_t member) {
  if (kernel.member_sizes.empty()) return all;
  return with_sizes(std::move(all), kernel, kernel.member_sizes[member]);
}

bool is_never_empty(const Expr& instances) { return proves_at_most(1, instances); }

// Fills in the facts of a launch that the kernel itself states. The launch already has its buffers.
// `follows` says whether the work before it is certainly a kernel of the same program.
void describe_launch(Launch& launch, const Kernel& kernel, bool follows) {
  follows = follows && launch.zeroed.empty();
  const auto symbols = kernel.passed_symbols();
  launch.scalars.assign(symbols.begin(), symbols.end());
  launch.unlike = !kernel.member_sizes.empty();
  for (const Phase& phase : kernel.phases) {
    launch.instances.push_back(count_instances(kernel, phase));
    launch.scratch_bytes = std::max(launch.scratch_bytes, phase.scratch_bytes);
    if (phase.block > 0)
      launch.gpu.push_back({.block = phase.block,
                            .shared_bytes = phase.shared_bytes,
                            .cluster = phase.cluster_size,
                            .resident = kernel.resident,
                            .overlaps = follows && awaits_predecessors(phase)});
    follows = is_never_empty(launch.instances.back());
  }
  const auto members = static_cast<uint32_t>(kernel.members);
  const uint32_t of_member = static_cast<uint32_t>(launch.buffers.size()) / members;
  for (uint32_t member = 0; member < members; ++member)
    for (const TensorMap& map : kernel.tensor_maps)
      launch.tensor_maps.push_back({member * of_member + map.memory.index, map.dtype,
                                    of_member_sizes(map.extents, kernel, member), map.box,
                                    static_cast<int>(map.swizzle)});
  launch.name = kernel.name;
  launch.schedule = kernel.schedule;
}

// Whether a step of the schedule keeps sums in the memory of the result.
bool keeps_in_result(std::string_view schedule) {
  while (!schedule.empty()) {
    const size_t end = std::min(schedule.find(';'), schedule.size());
    const std::string_view step = schedule.substr(0, end);
    if (step.find("keep %") != std::string_view::npos && step.ends_with(" result")) return true;
    schedule.remove_prefix(std::min(end + 1, schedule.size()));
  }
  return false;
}

// Hands out ranges of the arena. Sizes may be symbolic, so a free range is reused only if it is
// proven to be large enough.
class Arena {
 public:
  Expr allocate(const Expr& bytes) {
    const Expr size = rounded(bytes);
    for (size_t i = 0; i < free_.size(); ++i) {
      if (!proves_at_most(size, free_[i].second)) continue;
      const auto [offset, available] = free_[i];
      free_.erase(free_.begin() + static_cast<ptrdiff_t>(i));
      const Expr left = available - size;
      if (!left.is_constant(0) && proves_at_most(1, left)) free_.emplace_back(offset + size, left);
      return offset;
    }
    const Expr offset = end_;
    end_ += size;
    return offset;
  }
  void release(const Expr& offset, const Expr& bytes) {
    free_.emplace_back(offset, rounded(bytes));
  }
  const Expr& size() const { return end_; }

 private:
  Expr end_;
  std::vector<std::pair<Expr, Expr>> free_;
};

class Planner {
 public:
  Planner(const LoopForms& forms, const std::vector<CompiledFusion>& fusions,
          const std::vector<std::vector<size_t>>& launches, const Updates& updates,
          const Target& target)
      : forms_(forms),
        graph_(forms.graph()),
        fusions_(fusions),
        launches_(launches),
        updates_(updates) {
    program_.name = graph_.name();
    program_.target = target;
    program_.symbols = graph_.symbols();
    program_.mesh = graph_.mesh_axes();
  }

  Program run() {
    for (const CompiledFusion& fusion : fusions_)
      for (NodeId output : fusion.fusion.outputs) written_.insert(output.index);
    add_inputs_and_constants();
    add_outputs();
    save_sources();
    for (const std::vector<size_t>& members : launches_) add_launch(members);
    for (const auto& [from, to] : copies_) add_copy(from, to);
    choose_blocks_of_collectives(program_, least_times_of_launches());
    place_temporaries();
    return std::move(program_);
  }

 private:
  uint32_t add_slot(Slot slot) {
    program_.slots.push_back(std::move(slot));
    return static_cast<uint32_t>(program_.slots.size() - 1);
  }

  void add_inputs_and_constants() {
    for (uint32_t i = 0; i < graph_.inputs().size(); ++i) {
      const NodeId node = graph_.inputs()[i];
      const TensorType& type = graph_[node].type;
      ProgramInput input{label_of(graph_, node), type};
      for (const MeshAxis& axis : graph_[node].as<InputOp>()->varying)
        input.varying.push_back(mesh_axis(axis));
      program_.inputs.push_back(std::move(input));
      slot_of_[node.index] = add_slot({Slot::Kind::Input, i, type, 0, label_of(graph_, node)});
    }
    // A constant that is an output may be written by a kernel. Then others read what that one
    // wrote: it must not write to the memory of the constant, and may overwrite an input.
    const auto add = [this](NodeId node) {
      if (!written_.contains(node.index)) add_constant(node);
    };
    for (const CompiledFusion& fusion : fusions_) std::ranges::for_each(fusion.fusion.inputs, add);
    for (const GraphOutput& output : graph_.outputs()) add(output.node);
  }

  uint32_t mesh_axis(const MeshAxis& axis) const {
    const auto found = std::ranges::find(program_.mesh, axis);
    BRAZE_CHECK(found != program_.mesh.end(), "the program does not have an axis of its graph");
    return static_cast<uint32_t>(found - program_.mesh.begin());
  }

  void add_constant(NodeId node) {
    if (const auto* index = graph_[node].as<AxisIndexOp>(); index && !slot_of_.contains(node.index))
      slot_of_[node.index] = add_slot({Slot::Kind::Place, mesh_axis(index->axis), graph_[node].type,
                                       0, label_of(graph_, node)});
    const auto* constant = graph_[node].as<ConstantOp>();
    if (!constant || slot_of_.contains(node.index)) return;
    program_.constants.push_back(constant->value);
    slot_of_[node.index] =
        add_slot({Slot::Kind::Constant, static_cast<uint32_t>(program_.constants.size() - 1),
                  graph_[node].type, 0, label_of(graph_, node)});
  }

  // --- Slots of results -----------------------------------------------------------------------

  void add_outputs() {
    for (uint32_t o = 0; o < graph_.outputs().size(); ++o) {
      const GraphOutput& output = graph_.outputs()[o];
      const TensorType& type = graph_[output.node].type;
      const uint32_t slot =
          add_slot({Slot::Kind::Output, o, type, 0,
                    output.name.empty() ? label_of(graph_, output.node) : output.name});
      program_.outputs.push_back({output.name, type, slot, output.updates});
    }
    // A kernel writes a value to one place only. The memory of an input is preferred to all others.
    for (const bool in_place : {true, false}) {
      for (uint32_t o = 0; o < graph_.outputs().size(); ++o) {
        const GraphOutput& output = graph_.outputs()[o];
        if (updates_.in_place.contains(o) != in_place) continue;
        const bool aside = output.updates && !in_place;
        const uint32_t slot = program_.outputs[o].slot;
        if (!written_.contains(output.node.index) || aside ||
            !slot_of_.emplace(output.node.index, slot).second)
          unplaced_.emplace_back(output.node, slot);
      }
    }
    for (const CompiledFusion& fusion : fusions_)
      for (NodeId node : fusion.fusion.outputs)
        if (!slot_of_.contains(node.index))
          slot_of_[node.index] =
              add_slot({Slot::Kind::Temporary, 0, graph_[node].type, 0, label_of(graph_, node)});
  }

  // --- Launches -------------------------------------------------------------------------------

  void add_launch(const std::vector<size_t>& members) {
    const CompiledFusion& compiled = fusions_[members.front()];
    const NodeId first = compiled.fusion.nodes.front();
    if (const auto* op = graph_[first].as<CollectiveOp>()) return add_collective(members, *op);
    if (const auto* op = graph_[first].as<CustomCallOp>()) return add_custom_call(first, *op);
    Launch launch;
    launch.artifact = artifact_of(compiled.code);
    for (size_t m = 0; m < members.size(); ++m) {
      if (members.size() > 1) launch.members.push_back(fusions_[members[m]].name);
      add_buffers(fusions_[members[m]], compiled.kernel, m, launch);
    }
    describe_launch(launch, compiled.kernel, ends_in_kernel());
    const auto settle = [&](std::vector<Expr>& all) {
      all = with_sizes(std::move(all), compiled.kernel, compiled.sizes);
    };
    settle(launch.scalars);
    settle(launch.instances);
    for (TensorMapRecipe& map : launch.tensor_maps) settle(map.extents);
    std::set<uint32_t> read;
    for (const size_t k : members) add_work(k, read, launch);
    program_.launches.push_back(std::move(launch));
  }

  // Whether the last work in the queue is certainly a kernel of this program.
  bool ends_in_kernel() const {
    if (program_.launches.empty() || !program_.launches.back().is_kernel()) return false;
    return is_never_empty(program_.launches.back().instances.back());
  }

  void add_buffers(const CompiledFusion& fusion, const Kernel& kernel, size_t member,
                   Launch& launch) {
    for (NodeId node : fusion.parameters) launch.buffers.push_back(slot_of(node));
    for (const Memory& memory : kernel.memories) {
      if (memory.space != MemorySpace::Workspace) continue;
      const uint32_t slot = add_slot(
          {Slot::Kind::Temporary,
           0,
           {memory.dtype,
            Shape(with_sizes(of_member_sizes(memory.shape, kernel, member), kernel, fusion.sizes))},
           0,
           fusion.name + "." + memory.name});
      if (memory.zeroed) launch.zeroed.push_back(slot);
      launch.buffers.push_back(slot);
    }
  }

  // The least time of each launch: exchanges would seem hidden behind kernels that take less than
  // their estimates. What is no kernel counts as nothing.
  std::vector<double> least_times_of_launches() const {
    std::vector<double> out(program_.launches.size());
    for (size_t n = 0; n < launches_.size(); ++n)
      if (program_.launches[n].is_kernel())
        for (const size_t k : launches_[n])
          out[n] += least_seconds(forms_, fusions_[k], program_.target);
    return out;
  }

  // Adds what a launch computes for one of its members. `read` holds the inputs of the members
  // before it, which are not counted again.
  void add_work(size_t k, std::set<uint32_t>& read, Launch& launch) const {
    const CompiledFusion& compiled = fusions_[k];
    for (NodeId node : compiled.fusion.nodes) launch.ops.push_back(op_text(node));
    // A placed reduction that updates a value in place touches only the places of its terms. Terms
    // that replace elements do not read them.
    std::optional<NodeId> updated;
    Expr touched;
    std::map<uint32_t, Expr> loaded;  // by input: the number of elements that the tasks load
    const LoopTree& tree = *compiled.tree;
    std::map<NodeId, NodeId> input_of;  // of outputs that take over the memory of an input
    for (const auto& [input, output] : updates_.aliases[k]) input_of.emplace(output, input);
    const auto node_of = [&](size_t tensor) {
      const NodeId node = compiled.tensors[tensor];
      const auto input = input_of.find(node);
      return input == input_of.end() ? node : input->second;
    };
    const auto count = [&](const std::set<size_t>& axes) {
      Expr out = 1;
      for (const size_t axis : axes) out *= tree.axes[axis].extent;
      return out;
    };
    for (const LoopRegion& phase : tree.phases)
      for_each_task(phase, [&](const LoopTask& task, const auto&) {
        const auto axes = axes_of_steps(tree, task.body);
        for (size_t i = 0; i < axes.size(); ++i)
          if (const LoopStep& s = task.body.steps[i]; s.kind == LoopStep::Kind::Load)
            loaded[node_of(s.source).index] += count(axes[i]);
        if (task.kind != LoopTask::Kind::Place || !keeps_in_result(launch.schedule)) return;
        std::set<size_t> terms = own_axes(tree, task);
        terms.insert(task.over.begin(), task.over.end());
        for (const size_t axis : task.along) terms.erase(axis);
        touched = count(terms);
        const LoopStep& start = task.body.steps[task.body.results[2]];
        if (task.replaces && start.kind == LoopStep::Kind::Load) updated = node_of(start.source);
      });
    for (NodeId node : compiled.fusion.nodes) launch.flops += operations_of(node);
    for (NodeId node : compiled.fusion.inputs) {
      if (node == updated || !read.insert(node.index).second) continue;
      // If an input is sliced or gathered from, only a part of it may be read.
      const TensorType& type = graph_[node].type;
      const auto asked = loaded.find(node.index);
      const bool is_part =
          asked != loaded.end() && proves_less(asked->second, type.shape.numel()).value_or(false);
      launch.bytes_read +=
          is_part ? asked->second * static_cast<int64_t>(size_of(type.dtype)) : bytes_of(type);
    }
    for (NodeId node : compiled.fusion.outputs) {
      const TensorType& type = graph_[node].type;
      launch.bytes_written += touched.is_constant(0)
                                  ? bytes_of(type)
                                  : touched * static_cast<int64_t>(size_of(type.dtype));
    }
  }

  // The operations of the node itself, without conversions.
  Expr operations_of(NodeId node) const {
    const LoopForm* form = forms_.find(node);
    if (!form) return 0;
    const auto computes = [](const BodyStep& s) {
      return s.kind == BodyStep::Kind::Apply && s.op != ElementwiseOp::convert;
    };
    Expr out = std::ranges::count_if(form->body, computes) + (form->reduces() ? 1 : 0);
    for (const auto* extents : {&form->domain, &form->reduction})
      for (const Expr& extent : *extents) out *= extent;
    return out;
  }

  uint32_t artifact_of(const std::shared_ptr<const Artifact>& code) {
    const auto next = static_cast<uint32_t>(program_.artifacts.size());
    const auto [found, added] = artifact_of_.emplace(code.get(), next);
    if (added) program_.artifacts.push_back(*code);
    return found->second;
  }

  std::string op_text(NodeId node) const {
    const std::string where = graph_[node].location.to_string();
    return fmt::format("{} : {}{}{}", label_of(graph_, node), graph_[node].type.to_string(),
                       where.empty() ? "" : " at ", where);
  }

  void add_collective(const std::vector<size_t>& members, const CollectiveOp& op) {
    Launch launch;
    launch.artifact = Launch::kCollective;
    launch.collective = {op.kind, mesh_axis(op.axis), op.monoid, op.offset};
    const auto add = [&](NodeId node) {
      const NodeId operand = graph_[node].operands[0];
      launch.buffers.insert(launch.buffers.end(), {slot_of(operand), slot_of(node)});
      launch.members.push_back(fmt::format("{}_{}", label_of(graph_, operand), name(op.kind)));
      launch.ops.push_back(op_text(node));
    };
    // Members whose memory can lie one behind another come first, next to each other.
    for (const bool packed : {true, false})
      for (const size_t k : members)
        if (const NodeId node = fusions_[k].fusion.nodes.front(); can_be_packed(node) == packed)
          add(node);
    describe_exchange(program_, launch);
    launch.name = launch.members.front();
    if (members.size() == 1)
      launch.members.clear();
    else
      launch.name += fmt::format("_x{}", members.size());
    program_.launches.push_back(std::move(launch));
  }

  void add_custom_call(NodeId node, const CustomCallOp& op) {
    Launch launch;
    launch.artifact = Launch::kCustomCall;
    launch.custom = op;
    for (const NodeId operand : graph_[node].operands) launch.buffers.push_back(slot_of(operand));
    launch.buffers.push_back(slot_of(node));
    launch.name = graph_[node].label.empty() ? op.target : graph_[node].label;
    launch.ops.push_back(op_text(node));
    describe_custom_call(program_, launch);
    program_.launches.push_back(std::move(launch));
  }

  /// Whether the collective may be done together with others whose memory lies beside its own: its
  /// operand and result may lie anywhere in the arena.
  bool can_be_packed(NodeId collective) {
    if (!keeps_places(graph_[collective].as<CollectiveOp>()->kind)) return false;
    const auto is_free = [&](NodeId node) {
      return program_.slots[slot_of(node)].kind == Slot::Kind::Temporary;
    };
    return is_free(graph_[collective].operands[0]) && is_free(collective);
  }

  // The slot of a value. A value without elements has no writer, but still has a slot.
  uint32_t slot_of(NodeId node) {
    const auto found = slot_of_.find(node.index);
    if (found != slot_of_.end()) return found->second;
    return slot_of_[node.index] =
               add_slot({Slot::Kind::Temporary, 0, graph_[node].type, 0, label_of(graph_, node)});
  }

  // Plans copies for outputs that no kernel writes: an output that is an input or a constant, that
  // is returned twice, or that updates an input but not in place. An input that is returned is
  // copied before anything can overwrite it; a value that replaces an input is copied after
  // everything else, from where it was saved if another value replaces it.
  void save_sources() {
    for (const auto& [node, to] : unplaced_) {
      if (graph_[node].type.shape.numel().range().max == 0) continue;
      const uint32_t from = slot_of(node);
      const bool source = !written_.contains(node.index);
      const bool updates = program_.outputs[program_.slots[to].index].updates.has_value();
      if (!source || (updates && !is_updated(program_.slots[from]))) {
        copies_.emplace_back(from, to);
      } else if (!updates) {
        add_copy(from, to);
      } else {
        const uint32_t saved =
            add_slot({Slot::Kind::Temporary, 0, graph_[node].type, 0, label_of(graph_, node)});
        add_copy(from, saved);
        copies_.emplace_back(saved, to);
      }
    }
  }

  bool is_updated(const Slot& slot) const {
    return slot.kind == Slot::Kind::Input &&
           std::ranges::any_of(program_.outputs, [&](const ProgramOutput& output) {
             return output.updates == slot.index;
           });
  }

  void add_copy(uint32_t from, uint32_t to) {
    const TensorType& type = program_.slots[from].type;
    Launch launch;
    launch.artifact = Launch::kCopy;
    launch.buffers = {from, to};
    launch.instances = {type.shape.numel()};
    launch.name = "copy_" + program_.slots[to].label;
    launch.bytes_read = launch.bytes_written = bytes_of(type);
    program_.launches.push_back(std::move(launch));
  }

  // --- Temporaries ----------------------------------------------------------------------------

  /// Slots that lie one behind another.
  struct Piece {
    std::vector<uint32_t> slots = {};
    Expr bytes;
    size_t first = SIZE_MAX, last = 0;  // the first and the last launch that uses it
  };

  /// All temporaries. The operands of collectives that are one are one piece, in the order of the
  /// collectives, and so are their results. If several collectives use a value, it is in the
  /// piece of one of them.
  std::vector<Piece> pieces_of_arena() const {
    std::vector<Piece> pieces;
    std::vector<bool> placed(program_.slots.size());
    const auto add = [&](Piece& piece, uint32_t slot) {
      placed[slot] = true;
      piece.slots.push_back(slot);
      piece.bytes += rounded(bytes_of(program_.slots[slot].type));
    };
    const auto is_free = [&](uint32_t slot) {
      return program_.slots[slot].kind == Slot::Kind::Temporary && !placed[slot];
    };
    for (const Launch& launch : program_.launches) {
      if (launch.artifact != Launch::kCollective || launch.members.empty() ||
          !keeps_places(launch.collective.kind))
        continue;
      Piece operands, results;
      for (size_t b = 0; b < launch.buffers.size(); b += 2) {
        if (!is_free(launch.buffers[b]) || !is_free(launch.buffers[b + 1])) continue;
        add(operands, launch.buffers[b]);
        add(results, launch.buffers[b + 1]);
      }
      for (Piece* piece : {&operands, &results})
        if (!piece->slots.empty()) pieces.push_back(std::move(*piece));
    }
    for (uint32_t slot = 0; slot < program_.slots.size(); ++slot)
      if (is_free(slot)) add(pieces.emplace_back(), slot);
    return pieces;
  }

  void place_temporaries() {
    std::vector<size_t> last(program_.slots.size(), 0), first(program_.slots.size(), SIZE_MAX);
    for (size_t n = 0; n < program_.launches.size(); ++n) {
      for (uint32_t slot : program_.launches[n].buffers) {
        first[slot] = std::min(first[slot], n);
        last[slot] = n;
      }
    }
    hold_collectives(last);
    std::vector<Piece> pieces = pieces_of_arena();
    for (Piece& piece : pieces) {
      for (const uint32_t slot : piece.slots) {
        piece.first = std::min(piece.first, first[slot]);
        piece.last = std::max(piece.last, last[slot]);
      }
    }
    Arena arena;
    for (size_t n = 0; n < program_.launches.size(); ++n) {
      for (const Piece& piece : pieces) {
        if (piece.first != n) continue;
        Expr offset = arena.allocate(piece.bytes);
        for (const uint32_t slot : piece.slots) {
          program_.slots[slot].offset = offset;
          offset += rounded(bytes_of(program_.slots[slot].type));
        }
      }
      for (const Piece& piece : pieces)
        if (piece.last == n && piece.first != SIZE_MAX)
          arena.release(program_.slots[piece.slots.front()].offset, piece.bytes);
    }
    program_.arena_bytes = arena.size();
  }

  /// A GPU runs a collective at the same time as the launches after it, up to the first that needs
  /// the result (runtime/execution/plan.h). Until then the memory of the operand is not given to
  /// another value, whose writer would have to wait.
  void hold_collectives(std::vector<size_t>& last) const {
    if (program_.target.kind != TargetKind::Gpu) return;
    const std::vector<Launch>& launches = program_.launches;
    for (uint32_t n = 0; n < launches.size(); ++n) {
      if (launches[n].artifact != Launch::kCollective) continue;
      const std::vector<uint32_t>& own = launches[n].buffers;
      const size_t until = first_user(program_, n) - 1;
      for (size_t b = 0; b < own.size(); b += 2) last[own[b]] = std::max(last[own[b]], until);
    }
  }

  const LoopForms& forms_;
  const Graph& graph_;
  const std::vector<CompiledFusion>& fusions_;
  const std::vector<std::vector<size_t>>& launches_;
  const Updates& updates_;
  Program program_;
  std::set<uint32_t> written_;            // nodes that some fusion computes
  std::map<uint32_t, uint32_t> slot_of_;  // node -> slot
  std::map<const Artifact*, uint32_t> artifact_of_;
  std::vector<std::pair<NodeId, uint32_t>>
      unplaced_;  // results that no kernel writes into the slot of their output
  std::vector<std::pair<uint32_t, uint32_t>> copies_;  // slots to copy after the last kernel
};

}  // namespace

Program plan(const LoopForms& forms, const std::vector<CompiledFusion>& fusions,
             const std::vector<std::vector<size_t>>& launches, const Updates& updates,
             const Target& target) {
  return Planner(forms, fusions, launches, updates, target).run();
}

namespace codes {
inline constexpr Code kKernelParameter{
    "kernel-parameter", ErrorKind::Unsupported,
    "A program cannot pass a value for a parameter of the kernel."};
}  // namespace codes

Program plan(const KernelCode& signature, const Kernel& kernel, Artifact artifact,
             const Target& target) {
  const auto refuse = [&](const std::string& name, std::string_view why) {
    fail(codes::kKernelParameter,
         fmt::format("kernel @{}: the parameter %{} {}", signature.name, name, why));
  };
  for (const ValueId scalar : signature.scalar_parameters)
    refuse(signature[scalar].name, "is a scalar, which a program cannot pass");
  if (kernel.members > 1)
    fail(codes::kKernelParameter,
         fmt::format("kernel @{} has {} members, but a program of one kernel has memory for one",
                     kernel.name, kernel.members));
  Program program;
  program.name = signature.name;
  program.target = target;
  program.symbols = kernel.symbols;
  Launch launch;
  const auto add_slot = [&](Slot::Kind kind, size_t index, const Memory& memory) {
    launch.buffers.push_back(static_cast<uint32_t>(program.slots.size()));
    program.slots.push_back(
        {kind, static_cast<uint32_t>(index), {memory.dtype, Shape(memory.shape)}, 0, memory.name});
  };
  for (const Memory& memory : signature.memories) {
    if (memory.space != MemorySpace::Parameter) continue;
    if (!memory.strides.empty())
      refuse(memory.name, "has strides of its own, which a program cannot pass");
    const TensorType type{memory.dtype, Shape(memory.shape)};
    std::optional<uint32_t> updates;
    if (memory.mode == Mode::InOut) updates = static_cast<uint32_t>(program.inputs.size());
    if (memory.mode != Mode::Out) {
      launch.bytes_read += bytes_of(type);
      program.inputs.push_back({memory.name, type});
    }
    if (memory.mode == Mode::In) {
      add_slot(Slot::Kind::Input, program.inputs.size() - 1, memory);
      continue;
    }
    // An output that updates an input takes over its memory.
    if (updates) program.slots.push_back({Slot::Kind::Input, *updates, type, 0, memory.name});
    add_slot(Slot::Kind::Output, program.outputs.size(), memory);
    program.outputs.push_back({memory.name, type, launch.buffers.back(), updates});
    launch.bytes_written += bytes_of(type);
  }
  for (const Memory& memory : kernel.memories) {
    if (memory.space != MemorySpace::Workspace) continue;
    add_slot(Slot::Kind::Temporary, 0, memory);
    if (memory.zeroed) launch.zeroed.push_back(launch.buffers.back());
    program.slots.back().offset = program.arena_bytes;
    program.arena_bytes += rounded(bytes_of(program.slots.back().type));
  }
  describe_launch(launch, kernel, /*follows=*/false);
  program.artifacts.push_back(std::move(artifact));
  program.launches.push_back(std::move(launch));
  return program;
}

namespace {

std::string kernel_name(const Graph& graph, const Fusion& fusion) {
  constexpr size_t kMostParts = 4;
  std::vector<std::string> parts;
  const auto add = [&](std::string part) {
    std::replace_if(
        part.begin(), part.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
    if (parts.empty() || parts.back() != part) parts.push_back(std::move(part));
  };
  for (NodeId node : fusion.nodes) {
    if (graph[node].as<ConstantOp>()) continue;
    add(graph[node].label.empty() ? std::string(op_name(graph[node].op)) : graph[node].label);
  }
  if (parts.empty()) return "copy";
  if (parts.size() > kMostParts) parts.erase(parts.begin() + 2, parts.end() - 2);
  return join(parts, "_", [](const std::string& s) { return s; });
}

}  // namespace

std::vector<std::string> kernel_names(const Graph& graph, const std::vector<Fusion>& fusions) {
  std::vector<std::string> names;
  std::map<std::string, int> used;
  for (const Fusion& fusion : fusions) {
    std::string name = kernel_name(graph, fusion);
    if (const int n = used[name]++) name += fmt::format("_{}", n);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace braze
