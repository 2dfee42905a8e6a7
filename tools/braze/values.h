// values.h — results, for people, as JSON and in files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braze/array.h"
#include "ir/values/host_tensor.h"

namespace braze::tool {

class Arguments;

/// Type, statistics and the first elements.
void print_output(const std::string& name, const HostTensor& value);
std::string output_json(const std::string& name, const HostTensor& value);

/// --output: where results go. What a name ends in says what is written there.
struct OutputFlags {
  std::vector<std::string> outputs;

  void add_to(Arguments& arguments);
  /// Without the names of outputs.
  std::vector<std::string> paths() const;
};

class OutputFiles {
 public:
  /// `names` of the outputs. Usage failure for a flag that says neither a folder nor a file of a
  /// known kind, or names no output.
  OutputFiles(const OutputFlags& flags, std::vector<std::string> names);
  /// Writes all of them; `values` by output.
  void write(const std::vector<Array>& values) const;

 private:
  struct File {
    std::string path;
    std::optional<size_t> output;  // all of them if there is none
  };
  size_t find_output(const std::string& name) const;
  File all_of(const std::string& path) const;
  File one_of(const std::string& path, const std::string& name) const;

  std::vector<std::string> names_;
  std::vector<File> files_;
};

}  // namespace braze::tool
