// gguf.h — models in .gguf files: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// A file holds metadata (named numbers, strings and lists of them) and tensors. Most tensors are
// quantised: blocks of 32 or 256 elements share scales. The file is mapped, and a tensor is read
// when you ask for it.
//
// Files are untrusted. A file is accepted only if all of it is valid. Every size is compared with
// the bytes that the file has before memory is allocated for it. The memory that the reader itself
// needs is at most a small multiple of the file's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braze/array.h"
#include "braze/device.h"
#include "braze/dtype.h"

namespace braze {

/// A quantised tensor [..., k, n] in memory. The element at (k, n) is
///   scales[k / block, n] * q + offsets[k / block, n],
/// where q is a small integer. It consists of 4 bits of `low` and, above them, 1, 2 or 4 bits of
/// `high` if that exists. A word of 32 bits holds the bits of consecutive k, the first in the
/// lowest bits. q is signed if the words are i32. `dequantize` of braze/quantized.h makes an
/// expression of it. T is Array outside a compiled function and Tensor inside.
///
/// With this layout, lanes along n read whole words and treat all of them in the same way.
template <class T>
struct Quantized {
  T low;                   ///< i32 or u32 [..., k / 8, n]
  std::vector<T> high;     ///< empty, or one of the same dtype: [..., k * bits / 32, n]
  T scales;                ///< f16 or f32 [..., k / block, n]
  std::vector<T> offsets;  ///< empty, or one of the type of the scales
};

/// One tensor of a file, as the file describes it.
struct GgufTensor {
  std::string type;                  ///< "F32", "Q4_K", or "type 99" if it is unknown
  std::vector<int64_t> shape;        ///< outermost extent first
  std::optional<DType> dtype;        ///< the element type, if it is not made of blocks
  bool blocks = false;               ///< whether it is made of blocks that Braze can unpack
  std::span<const std::byte> bytes;  ///< in the mapping; empty if the type is unknown
};

/// A .gguf file that is open.
class GgufFile {
 public:
  /// Maps a file. DataLoss if the path is not a regular file or the file is cut off;
  /// InvalidArgument if it does not follow the format.
  static GgufFile open(const std::string& path);
  /// Reads `bytes`, which must outlive the result. `name` is for messages.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  // Metadata. InvalidArgument if there is no value of that name, or it is of another kind.

  bool has(std::string_view key) const;            ///< whether there is a value of this name
  std::vector<std::string> keys() const;           ///< all names, in the order of the file
  std::string string(std::string_view key) const;  ///< a string
  int64_t integer(std::string_view key) const;     ///< a value of any integer type, or a bool
  double number(std::string_view key) const;       ///< a value of any type of numbers
  bool boolean(std::string_view key) const;        ///< a bool
  /// A list of strings, which need not be UTF-8.
  std::vector<std::string> strings(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;  ///< a list of integers
  std::vector<double> numbers(std::string_view key) const;    ///< a list of numbers

  // Tensors. InvalidArgument, with the most similar name, if there is no tensor of that name;
  // Unsupported if Braze does not have its type.

  std::vector<std::string> tensors() const;      ///< their names, in the order of the file
  bool has_tensor(std::string_view name) const;  ///< whether there is a tensor of this name
  const GgufTensor& tensor(std::string_view name) const;  ///< its description
  /// Copies a tensor to `device`. A tensor of blocks becomes `dtype` (f32, f16 or bf16; each
  /// element is rounded once from the f32 that ggml computes). Any other tensor keeps its own
  /// dtype.
  Array load(std::string_view name, const Device& device = default_device(),
             DType dtype = DType::F32) const;
  /// A tensor of blocks [..., n, k], with two axes or more, as Quantized [..., k, n]. It is
  /// transposed, so that a weight of the file fits `dot(x, w)`. With `order`, column n of the
  /// result is row order[n] of the file.
  Quantized<Array> load_quantized(std::string_view name, const Device& device = default_device(),
                                  std::span<const int64_t> order = {}) const;

  const std::string& path() const;  ///< the path of the file, or its name in messages
  struct State;                     ///< runtime/io/gguf.cpp

 private:
  explicit GgufFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace braze
