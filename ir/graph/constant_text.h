// constant_text.h — literal tensors as text: a scalar, a list, or bytes in hexadecimal.
#pragma once

#include <string>

#include "ir/support/scanner.h"
#include "ir/type/tensor_type.h"
#include "ir/values/host_tensor.h"

namespace braze {

/// The text of a tensor: `0.5` (if all elements are equal), `[1, 2, 3]`, `[[1, 2], [3, 4]]`, or
/// `hex"0000803f"` (the bytes in memory) where the other forms would be long or not exact.
std::string constant_text(const HostTensor& tensor);

/// Reads any of these forms as a tensor of `type`; lists may also be flat. The memory that it
/// allocates is at most a small multiple of the size of the text.
HostTensor parse_constant(Scanner& scanner, const TensorType& type);

}  // namespace braze
