// text.h — Programs as text, exact both ways. Bytes are not part of the text. docs/ir/program.md
// has the grammar.
//
// Code, constants and the report are blobs beside the text, in this order: the code of each
// artifact, the bytes of each constant, the report.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program/program.h"

namespace braze {

/// The text of the whole program, in which blobs are given by their size.
std::string to_text(const Program& program);

/// `Launch::ops` with the user's lines: "add.3 : f32[n] at model.cpp:12".
std::vector<std::string> op_texts(const Program& program, const Launch& launch);

/// The blobs of `program`, which must outlive them.
std::vector<std::span<const std::byte>> blobs_of(const Program& program);

/// Reads the text that `to_text` writes. Text and blobs are untrusted: the result has no findings,
/// or an Error names the line. `compile_seconds`, which is not part of the program's meaning, is 0.
Program parse_program(std::string_view text, std::string_view file_name,
                      std::span<const std::span<const std::byte>> blobs);

}  // namespace braze
