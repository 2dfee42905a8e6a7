// literal.h — element types and dense literals of MLIR.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "ir/type/tensor_type.h"
#include "ir/values/host_tensor.h"

namespace braze::stablehlo {

/// "f32", "ui8", "i1" ...; nullopt for types that Braze does not have.
std::optional<DType> element_type(std::string_view text);

/// The content of dense<...>: nested lists of numbers, one number for all elements (a tensor of
/// rank 0), or the bytes in hexadecimal. Throws an Error that says what does not fit the type.
/// Allocates no more than a small multiple of the text.
std::shared_ptr<const HostTensor> read_literal(std::string_view text, const TensorType& type);

}  // namespace braze::stablehlo
