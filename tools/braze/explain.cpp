// explain.cpp — braze explain: the kernels of a program, and why every edge was or was not fused.
#include <fmt/format.h>

#include <optional>
#include <set>

#include "ir/graph/interchange.h"
#include "ir/graph/text.h"
#include "ir/ops/exchange.h"
#include "ir/program/exchanges.h"
#include "ir/program/text.h"
#include "ir/support/text.h"
#include "runtime/mesh/links.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/compile_times.h"
#include "tools/braze/explanation.h"
#include "tools/braze/measured.h"
#include "tools/braze/mesh.h"
#include "tools/braze/model.h"
#include "tools/braze/options.h"
#include "tools/braze/report.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

// Calls that --measure times.
constexpr int64_t kMeasuredCalls = 20;

struct Options {
  std::string file, target, edge, device;
  bool json = false, times = false, measure = false;
  CompileFlags compile;
  ModelFlags model;
  MeshFlags mesh;
};

// "a,b", with or without %.
std::vector<Edge> only(const std::vector<Edge>& edges, const std::string& wanted) {
  const size_t comma = wanted.find(',');
  if (comma == std::string::npos) fail_usage("--edge must name two values, as in --edge a,b");
  const auto value = [](std::string name) { return name.starts_with('%') ? name : "%" + name; };
  const std::string producer = value(wanted.substr(0, comma));
  const std::string consumer = value(wanted.substr(comma + 1));
  std::vector<Edge> found;
  std::vector<std::string> known;
  for (const Edge& edge : edges) {
    if (edge.producer == producer && edge.consumer == consumer) found.push_back(edge);
    known.push_back(edge.producer + "," + edge.consumer);
  }
  if (found.empty())
    fail_usage(fmt::format("there is no edge from {} to {}{}", producer, consumer,
                           did_you_mean(producer + "," + consumer, known)));
  return found;
}

// The assembler's report about the phases of a GPU kernel, and how they fit a multiprocessor.
void print_facts(const Program& program, const Launch& launch) {
  for (const PhaseFacts& phase : phase_facts(program, launch)) {
    fmt::print(
        "    {}: {} registers, {} spilled, {} of stack, {} shared\n"
        "      {} {} of {} threads on a multiprocessor, {:.0f} % of its threads\n",
        phase.entry, phase.registers, bytes_text(static_cast<uint64_t>(phase.spill_bytes)),
        bytes_text(static_cast<uint64_t>(phase.stack_bytes)),
        bytes_text(static_cast<uint64_t>(phase.shared_bytes)), phase.resident_blocks,
        phase.resident_blocks == 1 ? "block" : "blocks", phase.threads, 100.0 * phase.occupancy());
    for (const std::string& warning : phase.warnings) fmt::print("    {}\n", warning);
  }
}

void print_launch(const Explanation& found, const Launch& launch) {
  const Program& program = found.program;
  if (launch.artifact == Launch::kCopy) {
    fmt::print("\n{}: a copy of {}\n", launch.name, bytes_amount(launch.bytes_read));
    return;
  }
  if (launch.artifact == Launch::kCollective) {
    const MeshAxis& axis = program.mesh[launch.collective.axis];
    const Expr received = received_bytes(program, launch);
    const double most = static_cast<double>(received.range().max);
    const int64_t blocks = launch.collective.blocks;
    fmt::print("\ncollective {}: {} over {} ({} devices), {} on each, {} received in about {}{}\n",
               launch.name, name(launch.collective.kind), axis.name, axis.size,
               bytes_amount(launch.bytes_read), bytes_amount(received),
               seconds_text(exchange_seconds(program.target, most, blocks)),
               blocks > 0 ? fmt::format(", in at most {} blocks", blocks) : "");
    if (!launch.members.empty()) fmt::print("  {} at once\n", launch.members.size());
    for (const std::string& op : op_texts(program, launch)) fmt::print("    {}\n", op);
    return;
  }
  if (launch.artifact == Launch::kCustomCall) {
    fmt::print("\ncustom call {}: of {}, {} read, {} written\n", launch.name,
               quote(launch.custom.target), bytes_amount(launch.bytes_read),
               bytes_amount(launch.bytes_written));
    for (const std::string& op : op_texts(program, launch)) fmt::print("    {}\n", op);
    return;
  }
  fmt::print("\nkernel {}\n", launch.name);
  fmt::print("  {} read, {} written, {} flops, instances {}\n", bytes_amount(launch.bytes_read),
             bytes_amount(launch.bytes_written), flops_amount(launch.flops),
             instances_text(launch));
  if (!launch.members.empty())
    fmt::print("  {} equal kernels in one launch: {}\n", launch.members.size(),
               join(launch.members, ", ", std::identity()));
  const Artifact& artifact = program.artifacts[launch.artifact];
  fmt::print("  code {} {}{}\n", artifact.format, bytes_text(artifact.code.size()),
             artifact.maker.empty() ? "" : " by " + artifact.maker);
  print_facts(program, launch);
  fmt::print("  schedule {}\n", launch.schedule);
  if (const auto limits = found.limits.find(launch.name); limits != found.limits.end())
    fmt::print("  bounded by loaded integers\n    {}\n",
               join(limits->second, "\n    ", std::identity()));
  fmt::print("  ops\n");
  for (const std::string& op : op_texts(program, launch)) fmt::print("    {}\n", op);
}

// A sum of results of a product, and whether it is made from another product.
struct SumOfProduct {
  std::string sum, product, other;
  std::string where;  // the line of the sum
  const Code* reason;
};

std::vector<SumOfProduct> sums_of(const Graph& graph, Precision precision) {
  if (precision == Precision::Strict) return {};
  const GraphPrinter printer(graph);
  std::vector<SumOfProduct> out;
  for (const Interchange& form : find_interchanges(graph, precision)) {
    const bool made = form.verdict == &interchanges::kInterchanged;
    out.push_back({printer.value(form.sum), printer.value(form.product),
                   made ? printer.value(form.other) : "", graph[form.sum].location.to_string(),
                   form.verdict});
  }
  return out;
}

void print_decisions(const std::vector<SumOfProduct>& sums, const std::vector<Edge>& edges) {
  if (edges.empty()) return;
  std::vector<std::vector<std::string>> rows;
  std::set<std::pair<std::string_view, std::string_view>> legend;
  for (const SumOfProduct& sum : sums) {
    rows.push_back({sum.sum, "of", sum.product, std::string(sum.reason->name),
                    sum.other.empty() ? "" : "with " + sum.other,
                    sum.where.empty() ? "" : "at " + sum.where});
    legend.emplace(sum.reason->name, sum.reason->summary);
  }
  if (!rows.empty()) fmt::print("\nsums of products\n{}", table(rows));
  rows.clear();
  for (const Edge& edge : edges) {
    rows.push_back({edge.producer, "->", edge.consumer, std::string(edge.reason->name), edge.costs,
                    edge.where.empty() ? "" : "at " + edge.where});
    legend.emplace(edge.reason->name, edge.reason->summary);
  }
  fmt::print("\nedges\n{}", table(rows));
  std::vector<std::vector<std::string>> meanings;
  for (const auto& [name, summary] : legend)
    meanings.push_back({std::string(name), std::string(summary)});
  fmt::print("\nreasons\n{}", table(meanings));
}

// The phases of a GPU kernel.
std::string facts_json(const Program& program, const Launch& launch) {
  std::vector<std::string> phases;
  for (const PhaseFacts& phase : phase_facts(program, launch))
    phases.push_back(json::object({{"threads", std::to_string(phase.threads)},
                                   {"registers", std::to_string(phase.registers)},
                                   {"spill_bytes", std::to_string(phase.spill_bytes)},
                                   {"local_bytes", std::to_string(phase.stack_bytes)},
                                   {"shared_bytes", std::to_string(phase.shared_bytes)},
                                   {"resident_blocks", std::to_string(phase.resident_blocks)}}));
  return json::array(phases);
}

std::string launch_json(const Explanation& found, const Launch& launch) {
  const Program& program = found.program;
  std::vector<std::string> ops, instances, members;
  for (const std::string& op : op_texts(program, launch)) ops.push_back(json::string(op));
  for (const Expr& e : launch.instances) instances.push_back(json::string(e.to_string()));
  for (const std::string& member : launch.members) members.push_back(json::string(member));
  return json::object({{"kernel", json::string(launch.name)},
                       {"copy", json::boolean(launch.artifact == Launch::kCopy)},
                       {"members", json::array(members)},
                       {"ops", json::array(ops)},
                       {"bytes_read", json::string(launch.bytes_read.to_string())},
                       {"bytes_written", json::string(launch.bytes_written.to_string())},
                       {"flops", json::string(launch.flops.to_string())},
                       {"instances", json::array(instances)},
                       {"phases", facts_json(program, launch)},
                       {"predicted_s", json::number(estimated_seconds(found, launch))},
                       {"schedule", json::string(launch.schedule)}});
}

std::string edge_json(const Edge& edge) {
  return json::object({{"producer", json::string(edge.producer)},
                       {"consumer", json::string(edge.consumer)},
                       {"at", json::string(edge.where)},
                       {"reason", json::string(edge.reason->name)},
                       {"costs", json::string(edge.costs)}});
}

std::string sum_json(const SumOfProduct& sum) {
  return json::object({{"sum", json::string(sum.sum)},
                       {"product", json::string(sum.product)},
                       {"other", json::string(sum.other)},
                       {"at", json::string(sum.where)},
                       {"reason", json::string(std::string(sum.reason->name))}});
}

std::string collective_json(const InsertedCollective& inserted, const Target& target) {
  const double most = static_cast<double>(inserted.bytes.range().max);
  return json::object({{"kind", json::string(std::string(name(inserted.op.kind)))},
                       {"over", json::string(inserted.op.axis.name)},
                       {"devices", std::to_string(inserted.op.axis.size)},
                       {"bytes", json::string(inserted.bytes.to_string())},
                       {"predicted_s", json::number(exchange_seconds(target, most))},
                       {"reason", json::string(inserted.reason->name)},
                       {"value", json::string(inserted.value)}});
}

void print_json(const Explanation& found, const std::vector<SumOfProduct>& sums,
                const std::vector<Edge>& edges,
                const std::optional<std::vector<InsertedCollective>>& inserted) {
  const Program& program = found.program;
  std::vector<std::string> launches, decided, orders, reasons;
  for (const SumOfProduct& sum : sums) decided.push_back(sum_json(sum));
  for (const std::string& order : found.orders) orders.push_back(json::string(order));
  for (const Launch& launch : program.launches) launches.push_back(launch_json(found, launch));
  for (const Edge& edge : edges) reasons.push_back(edge_json(edge));
  json::Members members = {{"program", json::string(program.name)},
                           {"target", json::string(program.target.to_string())},
                           {"precision", json::string(std::string(name(program.precision)))},
                           {"ops", std::to_string(program.ops_before_fusion)},
                           {"codes", std::to_string(program.artifacts.size())},
                           {"kernels", json::array(launches)},
                           {"sums", json::array(decided)},
                           {"orders", json::array(orders)},
                           {"edges", json::array(reasons)}};
  if (inserted) {
    std::vector<std::string> collectives;
    for (const InsertedCollective& one : *inserted)
      collectives.push_back(collective_json(one, program.target));
    members.emplace_back("collectives", json::array(collectives));
  }
  json::print(members);
}

// The estimates that the fuser compared, beside what the kernels took, at the largest sizes.
void print_measured(const Explanation& found, const Device& device, bool as_json) {
  const Program& program = found.program;
  InputFlags largest;
  for (const Expr& symbol : program.symbols)
    largest.symbols.push_back(fmt::format("{}={}", symbol.symbol_name(), symbol.range().max));
  const Measured result = measured(program, device, largest, kMeasuredCalls);
  std::vector<std::vector<std::string>> rows = {{"kernel", "predicted", "measured", "quotient"}};
  std::vector<std::string> kernels;
  for (const Launch& launch : program.launches) {
    const double predicted = estimated_seconds(found, launch);
    const auto timing = std::ranges::find(result.timings.of, launch.name, &Timing::name);
    if (predicted <= 0 || timing == result.timings.of.end()) continue;
    const double median = timing->quantile(0.5);
    rows.push_back({launch.name, seconds_text(predicted), seconds_text(median),
                    fmt::format("{:.2f}", predicted / median)});
    kernels.push_back(
        json::object({{"kernel", json::string(launch.name)},
                      {"schedule", json::string(launch.schedule)},
                      {"bytes_read", json::string(launch.bytes_read.to_string())},
                      {"bytes_written", json::string(launch.bytes_written.to_string())},
                      {"predicted_s", json::number(predicted)},
                      {"median_s", json::number(median)}}));
  }
  if (as_json)
    json::print({{"device", json::string(device.name())},
                 {"target", json::string(program.target.to_string())},
                 {"kernels", json::array(kernels)}});
  else
    fmt::print("kernels on {}, medians of {} calls at the largest sizes, on random inputs\n{}",
               device.name(), kMeasuredCalls, table(rows));
}

Exit explain(const Options& options) {
  if (options.measure && (!options.target.empty() || options.mesh.is_given()))
    fail_usage(
        "--measure runs the program on one device: give --device in place of --target and --mesh");
  if (!options.measure && !options.device.empty())
    fail_usage("--device is where --measure runs; --target says for which machine to compile");
  if (!is_model(options.file)) options.model.refuse_for_others();
  const Device device = !options.measure         ? Device()
                        : options.device.empty() ? default_device()
                                                 : find_device(options.device);
  Target target = options.measure ? device.target() : find_target_of(options.target);
  if (options.mesh.is_given()) target = with_links(std::move(target));
  Graph graph("main");
  if (!is_model(options.file)) {
    graph = read_graph(options.file, "explain");
  } else {
    const Model model = options.model.load(options.file);
    graph = options.mesh.is_given() ? model.graph() : graph_for(model, target);
  }
  std::string why;  // collectives were inserted
  std::optional<std::vector<InsertedCollective>> inserted;
  if (options.mesh.is_given()) {
    Distributed distributed = options.mesh.distributed(graph);
    why = distributed.explanation(target);
    inserted = std::move(distributed.collectives);
    graph = std::move(distributed.graph);
  }
  Explanation found;
  const auto run = [&] { found = explained(graph, target, options.compile.options(target)); };
  if (options.times) {
    // Nobody observes this compilation, because the time of an observed one would be another.
    const CompileTimes times =
        compile_times([&] { compile_source(graph, target, options.compile.options(target)); });
    if (options.json)
      json::print({{"compile", to_json(times)}});
    else
      fmt::print("{}", to_text(times));
    return Exit::Ok;
  }
  run();
  if (options.measure) {
    print_measured(found, device, options.json);
    return Exit::Ok;
  }
  const Program& program = found.program;
  std::vector<Edge>& edges = found.edges;
  std::vector<SumOfProduct> sums = sums_of(graph, options.compile.options(target).precision);
  if (!options.edge.empty()) {
    edges = only(edges, options.edge);
    sums.clear();
  }
  if (options.json) {
    print_json(found, sums, edges, inserted);
    return Exit::Ok;
  }
  if (options.edge.empty()) {
    fmt::print("{}: {} ops in {} for {}, {} precision\n", program.name, program.ops_before_fusion,
               kernels_text(program), program.target.name, name(program.precision));
    if (!why.empty()) fmt::print("\n{}", why);
    for (const Launch& launch : program.launches) print_launch(found, launch);
  }
  if (options.edge.empty() && !found.orders.empty())
    fmt::print("\norders of factors\n  {}\n", join(found.orders, "\n  ", std::identity()));
  print_decisions(sums, edges);
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments
      .add_option("FILE", options->file,
                  "Graph text, or a model (.onnx, .mlir); - stands for stdin")
      .required();
  arguments.add_option("--edge", options->edge,
                       "A,B: show only the verdict on the edge from %A to %B");
  arguments.add_option("--target", options->target,
                       "Machine to compile for (default: this machine)");
  options->mesh.add_to(arguments);
  options->compile.add_to(arguments);
  options->model.add_to(arguments);
  arguments.add_flag("--compile", options->times,
                     "Show instead how long each step of the compilation took");
  arguments.add_flag("--measure", options->measure,
                     "Show instead how long each kernel takes, beside the estimate for it");
  arguments.add_device(options->device, "With --measure: ");
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return explain(*options); };
}

}  // namespace

const Command kExplain = {
    "explain", "Shows the kernels of a program, and the reason for every edge.",
    "  braze explain softmax.braze\n"
    "  braze explain softmax.braze --edge max,exp     # one verdict, with the costs compared\n"
    "  braze explain block.braze --mesh data=2,model=2 # what each of four devices does\n"
    "  braze explain softmax.braze --compile          # the time of each step and kernel\n"
    "  braze explain softmax.braze --measure          # estimates beside what kernels take\n"
    "  braze explain softmax.braze --json | jq .kernels\n",
    add};

}  // namespace braze::tool
