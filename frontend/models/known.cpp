#include "frontend/models/known.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "ir/graph/interpret.h"
#include "ir/graph/movement.h"

namespace braze {

namespace {

using Elements = std::vector<Expr>;

// Values beyond these limits are not shapes, and computing them would take time.
constexpr int64_t kMostIntegers = 4096;
constexpr int64_t kMostElements = int64_t{1} << 22;
// The elements of all computed values together, which limits the time.
constexpr int64_t kMostInAll = int64_t{1} << 26;
// What computed values may hold beside as many bytes as the file has.
constexpr int64_t kBaseBytes = int64_t{1} << 24;
// The interpreter lists a source or a wide number for each element of a result or an operand.
constexpr int64_t kBytesOfStep = 32;
// What a value takes beside its elements.
constexpr int64_t kBytesOfEntry = 256;
// An expression, and what it refers to.
constexpr int64_t kBytesOfInteger = 256;
// Above this, f32 cannot represent every whole number.
constexpr int64_t kMostWholeFloat = int64_t{1} << 24;

bool is_small(const TensorType& type, int64_t most) {
  if (!type.shape.is_static()) return false;
  const auto count = type.shape.numel().as_constant();
  return count && *count <= most;
}

// The elements of a constant, if they are whole numbers.
std::optional<Elements> whole_numbers(const HostTensor& value) {
  Elements out;
  for (int64_t i = 0; i < value.numel(); ++i) {
    if (is_floating(value.dtype())) {
      const double number = value.get_double(i);
      if (number != std::floor(number) || std::abs(number) > double{kMostWholeFloat})
        return std::nullopt;
      out.emplace_back(static_cast<int64_t>(number));
    } else {
      if (value.dtype() == DType::U64 && value.get_int(i) < 0) return std::nullopt;
      out.emplace_back(value.get_int(i));
    }
  }
  return out;
}

int64_t bytes_of(const HostTensor& value) {
  return kBytesOfEntry + value.numel() * static_cast<int64_t>(size_of(value.dtype()));
}
int64_t bytes_of(const Elements& elements) {
  return kBytesOfEntry + static_cast<int64_t>(elements.size()) * kBytesOfInteger;
}

// Whether a conversion to `dtype` keeps all values of `e`.
bool fits(const Expr& e, DType dtype) {
  const auto [low, high] = e.range();
  if (dtype == DType::Bool) return low >= 0 && high <= 1;
  if (is_floating(dtype)) {
    const int64_t most = size_of(dtype) >= 4 ? kMostWholeFloat : int64_t{1} << 8;
    return -most <= low && high <= most;
  }
  const int width = static_cast<int>(8 * size_of(dtype));
  const bool has_sign = is_signed_integer(dtype);
  if (!has_sign && low < 0) return false;
  if (width == 64) return true;
  const int64_t end = int64_t{1} << (has_sign ? width - 1 : width);
  return high < end && (!has_sign || low >= -end);
}

std::optional<Expr> truth(std::optional<bool> value) {
  if (!value) return std::nullopt;
  return Expr(*value ? 1 : 0);
}

std::optional<bool> proves_equal(const Expr& a, const Expr& b) {
  if (a == b) return true;
  const Interval x = a.range(), y = b.range();
  if (x.max < y.min || y.max < x.min) return false;
  return std::nullopt;
}

std::optional<bool> negate(std::optional<bool> value) {
  if (!value) return value;
  return !*value;
}

std::optional<Expr> quotient(const Expr& a, const Expr& b, DType dtype) {
  if (b.range().min < 1) return std::nullopt;
  const Expr down = floordiv(a, b);
  if (is_floating(dtype)) return down * b == a ? std::optional(down) : std::nullopt;
  // The op rounds towards zero, but floordiv rounds down.
  if (a.range().min >= 0) return down;
  if (a.range().max <= 0) return -floordiv(-a, b);
  return std::nullopt;
}

// One elementwise op on whole numbers. It is nullopt if the result is not a known whole number.
std::optional<Expr> apply(ElementwiseOp op, DType dtype, const std::vector<Expr>& x) {
  using enum ElementwiseOp;
  switch (op) {
    case add:
      return x[0] + x[1];
    case sub:
      return x[0] - x[1];
    case mul:
      return x[0] * x[1];
    case div:
      return quotient(x[0], x[1], dtype);
    case rem:
      if (x[0].range().min < 0 || x[1].range().min < 1) return std::nullopt;
      return mod(x[0], x[1]);
    case neg:
      return -x[0];
    case abs:
      if (x[0].range().min >= 0) return x[0];
      return braze::max(x[0], -x[0]);
    case ElementwiseOp::min:
      return braze::min(x[0], x[1]);
    case ElementwiseOp::max:
      return braze::max(x[0], x[1]);
    case floor:
    case ceil:
    case trunc:
    case round_even:
    case convert:
      return x[0];
    case eq:
      return truth(proves_equal(x[0], x[1]));
    case ne:
      return truth(negate(proves_equal(x[0], x[1])));
    case lt:
      return truth(proves_less(x[0], x[1]));
    case ge:
      return truth(negate(proves_less(x[0], x[1])));
    case gt:
      return truth(proves_less(x[1], x[0]));
    case le:
      return truth(negate(proves_less(x[1], x[0])));
    case logical_and:
      return dtype == DType::Bool ? std::optional(x[0] * x[1]) : std::nullopt;
    case logical_or:
      return dtype == DType::Bool ? std::optional(braze::max(x[0], x[1])) : std::nullopt;
    case logical_not:
      return dtype == DType::Bool ? std::optional(1 - x[0]) : std::nullopt;
    case select:
      if (const auto condition = x[0].as_constant()) return *condition ? x[1] : x[2];
      if (x[1] == x[2]) return x[1];
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// Computes ops on whole numbers, as the interpreter does. It is nullopt if the result is unknown.
struct IntegerOps {
  const Graph& graph;
  const Node& node;
  const std::vector<const Elements*>& operands;

  std::vector<int64_t> shape(size_t operand) const {
    return graph[node.operands[operand]].type.shape.static_dims();
  }

  std::optional<Elements> operator()(const SizeOp& op) const { return Elements{op.value}; }

  std::optional<Elements> operator()(const MapOp& op) const {
    Elements out;
    const DType dtype = graph[node.operands.back()].type.dtype;
    for (size_t i = 0; i < operands[0]->size(); ++i) {
      std::vector<Expr> x;
      for (const Elements* operand : operands) x.push_back((*operand)[i]);
      const auto value = apply(op.op, dtype, x);
      if (!value || !fits(*value, node.type.dtype)) return std::nullopt;
      out.push_back(*value);
    }
    return out;
  }

  std::optional<Elements> moved() const {
    std::vector<std::vector<int64_t>> shapes;
    for (size_t i = 0; i < operands.size(); ++i) shapes.push_back(shape(i));
    Elements out;
    for (const Source& source : movement_sources(node, shapes, {}))
      out.push_back((*operands[source.operand])[static_cast<size_t>(source.index)]);
    return out;
  }
  std::optional<Elements> operator()(const BroadcastOp&) const { return moved(); }
  std::optional<Elements> operator()(const ReshapeOp&) const { return moved(); }
  std::optional<Elements> operator()(const TransposeOp&) const { return moved(); }
  std::optional<Elements> operator()(const SliceOp& op) const {
    for (size_t i = 0; i < op.starts.size(); ++i)
      if (!op.starts[i].as_constant() || !op.limits[i].as_constant()) return std::nullopt;
    return moved();
  }
  std::optional<Elements> operator()(const ConcatOp&) const { return moved(); }
  std::optional<Elements> operator()(const ReverseOp&) const { return moved(); }

  std::optional<Elements> operator()(const GatherOp& op) const {
    const std::vector<int64_t> extents = shape(0);
    const auto axis = static_cast<size_t>(op.axis);
    int64_t before = 1, after = 1;
    for (size_t i = 0; i < extents.size(); ++i)
      (i < axis ? before : after) *= i == axis ? 1 : extents[i];
    Elements out;
    for (int64_t b = 0; b < before; ++b)
      for (const Expr& index : *operands[1])
        for (int64_t a = 0; a < after; ++a) {
          const auto at = index.as_constant();
          if (!at || *at < 0 || *at >= extents[axis]) return std::nullopt;
          out.push_back((*operands[0])[static_cast<size_t>((b * extents[axis] + *at) * after + a)]);
        }
    return out;
  }

  std::optional<Elements> operator()(const ReduceOp& op) const {
    const std::vector<int64_t> extents = shape(0);
    std::vector<int64_t> strides(extents.size(), 0);
    int64_t stride = 1;
    for (size_t i = extents.size(); i-- > 0;) {
      if (std::ranges::find(op.axes, static_cast<int64_t>(i)) != op.axes.end()) continue;
      strides[i] = stride;
      stride *= extents[i];
    }
    std::vector<std::optional<Expr>> sums(static_cast<size_t>(stride));
    const std::vector<int64_t> places = strided_offsets(extents, strides);
    for (size_t i = 0; i < places.size(); ++i) {
      auto& sum = sums[static_cast<size_t>(places[i])];
      const Expr& x = (*operands[0])[i];
      sum = sum ? apply(info(op.monoid).combine, node.type.dtype, {*sum, x}) : x;
      if (!sum) return std::nullopt;
    }
    Elements out;
    for (const auto& sum : sums) {
      if (!sum || !fits(*sum, node.type.dtype)) return std::nullopt;
      out.push_back(*sum);
    }
    return out;
  }

  template <class Other>
  std::optional<Elements> operator()(const Other&) const {
    return std::nullopt;
  }
};

}  // namespace

// All nodes from which `id` is computed, and `id` itself, in order. The search does not go beyond
// leaves.
std::vector<NodeId> KnownValues::needed(NodeId id,
                                        const std::function<bool(NodeId)>& is_leaf) const {
  std::set<NodeId> seen = {id};
  std::vector<NodeId> open = {id};
  while (!open.empty()) {
    const NodeId next = open.back();
    open.pop_back();
    if (is_leaf(next)) continue;
    for (const NodeId operand : graph_[next].operands)
      if (seen.insert(operand).second) open.push_back(operand);
  }
  return {seen.begin(), seen.end()};
}

// While it exists, values that its nodes still have to read are not dropped to make room.
class KnownValues::Request {
 public:
  Request(KnownValues& known, const std::vector<NodeId>& order) : known_(known) {
    for (const NodeId id : order)
      for (const NodeId operand : known.graph_[id].operands) ++readers_[operand];
    known.requests_.push_back(&readers_);
  }
  ~Request() { known_.requests_.pop_back(); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// The value of this node is there, or it is known that there is none.
  void done(NodeId id) {
    for (const NodeId operand : known_.graph_[id].operands) --readers_[operand];
  }

 private:
  KnownValues& known_;
  Readers readers_;
};

KnownValues::KnownValues(const Graph& graph, size_t file_bytes)
    : graph_(graph), most_bytes_(kBaseBytes + static_cast<int64_t>(file_bytes)) {}

// Whether there is room for so many bytes, and time for so many elements. To make room, values are
// dropped that nothing waits for.
bool KnownValues::make_room(int64_t bytes, int64_t elements) {
  computed_ += elements;
  if (computed_ > kMostInAll) return false;
  if (bytes <= most_bytes_ - held_) return true;
  const auto is_awaited = [&](NodeId id) {
    return std::ranges::any_of(requests_, [&](const Readers* readers) {
      const auto found = readers->find(id);
      return found != readers->end() && found->second > 0;
    });
  };
  std::erase_if(constants_, [&](const auto& known) {
    if (!known.second || is_awaited(known.first)) return false;
    held_ -= bytes_of(*known.second);
    return true;
  });
  std::erase_if(integers_, [&](const auto& known) {
    if (!known.second || is_awaited(known.first)) return false;
    held_ -= bytes_of(*known.second);
    return true;
  });
  return bytes <= most_bytes_ - held_;
}

bool KnownValues::reserve(int64_t bytes) {
  if (!make_room(bytes, 0)) return false;
  held_ += bytes;
  return true;
}

// A value that is there: that of a constant or weight, or one computed before, which may be null.
const std::shared_ptr<const HostTensor>* KnownValues::find(NodeId id) const {
  if (const auto* constant = graph_[id].as<ConstantOp>()) return &constant->value;
  for (const auto* values : {&bound_, &constants_})
    if (const auto found = values->find(id); found != values->end()) return &found->second;
  return nullptr;
}

// Computes a node whose operands have been looked for. It is null if one of them is not known, or
// if the node is not computed at import.
std::shared_ptr<const HostTensor> KnownValues::compute(NodeId id) {
  const Node& node = graph_[id];
  if (node.as<InputOp>() || !is_small(node.type, kMostElements)) return nullptr;
  if (const auto* size = node.as<SizeOp>(); size && !size->value.as_constant()) return nullptr;
  // Shapes do not need these.
  if (node.as<DotOp>() || node.as<RandomBitsOp>() || node.as<CustomCallOp>()) return nullptr;
  std::vector<const HostTensor*> operands;
  for (const NodeId operand : node.operands) operands.push_back(find(operand)->get());
  if (std::ranges::find(operands, nullptr) != operands.end()) return nullptr;
  const int64_t count = *node.type.shape.numel().as_constant();
  int64_t listed = count;
  if (!node.as<SliceOp>() && !node.as<GatherOp>())
    for (const HostTensor* operand : operands) listed = std::max(listed, operand->numel());
  const int64_t bytes = kBytesOfEntry + count * static_cast<int64_t>(size_of(node.type.dtype));
  if (!make_room(bytes + listed * kBytesOfStep, count)) return nullptr;
  return std::make_shared<const HostTensor>(evaluate(node, operands));
}

std::shared_ptr<const HostTensor> KnownValues::constant(NodeId id) {
  const std::vector<NodeId> order = needed(id, [&](NodeId node) { return find(node) != nullptr; });
  Request request(*this, order);
  for (const NodeId next : order) {
    if (!find(next)) {
      auto value = compute(next);
      if (value) held_ += bytes_of(*value);
      constants_.emplace(next, std::move(value));
    }
    request.done(next);
  }
  return *find(id);
}

KnownValues::Integers KnownValues::compute_integers(NodeId id) {
  const Node& node = graph_[id];
  if (!is_small(node.type, kMostIntegers)) return std::nullopt;
  const int64_t count = *node.type.shape.numel().as_constant();
  if (!make_room(kBytesOfEntry + count * kBytesOfInteger, count)) return std::nullopt;
  std::vector<const Elements*> operands;
  for (const NodeId operand : node.operands) {
    const Integers& value = integers_[operand];
    if (!value) break;
    operands.push_back(&*value);
  }
  if (operands.size() == node.operands.size() && !node.as<InputOp>() && !node.as<ConstantOp>())
    if (auto value = std::visit(IntegerOps{graph_, node, operands}, node.op)) return value;
  // A step on the way may have values that are not whole numbers.
  if (const auto value = constant(id)) return whole_numbers(*value);
  return std::nullopt;
}

std::optional<std::vector<Expr>> KnownValues::integers(NodeId id) {
  const auto is_leaf = [&](NodeId node) {
    return integers_.contains(node) || !is_small(graph_[node].type, kMostIntegers);
  };
  const std::vector<NodeId> order = needed(id, is_leaf);
  Request request(*this, order);
  for (const NodeId next : order) {
    if (!integers_.contains(next)) {
      Integers value = compute_integers(next);
      if (value) held_ += bytes_of(*value);
      integers_.emplace(next, std::move(value));
    }
    request.done(next);
  }
  return integers_[id];
}

std::vector<std::string> KnownValues::inputs_of(NodeId id) const {
  std::vector<std::string> names;
  const auto is_leaf = [](NodeId) { return false; };
  for (const NodeId next : needed(id, is_leaf)) {
    const auto* input = graph_[next].as<InputOp>();
    const auto bound = constants_.find(next);
    if (input && (bound == constants_.end() || !bound->second)) names.push_back(input->name);
  }
  return names;
}

}  // namespace braze
