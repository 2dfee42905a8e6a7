// compare.cpp — braze compare: are the results of two devices, or of two ways to compile, correct
// and equal? Is each kernel of a program correct?
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "braze/array.h"
#include "braze/executable.h"
#include "frontend/builder/kernel_checks.h"
#include "ir/graph/check.h"
#include "ir/support/words.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/compared.h"
#include "tools/braze/options.h"
#include "tools/braze/report.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

struct Options {
  std::string file, a, b;
  bool json = false, each = false;
  bool allow_unjudged = false;
  InputFlags inputs;
  CompileFlags compile;
  ModelFlags model;
};

/// A device and how to compile for it: "cpu,precision=fast,no-fuse".
struct Way {
  std::string name;
  Device device;
  CompileFlags compile;

  Way(const std::string& text, const CompileFlags& common) : name(text), compile(common) {
    size_t end = std::min(text.find(','), text.size());
    device = find_device(text.substr(0, end));
    while (end < text.size()) {
      const size_t begin = end + 1;
      end = std::min(text.find(',', begin), text.size());
      compile.set(text.substr(begin, end - begin));
    }
  }
};

/// The results of one of the two.
struct Side {
  Way way;
  Subject subject;
  std::shared_ptr<const Program> program;
  std::vector<HostTensor> outputs;
};

/// One judgement on one output, or a distance for information.
struct Verdict {
  std::string output, subject, rule;
  Comparison comparison;
  bool judges = true;

  bool differs() const { return judges && !comparison.ok; }
  bool vacuous() const { return judges && comparison.coverage.vacuous(); }
};

Side run_on(const Compared& compared, const Way& way) {
  const Device& device = way.device;
  Side side{way, std::move(compared.subjects(device.target()).back()), nullptr, {}};
  side.program = std::make_shared<const Program>(compile_source(
      side.subject.graph, device.target(), way.compile.options(way.device.target())));
  std::vector<Array> arguments;
  for (const HostTensor& value : side.subject.inputs)
    arguments.push_back(Array::from_host(value, device));
  for (const Array& output : Executable::load(side.program, device).run(arguments))
    side.outputs.push_back(output.to_host());
  return side;
}

// A machine and its simulation run the same kernels, so that every bit has to agree.
bool run_same_kernels(const Side& a, const Side& b) {
  Target x = a.program->target, y = b.program->target;
  x.simulated = y.simulated = false;
  return x == y && x.kind != TargetKind::Interpreter && a.way.compile == b.way.compile;
}

// Compares a device with what the graph means.
void judge(const Side& side, std::vector<Verdict>& verdicts) {
  if (side.way.device.kind() == DeviceKind::Interpreter) return;  // its results are the meaning
  const auto& [graph, inputs] = side.subject;
  const CheckResult result = check_outputs(graph, inputs, side.outputs, side.program->precision);
  const std::vector<std::string> names = output_names(graph.outputs());
  for (size_t i = 0; i < names.size(); ++i) {
    const OutputCheck& check = result.outputs[i];
    verdicts.push_back(
        {names[i], side.way.name, check.exact ? "exact" : "bound", check.comparison});
  }
}

std::vector<Verdict> judge_all(const Side& a, const Side& b) {
  std::vector<Verdict> verdicts;
  judge(a, verdicts);
  if (a.way.name != b.way.name) judge(b, verdicts);
  const bool same = run_same_kernels(a, b);
  const std::vector<std::string> names = output_names(a.subject.graph.outputs());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    // Devices with kernels of their own are each judged by their own bounds.
    verdicts.push_back({names[i], fmt::format("{} and {}", a.way.name, b.way.name),
                        same ? "same bits" : "distance", compare(a.outputs[i], b.outputs[i]),
                        same});
  }
  return verdicts;
}

std::string verdict_text(const Verdict& verdict) {
  if (verdict.differs()) return paint(Colour::Red, "DIFFERS", STDOUT_FILENO);
  if (verdict.vacuous()) return paint(Colour::Red, "NOT JUDGED", STDOUT_FILENO);
  return paint(Colour::Green, "ok", STDOUT_FILENO);
}

std::string judged_text(const Verdict& verdict) {
  if (!verdict.judges) return "";
  // Rounded down, so that less than everything never reads as 100.
  const Coverage& coverage = verdict.comparison.coverage;
  const std::string judged = fmt::format("{}% judged", std::floor(1000 * coverage.share()) / 10);
  if (coverage.nonfinite == 0) return judged;
  return fmt::format("{}, {} of {} NaN or infinite",
                     coverage.judged + coverage.unjudged > 0 ? judged : "no finite value",
                     coverage.nonfinite, verdict.comparison.elements);
}

void print_text(const std::vector<Verdict>& verdicts) {
  std::vector<std::vector<std::string>> rows;
  for (const Verdict& v : verdicts)
    rows.push_back(
        {v.output, v.subject, v.rule, verdict_text(v), judged_text(v), v.comparison.summary()});
  fmt::print("{}", table(rows));
}

json::Members members_of(const Verdict& v) {
  return {{"output", json::string(v.output)},
          {"subject", json::string(v.subject)},
          {"rule", json::string(v.rule)},
          {"ok", json::boolean(!v.differs() && !v.vacuous())},
          {"elements", std::to_string(v.comparison.elements)},
          {"mismatches", std::to_string(v.comparison.mismatches)},
          {"judged", v.judges ? std::to_string(v.comparison.coverage.judged) : "null"},
          {"unjudged", v.judges ? std::to_string(v.comparison.coverage.unjudged) : "null"},
          {"nonfinite", std::to_string(v.comparison.coverage.nonfinite)},
          {"max_ulps", std::to_string(v.comparison.max_ulps)},
          {"max_ratio", json::number(v.comparison.max_ratio)},
          {"summary", json::string(v.comparison.summary())}};
}

void print_json(const std::vector<Verdict>& verdicts) {
  std::vector<std::string> items;
  for (const Verdict& v : verdicts) items.push_back(json::object(members_of(v)));
  json::print({{"verdicts", json::array(items)}});
}

// Says what could not be judged. `where` follows the name of the output.
Exit exit_for(const std::vector<Verdict>& verdicts, const Options& options,
              const std::function<std::string(const Verdict&)>& where) {
  std::fflush(stdout);  // messages follow it
  bool ok = true;
  for (const Verdict& v : verdicts) {
    ok = ok && !v.differs() && (!v.vacuous() || options.allow_unjudged);
    if (!v.vacuous()) continue;
    fmt::print(
        stderr, "braze: no element of output '{}' {} could be judged{}\n", v.output, where(v),
        options.allow_unjudged
            ? ""
            : "; other --inputs or --precision strict may help, and --allow-unjudged accepts this");
  }
  return ok ? Exit::Ok : Exit::Mismatch;
}

Exit compare_devices(const Options& options) {
  const Compared compared(options.file, options.inputs, options.model);
  const Way first(options.a, options.compile), second(options.b, options.compile);
  if (first.device.kind() == DeviceKind::Interpreter &&
      second.device.kind() == DeviceKind::Interpreter)
    fail_usage("the interpreter cannot be compared with itself; name another device as well");
  const std::vector<Verdict> verdicts =
      judge_all(run_on(compared, first), run_on(compared, second));
  options.json ? print_json(verdicts) : print_text(verdicts);
  return exit_for(verdicts, options, [](const Verdict& v) { return "on " + v.subject; });
}

// --- Kernels one by one --------------------------------------------------------------------------

/// The verdict on one value that a kernel writes.
struct KernelVerdict {
  KernelCheck check;
  Verdict verdict;
};

std::vector<KernelVerdict> judge_kernels(const Compared& compared, const Way& way) {
  std::vector<KernelVerdict> out;
  const std::vector<Subject> subjects = compared.subjects(way.device.target());
  for (const Subject& subject : subjects) {
    CompileOptions options = way.compile.options(way.device.target());
    // Names of kernels and the folder for steps are those of what runs in every call.
    if (&subject != &subjects.back()) options.schedules.clear(), options.dump_folder.clear();
    const SingleLaunches all = blame(Exit::Compile, [&] {
      return compile_single_launches(subject.graph, way.device.target(), options);
    });
    for (const KernelCheck& check : check_kernels(all, subject.inputs, way.device))
      for (const OutputCheck& output : check.result.outputs)
        out.push_back(
            {check, {output.name, way.name, output.exact ? "exact" : "bound", output.comparison}});
  }
  return out;
}

// A share of a bound. Exact values have none.
std::string ratio_text(double ratio) { return ratio < 0 ? "" : fmt::format("{:.2g}", ratio); }

void print_kernels(const std::vector<KernelVerdict>& verdicts) {
  std::vector<std::vector<std::string>> rows = {
      {"kernel", "nodes", "value", "on", "rule", "verdict", "tightness", "worst", ""}};
  for (const auto& [check, v] : verdicts) {
    const Comparison& comparison = v.comparison;
    const std::string name = check.members.empty()
                                 ? check.kernel
                                 : fmt::format("{} (of {})", check.kernel, check.members.size());
    rows.push_back({name, std::to_string(check.nodes), v.output, v.subject, v.rule, verdict_text(v),
                    ratio_text(comparison.median_ratio),
                    comparison.median_ratio < 0 ? "" : ratio_text(comparison.max_ratio),
                    v.differs() ? comparison.summary() : judged_text(v)});
  }
  fmt::print("{}", table(rows));
}

void print_kernels_json(const std::vector<KernelVerdict>& verdicts) {
  std::vector<std::string> items;
  for (const auto& [check, v] : verdicts) {
    json::Members members = {{"kernel", json::string(check.kernel)},
                             {"nodes", std::to_string(check.nodes)}};
    std::vector<std::string> equal;
    for (const std::string& member : check.members) equal.push_back(json::string(member));
    members.emplace_back("members", json::array(equal));
    const double median = v.comparison.median_ratio;
    members.emplace_back("tightness", median < 0 ? "null" : json::number(median));
    const json::Members rest = members_of(v);
    members.insert(members.end(), rest.begin(), rest.end());
    items.push_back(json::object(members));
  }
  json::print({{"verdicts", json::array(items)}});
}

Exit compare_kernels(const Options& options) {
  std::vector<Way> ways;
  for (const std::string& text : {options.a, options.b})
    if (!text.empty()) ways.emplace_back(text, options.compile);
  std::erase_if(ways, [](const Way& way) {
    return way.device.kind() == DeviceKind::Interpreter;  // its results are the meaning
  });
  if (ways.empty())
    fail_usage("--each judges kernels, and the interpreter has none; name another device");
  const Compared compared(options.file, options.inputs, options.model);
  std::vector<KernelVerdict> kernels;
  std::vector<Verdict> verdicts;
  for (const Way& way : ways)
    for (KernelVerdict& kernel : judge_kernels(compared, way)) kernels.push_back(std::move(kernel));
  options.json ? print_kernels_json(kernels) : print_kernels(kernels);
  for (const KernelVerdict& kernel : kernels) {
    verdicts.push_back(kernel.verdict);
    verdicts.back().subject =
        fmt::format("of kernel {} on {}", kernel.check.kernel, kernel.verdict.subject);
  }
  return exit_for(verdicts, options, [](const Verdict& v) { return v.subject; });
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments
      .add_option("FILE", options->file,
                  "Graph text, or a model (.onnx, .mlir); - stands for stdin")
      .required();
  arguments
      .add_option("A", options->a,
                  "A device: cpu, sim:cpu, interpreter ..., and after commas its own options for "
                  "compiling")
      .required();
  arguments.add_option("B", options->b,
                       "Another device, or the same with other options; with --each it may be left "
                       "out");
  options->inputs.add_to(arguments);
  options->compile.add_to(arguments);
  options->model.add_values_to(arguments);
  arguments.add_flag(
      "--each", options->each,
      "Judge instead every kernel alone, on the inputs that the interpreter computes "
      "for it");
  arguments.add_flag("--allow-unjudged", options->allow_unjudged,
                     "Only warn if no element of an output could be judged");
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] {
    if (options->each) return compare_kernels(*options);
    if (options->b.empty()) fail_usage("name two devices; only --each takes a single one");
    return compare_devices(*options);
  };
}

}  // namespace

const Command kCompare = {
    "compare", "Compares the results of two devices with each other and with the correct values.",
    "  braze compare softmax.braze cpu interpreter\n"
    "  braze compare softmax.braze cpu sim:cpu --inputs random:7\n"
    "  braze compare step.braze cpu interpreter --inputs x=batch.npy --symbol n=3\n"
    "  braze compare softmax.braze cpu,precision=fast cpu,no-fuse\n"
    "  braze compare model.onnx cpu --each                 # every kernel alone, by its own bound\n"
    "\n"
    "Results without a reduction or a math function before them are exact: equal bit for bit.\n"
    "All others have a bound on their error. A device and its simulation agree in every bit.\n"
    "An element whose bound exceeds a tenth of the greatest magnitude in its tensor is not "
    "judged;\n"
    "where that is so of a whole output the exit code is 7, unless --allow-unjudged is given.\n",
    add};

}  // namespace braze::tool
