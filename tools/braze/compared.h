// compared.h — what `braze compare` compares: the graphs of a file, with values for their inputs.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/program/program.h"
#include "ir/target/target.h"
#include "ir/values/host_tensor.h"
#include "tools/braze/inputs.h"
#include "tools/braze/model.h"

namespace braze::tool {

/// A graph that is compiled, and the values of its inputs.
struct Subject {
  Graph graph;
  std::vector<HostTensor> inputs;
};

class Compared {
 public:
  /// Reads graph text or a model, and makes its inputs. What is wrong with the file is a Failure
  /// with Exit::BadFile; flags that do not fit it are a usage failure.
  Compared(const std::string& path, const InputFlags& inputs, const ModelFlags& model);

  /// The graphs that are compiled for a target: of a model, one for each value that is computed
  /// from its weights; and, as the last one, what runs in every call.
  std::vector<Subject> subjects(const Target& target) const;

 private:
  void read_model(const std::string& path, const InputFlags& inputs, ModelFlags flags);
  Program signature(size_t count) const;

  Graph graph_;
  bool is_model_ = false;
  std::vector<HostTensor> inputs_;   // those of a call
  std::vector<HostTensor> weights_;  // of a model: the values of the inputs behind them
};

}  // namespace braze::tool
