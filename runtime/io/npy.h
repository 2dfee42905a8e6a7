// npy.h — the .npy format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
// Files are untrusted: every size is checked against the bytes that are there before memory is
// taken for it. Nothing but plain numbers is read, pickled objects least of all.
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

/// Reads the header from the first bytes of a file of `file_size` bytes; `prefix` is the whole file
/// or at least kMostNpyHeader bytes of it. `file` is for messages.
NpyHeader parse_npy_header(std::span<const std::byte> prefix, uint64_t file_size,
                           std::string_view file);
inline constexpr size_t kMostNpyHeader = 64 << 10;

/// The array of this header. `read` is called once, for all bytes behind the header, as many as
/// header.data_bytes.
HostTensor read_npy(const NpyHeader& header, const std::function<void(std::span<std::byte>)>& read);
/// A whole file in memory.
HostTensor parse_npy(std::span<const std::byte> bytes, std::string_view file);
/// Everything of a file before its data.
std::string npy_header_text(DType dtype, std::span<const int64_t> shape);
/// The bytes that `value` has as a file, data included.
std::vector<std::byte> npy_bytes(const HostTensor& value);

}  // namespace braze
