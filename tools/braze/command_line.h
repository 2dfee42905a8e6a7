// command_line.h — from the command line to a subcommand. The help, the completions and the manual
// page all come from one table of what the subcommands take.
#pragma once

#include <string>
#include <vector>

#include "tools/braze/arguments.h"
#include "tools/braze/command.h"

namespace braze::tool {

struct CommandDescription {
  std::string name, purpose, examples;
  std::vector<ArgumentDescription> arguments;
};

/// What the tool as a whole takes, then each command.
struct ToolDescription {
  CommandDescription tool;
  std::vector<CommandDescription> commands;
};

/// The description of all that `commands()` lists.
ToolDescription describe_tool();

/// Reads the command line and runs what it asks for. What cannot be is a usage failure.
Exit run_tool(int argc, char** argv);

}  // namespace braze::tool
