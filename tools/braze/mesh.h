// mesh.h — programs over the devices of a mesh: --mesh data=2,model=2.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braze/mesh.h"
#include "compiler/passes/distribute.h"
#include "ir/program/program.h"
#include "tools/braze/source.h"

namespace braze::tool {

class Arguments;

/// --mesh.
struct MeshFlags {
  std::string mesh;

  void add_to(Arguments& arguments);
  bool is_given() const { return !mesh.empty(); }
  /// Usage failure unless it is NAME=SIZE,...
  std::vector<MeshAxis> axes() const;
  /// What each device does of the source: a graph of whole tensors, or one with collectives, which
  /// is that already. What such a graph takes and returns differently on each device is joined: its
  /// first axis for the first axis of the mesh over which it varies, and so on. What cannot be is a
  /// Failure with Exit::Compile, and another source a usage failure.
  Distributed distributed(const Source& source) const;
};

/// A program on a mesh, which takes and returns whole tensors.
class MeshJob {
 public:
  MeshJob(const MeshFlags& flags, const Source& source, const Device& device,
          const CompileOptions& options);

  const Program& program() const { return *program_; }  ///< of each device
  const std::string& mesh() const { return mesh_text_; }
  /// The program as one sees it who gives the whole inputs.
  const Program& whole() const { return whole_; }
  /// The arguments of a call, spread; `values` are those of whole().
  std::vector<Array> arguments(const std::vector<HostTensor>& values) const;
  /// The results, spread, for such arguments.
  std::vector<Array> run(std::span<const Array> arguments) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
  std::shared_ptr<const Program> program_;
  Program whole_;
  std::string mesh_text_;
};

}  // namespace braze::tool
