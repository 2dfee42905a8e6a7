// mesh_executable.h — a Program loaded on all devices of a mesh.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "braze/array.h"
#include "braze/executable.h"
#include "braze/mesh.h"

namespace braze {

/// Immutable and shareable, as an Executable.
class MeshExecutable {
 public:
  MeshExecutable() = default;
  /// InvalidArgument unless the mesh has the axes of the program.
  static MeshExecutable load(std::shared_ptr<const Program> program, const Mesh& mesh);

  /// One execution on all devices: the results of each for the arguments of each. Memory is taken
  /// on all of them before anything is submitted to any, so that ResourceExhausted leaves all
  /// arguments as they were. Calls of several threads queue in one order on all devices. Those of
  /// places of other processes have neither arguments nor results. There all processes call it; a
  /// failure in one is the call's in all, and what they donated is lost.
  std::vector<std::vector<Array>> run(std::span<const std::vector<Array>> arguments) const;

  const Executable& on(size_t device) const;  ///< its part there, in this process
  const Program& program() const;
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace braze
