// values.h — results, for people, as JSON and in files.
#pragma once

#include <string>
#include <vector>

#include "braze/array.h"
#include "ir/values/host_tensor.h"

namespace braze::tool {

/// Type, statistics and the first elements.
void print_output(const std::string& name, const HostTensor& value);
std::string output_json(const std::string& name, const HostTensor& value);

/// Serves --output: a folder, .npz or .safetensors for all, or NAME=o.npy for one. Usage failure
/// for what is none of these.
void write_outputs(const std::vector<std::string>& flags, const std::vector<std::string>& names,
                   const std::vector<Array>& values);

}  // namespace braze::tool
