// command.h — the frame of the command line: what a subcommand is, and how the tool ends.
//
//   main.cpp        the table of subcommands
//   command_line.h  from the command line to a subcommand; descriptions of them all
//   arguments.h     what a command takes
//   description.h   completions and the manual, made from that
//   command.cpp     errors to exit codes
//   source.h        files of the three languages
//   inputs.h        values for the inputs of a program
//   options.h       options that several subcommands share
//   package.h       packages
//   model.h         models
//   values.h        results
//   files.h         what is read is not overwritten
//   compared.h      what is compared
//   report.h        tables, colours and JSON
//   progress.h      how far long work is
//   run.cpp ...     one file per subcommand
//
// Data goes to stdout, messages to stderr.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braze/error.h"
#include "ir/support/env.h"
#include "ir/support/suggest.h"

namespace braze::tool {

class Arguments;

/// What scripts can rely on; docs/reference/cli.md lists them.
enum class Exit : int {
  Ok = 0,
  Internal = 1,
  Usage = 2,
  BadFile = 3,
  Unsupported = 4,
  Compile = 5,
  Device = 6,
  Mismatch = 7,
};

/// The same for the help and the manual.
inline constexpr std::string_view kExitCodes =
    "Exit codes: 0 ok, 1 internal error, 2 usage, 3 bad input file, 4 unsupported,\n"
    "5 compile error, 6 device or out of memory, 7 results differ.\n";

/// A failure with its exit code, which is known where it happened.
struct Failure {
  Exit exit;
  std::string text;
};

[[noreturn]] void fail_usage(std::string text);

/// The exit code of an error for which no other code was chosen.
Exit exit_of(const Error& error);

/// Runs `work`. An invalid argument to the library has, here, the exit code `exit`, unless it is an
/// environment variable.
template <class Work>
auto blame(Exit exit, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::InvalidArgument || &error.code() == &codes::kEnvironment) throw;
    throw Failure{exit, error.what()};
  }
}

/// The exit code of `work`. An exception becomes a message on stderr, after the name of the tool.
int report_failures(std::string_view tool, const std::function<int()>& work);

struct Command {
  std::string_view name;
  std::string_view purpose;
  std::string_view examples;
  /// Adds what the command takes. The result runs the command after the command line was read.
  std::function<Exit()> (*add)(Arguments& arguments);
};

extern const Command kRun, kImport, kCompile, kInspect, kExplain, kReport, kCompare, kCache, kKey,
    kSign, kTimeline, kDevices, kDoctor, kCompletion, kManual;

/// All of them, in the order of the help.
std::span<const Command* const> commands();

}  // namespace braze::tool
