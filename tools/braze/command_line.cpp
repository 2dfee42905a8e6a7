#include "tools/braze/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "braze/version.h"
#include "tools/braze/progress.h"

namespace braze::tool {

namespace {

constexpr std::string_view kPurpose =
    "Compiles tensor graphs to fused kernels, runs them, and shows every step.";

// Help that begins with what most users look for: examples.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(34); }
  std::string make_description(const CLI::App* app) const override {
    std::string text = app->get_description() + "\n";
    for (const Command* command : commands())
      if (app->get_name() == command->name)
        text += fmt::format("\nExamples:\n{}", command->examples);
    return text + "\n";
  }
};

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command* command : commands()) names.emplace_back(command->name);
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// The message of CLI11, and the option that was probably meant.
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

void check_command(const std::string& name) {
  const std::vector<std::string> names = command_names();
  if (!name.starts_with("-") && std::find(names.begin(), names.end(), name) == names.end())
    fail_usage(fmt::format("{} is not a subcommand{}", name, did_you_mean(name, names)));
}

}  // namespace

ToolDescription describe_tool() {
  ToolDescription description{{"braze", std::string(kPurpose), "", {kHelp, kVersion}},
                              "compile tensor graphs to fused kernels",
                              {}};
  for (const Command* command : commands()) {
    CommandDescription& added =
        description.commands.emplace_back(CommandDescription{std::string(command->name),
                                                             std::string(command->purpose),
                                                             std::string(command->examples),
                                                             {kHelp}});
    for (ArgumentDescription& argument : describe_arguments(command->add))
      added.arguments.push_back(std::move(argument));
  }
  return description;
}

Exit run_tool(int argc, char** argv) {
  CLI::App app(std::string(kPurpose), "braze");
  app.formatter(std::make_shared<Help>());
  app.footer(std::string(kExitCodes));
  app.set_version_flag("--version", "braze " BRAZE_VERSION);
  app.require_subcommand(1);

  std::vector<std::pair<CLI::App*, std::function<Exit()>>> actions;
  for (const Command* command : commands()) {
    CLI::App* sub = app.add_subcommand(std::string(command->name), std::string(command->purpose));
    Arguments arguments(*sub);
    actions.emplace_back(sub, command->add(arguments));
  }
  check_command(argc > 1 ? argv[1] : "--help");
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
  const ProgressLine progress;
  for (const auto& [sub, action] : actions)
    if (sub->parsed()) return action();
  return Exit::Ok;
}

}  // namespace braze::tool
