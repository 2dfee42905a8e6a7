// options.h — options that several subcommands share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "braze/compile.h"
#include "braze/device.h"
#include "ir/target/target.h"

namespace braze::tool {

class Arguments;

/// How to compile: --precision, --no-fuse, --fuse-all, --schedule, --codegen, --dump.
struct CompileFlags {
  std::string precision = "standard";
  std::string codegen = "ptx";
  bool no_fuse = false, fuse_all = false;
  std::vector<std::string> schedules;
  std::string dump;

  void add_to(Arguments& arguments);
  /// The options for these targets. Usage failure if a code generator for GPUs is chosen, and no
  /// target has code for a GPU.
  CompileOptions options(std::span<const Target> targets) const;
  CompileOptions options(const Target& target) const { return options({&target, 1}); }
  /// Takes one option that follows a device: "precision=fast", "no-fuse".
  void set(const std::string& option);
  /// Usage failure if any was given, because packages are already compiled.
  void refuse_for_package() const;

  friend bool operator==(const CompileFlags&, const CompileFlags&) = default;
};

/// `text` as a device, or a usage failure that names the existing devices.
Device find_device(const std::string& text);

/// "x86-64-v3", "sim:x86-64-v4", or the text of a Target; empty: what the device "cpu" has.
Target find_target_of(const std::string& text);

}  // namespace braze::tool
