// json_string.h — text within JSON.
#pragma once

#include <string>
#include <string_view>

namespace braze {

/// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace braze
