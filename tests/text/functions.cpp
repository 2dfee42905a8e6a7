#include "tests/text/functions.h"

#include <sstream>
#include <stdexcept>

#include "braze/compile.h"
#include "compiler/fusion/partition.h"
#include "compiler/loops/build.h"
#include "compiler/loops/emit.h"
#include "compiler/loops/interpret.h"
#include "compiler/loops/steps/text.h"
#include "compiler/loops/text.h"
#include "compiler/loops/verify.h"
#include "compiler/lowering/lower.h"
#include "compiler/passes/approximate.h"
#include "compiler/passes/expand.h"
#include "compiler/passes/flatten_updates.h"
#include "compiler/passes/fold.h"
#include "compiler/passes/interchange_sums.h"
#include "compiler/passes/join_groups.h"
#include "compiler/passes/merge_sorts.h"
#include "compiler/passes/narrow_dots.h"
#include "compiler/passes/order_factors.h"
#include "compiler/passes/pack_factors.h"
#include "compiler/passes/prepare.h"
#include "compiler/passes/regular_indices.h"
#include "compiler/passes/share_divisors.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/split_concats.h"
#include "compiler/passes/split_dots.h"
#include "compiler/passes/split_gaps.h"
#include "compiler/passes/unroll_reductions.h"
#include "compiler/passes/unscatter.h"
#include "compiler/passes/windowed_dots.h"
#include "ir/code/interpret.h"
#include "ir/code/static_loops.h"
#include "ir/code/text.h"
#include "ir/graph/constant_text.h"
#include "ir/graph/interchange.h"
#include "ir/graph/interpret.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/kernel/simulate.h"
#include "ir/kernel/verify.h"
#include "ir/program/text.h"
#include "ir/support/text.h"
#include "ir/target/target.h"
#include "ir/tile/verify.h"

namespace braze::text_test {
namespace {

std::string print_graph(std::string_view text, std::string_view file_name) {
  const Graph graph = parse_graph(text, file_name);
  fail_if_any(verify(graph), "verify");
  return to_text(graph);
}

Graph regular_scatters_for_hopper(const Graph& graph) {
  return regular_scatters(graph, find_target("sm_90a").value());
}

Graph regular_scatters_for_cpu(const Graph& graph) {
  return regular_scatters(graph, find_target("x86-64-v4").value());
}

Graph unscatter_for_hopper(const Graph& graph) {
  return unscatter(graph, find_target("sm_90a").value());
}

Graph unscatter_for_ampere(const Graph& graph) {
  return unscatter(graph, find_target("sm_80").value());
}

Graph join_for_hopper(const Graph& graph) {
  return join_groups(graph, find_target("sm_90a").value());
}

Graph split_for_hopper(const Graph& graph) {
  return split_dots(graph, find_target("sm_90a").value());
}

Graph split_for_cpu(const Graph& graph) {
  return split_dots(graph, find_target("x86-64-v4").value());
}

Graph split_large_gaps(const Graph& graph) { return split_gaps(graph); }
Graph windowed_for_gpu(const Graph& graph) { return windowed_dots(graph, kTermsOfMatrixUnits); }
Graph windowed_for_cpu(const Graph& graph) { return windowed_dots(graph); }

Graph flattened(const Graph& graph) { return flatten_updates(graph).value_or(graph); }

Graph share_standard(const Graph& graph) { return share_divisors(graph, Precision::Standard); }

// `%x = [1, 2], %y: f32[2] = 0.5`; the type is for inputs of symbolic shape.
std::string eval_graph(std::string_view text, std::string_view file_name,
                       std::string_view arguments) {
  const Graph graph = parse_graph(text, file_name);
  std::vector<HostTensor> inputs(graph.inputs().size());
  Scanner scanner(arguments, "eval");
  while (!scanner.at_end()) {
    const std::string name(scanner.expect_value());
    const auto input = graph.find_input(name);
    if (!input) scanner.fail_here("there is no input %" + name);
    TensorType type = graph[*input].type;
    if (scanner.accept(":"))
      type = parse_type(scanner, [&](std::string_view) -> Expr { scanner.fail_here("no number"); });
    scanner.expect("=");
    inputs[input->index] = parse_constant(scanner, type);
    if (!scanner.accept(",")) break;
  }
  if (!scanner.at_end()) scanner.fail_here("expected a comma");
  return join(interpret(graph, inputs), "\n", constant_text);
}

// What follows `directive` on its line; empty if no line begins with it.
std::string_view after(std::string_view text, std::string_view directive) {
  for (size_t at = 0; (at = text.find(directive, at)) != std::string_view::npos; ++at) {
    if (at > 0 && text[at - 1] != '\n') continue;
    const size_t begin = text.find_first_not_of(' ', at + directive.size());
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  return {};
}

// The edges of the graph as it is written, without the passes before fusion. The machine has a
// fixed size, so that decisions do not depend on the host.
std::string graph_reasons(std::string_view text, std::string_view file_name) {
  const Graph graph = parse_graph(text, file_name);
  const std::string_view machine = after(text, "// target:");
  const Target target = parse_target(machine.empty() ? "x86-64-v3" : machine);
  const LoopForms forms(graph);
  const GraphPrinter printer(graph);
  return join(partition(forms, target).edges, "\n", [&](const EdgeReason& edge) {
    return fmt::format("{} -> {}: {}", printer.value(edge.producer), printer.value(edge.consumer),
                       edge.code->name);
  });
}

// Whether sums of products are interchanged, or why not.
std::string sums_of_products(std::string_view text, std::string_view file_name) {
  const Graph graph = parse_graph(text, file_name);
  const GraphPrinter printer(graph);
  return join(find_interchanges(graph), "\n", [&](const Interchange& form) {
    return fmt::format("{} of {}: {}", printer.value(form.sum), printer.value(form.product),
                       form.verdict->name);
  });
}

// The first tree of one kernel that computes the whole graph.
LoopTree first_tree(std::string_view text, std::string_view file_name) {
  const Graph graph = parse_graph(text, file_name);
  fail_if_any(verify(graph), "verify");
  const LoopForms forms(graph);
  Fusion fusion;
  for (uint32_t i = 0; i < graph.size(); ++i)
    (forms.find(NodeId{i}) ? fusion.nodes : fusion.inputs).push_back(NodeId{i});
  for (const GraphOutput& output : graph.outputs()) fusion.outputs.push_back(output.node);
  return build_loops(forms, fusion, graph.name());
}
std::string first_loops(std::string_view text, std::string_view file_name) {
  return to_text(first_tree(text, file_name));
}

// The trees of all kernels for a machine, with the steps that its rules chose.
std::string trees_for(std::string_view machine, std::string_view text, std::string_view file_name) {
  Target target = find_target(machine).value();
  target.simulated = target.kind == TargetKind::Gpu;
  std::string out;
  CompileOptions options;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage == "loops") out += phase.text();
  };
  compile(parse_graph(text, file_name), target, options);
  return out;
}
std::string trees_for_ampere(std::string_view text, std::string_view file_name) {
  return trees_for("sm_80", text, file_name);
}
std::string trees_for_hopper(std::string_view text, std::string_view file_name) {
  return trees_for("sm_90a", text, file_name);
}

std::string trees_for_avx512(std::string_view text, std::string_view file_name) {
  return trees_for("x86-64-v4", text, file_name);
}

// Parses and verifies.
template <class Code>
Code read(std::string_view text, std::string_view file_name) {
  Code code;
  if constexpr (std::is_same_v<Code, TileProgram>)
    code = parse_tile(text, file_name);
  else
    code = parse_kernel(text, file_name);
  fail_if_any(verify(code), "verify");
  return code;
}

template <class Code>
std::string print_code(std::string_view text, std::string_view file_name) {
  return to_text(read<Code>(text, file_name));
}

LoopTree read_loops(std::string_view text, std::string_view file_name) {
  LoopTree tree = parse_loops(text, file_name);
  fail_if_any(verify(tree), "verify");
  return tree;
}
std::string print_loops(std::string_view text, std::string_view file_name) {
  return to_text(read_loops(text, file_name));
}

// A tree, or the first one of a graph, after the steps in its lines "// steps: ..".
std::string after_steps(std::string_view text, std::string_view file_name) {
  constexpr std::string_view kSteps = "// steps:";
  // All else is blank, so that every step stands where it does in the file.
  std::string steps(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const bool is = text.substr(begin, end - begin).starts_with(kSteps);
    std::fill_n(steps.begin() + static_cast<std::ptrdiff_t>(begin),
                is ? kSteps.size() : end - begin, ' ');
    begin = end + 1;
  }
  const bool graph = text.find("braze 1 graph") != std::string_view::npos;
  const LoopTree tree = graph ? first_tree(text, file_name) : read_loops(text, file_name);
  const LoopTreeSteps parsed = parse_steps(steps, file_name);
  const std::string printed = to_text(parsed);
  if (to_text(parse_steps(printed, "printed steps")) != printed)
    throw std::runtime_error("the printed steps read as others: " + printed);
  return to_text(take(tree, parsed));
}

// `n = 2, x = [1, 2]`: sizes, then what the tree reads; gives what it writes.
std::string eval_loops(std::string_view text, std::string_view file_name,
                       std::string_view arguments) {
  const LoopTree tree = read_loops(text, file_name);
  Sizes sizes;
  std::vector<HostTensor> tensors(tree.tensors.size());
  Scanner scanner(arguments, "eval");
  while (!scanner.at_end()) {
    const std::string_view name = scanner.expect_identifier("a size or a tensor");
    scanner.expect("=");
    const auto found = std::find_if(tree.tensors.begin(), tree.tensors.end(),
                                    [&](const LoopTensor& t) { return t.name == name; });
    if (found == tree.tensors.end()) {
      sizes.set(name, scanner.expect_integer());
    } else {
      const std::vector<int64_t> shape = sizes(found->type.shape);
      tensors[static_cast<size_t>(found - tree.tensors.begin())] =
          parse_constant(scanner, {found->type.dtype, Shape({shape.begin(), shape.end()})});
    }
    if (!scanner.accept(",")) break;
  }
  interpret(tree, sizes, tensors);
  std::string out;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tree.tensors[i].mode != Mode::In)
      out += (out.empty() ? "" : "\n") + constant_text(tensors[i]);
  return out;
}

// `%x = [1, 2], %a = 3, n = 2`: what the kernel reads; gives what it writes. Extents are constant
// or one symbol.
template <class Code>
std::string eval_code(std::string_view text, std::string_view file_name,
                      std::string_view arguments) {
  const Code code = read<Code>(text, file_name);
  std::vector<int64_t> scalars(code.symbols.size() + code.scalar_parameters.size());
  const auto size = [&](const Expr& e) {
    return e.evaluate([&](std::string_view name) {
      size_t i = 0;
      while (code.symbols[i].symbol_name() != name) ++i;
      return scalars[i];
    });
  };
  std::vector<HostTensor> tensors(code.memories.size());
  const auto tensor = [&](size_t i) -> HostTensor& {
    const Memory& memory = code.memories[i];
    std::vector<int64_t> shape;
    for (const Expr& extent : memory.shape) shape.push_back(size(extent));
    if (tensors[i].shape() != shape) tensors[i] = HostTensor(memory.dtype, shape);
    return tensors[i];
  };
  Scanner scanner(arguments, "eval");
  while (!scanner.at_end()) {
    const Token token = scanner.next();
    scanner.expect("=");
    if (token.kind == TokenKind::Identifier) {
      for (size_t i = 0; i < code.symbols.size(); ++i)
        if (code.symbols[i].symbol_name() == token.text) scalars[i] = scanner.expect_integer();
    }
    for (size_t i = 0; i < code.scalar_parameters.size(); ++i) {
      const Value& scalar = code[code.scalar_parameters[i]];
      if (scalar.name != token.text) continue;
      const HostTensor value = parse_constant(scanner, {scalar.type.dtype, Shape()});
      scalars[code.symbols.size() + i] = static_cast<int64_t>(value.get_bits(0));
    }
    for (size_t i = 0; i < code.memories.size(); ++i) {
      if (code.memories[i].name != token.text) continue;
      const std::vector<int64_t>& shape = tensor(i).shape();
      tensors[i] =
          parse_constant(scanner, {tensors[i].dtype(), Shape({shape.begin(), shape.end()})});
    }
    if (!scanner.accept(",")) break;
  }
  std::vector<std::span<std::byte>> memories;
  std::string out;
  for (size_t i = 0; i < code.memories.size(); ++i) {
    if (code.memories[i].space != MemorySpace::Parameter) continue;
    HostTensor& bound = tensor(i);
    memories.emplace_back(bound.data(), bound.size_bytes());
  }
  fail_if_any(run_kernel(code, memories, scalars), "run");
  for (size_t i = 0; i < code.memories.size(); ++i) {
    if (code.memories[i].space != MemorySpace::Parameter || code.memories[i].mode == Mode::In)
      continue;
    out += (out.empty() ? "" : "\n") + constant_text(tensors[i]);
  }
  return out;
}

template <Graph (*pass)(const Graph&)>
std::string run_pass(std::string_view text, std::string_view file_name) {
  const Graph result = pass(parse_graph(text, file_name));
  fail_if_any(verify(result), "verify");
  return to_text(result);
}

// With the verdicts, but without the prices, which change when the cost model does.
std::string ordered(std::string_view text, std::string_view file_name) {
  const std::string_view machine = after(text, "// target:");
  const Target target = parse_target(machine.empty() ? "sm_90a" : machine);
  const OrderedFactors result = order_factors(parse_graph(text, file_name), target);
  fail_if_any(verify(result.graph), "verify");
  std::string out = to_text(result.graph);
  for (const FactorOrders& verdict : result.verdicts)
    out += fmt::format("\n{}: {}{}", verdict.product,
                       verdict.changed && verdict.copies.empty() ? "summed in another order"
                       : verdict.changed      ? join(verdict.copies, " and ", std::identity())
                       : verdict.in_order > 0 ? "faster as it is"
                                              : "no order",
                       verdict.changed && verdict.in_parts ? ", in parts" : "");
  return out;
}

std::string expand_static(std::string_view text, std::string_view file_name) {
  Kernel kernel = read<Kernel>(text, file_name);
  expand_static_loops(kernel);
  fail_if_any(verify(kernel), "verify");
  return to_text(kernel);
}

// A tile program as the kernel for its target. That of a plain one stands below it.
std::string lowered(std::string_view text, std::string_view file_name) {
  const TileProgram program = read<TileProgram>(text, file_name);
  const std::string_view machine = after(text, "// target:");
  const Kernel kernel =
      lower(program, machine.empty() ? find_target(program.target).value() : parse_target(machine));
  fail_if_any(verify(kernel), "verify");
  return to_text(kernel);
}

// A tree of a plain program for a GPU, with its layouts, as the tile program that is made of it.
std::string emitted(std::string_view text, std::string_view file_name) {
  const TileProgram program = emit(read_loops(text, file_name));
  fail_if_any(verify(program), "verify");
  return to_text(program);
}

// A value of small whole numbers; symbols have their greatest values.
HostTensor some_value(const TensorType& type) {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < type.shape.rank(); ++i) shape.push_back(type.shape[i].range().max);
  HostTensor value(type.dtype, shape);
  for (int64_t i = 0; i < value.numel(); ++i) value.set_int(i, i * i % 7);
  return value;
}

// The graph without what its last inputs decide, and how these are prepared. Both together compute
// what the graph does.
std::string prepared(std::string_view text, std::string_view file_name) {
  const Graph graph = parse_graph(text, file_name);
  const std::string_view machine = after(text, "// target:");
  const size_t first = graph.inputs().size() - std::stoul(std::string(after(text, "// weights:")));
  const Prepared result =
      prepare(graph, first, parse_target(machine.empty() ? "x86-64-v3" : machine));
  fail_if_any(verify(result.graph), "verify");
  std::vector<HostTensor> inputs;
  for (const NodeId input : graph.inputs()) inputs.push_back(some_value(graph[input].type));
  std::vector<HostTensor> arguments(inputs.begin(), inputs.begin() + static_cast<ptrdiff_t>(first));
  std::string out = to_text(result.graph);
  for (const PreparedWeight& weight : result.weights) {
    fail_if_any(verify(weight.graph), "verify");
    std::vector<HostTensor> sources;
    for (const size_t source : weight.sources) sources.push_back(inputs[source]);
    arguments.push_back(interpret(weight.graph, sources)[0]);
    if (weight.is_source()) continue;
    const auto source_name = [&](size_t source) {
      return "%" + graph[graph.inputs()[source]].as<InputOp>()->name;
    };
    out += fmt::format("\n%{} from {}: {}", weight.name, join(weight.sources, ", ", source_name),
                       to_text(weight.graph));
  }
  const auto expected = interpret(graph, inputs), got = interpret(result.graph, arguments);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!identical(got[i], expected[i])) throw std::runtime_error("the values are other ones");
  return out;
}

// Where things lie, what is launched in which order, and why kernels are no list; without the code,
// and without what the passes and schedules tell of it elsewhere.
std::string planned(std::string_view text, std::string_view file_name) {
  const std::string_view machine = after(text, "// target:");
  const Target target = parse_target(machine.empty() ? "sim:x86-64-v3" : machine);
  const bool graph = text.find("braze 1 graph") != std::string_view::npos;
  std::string refusals;
  CompileOptions options;
  options.observer = [&](const CompilePhase& phase) {
    if (phase.stage != "refusal") return;
    const std::string why = phase.text();
    if (why.starts_with("list: ")) refusals += fmt::format("\n@{} {}", phase.kernel, why);
    if (refusals.ends_with('\n')) refusals.pop_back();
  };
  const Program program = graph ? compile(parse_graph(text, file_name), target, options)
                                : compile(read<TileProgram>(text, file_name), target, options);
  constexpr std::string_view kLeftOut[] = {"target ", "precision ",  "ops ",     "artifact ",
                                           "lines ",  "  schedule ", "  reads ", "  op "};
  std::string out;
  std::istringstream lines(to_text(program));
  for (std::string line; std::getline(lines, line);)
    if (std::none_of(std::begin(kLeftOut), std::end(kLeftOut),
                     [&](std::string_view word) { return line.starts_with(word); }))
      out += (out.empty() ? "" : "\n") + line;
  return out + refusals;
}

constexpr Function kFunctions[] = {
    {"align_factors", run_pass<align_factors>},
    {"ampere", trees_for_ampere},
    {"approximate", run_pass<approximate>},
    {"avx512", trees_for_avx512},
    {"dead-code", run_pass<without_dead_code>},
    {"emit", emitted},
    {"expand", run_pass<expand>},
    {"expand-static", expand_static},
    {"flatten_updates", run_pass<flattened>},
    {"fold", run_pass<fold>},
    {"hopper", trees_for_hopper},
    {"interchange_sums", run_pass<interchange_sums>},
    {"interchanges", sums_of_products},
    {"join_groups", run_pass<join_for_hopper>},
    {"loops", first_loops},
    {"lower", lowered},
    {"merge_sorts", run_pass<merge_sorts>},
    {"narrow_dots", run_pass<narrow_dots>},
    {"order_factors", ordered},
    {"pack_factors", run_pass<pack_factors>},
    {"plan", planned},
    {"prepare", prepared},
    {"regular_gathers", run_pass<regular_gathers>},
    {"regular_scatters", run_pass<regular_scatters_for_hopper>},
    {"regular_scatters_cpu", run_pass<regular_scatters_for_cpu>},
    {"share_divisors", run_pass<share_standard>},
    {"simplify", run_pass<simplify>},
    {"split_concats", run_pass<split_concats>},
    {"split_dots", run_pass<split_for_hopper>},
    {"split_dots_cpu", run_pass<split_for_cpu>},
    {"split_gaps", run_pass<split_large_gaps>},
    {"steps", after_steps},
    {"unroll_reductions", run_pass<unroll_reductions>},
    {"unscatter", run_pass<unscatter_for_hopper>},
    {"unscatter_sm_80", run_pass<unscatter_for_ampere>},
    {"windowed_dots", run_pass<windowed_for_gpu>},
    {"windowed_dots_cpu", run_pass<windowed_for_cpu>},
};

constexpr Language kLanguages[] = {
    {"graph", print_graph, eval_graph, graph_reasons},
    {"kernel", print_code<Kernel>, eval_code<Kernel>, nullptr},
    {"loops", print_loops, eval_loops, nullptr},
    {"tile", print_code<TileProgram>, eval_code<TileProgram>, nullptr},
};

}  // namespace

std::span<const Function> functions() { return kFunctions; }
std::span<const Language> languages() { return kLanguages; }

}  // namespace braze::text_test
