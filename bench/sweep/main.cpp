// main.cpp — bench-sweep: lists the sweep's workloads, shows and checks their graphs, and measures
// them for run.py and compare.py, which ask for one after the other.
//
//   bench-sweep list LIST gpu|cpu|check          one JSON object a row
//   bench-sweep graph LIST gpu|cpu|check NAME    its graph as text
//   bench-sweep verify LIST                      every graph at every scale; prints what is wrong
//   bench-sweep serve LIST gpu|cpu|check DEVICE  reads requests from stdin, one a line
//
// Requests: `prepare NAME` makes the inputs, compiles, runs once and answers with samples of the
// results; `measure SECONDS` answers with microseconds a call, each the mean of calls in a row. On
// a GPU the calls of a sample are waited for together, as in a training loop; on a CPU one by one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "bench/sweep/workloads.h"
#include "ir/graph/text.h"
#include "ir/graph/verify.h"
#include "ir/program/program.h"
#include "ir/support/clocks.h"
#include "ir/support/json_string.h"
#include "ir/values/host_tensor.h"

namespace braze::sweep {
namespace {

// --- Listing and checking
// -------------------------------------------------------------------------

std::string input_json(const Input& input) {
  return fmt::format(
      R"({{"name": {}, "dtype": "{}", "shape": [{}], "low": {}, "high": {}, "runs": {}}})",
      json_string(input.name), name(input.dtype), fmt::join(input.shape, ", "), input.low,
      input.high, input.runs);
}

std::string row_json(const Workload& row, Scale scale) {
  const Settings all = row.settings(scale);
  std::vector<std::string> settings, inputs;
  for (const auto& [key, value] : all.values())
    settings.push_back(fmt::format("{}: {}", json_string(key), json_string(value)));
  const Instance instance = make_instance(row, scale);
  for (const Input& input : instance.inputs) inputs.push_back(input_json(input));
  return fmt::format(
      R"({{"name": {}, "family": {}, "half": "{}", "kind": {}, "dtype": "{}", "braze": {}, )"
      R"("settings": {{{}}}, "inputs": [{}]}})",
      json_string(row.name), json_string(row.family()), row.half(), json_string(row.kind),
      name(all.dtype()), !instance.graph.empty(), fmt::join(settings, ", "),
      fmt::join(inputs, ", "));
}

// What is wrong with the graph of `row`, empty if nothing is.
std::string fault(const Workload& row, Scale scale) {
  try {
    const Instance instance = make_instance(row, scale);
    if (instance.graph.empty()) return "";
    const Graph graph = parse_graph(instance.graph, row.name);
    fail_if_any(verify(graph), "the graph");
    if (to_text(graph) != instance.graph) return "the text of its graph does not come back";
    if (graph.inputs().size() != instance.inputs.size()) return "inputs are missing in its graph";
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

int verify_all(const std::vector<Workload>& rows) {
  int wrong = 0, graphs = 0, halves[2] = {0, 0};
  for (const Workload& row : rows) {
    ++halves[row.half() == "fit"];
    graphs += !make_instance(row, Scale::Check).graph.empty();
    for (const Scale scale : {Scale::Gpu, Scale::Cpu, Scale::Check}) {
      const std::string what = fault(row, scale);
      if (what.empty()) continue;
      fmt::print("{}: {}\n", row.name, what);
      ++wrong;
    }
  }
  fmt::print("{} workloads, {} of which Braze has the ops; {} to fit, {} to judge; {} wrong\n",
             rows.size(), graphs, halves[1], halves[0], wrong);
  return wrong == 0 ? 0 : 1;
}

// --- Measuring
// ------------------------------------------------------------------------------------

std::string number_json(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : fmt::format("\"{}\"", value);
}

// All elements of a small result, else some in places that have no pattern.
std::string samples_json(const HostTensor& value, int64_t most) {
  std::vector<std::string> numbers;
  const int64_t count = std::min(value.numel(), most);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at =
        count == value.numel() ? i : scramble(static_cast<uint32_t>(i)) % value.numel();
    numbers.push_back(number_json(value.get_double(at)));
  }
  return fmt::format(R"({{"shape": [{}], "values": [{}]}})", fmt::join(value.shape(), ", "),
                     fmt::join(numbers, ", "));
}

class Server {
 public:
  Server(std::vector<Workload> rows, Scale scale, const Device& device)
      : rows_(std::move(rows)), scale_(scale), device_(device) {}

  std::string answer(const std::string& request) {
    std::istringstream words(request);
    std::string verb, argument;
    words >> verb >> argument;
    try {
      if (verb == "prepare") return prepare(argument);
      if (verb == "measure") return measure(std::stod(argument));
      return R"({"error": "requests are prepare NAME and measure SECONDS"})";
    } catch (const std::exception& error) {
      return fmt::format(R"({{"error": {}}})", json_string(error.what()));
    }
  }

 private:
  std::string prepare(const std::string& name) {
    arguments_.clear();
    executable_ = {};
    empty_cache(device_);
    const auto row =
        std::find_if(rows_.begin(), rows_.end(), [&](const Workload& r) { return r.name == name; });
    if (row == rows_.end()) return R"({"error": "there is no such workload"})";
    const Instance instance = make_instance(*row, scale_);
    if (instance.graph.empty()) return R"({"blank": "not yet"})";
    for (size_t i = 0; i < instance.inputs.size(); ++i)
      arguments_.push_back(make_values(instance.inputs[i], i, device_));
    const Graph graph = parse_graph(instance.graph, "workload");
    WallClock clock;
    auto program = std::make_shared<const Program>(compile(graph, device_.target()));
    const double compile_seconds = clock.lap();
    executable_ = Executable::load(program, device_);
    const std::vector<Array> results = call();
    const int64_t most = std::max<int64_t>(64, 16384 / static_cast<int64_t>(results.size()));
    std::vector<std::string> outputs;
    for (const Array& result : results) outputs.push_back(samples_json(result.to_host(), most));
    return fmt::format(R"({{"compile_s": {:.6f}, "kernels": {}, "outputs": [{}]}})",
                       compile_seconds, program->launches.size(), fmt::join(outputs, ", "));
  }

  // Arguments that results take the place of are replaced by them.
  std::vector<Array> call() {
    std::vector<Array> results = executable_.run(arguments_);
    const std::vector<ProgramOutput>& outputs = executable_.program().outputs;
    for (size_t i = 0; i < results.size(); ++i)
      if (outputs[i].updates) arguments_[*outputs[i].updates] = results[i];
    return results;
  }

  double sample(int calls) {
    const bool one_by_one = device_.kind() != DeviceKind::Cuda;
    WallClock clock;
    for (int i = 0; i < calls; ++i) {
      const std::vector<Array> results = call();
      if (one_by_one)
        for (const Array& result : results) result.wait();
    }
    if (!one_by_one) synchronize(device_);
    return clock.lap() / calls;
  }

  // Samples of some milliseconds, so that the clock and the wait at the end do not count.
  std::string measure(double seconds) {
    if (!executable_) return R"({"error": "nothing is prepared"})";
    sample(1);
    const double once = sample(2);
    const int calls = static_cast<int>(std::clamp(0.005 / once, 1.0, 100.0));
    std::vector<std::string> us;
    WallClock clock;
    for (double passed = 0; passed < seconds || us.size() < 3; passed += clock.lap())
      us.push_back(fmt::format("{:.4f}", sample(calls) * 1e6));
    return fmt::format(R"({{"us": [{}]}})", fmt::join(us, ", "));
  }

  const std::vector<Workload> rows_;
  const Scale scale_;
  const Device device_;
  Executable executable_;
  std::vector<Array> arguments_;
};

int usage() {
  std::fputs(
      "bench-sweep list LIST SCALE | graph LIST SCALE NAME | verify LIST | serve LIST SCALE "
      "DEVICE\n"
      "SCALE is gpu, cpu or check\n",
      stderr);
  return 2;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) return usage();
  const std::string& verb = arguments[0];
  const std::vector<Workload> rows = read_workloads(arguments[1]);
  if (verb == "verify") return verify_all(rows);
  if (arguments.size() < 3) return usage();
  const std::string& size = arguments[2];
  const Scale scale = size == "gpu" ? Scale::Gpu : size == "cpu" ? Scale::Cpu : Scale::Check;
  if (verb == "list") {
    for (const Workload& row : rows) fmt::print("{}\n", row_json(row, scale));
    return 0;
  }
  if (arguments.size() < 4) return usage();
  if (verb == "graph") {
    for (const Workload& row : rows)
      if (row.name == arguments[3]) fmt::print("{}", make_instance(row, scale).graph);
    return 0;
  }
  if (verb != "serve") return usage();
  Server server(rows, scale, Device(arguments[3]));
  for (std::string line; std::getline(std::cin, line);) {
    fmt::print("{}\n", server.answer(line));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace braze::sweep

int main(int argc, char** argv) {
  try {
    return braze::sweep::run({argv + 1, argv + argc});
  } catch (const braze::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
