// target.h — what a fuzz target is: a reader of untrusted bytes, in libFuzzer's form.
//
// A target reads the bytes as one format. An Error other than an internal one is a right answer;
// anything else that leaves the reader, a sanitizer's report or a value that does not survive being
// written and read again ends the process. Two programs drive each target: libFuzzer (preset
// "fuzz"), and replay.cpp, which is in the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "braze/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace braze::fuzz {

/// Whether the format is text, which is changed by words rather than by bytes.
extern const bool kIsText;

[[noreturn]] inline void stop(std::string_view what, std::string_view detail) {
  std::fprintf(stderr, "fuzz: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(detail.size()), detail.data());
  std::abort();
}

/// Runs `read`; false if it refused its input with an Error that blames the input.
template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Internal) stop("an internal error", error.what());
    return false;
  }
}

/// Reads `text`, verifies what came of it, and demands that a sound value's text is read as the
/// same text again.
template <class Parse>
void check_text(const uint8_t* data, size_t size, const Parse& parse) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string written;
  const bool sound = accepts([&] {
    const auto value = parse(text, "input");
    fail_if_any(verify(value), "the input");
    written = to_text(value);
  });
  if (!sound) return;
  std::string again;
  if (!accepts([&] { again = to_text(parse(written, "written")); }))
    stop("what was written cannot be read", written);
  if (again != written) stop("reading changes what was written", written + again);
}

}  // namespace braze::fuzz
