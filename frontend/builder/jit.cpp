#include "braze/jit.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "frontend/builder/builder.h"
#include "frontend/builder/checked.h"
#include "frontend/builder/compiled.h"
#include "frontend/builder/signature_history.h"
#include "frontend/builder/tracing.h"
#include "ir/graph/check.h"
#include "ir/graph/origins.h"
#include "ir/graph/rewrite.h"
#include "ir/graph/sizes.h"
#include "ir/graph/text.h"
#include "ir/program/program.h"
#include "ir/support/fork.h"
#include "ir/support/text.h"
#include "ir/support/warning.h"
#include "runtime/cache/memory_cache.h"

namespace braze {
namespace codes {
inline constexpr Code kDeviceMismatch{"device-mismatch", ErrorKind::InvalidArgument,
                                      "The arguments of one call are on different devices."};
inline constexpr Code kNotCalled{"not-called", ErrorKind::InvalidArgument,
                                 "A compiled function was asked about before its first call."};
inline constexpr Code kBadJitOption{"bad-jit-option", ErrorKind::InvalidArgument,
                                    "An option of a compiled function is out of its range."};
}  // namespace codes

std::string Spec::to_string() const {
  return given ? TensorType{dtype, to_shape(shape)}.to_string() : "as given";
}

Spec spec(DType dtype, Dims shape) { return {dtype, std::move(shape), true}; }

namespace detail {
struct Specialization {
  uint64_t structure = 0;
  Device device;
  std::vector<LeafSignature> leaves;
  std::shared_ptr<const Graph> graph;
  std::optional<CheckedGraph> checked;  // in checked mode: what `executable` was made from
  Executable executable;
  std::shared_ptr<const void> skeleton;
  std::vector<NumberUse> number_uses;

  bool admits(uint64_t wanted, std::span<const Array> arguments) const {
    if (wanted != structure || arguments.size() != leaves.size()) return false;
    for (size_t i = 0; i < leaves.size(); ++i)
      if (!leaves[i].admits(arguments[i]) || !(arguments[i].device() == device)) return false;
    // A call without arguments runs on the caller's default device.
    return !arguments.empty() || device == default_device();
  }
};

struct JitCore::State {
  State(std::vector<Spec> s, JitOptions o, std::source_location w)
      : specs(std::move(s)),
        options(std::move(o)),
        where(w),
        tracer{options.name, options.donate, options.inputs, w},
        specializations(options.most_specializations) {}

  const std::vector<Spec> specs;
  const JitOptions options;
  const std::source_location where;
  const Tracer tracer;
  MemoryCache<SpecializationRef> specializations;
  std::mutex history_mutex;
  SignatureHistory history;
  bool warned = false;

  std::string argument_name(int position) const { return tracer.argument_name(position); }

  /// The device that all arguments have in common.
  Device common_device(std::span<const Array> arguments, const TracedCall& call) const;
  SpecializationRef make(uint64_t structure, const Device& device, const std::vector<Spec>& leaves,
                         const TracedCall& call) const;
  /// Warns if the function is compiled again and again.
  void note_compilation(const Device& device, const std::vector<Spec>& leaves,
                        const TracedCall& call);
};

JitCore::JitCore(std::vector<Spec> specs, JitOptions options, std::source_location where)
    : state_(std::make_unique<State>(std::move(specs), std::move(options), where)) {
  // The name is part of the graph's text, and it names the folder of a dump.
  constexpr size_t kLongest = 100;
  const std::string& name = state_->options.name;
  if (!is_name(name) || name.size() > kLongest)
    fail(codes::kBadName,
         fmt::format("{} cannot be the name of a function", quote(name.substr(0, kLongest))),
         {.location = where,
          .fix =
              fmt::format("use at most {} letters, digits, '_' and dots between them", kLongest)});
  if (state_->options.most_specializations == 0 || state_->options.warn_after < 0)
    fail(codes::kBadJitOption,
         fmt::format("{}: most_specializations is {}, which must be 1 or more, and warn_after is "
                     "{}, which must be 0 or more",
                     name, state_->options.most_specializations, state_->options.warn_after),
         {.location = where});
}
JitCore::~JitCore() = default;

Device JitCore::State::common_device(std::span<const Array> arguments,
                                     const TracedCall& call) const {
  const auto places = call.leaves();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!arguments[i].valid())
      fail(codes::kSpecMismatch,
           fmt::format("{}: {}{} is an empty Array", options.name, argument_name(places[i].first),
                       places[i].second),
           {.location = where});
  const Device device = arguments.empty() ? default_device() : arguments[0].device();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!(arguments[i].device() == device))
      fail(codes::kDeviceMismatch,
           fmt::format("{}: {}{} is on {}, but {}{} is on {}", options.name,
                       argument_name(places[0].first), places[0].second, device.name(),
                       argument_name(places[i].first), places[i].second,
                       arguments[i].device().name()),
           {.location = where, .fix = fmt::format("move it with .to(\"{}\")", device.name())});
  return device;
}

SpecializationRef JitCore::State::make(uint64_t structure, const Device& device,
                                       const std::vector<Spec>& leaves,
                                       const TracedCall& call) const {
  auto made = std::make_shared<Specialization>();
  made->structure = structure;
  made->device = device;
  for (const Spec& leaf : leaves) made->leaves.emplace_back(leaf);
  Traced traced;
  made->graph = std::make_shared<const Graph>(tracer.trace(call, leaves, traced));
  made->skeleton = traced.skeleton;
  made->number_uses = std::move(traced.number_uses);
  CompileOptions how = options.compile;
  if (options.checked) {
    made->checked.emplace(*made->graph);
    how.precision = Precision::Strict;
  }
  made->executable =
      compiled_executable(made->checked ? made->checked->graph() : *made->graph, device, how);
  return made;
}

void JitCore::State::note_compilation(const Device& device, const std::vector<Spec>& leaves,
                                      const TracedCall& call) {
  const auto compilations = specializations.stats().made;
  const std::lock_guard lock(history_mutex);
  if (warned || options.warn_after == 0) return;
  const auto places = call.leaves();
  std::string paths;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::string name = argument_name(places[i].first) + places[i].second;
    history.add("the dtype of " + name, std::string(braze::name(leaves[i].dtype)));
    history.add("the rank of " + name, std::to_string(leaves[i].shape.size()));
    for (size_t axis = 0; axis < leaves[i].shape.size(); ++axis)
      history.add(fmt::format("axis {} of {}", axis, name),
                  to_expr(leaves[i].shape[axis]).to_string());
    paths += (i ? ", " : "") + name;
  }
  history.add("the device", device.name());
  history.add("the list of arrays", "(" + paths + ")");
  if (compilations < static_cast<uint64_t>(options.warn_after)) return;
  warned = true;
  const std::string changes = history.changes();
  warn(
      fmt::format("{} at {} was compiled {} times: {}. A size that is declared, as in "
                  "jit(f, {{spec(f32, {{\"n:1..64\", 64}})}}), is compiled once; "
                  "JitOptions{{.warn_after = 0}} silences this",
                  options.name, SourceLocation(where).to_string(), compilations,
                  changes.empty() ? "its arguments had other C++ types" : changes));
}

SpecializationRef JitCore::prepare(FlatCall& flat, const TracedCall& call) {
  refuse_if_forked();
  State& state = *state_;
  if (!flat.numbers.empty()) {
    const auto first = std::ranges::find_if(flat.arrays, &Array::valid);
    flat.add_numbers(first == flat.arrays.end() ? default_device() : first->device());
  }
  const auto admits = [&](const SpecializationRef& known) {
    return known->admits(flat.structure, flat.arrays);
  };
  std::optional<SpecializationRef> known = state.specializations.find(admits);
  if (!known) {
    state.tracer.refuse_recursion();
    const Device device = state.common_device(flat.arrays, call);
    const std::vector<Spec> leaves = state.tracer.leaf_specs(call, state.specs);
    std::string key = fmt::format("{:x} {}", flat.structure, device.name());
    for (const Spec& leaf : leaves) key += " " + leaf.to_string();
    bool is_new = false;
    known = state.specializations.get_or_make(hash128(key), [&] {
      is_new = true;
      return state.make(flat.structure, device, leaves, call);
    });
    if (is_new) state.note_compilation(device, leaves, call);
  }
  state.tracer.check_numbers(flat, call, (*known)->number_uses);
  return std::move(*known);
}

std::string JitCore::graph_text(const TracedCall& call) const {
  Traced traced;
  const std::vector<Spec> leaves = state_->tracer.leaf_specs(call, state_->specs);
  state_->tracer.refuse_recursion();
  return to_text(state_->tracer.trace(call, leaves, traced));
}

SpecializationRef JitCore::last(std::source_location where) const {
  std::optional<SpecializationRef> last = state_->specializations.last_used();
  if (!last)
    fail(codes::kNotCalled,
         fmt::format("{} was not called yet, so nothing is compiled", state_->options.name),
         {.location = where, .fix = "call it first"});
  return std::move(*last);
}

int JitCore::compile_count() const {
  return static_cast<int>(state_->specializations.stats().made);
}

std::vector<Array> run(const Specialization& specialization, std::span<const Array> arguments) {
  if (specialization.checked)
    return specialization.checked->run(specialization.executable, arguments);
  return specialization.executable.run(arguments);
}
const Executable& executable(const Specialization& specialization) {
  return specialization.executable;
}
std::shared_ptr<const Program> program(const SpecializationRef& specialization) {
  return {specialization, &specialization->executable.program()};
}
const void* skeleton(const Specialization& specialization) { return specialization.skeleton.get(); }
std::string explain(const Specialization& specialization) {
  const Program& program = specialization.executable.program();
  return with_locations(program.report, program.locations);
}

CompileSummary summary(const Specialization& specialization) {
  const Program& program = specialization.executable.program();
  return {program.ops_before_fusion, static_cast<int>(program.launches.size()),
          program.compile_seconds};
}

CheckReport check(const Specialization& specialization, std::span<const Array> arguments) {
  std::vector<HostTensor> inputs;
  std::vector<Array> copies;
  for (const Array& argument : arguments) {
    inputs.push_back(argument.to_host());
    copies.push_back(Array::from_host(inputs.back(), argument.device()));
  }
  std::vector<HostTensor> got;
  for (const Array& result : run(specialization, copies)) got.push_back(result.to_host());
  return report_of(check_outputs(*specialization.graph, inputs, got,
                                 specialization.executable.program().precision));
}

CheckReport report_of(const CheckResult& result) {
  CheckReport report{
      .ok = result.ok, .judged = result.coverage().share(), .text = result.summary()};
  for (const OutputCheck& output : result.outputs) {
    report.largest_error = std::max(report.largest_error, output.comparison.max_ratio);
    if (output.comparison.coverage.vacuous()) report.unjudged.push_back(output.name);
  }
  report.ok &= !result.coverage().vacuous();
  return report;
}

Spec spec_of(const Array& array) {
  return spec(array.dtype(), Dims(array.shape().begin(), array.shape().end()));
}

Spec spec_of(const Operand& number) {
  switch (number.kind()) {
    case Operand::Kind::Boolean:
      return spec(boolean, {});
    case Operand::Kind::Integer:
      return spec(i64, {});
    case Operand::Kind::Unsigned:
      return spec(u64, {});
    default:
      return spec(f64, {});
  }
}

void FlatCall::add_numbers(const Device& device) {
  for (const auto& [place, number] : numbers) {
    HostTensor value(spec_of(number).dtype, {});
    if (number.kind() == Operand::Kind::Real)
      value.set_double(0, number.real());
    else
      value.set_int(0, number.integer());
    arrays[place] = Array::from_host(value, device);
  }
}

Tensor constant_number(const Operand& number) {
  const auto& builder = current_builder(place(number.where()));
  return as_number(as_tensor(number, builder, spec_of(number).dtype, "a number", number.where()));
}

}  // namespace detail
}  // namespace braze
