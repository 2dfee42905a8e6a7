// main.cpp — braze-run: runs a packaged function. No compiler is in it, and no library that a plain
// system lacks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "ir/support/words.h"
#include "tools/braze/arguments.h"
#include "tools/braze/description.h"
#include "tools/braze/files.h"
#include "tools/braze/inputs.h"
#include "tools/braze/package.h"
#include "tools/braze/report.h"
#include "tools/braze/values.h"

namespace braze::tool {

namespace {

struct Options {
  std::string file, device;
  int64_t repeat = 0;
  std::string completion;
  bool json = false, devices = false, manual = false;
  InputFlags inputs;
  OutputFlags output;
  PackageFlags package;
  LibraryFlags libraries;
};

void print_devices() {
  for (const Device& device : devices()) fmt::print("{}\n", device.name());
}

double seconds_of_call(const Runnable& runnable, const std::vector<Array>& arguments) {
  const auto start = std::chrono::steady_clock::now();
  for (const Array& result : runnable.executable.run(arguments)) result.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median_seconds(const Runnable& runnable, const Inputs& inputs, int64_t repeat) {
  std::vector<double> seconds;
  std::vector<Array> arguments = runnable.arguments(inputs.values);
  for (int64_t i = 0; i < repeat; ++i) {
    runnable.renew(arguments, inputs.values);
    seconds.push_back(seconds_of_call(runnable, arguments));
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeat / 2, seconds.end());
  return seconds[static_cast<size_t>(repeat / 2)];
}

Exit run(const Options& options) {
  if (options.file.empty()) fail_usage("give the package to run; `braze-run --help` shows how");
  std::vector<ReadFile> read = options.package.files();
  for (const std::string& library : options.libraries.libraries)
    read.push_back({library, "holds functions"});
  read.push_back({options.file, "runs"});
  check_overwrites(read, options.output.paths());
  const auto start = std::chrono::steady_clock::now();
  const Device device = options.device.empty() ? default_device() : Device(options.device);
  options.libraries.load();
  const Runnable runnable = load_runnable(options.package, options.file, device);
  const double ready =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<std::string> names = output_names(runnable.executable.program().outputs);
  const OutputFiles files(options.output, names);
  const Inputs inputs =
      make_inputs(runnable.free_inputs(), options.inputs, runnable.weight_shapes());
  const std::vector<Array> results = runnable.executable.run(runnable.arguments(inputs.values));
  files.write(results);
  const double median = options.repeat > 0 ? median_seconds(runnable, inputs, options.repeat) : 0;
  if (options.json) {
    std::vector<std::string> items;
    for (size_t i = 0; i < results.size(); ++i)
      items.push_back(output_json(names[i], results[i].to_host()));
    json::Members members = {{"device", json::string(device.name())},
                             {"ready_s", json::number(ready)},
                             {"outputs", json::array(items)}};
    if (options.repeat > 0) members.push_back({"median_s", json::number(median)});
    json::print(members);
    return Exit::Ok;
  }
  for (size_t i = 0; i < results.size(); ++i) print_output(names[i], results[i].to_host());
  if (options.repeat > 0) fmt::print("{} calls, median {}\n", options.repeat, seconds_text(median));
  return Exit::Ok;
}

void add(Arguments& arguments, Options& options) {
  arguments.add_option("PACKAGE", options.file, "The .bzp file");
  arguments.add_device(options.device);
  options.inputs.add_to(arguments);
  options.output.add_to(arguments);
  options.package.add_to(arguments);
  options.libraries.add_to(arguments);
  arguments.add_repeat(options.repeat, "Number of calls to time");
  arguments.add_flag("--json", options.json, "Print JSON");
  arguments.add_flag("--devices", options.devices, "List the devices and exit");
  arguments
      .add_option("--completion", options.completion,
                  "Print a script that completes options in bash, zsh or fish, and exit")
      .offers(shells());
  arguments.add_flag("--manual", options.manual, "Print the manual page and exit");
}

constexpr std::string_view kName = "braze-run";
constexpr std::string_view kPurpose = "Runs a function of a package made by `braze compile`.";

ToolDescription describe() {
  ToolDescription description{{std::string(kName),
                               std::string(kPurpose),
                               "  braze-run digits.bzp --inputs pixels=x.npy --output out/\n"
                               "  braze-run digits.bzp --symbol n=64 --device cuda:0 --repeat 100\n"
                               "  braze-run --manual | man -l -\n",
                               {kHelp, kVersion}},
                              "run compiled functions",
                              {}};
  Options unused;
  for (ArgumentDescription& argument :
       describe_arguments([&](Arguments& arguments) { add(arguments, unused); }))
    description.tool.arguments.push_back(std::move(argument));
  return description;
}

// What is asked for: a text, or a call.
Exit serve(const Options& options) {
  if (options.devices) {
    print_devices();
  } else if (options.manual) {
    fmt::print("{}", manual_page(describe()));
  } else if (!options.completion.empty()) {
    fmt::print("{}", completion_script(options.completion, describe()));
  } else {
    return run(options);
  }
  return Exit::Ok;
}

int run_tool(int argc, char** argv) {
  Options options;
  const bool wanted = read_arguments(
      std::string(kName), std::string(kPurpose),
      [&](Arguments& arguments) { add(arguments, options); }, argc, argv);
  return static_cast<int>(wanted ? serve(options) : Exit::Ok);
}

}  // namespace
}  // namespace braze::tool

int main(int argc, char** argv) {
  return braze::tool::report_failures("braze-run",
                                      [&] { return braze::tool::run_tool(argc, argv); });
}
