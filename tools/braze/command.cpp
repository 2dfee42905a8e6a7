#include "tools/braze/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "tools/braze/report.h"

namespace braze::tool {

void fail_usage(std::string text) { throw Failure{Exit::Usage, std::move(text)}; }

Exit exit_of(const Error& error) {
  constexpr std::pair<ErrorKind, Exit> kExits[] = {
      {ErrorKind::InvalidArgument, Exit::Usage},    {ErrorKind::Unsupported, Exit::Unsupported},
      {ErrorKind::ResourceExhausted, Exit::Device}, {ErrorKind::Device, Exit::Device},
      {ErrorKind::DataLoss, Exit::BadFile},         {ErrorKind::NotFound, Exit::BadFile},
      {ErrorKind::Internal, Exit::Internal},
  };
  for (const auto& [kind, exit] : kExits)
    if (kind == error.kind()) return exit;
  return Exit::Internal;
}

int report_failures(std::string_view tool, const std::function<int()>& work) {
  const auto report = [tool](Exit exit, std::string_view text) {
    std::fflush(stdout);
    fmt::print(stderr, "{} {}\n", paint(Colour::Red, fmt::format("{}:", tool), STDERR_FILENO),
               printable(text, "\n\t"));
    return static_cast<int>(exit);
  };
  // Exceeding the limit of file sizes is an error of that write, and does not end the tool.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int exit = work();
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return exit;
    return report(Exit::BadFile, "writing to stdout failed, so the output is not complete");
  } catch (const Failure& failure) {
    return report(failure.exit, failure.text);
  } catch (const Error& error) {
    return report(exit_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return report(Exit::Device, "out of memory");
  } catch (const std::exception& error) {
    // fmt throws if writing to stdout fails.
    if (std::ferror(stdout)) return report(Exit::BadFile, fmt::format("stdout: {}", error.what()));
    return report(Exit::Internal, error.what());
  }
}

}  // namespace braze::tool
