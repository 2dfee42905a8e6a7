#include "ir/program/package.h"

#include <algorithm>
#include <functional>
#include <list>

#include "ir/program/text.h"
#include "ir/support/scanner.h"
#include "ir/support/text.h"

namespace braze {

namespace {

using fmt::format;

constexpr std::string_view kOnlyFunction = "program";

std::string numbers_text(const std::vector<uint32_t>& numbers) {
  return format("[{}]", join(numbers, ", ", [](uint32_t i) { return std::to_string(i); }));
}

// The format of a program's code, which is the same for all kernels. Empty if there is no kernel.
std::string format_of(const Program& program) {
  for (const Artifact& artifact : program.artifacts)
    BRAZE_CHECK(artifact.format != "function",
                "the program holds code that is valid in this process only");
  const bool is_gpu = program.target.kind == TargetKind::Gpu && !program.target.simulated;
  // If some code is PTX, which the driver has to compile, this decides where the program can be
  // loaded.
  for (const Artifact& artifact : program.artifacts)
    if (artifact.format == "ptx") return "ptx";
  if (!program.artifacts.empty()) return program.artifacts.front().format;
  return is_gpu ? "cubin" : program.target.simulated ? "kernel" : "image";
}

}  // namespace

std::string variant_target(const Target& target) {
  return target.simulated ? "sim:" + target.name : target.name;
}

void write_package(const PackageContents& contents,
                   const std::function<void(std::span<const std::byte>)>& sink) {
  std::list<std::string> texts;
  ContainerWriter writer;
  std::string manifest = "braze 1 package\n";
  for (const auto& [name, value] : contents.facts)
    manifest += format("fact {} {}\n", quote(name), quote(value));
  for (const PackedFunction& function : contents.functions) {
    manifest += format("function @{}\n", function.name);
    for (const WeightBinding& binding : function.weights)
      manifest += format("  weight {} {}\n", binding.input, quote(binding.weight));
    for (const Program* program : function.programs) {
      const std::string& text = texts.emplace_back(to_text(*program));
      const uint32_t section = writer.add(std::as_bytes(std::span(text)));
      std::vector<uint32_t> blobs;
      for (const auto& blob : blobs_of(*program)) blobs.push_back(writer.add(blob));
      manifest +=
          format("  variant {} {} section {} blobs {}\n", quote(variant_target(program->target)),
                 format_of(*program), section, numbers_text(blobs));
    }
  }
  if (!contents.weights.file.empty())
    manifest += format("weights beside {}\n", quote(contents.weights.file));
  if (!contents.weights.bytes.empty())
    manifest += format("weights section {}\n", writer.add(contents.weights.bytes));
  writer.add(std::as_bytes(std::span(manifest)));
  writer.write(sink);
}

class PackageReader::Parser {
 public:
  Parser(PackageReader& out, std::string_view text, std::string_view name)
      : out_(out), scanner_(text, name) {}

  void parse() {
    expect_header(scanner_, "package");
    while (scanner_.accept("fact")) {
      std::string name = string();
      out_.facts_.emplace_back(std::move(name), string());
    }
    while (scanner_.accept("function")) out_.functions_.push_back(parse_function());
    while (scanner_.accept("weights")) parse_weights();
    if (!scanner_.at_end()) scanner_.fail_here("more text follows the manifest");
  }

 private:
  std::string string() { return unquote(scanner_.expect_string()); }
  uint32_t number() {
    const int64_t value = scanner_.expect_integer();
    if (value < 0 || value > UINT32_MAX)
      scanner_.fail_here("the number before this is out of range");
    return static_cast<uint32_t>(value);
  }

  Function parse_function() {
    Function function{.name = std::string(scanner_.expect_symbol())};
    for (const Function& other : out_.functions_)
      if (other.name == function.name)
        scanner_.fail_here("a function with this name is already defined");
    while (scanner_.accept("weight")) {
      const uint32_t input = number();
      for (const WeightBinding& other : function.weights)
        if (other.input == input) scanner_.fail_here("this input already has a weight");
      function.weights.push_back({input, string()});
    }
    while (scanner_.accept("variant")) function.variants.push_back(parse_variant());
    if (function.variants.empty()) scanner_.fail_here("the function before this has no program");
    return function;
  }

  Variant parse_variant() {
    Variant variant{.target = string()};
    if (!find_target(variant.target)) scanner_.fail_here("the target before this is not known");
    variant.format = scanner_.expect_identifier("a format of code");
    scanner_.expect("section");
    variant.text = number();
    scanner_.expect("blobs");
    scanner_.expect("[");
    if (!scanner_.at("]")) {
      do variant.blobs.push_back(number());
      while (scanner_.accept(","));
    }
    scanner_.expect("]");
    return variant;
  }

  void parse_weights() {
    if (scanner_.accept("section")) {
      out_.weight_section_ = number();
      return;
    }
    scanner_.expect("beside");
    out_.weight_file_ = string();
    // The file must be in the package's own folder.
    if (out_.weight_file_.empty() || out_.weight_file_.find('/') != std::string::npos ||
        out_.weight_file_.starts_with('.'))
      scanner_.fail_here("the weights before this must be a file name without folders");
  }

  PackageReader& out_;
  Scanner scanner_;
};

PackageReader::PackageReader(std::span<const std::byte> file, std::string_view name)
    : name_(name), container_(file, name) {
  const auto last =
      static_cast<uint32_t>(container_.size() - 1);  // fails as damaged if there is none
  Parser(*this, container_.text(last), name_).parse();
}

std::span<const std::byte> PackageReader::weight_bytes() const {
  if (!weight_section_) return {};
  return container_.section(*weight_section_);
}

Program PackageReader::program(const Variant& variant) const {
  std::vector<std::span<const std::byte>> blobs;
  for (const uint32_t section : variant.blobs) blobs.push_back(container_.section(section));
  Program program = parse_program(container_.text(variant.text), name_, blobs);
  if (variant_target(program.target) != variant.target || format_of(program) != variant.format)
    fail(codes::kContainerDamaged,
         format("{}: a program is not for {}", quote(name_), variant.target));
  return program;
}

std::string encode(const Program& program) {
  PackageContents contents;
  contents.functions.push_back({std::string(kOnlyFunction), {&program}, {}});
  std::string bytes;
  write_package(contents, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

Program decode(std::span<const std::byte> bytes, std::string_view name) {
  const PackageReader reader(bytes, name);
  const auto& functions = reader.functions();
  if (functions.size() != 1 || functions.front().variants.size() != 1)
    fail(codes::kContainerDamaged, format("{} does not hold exactly one program", quote(name)));
  return reader.program(functions.front().variants.front());
}

}  // namespace braze
