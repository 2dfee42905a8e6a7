// run.cpp — braze run: runs a program once, or as often as needed to time it.
#include <fmt/format.h>

#include "braze/array.h"
#include "braze/executable.h"
#include "braze/io.h"
#include "braze/trace.h"
#include "frontend/builder/checked.h"
#include "ir/graph/verify.h"
#include "ir/support/clocks.h"
#include "ir/support/text.h"
#include "ir/support/trace.h"
#include "ir/support/words.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/io/signature.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/files.h"
#include "tools/braze/inputs.h"
#include "tools/braze/mesh.h"
#include "tools/braze/model.h"
#include "tools/braze/options.h"
#include "tools/braze/package.h"
#include "tools/braze/report.h"
#include "tools/braze/source.h"
#include "tools/braze/timing.h"
#include "tools/braze/values.h"

namespace braze::tool {

namespace {

namespace codes {
inline constexpr Code kUnsignedText{
    "unsigned-text", ErrorKind::InvalidArgument,
    "Tile or kernel text, which is code, was to run although only signed code is allowed."};
}  // namespace codes

struct Options {
  std::string file;
  std::string device;
  int64_t repeat = 0;
  std::string trace;
  bool json = false, checked = false;
  InputFlags inputs;
  OutputFlags output;
  CompileFlags compile;
  PackageFlags package;
  LibraryFlags libraries;
  ModelFlags model;
  MeshFlags mesh;
};

// --- What runs
// ------------------------------------------------------------------------------------

// Text cannot be signed.
void refuse_where_keys_decide(const std::string& path) {
  blame(Exit::BadFile, [&] {
    if (!trusted_keys().empty())
      fail(
          codes::kUnsignedText,
          fmt::format(
              "{} is code, and text cannot be signed, but BRAZE_TRUST_KEYS allows signed code only",
              quote(path)),
          {.fix = "if you trust it, make a signed package from it with `braze compile --sign`"});
  });
}

// What runs: on one device, with its checks if it has any, or on those of a mesh.
struct Job {
  Runnable runnable;
  std::shared_ptr<const CheckedGraph> checked = nullptr;
  std::shared_ptr<const MeshJob> mesh = nullptr;

  std::vector<Array> run(std::span<const Array> arguments) const {
    if (mesh) return mesh->run(arguments);
    return checked ? checked->run(runnable.executable, arguments)
                   : runnable.executable.run(arguments);
  }
  std::vector<Array> arguments(const std::vector<HostTensor>& values) const {
    return mesh ? mesh->arguments(values) : runnable.arguments(values);
  }
  // Arguments for the next call: those that the last call took over are dead.
  void renew(std::vector<Array>& arguments, const std::vector<HostTensor>& values) const {
    if (mesh)
      arguments = mesh->arguments(values);
    else
      runnable.renew(arguments, values);
  }
  // Of each device.
  const Program& program() const { return mesh ? mesh->program() : runnable.executable.program(); }
  Program free_inputs() const { return mesh ? mesh->whole() : runnable.free_inputs(); }
  std::vector<GivenShape> weight_shapes() const {
    return mesh ? std::vector<GivenShape>() : runnable.weight_shapes();
  }
  // What a call returns.
  std::vector<ProgramOutput> outputs() const {
    std::vector<ProgramOutput> outputs = mesh ? mesh->whole().outputs : program().outputs;
    if (checked) outputs.resize(checked->result_count());
    return outputs;
  }
};

Runnable load(std::shared_ptr<const Program> program, const Device& device) {
  const size_t count = program->inputs.size();
  return {Executable::load(std::move(program), device), std::vector<Array>(count)};
}

Job make_checked(const Source& source, const Options& options, const Device& device) {
  const auto* graph = std::get_if<Graph>(&source);
  if (!graph) fail_usage("--checked is for graphs; tile and kernel text has no ops to name");
  // Before more is added to it.
  blame(Exit::Compile,
        [&] { fail_if_any(verify(*graph), fmt::format("the graph {}", quote(graph->name()))); });
  auto checked = std::make_shared<const CheckedGraph>(*graph);
  CompileOptions compile = options.compile.options(device.target());
  compile.precision = Precision::Strict;
  return {load(cached_source(checked->graph(), device.target(), compile), device), checked};
}

Job make_mesh_job(const Options& options, const Device& device) {
  if (options.checked) fail_usage("--checked is for one device");
  if (is_package(options.file) || is_model(options.file))
    fail_usage(
        "--mesh is for graph text: a package is compiled for one device already, and a "
        "model is imported first");
  options.model.refuse_for_others();
  options.package.refuse_for_text();
  const Source source = read_source(options.file);
  return {.runnable = {},
          .mesh = std::make_shared<const MeshJob>(options.mesh, source, device,
                                                  options.compile.options(device.target()))};
}

Job make_job(const Options& options, const Device& device) {
  if (options.mesh.is_given()) return make_mesh_job(options, device);
  if (is_package(options.file)) {
    options.compile.refuse_for_package();
    if (options.checked) fail_usage("--checked is for text; a package is already compiled");
    return {load_runnable(options.package, options.file, device)};
  }
  if (is_model(options.file)) {
    options.package.refuse_for_text();
    if (options.checked)
      fail_usage("--checked is for text; convert the model with `braze import` first");
    ModelFlags flags = options.model;
    flags.symbols = options.inputs.symbols;
    return {
        load_runnable(flags.load(options.file, options.compile.options(device.target())), device)};
  }
  options.model.refuse_for_others();
  const Source source = read_runnable_source(options.file, options.package.trust);
  const bool is_code = !std::holds_alternative<Graph>(source);
  options.package.refuse_for_text(is_code);
  if (is_code && options.file != "-") refuse_where_keys_decide(options.file);
  if (options.checked) return make_checked(source, options, device);
  return {load(cached_source(source, device.target(), options.compile.options(device.target())),
               device)};
}

// --- Time
// -----------------------------------------------------------------------------------------

std::string share(double speed, double most) {
  return most > 0 ? fmt::format("{:.0f}%", 100 * speed / most) : "";
}

void print_timings(const Timings& measured) {
  const Speeds& machine = measured.machine;
  const bool is_machine = measured.has_machine;
  std::vector<std::vector<std::string>> rows = {
      {"", "median", "p99", "fastest", "GB/s", "of the machine", "GFLOP/s", "of f32"}};
  for (const Timing& t : measured.of) {
    rows.push_back({t.name, seconds_text(t.quantile(0.5)), seconds_text(t.quantile(0.99)),
                    seconds_text(t.seconds.front()),
                    fmt::format("{:.3g}", t.bytes_per_second() / 1e9),
                    is_machine ? share(t.least, t.quantile(0.5)) : "",
                    fmt::format("{:.3g}", t.flops_per_second() / 1e9),
                    is_machine ? share(t.flops_per_second(), machine.flops_per_second) : ""});
  }
  fmt::print("time of {} calls\n{}", measured.of[0].seconds.size(), table(rows));
  if (!measured.in_a_row.empty())
    fmt::print("  many calls in a row: {} a call\n",
               seconds_text(measured.in_a_row[measured.in_a_row.size() / 2]));
  if (is_machine)
    fmt::print("  the machine: {:.3g} GB/s copied from memory, {:.3g} GFLOP/s of f32\n",
               machine.copy_bytes_per_second / 1e9, machine.flops_per_second / 1e9);
}

std::string timings_json(const std::vector<Timing>& timings) {
  std::vector<std::string> items;
  for (const Timing& t : timings)
    items.push_back(json::object({{"name", json::string(t.name)},
                                  {"calls", std::to_string(t.seconds.size())},
                                  {"median_s", json::number(t.quantile(0.5))},
                                  {"p99_s", json::number(t.quantile(0.99))},
                                  {"fastest_s", json::number(t.seconds.front())},
                                  {"bytes", json::number(t.bytes())},
                                  {"least_memory_s", json::number(t.least)},
                                  {"flops", json::number(t.flops)}}));
  return json::array(items);
}

// --- The command
// ----------------------------------------------------------------------------------

// Results may replace files of inputs, which were read before.
void check_files(const Options& options) {
  std::vector<ReadFile> read = options.package.files();
  for (const std::string& library : options.libraries.libraries)
    read.push_back({library, "holds functions"});
  read.push_back({options.file, "runs"});
  std::vector<std::string> written = options.output.paths();
  written.push_back(options.trace);
  check_overwrites(read, written);
  for (const std::string& path : options.inputs.paths())
    check_overwrites({{path, "holds inputs"}}, {options.trace});
}

// A message on stderr has said what is wrong with it.
[[noreturn]] void fail_trace(const std::string& path) {
  throw Failure{Exit::BadFile, fmt::format("--trace {}: the timeline is not complete", path)};
}

Exit run(const Options& options) {
  check_files(options);
  if (!options.trace.empty() && !start_trace(options.trace)) fail_trace(options.trace);
  const Device device = options.device.empty() ? default_device() : find_device(options.device);
  const uint64_t hits_before = DiskCache::of_process().stats().hits;
  WallClock clock;
  options.libraries.load();
  const Job job = make_job(options, device);
  const double ready_seconds = clock.lap();
  const Program* program = &job.program();
  const std::vector<std::string> names = output_names(job.outputs());
  const OutputFiles files(options.output, names);
  InputFlags given = options.inputs;
  given.of_model = is_model(options.file);
  if (given.of_model) given.symbols = sizes_left_open(*program, given.symbols);
  const Inputs inputs = make_inputs(job.free_inputs(), given, job.weight_shapes());

  const std::vector<Array> results = job.run(job.arguments(inputs.values));
  std::vector<HostTensor> values;
  for (const Array& result : results) values.push_back(result.to_host());
  files.write(results);

  Timings timings;
  if (options.repeat > 0) {
    std::vector<Array> arguments = job.arguments(inputs.values);
    const auto timed_call = [&] {
      job.renew(arguments, inputs.values);
      return seconds_of([&] { return job.run(arguments); });
    };
    std::function<void()> next;
    if (!job.mesh && !uses_up_arguments(*program)) next = [&] { job.run(arguments); };
    timings = measure(timed_call, next, *program, inputs.sizes, device, options.repeat);
  }
  if (options.json) {
    std::vector<std::string> items;
    for (size_t i = 0; i < values.size(); ++i) items.push_back(output_json(names[i], values[i]));
    const bool is_packed = is_package(options.file);
    const bool is_loaded = is_packed || DiskCache::of_process().stats().hits > hits_before;
    const double seconds = is_packed ? ready_seconds : program->compile_seconds;
    json::Members members = {{"program", json::string(program->name)},
                             {"device", json::string(device.name())},
                             {"compile_s", json::number(is_loaded ? 0 : seconds)},
                             {"load_s", json::number(is_loaded ? seconds : 0)},
                             {"kernels", std::to_string(program->launches.size())},
                             {"outputs", json::array(items)}};
    if (job.mesh) members.push_back({"mesh", json::string(job.mesh->mesh())});
    if (!timings.of.empty()) members.push_back({"time", timings_json(timings.of)});
    if (!timings.in_a_row.empty())
      members.push_back(
          {"in_a_row_s", json::number(timings.in_a_row[timings.in_a_row.size() / 2])});
    if (timings.has_machine) {
      members.push_back(
          {"machine_bytes_per_s", json::number(timings.machine.copy_bytes_per_second)});
      members.push_back({"machine_flops_per_s", json::number(timings.machine.flops_per_second)});
    }
    json::print(members);
  } else {
    for (size_t i = 0; i < values.size(); ++i) print_output(names[i], values[i]);
    if (!timings.of.empty()) print_timings(timings);
  }
  if (!options.trace.empty()) {
    stop_trace();
    if (!trace::is_whole()) fail_trace(options.trace);
  }
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments
      .add_option("FILE", options->file,
                  "Graph, loop, tile or kernel text, a package, or a model (.onnx, .mlir); - "
                  "stands for stdin")
      .required();
  arguments.add_device(options->device);
  options->mesh.add_to(arguments);
  options->inputs.add_to(arguments);
  options->output.add_to(arguments);
  arguments.add_flag("--checked", options->checked,
                     "Stop at the first op that takes an index out of range, makes a NaN, or makes "
                     "an infinity from finite numbers; implies --precision strict");
  arguments.add_repeat(options->repeat, "Number of calls to time");
  arguments.add_option("--trace", options->trace, "File for a timeline, which Perfetto shows");
  options->compile.add_to(arguments);
  options->package.add_to(arguments);
  options->libraries.add_to(arguments);
  options->model.add_values_to(arguments);
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return run(*options); };
}

}  // namespace

const Command kRun = {
    "run", "Runs a program and shows its results.",
    "  braze run softmax.braze                                # random inputs\n"
    "  braze run softmax.braze --inputs x.npy --output out/\n"
    "  braze run step.braze --inputs all.npz --output results.npz   # by name\n"
    "  braze run step.braze --inputs x=batch.npy rate=0.1 random:7 --symbol n=64\n"
    "  braze run softmax.braze --repeat 100                   # median, p99, GB/s, GFLOP/s\n"
    "  braze run softmax.braze --device sim:cpu               # checks every access\n"
    "  braze run block.braze --mesh data=2,model=2            # on four devices\n"
    "  braze run softmax.braze --checked                      # names the op that makes a NaN\n"
    "  braze run digits.bzp --inputs pixels=x.npy             # a package\n"
    "  braze run model.onnx --inputs x.npy --symbol batch=1   # a model, for one size\n",
    add};

}  // namespace braze::tool
