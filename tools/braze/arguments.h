// arguments.h — the arguments of a command: it reads the command line, and describes itself.
//
// CLI11 does the reading. It is hidden behind this header, because its own headers take seconds to
// compile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace braze::tool {

struct ArgumentDescription {
  std::vector<std::string> names;  ///< with dashes; one name without: positional
  std::string text;
  std::vector<std::string> offers;
  bool flag = false, required = false, several = false;

  bool positional() const { return !names.front().starts_with('-'); }
};

/// An option or a positional argument that was added, for further settings.
class Argument {
 public:
  Argument(CLI::Option& option, ArgumentDescription& description)
      : option_(option), description_(description) {}

  Argument& required();
  /// Takes one word or more, up to the next option.
  Argument& several();
  /// May be given more than once, each time with one word.
  Argument& repeatable();
  /// Words that completions offer. The command itself checks its values.
  Argument& offers(std::vector<std::string> words);

 private:
  CLI::Option& option_;
  ArgumentDescription& description_;
};

/// The arguments of one command. A name with dashes is an option, and a name without is positional.
/// The value is stored in `value`, which must live until the command has run.
class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}

  Argument add_option(const std::string& name, std::string& value, const std::string& text);
  Argument add_option(const std::string& name, std::vector<std::string>& value,
                      const std::string& text);
  Argument add_option(const std::string& name, int64_t& value, const std::string& text);
  Argument add_option(const std::string& name, uint64_t& value, const std::string& text);
  /// --repeat, a number of calls that are timed.
  Argument add_repeat(int64_t& value, const std::string& text);
  /// --device. Its text names the default that `device` holds; if it is empty, default_device().
  Argument add_device(std::string& device, const std::string& before = "");
  Argument add_flag(const std::string& name, bool& value, const std::string& text);

  const std::deque<ArgumentDescription>& descriptions() const { return descriptions_; }

 private:
  template <class Value>
  Argument add(const std::string& name, Value& value, const std::string& text,
               std::string (*fault)(const std::string&));

  CLI::App& app_;
  std::deque<ArgumentDescription> descriptions_;  // Argument refers to its element
};

/// What every command also takes, and what every tool does.
extern const ArgumentDescription kHelp, kVersion;

/// What `add` adds.
std::deque<ArgumentDescription> describe_arguments(const std::function<void(Arguments&)>& add);

/// Reads the command line of a program without subcommands, which takes what `add` adds. False
/// after --help and --version. Wrong arguments are a usage failure.
bool read_arguments(const std::string& program, const std::string& purpose,
                    const std::function<void(Arguments&)>& add, int argc, char** argv);

}  // namespace braze::tool
