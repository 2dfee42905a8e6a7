#include "ir/program/text.h"

#include <algorithm>
#include <unordered_map>

#include "ir/graph/origins.h"
#include "ir/graph/text.h"
#include "ir/program/exchanges.h"
#include "ir/program/verify.h"
#include "ir/support/scanner.h"
#include "ir/support/text.h"
#include "ir/values/bools.h"

namespace braze {

namespace {

using fmt::format;

// --- Printing -----------------------------------------------------------------------------------

std::string expr_text(const Expr& e) { return e.to_string(); }
std::string number_of(int64_t i) { return std::to_string(i); }

template <class Numbers>
std::string list_text(const Numbers& numbers) {
  return format("[{}]", join(numbers, ", ", number_of));
}
std::string list_text(const std::vector<Expr>& list) {
  return format("[{}]", join(list, ", ", expr_text));
}
std::string list_text(const std::vector<std::string>& list) {
  return format("[{}]", join(list, ", ", [](const std::string& s) { return quote(s); }));
}

std::string slot_text(const Slot& slot) {
  const auto place = [&] {
    switch (slot.kind) {
      case Slot::Kind::Input:
        return format("input {}", slot.index);
      case Slot::Kind::Output:
        return format("output {}", slot.index);
      case Slot::Kind::Constant:
        return format("constant {}", slot.index);
      case Slot::Kind::Place:
        return format("place {}", slot.index);
      case Slot::Kind::Temporary:
        break;
    }
    return format("arena[{}]", slot.offset.to_string());
  }();
  return format("{} {} {}\n", place, slot.type.to_string(), quote(slot.label));
}

std::string output_text(const ProgramOutput& output) {
  std::string out =
      format("output {}: {} = slot {}", quote(output.name), output.type.to_string(), output.slot);
  if (output.updates) out += format(" updates input {}", *output.updates);
  return out + '\n';
}

std::string artifact_text(const Artifact& artifact) {
  std::string out = format("artifact @{}: {} {} B entries ", artifact.kernel, artifact.format,
                           artifact.code.size());
  out +=
      artifact.entry_names.empty() ? list_text(artifact.entries) : list_text(artifact.entry_names);
  if (!artifact.maker.empty()) out += format(" maker {}", quote(artifact.maker));
  out += '\n';
  for (const CodeFacts& facts : artifact.facts)
    out += format("  registers {} local {} spill {} warnings {}\n", facts.registers,
                  facts.local_bytes, facts.spill_bytes, list_text(facts.warnings));
  return out;
}

std::string phase_text(const GpuPhase& phase) {
  return format("  phase block {} shared {}{}{}{}\n", phase.block, phase.shared_bytes,
                phase.cluster > 1 ? format(" cluster {}", phase.cluster) : "",
                phase.resident ? " resident" : "", phase.overlaps ? " overlaps" : "");
}

std::string tensor_map_text(const TensorMapRecipe& map) {
  return format("  tensormap buffer {}: {}{} box {} swizzle {}\n", map.buffer, name(map.dtype),
                list_text(map.extents), list_text(map.box), map.swizzle);
}

std::string custom_call_text(const Launch& launch) {
  const std::span operands(launch.buffers.data(), launch.buffers.size() - 1);
  std::string out = format("custom_call {} slots {} to slot {}", quote(launch.custom.target),
                           list_text(operands), launch.buffers.back());
  if (!launch.custom.attributes.empty())
    out += format(" attributes {}", quote(launch.custom.attributes));
  if (launch.custom.has_side_effects) out += " side_effects";
  out += format(" {}\n", quote(launch.name));
  for (const std::string& op : launch.ops) out += format("  op {}\n", quote(op));
  return out;
}

std::string launch_text(const Program& program, const Launch& launch) {
  if (launch.artifact == Launch::kCopy)
    return format("copy slot {} to slot {} {}\n", launch.buffers.at(0), launch.buffers.at(1),
                  quote(launch.name));
  if (launch.artifact == Launch::kCustomCall) return custom_call_text(launch);
  if (launch.artifact == Launch::kCollective) {
    const Collective& c = launch.collective;
    std::string out = format("collective {}", name(c.kind));
    if (reduces(c.kind)) out += format(" {}", name(c.monoid));
    out += format(" over {}", program.mesh.at(c.axis).name);
    if (const std::string_view word = offset_word(c.kind); !word.empty())
      out += format(" {} {}", word, c.offset);
    if (c.blocks != 0) out += format(" blocks {}", c.blocks);
    for (size_t b = 0; b + 1 < launch.buffers.size(); b += 2)
      out += format("{} slot {} to slot {}", b > 0 ? "," : "", launch.buffers[b],
                    launch.buffers[b + 1]);
    out += format(" {}\n", quote(launch.name));
    if (!launch.members.empty()) out += "  members " + list_text(launch.members) + '\n';
    for (const std::string& op : launch.ops) out += format("  op {}\n", quote(op));
    return out;
  }
  std::string out =
      format("launch @{} {} artifact {}\n", program.artifacts.at(launch.artifact).kernel,
             quote(launch.name), launch.artifact);
  if (!launch.members.empty())
    out += format("  members {}{}\n", list_text(launch.members), launch.unlike ? " unlike" : "");
  out += "  buffers " + list_text(launch.buffers);
  if (!launch.zeroed.empty()) out += " zeroed " + list_text(launch.zeroed);
  out += format(" scalars {} instances {} scratch {}\n", list_text(launch.scalars),
                list_text(launch.instances), launch.scratch_bytes);
  for (const GpuPhase& phase : launch.gpu) out += phase_text(phase);
  for (const TensorMapRecipe& map : launch.tensor_maps) out += tensor_map_text(map);
  if (!launch.schedule.empty()) out += format("  schedule {}\n", quote(launch.schedule));
  out += format("  reads {} writes {} flops {}\n", launch.bytes_read.to_string(),
                launch.bytes_written.to_string(), launch.flops.to_string());
  for (const std::string& op : launch.ops) out += format("  op {}\n", quote(op));
  return out;
}

// One line for each run of nodes in the same file: `lines "model.cpp" [7, 9:4, 0]`. 0 means that
// the line is unknown.
std::string locations_text(const std::vector<SourceLocation>& locations) {
  if (std::ranges::none_of(locations, [](const SourceLocation& at) { return bool(at); })) return {};
  std::string out;
  std::string_view file;
  for (const SourceLocation& at : locations) {
    const bool goes_on = !out.empty() && (!at || at.file == file);
    if (at) file = at.file;
    if (!goes_on) out += format("{}lines {} [", out.empty() ? "" : "]\n", quote(file));
    out += format("{}{}", goes_on ? ", " : "", at.line);
    if (at.column) out += format(":{}", at.column);
  }
  return out + "]\n";
}

// --- Parsing ------------------------------------------------------------------------------------

using Blobs = std::span<const std::span<const std::byte>>;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ProgramParser {
 public:
  ProgramParser(std::string_view text, std::string_view file_name, Blobs blobs)
      : scanner_(text, file_name),
        blobs_(blobs),
        lookup_([this](std::string_view name) { return symbol(name); }) {}

  Program parse() {
    expect_header(scanner_, "program");
    while (scanner_.accept("symbol")) parse_declaration();
    while (scanner_.accept("mesh")) out_.mesh.push_back(parse_mesh_axis(scanner_));
    parse_head();
    while (scanner_.accept("input")) parse_input();
    while (scanner_.accept("output")) parse_output();
    while (scanner_.accept("slot")) parse_slot();
    scanner_.expect("arena");
    out_.arena_bytes = expression();
    while (scanner_.accept("artifact")) parse_artifact();
    while (scanner_.accept("constant")) parse_constant();
    while (scanner_.accept("lines")) parse_lines();
    while (!scanner_.at_end()) parse_launch();
    out_.report = as_text(next_blob());
    if (blob_ != blobs_.size())
      scanner_.fail_here("there are more blobs than the program refers to");
    fail_if_any(verify(out_), "the program breaks rules of its language");
    return std::move(out_);
  }

 private:
  Expr symbol(std::string_view name) const {
    const auto found = symbols_.find(name);
    if (found == symbols_.end())
      scanner_.fail_here(format("the symbol {} is not declared", quote(name)));
    return found->second;
  }
  Expr expression() { return parse_expr(scanner_, lookup_); }
  std::string string() { return unquote(scanner_.expect_string()); }
  template <class Int>
  Int number() {
    const int64_t value = scanner_.expect_integer();
    const bool fits = std::is_signed_v<Int> ? value >= 0 && value <= std::numeric_limits<Int>::max()
                                            : value >= 0 && static_cast<uint64_t>(value) <=
                                                                std::numeric_limits<Int>::max();
    if (!fits) scanner_.fail_here("the number before this is out of range");
    return static_cast<Int>(value);
  }
  template <class Read>
  void list(Read&& read) {
    scanner_.expect("[");
    if (scanner_.accept("]")) return;
    do read();
    while (scanner_.accept(","));
    scanner_.expect("]");
  }
  std::vector<uint32_t> numbers() {
    std::vector<uint32_t> out;
    list([&] { out.push_back(number<uint32_t>()); });
    return out;
  }
  std::vector<Expr> expressions() {
    std::vector<Expr> out;
    list([&] { out.push_back(expression()); });
    return out;
  }
  std::vector<std::string> strings() {
    std::vector<std::string> out;
    list([&] { out.push_back(string()); });
    return out;
  }
  std::span<const std::byte> next_blob() {
    if (blob_ == blobs_.size())
      scanner_.fail_here("there are fewer blobs than the program refers to");
    return blobs_[blob_++];
  }
  // Reads one of the words, and returns its position in the list.
  size_t word(std::span<const std::string_view> words, std::string_view what) {
    const std::string_view given = scanner_.peek().text;
    const auto found = std::find(words.begin(), words.end(), given);
    if (found == words.end()) scanner_.fail_here(format("expected {}", what));
    scanner_.next();
    return static_cast<size_t>(found - words.begin());
  }

  void parse_declaration() {
    const std::string_view name = scanner_.peek().text;
    if (symbols_.contains(name)) scanner_.fail_here("this symbol is already declared");
    out_.symbols.push_back(parse_symbol(scanner_));
    symbols_.emplace(name, out_.symbols.back());
  }

  void parse_head() {
    scanner_.expect("program");
    out_.name = scanner_.expect_symbol();
    scanner_.expect("target");
    out_.target = parse_target(string());
    scanner_.expect("precision");
    constexpr Precision kPrecisions[] = {Precision::Strict, Precision::Standard, Precision::Fast};
    constexpr std::string_view kNames[] = {name(kPrecisions[0]), name(kPrecisions[1]),
                                           name(kPrecisions[2])};
    out_.precision = kPrecisions[word(kNames, "a precision")];
    scanner_.expect("ops");
    out_.ops_before_fusion = number<int>();
  }

  void parse_input() {
    ProgramInput input{string(), {}};
    scanner_.expect(":");
    input.type = parse_type(scanner_, lookup_);
    if (scanner_.accept("varying")) list([&] { input.varying.push_back(mesh_axis()); });
    out_.inputs.push_back(std::move(input));
  }

  void parse_output() {
    ProgramOutput output{string(), {}};
    scanner_.expect(":");
    output.type = parse_type(scanner_, lookup_);
    scanner_.expect("=");
    scanner_.expect("slot");
    output.slot = number<uint32_t>();
    if (scanner_.accept("updates")) {
      scanner_.expect("input");
      output.updates = number<uint32_t>();
    }
    out_.outputs.push_back(std::move(output));
  }

  void parse_slot() {
    if (number<uint32_t>() != out_.slots.size())
      scanner_.fail_here("slots must be numbered from 0 on, in order");
    scanner_.expect(":");
    Slot slot;
    constexpr std::string_view kPlaces[] = {"input", "output", "constant", "place", "arena"};
    constexpr Slot::Kind kKinds[] = {Slot::Kind::Input, Slot::Kind::Output, Slot::Kind::Constant,
                                     Slot::Kind::Place, Slot::Kind::Temporary};
    slot.kind = kKinds[word(kPlaces, "input, output, constant, place or arena")];
    if (slot.kind == Slot::Kind::Temporary) {
      scanner_.expect("[");
      slot.offset = expression();
      scanner_.expect("]");
    } else {
      slot.index = number<uint32_t>();
    }
    slot.type = parse_type(scanner_, lookup_);
    slot.label = string();
    out_.slots.push_back(std::move(slot));
  }

  void parse_artifact() {
    Artifact artifact;
    artifact.kernel = scanner_.expect_symbol();
    scanner_.expect(":");
    // "function" is not among them, because an address is valid in one process only.
    constexpr std::string_view kFormats[] = {"graph", "tile", "kernel", "image", "ptx", "cubin"};
    artifact.format = kFormats[word(kFormats, "a format of code")];
    parse_code(artifact);
    scanner_.expect("entries");
    if (artifact.format == "ptx" || artifact.format == "cubin") {
      artifact.entry_names = strings();
    } else {
      list([&] { artifact.entries.push_back(number<uint64_t>()); });
    }
    if (scanner_.accept("maker")) artifact.maker = string();
    while (scanner_.accept("registers")) parse_facts(artifact);
    out_.artifacts.push_back(std::move(artifact));
  }
  void parse_code(Artifact& artifact) {
    const auto size = number<uint64_t>();
    scanner_.expect("B");
    artifact.code = as_text(next_blob());
    if (artifact.code.size() != size) scanner_.fail_here("the code does not have the written size");
  }
  void parse_facts(Artifact& artifact) {
    CodeFacts facts{.registers = number<int>()};
    scanner_.expect("local");
    facts.local_bytes = number<int64_t>();
    scanner_.expect("spill");
    facts.spill_bytes = number<int64_t>();
    scanner_.expect("warnings");
    facts.warnings = strings();
    artifact.facts.push_back(std::move(facts));
  }

  void parse_constant() {
    const TensorType type = parse_type(scanner_, lookup_);
    const std::span<const std::byte> blob = next_blob();
    if (!type.shape.is_static()) scanner_.fail_here("the shape of a constant cannot be symbolic");
    std::vector<int64_t> shape = type.shape.static_dims();
    const auto count = static_cast<uint64_t>(checked_numel(shape));
    // The size is checked before memory is allocated.
    if (count > blob.size() || count * size_of(type.dtype) != blob.size())
      scanner_.fail_here("the constant does not have the size of its type");
    auto value = std::make_shared<HostTensor>(type.dtype, std::move(shape));
    std::copy(blob.begin(), blob.end(), value->data());
    if (type.dtype == DType::Bool) make_bools({value->data(), value->size_bytes()});
    out_.constants.push_back(std::move(value));
  }

  void parse_lines() {
    const std::string file = string();
    list([&] {
      const auto line = number<uint32_t>();
      const uint32_t column = scanner_.accept(":") ? number<uint32_t>() : 0;
      out_.locations.push_back(line == 0 ? SourceLocation() : SourceLocation(file, line, column));
    });
  }

  void parse_launch() {
    if (scanner_.accept("copy")) return parse_copy();
    if (scanner_.accept("collective")) return parse_together();
    if (scanner_.accept("custom_call")) return parse_custom_call();
    scanner_.expect("launch");
    Launch launch;
    scanner_.expect_symbol();
    launch.name = string();
    scanner_.expect("artifact");
    launch.artifact = number<uint32_t>();
    if (scanner_.accept("members")) {
      launch.members = strings();
      launch.unlike = scanner_.accept("unlike");
    }
    scanner_.expect("buffers");
    launch.buffers = numbers();
    if (scanner_.accept("zeroed")) launch.zeroed = numbers();
    scanner_.expect("scalars");
    launch.scalars = expressions();
    scanner_.expect("instances");
    launch.instances = expressions();
    scanner_.expect("scratch");
    launch.scratch_bytes = number<int64_t>();
    while (scanner_.accept("phase")) launch.gpu.push_back(parse_phase());
    while (scanner_.accept("tensormap")) launch.tensor_maps.push_back(parse_tensor_map());
    if (scanner_.accept("schedule")) launch.schedule = string();
    scanner_.expect("reads");
    launch.bytes_read = expression();
    scanner_.expect("writes");
    launch.bytes_written = expression();
    scanner_.expect("flops");
    launch.flops = expression();
    while (scanner_.accept("op")) launch.ops.push_back(string());
    out_.launches.push_back(std::move(launch));
  }

  // Reads the name of an axis of the mesh.
  uint32_t mesh_axis() {
    const std::string_view given = scanner_.peek().text;
    const auto found = std::ranges::find(out_.mesh, given, &MeshAxis::name);
    if (found == out_.mesh.end()) scanner_.fail_here("the mesh has no such axis");
    scanner_.next();
    return static_cast<uint32_t>(found - out_.mesh.begin());
  }

  void parse_together() {
    Launch launch{.artifact = Launch::kCollective};
    const auto kind = parse_collective(scanner_.peek().text);
    if (!kind) scanner_.fail_here("expected a collective");
    scanner_.next();
    launch.collective.kind = *kind;
    if (reduces(*kind)) {
      const auto monoid = parse_monoid(scanner_.peek().text);
      if (!monoid) scanner_.fail_here("expected a monoid");
      scanner_.next();
      launch.collective.monoid = *monoid;
    }
    scanner_.expect("over");
    launch.collective.axis = mesh_axis();
    if (const std::string_view word = offset_word(*kind); !word.empty()) {
      scanner_.expect(word);
      launch.collective.offset = number<int64_t>();
    }
    if (scanner_.accept("blocks")) launch.collective.blocks = number<int64_t>();
    do parse_between(launch);
    while (scanner_.accept(","));
    launch.name = string();
    if (scanner_.accept("members")) launch.members = strings();
    while (scanner_.accept("op")) launch.ops.push_back(string());
    for (const uint32_t slot : launch.buffers)
      if (slot >= out_.slots.size()) scanner_.fail_here("the program has no such slot");
    describe_exchange(out_, launch);
    out_.launches.push_back(std::move(launch));
  }

  void parse_custom_call() {
    Launch launch{.artifact = Launch::kCustomCall};
    launch.custom.target = string();
    scanner_.expect("slots");
    launch.buffers = numbers();
    scanner_.expect("to");
    scanner_.expect("slot");
    launch.buffers.push_back(number<uint32_t>());
    if (scanner_.accept("attributes")) launch.custom.attributes = string();
    launch.custom.has_side_effects = scanner_.accept("side_effects");
    launch.name = string();
    while (scanner_.accept("op")) launch.ops.push_back(string());
    for (const uint32_t slot : launch.buffers)
      if (slot >= out_.slots.size()) scanner_.fail_here("the program has no such slot");
    describe_custom_call(out_, launch);
    out_.launches.push_back(std::move(launch));
  }

  void parse_copy() {
    Launch launch{.artifact = Launch::kCopy};
    parse_between(launch);
    launch.name = string();
    out_.launches.push_back(std::move(launch));
  }
  // Reads `slot 1 to slot 2`.
  void parse_between(Launch& launch) {
    scanner_.expect("slot");
    launch.buffers.push_back(number<uint32_t>());
    scanner_.expect("to");
    scanner_.expect("slot");
    launch.buffers.push_back(number<uint32_t>());
  }

  GpuPhase parse_phase() {
    GpuPhase phase;
    scanner_.expect("block");
    phase.block = number<int64_t>();
    scanner_.expect("shared");
    phase.shared_bytes = number<int64_t>();
    if (scanner_.accept("cluster")) phase.cluster = number<int64_t>();
    phase.resident = scanner_.accept("resident");
    phase.overlaps = scanner_.accept("overlaps");
    return phase;
  }

  TensorMapRecipe parse_tensor_map() {
    TensorMapRecipe map;
    scanner_.expect("buffer");
    map.buffer = number<uint32_t>();
    scanner_.expect(":");
    const TensorType type = parse_type(scanner_, lookup_);
    map.dtype = type.dtype;
    map.extents = type.shape.dims();
    scanner_.expect("box");
    list([&] { map.box.push_back(number<int64_t>()); });
    scanner_.expect("swizzle");
    map.swizzle = number<int>();
    return map;
  }

  Scanner scanner_;
  const Blobs blobs_;
  const std::function<Expr(std::string_view)> lookup_;
  size_t blob_ = 0;  // the number of the next blob
  Program out_;
  std::unordered_map<std::string_view, Expr> symbols_;
};

}  // namespace

std::string to_text(const Program& program) {
  std::string out = "braze 1 program\n";
  for (const Expr& symbol : program.symbols) out += symbol_text(symbol) + '\n';
  for (const MeshAxis& axis : program.mesh) out += mesh_axis_text(axis) + '\n';
  out +=
      format("program @{}\ntarget {}\nprecision {}\nops {}\n", program.name,
             quote(program.target.to_string()), name(program.precision), program.ops_before_fusion);
  for (const ProgramInput& input : program.inputs) {
    out += format("input {}: {}", quote(input.name), input.type.to_string());
    if (!input.varying.empty())
      out += format(" varying [{}]", join(input.varying, ", ", [&](uint32_t axis) {
                      return program.mesh.at(axis).name;
                    }));
    out += '\n';
  }
  for (const ProgramOutput& output : program.outputs) out += output_text(output);
  for (size_t i = 0; i < program.slots.size(); ++i)
    out += format("slot {}: {}", i, slot_text(program.slots[i]));
  out += format("arena {}\n", program.arena_bytes.to_string());
  for (const Artifact& artifact : program.artifacts) out += artifact_text(artifact);
  for (const auto& constant : program.constants)
    out += format("constant {}{}\n", name(constant->dtype()), list_text(constant->shape()));
  out += locations_text(program.locations);
  for (const Launch& launch : program.launches) out += launch_text(program, launch);
  return out;
}

std::vector<std::string> op_texts(const Program& program, const Launch& launch) {
  std::vector<std::string> texts;
  for (const std::string& op : launch.ops) texts.push_back(with_locations(op, program.locations));
  return texts;
}

std::vector<std::span<const std::byte>> blobs_of(const Program& program) {
  std::vector<std::span<const std::byte>> blobs;
  for (const Artifact& artifact : program.artifacts)
    blobs.push_back(std::as_bytes(std::span(artifact.code)));
  for (const auto& constant : program.constants)
    blobs.push_back({constant->data(), constant->size_bytes()});
  blobs.push_back(std::as_bytes(std::span(program.report)));
  return blobs;
}

Program parse_program(std::string_view text, std::string_view file_name, Blobs blobs) {
  return ProgramParser(text, file_name, blobs).parse();
}

}  // namespace braze
