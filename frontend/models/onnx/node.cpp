#include "frontend/models/onnx/node.h"

#include <algorithm>
#include <map>

#include "frontend/builder/builder.h"
#include "ir/support/text.h"

namespace braze::onnx {

using braze::codes::kOnnxNode;
using braze::codes::kOnnxUnknown;

// ---- Operands ---------------------------------------------------------------------------------

const Tensor& OnnxNode::operator[](size_t i) const {
  if (!has(i)) refuse(fmt::format("operand {} is missing", i));
  return inputs_[i].tensor;
}

Tensors OnnxNode::all() const {
  Tensors out;
  for (size_t i = 0; i < count(); ++i) out.push_back((*this)[i]);
  return out;
}

std::vector<size_t> OnnxNode::unused() const {
  std::vector<size_t> out;
  for (size_t i = 0; i < count(); ++i)
    if (inputs_[i].tensor.valid() && !used_.contains(i)) out.push_back(i);
  return out;
}

void OnnxNode::fail_unknown(size_t i, std::string_view what) const {
  const std::vector<std::string> inputs =
      around_.known().inputs_of(detail::node_of(inputs_[i].tensor));
  const std::string from = join(inputs, ", ", [](const std::string& name) { return quote(name); });
  fail(kOnnxUnknown,
       fmt::format(
           "{} (operand {}) must be known at import, and is computed from {}", what, i,
           inputs.empty() ? "values that are too large, or that are not computed at import" : from),
       {.location = {},
        .node = {},
        .fix = inputs.size() == 1 ? fmt::format("give {} a value at import", from) : ""});
}

std::optional<std::vector<Expr>> OnnxNode::try_integers(const Tensor& tensor) const {
  return around_.known().integers(detail::node_of(tensor));
}
std::shared_ptr<const HostTensor> OnnxNode::try_constant(const Tensor& tensor) const {
  return around_.known().constant(detail::node_of(tensor));
}

Dims OnnxNode::sizes(size_t i, std::string_view what) const {
  const auto values = try_integers((*this)[i]);
  if (!values) fail_unknown(i, what);
  Dims out;
  for (const Expr& value : *values) out.push_back(to_dim(value));
  return out;
}

std::vector<int64_t> OnnxNode::numbers(size_t i, std::string_view what) const {
  std::vector<int64_t> out;
  for (const Dim& size : sizes(i, what)) {
    if (!size.is_constant())
      refuse(
          fmt::format("{} (operand {}) is {}, which depends on a size", what, i, size.to_string()),
          "give that size a number at import");
    out.push_back(size.value());
  }
  return out;
}

int64_t OnnxNode::number(size_t i, std::string_view what) const {
  const std::vector<int64_t> list = numbers(i, what);
  if (list.size() != 1) refuse(fmt::format("{} (operand {}) is not one number", what, i));
  return list[0];
}

std::shared_ptr<const HostTensor> OnnxNode::constant(size_t i, std::string_view what) const {
  auto value = try_constant((*this)[i]);
  if (!value) fail_unknown(i, what);
  return value;
}

double OnnxNode::real(size_t i, std::string_view what) const {
  const auto value = constant(i, what);
  if (value->numel() != 1) refuse(fmt::format("{} (operand {}) is not one number", what, i));
  return value->get_double(0);
}

// ---- Attributes -------------------------------------------------------------------------------

const Attribute* OnnxNode::find(std::string_view name, const Attribute::Kind* kind) const {
  for (const Attribute& attribute : data_.attributes) {
    if (attribute.name != name) continue;
    read_.emplace(name);
    if (kind && attribute.kind != *kind)
      refuse(fmt::format("the attribute {} is of a kind that it cannot be", name));
    return &attribute;
  }
  return nullptr;
}

void OnnxNode::fail_missing(std::string_view attribute) const {
  refuse(fmt::format("the attribute {} is missing", attribute));
}

int64_t OnnxNode::integer(std::string_view name, std::optional<int64_t> otherwise) const {
  if (const Attribute* found = find(name, Attribute::Kind::Int)) return found->integer;
  if (!otherwise) fail_missing(name);
  return *otherwise;
}
double OnnxNode::real(std::string_view name, std::optional<double> otherwise) const {
  if (const Attribute* found = find(name, Attribute::Kind::Float)) return double{found->real};
  if (!otherwise) fail_missing(name);
  return *otherwise;
}
std::string OnnxNode::text(std::string_view name, std::optional<std::string> otherwise) const {
  if (const Attribute* found = find(name, Attribute::Kind::String)) return found->text;
  if (!otherwise) fail_missing(name);
  return *otherwise;
}
std::vector<int64_t> OnnxNode::integers(std::string_view name,
                                        std::optional<std::vector<int64_t>> otherwise) const {
  if (const Attribute* found = find(name, Attribute::Kind::Ints)) return found->integers;
  if (!otherwise) fail_missing(name);
  return *otherwise;
}
std::vector<double> OnnxNode::reals(std::string_view name) const {
  const Attribute* found = find(name, Attribute::Kind::Floats);
  if (!found) return {};
  return {found->reals.begin(), found->reals.end()};
}
std::vector<std::string> OnnxNode::texts(std::string_view name) const {
  const Attribute* found = find(name, Attribute::Kind::Strings);
  return found ? found->texts : std::vector<std::string>();
}
const TensorData* OnnxNode::tensor(std::string_view name) const {
  const Attribute* found = find(name, Attribute::Kind::Tensor);
  return found ? found->tensor.get() : nullptr;
}
const GraphData* OnnxNode::graph(std::string_view name) const {
  const Attribute* found = find(name, Attribute::Kind::Graph);
  return found ? found->graph.get() : nullptr;
}

ElementType OnnxNode::type(std::string_view name, std::optional<int32_t> otherwise) const {
  const int64_t number =
      integer(name, otherwise ? std::optional<int64_t>(*otherwise) : std::optional<int64_t>());
  if (const int since = type_since(static_cast<int32_t>(number));
      data_.domain.empty() && opset_ < since)
    refuse(fmt::format("{} is a type only from opset {} on",
                       type_name(static_cast<int32_t>(number)), since));
  const auto type = element_type(static_cast<int32_t>(number));
  if (!type)
    refuse(fmt::format("Braze has no element type {}", type_name(static_cast<int32_t>(number))));
  return *type;
}

std::vector<std::string> OnnxNode::unread() const {
  std::vector<std::string> out;
  for (const Attribute& attribute : data_.attributes)
    if (!read_.contains(attribute.name)) out.push_back(attribute.name);
  return out;
}

std::optional<std::vector<int64_t>> OnnxNode::axes(size_t i) const {
  if (const Attribute* found = find("axes", Attribute::Kind::Ints)) return found->integers;
  if (has(i)) return numbers(i, "axes");
  return std::nullopt;
}

int64_t OnnxNode::axis(int64_t axis, size_t rank) const {
  const auto count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count) refuse(fmt::format("there is no axis {} of {}", axis, count));
  return axis < 0 ? axis + count : axis;
}

std::vector<int64_t> OnnxNode::axes_of(const std::vector<int64_t>& axes, size_t rank) const {
  std::vector<int64_t> out;
  for (const int64_t one : axes) out.push_back(axis(one, rank));
  std::vector<int64_t> sorted = out;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) refuse("an axis is named twice");
  return out;
}

void OnnxNode::refuse(std::string reason, std::string fix) const {
  fail(kOnnxNode, std::move(reason), {.location = {}, .node = {}, .fix = std::move(fix)});
}

void OnnxNode::take_memory(int64_t bytes) const {
  if (!around_.known().reserve(bytes))
    refuse(
        fmt::format("it makes constants of {} bytes, and a file of this size may not have so "
                    "many",
                    bytes));
}

// ---- Rows -------------------------------------------------------------------------------------

namespace {

struct Domain {
  std::string_view name;
  std::vector<const Rows*> rows;
};

const std::vector<Domain>& domains() {
  static const std::vector<Domain> kDomains = {
      {"",
       {&elementwise_rows(), &movement_rows(), &indexing_rows(), &reduction_rows(), &product_rows(),
        &layer_rows(), &window_rows(), &attention_rows(), &quantization_rows(), &recurrent_rows(),
        &value_rows()}},
      {"com.microsoft", {&microsoft_rows()}},
  };
  return kDomains;
}

using Index = std::multimap<std::pair<std::string_view, std::string_view>, const OpRow*>;

const Index& index() {
  static const Index kIndex = [] {
    Index out;
    for (const Domain& domain : domains())
      for (const Rows* rows : domain.rows)
        for (const OpRow& row : *rows) out.emplace(std::pair(domain.name, row.name), &row);
    return out;
  }();
  return kIndex;
}

}  // namespace

const OpRow* find_row(std::string_view domain, std::string_view op, int64_t opset, bool* other) {
  const auto [begin, end] = index().equal_range({domain, op});
  for (auto row = begin; row != end; ++row)
    if (row->second->since <= opset && opset <= row->second->until) return row->second;
  if (other) *other = begin != end;
  return nullptr;
}

std::vector<std::pair<std::string, std::string>> imported_ops() {
  std::map<std::string, std::pair<int, int>> versions;
  for (const auto& [name, row] : index()) {
    const std::string key =
        (name.first.empty() ? "" : std::string(name.first) + ":") + std::string(name.second);
    const auto [at, is_new] = versions.emplace(key, std::pair(row->since, row->until));
    at->second.first = std::min(at->second.first, row->since);
    at->second.second = std::max(at->second.second, row->until);
  }
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [key, range] : versions)
    out.emplace_back(key,
                     (range.first > 1 ? fmt::format("from {}", range.first) : "") +
                         (range.second < OpRow::kNewest
                              ? fmt::format("{}to {}", range.first > 1 ? " " : "", range.second)
                              : ""));
  return out;
}

// ---- What rows share --------------------------------------------------------------------------

Tensor widened(const Tensor& x) { return cast(x, compute_type(x.dtype())); }

Dims broadcast_dims(const Dims& a, const Dims& b, const OnnxNode& node) {
  const Dims& longer = a.size() < b.size() ? b : a;
  const Dims& shorter = a.size() < b.size() ? a : b;
  Dims out = longer;
  for (size_t i = 0; i < shorter.size(); ++i) {
    Dim& extent = out[longer.size() - shorter.size() + i];
    if (extent == shorter[i] || shorter[i] == Dim(1)) continue;
    if (!(extent == Dim(1)))
      node.refuse(fmt::format("the extents {} and {} do not broadcast", extent.to_string(),
                              shorter[i].to_string()));
    extent = shorter[i];
  }
  return out;
}

bool may_equal(const Dims& a, const Dims& b) {
  return std::ranges::equal(a, b, [](const Dim& x, const Dim& y) {
    return !x.is_constant() || !y.is_constant() || x == y;
  });
}

std::string text_of(const Dims& shape) {
  return "[" + join(shape, ", ", [](const Dim& extent) { return extent.to_string(); }) + "]";
}

Tensor from_start(const Tensor& indices, const Dim& extent) {
  const auto& builder = indices.builder();
  const NodeId size = build::size(builder->graph, to_expr(extent));
  return where(indices < 0, indices + cast(detail::wrap(builder, size), indices.dtype()), indices);
}

}  // namespace braze::onnx
