// literal.h — the element types and dense literals of MLIR.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "ir/type/tensor_type.h"
#include "ir/values/host_tensor.h"

namespace braze::stablehlo {

/// The type with a name such as "f32", "ui8" or "i1". It is nullopt if Braze does not have it.
std::optional<DType> element_type(std::string_view text);

/// Reads the content of dense<...>: nested lists of numbers, one number for all elements (the
/// result has rank 0), or the bytes in hexadecimal. It throws an Error that says what does not fit
/// the type. It takes no more memory than a small multiple of the text.
std::shared_ptr<const HostTensor> read_literal(std::string_view text, const TensorType& type);

}  // namespace braze::stablehlo
