#include "frontend/models/stablehlo/node.h"

#include <algorithm>

#include "ir/support/text.h"

namespace braze::stablehlo {

const Tensor& Node::operator[](size_t i) const {
  if (i >= operands_.size()) refuse(fmt::format("operand {} is missing", i));
  return operands_[i];
}

Tensors Node::operands(size_t begin, size_t end) const {
  Tensors out;
  for (size_t i = begin; i < end; ++i) out.push_back((*this)[i]);
  return out;
}

const TensorType& Node::result(size_t i) const {
  if (i >= operation_.result_types.size()) refuse(fmt::format("it has no result {}", i));
  const Type& type = operation_.result_types[i];
  if (!type.tensor) refuse(fmt::format("Braze has no type {}", type.text));
  return *type.tensor;
}

const Block& Node::region(size_t i) const {
  if (i >= operation_.regions.size()) refuse(fmt::format("its function {} is missing", i));
  return operation_.regions[i];
}

Tensors Node::apply(const Block& block, const Tensors& arguments, size_t results) const {
  Tensors out = scalars_(block, arguments);
  if (out.size() != results) refuse(fmt::format("its function has {} results", out.size()));
  return out;
}

const Attribute* Node::find(std::string_view name) const {
  const auto found = operation_.attributes.find(name);
  if (found == operation_.attributes.end()) return nullptr;
  read_.emplace(name);
  return &found->second;
}

int64_t Node::integer(std::string_view name, std::optional<int64_t> otherwise) const {
  const Attribute* found = find(name);
  if (found && found->kind == Attribute::Kind::Integer) return found->integer;
  if (found || !otherwise) refuse(fmt::format("its attribute {} is no whole number", name));
  return *otherwise;
}

bool Node::flag(std::string_view name, bool otherwise) const {
  const Attribute* found = find(name);
  if (!found) return otherwise;
  if (found->kind != Attribute::Kind::Bool)
    refuse(fmt::format("its attribute {} is no bool", name));
  return found->integer != 0;
}

// All numbers of a list, of nested lists, or of a dense constant, in order.
std::vector<int64_t> Node::numbers(const Attribute& attribute, std::string_view name) const {
  std::vector<int64_t> out;
  using enum Attribute::Kind;
  if (attribute.kind == Integer || attribute.kind == Bool) {
    // Below this limit, computing with the number does not overflow.
    constexpr int64_t kMost = int64_t{1} << 40;
    if (attribute.integer > kMost || attribute.integer < -kMost)
      refuse(fmt::format("its attribute {} has a number beyond all extents", name));
    out.push_back(attribute.integer);
  } else if (attribute.kind == List) {
    for (const Attribute& one : attribute.list) {
      const std::vector<int64_t> more = numbers(one, name);
      out.insert(out.end(), more.begin(), more.end());
    }
  } else if (attribute.kind == Dense && attribute.dense.value) {
    const HostTensor& value = *attribute.dense.value;
    const auto count = attribute.dense.type.tensor->shape.numel().as_constant().value_or(0);
    if (count > (1 << 16)) refuse(fmt::format("its attribute {} is too long", name));
    for (int64_t i = 0; i < count; ++i) out.push_back(value.get_int(value.shape().empty() ? 0 : i));
  } else {
    refuse(fmt::format("its attribute {} is no list of numbers", name));
  }
  return out;
}

std::vector<int64_t> Node::integers(std::string_view name,
                                    std::optional<std::vector<int64_t>> otherwise,
                                    std::string_view within) const {
  const Attribute* found = find(name);
  if (!found && !within.empty()) {
    const Attribute* around = find(within);
    if (around && around->dictionary) {
      const auto inside = around->dictionary->find(name);
      if (inside != around->dictionary->end()) found = &inside->second;
    }
  }
  if (found) return numbers(*found, name);
  if (!otherwise) refuse(fmt::format("its attribute {} is missing", name));
  return *otherwise;
}

std::string Node::word(std::string_view name, std::optional<std::string> otherwise) const {
  const Attribute* found = find(name);
  if (found && !found->text.empty()) return found->text;
  if (found || !otherwise) refuse(fmt::format("its attribute {} is no word", name));
  return *otherwise;
}

std::vector<std::string> Node::unread() const {
  std::vector<std::string> out;
  for (const auto& [name, value] : operation_.attributes)
    if (!read_.contains(name) && name.find('.') == std::string::npos) out.push_back(name);
  return out;
}

bool Node::is_all(const Tensor& x, uint64_t bits) const {
  const auto value = known(x);
  if (!value) return false;
  for (int64_t i = 0; i < value->numel(); ++i)
    if (value->get_bits(i) != bits) return false;
  return true;
}

void Node::refuse(std::string reason) const { fail(codes::kStablehloNode, std::move(reason)); }

// ---- Rows -------------------------------------------------------------------------------------

namespace {

const std::map<std::string_view, const Row*>& index() {
  static const std::map<std::string_view, const Row*> kIndex = [] {
    std::map<std::string_view, const Row*> out;
    for (const Rows* rows : {&elementwise_rows(), &movement_rows(), &indexing_rows(),
                             &reduction_rows(), &product_rows()})
      for (const Row& row : *rows) out.emplace(row.name, &row);
    return out;
  }();
  return kIndex;
}

}  // namespace

const Row* find_row(std::string_view name) {
  const auto found = index().find(name);
  return found == index().end() ? nullptr : found->second;
}

bool is_elementwise(const Row& row) {
  const Rows& rows = elementwise_rows();
  return &row >= rows.data() && &row < rows.data() + rows.size();
}

std::vector<std::string> imported_ops() {
  std::vector<std::string> out;
  for (const auto& [name, row] : index()) out.emplace_back(name);
  return out;
}

// ---- What rows share --------------------------------------------------------------------------

std::optional<Monoid> monoid_of(const Block& block) {
  if (block.arguments.size() != 2 || block.operations.size() != 2) return std::nullopt;
  const Operation &operation = block.operations[0], &result = block.operations[1];
  const ValueName &a = block.arguments[0].name, &b = block.arguments[1].name;
  const std::vector<ValueName> pair = {a, b}, swapped = {b, a};
  if (operation.results.size() != 1 || result.operands != operation.results ||
      (operation.operands != pair && operation.operands != swapped) ||
      operation.result_types.size() != 1 || !operation.result_types[0].tensor)
    return std::nullopt;
  const bool is_bool = operation.result_types[0].tensor->dtype == DType::Bool;
  const std::string_view name = operation.name;
  if (name == "stablehlo.add") return is_bool ? Monoid::Or : Monoid::Sum;
  if (name == "stablehlo.multiply") return is_bool ? Monoid::And : Monoid::Prod;
  if (name == "stablehlo.maximum") return is_bool ? Monoid::Or : Monoid::Max;
  if (name == "stablehlo.minimum") return is_bool ? Monoid::And : Monoid::Min;
  if (name == "stablehlo.and") return Monoid::And;
  if (name == "stablehlo.or") return Monoid::Or;
  return std::nullopt;
}

Tensor scalar_bits(DType dtype, uint64_t bits) {
  const auto& builder = detail::current_builder({});
  return detail::wrap(builder, build::scalar_bits(builder->graph, dtype, bits));
}
Tensor scalar(DType dtype, double value) {
  const auto& builder = detail::current_builder({});
  return detail::wrap(builder, build::scalar(builder->graph, dtype, value));
}

Dims to_extents(const std::vector<int64_t>& list) { return {list.begin(), list.end()}; }

int64_t extent(const Tensor& x, size_t axis) { return x.dim(static_cast<int64_t>(axis)).value(); }
std::vector<int64_t> extents(const Tensor& x) {
  std::vector<int64_t> out;
  for (const Dim& dim : x.shape()) out.push_back(dim.value());
  return out;
}

Tensor reduced(Monoid monoid, const Tensor& x, std::vector<int64_t> axes) {
  std::ranges::sort(axes);
  const auto& builder = x.builder();
  return detail::wrap(builder, build::reduce(builder->graph, monoid, detail::node_of(x),
                                             std::move(axes), detail::place(Where::current())));
}

Tensor combined(Monoid monoid, const Tensor& x, const Tensor& y) {
  const Operand operands[] = {x, y};
  return detail::elementwise(info(monoid).combine, operands, Where::current());
}

}  // namespace braze::stablehlo
