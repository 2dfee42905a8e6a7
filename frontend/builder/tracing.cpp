#include "frontend/builder/tracing.h"

#include <algorithm>
#include <map>

#include "frontend/builder/finished.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/sizes.h"
#include "ir/graph/text.h"
#include "ir/support/text.h"

namespace braze {

namespace codes {
inline constexpr Code kRecursiveCall{"recursive-call", ErrorKind::InvalidArgument,
                                     "A function calls itself while it is compiled."};
}  // namespace codes

namespace detail {

namespace {

/// The functions that this thread is tracing. Each is traced within the one before it.
thread_local std::vector<const void*> tracing;

/// Records, for a scope, that this thread traces a function. No other thread traces it meanwhile.
class TracingScope {
 public:
  TracingScope(const void* function, std::mutex& turn) : turn_(turn) {
    tracing.push_back(function);
  }
  ~TracingScope() { tracing.pop_back(); }
  TracingScope(const TracingScope&) = delete;
  TracingScope& operator=(const TracingScope&) = delete;

 private:
  const std::lock_guard<std::mutex> turn_;
};

}  // namespace

LeafSignature::LeafSignature(const Spec& spec) : dtype_(spec.dtype) {
  for (const Dim& dim : spec.shape) {
    const Interval range = to_expr(dim).range();
    const int64_t divisor = dim.is_constant() ? 1 : to_expr(dim).divisor();
    extents_.push_back({range.min, range.max, divisor});
  }
}

bool LeafSignature::admits(size_t axis, int64_t extent) const {
  const Extent& e = extents_[axis];
  return extent >= e.least && extent <= e.greatest && (e.divisor == 1 || extent % e.divisor == 0);
}

bool LeafSignature::admits(const Array& array) const {
  if (!array.valid()) return false;
  const std::vector<int64_t>& shape = array.shape();
  if (array.dtype() != dtype_ || shape.size() != extents_.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!admits(i, shape[i])) return false;
  return true;
}

std::string Tracer::argument_name(int position) const {
  const auto i = static_cast<size_t>(position);
  return i < inputs.size() ? inputs[i] : fmt::format("arg{}", position);
}

void Tracer::check_donations(const TracedCall& call) const {
  for (const int position : donate)
    if (position < 0 || static_cast<size_t>(position) >= call.arguments())
      fail(codes::kBadDonation,
           fmt::format("{}: there is no argument {} to donate; they are counted from 0, and {} are "
                       "given",
                       name, position, call.arguments()),
           {.location = where});
}

std::vector<Spec> Tracer::leaf_specs(const TracedCall& call, const std::vector<Spec>& specs) const {
  if (specs.size() > call.arguments())
    fail(codes::kSpecMismatch,
         fmt::format("{}: {} arguments are declared, {} are given", name, specs.size(),
                     call.arguments()),
         {.location = where});
  check_donations(call);
  std::vector<Spec> out = call.specs();
  const auto places = call.leaves();
  for (size_t i = 0; i < out.size(); ++i) {
    const auto position = static_cast<size_t>(places[i].first);
    if (position >= specs.size() || !specs[position].given) continue;
    const Spec& declared = specs[position];
    const LeafSignature signature(declared);
    bool fits = places[i].second.empty() && out[i].dtype == declared.dtype &&
                out[i].shape.size() == declared.shape.size();
    for (size_t d = 0; fits && d < out[i].shape.size(); ++d)
      fits = out[i].shape[d] == declared.shape[d] ||
             (out[i].shape[d].is_constant() && signature.admits(d, out[i].shape[d].value()));
    if (!fits) {
      std::string ranges;
      for (const Dim& dim : declared.shape)
        if (!dim.is_constant() && dim.expr()->kind() == Expr::Kind::Symbol)
          ranges += fmt::format(", {}", symbol_text(*dim.expr()));
      fail(codes::kSpecMismatch,
           fmt::format("{}: argument {} is {}, but declared as {}{}", name,
                       argument_name(places[i].first), out[i].to_string(), declared.to_string(),
                       ranges),
           {.location = where});
    }
    out[i] = declared;
  }
  return out;
}

void Tracer::check_numbers(const FlatCall& flat, const TracedCall& call,
                           const std::vector<NumberUse>& uses) const {
  for (const NumberUse& use : uses) {
    const auto found =
        std::ranges::find(flat.numbers, use.leaf, [](const auto& n) { return n.first; });
    if (found == flat.numbers.end() || number_bits(found->second, use.dtype)) continue;
    const auto leaf = call.leaves()[use.leaf];
    fail_number(found->second, use.dtype,
                fmt::format("{}: {}{}", name, argument_name(leaf.first), leaf.second), "",
                use.where);
  }
}

void Tracer::refuse_recursion() const {
  if (std::ranges::find(tracing, this) == tracing.end()) return;
  fail(codes::kRecursiveCall,
       fmt::format("{} is called with Arrays from within itself, while it is being compiled", name),
       {.location = where, .fix = "call it with the Tensors that it was given"});
}

Graph Tracer::trace(const TracedCall& call, const std::vector<Spec>& specs, Traced& traced,
                    const TracedMesh* mesh) const {
  const TracingScope scope(this, mutex);
  const auto places = call.leaves();
  auto builder = std::make_shared<Builder>(name);
  if (mesh) builder->mesh = *mesh;
  std::vector<Tensor> arguments;
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string input = argument_name(places[i].first) + places[i].second;
    arguments.push_back(wrap(
        builder, build::input(builder->graph, input, {specs[i].dtype, to_shape(specs[i].shape)},
                              where, mesh ? mesh->varying[i] : std::vector<MeshAxis>())));
  }
  {
    const BuilderScope building(builder);
    traced = call.trace(arguments);
  }
  for (size_t i = 0; i < arguments.size(); ++i)
    for (const auto& [number, dtype, use] : builder->number_uses)
      if (number == node_of(arguments[i])) traced.number_uses.push_back({i, dtype, use});
  for (const Tensor& output : traced.outputs)
    if (!output.valid() || output.builder() != builder)
      fail(codes::kForeignTensor,
           fmt::format("{}: a result is {}", name,
                       output.valid() ? "a Tensor of another function" : "an empty Tensor"),
           {.location = where, .fix = "return values computed from the arguments"});

  // The stand-ins of gradients are inputs that no node uses. So a new graph is built without them.
  Graph graph(name);
  std::map<NodeId, NodeId> replacement;
  for (const Tensor& argument : arguments)
    replacement[node_of(argument)] = build::rebuild(graph, builder->graph[node_of(argument)], {});
  std::vector<GraphOutput> ends;
  for (const Tensor& output : traced.outputs) ends.push_back({node_of(output), {}, {}});
  builder->graph.set_outputs(ends);
  // A call with side effects that depends on a stand-in is not needed: a gradient has made a copy
  // that depends on the argument.
  const std::vector<bool> needed = needed_nodes(builder->graph);
  for (size_t i = 0; i < builder->graph.size(); ++i) {
    const NodeId id(i);
    const Node& node = builder->graph[id];
    if (!needed[i] || node.as<InputOp>()) continue;
    if (!std::ranges::all_of(node.operands, [&](NodeId x) { return replacement.contains(x); }))
      continue;
    std::vector<NodeId> operands;
    for (const NodeId operand : node.operands) operands.push_back(replacement.at(operand));
    replacement[id] = rebuild_finished(graph, node, std::move(operands));
  }
  std::vector<GraphOutput> outputs;
  for (size_t i = 0; i < traced.outputs.size(); ++i)
    outputs.push_back({replacement.at(node_of(traced.outputs[i])), "result" + traced.paths[i], {}});
  graph.set_outputs(std::move(outputs));
  set_outputs(graph, *builder, traced, arguments, places);
  // The bitcasts of stop_gradient may be dead by now.
  graph = without_dead_code(graph);
  std::vector<const Shape*> shapes;
  for (const NodeId input : graph.inputs()) shapes.push_back(&graph[input].type.shape);
  if (const auto symbol = undetermined_symbol(shapes, graph.symbols()))
    fail(codes::kBadDim,
         fmt::format("{}: no argument determines the extent {}, so no call does", name,
                     symbol->symbol_name()),
         {.location = where, .fix = "declare an argument with it"});
  return graph;
}

void Tracer::check_updates(const Builder& builder, const Traced& traced,
                           const std::vector<Tensor>& arguments,
                           const std::vector<GraphOutput>& outputs) const {
  for (const auto& [value, argument] : builder.updates) {
    bool is_returned = false, is_done = false;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node_of(traced.outputs[i]) != value) continue;
      is_returned = true;
      if (outputs[i].updates) is_done |= node_of(arguments[*outputs[i].updates]) == argument;
    }
    if (is_returned && !is_done)
      fail(codes::kBadDonation,
           fmt::format("{}: update gives {} to two results, or one result two arguments", name,
                       builder.graph[argument].as<InputOp>()->name),
           {.location = where, .fix = "update each argument once, with a result of its own"});
  }
}

void Tracer::set_outputs(Graph& graph, const Builder& builder, const Traced& traced,
                         const std::vector<Tensor>& arguments,
                         const std::vector<std::pair<int, std::string>>& places) const {
  std::vector<GraphOutput> outputs = graph.outputs();
  std::vector<bool> taken(arguments.size());
  // First, the arguments that `update` named.
  for (size_t i = 0; i < outputs.size(); ++i)
    for (const auto& [value, argument] : builder.updates) {
      if (value != node_of(traced.outputs[i])) continue;
      const auto found = std::find_if(arguments.begin(), arguments.end(),
                                      [&](const Tensor& a) { return node_of(a) == argument; });
      if (found == arguments.end())
        fail(codes::kBadDonation,
             fmt::format("{}: update names {}, which is not an argument", name,
                         wrap(traced.outputs[i].builder(), argument).to_string()),
             {.location = where});
      const auto position = static_cast<size_t>(found - arguments.begin());
      if (taken[position] || outputs[i].updates) continue;
      taken[position] = true;
      outputs[i].updates = static_cast<uint32_t>(position);
    }
  check_updates(builder, traced, arguments, outputs);
  // Then, the donated arguments. Each leaf becomes the first result of its type that is still free.
  // A training step returns its results in the order of its arguments, so the right ones meet.
  for (size_t position = 0; position < arguments.size(); ++position) {
    const bool donated =
        std::find(donate.begin(), donate.end(), places[position].first) != donate.end();
    if (!donated || taken[position]) continue;
    const TensorType& type = type_of(arguments[position]);
    const auto output = std::find_if(outputs.begin(), outputs.end(), [&](const GraphOutput& o) {
      return !o.updates && graph[o.node].type == type;
    });
    if (output == outputs.end())
      fail(codes::kBadDonation,
           fmt::format("{}: the donated argument {}{} is {}, and no result of that type is left to "
                       "take over its memory",
                       name, argument_name(places[position].first), places[position].second,
                       type.to_string()),
           {.location = where, .fix = "return its new value, or do not donate it"});
    output->updates = static_cast<uint32_t>(position);
  }
  graph.set_outputs(std::move(outputs));
}

}  // namespace detail
}  // namespace braze
