// package.h — packages on the command line: telling them from texts, looking into them.
#pragma once

#include <string>
#include <vector>

#include "braze/package.h"
#include "ir/graph/sizes.h"
#include "ir/program/program.h"
#include "ir/values/host_tensor.h"
#include "tools/braze/command.h"
#include "tools/braze/files.h"

namespace braze::tool {

class Arguments;

/// Whether the file is called as packages are, or begins as they do. By its name too: whoever can
/// exchange a package must not get its rules exchanged by what he writes.
bool is_package(const std::string& path);

/// --function, --weights, --trust, --trust-key: which function of a package, and how it is loaded.
struct PackageFlags {
  std::string function, weights;
  bool trust = false;
  std::vector<std::string> trust_keys;

  void add_to(Arguments& arguments);
  /// Usage failure if any was given, for a file that is no package.
  /// `is_code`: tile or kernel text, for which --trust says something.
  void refuse_for_text(bool is_code = false) const;
  /// What is wrong with the file is a Failure with Exit::BadFile.
  Package load(const std::string& path) const;
  /// What is read besides.
  std::vector<ReadFile> files() const;
};

/// An executable, and those of its arguments that a package's weights are.
struct Runnable {
  Executable executable;
  std::vector<Array> bound;  ///< by input; empty where a call gives the value

  /// The program as one sees it who gives its inputs: name, symbols, inputs that are not bound.
  Program free_inputs() const;
  /// The shapes of the inputs that are bound.
  std::vector<GivenShape> weight_shapes() const;
  /// The arguments of a call, on the device; `values` are those of free_inputs().
  std::vector<Array> arguments(const std::vector<HostTensor>& values) const;
};

/// The function that the flags name, on a device.
Runnable load_runnable(const PackageFlags& flags, const std::string& path, const Device& device);

/// `braze inspect FILE.bzp`: what is in it.
Exit inspect_package(const std::string& path, const PackageFlags& flags, bool json);

}  // namespace braze::tool
