// make_report.cpp — braze report: kernels, reasons, times and memory of a graph, as a page for a
// browser.
#include <fmt/format.h>

#include "ir/support/text.h"
#include "runtime/io/file_writer.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/files.h"
#include "tools/braze/inputs.h"
#include "tools/braze/measured.h"
#include "tools/braze/options.h"
#include "tools/braze/report_page.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

struct Options {
  std::string file, output, device, target;
  int64_t repeat = 20;
  InputFlags inputs;
  CompileFlags compile;
};

void measure_into(ReportData& data, const Options& options, const Device& device) {
  Measured found = measured(data.explanation.program, device, options.inputs, options.repeat);
  data.sizes = std::move(found.sizes);
  data.device = device.name();
  data.timings = std::move(found.timings);
}

void write(const std::string& path, const std::string& page) {
  FileWriter file(path);
  file.append(page);
  file.publish();
}

Exit make_report(const Options& options) {
  if (!options.target.empty() && !options.device.empty())
    fail_usage(
        "give either --target, the machine to estimate for, or --device, the device to measure on");
  std::vector<ReadFile> read = {{options.file, "is the graph"}};
  for (const std::string& path : options.inputs.paths()) read.push_back({path, "holds inputs"});
  check_overwrites(read, {options.output});
  const bool measures = options.target.empty() && options.repeat > 0;
  const Device device = !options.target.empty()  ? Device()
                        : options.device.empty() ? default_device()
                                                 : find_device(options.device);
  const Target target = options.target.empty() ? device.target() : find_target_of(options.target);

  ReportData data;
  data.file = options.file;
  const Graph graph = read_graph(options.file, "report", &data.text);
  data.compile = compile_times(
      [&] { data.explanation = explained(graph, target, options.compile.options(target)); });
  if (measures)
    measure_into(data, options, device);
  else
    data.sizes = largest_sizes(data.explanation.program, options.inputs.symbols);
  const std::string page = report_page(data);
  write(options.output, page);
  fmt::print("{}: {}, {}\n", options.output, kernels_text(data.explanation.program),
             bytes_text(page.size()));
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.add_option("FILE", options->file, "Graph text; - stands for stdin").required();
  arguments.add_option("-o,--output", options->output, "HTML file to write").required();
  arguments.add_device(options->device);
  arguments.add_option("--target", options->target,
                       "Machine to compile for; times are then estimated, and nothing runs");
  arguments.add_repeat(
      options->repeat,
      "Number of calls to time (default 20); 0: times are estimated, and nothing runs");
  options->inputs.add_to(arguments);
  options->compile.add_to(arguments);
  return [options] { return make_report(*options); };
}

}  // namespace

const Command kReport = {
    "report", "Writes an HTML page with kernels, the reason for every edge, times and memory.",
    "  braze report softmax.braze -o softmax.html                  # measured on this machine\n"
    "  braze report softmax.braze -o softmax.html --target sm_90a  # estimated for another\n"
    "  braze report model.braze -o r.html --symbol n=64 --repeat 100\n",
    add};

}  // namespace braze::tool
