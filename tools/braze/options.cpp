#include "tools/braze/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/braze/command.h"

namespace braze::tool {

namespace {

constexpr std::pair<std::string_view, Precision> kPrecisions[] = {
    {"strict", Precision::Strict}, {"standard", Precision::Standard}, {"fast", Precision::Fast}};

Precision parse_precision(const std::string& text) {
  std::vector<std::string> known;
  for (const auto& [name, precision] : kPrecisions) {
    if (name == text) return precision;
    known.emplace_back(name);
  }
  fail_usage(fmt::format("--precision is strict, standard or fast, not {}{}", text,
                         did_you_mean(text, known)));
}

}  // namespace

void CompileFlags::add_to(CLI::App& app) {
  app.add_option("--precision", precision, "strict, standard (default) or fast");
  app.add_flag("--no-fuse", no_fuse, "One kernel per op");
  app.add_option("--schedule", schedules, "KERNEL=TEXT: a schedule as `braze explain` prints it")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--dump", dump, "Folder that receives every phase of the compilation");
}

CompileOptions CompileFlags::options() const {
  CompileOptions options;
  options.precision = parse_precision(precision);
  options.fuse = !no_fuse;
  options.dump_folder = dump;
  for (const std::string& text : schedules) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      fail_usage(fmt::format("--schedule is KERNEL=TEXT, not {}", text));
    options.schedules[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return options;
}

Device find_device(const std::string& text) {
  try {
    return Device(text);
  } catch (const Error& error) {
    std::vector<std::string> known;
    for (const Device& device : devices()) known.push_back(device.name());
    throw Failure{Exit::Usage, error.what() + did_you_mean(text, known)};
  }
}

Target find_target_of(const std::string& text) {
  if (text.empty()) return Device("cpu").target();
  if (const auto row = find_target(text)) return *row;
  if (text.find('=') != std::string::npos)
    return blame(Exit::Usage, [&] { return parse_target(text); });
  std::vector<std::string> known;
  for (const Target& row : target_table()) {
    known.push_back(row.name);
    known.push_back("sim:" + row.name);
  }
  fail_usage(fmt::format("there is no target {}; the targets are {}{}", text,
                         fmt::join(known, ", "), did_you_mean(text, known)));
}

}  // namespace braze::tool
