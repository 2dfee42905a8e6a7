#include "ir/graph/graph.h"

#include <cstring>
#include <map>

#include "ir/support/hash.h"

namespace braze {
namespace {

// Hashes one attribute after another into a seed.
class Hasher {
 public:
  Hasher& operator<<(uint64_t value) {
    seed_ = hash_combine(seed_, value);
    return *this;
  }
  Hasher& operator<<(int64_t value) { return *this << static_cast<uint64_t>(value); }
  Hasher& operator<<(const Expr& value) { return *this << value.hash(); }
  Hasher& operator<<(std::string_view value) { return *this << hash64(value); }
  Hasher& operator<<(const MeshAxis& axis) {
    return *this << std::string_view(axis.name) << axis.size;
  }
  template <class T>
  Hasher& operator<<(const std::vector<T>& values) {
    *this << uint64_t{values.size()};
    for (const T& value : values) *this << value;
    return *this;
  }
  uint64_t seed() const { return seed_; }

 private:
  uint64_t seed_ = 0x6272617a65ull;
};

std::string_view bytes(const HostTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data()), tensor.size_bytes()};
}

struct HashAttributes {
  Hasher& h;

  void operator()(const InputOp& op) const { h << std::string_view(op.name) << op.varying; }
  void operator()(const ConstantOp& op) const { h << bytes(*op.value); }
  void operator()(const MapOp& op) const { h << uint64_t(op.op); }
  void operator()(const BroadcastOp& op) const { h << op.axes; }
  void operator()(const ReshapeOp&) const {}
  void operator()(const TransposeOp& op) const { h << op.permutation; }
  void operator()(const SliceOp& op) const { h << op.starts << op.limits << op.strides; }
  void operator()(const PadOp& op) const { h << op.low << op.high << op.interior; }
  void operator()(const WindowsOp& op) const {
    h << op.axes << op.taps << op.strides << op.dilations << op.gaps << op.low;
  }
  void operator()(const ConcatOp& op) const { h << op.axis; }
  void operator()(const ReverseOp& op) const { h << op.axes; }
  void operator()(const IotaOp& op) const { h << op.axis; }
  void operator()(const SizeOp& op) const { h << uint64_t{op.value.hash()}; }
  void operator()(const GatherOp& op) const { h << op.axis; }
  void operator()(const ScatterOp& op) const {
    h << (op.monoid ? uint64_t(*op.monoid) + 1 : uint64_t{0}) << op.axis;
  }
  void operator()(const ReduceOp& op) const { h << uint64_t(op.monoid) << op.axes; }
  void operator()(const ArgReduceOp& op) const { h << uint64_t(op.is_max) << op.axis; }
  void operator()(const ArgSortOp& op) const { h << op.axis << uint64_t(op.descending); }
  void operator()(const ScanOp& op) const {
    h << op.combiner.hash() << op.axis << uint64_t(op.reverse) << uint64_t(op.exclusive) << op.part;
  }
  void operator()(const DotOp& op) const {
    h << op.batch_left << op.batch_right << op.contract_left << op.contract_right
      << uint64_t(op.tf32);
  }
  void operator()(const RandomBitsOp&) const {}
  void operator()(const BarrierOp& op) const { h << uint64_t{op.recompute}; }
  void operator()(const CollectiveOp& op) const {
    h << uint64_t(op.kind) << op.axis << uint64_t(op.monoid) << op.offset;
  }
  void operator()(const AxisIndexOp& op) const { h << op.axis; }
  void operator()(const CustomCallOp& op) const {
    h << std::string_view(op.target) << std::string_view(op.attributes)
      << uint64_t{op.has_side_effects};
  }
  void operator()(const ConstrainOp& op) const {
    for (const std::string& axis : op.sharding.axes()) h << std::string_view(axis);
  }
};

uint64_t hash_of(const Node& node) {
  Hasher h;
  h << uint64_t{node.op.index()} << node.type.hash();
  for (const NodeId operand : node.operands) h << uint64_t{operand.index};
  std::visit(HashAttributes{h}, node.op);
  return h.seed();
}

void collect_symbols(const Expr& expr, std::map<std::string, Expr>& found) {
  if (expr.kind() == Expr::Kind::Symbol) found.emplace(expr.symbol_name(), expr);
  for (const Expr& operand : expr.operands()) collect_symbols(operand, found);
}

}  // namespace

bool operator==(const ConstantOp& a, const ConstantOp& b) {
  if (a.value == b.value) return true;
  // Bits are compared, not numbers: -0 differs from 0, and a NaN equals itself.
  return a.value->dtype() == b.value->dtype() && a.value->shape() == b.value->shape() &&
         bytes(*a.value) == bytes(*b.value);
}

bool has_side_effects(const Node& node) {
  const auto* call = node.as<CustomCallOp>();
  return call && call->has_side_effects;
}

std::string_view scatter_name(std::optional<Monoid> monoid) {
  if (!monoid) return "scatter_set";
  switch (*monoid) {
    case Monoid::Sum:
      return "scatter_add";
    case Monoid::Prod:
      return "scatter_mul";
    case Monoid::Max:
      return "scatter_max";
    case Monoid::Min:
      return "scatter_min";
    case Monoid::And:
      return "scatter_and";
    case Monoid::Or:
      return "scatter_or";
  }
  BRAZE_CHECK(false, "a monoid");
}

std::string_view op_name(const Op& op) {
  struct Name {
    std::string_view operator()(const InputOp&) const { return "input"; }
    std::string_view operator()(const ConstantOp&) const { return "constant"; }
    std::string_view operator()(const MapOp& map) const { return name(map.op); }
    std::string_view operator()(const BroadcastOp&) const { return "broadcast"; }
    std::string_view operator()(const ReshapeOp&) const { return "reshape"; }
    std::string_view operator()(const TransposeOp&) const { return "transpose"; }
    std::string_view operator()(const SliceOp&) const { return "slice"; }
    std::string_view operator()(const PadOp&) const { return "pad"; }
    std::string_view operator()(const WindowsOp&) const { return "windows"; }
    std::string_view operator()(const ConcatOp&) const { return "concat"; }
    std::string_view operator()(const ReverseOp&) const { return "reverse"; }
    std::string_view operator()(const IotaOp&) const { return "iota"; }
    std::string_view operator()(const SizeOp&) const { return "size"; }
    std::string_view operator()(const GatherOp&) const { return "gather"; }
    std::string_view operator()(const ScatterOp& op) const { return scatter_name(op.monoid); }
    std::string_view operator()(const ReduceOp&) const { return "reduce"; }
    std::string_view operator()(const ArgReduceOp& arg) const {
      return arg.is_max ? "argmax" : "argmin";
    }
    std::string_view operator()(const ArgSortOp&) const { return "argsort"; }
    std::string_view operator()(const ScanOp&) const { return "scan"; }
    std::string_view operator()(const DotOp&) const { return "dot"; }
    std::string_view operator()(const RandomBitsOp&) const { return "random_bits"; }
    std::string_view operator()(const BarrierOp&) const { return "barrier"; }
    std::string_view operator()(const CollectiveOp& op) const { return name(op.kind); }
    std::string_view operator()(const AxisIndexOp&) const { return "axis_index"; }
    std::string_view operator()(const ConstrainOp&) const { return "constrain"; }
    std::string_view operator()(const CustomCallOp&) const { return "custom_call"; }
  };
  return std::visit(Name{}, op);
}

NodeId Graph::add(Node node) {
  const NodeId id(nodes_.size());
  if (const auto* input = node.as<InputOp>()) {
    inputs_.push_back(id);
    input_by_name_.emplace(input->name, id);
  } else if (!has_side_effects(node)) {
    const uint64_t hash = hash_of(node);
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      Node& known = nodes_[it->second.index];
      if (known.operands != node.operands || known.type != node.type || known.op != node.op)
        continue;
      if (known.label.empty()) known.label = std::move(node.label);
      return it->second;
    }
    by_hash_.emplace(hash, id);
  }
  nodes_.push_back(std::move(node));
  return id;
}

std::optional<NodeId> Graph::find_input(const std::string& name) const {
  const auto found = input_by_name_.find(name);
  if (found == input_by_name_.end()) return std::nullopt;
  return found->second;
}

std::vector<Expr> Graph::symbols() const {
  std::map<std::string, Expr> found;
  for (const Node& node : nodes_) {
    for (const Expr& extent : node.type.shape) collect_symbols(extent, found);
    if (const auto* slice = node.as<SliceOp>()) {
      for (const Expr& start : slice->starts) collect_symbols(start, found);
      for (const Expr& limit : slice->limits) collect_symbols(limit, found);
    } else if (const auto* pad = node.as<PadOp>()) {
      for (const Expr& low : pad->low) collect_symbols(low, found);
      for (const Expr& high : pad->high) collect_symbols(high, found);
    } else if (const auto* window = node.as<WindowsOp>()) {
      for (const Expr& low : window->low) collect_symbols(low, found);
    } else if (const auto* size = node.as<SizeOp>()) {
      collect_symbols(size->value, found);
    }
  }
  std::vector<Expr> symbols;
  for (auto& [name, symbol] : found) symbols.push_back(symbol);
  return symbols;
}

std::vector<MeshAxis> Graph::mesh_axes() const {
  std::map<std::string, MeshAxis> found;
  for (const Node& node : nodes_) {
    if (const auto* input = node.as<InputOp>())
      for (const MeshAxis& axis : input->varying) found.emplace(axis.name, axis);
    if (const auto* collective = node.as<CollectiveOp>())
      found.emplace(collective->axis.name, collective->axis);
    if (const auto* index = node.as<AxisIndexOp>()) found.emplace(index->axis.name, index->axis);
  }
  std::vector<MeshAxis> axes;
  for (auto& [name, axis] : found) axes.push_back(axis);
  return axes;
}

uint64_t Graph::hash() const {
  Hasher h;
  for (const Node& node : nodes_) h << hash_of(node);
  for (const GraphOutput& output : outputs_)
    h << uint64_t{output.node.index} << std::string_view(output.name)
      << (output.updates ? uint64_t{*output.updates} : ~uint64_t{0});
  return h.seed();
}

}  // namespace braze
