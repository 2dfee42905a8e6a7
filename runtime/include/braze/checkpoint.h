// checkpoint.h — saves arrays that are spread over a mesh, in one file for each device, and loads
// them on any mesh.
//
//   save_checkpoint("step-100.safetensors.index.json", state_dict(parameters));
//   parameters = restore(parameters, load_checkpoint("step-100.safetensors.index.json",
//                                                    state_dict(parameters)));
//
// The files are .safetensors files with an index, as io.h describes them. A block of an array is a
// tensor of its own, whose name says which part of the array it is: "up[0:16, 32:64]". A block that
// several devices have is written once. An array that is not cut has its own name, so that other
// programs can read it.
// docs/guides/many_devices.md has an example.
#pragma once

#include <string>

#include "braze/io.h"
#include "braze/mesh.h"

namespace braze {

/// Writes the blocks of each device into a file of its own beside the index, which is written last.
/// The index must be called NAME.safetensors.index.json; the files are called
/// NAME-00001-of-00004.safetensors, one for each device of the mesh. Arrays of one device are in
/// the first. InvalidArgument for arrays over different meshes and for names that end in ']'. If
/// the mesh has several processes, all of them call this with one path that all of them see. Each
/// process writes the files of its devices, and no process returns before the index is written. If
/// one of them cannot write, all of them throw.
void save_checkpoint(const std::string& index_path, const std::map<std::string, Array>& arrays);

/// The arrays of a checkpoint that `like` names. Each has the sharding and mesh, or the device, of
/// the array of the same name in `like`; this need not be the mesh that wrote it. InvalidArgument
/// if the checkpoint does not contain a name, or contains it with another dtype or shape; DataLoss
/// if a block is missing.
std::map<std::string, Array> load_checkpoint(const std::string& index_path,
                                             const std::map<std::string, Array>& like);
/// All arrays of a checkpoint, whole, on one device.
std::map<std::string, Array> load_checkpoint(const std::string& index_path,
                                             const Device& device = default_device());

}  // namespace braze
