// error.h — errors and how they are reported.
//
// Every failure is one exception type, `Error`, and one function, `fail`, makes it (put a
// breakpoint there). Every cause has a `Code`: a constant with a stable name, declared once in the
// folder that raises it. Verifiers do not throw; they return all the `Diagnostic`s that they find.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

/// The kind of a failure: who can do something about it, and what.
enum class ErrorKind : uint8_t {
  InvalidArgument,    ///< the caller passed something impossible; fix the call
  Unsupported,        ///< a valid request that this version or target cannot serve
  ResourceExhausted,  ///< memory or another limit; inputs are unchanged, you can retry
  Device,             ///< a device or its driver failed
  DataLoss,           ///< a file is truncated, altered or unreadable
  NotFound,           ///< a file or folder does not exist
  Internal,           ///< a bug in Braze; please report it
};

/// The kind in words: "invalid argument", "internal error" ...
std::string_view describe(ErrorKind kind);

/// The stable name of one cause of failure, finding or fusion decision.
struct Code {
  std::string_view name;     ///< such as "shape-mismatch"; it does not change after a release
  ErrorKind kind;            ///< the kind of a failure with this cause
  std::string_view summary;  ///< one sentence for the reference page
};

/// A place in the user's source or in a text file. `file` lives as long as the process. `column` is
/// 0 where it is unknown, as in C++ source.
struct SourceLocation {
  const char* file = nullptr;  ///< null: no place is known
  uint32_t line = 0;           ///< from 1
  uint32_t column = 0;         ///< from 1; 0: unknown

  SourceLocation() = default;
  /// A place in a C++ source.
  SourceLocation(const std::source_location& where)  // NOLINT: implicit on purpose
      : file(where.file_name()), line(where.line()) {}
  /// A place in a text. The name is kept for the life of the process.
  SourceLocation(std::string_view file_name, uint32_t line_number, uint32_t column_number);

  explicit operator bool() const { return file != nullptr; }  ///< whether a place is known
  /// "model.cpp:12", "add.braze:3:7", or "" if the place is unknown.
  std::string to_string() const;
};

/// One finding of a verifier or parser.
struct Diagnostic {
  const Code* code = nullptr;  ///< the rule that is broken
  SourceLocation location;     ///< in the text or the user's source
  std::string context;         ///< the text of the offending node or line
  std::string message;         ///< one sentence

  std::string to_string() const;  ///< all parts in one line
};

/// What is known about a failure besides its message.
struct ErrorContext {
  SourceLocation location;  ///< the user's line
  std::string node;         ///< the graph node or file entry concerned
  std::string fix;          ///< what the user can do, if that is known
};

/// The only exception type of Braze.
class Error : public std::exception {
 public:
  /// For Braze itself, which makes errors by `fail`.
  Error(const Code& code, std::string message, ErrorContext context);

  const char* what() const noexcept override { return text_.c_str(); }  ///< all parts, as text
  ErrorKind kind() const { return code_->kind; }                        ///< the kind
  const Code& code() const { return *code_; }                           ///< a stable cause
  const std::string& message() const { return message_; }  ///< without code and location
  const SourceLocation& location() const { return context_.location; }  ///< the user's line
  const std::string& node() const { return context_.node; }             ///< the op, or empty
  const std::string& fix() const { return context_.fix; }  ///< what to do; empty if unknown

 private:
  const Code* code_;
  std::string message_;
  ErrorContext context_;
  std::string text_;
};

/// Throws an Error. The only place that creates one.
[[noreturn]] void fail(const Code& code, std::string message, ErrorContext context = {});

/// If there are diagnostics, throws them as one Error with the code of the first.
void fail_if_any(const std::vector<Diagnostic>& diagnostics, std::string_view what);

/// Throws an Error of the kind Internal. BRAZE_CHECK calls it.
[[noreturn]] void check_failed(const char* condition, const std::string& message,
                               std::source_location where);

namespace codes {
inline constexpr Code kInternal{"internal", ErrorKind::Internal, "An invariant of Braze failed."};
}  // namespace codes

}  // namespace braze

/// Checks an invariant of Braze, in release builds too.
#define BRAZE_CHECK(condition, message)                                            \
  do {                                                                             \
    if (!(condition)) [[unlikely]]                                                 \
      ::braze::check_failed(#condition, message, std::source_location::current()); \
  } while (false)
