#include "compiler/passes/distribute.h"

#include <algorithm>
#include <map>

#include "compiler/passes/expand.h"
#include "ir/graph/along.h"
#include "ir/graph/build.h"
#include "ir/graph/loop_form.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/splat.h"
#include "ir/ops/exchange.h"
#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kShardingConflict{"sharding-conflict", ErrorKind::InvalidArgument,
                                        "Values that an op joins are spread in ways that exclude "
                                        "each other."};
inline constexpr Code kBadConstraint{"bad-constraint", ErrorKind::InvalidArgument,
                                     "A value cannot be spread as a constraint says."};
}  // namespace codes

namespace {

/// For each axis of a tensor, the number of the mesh axis that cuts it, or kWhole.
using Cut = std::vector<int>;
constexpr int kWhole = -1;

std::optional<size_t> place_in(const Cut& cut, int axis) {
  const auto found = std::ranges::find(cut, axis);
  if (found == cut.end()) return std::nullopt;
  return static_cast<size_t>(found - cut.begin());
}

/// An axis of an operand.
struct Read {
  uint32_t operand = 0;
  size_t axis = 0;
  friend bool operator==(const Read&, const Read&) = default;
};

/// The loops of a node, and how a cut of a loop cuts its operands. The loops of the domain come
/// first, and those of the reduction follow.
class Loops {
 public:
  Loops(const Graph& graph, NodeId id, LoopForm form) : form_(std::move(form)) {
    const Node& node = graph[id];
    for (const NodeId operand : node.operands) shapes_.push_back(graph[operand].type.shape);
    for (const Expr& extent : form_.domain)
      symbols_.push_back(domain_symbol(symbols_.size(), extent));
    for (size_t r = 0; r < form_.reduction.size(); ++r)
      symbols_.push_back(reduction_symbol(r, form_.reduction[r]));
    for (const BodyStep& step : form_.body)
      if (step.kind == BodyStep::Kind::Load) reads_.emplace_back(step.operand, step.index);
    if (const auto& placement = form_.placement) {
      reads_.emplace_back(placement->indices, placement->at);
      const std::span all(symbols_);
      const auto here = all.first(domain());
      reads_.emplace_back(placement->start, std::vector<Expr>(here.begin(), here.end()));
    }
  }

  const LoopForm& form() const { return form_; }
  size_t domain() const { return form_.domain.size(); }
  size_t size() const { return symbols_.size(); }
  bool reads(uint32_t operand) const {
    return std::ranges::any_of(reads_, [&](const auto& read) { return read.first == operand; });
  }

  /// The axes of operands that are cut if a loop is cut into `count` blocks; none if the loop
  /// cannot be cut.
  const std::optional<std::vector<Read>>& cut(size_t loop, int64_t count) {
    const auto [known, is_new] = cuts_.try_emplace({loop, count});
    if (is_new) known->second = find_cut(loop, count);
    return known->second;
  }
  /// The loop that is cut if this axis of an operand is cut.
  std::optional<size_t> loop_of(const Read& read, int64_t count) {
    for (size_t loop = 0; loop < size(); ++loop)
      if (const auto& axes = cut(loop, count))
        if (std::ranges::find(*axes, read) != axes->end()) return loop;
    return std::nullopt;
  }

  /// Whether partial sums of the operands give partial sums of the result. This holds if the node
  /// only adds, moves and sums.
  bool is_linear() const {
    if ((form_.monoid && form_.monoid != Monoid::Sum) || form_.arg_max || form_.placement ||
        form_.running || !form_.waits_for.empty())
      return false;
    for (const BodyStep& step : form_.body) {
      const bool adds = step.kind == BodyStep::Kind::Apply &&
                        (step.op == ElementwiseOp::add || step.op == ElementwiseOp::sub ||
                         step.op == ElementwiseOp::neg);
      if (!adds && (step.kind != BodyStep::Kind::Load || !step.conditions.empty())) return false;
      if (step.dtype != form_.body[0].dtype) return false;
    }
    return true;
  }

 private:
  Expr extent(size_t loop) const {
    return loop < domain() ? form_.domain[loop] : form_.reduction[loop - domain()];
  }

  /// Whether anything but the places of loads depends on the loop. Such a loop cannot be cut.
  bool decides(size_t loop) const {
    const std::string& name = symbols_[loop].symbol_name();
    if (form_.arg_max && loop >= domain()) return true;
    if (form_.running && (loop == form_.running->axis || loop >= domain())) return true;
    if (form_.placement && loop == form_.placement->axis) return true;
    // If terms are not added but replace or compare, a device would have to know the value with
    // which the result begins, and the order of the terms.
    if (form_.placement && loop >= domain() && form_.monoid != Monoid::Sum) return true;
    for (const BodyStep& step : form_.body) {
      if (step.kind == BodyStep::Kind::Index && step.expr.uses(name)) return true;
      for (const RangeCondition& c : step.conditions)
        if (c.value.uses(name) || c.min.uses(name) || c.limit.uses(name)) return true;
    }
    return false;
  }

  std::optional<std::vector<Read>> find_cut(size_t loop, int64_t count) const {
    if (!extent(loop).is_multiple_of(count) || extent(loop).is_constant(0) || decides(loop))
      return std::nullopt;
    std::vector<Read> axes;
    std::vector<bool> whole(shapes_.size());  // operands that are read without the loop
    for (const auto& [operand, index] : reads_) {
      const std::optional<std::optional<size_t>> axis = axis_of(loop, operand, index, count);
      if (!axis) return std::nullopt;
      if (!*axis) {
        whole[operand] = true;
        continue;
      }
      const Read read{operand, **axis};
      for (const Read& known : axes)
        if (known.operand == operand && known.axis != read.axis) return std::nullopt;
      if (std::ranges::find(axes, read) == axes.end()) axes.push_back(read);
    }
    for (const Read& read : axes)
      if (whole[read.operand]) return std::nullopt;
    return axes;
  }

  /// The axis of the operand whose blocks are those of the loop. The inner optional is empty if the
  /// loop's symbol does not occur in the index, and the outer one if the loop cannot be cut there.
  std::optional<std::optional<size_t>> axis_of(size_t loop, uint32_t operand,
                                               const std::vector<Expr>& index,
                                               int64_t count) const {
    const Expr& symbol = symbols_[loop];
    std::vector<size_t> at;
    for (size_t axis = 0; axis < index.size(); ++axis)
      if (index[axis].uses(symbol.symbol_name())) at.push_back(axis);
    if (at.empty()) return std::optional<size_t>();
    const Shape& shape = shapes_[operand];
    if (at.size() == 1 && index[at[0]] == symbol && shape[at[0]] == extent(loop)) return at[0];
    // Writes the symbol as block * size + inside. The loop can be cut if exactly one axis contains
    // `block`, as the number of a block of that axis.
    const Expr block = Expr::symbol("block.number", {0, count - 1});
    const Expr size = floordiv(extent(loop), count);
    const Expr inside =
        Expr::symbol("block.index", {0, std::max<int64_t>(size.range().max, 1) == INT64_MAX
                                            ? INT64_MAX
                                            : std::max<int64_t>(size.range().max, 1) - 1});
    std::optional<size_t> found;
    for (const size_t axis : at) {
      const Expr place = index[axis].substitute(symbol.symbol_name(), block * size + inside);
      if (!place.uses("block.number")) continue;
      if (found || !shape[axis].is_multiple_of(count)) return std::nullopt;
      if ((place - block * floordiv(shape[axis], count)).uses("block.number")) return std::nullopt;
      found = axis;
    }
    if (!found) return std::nullopt;
    return found;
  }

  LoopForm form_;
  std::vector<Expr> symbols_;
  std::vector<Shape> shapes_;  // of the operands
  std::vector<std::pair<uint32_t, std::vector<Expr>>> reads_;
  std::map<std::pair<size_t, int64_t>, std::optional<std::vector<Read>>> cuts_;
};

class Distributor {
 public:
  Distributor(const Graph& graph, std::span<const MeshAxis> mesh)
      : graph_(graph), needed_(needed_nodes(graph)), nodes_(graph.size()), uses_(graph.size()) {
    all_.assign(mesh.begin(), mesh.end());
    // A mesh axis of one device cuts nothing.
    for (const MeshAxis& axis : mesh)
      if (axis.size > 1) mesh_.push_back(axis);
    for (size_t i = 0; i < graph.size(); ++i)
      if (needed_[i])
        for (uint32_t slot = 0; slot < graph[NodeId(i)].operands.size(); ++slot)
          uses_[graph[NodeId(i)].operands[slot].index].push_back({NodeId(i), slot});
  }

  Distributed run(std::span<const std::optional<Sharding>> inputs,
                  std::span<const std::optional<Sharding>> outputs) {
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      result_.inputs.push_back(sharding_of_input(i, i < inputs.size() ? inputs[i] : std::nullopt));
    for (size_t o = 0; o < graph_.outputs().size(); ++o) {
      const GraphOutput& output = graph_.outputs()[o];
      said_.push_back(o < outputs.size() ? outputs[o] : std::nullopt);
      if (!said_.back() && output.updates) said_.back() = result_.inputs[*output.updates];
      std::optional<Cut>& wanted = wanted_.emplace_back();
      if (said_.back()) wanted = checked(*said_.back(), graph_[output.node], "a result");
      returned_[output.node].push_back(o);
    }
    forward();
    backward();
    emit();
    return std::move(result_);
  }

 private:
  struct Use {
    NodeId user;
    uint32_t slot = 0;
  };
  struct Spread {
    std::optional<Loops> loops;
    Cut cut;                  // of the value
    Cut at;                   // of the loops
    Cut scattered;            // cuts that are made when the partial sums are combined
    std::vector<int> sums;    // mesh axes over which the value may stay a partial sum
    std::vector<int> linear;  // those of them over which the operands are partial sums too
  };

  int64_t count(int axis) const { return mesh_[static_cast<size_t>(axis)].size; }
  const std::string& name(int axis) const { return mesh_[static_cast<size_t>(axis)].name; }
  Spread& spread(NodeId id) { return nodes_[id.index]; }

  // ---- What was said ---------------------------------------------------------------------------

  Cut checked(const Sharding& sharding, const Node& node, std::string_view what) const {
    const auto refuse = [&](const std::string& why, std::string fix) {
      fail(codes::kBadConstraint,
           fmt::format("{}, {}, cannot be {}: {}", what, node.type.to_string(),
                       sharding.to_string(), why),
           {.location = node.location,
            .node = std::string(op_name(node.op)),
            .fix = std::move(fix)});
    };
    const Shape& shape = node.type.shape;
    Cut cut(shape.rank(), kWhole);
    if (sharding.axes().size() > shape.rank())
      refuse(fmt::format("it has {} axes", shape.rank()), "");
    for (size_t i = 0; i < sharding.axes().size(); ++i) {
      const std::string& axis = sharding.axes()[i];
      if (axis.empty()) continue;
      if (std::ranges::count(sharding.axes(), axis) > 1)
        refuse(fmt::format("the axis {} of the mesh cuts one axis only", axis), "");
      const auto known = std::ranges::find(all_, axis, &MeshAxis::name);
      if (known == all_.end())
        refuse(fmt::format("the mesh has no axis {}; it has {}", quote(axis),
                           join(all_, ", ", [](const MeshAxis& a) { return a.name; })),
               fmt::format("give the mesh an axis {} of size 1", axis));
      if (!shape[i].is_multiple_of(known->size))
        refuse(fmt::format("its axis {} has extent {}, which {} devices do not divide", i,
                           shape[i].to_string(), known->size),
               shape[i].as_constant() ? "pad it, with a mask for what is added"
                                      : fmt::format("declare it as a multiple of {}", known->size));
      const auto own = std::ranges::find(mesh_, axis, &MeshAxis::name);
      if (own != mesh_.end()) cut[i] = static_cast<int>(own - mesh_.begin());
    }
    return cut;
  }

  Sharding sharding_of_input(size_t i, const std::optional<Sharding>& said) {
    const NodeId id = graph_.inputs()[i];
    const Node& node = graph_[id];
    std::optional<Sharding> found = said;
    if (!found) {
      for (const Use& use : uses_[id.index]) {
        const auto* constrain = graph_[use.user].as<ConstrainOp>();
        if (!constrain) continue;
        if (found && !(*found == constrain->sharding))
          fail(codes::kShardingConflict,
               fmt::format("the input {} is {} and {}", quote(node.as<InputOp>()->name),
                           found->to_string(), constrain->sharding.to_string()),
               {.location = graph_[use.user].location,
                .node = "constrain",
                .fix = "give the argument a sharding, or call constrain on it once and use its "
                       "result"});
        found = constrain->sharding;
      }
    }
    const Sharding sharding = found.value_or(Sharding());
    spread(id).cut = checked(sharding, node, "the input " + quote(node.as<InputOp>()->name));
    return sharding;
  }

  Sharding sharding_of(const Cut& cut) const {
    std::vector<std::string> axes;
    for (const int axis : cut) axes.push_back(axis == kWhole ? std::string() : name(axis));
    return Sharding(std::move(axes));
  }

  // ---- Forward: what follows from the operands -------------------------------------------------

  void forward() {
    for (size_t i = 0; i < graph_.size(); ++i) {
      if (!needed_[i]) continue;
      const NodeId id(i);
      const Node& node = graph_[id];
      Spread& s = spread(id);
      if (node.as<InputOp>()) continue;
      if (node.as<CollectiveOp>() || node.as<AxisIndexOp>())
        fail(codes::kBadConstraint,
             fmt::format("{} is what one device of many does, in a function of whole tensors",
                         op_name(node.op)),
             {.location = node.location,
              .node = std::string(op_name(node.op)),
              .fix = "give the function to spmd, or say what is cut with constrain"});
      s.cut.assign(node.type.shape.rank(), kWhole);
      s.scattered = s.cut;
      if (const auto* constrain = node.as<ConstrainOp>()) {
        s.cut = checked(constrain->sharding, node, "the value");
        continue;
      }
      if (std::optional<LoopForm> form = loop_form(graph_, id))
        s.loops.emplace(graph_, id, std::move(*form));
      if (!s.loops) continue;
      s.at.assign(s.loops->size(), kWhole);
      assign(id, /*all=*/true);
      for (size_t loop = 0; loop < s.cut.size(); ++loop) s.cut[loop] = s.at[loop];
      find_sums(id);
    }
  }

  /// Cuts the loops along which operands are cut. With `all` it also cuts loops of the domain, and
  /// two cuts that exclude each other are an error.
  void assign(NodeId id, bool all) {
    Spread& s = spread(id);
    const Node& node = graph_[id];
    std::vector<std::string> why(s.at.size());
    for (uint32_t slot = 0; slot < node.operands.size(); ++slot) {
      const Cut& cut = spread(node.operands[slot]).cut;
      for (size_t axis = 0; axis < cut.size(); ++axis) {
        if (cut[axis] == kWhole) continue;
        const auto loop = s.loops->loop_of({slot, axis}, count(cut[axis]));
        if (!loop || s.at[*loop] == cut[axis]) continue;
        const auto other = place_in(s.at, cut[axis]);
        if (!all) {
          if (*loop >= s.loops->domain() && s.at[*loop] == kWhole && !other)
            s.at[*loop] = cut[axis];
          continue;
        }
        std::string by =
            fmt::format("operand {}, {} {}", slot, graph_[node.operands[slot]].type.to_string(),
                        sharding_of(cut).to_string());
        if (s.at[*loop] != kWhole)
          fail_conflict(node, fmt::format("{} would be cut along {} (by {}) and along {} (by {})",
                                          loop_text(s, *loop), quote(name(s.at[*loop])), why[*loop],
                                          quote(name(cut[axis])), by));
        if (other)
          fail_conflict(node, fmt::format("{} of the mesh would cut {} (by {}) and {} (by {})",
                                          quote(name(cut[axis])), loop_text(s, *other), why[*other],
                                          loop_text(s, *loop), by));
        s.at[*loop] = cut[axis];
        why[*loop] = std::move(by);
      }
    }
  }

  static std::string loop_text(const Spread& s, size_t loop) {
    return loop < s.loops->domain()
               ? fmt::format("axis {} of the result", loop)
               : fmt::format("axis {} of what it combines", loop - s.loops->domain());
  }

  [[noreturn]] static void fail_conflict(const Node& node, const std::string& why) {
    fail(codes::kShardingConflict,
         fmt::format("{}, {}: {}", op_name(node.op), node.type.to_string(), why),
         {.location = node.location,
          .node = std::string(op_name(node.op)),
          .fix = "call constrain on one of the operands; constrain(x, replicated) gathers it"});
  }

  /// Finds the mesh axes over which the value may stay a partial sum. If partial sums are only
  /// added, moved and summed further, they are combined once, after these nodes.
  void find_sums(NodeId id) {
    Spread& s = spread(id);
    const Node& node = graph_[id];
    const LoopForm& form = s.loops->form();
    if (form.monoid == Monoid::Sum && !form.placement)
      for (size_t loop = s.loops->domain(); loop < s.at.size(); ++loop)
        if (s.at[loop] != kWhole) s.sums.push_back(s.at[loop]);
    if (node.operands.empty() || !s.loops->is_linear() || form.is_dot) return;
    for (int axis = 0; axis < static_cast<int>(mesh_.size()); ++axis) {
      bool all = std::ranges::find(s.sums, axis) == s.sums.end();
      for (const NodeId operand : node.operands) {
        const Spread& x = spread(operand);
        all = all && std::ranges::find(x.sums, axis) != x.sums.end() && is_used_once(operand) &&
              !place_in(s.cut, axis) &&
              proves_at_most(node.type.shape.numel(), graph_[operand].type.shape.numel());
      }
      if (all) s.linear.push_back(axis);
    }
    s.sums.insert(s.sums.end(), s.linear.begin(), s.linear.end());
  }

  bool is_used_once(NodeId id) const {
    return uses_[id.index].size() == 1 && !returned_.contains(id);
  }
  /// Whether the partial sums over the axis are combined only after the value's only user, or
  /// later.
  bool is_combined_later(NodeId id, int axis) {
    if (!is_used_once(id)) return false;
    const std::vector<int>& linear = spread(uses_[id.index][0].user).linear;
    return std::ranges::find(linear, axis) != linear.end();
  }

  // ---- Backward: what is wanted by all who read a value -----------------------------------------

  /// The cut of the value that suits this use best.
  Cut wanted_by(const Use& use, size_t rank) {
    Spread& user = spread(use.user);
    if (graph_[use.user].as<ConstrainOp>()) return user.cut;
    Cut wanted(rank, kWhole);
    if (!user.loops) return wanted;
    for (size_t loop = 0; loop < user.at.size(); ++loop)
      if (user.at[loop] != kWhole)
        for (const Read& read : *user.loops->cut(loop, count(user.at[loop])))
          if (read.operand == use.slot) wanted[read.axis] = user.at[loop];
    return wanted;
  }

  void backward() {
    for (size_t i = graph_.size(); i-- > 0;) {
      const NodeId id(i);
      Spread& s = spread(id);
      if (!needed_[i] || !s.loops) continue;
      std::vector<Cut> wanted;
      for (const Use& use : uses_[i]) wanted.push_back(wanted_by(use, s.cut.size()));
      if (const auto outputs = returned_.find(id); outputs != returned_.end())
        for (const size_t o : outputs->second)
          wanted.push_back(wanted_[o].value_or(Cut(s.cut.size(), kWhole)));
      for (const Cut& cut : wanted)
        for (size_t axis = 0; axis < cut.size(); ++axis)
          if (cut[axis] != kWhole) adopt(id, axis, cut[axis], wanted);
    }
  }

  void adopt(NodeId id, size_t axis, int by, std::span<const Cut> wanted) {
    Spread& s = spread(id);
    if (s.cut[axis] != kWhole || place_in(s.cut, by)) return;
    if (!graph_[id].type.shape[axis].is_multiple_of(count(by))) return;
    const bool combines = std::ranges::find(s.sums, by) != s.sums.end() || place_in(s.at, by);
    if (combines) {
      // To combine partial sums into blocks costs half of combining them into the whole value. So
      // the value is cut even if other users want it whole.
      if (is_combined_later(id, by)) return;
      s.cut[axis] = s.scattered[axis] = by;
      return;
    }
    for (const Cut& cut : wanted)
      if (cut[axis] != by) return;
    const auto& reads = s.loops->cut(axis, count(by));
    if (!reads) return;
    for (const Read& read : *reads) {
      const Cut& cut = spread(graph_[id].operands[read.operand]).cut;
      if (cut[read.axis] != by && (cut[read.axis] != kWhole || place_in(cut, by))) return;
    }
    s.cut[axis] = s.at[axis] = by;
  }

  // ---- The graph of one device ------------------------------------------------------------------

  void emit() {
    Graph& out = result_.graph = Graph(graph_.name());
    values_.resize(graph_.size());
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const NodeId id = graph_.inputs()[i];
      const Node& node = graph_[id];
      std::vector<MeshAxis> varying;
      for (const std::string& axis : result_.inputs[i].axes())
        if (!axis.empty()) varying.push_back(*std::ranges::find(all_, axis, &MeshAxis::name));
      values_[id.index] =
          build::input(out, node.as<InputOp>()->name, local_type(node.type, spread(id).cut),
                       node.location, std::move(varying));
    }
    for (size_t i = 0; i < graph_.size(); ++i)
      if (needed_[i] && !graph_[NodeId(i)].as<InputOp>()) values_[i] = emit(NodeId(i));
    std::vector<GraphOutput> outputs = graph_.outputs();
    for (size_t o = 0; o < outputs.size(); ++o) {
      const Cut made = spread(outputs[o].node).cut;
      const NodeId id = outputs[o].node;
      outputs[o].node =
          spread_as(values_[id.index], made, wanted_[o].value_or(made), id, reasons::kSaid);
      result_.outputs.push_back(said_[o].value_or(sharding_of(made)));
    }
    out.set_outputs(std::move(outputs));
    out = without_dead_code(out);
  }

  TensorType local_type(TensorType type, const Cut& cut) const {
    for (size_t axis = 0; axis < cut.size(); ++axis)
      if (cut[axis] != kWhole) type.shape[axis] = floordiv(type.shape[axis], count(cut[axis]));
    return type;
  }

  NodeId emit(NodeId id) {
    Graph& out = result_.graph;
    const Node& node = graph_[id];
    Spread& s = spread(id);
    if (node.as<ConstrainOp>()) {
      const NodeId x = node.operands[0];
      return spread_as(values_[x.index], spread(x).cut, s.cut, id, reasons::kSaid);
    }
    if (!s.loops) {  // a source, or a function of the host program, which takes whole operands
      std::vector<NodeId> whole;
      for (const NodeId x : node.operands) {
        const Cut& cut = spread(x).cut;
        whole.push_back(
            spread_as(values_[x.index], cut, Cut(cut.size(), kWhole), id, reasons::kWhole));
      }
      return build::rebuild(out, node, std::move(whole));
    }
    assign(id, /*all=*/false);
    std::vector<NodeId> operands;
    for (uint32_t slot = 0; slot < node.operands.size(); ++slot) {
      const NodeId x = node.operands[slot];
      const bool is_read = s.loops->reads(slot);
      operands.push_back(is_read ? spread_as(values_[x.index], spread(x).cut,
                                             wanted_by({id, slot}, spread(x).cut.size()), id,
                                             reasons::kWhole)
                                 : values_[x.index]);
    }
    std::vector<int> partial = s.linear;
    for (size_t loop = s.loops->domain(); loop < s.at.size(); ++loop)
      if (s.at[loop] != kWhole) partial.push_back(s.at[loop]);
    // The value to which a placed reduction adds its terms must count once, and not on each device.
    NodeId start;
    if (const auto& placement = s.loops->form().placement; placement && !partial.empty()) {
      NodeId& operand = operands[placement->start];
      start = operand;
      const TensorType type = out[start].type;
      operand = build::broadcast_to(out, build::scalar(out, type.dtype, 0, node.location),
                                    type.shape, node.location);
    }
    Cut domain = s.at;
    domain.resize(s.loops->domain());
    NodeId value = build::node(out, local_op(node, operands, domain), operands,
                               local_type(node.type, domain), node.location, node.label);
    const Monoid monoid = s.loops->form().monoid.value_or(Monoid::Sum);
    for (const int axis : partial)
      if (!is_combined_later(id, axis)) value = combined(value, axis, monoid, id);
    if (start && splat(out, start) != 0.0) {
      start = spread_as(start, domain, s.cut, id, reasons::kWhole);
      value = build::map(out, ElementwiseOp::add, {start, value}, node.location);
    }
    return value;
  }

  /// The node's op with the extents in its attributes replaced by those of one device.
  Op local_op(const Node& node, std::span<const NodeId> operands, const Cut& cut) const {
    Op op = node.op;
    if (auto* slice = std::get_if<SliceOp>(&op))
      for (size_t axis = 0; axis < cut.size(); ++axis)
        if (cut[axis] != kWhole) slice->limits[axis] = result_.graph[operands[0]].type.shape[axis];
    return op;
  }

  NodeId combined(NodeId value, int by, Monoid monoid, NodeId of) {
    const MeshAxis& axis = mesh_[static_cast<size_t>(by)];
    const SourceLocation where = graph_[of].location;
    const auto along = place_in(spread(of).scattered, by);
    return insert(CollectiveOp{along ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce,
                               axis, monoid},
                  value, of, reasons::kPartial, [&](Graph& out) {
                    return along ? reduce_scatter_along(out, axis, monoid, value,
                                                        static_cast<int64_t>(*along), where)
                                 : build::collective(out, {CollectiveKind::AllReduce, axis, monoid},
                                                     value, where);
                  });
  }

  /// Changes how a value is cut, by collectives and slices.
  NodeId spread_as(NodeId value, Cut from, const Cut& to, NodeId reader, const Code& reason) {
    const SourceLocation where = graph_[reader].location;
    const auto at = [](size_t axis) { return static_cast<int64_t>(axis); };
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t axis = 0; axis < from.size(); ++axis) {
        const int by = from[axis];
        if (by == kWhole || to[axis] == by) continue;
        const auto split = place_in(to, by);
        if (!split || from[*split] != kWhole) continue;
        const MeshAxis& over = mesh_[static_cast<size_t>(by)];
        value = insert({CollectiveKind::AllToAll, over}, value, reader, reason, [&](Graph& out) {
          return all_to_all_along(out, over, value, at(*split), at(axis), where);
        });
        from[*split] = by;
        from[axis] = kWhole;
        moved = true;
      }
    }
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (from[axis] == kWhole || to[axis] == from[axis]) continue;
      const MeshAxis& over = mesh_[static_cast<size_t>(from[axis])];
      value = insert({CollectiveKind::AllGather, over}, value, reader, reason, [&](Graph& out) {
        return all_gather_along(out, over, value, at(axis), where);
      });
      from[axis] = kWhole;
    }
    for (size_t axis = 0; axis < from.size(); ++axis)
      if (to[axis] != kWhole && from[axis] == kWhole)
        value =
            own_block(result_.graph, mesh_[static_cast<size_t>(to[axis])], value, at(axis), where);
    return value;
  }

  template <class Build>
  NodeId insert(CollectiveOp op, NodeId value, NodeId of, const Code& reason, Build&& build) {
    Graph& out = result_.graph;
    const size_t before = out.size();
    const TensorType type = out[value].type;
    const NodeId made = build(out);
    if (out.size() == before) return made;  // an equal collective exists already
    const Node& node = graph_[of];
    const Expr all = type.shape.numel() * Expr(static_cast<int64_t>(size_of(type.dtype)));
    Expr bytes = received_bytes(op.kind, op.axis.size, all);
    std::string text = fmt::format("{}, {} on each device", op_name(node.op), type.to_string());
    if (node.location) text += ", at " + node.location.to_string();
    result_.collectives.push_back({&reason, std::move(op), std::move(bytes), std::move(text)});
    return made;
  }

  const Graph& graph_;
  std::vector<MeshAxis> all_, mesh_;  // mesh_: the axes with several devices
  const std::vector<bool> needed_;
  std::vector<Spread> nodes_;
  std::vector<std::vector<Use>> uses_;
  std::map<NodeId, std::vector<size_t>> returned_;  // the outputs as which a node is returned
  std::vector<std::optional<Sharding>> said_;       // what the caller says of each output
  std::vector<std::optional<Cut>> wanted_;          // the same as a cut
  std::vector<NodeId> values_;
  Distributed result_;
};

}  // namespace

std::string Distributed::explanation(const Target& target) const {
  if (collectives.empty()) return "";
  std::string text = "collectives\n";
  std::map<std::string_view, std::string_view> legend;
  for (const InsertedCollective& c : collectives) {
    const double seconds = exchange_seconds(target, static_cast<double>(c.bytes.range().max));
    text += fmt::format("  {:<14}  over {} ({} devices)  {:>10} bytes  {:>8.3g} us  {:<7}  {}\n",
                        name(c.op.kind), c.op.axis.name, c.op.axis.size, c.bytes.to_string(),
                        1e6 * seconds, c.reason->name, c.value);
    legend.emplace(c.reason->name, c.reason->summary);
  }
  text += "reasons\n";
  for (const auto& [reason, summary] : legend)
    text += fmt::format("  {:<7}  {}\n", reason, summary);
  return text;
}

Distributed distribute(const Graph& graph, std::span<const MeshAxis> mesh,
                       std::span<const std::optional<Sharding>> inputs,
                       std::span<const std::optional<Sharding>> outputs) {
  // Differentiation leaves a formula row beside nodes of its own body. If all formulas are replaced
  // by their bodies, both become one value, which is combined once.
  const Graph bodies = expand(graph);
  return Distributor(bodies, mesh).run(inputs, outputs);
}

}  // namespace braze
