#include "tests/text/functions.h"

#include "ir/graph/constant_text.h"
#include "ir/graph/interpret.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/support/text.h"

namespace braze::text_test {
namespace {

std::string print_graph(std::string_view text, std::string_view file_name) {
  const Graph graph = parse_graph(text, file_name);
  fail_if_any(verify(graph), "verify");
  return to_text(graph);
}

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

std::string remove_dead_code(std::string_view text, std::string_view file_name) {
  return to_text(without_dead_code(parse_graph(text, file_name)));
}

constexpr Function kFunctions[] = {
    {"dead-code", remove_dead_code},
};

constexpr Language kLanguages[] = {
    {"graph", print_graph, eval_graph, nullptr},
};

}  // namespace

std::span<const Function> functions() { return kFunctions; }
std::span<const Language> languages() { return kLanguages; }

}  // namespace braze::text_test
