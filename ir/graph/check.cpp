#include "ir/graph/check.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "ir/graph/coarse.h"
#include "ir/graph/interpret.h"
#include "ir/graph/reference.h"
#include "ir/support/text.h"

namespace braze {
namespace {

bool any_upstream(const Graph& graph, NodeId id,
                  const std::function<bool(NodeId, const Node&)>& is_it) {
  std::vector<bool> seen(graph.size());
  seen[id.index] = true;
  for (size_t i = id.index + 1; i-- > 0;) {
    if (!seen[i]) continue;
    const Node& node = graph[NodeId(i)];
    if (is_it(NodeId(i), node)) return true;
    for (NodeId operand : node.operands) seen[operand.index] = true;
  }
  return false;
}

/// Runs a body only to find out whether it applies such a row.
class RowFinder : public ScalarEmitter {
 public:
  explicit RowFinder(bool (*wanted)(ElementwiseOp)) : wanted_(wanted) {}

  bool found = false;

  Scalar constant(DType dtype, uint64_t) override { return Scalar(this, 0, dtype); }
  Scalar apply(ElementwiseOp op, std::span<const Scalar>, DType result) override {
    visit(op);
    return Scalar(this, 0, result);
  }
  void visit(ElementwiseOp op) {
    found |= wanted_(op);
    const Scalar x(this, 0, DType::F32);
    if (info(op).op_class == OpClass::Formula) info(op).body(x, x, x);
  }

 private:
  bool (*wanted_)(ElementwiseOp);
};

bool applies(const Node& node, bool (*row)(ElementwiseOp)) {
  const MapOp* map = node.as<MapOp>();
  if (!map) return false;
  RowFinder finder(row);
  finder.visit(map->op);
  return finder.found;
}

bool is_reduction(const Node& node) {
  return node.as<ReduceOp>() || node.as<ArgReduceOp>() || node.as<ScanOp>() || node.as<DotOp>() ||
         node.as<ScatterOp>();
}

bool is_math(const Node& node) {
  return applies(node, [](ElementwiseOp op) { return info(op).op_class == OpClass::Math; });
}

}  // namespace

bool is_exact(const Graph& graph, NodeId id) {
  const std::vector<bool> coarse = coarse_nodes(graph, id);
  return !any_upstream(graph, id, [&](NodeId i, const Node& node) {
    const MapOp* map = node.as<MapOp>();
    const bool reads_float_bits =
        map && map->op == ElementwiseOp::bitcast && is_floating(graph[node.operands[0]].type.dtype);
    return reads_float_bits || is_reduction(node) || is_math(node) ||
           (coarse[i.index] && applies(node, may_be_coarse));
  });
}

Coverage CheckResult::coverage() const {
  Coverage all;
  for (const OutputCheck& output : outputs) all += output.comparison.coverage;
  return all;
}

std::string CheckResult::summary() const {
  return join(outputs, "\n", [](const OutputCheck& output) {
    return fmt::format("output '{}' ({}): {}", output.name, output.exact ? "exact" : "bound",
                       output.comparison.summary());
  });
}

ExpectedOutputs::ExpectedOutputs(Graph graph, std::vector<HostTensor> inputs, Precision precision,
                                 std::vector<NodeId> by_nccl)
    : graph_(std::move(graph)),
      inputs_(std::move(inputs)),
      precision_(precision),
      by_nccl_(std::move(by_nccl)) {}

CheckResult ExpectedOutputs::check(std::span<const HostTensor> got) {
  if (got.size() != graph_.outputs().size())
    fail(codes::kBadInputs, fmt::format("graph '{}' has {} outputs, but {} results were given",
                                        graph_.name(), graph_.outputs().size(), got.size()));
  CheckResult result;
  for (size_t i = 0; i < got.size(); ++i) {
    const GraphOutput& output = graph_.outputs()[i];
    OutputCheck check{
        output.name, precision_ != Precision::Fast && is_exact(graph_, output.node), {}};
    if (check.exact) {
      if (!interpreted_) interpreted_ = interpret(graph_, inputs_);
      check.comparison = compare(got[i], (*interpreted_)[i]);
    } else {
      if (!referenced_) referenced_ = reference(graph_, inputs_, precision_, by_nccl_);
      check.comparison = compare(got[i], (*referenced_)[i]);
    }
    result.ok &= check.comparison.ok;
    result.outputs.push_back(std::move(check));
  }
  return result;
}

CheckResult check_outputs(const Graph& graph, std::span<const HostTensor> inputs,
                          std::span<const HostTensor> got, Precision precision,
                          std::span<const NodeId> by_nccl) {
  return ExpectedOutputs(graph, {inputs.begin(), inputs.end()}, precision,
                         {by_nccl.begin(), by_nccl.end()})
      .check(got);
}

}  // namespace braze
