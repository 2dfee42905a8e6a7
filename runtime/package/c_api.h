// c_api.h — the parts that the functions of braze/c.h and braze/c_compile.h share.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "braze/c.h"
#include "braze/package.h"
#include "ir/support/text.h"

struct braze_function {
  explicit braze_function(braze::LoadedFunction function);

  struct Tensor {
    std::string name, type;
    int64_t replaces = -1;  // of an output: the argument whose memory it takes over
  };
  braze::LoadedFunction value;
  std::string name, device, report;
  std::vector<Tensor> inputs, outputs;  // those of a call
};

namespace braze {

namespace codes {
inline constexpr Code kNullHandle{"null-handle", ErrorKind::InvalidArgument,
                                  "A pointer that a C function needs is NULL."};
inline constexpr Code kOptionsSize{"options-size", ErrorKind::InvalidArgument,
                                   "A structure of options does not say which version it is of."};
}  // namespace codes

/// Turns exceptions of `work` into a status and this thread's last error.
braze_status c_guarded(const std::function<void()>& work) noexcept;

template <class T>
T& c_need(T* pointer, std::string_view name) {
  if (!pointer) fail(codes::kNullHandle, fmt::format("{} is NULL", name));
  return *pointer;
}

/// Throws kOptionsSize, with the name of the structure, the size that was given, and the sizes that
/// this library takes.
[[noreturn]] void fail_options_size(std::string_view name, size_t given, size_t least, size_t here);

/// The structure that a program passed. The program may be older than this library, so members
/// beyond the structure's size are zero. `least` is the size up to the last member that is
/// required. A larger size than that of this library is an error, because members that are unknown
/// here must not be ignored silently.
template <class Options>
Options c_options(const Options& given, std::string_view name, size_t least = sizeof(size_t)) {
  const bool is_whole = given.size % alignof(Options) == 0;  // else it would end inside a member
  if (given.size < least || given.size > sizeof(Options) || !is_whole)
    fail_options_size(name, given.size, least, sizeof(Options));
  Options options{};
  std::memcpy(&options, &given, given.size);
  return options;
}

/// A function for a program that was compiled in this process.
braze_function* c_function(Executable executable);

}  // namespace braze
