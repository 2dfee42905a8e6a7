// main.cpp — braze: run, look inside, and judge what the compiler does.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "braze/version.h"
#include "tools/braze/command.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

constexpr const Command* kCommands[] = {&kRun,     &kCompile, &kInspect, &kExplain,
                                        &kCompare, &kDevices, &kDoctor};

constexpr std::string_view kExitCodes =
    "Exit codes: 0 ok, 1 internal error, 2 usage, 3 bad input file, 4 unsupported,\n"
    "5 compile error, 6 device or out of memory, 7 results differ.\n";

// Help that begins with what one came for: examples.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(34); }
  std::string make_description(const CLI::App* app) const override {
    std::string text = app->get_description() + "\n";
    for (const Command* command : kCommands)
      if (app->get_name() == command->name)
        text += fmt::format("\nExamples:\n{}", command->examples);
    return text + "\n";
  }
};

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command* command : kCommands) names.emplace_back(command->name);
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// What CLI11 says, and the option that was meant.
std::string explain_usage(const CLI::ParseError& error, const CLI::App& app) {
  std::string text = error.what();
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty()) return text + "; `braze --help` lists the subcommands";
  const std::vector<std::string> known = option_names(*chosen.front());
  for (const std::string& extra : app.remaining(true)) {
    if (!extra.starts_with("--")) continue;
    const std::string name = extra.substr(0, extra.find('='));
    if (std::find(known.begin(), known.end(), name) == known.end())
      text += did_you_mean(name, known);
  }
  return text + fmt::format("; `braze {} --help` shows how", chosen.front()->get_name());
}

Exit run(int argc, char** argv) {
  CLI::App app("Compiles tensor graphs to fused kernels, runs them, and shows how.", "braze");
  app.formatter(std::make_shared<Help>());
  app.footer(std::string(kExitCodes));
  app.set_version_flag("--version", "braze " BRAZE_VERSION);
  app.require_subcommand(1);

  std::vector<std::pair<CLI::App*, std::function<Exit()>>> actions;
  for (const Command* command : kCommands) {
    CLI::App* sub = app.add_subcommand(std::string(command->name), std::string(command->purpose));
    actions.emplace_back(sub, command->add(*sub));
  }
  const std::vector<std::string> names = command_names();
  const std::string first = argc > 1 ? argv[1] : "--help";
  if (!first.starts_with("-") && std::find(names.begin(), names.end(), first) == names.end())
    fail_usage(fmt::format("there is no subcommand {}{}", first, did_you_mean(first, names)));
  try {
    if (argc > 1) {
      app.parse(argc, argv);
    } else {
      app.parse("--help");
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      return Exit::Ok;
    }
    fail_usage(explain_usage(error, app));
  }
  for (const auto& [sub, action] : actions)
    if (sub->parsed()) return action();
  return Exit::Ok;
}

}  // namespace
}  // namespace braze::tool

int main(int argc, char** argv) {
  namespace tool = braze::tool;
  return tool::report_failures("braze", [&] { return static_cast<int>(tool::run(argc, argv)); });
}
