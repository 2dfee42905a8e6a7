// mesh_executable.h — a Program loaded on all devices of a mesh.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "braze/array.h"
#include "braze/executable.h"
#include "braze/mesh.h"

namespace braze {

/// Like an Executable, it does not change after it is made, and many threads may use it.
class MeshExecutable {
 public:
  MeshExecutable() = default;
  /// InvalidArgument unless the mesh has the axes of the program.
  static MeshExecutable load(std::shared_ptr<const Program> program, const Mesh& mesh);

  /// One execution on all devices. It takes the arguments of each device, and returns the results
  /// of each device. Memory is taken on all devices before anything is submitted to any, so
  /// ResourceExhausted leaves all arguments as they were. Calls of several threads queue in one
  /// order on all devices. Places of other processes have neither arguments nor results here. If
  /// the mesh has several processes, all of them call this function; a failure in one is a failure
  /// of the call in all, and what they donated is lost.
  std::vector<std::vector<Array>> run(std::span<const std::vector<Array>> arguments) const;

  const Executable& on(size_t device) const;  ///< the part of a device of this process
  const Program& program() const;
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace braze
