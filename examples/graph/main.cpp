// A graph without the builder: made node by node, printed, read again, compiled and run.
// Usage: graph [DEVICE]
#include <braze/braze.h>
#include <braze/graph.h>
#include <braze/program.h>
#include <braze/target.h>

#include <iostream>

using namespace braze;

int main(int argc, char** argv) {
  try {
    const Device device(argc > 1 ? argv[1] : "cpu");
    Graph made("hypotenuse");
    const Expr n = Expr::symbol("n", {1, 1024});
    const NodeId a = build::input(made, "a", {DType::F32, Shape{n}});
    const NodeId b = build::input(made, "b", {DType::F32, Shape{n}});
    const auto square = [&](NodeId x) { return build::map(made, ElementwiseOp::mul, {x, x}); };
    const NodeId sum = build::map(made, ElementwiseOp::add, {square(a), square(b)});
    made.set_outputs({{build::map(made, ElementwiseOp::sqrt, {sum}), "c", {}}});

    const std::string text = to_text(made);
    std::cout << text;
    const Graph read = parse_graph(text, "hypotenuse.braze");
    if (to_text(read) != text || !verify(read).empty()) return 1;

    auto program = std::make_shared<const Program>(compile(read, device.target()));
    std::cout << program->name << ": " << program->launches.size() << " launch for "
              << program->target.name << "\n";
    const Executable executable = Executable::load(std::move(program), device);
    const Array x = Array::from(std::vector<float>{3, 5}, {2}, device);
    const Array y = Array::from(std::vector<float>{4, 12}, {2}, device);
    const std::vector<Array> results = executable.run(std::vector{x, y});
    std::cout << results[0] << "\n";
    return results[0].to_vector<float>() == std::vector<float>{5, 13} ? 0 : 1;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
