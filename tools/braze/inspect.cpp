// inspect.cpp — braze inspect: shows the result of every step of a compilation.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/loops/steps/text.h"
#include "compiler/loops/text.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/model.h"
#include "tools/braze/options.h"
#include "tools/braze/package.h"
#include "tools/braze/report.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

struct Options {
  std::string file, stage, kernel, target;
  bool json = false;
  CompileFlags compile;
  PackageFlags package;
};

struct Phase {
  std::string stage, kernel, text;
};

bool is_of_kernel(const Options& options, const CompilePhase& phase) {
  return options.kernel.empty() || options.kernel == phase.kernel;
}
bool is_wanted(const Options& options, const CompilePhase& phase) {
  return (options.stage.empty() || options.stage == phase.stage) && is_of_kernel(options, phase);
}

// The tree in `text` after the steps for this kernel: `KERNEL=STEPS`, or steps for all kernels.
std::string after_steps(const std::string& text, std::string_view kernel,
                        const std::vector<std::string>& schedules) {
  LoopTree tree = parse_loops(text, "tree");
  const std::string prefix = std::string(kernel) + "=";
  for (const std::string& schedule : schedules) {
    const size_t word = schedule.find_first_of(" =");
    const bool named = word != std::string::npos && schedule[word] == '=';
    if (named && !schedule.starts_with(prefix)) continue;
    tree = take(tree, parse_steps(named ? schedule.substr(prefix.size()) : schedule, "--schedule"));
  }
  return to_text(tree);
}

void insert_once(std::vector<std::string>& names, std::string_view name) {
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
    names.emplace_back(name);
}

// Without a stage: lists the stages.
void print_overview(const std::vector<Phase>& phases) {
  std::vector<std::vector<std::string>> rows = {{"stage", "kernel", "lines"}};
  for (const Phase& phase : phases) {
    const auto lines = std::count(phase.text.begin(), phase.text.end(), '\n');
    rows.push_back({phase.stage, phase.kernel, std::to_string(lines)});
  }
  fmt::print("{}", table(rows));
}

// A comment, in the language of the texts, separates several texts of one stage.
void print_texts(const std::vector<Phase>& phases) {
  for (const Phase& phase : phases) {
    const std::string_view comment = phase.stage == "llvm"  ? ";"
                                     : phase.stage == "asm" ? "#"
                                                            : "//";
    if (phases.size() > 1) fmt::print("{} kernel {}\n", comment, phase.kernel);
    fmt::print("{}{}", phase.text, phase.text.ends_with('\n') ? "" : "\n");
  }
}

void print_json(const std::vector<Phase>& phases) {
  std::vector<std::string> items;
  for (const Phase& phase : phases)
    items.push_back(json::object({{"stage", json::string(phase.stage)},
                                  {"kernel", json::string(phase.kernel)},
                                  {"text", json::string(phase.text)}}));
  json::print({{"phases", json::array(items)}});
}

void print_phases(const Options& options, const std::vector<Phase>& phases) {
  if (options.json) return print_json(phases);
  if (options.stage.empty() && options.kernel.empty()) return print_overview(phases);
  print_texts(phases);
}

Exit inspect(const Options& options) {
  if (is_package(options.file)) {
    options.compile.refuse_for_package();
    if (!options.stage.empty() || !options.kernel.empty() || !options.target.empty())
      fail_usage("--stage, --kernel and --target are for text; a package is already compiled");
    return inspect_package(options.file, options.package, options.json);
  }
  options.package.refuse_for_text();
  std::vector<Phase> phases;
  std::vector<std::string> stages, kernels;  // seen
  // A schedule given for trees is steps. It changes only what is shown: the first trees after these
  // steps.
  CompileFlags flags = options.compile;
  std::vector<std::string> steps;
  if (options.stage == "loops") steps.swap(flags.schedules);
  const std::string_view first = steps.empty() ? "" : "unscheduled";
  const Target target = find_target_of(options.target);
  CompileOptions compile = flags.options(target);
  compile.observer = [&](const CompilePhase& phase) {
    insert_once(stages, phase.stage);
    insert_once(kernels, phase.kernel);
    if (first.empty() ? !is_wanted(options, phase)
                      : phase.stage != first || !is_of_kernel(options, phase))
      return;
    const std::string text = phase.text();
    phases.push_back({std::string(phase.stage), std::string(phase.kernel),
                      steps.empty() ? text : after_steps(text, phase.kernel, steps)});
  };
  const Source source = is_model(options.file)
                            ? Source(graph_for(ModelFlags{}.load(options.file), target))
                            : read_source(options.file);
  try {
    compile_source(source, target, compile);
  } catch (...) {  // the steps before the error are what the user looks for
    print_phases(options, phases);
    throw;
  }
  const auto refuse = [](std::string_view what, const std::string& wrong, const auto& known) {
    fail_usage(fmt::format("there is no {} {}; choose one of {}{}", what, wrong,
                           fmt::join(known, ", "), did_you_mean(wrong, known)));
  };
  if (phases.empty()) {
    if (std::find(stages.begin(), stages.end(), options.stage) == stages.end() &&
        !options.stage.empty())
      refuse("stage", options.stage, stages);
    refuse("kernel", options.kernel, kernels);
  }
  print_phases(options, phases);
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments
      .add_option("FILE", options->file,
                  "Graph, loop, tile or kernel text, a model (.onnx, .mlir), or a package; - "
                  "stands for stdin")
      .required();
  arguments.add_option(
      "--stage", options->stage,
      "graph, a pass (expand, fold ...), fusion, unscheduled, loops, tile, kernel, "
      "llvm, asm (CPU), cuda, ptx, sass (GPU) or program (default: list the steps)");
  arguments.add_option("--kernel", options->kernel, "Show only this kernel");
  arguments.add_option("--target", options->target,
                       "Machine to compile for (default: this machine)");
  options->compile.add_to(arguments);
  options->package.add_to(arguments);
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return inspect(*options); };
}

}  // namespace

const Command kInspect = {
    "inspect", "Shows the result of every step of a compilation, or the contents of a package.",
    "  braze inspect softmax.braze                      # a list of the steps and kernels\n  braze "
    "inspect softmax.braze --stage=fusion\n  braze inspect softmax.braze --stage=asm --kernel "
    "max_exp_sum --target x86-64-v3\n  braze inspect softmax.braze --dump phases/       # all "
    "steps, as files\n  braze inspect softmax.braze --stage=loops --schedule 'split i 8; on i "
    "grid'\n  braze inspect digits.bzp                         # the contents of a package\n",
    add};

}  // namespace braze::tool
