// inspect_package.cpp — the contents of a package.

#include <fmt/format.h>

#include "ir/program/cuda_versions.h"
#include "ir/support/text.h"
#include "ir/support/words.h"
#include "runtime/package/package.h"
#include "tools/braze/package.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

using Variant = PackageReader::Variant;

struct Described {
  Variant variant;
  Program program;
  uint64_t code_bytes = 0;
};

std::vector<Described> describe(const PackageReader& reader,
                                const PackageReader::Function& function) {
  std::vector<Described> out;
  for (const Variant& variant : function.variants) {
    Described d{variant, reader.program(variant)};
    for (const Artifact& artifact : d.program.artifacts) d.code_bytes += artifact.code.size();
    out.push_back(std::move(d));
  }
  return out;
}

// The device memory that a call needs, in the symbols of its sizes.
Expr peak_bytes(const Program& program) {
  Expr bytes = program.arena_bytes;
  for (const ProgramOutput& output : program.outputs) {
    if (output.updates) continue;
    bytes += output.type.shape.numel() * Expr(static_cast<int64_t>(size_of(output.type.dtype)));
  }
  return bytes;
}

const WeightBinding* weight_of(const PackageReader::Function& function, size_t input) {
  for (const WeightBinding& binding : function.weights)
    if (binding.input == input) return &binding;
  return nullptr;
}

// Without a name, all functions.
bool is_wanted(const PackageFlags& flags, const PackageReader::Function& function) {
  return flags.function.empty() || function.name == flags.function;
}

std::string weights_text(const PackageReader& reader) {
  if (const auto bytes = reader.weight_bytes(); !bytes.empty())
    return fmt::format("embedded, {}", bytes_text(bytes.size()));
  if (!reader.weight_file().empty()) return reader.weight_file() + ", beside the package";
  return "none";
}

// Who signed the file, and whether the signature is valid.
struct Signed {
  std::string by;  // his public key; empty if nobody did
  std::string_view verdict;
};

Signed signed_by(const Package& package) {
  const SignedBytes file = split_signature(package.state()->file->bytes());
  if (!file.signer) return {};
  const std::string by = file.signer->to_string();
  if (!has_signatures()) return {by, "not checked"};
  return {by, signature_fault(file, {*file.signer}).empty() ? "valid" : "wrong"};
}

// --- For people ---------------------------------------------------------------------------------

void print_signature(const PackageReader::Function& function, const Program& program,
                     const PackagedFunction& packaged) {
  fmt::print("function {}\n", function.name);
  for (const std::string& symbol : packaged.symbols()) fmt::print("  size    {}\n", symbol);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const WeightBinding* weight = weight_of(function, i);
    fmt::print("  {}  {}: {}{}\n", weight ? "weight" : "input ", program.inputs[i].name,
               program.inputs[i].type.to_string(),
               weight && weight->weight != program.inputs[i].name
                   ? fmt::format(" = {}", weight->weight)
                   : "");
  }
  const std::vector<std::string> names = output_names(program.outputs);
  for (size_t i = 0; i < names.size(); ++i) {
    const ProgramOutput& output = program.outputs[i];
    fmt::print(
        "  output  {}: {}{}\n", names[i], output.type.to_string(),
        output.updates ? fmt::format(" in place of {}", program.inputs[*output.updates].name) : "");
  }
}

void print_variants(const std::vector<Described>& variants) {
  std::vector<std::vector<std::string>> rows = {
      {"target", "code", "size", "kernels", "driver", "memory of a call"}};
  for (const Described& d : variants)
    rows.push_back({d.variant.target, d.variant.format, bytes_text(d.code_bytes),
                    std::to_string(d.program.artifacts.size()), minimum_driver(d.program),
                    peak_bytes(d.program).to_string() + " B"});
  fmt::print("{}", table(rows));
}

void print_kernels(const Described& d) {
  fmt::print("  kernels for {} ({})\n", d.variant.target, d.variant.format);
  std::vector<std::vector<std::string>> rows;
  for (const Launch& launch : d.program.launches)
    rows.push_back({"  " + launch.name, launch.schedule});
  fmt::print("{}", table(rows));
}

// --- JSON ---------------------------------------------------------------------------------------

std::string variant_json(const Described& d) {
  std::vector<std::string> kernels;
  for (const Launch& launch : d.program.launches)
    kernels.push_back(json::object(
        {{"name", json::string(launch.name)}, {"schedule", json::string(launch.schedule)}}));
  return json::object({{"target", json::string(d.variant.target)},
                       {"format", json::string(d.variant.format)},
                       {"code_bytes", std::to_string(d.code_bytes)},
                       {"minimum_driver", json::string(minimum_driver(d.program))},
                       {"peak_bytes", json::string(peak_bytes(d.program).to_string())},
                       {"precision", json::string(name(d.program.precision))},
                       {"kernels", json::array(kernels)}});
}

std::string function_json(const PackageReader::Function& function,
                          const std::vector<Described>& variants,
                          const PackagedFunction& packaged) {
  const Program& program = variants.front().program;
  std::vector<std::string> symbols, inputs, outputs, programs;
  for (const std::string& symbol : packaged.symbols()) symbols.push_back(json::string(symbol));
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const WeightBinding* weight = weight_of(function, i);
    json::Members members = {{"name", json::string(program.inputs[i].name)},
                             {"type", json::string(program.inputs[i].type.to_string())}};
    if (weight) members.push_back({"weight", json::string(weight->weight)});
    inputs.push_back(json::object(members));
  }
  const std::vector<std::string> names = output_names(program.outputs);
  for (size_t i = 0; i < names.size(); ++i) {
    const ProgramOutput& output = program.outputs[i];
    json::Members members = {{"name", json::string(names[i])},
                             {"type", json::string(output.type.to_string())}};
    if (output.updates)
      members.push_back({"updates", json::string(program.inputs[*output.updates].name)});
    outputs.push_back(json::object(members));
  }
  for (const Described& d : variants) programs.push_back(variant_json(d));
  return json::object({{"name", json::string(function.name)},
                       {"symbols", json::array(symbols)},
                       {"inputs", json::array(inputs)},
                       {"outputs", json::array(outputs)},
                       {"programs", json::array(programs)}});
}

void print_json(const PackageReader& reader, const Package& package, const PackageFlags& flags) {
  std::vector<std::string> functions;
  for (const auto& function : reader.functions())
    if (is_wanted(flags, function))
      functions.push_back(
          function_json(function, describe(reader, function), package.function(function.name)));
  json::Members facts;
  for (const auto& [name, value] : reader.facts()) facts.push_back({name, json::string(value)});
  const Signed by = signed_by(package);
  const std::string signature = json::object(
      {{"by", json::string(by.by)}, {"verdict", json::string(std::string(by.verdict))}});
  json::print({{"version", std::to_string(Container::kVersion)},
               {"facts", json::object(facts)},
               {"signature", by.by.empty() ? "null" : signature},
               {"weights", json::string(weights_text(reader))},
               {"functions", json::array(functions)}});
}

}  // namespace

Exit inspect_package(const std::string& path, const PackageFlags& flags, bool json) {
  const Package package = flags.load(path);
  const PackageReader& reader = reader_of(package);
  if (!flags.function.empty()) blame(Exit::BadFile, [&] { package.function(flags.function); });
  if (json) {
    print_json(reader, package, flags);
    return Exit::Ok;
  }
  fmt::print("package of version {}\n", Container::kVersion);
  for (const auto& [name, value] : reader.facts()) fmt::print("  {}: {}\n", name, value);
  fmt::print("  weights: {}\n", weights_text(reader));
  if (const Signed by = signed_by(package); !by.by.empty())
    fmt::print("  signed by {}: {}\n", by.by, by.verdict);
  for (const auto& function : reader.functions()) {
    if (!is_wanted(flags, function)) continue;
    const std::vector<Described> variants = describe(reader, function);
    print_signature(function, variants.front().program, package.function(function.name));
    print_variants(variants);
    for (const Described& d : variants) print_kernels(d);
  }
  return Exit::Ok;
}

}  // namespace braze::tool
