// error.h — what goes wrong in Braze, and how it is said.
//
// Every failure is one exception type, `Error`, made by one function, `fail` (put a breakpoint
// there). Every cause has a `Code`: a constant with a stable name, declared once in the folder that
// raises it. Verifiers do not throw; they return all `Diagnostic`s they find.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace braze {

/// Who is to blame, and what a caller can do about it.
enum class ErrorKind : uint8_t {
  InvalidArgument,    ///< the caller passed something that cannot be; fix the call
  Unsupported,        ///< a sound request that this version or target cannot serve
  ResourceExhausted,  ///< memory or another limit; inputs are untouched, retry is possible
  Device,             ///< a device or its driver failed
  DataLoss,           ///< a file is truncated, altered or unreadable
  NotFound,           ///< a file or folder does not exist
  Internal,           ///< a bug in Braze; please report it
};

/// "invalid argument", "internal error" ...: the kind in words.
std::string_view describe(ErrorKind kind);

/// The stable name of one cause of failure, finding or fusion decision.
struct Code {
  std::string_view name;     ///< such as "shape-mismatch"; never changes once released
  ErrorKind kind;            ///< how a failure of this cause is classified
  std::string_view summary;  ///< one sentence for the reference page
};

/// A place in the user's source or in a text file. `file` lives as long as the process. `column` is
/// 0 where it would say nothing, as in C++ source.
struct SourceLocation {
  const char* file = nullptr;  ///< null: no place is known
  uint32_t line = 0;           ///< from 1
  uint32_t column = 0;         ///< from 1; 0: unknown

  SourceLocation() = default;
  SourceLocation(const std::source_location& where)  // NOLINT: implicit on purpose
      : file(where.file_name()), line(where.line()) {}
  SourceLocation(std::string_view file_name, uint32_t line_number, uint32_t column_number);

  explicit operator bool() const { return file != nullptr; }  ///< whether a place is known
  /// "model.cpp:12", "add.braze:3:7" or "" when unknown.
  std::string to_string() const;
};

/// One finding of a verifier or parser.
struct Diagnostic {
  const Code* code = nullptr;  ///< what rule is broken
  SourceLocation location;     ///< in the text or the user's source
  std::string context;         ///< the text of the offending node or line
  std::string message;         ///< one sentence

  std::string to_string() const;  ///< all of it, in a line
};

/// What is known about a failure besides its message.
struct ErrorContext {
  SourceLocation location;  ///< the user's line
  std::string node;         ///< the graph node or file entry concerned
  std::string fix;          ///< what the user can do, where that is known
};

/// The one exception type.
class Error : public std::exception {
 public:
  Error(const Code& code, std::string message, ErrorContext context);

  const char* what() const noexcept override { return text_.c_str(); }  ///< all of it, as text
  ErrorKind kind() const { return code_->kind; }                        ///< whose fault
  const Code& code() const { return *code_; }                           ///< stable, for programs
  const std::string& message() const { return message_; }               ///< without code and place
  const SourceLocation& location() const { return context_.location; }  ///< the user's line
  const std::string& node() const { return context_.node; }             ///< the op; empty: none
  const std::string& fix() const { return context_.fix; }  ///< the way out; empty: none known

 private:
  const Code* code_;
  std::string message_;
  ErrorContext context_;
  std::string text_;
};

/// Throws an Error. The only place that creates one.
[[noreturn]] void fail(const Code& code, std::string message, ErrorContext context = {});

/// Throws the diagnostics as one Error of the first one's code, if there are any.
void fail_if_any(const std::vector<Diagnostic>& diagnostics, std::string_view what);

/// Throws Internal; the target of BRAZE_CHECK.
[[noreturn]] void check_failed(const char* condition, const std::string& message,
                               std::source_location where);

namespace codes {
inline constexpr Code kInternal{"internal", ErrorKind::Internal, "An invariant of Braze failed."};
}  // namespace codes

}  // namespace braze

/// Checks an invariant of our own, also in release builds.
#define BRAZE_CHECK(condition, message)                                            \
  do {                                                                             \
    if (!(condition)) [[unlikely]]                                                 \
      ::braze::check_failed(#condition, message, std::source_location::current()); \
  } while (false)
