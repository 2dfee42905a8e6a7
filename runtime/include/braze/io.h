// io.h — arrays in files: .npy, .npz and .safetensors.
//
// Reading: files are untrusted. Sizes are checked against the bytes that are there before memory is
// taken for them, and a file that is not sound as a whole is an error (DataLoss, InvalidArgument;
// Unsupported for elements that Braze does not have): it never gives a wrong array. A path that
// does not exist is NotFound; one that cannot be opened or is no regular file is DataLoss; one with
// a NUL byte in it is InvalidArgument.
//
// Writing: a file appears at once and whole, by rename; what was there before is replaced. Where
// the path is a symbolic link of this user or root, the link stays, and the file that it leads to
// is replaced; links of others are an error (DataLoss). The same arrays make the same bytes. Arrays
// of any device are written; each waits until it is computed.
//
// dtypes in files:
//
//   Braze         bool  i32  i64  u32  f16  bf16  f32  f64
//   safetensors   BOOL  I32  I64  U32  F16  BF16  F32  F64
//   NumPy         b1    i4   i8   u4   f2   V2    f4   f8
//
// NumPy has no bfloat16: like ml_dtypes, Braze takes two bytes without meaning (V2) for it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "braze/array.h"
#include "braze/device.h"
#include "braze/error.h"

namespace braze {

/// Arrays by name, as files of several arrays hold them.
using ArrayMap = std::map<std::string, Array>;

// --- .npy: one array -----------------------------------------------------------------------------

/// Reads a .npy file: format 1 to 3, either byte order, C or Fortran order.
Array load_npy(const std::string& path, const Device& device = default_device());
/// Writes a .npy file. bf16 is written as V2.
void save_npy(const std::string& path, const Array& array);

// --- .npz: arrays by name, as numpy.savez writes them --------------------------------------------

enum class Compression : uint8_t {
  None,
  Deflate,  ///< as numpy.savez_compressed: slower by far, smaller where values repeat
};

/// Reads a .npz file: a ZIP archive of .npy files, stored or deflated, whose names without ".npy"
/// are the keys. Checksums are verified.
ArrayMap load_npz(const std::string& path, const Device& device = default_device());
/// Writes a .npz file. InvalidArgument for a name that is empty, not UTF-8, has control characters
/// or would be a path out of a folder.
void save_npz(const std::string& path, const ArrayMap& arrays,
              Compression compression = Compression::None);

// --- .safetensors: weights by name ---------------------------------------------------------------

/// Reads a .safetensors file; or, where `path` ends in ".json" (model.safetensors.index.json), the
/// files that this index names, which lie in its folder. The file is mapped while it is read, so
/// that its bytes are copied once, to the device.
///
/// With `names`, reads these arrays alone: InvalidArgument, with the name that is like it, for one
/// that is not there. Tensors of types that Braze does not have are errors only if they are wanted.
ArrayMap load_safetensors(const std::string& path, const Device& device = default_device(),
                          const std::vector<std::string>& names = {});
/// The strings that a .safetensors file, or those of an index, hold beside their tensors.
std::map<std::string, std::string> load_safetensors_metadata(const std::string& path);

/// Writes a .safetensors file. Names and metadata are UTF-8; the name "__metadata__" is taken.
void save_safetensors(const std::string& path, const ArrayMap& arrays,
                      const std::map<std::string, std::string>& metadata = {});
/// Writes several files of at most `most_bytes` of data each (one array is never split) and their
/// index, which must be called NAME.safetensors.index.json; the files are beside it,
/// NAME-00001-of-00003.safetensors and so on. The index is written last.
void save_safetensors_shards(const std::string& index_path, const ArrayMap& arrays,
                             uint64_t most_bytes,
                             const std::map<std::string, std::string>& metadata = {});

}  // namespace braze
