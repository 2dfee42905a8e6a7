// package.h — functions compiled for several machines, and where their weights are, in one file.
// docs/ir/package.md specifies it.
//
// A package is a container whose last section is its manifest, a text. Programs, their blobs and
// embedded weights are the other sections. A Program on its own, as caches keep it, is a package of
// one function for one machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/program/container.h"
#include "ir/program/program.h"

namespace braze {

/// Input `input` of a function has the value of the tensor `weight`.
struct WeightBinding {
  uint32_t input = 0;
  std::string weight;

  friend bool operator==(const WeightBinding&, const WeightBinding&) = default;
};

/// One function to write. Its programs have the same inputs and outputs, each for a machine of its
/// own or in another format.
struct PackedFunction {
  std::string name;
  std::vector<const Program*> programs;
  std::vector<WeightBinding> weights;
};

/// Where the weights are: a safetensors file beside the package, or its bytes within.
struct PackedWeights {
  std::string file;                       ///< a plain name; empty if there is none
  std::span<const std::byte> bytes = {};  ///< embedded, if not empty
};

/// What is to be a package. `facts`: who made it of what, by name; for people.
struct PackageContents {
  std::vector<PackedFunction> functions;
  PackedWeights weights = {};
  std::vector<std::pair<std::string, std::string>> facts = {};
};

/// Hands the file to `sink`, from its beginning to its end: equal contents are equal bytes.
void write_package(const PackageContents& contents,
                   const std::function<void(std::span<const std::byte>)>& sink);

/// A package in memory. Holds no bytes of its own; programs are read when they are asked for.
class PackageReader {
 public:
  struct Variant {
    std::string target;  ///< its name, "sim:" in front if it is simulated
    std::string format;  ///< of its code: "image", "cubin", "ptx", "kernel", "graph"
    uint32_t text = 0;   ///< sections
    std::vector<uint32_t> blobs = {};
  };
  struct Function {
    std::string name;
    std::vector<Variant> variants;
    std::vector<WeightBinding> weights;
  };

  /// Reads the manifest. The bytes are untrusted; `name` is for messages.
  PackageReader(std::span<const std::byte> file, std::string_view name);

  const std::vector<Function>& functions() const { return functions_; }
  const std::vector<std::pair<std::string, std::string>>& facts() const { return facts_; }
  /// The name of the weight file beside the package; empty if there is none.
  const std::string& weight_file() const { return weight_file_; }
  /// The embedded safetensors file; empty if there is none.
  std::span<const std::byte> weight_bytes() const;

  Program program(const Variant& variant) const;

 private:
  class Parser;

  std::string name_;
  Container container_;
  std::vector<Function> functions_;
  std::vector<std::pair<std::string, std::string>> facts_;
  std::string weight_file_;
  std::optional<uint32_t> weight_section_;
};

/// The name of a target in a package: without its sizes and speeds.
std::string variant_target(const Target& target);

/// The bytes of one program; the same for equal programs. Internal if its code is only good in this
/// process.
std::string encode(const Program& program);
/// Reads what `encode` wrote; `name` is for messages. The bytes are untrusted, but what they hold
/// is code: read them only from where you would load a library from.
Program decode(std::span<const std::byte> bytes, std::string_view name);

}  // namespace braze
