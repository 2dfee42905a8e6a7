// package.h — packages: files with functions that were compiled for one or more machines, and with
// or without their weights. docs/ir/package.md specifies them.
//
// A package is a container whose last section is its manifest, a text. Programs, their blobs and
// embedded weights are the other sections. A single Program, as caches store it, is a package of
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

/// Says that input `input` of a function has the value of the tensor `weight`.
struct WeightBinding {
  uint32_t input = 0;
  std::string weight;

  friend bool operator==(const WeightBinding&, const WeightBinding&) = default;
};

/// One function to write. Its programs have the same inputs and outputs, and are for different
/// machines or in different formats.
struct PackedFunction {
  std::string name;
  std::vector<const Program*> programs;
  std::vector<WeightBinding> weights;
};

/// The place of the weights: a safetensors file beside the package, or the bytes of one inside.
struct PackedWeights {
  std::string file;                       ///< a plain name; empty if there is none
  std::span<const std::byte> bytes = {};  ///< embedded, if not empty
};

/// The contents of a package to write. `facts` are names and texts for people, which say how the
/// package was made.
struct PackageContents {
  std::vector<PackedFunction> functions;
  PackedWeights weights = {};
  std::vector<std::pair<std::string, std::string>> facts = {};
};

/// Passes the file to `sink`, from its beginning to its end. Equal contents give equal bytes.
void write_package(const PackageContents& contents,
                   const std::function<void(std::span<const std::byte>)>& sink);

/// A package in memory. It refers to the bytes and does not own them. Programs are read when they
/// are requested.
class PackageReader {
 public:
  struct Variant {
    std::string target;                ///< the name of the target, after "sim:" if it is simulated
    std::string format;                ///< of its code: "image", "cubin", "ptx", "kernel", "graph"
    uint32_t text = 0;                 ///< the number of the section with the program's text
    std::vector<uint32_t> blobs = {};  ///< the numbers of the sections with its blobs
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

/// The name of a target in a package. It has no sizes and speeds.
std::string variant_target(const Target& target);

/// The bytes of one program, which are equal for equal programs. It is an internal error if its
/// code can run only in this process.
std::string encode(const Program& program);
/// Reads the bytes that `encode` wrote; `name` is for messages. The format of the bytes is checked,
/// but they contain code: read them only from places from which you would load a library.
Program decode(std::span<const std::byte> bytes, std::string_view name);

}  // namespace braze
