// npy.h — the .npy format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
// Files are untrusted. Every size is compared with the bytes that the file has before memory is
// allocated for it. Only plain numbers are read; pickled objects are never read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/dtype.h"
#include "braze/error.h"
#include "ir/values/host_tensor.h"

namespace braze {

namespace codes {
inline constexpr Code kNpyFile{"npy-file", ErrorKind::DataLoss,
                               "A .npy file does not hold what its header says."};
inline constexpr Code kNpyFormat{"npy-format", ErrorKind::InvalidArgument,
                                 "The header of a .npy file does not follow the format."};
inline constexpr Code kNpyType{"npy-type", ErrorKind::Unsupported,
                               "A .npy file holds elements of a type that Braze does not have."};
}  // namespace codes

struct NpyHeader {
  DType dtype = DType::F32;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<int64_t> shape;
  size_t data_offset = 0;
  size_t data_bytes = 0;
};

/// Reads the header from the first bytes of a file of `file_size` bytes. `prefix` is the whole
/// file, or at least its first kMostNpyHeader bytes. `file` is for messages.
NpyHeader parse_npy_header(std::span<const std::byte> prefix, uint64_t file_size,
                           std::string_view file);
inline constexpr size_t kMostNpyHeader = 64 << 10;

/// The array with this header. `read` is called once, and must read all header.data_bytes bytes
/// after the header.
HostTensor read_npy(const NpyHeader& header, const std::function<void(std::span<std::byte>)>& read);
/// Reads a whole file in memory.
HostTensor parse_npy(std::span<const std::byte> bytes, std::string_view file);
/// The part of a file before its data.
std::string npy_header_text(DType dtype, std::span<const int64_t> shape);
/// The bytes of `value` as a file, including the data.
std::vector<std::byte> npy_bytes(const HostTensor& value);

}  // namespace braze
