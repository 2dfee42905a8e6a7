// package.h — packages on the command line: how they are told from texts, and how they are loaded.
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

/// Whether the file has the name of a package, or begins like one. The name counts too: a person
/// who can replace a package must not change the rules for it by what he writes.
bool is_package(const std::string& path);

/// --function, --weights, --trust, --trust-key: which function of a package, and how it is loaded.
struct PackageFlags {
  std::string function, weights;
  bool trust = false;
  std::vector<std::string> trust_keys;

  void add_to(Arguments& arguments);
  /// Usage failure if any was given for a file that is not a package. `is_code`: tile or kernel
  /// text, for which --trust has a meaning.
  void refuse_for_text(bool is_code = false) const;
  /// A fault in the file is a Failure with Exit::BadFile.
  Package load(const std::string& path) const;
  /// What is read besides.
  std::vector<ReadFile> files() const;
};

/// --load: libraries of functions that graphs call (custom_function.h).
struct LibraryFlags {
  std::vector<std::string> libraries;

  void add_to(Arguments& arguments);
  /// Loads them, in order. One that cannot be loaded is a Failure with Exit::BadFile.
  void load() const;
};

/// An executable, and the arguments that come from the package's weights.
struct Runnable {
  Executable executable;
  std::vector<Array> bound;  ///< by input; empty where a call gives the value

  /// The program as the caller sees it: name, symbols, and inputs that are not bound.
  Program free_inputs() const;
  /// The shapes of the inputs that are bound.
  std::vector<GivenShape> weight_shapes() const;
  /// The arguments of a call, on the device; `values` are those of free_inputs().
  std::vector<Array> arguments(const std::vector<HostTensor>& values) const;
  /// Makes those arguments anew that a call takes over, so that the next call has them too.
  void renew(std::vector<Array>& arguments, const std::vector<HostTensor>& values) const;
};

/// The function that the flags name, on a device.
Runnable load_runnable(const PackageFlags& flags, const std::string& path, const Device& device);

/// `braze inspect FILE.bzp`: what is in it.
Exit inspect_package(const std::string& path, const PackageFlags& flags, bool json);

}  // namespace braze::tool
