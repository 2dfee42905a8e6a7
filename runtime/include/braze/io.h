// io.h — arrays in files: .npy, .npz and .safetensors.
//
// Reading: files are untrusted. Before memory is allocated for a size, the size is compared with
// the bytes that the file has. A file that is not valid as a whole is an error and never a wrong
// array: DataLoss, InvalidArgument, or Unsupported for element types that Braze does not have. A
// path that does not exist is NotFound. A path that cannot be opened or is not a regular file is
// DataLoss. A path with a NUL byte is InvalidArgument.
//
// Writing: a file appears whole, by a rename, and replaces the file that was there. If the path is
// a symbolic link of this user or root, the link stays, and the file that it points to is replaced.
// Links of other users are an error (DataLoss). The same arrays make the same bytes. Arrays of any
// device can be written; the writer waits until each is computed.
//
// Files of several arrays are a std::map of arrays by their names, which may be any text.
// `Parameters(map)` makes the parameters of a function of it (named.h), and `restore` fills a tree
// (tree_files.h).
//
// Names of some dtypes in files (BRAZE_DTYPES in dtype.h has all of them):
//
//   Braze         bool  i32  i64  u32  f16  bf16  f32  f64
//   safetensors   BOOL  I32  I64  U32  F16  BF16  F32  F64
//   NumPy         b1    i4   i8   u4   f2   V2    f4   f8
//
// NumPy has no bfloat16. Like ml_dtypes, Braze uses the type of two raw bytes (V2) for it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "braze/array.h"
#include "braze/device.h"
#include "braze/error.h"

namespace braze {

// --- .npy: one array -----------------------------------------------------------------------------

/// Reads a .npy file: format 1 to 3, either byte order, C or Fortran order.
Array load_npy(const std::string& path, const Device& device = default_device());
/// Writes a .npy file. bf16 is written as V2.
void save_npy(const std::string& path, const Array& array);

// --- .npz: arrays by name, as numpy.savez writes them --------------------------------------------

/// How the members of a .npz file are compressed.
enum class Compression : uint8_t {
  None,     ///< not at all, as by numpy.savez
  Deflate,  ///< as by numpy.savez_compressed: much slower; smaller if values repeat
};

/// Reads a .npz file: a ZIP archive of .npy files, stored or deflated. The keys are the names of
/// its members without ".npy". Checksums are verified.
std::map<std::string, Array> load_npz(const std::string& path,
                                      const Device& device = default_device());
/// Writes a .npz file. InvalidArgument for a name that is empty, is not UTF-8, has control
/// characters, or is a path that leads out of a folder.
void save_npz(const std::string& path, const std::map<std::string, Array>& arrays,
              Compression compression = Compression::None);

// --- .safetensors: weights by name ---------------------------------------------------------------

/// Reads a .safetensors file. If `path` ends in ".json" (model.safetensors.index.json), reads the
/// files that this index names, which lie in its folder. The file is mapped while it is read, so
/// its bytes are copied once, to the device.
///
/// With `names`, reads only these arrays. InvalidArgument, with the most similar name, if one does
/// not exist. Tensors of types that Braze does not have are errors only if they are asked for.
std::map<std::string, Array> load_safetensors(const std::string& path,
                                              const Device& device = default_device(),
                                              const std::vector<std::string>& names = {});
/// The metadata strings of a .safetensors file, or of the files of an index.
std::map<std::string, std::string> load_safetensors_metadata(const std::string& path);

/// Writes a .safetensors file. Names and metadata are UTF-8; the name "__metadata__" is reserved.
void save_safetensors(const std::string& path, const std::map<std::string, Array>& arrays,
                      const std::map<std::string, std::string>& metadata = {});
/// Writes several files of at most `most_bytes` of data each (an array is never split) and their
/// index. The index must be called NAME.safetensors.index.json; the files beside it are called
/// NAME-00001-of-00003.safetensors and so on. The index is written last.
void save_safetensors_shards(const std::string& index_path,
                             const std::map<std::string, Array>& arrays, uint64_t most_bytes,
                             const std::map<std::string, std::string>& metadata = {});

}  // namespace braze
