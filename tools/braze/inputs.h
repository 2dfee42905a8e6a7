// inputs.h — values for the inputs of a program: from files, random, or one number.
#pragma once

#include <string>
#include <vector>

#include "ir/graph/sizes.h"
#include "ir/program/program.h"
#include "ir/values/host_tensor.h"

namespace braze::tool {

class Arguments;

/// --inputs and --symbol.
struct InputFlags {
  std::vector<std::string> inputs;
  std::vector<std::string> symbols;
  bool of_model = false;  ///< whether the program was made from a model, which --symbol can change

  void add_to(Arguments& arguments);
  /// Values without the name of an input: files, and values that are not the name of a file.
  std::vector<std::string> paths() const;
};

struct Inputs {
  std::vector<HostTensor> values;
  Sizes sizes;  ///< of every symbol of the program
};

/// An input without a value from a flag is random, with seed 0. `weights` are shapes of arguments
/// beside the inputs of `program`, which determine sizes too. Usage failure for flags that do not
/// fit the program; Exit::BadFile for files that do not.
Inputs make_inputs(const Program& program, const InputFlags& flags,
                   const std::vector<GivenShape>& weights = {});

/// Those --symbol flags that give a number to a symbol of the program. For a model, the import has
/// taken the others.
std::vector<std::string> sizes_left_open(const Program& program,
                                         const std::vector<std::string>& symbols);

/// The largest size of every symbol of the program, except for those that `symbols` give.
Sizes largest_sizes(const Program& program, const std::vector<std::string>& symbols);

}  // namespace braze::tool
