// gguf.h — models in .gguf files: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// A file holds metadata (numbers, strings and lists of them by name) and tensors, most of them
// quantised: blocks of 32 or 256 elements that share scales. It is mapped; a tensor is read when it
// is asked for.
//
// Files are untrusted: a file is accepted only as a whole, every size is checked against the bytes
// that are there before memory is taken for it, and what memory the reader takes for itself is at
// most a small multiple of the file's header.
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

/// A quantised tensor [..., k, n] as it is kept in memory: the element at (k, n) is
///   scales[k / block, n] * q + offsets[k / block, n],
/// where q is a small whole number: 4 bits of `low`, and above them 1, 2 or 4 bits of `high`, if
/// there is one. A word of 32 bits holds the bits of consecutive k, the first one lowest. q is
/// signed where the words are i32, else not. braze/quantized.h makes numbers of it, in an
/// expression; T is Array outside and Tensor inside of a compiled function.
///
/// This way lanes that lie along n read whole words and do the same to each.
template <class T>
struct Quantized {
  T low;                   ///< i32 or u32 [..., k / 8, n]
  std::vector<T> high;     ///< none, or one of the same dtype: [..., k * bits / 32, n]
  T scales;                ///< f16 or f32 [..., k / block, n]
  std::vector<T> offsets;  ///< none, or one of the type of the scales
};

/// One tensor of a file, as the file describes it.
struct GgufTensor {
  std::string type;                  ///< "F32", "Q4_K", or "type 99" for one that is not known
  std::vector<int64_t> shape;        ///< outermost extent first
  std::optional<DType> dtype;        ///< of its elements, if they are no blocks
  bool blocks = false;               ///< of blocks that Braze unpacks
  std::span<const std::byte> bytes;  ///< in the mapping; none for a type that is not known
};

class GgufFile {
 public:
  /// Maps a file. Errors: DataLoss for a path that is none and for a file cut off; InvalidArgument
  /// for one that does not follow the format.
  static GgufFile open(const std::string& path);
  /// `bytes`, which must outlive the result. `name` is for messages.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  // Metadata. InvalidArgument if there is nothing of that name, or a value of another kind.

  bool has(std::string_view key) const;
  std::vector<std::string> keys() const;  ///< of all values, in the order of the file
  std::string string(std::string_view key) const;
  int64_t integer(std::string_view key) const;  ///< of any whole type, or a bool
  double number(std::string_view key) const;    ///< of any type of numbers
  bool boolean(std::string_view key) const;
  /// Lists. The strings need not be UTF-8.
  std::vector<std::string> strings(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;

  // Tensors. InvalidArgument, with the name that is like it, for one that is not there; Unsupported
  // for one of a type that Braze does not have.

  std::vector<std::string> tensors() const;  ///< their names, in the order of the file
  bool has_tensor(std::string_view name) const;
  const GgufTensor& tensor(std::string_view name) const;
  /// The tensor on `device`: one of blocks as `dtype` (f32, f16 or bf16; each element rounded once
  /// from the f32 that ggml computes), any other in its own dtype.
  Array load(std::string_view name, const Device& device = default_device(),
             DType dtype = DType::F32) const;
  /// A tensor of blocks [..., n, k], of two axes or more, as Quantized [..., k, n]: transposed, so
  /// that a file's weight is one that `dot(x, w)` takes. With `order`, column n of the result is
  /// row order[n] of the file.
  Quantized<Array> load_quantized(std::string_view name, const Device& device = default_device(),
                                  std::span<const int64_t> order = {}) const;

  const std::string& path() const;
  struct State;  ///< runtime/io/gguf.cpp

 private:
  explicit GgufFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace braze
