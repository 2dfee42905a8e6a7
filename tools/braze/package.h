// package.h — packages on the command line: telling them from texts, looking into them.
#pragma once

#include <string>

#include "braze/package.h"
#include "tools/braze/command.h"

namespace braze::tool {

/// Whether the file begins as packages do.
bool is_package(const std::string& path);

/// --function, --weights, --trust: which function of a package, and how it is loaded.
struct PackageFlags {
  std::string function, weights;
  bool trust = false;

  void add_to(CLI::App& app);
  /// What is wrong with the file is a Failure with Exit::BadFile.
  Package load(const std::string& path) const;
};

/// `braze inspect FILE.bzp`: what is in it.
Exit inspect_package(const std::string& path, const PackageFlags& flags, bool json);

}  // namespace braze::tool
