// gguf.h — the error codes of the reader of .gguf files, which braze/gguf.h declares.
#pragma once

#include "braze/error.h"

namespace braze::codes {

inline constexpr Code kGgufFile{"gguf-file", ErrorKind::DataLoss,
                                "A .gguf file does not hold the data that its header speaks of."};
inline constexpr Code kGgufFormat{"gguf-format", ErrorKind::InvalidArgument,
                                  "A .gguf file does not follow the format."};
inline constexpr Code kGgufType{"gguf-type", ErrorKind::Unsupported,
                                "A .gguf file, or a tensor of one, is of a kind that Braze does "
                                "not read."};
inline constexpr Code kGgufMetadata{
    "gguf-metadata", ErrorKind::InvalidArgument,
    "The metadata of a .gguf file have no value of the name and kind that is asked for."};

inline constexpr Code kGgufOrder{"gguf-order", ErrorKind::InvalidArgument,
                                 "An order of rows names one that a tensor does not have."};

}  // namespace braze::codes
