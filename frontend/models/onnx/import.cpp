#include "frontend/models/onnx/import.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "frontend/builder/builder.h"
#include "frontend/models/importing.h"
#include "frontend/models/onnx/node.h"
#include "ir/support/progress.h"
#include "ir/support/scanner.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"
#include "ir/support/words.h"

namespace braze::onnx {

namespace {

namespace codes {
inline constexpr Code kOnnxModel{"onnx-model", ErrorKind::Unsupported,
                                 "A model has nodes that cannot be imported; all are listed."};
inline constexpr Code kOnnxVersion{"onnx-version", ErrorKind::Unsupported,
                                   "A model is of a version that Braze does not read."};
inline constexpr Code kOnnxInput{"onnx-input", ErrorKind::Unsupported,
                                 "An input or output of a model is of a kind that Braze has not."};
inline constexpr Code kOnnxOption{"onnx-option", ErrorKind::InvalidArgument,
                                  "A size or value given at import is none of the model's."};
}  // namespace codes
using braze::codes::kOnnxFile;

// The greatest value of a size for which the caller gives no range. A tensor with four such extents
// stays within the limits of a type.
constexpr int64_t kGreatestSize = 8192;
constexpr size_t kLongestLabel = 256;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// `text` as a word of our language. Characters that a word cannot have become '_'.
std::string word_of(std::string_view text, std::string_view otherwise) {
  std::string out;
  for (const char c : text) {
    if (is_letter(c))
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  if (out.empty()) out = otherwise;
  if (out[0] >= '0' && out[0] <= '9') out.insert(out.begin(), '_');
  return out;
}

struct Scope {
  const Scope* outer = nullptr;
  std::map<std::string, Value, std::less<>> values;
  std::map<std::string, const TensorData*, std::less<>> weights = {};  // those not yet used
  const Opsets* opsets = nullptr;
  const GraphData* graph = nullptr;  // null in the body of a function
  std::string prefix = {};           // the names of the calls around the nodes
};

class Importer final : public Surroundings {
 public:
  Importer(const ModelData& model, const std::string& path, const ImportOptions& options)
      : model_(model),
        path_(path),
        options_(options),
        builder_(std::make_shared<detail::Builder>(graph_name())),
        known_(builder_->graph, model.bytes),
        reader_(path) {
    for (const FunctionData& function : model_.functions)
      functions_[{function.domain, function.name, function.overload}] = &function;
  }

  Imported run() {
    check_version();
    const detail::BuilderScope building(builder_);
    Scope scope{.opsets = &model_.opsets, .graph = &model_.graph};
    declare(scope);
    const std::vector<NodeData>& nodes = model_.graph.nodes;
    Progress progress("importing " + file(), "node", nodes.size());
    for (const NodeData& node : nodes) {
      build_all({&node, 1}, scope);
      progress.advance();
    }
    problems_.fail_if_any(codes::kOnnxModel, file(), input_count_, "node", built_);
    return finish(scope);
  }

  // ---- What nodes ask for -----------------------------------------------------------------------

  KnownValues& known() override { return known_; }

  // A node of a function is built for each call, and there is one weight for all of them.
  Value weight(const TensorData& data) override {
    const auto known = read_.find(&data);
    if (known == read_.end()) return read_[&data] = new_weight(data);
    return known->second;
  }

  std::vector<Value> inlined(const GraphData& graph) override {
    Scope scope{.outer = here_, .opsets = here_->opsets, .graph = &graph, .prefix = here_->prefix};
    add_weights(graph, scope);
    if (!graph.inputs.empty() || graph.sparse_weights)
      fail(braze::codes::kOnnxNode, "a branch with inputs, or with sparse weights");
    build_all(graph.nodes, scope);
    std::vector<Value> out;
    for (const ValueInfo& output : graph.outputs) {
      const Value* value = find(scope, output.name);
      if (!value)
        fail(braze::codes::kOnnxNode, fmt::format("nothing computes {}", quote(output.name)));
      out.push_back(*value);
    }
    return out;
  }

 private:
  std::string graph_name() const {
    const std::string stem = std::filesystem::path(path_).stem().string();
    return word_of(stem.empty() ? model_.graph.name : stem, "model");
  }
  // How messages name the file.
  std::string file() const { return path_.empty() ? "the model" : path_; }

  void check_version() const {
    const auto own = model_.opsets.find("");
    if (own == model_.opsets.end()) return;  // the model has only operators of other domains
    if (own->second < kOldestOpset || own->second > kNewestOpset)
      fail(codes::kOnnxVersion, fmt::format("{} is of opset {}; those from {} to {} are read",
                                            file(), own->second, kOldestOpset, kNewestOpset));
  }

  Value new_weight(const TensorData& data) {
    auto value = std::make_shared<const HostTensor>(reader_.read(data));
    const auto type = element_type(data.type);
    Graph& graph = builder_->graph;
    const Shape shape = Shape::of(value->shape());
    if (value->numel() <= kMostConstant)
      return {detail::wrap(builder_,
                           graph.add({ConstantOp{value}, {}, {value->dtype(), shape}, {}, {}})),
              type->bits};
    const std::string name = unused_input(graph, data.name.empty() ? "constant" : data.name);
    const NodeId node = build::input(graph, name, {value->dtype(), shape});
    known_.bind(node, value);
    weights_[node] = std::move(value);
    return {detail::wrap(builder_, node), type->bits};
  }

  // ---- Inputs -----------------------------------------------------------------------------------

  // The extent that a name stands for: the one that the caller gave, or else a symbol. The caller
  // may also name the symbol, which is a word for names that are none.
  Expr size_named(const std::string& name) {
    if (const auto given = options_.sizes.find(name); given != options_.sizes.end()) {
      used_sizes_.insert(name);
      return to_expr(given->second);
    }
    if (const auto known = symbols_.find(name); known != symbols_.end()) return known->second;
    std::string word = word_of(name, "size");
    if (is_reserved_symbol(word)) word += "_";
    const auto is_taken = [&](const std::string& candidate) {
      return std::ranges::any_of(
          symbols_, [&](const auto& symbol) { return symbol.second.symbol_name() == candidate; });
    };
    std::string candidate = word;
    for (int i = 2; is_taken(candidate); ++i) candidate = fmt::format("{}_{}", word, i);
    if (const auto given = options_.sizes.find(candidate); given != options_.sizes.end()) {
      used_sizes_.insert(candidate);
      return to_expr(given->second);
    }
    return symbols_.emplace(name, Expr::symbol(candidate, {1, kGreatestSize})).first->second;
  }

  // Exporters write expressions for some extents, such as "past + 1".
  Expr size_of_text(const std::string& text) {
    const bool is_word = !text.empty() && std::ranges::all_of(text, is_letter);
    if (is_word || options_.sizes.contains(text)) return size_named(text);
    try {
      Scanner scanner(text, "an extent");
      const Expr e =
          parse_expr(scanner, [&](std::string_view name) { return size_named(std::string(name)); });
      if (scanner.at_end() && e.range().min >= 0) return e;
    } catch (const Error&) {
      // The text is not an expression, so it is a name.
    }
    return size_named(text);
  }

  Shape shape_of(const ValueInfo& info) {
    std::vector<Expr> extents;
    for (size_t axis = 0; axis < info.shape->size(); ++axis) {
      const Extent& extent = (*info.shape)[axis];
      if (extent.value && *extent.value >= 0)
        extents.emplace_back(*extent.value);
      else if (!extent.name.empty())
        extents.push_back(size_of_text(extent.name));
      else
        extents.push_back(size_named(fmt::format("{}_{}", info.name, axis)));
    }
    return Shape(std::move(extents));
  }

  // Lists an input among what cannot be imported. Nodes that need it are left out.
  void add_problem(const ValueInfo& input, const std::string& why, Scope& scope) {
    const std::string type(input.is_tensor ? type_name(input.type) : input.kind);
    problems_.add_input(fmt::format("{} (input, {}): {}", quote(input.name), type, why));
    scope.values[input.name] = {.failed = true};
    used_values_.insert(input.name);
  }

  void declare_input(const ValueInfo& info, Scope& scope) {
    ++input_count_;
    const auto type = element_type(info.type);
    if (!info.is_tensor) return add_problem(info, "Braze has tensors only", scope);
    if (!type) return add_problem(info, "Braze has no element type " + type_name(info.type), scope);
    if (!info.shape)
      return add_problem(info,
                         "its number of axes is not known; fix: infer the shapes of the model, or "
                         "export it with a shape for this input",
                         scope);
    const auto constant = [&](HostTensor value) {
      used_values_.insert(info.name);
      const NodeId node = build::constant(builder_->graph, std::move(value));
      scope.values[info.name] = {detail::wrap(builder_, node), type->bits};
    };
    if (const auto given = options_.numbers.find(info.name); given != options_.numbers.end()) {
      auto value = value_of_numbers(given->second, type->dtype, info.shape->size());
      if (!value)
        fail(codes::kOnnxOption,
             fmt::format("{}: {} is given {}, which cannot be {} with {} axes", file(),
                         quote(info.name), count_text(given->second.size(), "number"),
                         name(type->dtype), info.shape->size()));
      return constant(std::move(*value));
    }
    if (const auto given = options_.values.find(info.name); given != options_.values.end()) {
      if (given->second.dtype() != type->dtype ||
          given->second.shape().size() != info.shape->size())
        fail(codes::kOnnxOption,
             fmt::format("{}: {} is given a value of {} with {} axes; it is {} with {}", file(),
                         quote(info.name), name(given->second.dtype()),
                         given->second.shape().size(), name(type->dtype), info.shape->size()));
      return constant(given->second.to_host());
    }
    if (scope.values.contains(info.name))
      fail(codes::kOnnxInput, fmt::format("{}: there are two inputs {}", file(), quote(info.name)));
    try {
      const NodeId node = build::input(builder_->graph, unused_input(builder_->graph, info.name),
                                       {type->dtype, shape_of(info)});
      inputs_.push_back(node);
      scope.values[info.name] = {detail::wrap(builder_, node), type->bits};
    } catch (const Error& error) {
      if (!is_of_node(error)) throw;
      add_problem(info, text_of(error), scope);  // too many axes or elements
    }
  }

  void add_weights(const GraphData& graph, Scope& scope) const {
    for (const auto& data : graph.weights)
      if (!scope.weights.emplace(data->name, data.get()).second)
        fail(kOnnxFile, fmt::format("{}: there are two weights {}", file(), quote(data->name)));
  }

  void declare(Scope& scope) {
    const GraphData& graph = model_.graph;
    if (graph.sparse_weights) fail(codes::kOnnxInput, fmt::format("{} has sparse weights", file()));
    add_weights(graph, scope);
    for (const ValueInfo& info : graph.inputs)  // old files list weights as inputs too
      if (!scope.weights.contains(info.name)) declare_input(info, scope);
    std::vector<std::string> names;
    for (const auto& [name, symbol] : symbols_) names.push_back(name);
    for (const auto& [name, size] : options_.sizes)
      if (!used_sizes_.contains(name))
        fail(codes::kOnnxOption,
             fmt::format("{} has no size {}{}", file(), quote(name), did_you_mean(name, names)));
    const auto check_used = [&](const auto& given) {
      for (const auto& [name, value] : given)
        if (!used_values_.contains(name))
          fail(codes::kOnnxOption, fmt::format("{} has no input {}", file(), quote(name)));
    };
    check_used(options_.values);
    check_used(options_.numbers);
  }

  // ---- Nodes ------------------------------------------------------------------------------------

  // The value of a name in this graph or a graph around it. It is null if there is none.
  Value* find(Scope& scope, const std::string& name) {
    for (Scope* at = &scope; at; at = const_cast<Scope*>(at->outer)) {
      if (const auto value = at->values.find(name); value != at->values.end())
        return &value->second;
      const auto data = at->weights.find(name);
      if (data == at->weights.end()) continue;
      return &at->values.emplace(name, weight(*data->second)).first->second;
    }
    return nullptr;
  }

  std::string describe(const NodeData& node, const Scope& scope) const {
    const auto version = scope.opsets->find(node.domain);
    std::string name = node.name;
    for (size_t i = 0; name.empty() && i < node.outputs.size(); ++i) name = node.outputs[i];
    return fmt::format(
        "{} ({}{}, opset {})", quote(scope.prefix + name),
        node.domain.empty() ? "" : node.domain + ":", node.op,
        version == scope.opsets->end() ? "not said" : std::to_string(version->second));
  }

  void add_problem(const NodeData& node, const Scope& scope, const std::string& why) {
    problems_.add(describe(node, scope) + ": " + why);
  }

  // A node of a function is built once for each call, and some nodes become many.
  void check_size() const {
    const size_t most = most_nodes(model_.bytes);
    if (built_ >= most || builder_->graph.size() > most)
      fail(kOnnxFile, fmt::format("{} becomes more than {} nodes, the most for a file of {} bytes",
                                  file(), most, model_.bytes));
  }

  void build_all(std::span<const NodeData> nodes, Scope& scope) {
    const Restored here(here_, &scope);
    for (const NodeData& node : nodes) {
      check_size();
      ++built_;
      const size_t known_problems = problems_.count();
      bool failed = false;
      try {
        failed = !build_node(node, scope);
      } catch (const Error& error) {
        if (!is_of_node(error)) throw;
        if (problems_.count() == known_problems) add_problem(node, scope, text_of(error));
        failed = true;
      }
      if (failed)
        for (const std::string& output : node.outputs) scope.values[output] = {.failed = true};
    }
  }

  // Whether an error is about a single node, and neither about the whole file nor a bug of ours.
  static bool is_of_node(const Error& error) {
    const bool is_of_file = error.kind() == ErrorKind::DataLoss ||
                            error.kind() == ErrorKind::NotFound ||
                            &error.code() == &braze::codes::kOnnxData;
    return !is_of_file && error.kind() != ErrorKind::Internal;
  }

  // False if the node could not be built. Either an earlier node is the reason, or the reason was
  // added to the list of problems.
  bool build_node(const NodeData& node, Scope& scope) {
    const FunctionData* function = find_function(node);
    const auto version = scope.opsets->find(node.domain);
    const OpRow* row = nullptr;
    std::string own;  // the name of the function of the host program that is called
    if (!function) {
      bool is_other_version = false;
      if (version != scope.opsets->end())
        row = find_row(node.domain, node.op, version->second, &is_other_version);
      if (const std::string name = node.domain + "::" + node.op;
          !row && !node.domain.empty() && is_custom_function(name))
        own = name;
      if (!row && own.empty()) {
        add_problem(node, scope,
                    version == scope.opsets->end()
                        ? "the model does not say a version of its operator set"
                    : is_other_version ? "there is no such operator of this version"
                                       : "there is no such operator");
        return false;
      }
    }
    for (const std::string& name : node.outputs)
      if (!name.empty() && (scope.values.contains(name) || scope.weights.contains(name)))
        fail(kOnnxFile, fmt::format("{}: {} is there twice: {} computes it again", file(),
                                    quote(name), describe(node, scope)));
    std::vector<Value> inputs;
    bool is_sound = true;
    for (const std::string& name : node.inputs) {
      const Value* value = name.empty() ? nullptr : find(scope, name);
      if (!name.empty() && !value)
        fail(braze::codes::kOnnxNode, fmt::format("nothing computes its operand {}", quote(name)));
      inputs.push_back(value ? *value : Value{});
      is_sound &= !inputs.back().failed;
    }
    if (!is_sound) return false;
    if (function) return call(*function, node, inputs, scope);
    if (row) {
      const auto versioned = [&](OnnxNode& built) {
        if (node.domain.empty()) check_node_version(built);
        return (*row)(built);
      };
      return apply(versioned, node, version->second, std::move(inputs), scope);
    }
    const auto custom = [&](OnnxNode& built) {
      if (!built.wants(0)) built.refuse("it has no first result");
      return called(built, own, declared_type(node.outputs[0], scope));
    };
    return apply(custom, node, 0, std::move(inputs), scope);
  }

  // The type that the file gives to a value of this graph.
  TensorType declared_type(const std::string& value, const Scope& scope) {
    const ValueInfo* info = nullptr;
    if (scope.graph)
      for (const auto* list : {&scope.graph->outputs, &scope.graph->values})
        for (const ValueInfo& one : *list)
          if (one.name == value && one.is_tensor && one.shape) info = &one;
    if (!info)
      fail(braze::codes::kOnnxNode,
           fmt::format("the model does not say the type and shape of {}, the result of a function "
                       "of the host program",
                       quote(value)),
           {.location = {}, .node = {}, .fix = "add them to the graph's value_info"});
    const auto type = element_type(info->type);
    if (!type || type->bits != 0)
      fail(braze::codes::kOnnxNode,
           fmt::format("no function of the host program returns {}", type_name(info->type)));
    const size_t sizes = symbols_.size();
    Shape shape = shape_of(*info);
    if (symbols_.size() != sizes)
      fail(braze::codes::kOnnxNode,
           fmt::format("the extents of {} are not all numbers or sizes of the inputs: {}",
                       quote(value), shape.to_string()));
    return {type->dtype, std::move(shape)};
  }

  template <class Build>
  bool apply(const Build& build, const NodeData& node, int64_t opset, std::vector<Value> inputs,
             Scope& scope) {
    const std::string& named =
        node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name;
    const SourceLocation where(path_.empty() ? "model.onnx" : path_, static_cast<uint32_t>(built_),
                               0);
    const detail::Place place(where);
    OnnxNode built(*this, node, opset, std::move(inputs));
    const Tensors results = build(built);
    if (const std::vector<std::string> unread = built.unread(); !unread.empty())
      built.refuse(fmt::format("it has attributes that nothing is known of: {}",
                               join(unread, ", ", [](const std::string& s) { return s; })));
    if (const std::vector<size_t> unused = built.unused(); !unused.empty())
      built.refuse(fmt::format("nothing is known of its operand {}, {}", unused[0],
                               quote(node.inputs[unused[0]])));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      if (i >= results.size())
        built.refuse(fmt::format("its result {} is not there yet", quote(node.outputs[i])));
      label(results[i], scope.prefix + named);
      scope.values[node.outputs[i]] = {results[i], built.result_bits()};
    }
    return true;
  }

  // Labels a value with the end of the node's name, unless it already has a label. A node of a
  // function labels a value in each call, so labels are not long.
  void label(const Tensor& value, const std::string& name) {
    const Node& node = builder_->graph[detail::node_of(value)];
    if (node.label.empty() && !node.as<InputOp>() && !node.as<ConstantOp>())
      builder_->graph.set_label(
          detail::node_of(value),
          word_of(std::string_view(name).substr(name.size() - std::min(name.size(), kLongestLabel)),
                  "value"));
  }

  // ---- Functions --------------------------------------------------------------------------------

  const FunctionData* find_function(const NodeData& node) const {
    const auto found = functions_.find({node.domain, node.op, node.overload});
    return found == functions_.end() ? nullptr : found->second;
  }

  // An attribute may refer to an attribute of the call. It gets that value. If the call omits it,
  // the attribute is removed.
  static void substitute(NodeData& node, const FunctionData& function, const NodeData& call) {
    std::vector<Attribute> attributes;
    for (Attribute& attribute : node.attributes) {
      if (attribute.graph) {
        auto graph = std::make_shared<GraphData>(*attribute.graph);
        for (NodeData& inner : graph->nodes) substitute(inner, function, call);
        attribute.graph = std::move(graph);
      }
      if (attribute.reference.empty()) {
        attributes.push_back(std::move(attribute));
        continue;
      }
      const auto value = [&](const std::vector<Attribute>& list) {
        return std::ranges::find(list, attribute.reference, &Attribute::name);
      };
      auto found = value(call.attributes);
      if (found == call.attributes.end()) {
        found = value(function.defaults);
        if (found == function.defaults.end()) continue;
      }
      attributes.push_back(*found);
      attributes.back().name = attribute.name;
    }
    node.attributes = std::move(attributes);
  }

  bool call(const FunctionData& function, const NodeData& node, const std::vector<Value>& inputs,
            Scope& scope) {
    const Restored depth(calls_, calls_ + 1);
    if (calls_ > kMostCalls)
      fail(kOnnxFile, fmt::format("{}: functions call each other too deep", file()));
    Scope inner{.opsets = &function.opsets,
                .prefix = scope.prefix + (node.name.empty() ? node.op : node.name) + "/"};
    for (size_t i = 0; i < function.inputs.size(); ++i)
      inner.values[function.inputs[i]] = i < inputs.size() ? inputs[i] : Value{};
    // One node is copied at a time, so that calls within calls hold no copies of whole functions.
    for (NodeData copy : function.nodes) {
      substitute(copy, function, node);
      build_all({&copy, 1}, inner);
    }
    bool is_sound = true;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value* value = i < function.outputs.size() ? find(inner, function.outputs[i]) : nullptr;
      if (!value) {
        add_problem(node, scope, "its function has no such result");
        is_sound = false;
        break;
      }
      scope.values[node.outputs[i]] = *value;
      is_sound &= !value->failed;
    }
    return is_sound;
  }

  // ---- The end ----------------------------------------------------------------------------------

  // The graph with only those nodes and weights that the results need.
  Imported finish(Scope& scope) {
    std::vector<GraphOutput> outputs;
    std::set<std::string_view> names;
    for (const ValueInfo& info : model_.graph.outputs) {
      if (!names.insert(info.name).second)
        fail(codes::kOnnxInput,
             fmt::format("{}: there are two outputs {}", file(), quote(info.name)),
             {.location = {}, .node = {}, .fix = "remove one of them, or rename it by Identity"});
      const Value* value = find(scope, info.name);
      if (!value || !value->tensor.valid())
        fail(kOnnxFile,
             fmt::format("{}: nothing computes the output {}", file(), quote(info.name)));
      outputs.push_back({detail::node_of(value->tensor), info.name, {}});
    }
    if (outputs.empty()) fail(kOnnxFile, fmt::format("{} has no output", file()));
    return finish_import(builder_->graph, inputs_, weights_, std::move(outputs));
  }

  const ModelData& model_;
  std::string path_;
  const ImportOptions& options_;
  std::shared_ptr<detail::Builder> builder_;
  // The model's functions, by domain, name and overload.
  std::map<std::tuple<std::string, std::string, std::string>, const FunctionData*> functions_;
  KnownValues known_;
  TensorReader reader_;
  std::map<std::string, Expr> symbols_;  // by the file's names
  std::set<std::string> used_sizes_, used_values_;
  std::vector<NodeId> inputs_;
  BoundWeights weights_;
  std::map<const TensorData*, Value> read_;  // the model keeps all of these
  Problems problems_;
  size_t input_count_ = 0;
  Scope* here_ = nullptr;
  size_t built_ = 0;
  int calls_ = 0;
};

}  // namespace

Imported import_model(const ModelData& model, const std::string& path,
                      const ImportOptions& options) {
  return Importer(model, path, options).run();
}

}  // namespace braze::onnx
