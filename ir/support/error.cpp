#include "braze/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace braze {

namespace {

// A SourceLocation is a plain value that may outlive the text from which it was read. A process
// meets few file names, so they are kept for ever.
const char* intern_file_name(std::string_view name) {
  static std::mutex mutex;
  static auto& names = *new std::unordered_set<std::string>;
  std::lock_guard lock(mutex);
  return names.emplace(name).first->c_str();
}

std::string full_text(const Code& code, const std::string& message, const ErrorContext& context) {
  std::string text = fmt::format("{} [{}]: {}", describe(code.kind), code.name, message);
  if (context.location) text += fmt::format("\n  at {}", context.location.to_string());
  if (!context.node.empty()) text += fmt::format("\n  in {}", context.node);
  if (!context.fix.empty()) text += fmt::format("\n  fix: {}", context.fix);
  if (code.kind == ErrorKind::Internal) text += "\n  This is a bug in Braze; please report it.";
  return text;
}

}  // namespace

std::string_view describe(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::InvalidArgument:
      return "invalid argument";
    case ErrorKind::Unsupported:
      return "unsupported";
    case ErrorKind::ResourceExhausted:
      return "resource exhausted";
    case ErrorKind::Device:
      return "device error";
    case ErrorKind::DataLoss:
      return "data loss";
    case ErrorKind::NotFound:
      return "not found";
    case ErrorKind::Internal:
      return "internal error";
  }
  return "unknown error";
}

SourceLocation::SourceLocation(std::string_view file_name, uint32_t line_number,
                               uint32_t column_number)
    : file(intern_file_name(file_name)), line(line_number), column(column_number) {}

std::string SourceLocation::to_string() const {
  if (!file) return "";
  if (column) return fmt::format("{}:{}:{}", file, line, column);
  return fmt::format("{}:{}", file, line);
}

std::string Diagnostic::to_string() const {
  std::string text;
  if (location) text += location.to_string() + ": ";
  text += message;
  if (code) text += fmt::format(" [{}]", code->name);
  if (!context.empty()) text += fmt::format("\n    {}", context);
  return text;
}

Error::Error(const Code& code, std::string message, ErrorContext context)
    : code_(&code),
      message_(std::move(message)),
      context_(std::move(context)),
      text_(full_text(*code_, message_, context_)) {}

void fail(const Code& code, std::string message, ErrorContext context) {
  throw Error(code, std::move(message), std::move(context));
}

void fail_if_any(const std::vector<Diagnostic>& diagnostics, std::string_view what) {
  if (diagnostics.empty()) return;
  const Diagnostic& first = diagnostics.front();
  const Code& code = first.code ? *first.code : codes::kInternal;
  if (diagnostics.size() == 1) {
    fail(code, fmt::format("{}: {}", what, first.message), {first.location, first.context, ""});
  }
  // A broken program can have a finding for each node, but a reader needs only the first few.
  constexpr size_t kShown = 20;
  std::string message = fmt::format("{}: {} findings", what, diagnostics.size());
  for (size_t i = 0; i < std::min(kShown, diagnostics.size()); ++i) {
    message += "\n  " + diagnostics[i].to_string();
  }
  if (diagnostics.size() > kShown) {
    message += fmt::format("\n  ... and {} more", diagnostics.size() - kShown);
  }
  fail(code, std::move(message), {first.location, "", ""});
}

void check_failed(const char* condition, const std::string& message, std::source_location where) {
  fail(codes::kInternal, fmt::format("{} (check '{}' at {}:{})", message, condition,
                                     where.file_name(), where.line()));
}

}  // namespace braze
