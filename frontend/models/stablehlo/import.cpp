#include "frontend/models/stablehlo/import.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "braze/custom_call.h"
#include "frontend/models/importing.h"
#include "frontend/models/stablehlo/node.h"
#include "ir/support/progress.h"
#include "ir/support/suggest.h"
#include "ir/support/text.h"
#include "ir/support/words.h"

namespace braze::stablehlo {

namespace {

namespace codes {
inline constexpr Code kStablehloModel{
    "stablehlo-model", ErrorKind::Unsupported,
    "A text of StableHLO has operations that cannot be imported; all are listed."};
inline constexpr Code kStablehloInput{
    "stablehlo-input", ErrorKind::Unsupported,
    "A text of StableHLO has no main function that Braze can run."};
inline constexpr Code kStablehloOption{
    "stablehlo-option", ErrorKind::InvalidArgument,
    "A size or value given at import is none of the text's arguments."};
}  // namespace codes
using braze::codes::kStablehloNode;
using braze::codes::kStablehloText;

constexpr int kMostTurns = 1024;  // for one loop

struct Value {
  Tensor tensor;
  bool failed = false;  ///< it depends on an operation that could not be imported
};
using Values = std::vector<Value>;

struct Scope {
  const Scope* outer = nullptr;
  std::map<ValueName, Value> values = {};
};

class Importer final : public Scalars {
 public:
  Importer(const Module& module, const std::string& name, const ImportOptions& options)
      : module_(module),
        file_(name),
        options_(options),
        builder_(std::make_shared<detail::Builder>(graph_name())),
        known_(builder_->graph, module.bytes) {}

  Imported run() {
    const Function& main = find_main();
    for (const Operation& other : module_.others) check_beside(other);
    const detail::BuilderScope building(builder_);
    Scope scope;
    declare(main, scope);
    Progress progress("importing " + file_, "operation", main.body.operations.size());
    const Values results = run_block(main.body, scope, &progress);
    problems_.fail_if_any(codes::kStablehloModel, file_, main.arguments.size(), "operation",
                          built_);
    return finish(main, results);
  }

  // Applies a function of scalars to each element of tensors.
  Tensors operator()(const Block& block, const Tensors& arguments) override {
    const Restored<bool> scalars(scalars_, true);
    Values values;
    for (const Tensor& argument : arguments) values.push_back({argument});
    Tensors out;
    for (const Value& value : call_block(block, values, here_)) {
      if (value.failed) fail(kStablehloNode, "its function cannot be imported");
      out.push_back(value.tensor);
    }
    return out;
  }

 private:
  std::string graph_name() const {
    std::string out = std::filesystem::path(file_).stem().string();
    if (out.empty()) out = module_.name;
    for (char& c : out)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return out.empty() || std::isdigit(static_cast<unsigned char>(out[0])) ? "model" + out : out;
  }

  // ---- Arguments --------------------------------------------------------------------------------

  const Function& find_main() const {
    const auto main = module_.functions.find("main");
    if (main != module_.functions.end()) return main->second;
    const Function* only = nullptr;
    for (const auto& [name, function] : module_.functions) {
      if (function.is_private) continue;
      if (only) fail(codes::kStablehloInput, fmt::format("{} has no function main", file_));
      only = &function;
    }
    if (!only) fail(codes::kStablehloInput, fmt::format("{} has no function main", file_));
    return *only;
  }

  // Programs for several devices are refused.
  void check_beside(const Operation& other) {
    if (other.name != "sdy.mesh") return add_problem(other, "there is no such operation");
    const auto axes = other.attributes.find("axes");
    std::string text = axes == other.attributes.end() ? "" : axes->second.text;
    for (size_t at = 0; (at = text.find('=', at)) != std::string::npos; ++at) {
      const size_t digit = std::min(text.find_first_not_of(' ', at + 1), text.size());
      const size_t end = std::min(text.find_first_not_of("0123456789", digit), text.size());
      if (text.substr(digit, end - digit) != "1")
        return add_problem(other, fmt::format("a program for several devices ({})", text));
    }
  }

  std::string argument_name(const Parameter& argument) const {
    return unused_input(builder_->graph,
                        argument.label.empty() ? argument.name.name : argument.label);
  }

  void declare(const Function& main, Scope& scope) {
    std::vector<std::string> names;
    std::set<std::string> used;
    for (size_t i = 0; i < main.arguments.size(); ++i) {
      const Parameter& argument = main.arguments[i];
      const std::string name = argument_name(argument);
      names.push_back(name);
      if (!argument.type.tensor) {
        problems_.add_input(fmt::format("line {} (argument {}): Braze has no type {}", main.line,
                                        quote(name), argument.type.text));
        define(scope, argument.name, {.failed = true}, main.line);
        continue;
      }
      const TensorType& type = *argument.type.tensor;
      const auto array = options_.values.find(name);
      const auto numbers = options_.numbers.find(name);
      if (array == options_.values.end() && numbers == options_.numbers.end()) {
        const NodeId node = build::input(builder_->graph, name, *argument.type.tensor);
        input_of_argument_[i] = static_cast<uint32_t>(inputs_.size());
        inputs_.push_back(node);
        define(scope, argument.name, {detail::wrap(builder_, node)}, main.line);
        continue;
      }
      used.insert(name);
      const auto value = numbers != options_.numbers.end()
                             ? value_of_numbers(numbers->second, type.dtype, type.shape.rank())
                             : std::optional(array->second.to_host());
      if (!value || TensorType{value->dtype(), Shape::of(value->shape())} != type)
        fail(codes::kStablehloOption, fmt::format("{}: {} is given a value that is no {}", file_,
                                                  quote(name), type.to_string()));
      const NodeId node = build::constant(builder_->graph, *value);
      define(scope, argument.name, {detail::wrap(builder_, node)}, main.line);
    }
    const auto check_used = [&](const auto& given) {
      for (const auto& [name, value] : given)
        if (!used.contains(name))
          fail(codes::kStablehloOption, fmt::format("{} has no argument {}{}", file_, quote(name),
                                                    did_you_mean(name, names)));
    };
    check_used(options_.values);
    check_used(options_.numbers);
    for (const auto& [name, size] : options_.sizes)
      fail(codes::kStablehloOption,
           fmt::format("{} leaves no size open, and none is called {}", file_, quote(name)));
  }

  // ---- Blocks -----------------------------------------------------------------------------------

  static const Value* find(const Scope& scope, const ValueName& name) {
    for (const Scope* at = &scope; at; at = at->outer)
      if (const auto value = at->values.find(name); value != at->values.end())
        return &value->second;
    return nullptr;
  }

  void define(Scope& scope, const ValueName& name, Value value, uint32_t line) const {
    if (!scope.values.emplace(name, std::move(value)).second)
      fail(kStablehloText, fmt::format("{}:{}: %{} is there twice", file_, line, name.name));
  }

  // An operation is built once for each call and each turn of a loop.
  void check_size() const {
    const size_t most = most_nodes(module_.bytes);
    if (built_ >= most || builder_->graph.size() > most)
      fail(kStablehloText,
           fmt::format("{} becomes more than {} operations, with those of loops and calls once for "
                       "each turn and call; that is the most for a text of {} bytes",
                       file_, most, module_.bytes));
  }

  // The values that a block returns. `progress` is told of each operation, if it is not null.
  Values run_block(const Block& block, Scope& scope, Progress* progress = nullptr) {
    const Restored<Scope*> here(here_, &scope);
    for (const Operation& operation : block.operations) {
      check_size();
      ++built_;
      if (operation.name.ends_with(".return")) return operands_of(operation, scope);
      build(operation, scope);
      if (progress) progress->advance();
    }
    return {};
  }

  Values call_block(const Block& block, const Values& arguments, const Scope* outer) {
    if (block.arguments.size() != arguments.size())
      fail(kStablehloNode, "its function takes another number of arguments");
    const Restored<int> depth(depth_, depth_ + 1);
    if (depth_ > kMostCalls)
      fail(kStablehloText, fmt::format("{}: functions call each other too deep", file_));
    Scope scope{.outer = outer};
    for (size_t i = 0; i < arguments.size(); ++i)
      scope.values[block.arguments[i].name] = arguments[i];
    return run_block(block, scope);
  }

  Values operands_of(const Operation& operation, const Scope& scope) const {
    Values out;
    for (const ValueName& name : operation.operands) {
      const Value* value = find(scope, name);
      if (!value)
        fail(kStablehloText,
             fmt::format("{}:{}: nothing computes %{}", file_, operation.line,
                         name.number ? fmt::format("{}#{}", name.name, name.number) : name.name));
      out.push_back(*value);
    }
    return out;
  }

  void add_problem(const Operation& operation, const std::string& why) {
    if (listed_.emplace(operation.line, operation.name).second)
      problems_.add(fmt::format("line {} ({}): {}", operation.line, operation.name, why));
  }

  void build(const Operation& operation, Scope& scope) {
    Values operands = operands_of(operation, scope);
    const bool is_sound = std::ranges::none_of(operands, &Value::failed);
    Values results;
    if (is_sound) {
      const size_t known_problems = problems_.count();
      try {
        const detail::Place place(SourceLocation(file_, operation.line, 0));
        results = compute(operation, std::move(operands), scope);
        if (results.size() < operation.results.size())
          fail(kStablehloNode, fmt::format("it gives {} results", results.size()));
        if (!scalars_) check_types(operation, results);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::DataLoss || error.kind() == ErrorKind::Internal) throw;
        if (problems_.count() == known_problems) add_problem(operation, text_of(error));
        results.clear();
      }
    }
    for (size_t i = 0; i < operation.results.size(); ++i)
      define(scope, operation.results[i], i < results.size() ? results[i] : Value{.failed = true},
             operation.line);
  }

  void check_types(const Operation& operation, const Values& results) const {
    for (size_t i = 0; i < operation.result_types.size() && i < results.size(); ++i) {
      const Type& type = operation.result_types[i];
      if (results[i].failed) continue;
      if (!type.tensor) fail(kStablehloNode, fmt::format("Braze has no type {}", type.text));
      if (!(detail::type_of(results[i].tensor) == *type.tensor))
        fail(kStablehloNode, fmt::format("it gives {}, and the text says {}",
                                         results[i].tensor.to_string(), type.text));
    }
  }

  Values compute(const Operation& operation, Values operands, Scope& scope) {
    const std::string& name = operation.name;
    if (name == "stablehlo.constant") return {constant(operation)};
    if (name == "stablehlo.custom_call") return custom_call(operation, std::move(operands));
    if (name == "func.call") return call(operation, operands, "callee");
    if (!scalars_) {
      if (name == "stablehlo.composite") return call(operation, operands, "decomposition");
      if (name == "stablehlo.while") return loop(operation, std::move(operands), scope);
      if (name == "stablehlo.if" || name == "stablehlo.case")
        return branch(operation, operands, scope);
      if (name == "sdy.sharding_constraint") return operands;
    }
    const Row* row = find_row(name);
    if (!row) fail(kStablehloNode, "there is no such operation");
    if (scalars_ && !is_elementwise(*row))
      fail(kStablehloNode, "an operation of tensors in a function of scalars");
    Tensors tensors;
    for (const Value& operand : operands) tensors.push_back(operand.tensor);
    Node node(operation, std::move(tensors), known_, *this);
    const Tensors built = row->one ? Tensors{row->one(node)} : row->several(node);
    if (const std::vector<std::string> unread = node.unread(); !unread.empty())
      node.refuse(fmt::format("it has attributes that nothing is known of: {}",
                              join(unread, ", ", [](const std::string& s) { return s; })));
    Values out;
    for (const Tensor& tensor : built) out.push_back({tensor});
    return out;
  }

  // ---- Operations that are no rows --------------------------------------------------------------

  Value constant(const Operation& operation) {
    const auto found = operation.attributes.find("value");
    if (found == operation.attributes.end() || !found->second.dense.type.tensor ||
        !found->second.dense.value)
      fail(kStablehloNode,
           fmt::format("Braze has no type {}",
                       operation.result_types.empty() ? "" : operation.result_types[0].text));
    const Literal& literal = found->second.dense;
    const TensorType& type = *literal.type.tensor;
    const auto known = constants_.find(literal.value.get());
    if (known != constants_.end()) return {known->second};
    Graph& graph = builder_->graph;
    const auto& value = literal.value;
    NodeId node;
    if (value->shape().empty() || value->numel() <= kMostConstant) {
      node = graph.add({ConstantOp{value}, {}, {type.dtype, Shape::of(value->shape())}, {}, {}});
      if (value->shape().empty() && type.shape.rank() > 0)
        node = build::broadcast_to(graph, node, type.shape);
    } else {
      std::string name = "constant";
      for (int i = 2; graph.find_input(name); ++i) name = fmt::format("constant-{}", i);
      node = build::input(graph, name, type);
      known_.bind(node, value);
      weights_[node] = value;
    }
    const Tensor out = detail::wrap(builder_, node);
    constants_.emplace(value.get(), out);
    return {out};
  }

  std::string target_of(const Operation& operation, const char* name) const {
    const auto found = operation.attributes.find(name);
    return found == operation.attributes.end() ? std::string() : found->second.text;
  }

  Values call(const Operation& operation, const Values& operands, const char* attribute) {
    const std::string target = target_of(operation, attribute);
    const auto function = module_.functions.find(target);
    if (function == module_.functions.end())
      fail(kStablehloNode, fmt::format("there is no function {}", quote(target)));
    const std::vector<Parameter>& arguments = function->second.arguments;
    if (arguments.size() != operands.size())
      fail(kStablehloNode, fmt::format("{} takes another number of arguments", quote(target)));
    const Restored<int> depth(depth_, depth_ + 1);
    if (depth_ > kMostCalls)
      fail(kStablehloText, fmt::format("{}: functions call each other too deep", file_));
    Scope scope;
    for (size_t i = 0; i < operands.size(); ++i) scope.values[arguments[i].name] = operands[i];
    return run_block(function->second.body, scope);
  }

  Values custom_call(const Operation& operation, Values operands) {
    const std::string target = target_of(operation, "call_target_name");
    // There is only one device, so it has all of the value.
    if (target == "Sharding" && operands.size() == 1) return operands;
    if (target.starts_with("check.") && !operands.empty()) {
      for (size_t i = 0; i < operands.size(); ++i)
        checked_.push_back({fmt::format("{}-{}.{}", target, operation.line,
                                        i == 0   ? "got"
                                        : i == 1 ? "expected"
                                                 : "more"),
                            operands[i].tensor});
      return {};
    }
    if (!is_custom_function(target))
      fail(kStablehloNode,
           fmt::format("a call of {}, a function of another library", quote(target)),
           {.fix = "register a function of this name before the import"});
    if (scalars_) fail(kStablehloNode, "an operation of tensors in a function of scalars");
    return {{called(operation, target, operands)}};
  }

  // The call of a function that the host program has registered.
  Tensor called(const Operation& operation, const std::string& target, const Values& operands) {
    if (operation.result_types.size() != 1)
      fail(kStablehloNode,
           fmt::format("a call of {} with {}, but a custom call has one", quote(target),
                       count_text(operation.result_types.size(), "result")));
    const Type& type = operation.result_types[0];
    if (!type.tensor) fail(kStablehloNode, fmt::format("Braze has no type {}", type.text));
    std::vector<Tensor> tensors;
    for (const Value& operand : operands) tensors.push_back(operand.tensor);
    CustomCallOptions options;
    for (const auto& [name, attribute] : operation.attributes) {
      if (name == "backend_config" && attribute.kind == Attribute::Kind::String) {
        options.attributes = attribute.text;
      } else if (name == "has_side_effect") {
        options.side_effects = attribute.integer != 0;
      } else if (name == "operand_layouts" || name == "result_layouts") {
        for (const Attribute& layout : attribute.list) check_layout(layout);
      } else {
        // The convention of the call is that of Braze's functions.
        const bool is_free = name == "call_target_name" || name == "api_version" ||
                             name.find('.') != std::string::npos;
        if (!is_free && !(attribute.kind == Attribute::Kind::List && attribute.list.empty()))
          fail(kStablehloNode, fmt::format("a call of {} with an attribute that its function would "
                                           "not get: {}",
                                           quote(target), name));
      }
    }
    if (options.side_effects && choices_ > 0)
      fail(kStablehloNode, fmt::format("a call of {} with side effects, in a branch that is "
                                       "computed whether it is taken or not",
                                       quote(target)));
    return braze::custom_call(target, tensors, type.tensor->dtype, to_dims(type.tensor->shape),
                              std::move(options));
  }

  // A layout lists the axes, the innermost first. A function gets row-major tensors only.
  static void check_layout(const Attribute& layout) {
    const HostTensor* axes = layout.dense.value.get();
    bool row_major = axes != nullptr;
    for (int64_t i = 0; row_major && i < axes->numel(); ++i)
      row_major = axes->get_int(i) == axes->numel() - 1 - i;
    if (!row_major) fail(kStablehloNode, "a call with tensors that are not row-major");
  }

  const HostTensor* known(const Value& value) {
    if (value.failed || value.tensor.rank() != 0) return nullptr;
    return known_.constant(detail::node_of(value.tensor)).get();
  }

  Values loop(const Operation& operation, Values state, const Scope& scope) {
    if (operation.regions.size() != 2) fail(kStablehloNode, "it has no condition or body");
    for (int turn = 0;; ++turn) {
      const Values condition = call_block(operation.regions[0], state, &scope);
      if (condition.size() != 1 || condition[0].failed)
        fail(kStablehloNode, "its condition cannot be imported");
      const HostTensor* goes_on = known(condition[0]);
      if (!goes_on) {
        const auto from = known_.inputs_of(detail::node_of(condition[0].tensor));
        fail(kStablehloNode,
             fmt::format("a loop whose number of turns is not known at import: it is computed from "
                         "{}",
                         from.empty()
                             ? "values that are not known"
                             : join(from, ", ", [](const std::string& s) { return quote(s); })),
             {.location = {},
              .node = {},
              .fix = from.size() == 1 ? fmt::format("give {} a value at import", quote(from[0]))
                                      : ""});
      }
      if (!goes_on->get_int(0)) return state;
      if (turn >= kMostTurns)
        fail(kStablehloNode,
             fmt::format("a loop of more than {} turns, which are done one by one", kMostTurns));
      state = call_block(operation.regions[1], state, &scope);
      if (state.size() != operation.operands.size())
        fail(kStablehloNode, "its body gives another number of values");
      if (std::ranges::any_of(state, &Value::failed)) return state;
    }
  }

  // If it is known which branch is chosen, only that one is built. Else all of them are built, and
  // the index selects each result.
  Values branch(const Operation& operation, const Values& operands, const Scope& scope) {
    const size_t count = operation.regions.size();
    if (operands.size() != 1 || count == 0) fail(kStablehloNode, "it has no branch");
    const bool is_if = operation.name == "stablehlo.if";
    if (is_if && count != 2) fail(kStablehloNode, "it has no two branches");
    if (const HostTensor* index = known(operands[0])) {
      const int64_t at = index->get_int(0);
      const auto last = static_cast<int64_t>(count) - 1;
      const int64_t chosen = is_if ? (at ? 0 : 1) : at < 0 || at > last ? last : at;
      return call_block(operation.regions[static_cast<size_t>(chosen)], {}, &scope);
    }
    const Tensor& index = operands[0].tensor;
    const Restored<int> choices(choices_, choices_ + 1);
    Values out = call_block(operation.regions[count - 1], {}, &scope);
    for (size_t i = count - 1; i-- > 0;) {
      const Values other = call_block(operation.regions[i], {}, &scope);
      if (other.size() != out.size()) fail(kStablehloNode, "its branches give different values");
      const Tensor is_this = is_if ? index : index == static_cast<int64_t>(i);
      for (size_t k = 0; k < out.size(); ++k) {
        out[k].failed |= other[k].failed;
        if (!out[k].failed) out[k].tensor = where(is_this, other[k].tensor, out[k].tensor);
      }
    }
    return out;
  }

  // ---- The end ----------------------------------------------------------------------------------

  Imported finish(const Function& main, const Values& results) {
    std::vector<GraphOutput> outputs;
    std::set<std::string> names;
    const auto add = [&](const std::string& name, const Tensor& tensor) {
      std::string unused = name;
      for (int i = 2; !names.insert(unused).second; ++i) unused = fmt::format("{}-{}", name, i);
      outputs.push_back({detail::node_of(tensor), unused, {}});
    };
    for (size_t i = 0; i < results.size(); ++i) {
      std::string name = results.size() == 1 ? "result" : fmt::format("result.{}", i);
      if (i < main.results.size()) {
        const auto& type = main.results[i].type;
        if (!type.tensor ||
            builder_->graph[detail::node_of(results[i].tensor)].type != *type.tensor)
          fail(kStablehloText,
               fmt::format("{}:{}: result {} is said to be {}, and is {}", file_, main.line, i,
                           type.text,
                           builder_->graph[detail::node_of(results[i].tensor)].type.to_string()));
        const auto info = main.results[i].attributes.find("jax.result_info");
        if (info != main.results[i].attributes.end() && !info->second.text.empty())
          name = info->second.text;
      }
      add(name, results[i].tensor);
    }
    keep_donations(main, outputs);
    for (const auto& [name, tensor] : checked_) add(name, tensor);
    if (outputs.empty()) fail(codes::kStablehloInput, fmt::format("{} has no result", file_));
    return finish_import(builder_->graph, inputs_, weights_, std::move(outputs));
  }

  // An argument may name the result that takes over its memory, or let us choose one.
  void keep_donations(const Function& main, std::vector<GraphOutput>& outputs) const {
    const Graph& graph = builder_->graph;
    const auto try_update = [&](size_t output, uint32_t input) {
      if (output >= outputs.size() || outputs[output].updates ||
          !(graph[outputs[output].node].type == graph[inputs_[input]].type))
        return false;
      outputs[output].updates = input;
      return true;
    };
    for (size_t i = 0; i < main.arguments.size(); ++i) {
      const auto found = main.arguments[i].attributes.find("tf.aliasing_output");
      const auto input = input_of_argument_.find(i);
      if (found != main.arguments[i].attributes.end() && input != input_of_argument_.end())
        try_update(static_cast<size_t>(found->second.integer), input->second);
    }
    for (size_t i = 0; i < main.arguments.size(); ++i) {
      const auto found = main.arguments[i].attributes.find("jax.buffer_donor");
      const auto input = input_of_argument_.find(i);
      if (found == main.arguments[i].attributes.end() || input == input_of_argument_.end())
        continue;
      for (size_t output = 0; output < outputs.size(); ++output)
        if (try_update(output, input->second)) break;
    }
  }

  const Module& module_;
  const std::string file_;
  const ImportOptions& options_;
  std::shared_ptr<detail::Builder> builder_;
  KnownValues known_;
  std::vector<NodeId> inputs_;
  std::map<size_t, uint32_t> input_of_argument_;  // only inputs that are not constants
  BoundWeights weights_;
  std::map<const HostTensor*, Tensor> constants_;
  std::vector<std::pair<std::string, Tensor>> checked_;
  Problems problems_;
  std::set<std::pair<uint32_t, std::string>> listed_;
  Scope* here_ = nullptr;
  size_t built_ = 0;
  int depth_ = 0;
  int choices_ = 0;       // branches all of which are computed, around the present operation
  bool scalars_ = false;  // true in a function of scalars
};

}  // namespace

Imported import_model(const Module& module, const std::string& name, const ImportOptions& options) {
  return Importer(module, name, options).run();
}

}  // namespace braze::stablehlo
