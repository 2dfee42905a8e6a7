#include "tools/braze/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>

#include "braze/version.h"
#include "tools/braze/command.h"

namespace braze::tool {

namespace {

std::vector<std::string> split_names(const std::string& names) {
  return CLI::detail::split(names, ',');
}

// The most calls of --repeat. The time of each is kept.
constexpr int64_t kMostRepeats = 100'000'000;

// A number that does not fit the type is refused, because CLI11 would take the nearest number that
// fits.
template <class Integer, Integer least = std::numeric_limits<Integer>::min(),
          Integer most = std::numeric_limits<Integer>::max()>
std::string integer_fault(const std::string& text) {
  Integer value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end && least <= value && value <= most) return "";
  return fmt::format("{} is not an integer from {} to {}", text, least, most);
}

std::string empty_fault(const std::string& text) {
  return text.empty() ? "the value is empty" : "";
}

}  // namespace

Argument& Argument::required() {
  option_.required();
  description_.required = true;
  return *this;
}

Argument& Argument::several() {
  option_.expected(1, -1);
  description_.several = true;
  return *this;
}

Argument& Argument::repeatable() {
  option_.take_all()->allow_extra_args(false);
  return *this;
}

Argument& Argument::offers(std::vector<std::string> words) {
  description_.offers = std::move(words);
  return *this;
}

template <class Value>
Argument Arguments::add(const std::string& name, Value& value, const std::string& text,
                        std::string (*fault)(const std::string&)) {
  descriptions_.push_back({.names = split_names(name), .text = text});
  CLI::Option& option = *app_.add_option(name, value, text);
  option.check(fault);
  return {option, descriptions_.back()};
}

Argument Arguments::add_option(const std::string& name, std::string& value,
                               const std::string& text) {
  return add(name, value, text, empty_fault);
}
Argument Arguments::add_option(const std::string& name, std::vector<std::string>& value,
                               const std::string& text) {
  const Argument argument = add(name, value, text, empty_fault);
  descriptions_.back().several = descriptions_.back().positional();
  return argument;
}
Argument Arguments::add_option(const std::string& name, int64_t& value, const std::string& text) {
  return add(name, value, text, integer_fault<int64_t>);
}
Argument Arguments::add_option(const std::string& name, uint64_t& value, const std::string& text) {
  return add(name, value, text, integer_fault<uint64_t>);
}
Argument Arguments::add_repeat(int64_t& value, const std::string& text) {
  return add("--repeat", value, text, integer_fault<int64_t, 0, kMostRepeats>);
}
Argument Arguments::add_device(std::string& device, const std::string& before) {
  return add_option(
      "--device", device,
      fmt::format("{}cpu, cuda:0, sim:cpu ... (default: {})", before,
                  device.empty() ? "the first GPU, or the CPU if there is none" : device));
}
Argument Arguments::add_flag(const std::string& name, bool& value, const std::string& text) {
  descriptions_.push_back({.names = split_names(name), .text = text, .flag = true});
  return {*app_.add_flag(name, value, text), descriptions_.back()};
}

const ArgumentDescription kHelp = {
    .names = {"-h", "--help"}, .text = "Print this help message and exit", .flag = true};
const ArgumentDescription kVersion = {
    .names = {"--version"}, .text = "Display program version information and exit", .flag = true};

std::deque<ArgumentDescription> describe_arguments(const std::function<void(Arguments&)>& add) {
  CLI::App app;
  Arguments arguments(app);
  add(arguments);
  return arguments.descriptions();
}

bool read_arguments(const std::string& program, const std::string& purpose,
                    const std::function<void(Arguments&)>& add, int argc, char** argv) {
  CLI::App app(purpose, program);
  app.set_version_flag("--version", program + " " BRAZE_VERSION);
  app.footer(std::string(kExitCodes));
  Arguments arguments(app);
  add(arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) fail_usage(error.what());
    app.exit(error);  // --help, --version
    return false;
  }
  return true;
}

}  // namespace braze::tool
