// codes.h — the causes of failure of tokenizers.
#pragma once

#include "braze/error.h"

namespace braze::codes {

inline constexpr Code kTokenizerFormat{"tokenizer-format", ErrorKind::InvalidArgument,
                                       "A tokenizer's file does not follow its format."};
inline constexpr Code kTokenizerKind{"tokenizer-kind", ErrorKind::Unsupported,
                                     "Braze does not support this tokenizer, or a part of it."};
inline constexpr Code kTokenizerText{"tokenizer-text", ErrorKind::InvalidArgument,
                                     "A text that is to be encoded is not UTF-8."};
inline constexpr Code kTokenizerLimit{"tokenizer-limit", ErrorKind::ResourceExhausted,
                                      "A text exceeds the limits of a tokenizer's pattern."};

}  // namespace braze::codes
