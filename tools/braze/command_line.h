// command_line.h — from the command line to a subcommand. The help, the completions and the manual
// page all come from one table of what the subcommands take.
#pragma once

#include "tools/braze/command.h"
#include "tools/braze/description.h"

namespace braze::tool {

/// The description of all that `commands()` lists.
ToolDescription describe_tool();

/// Reads the command line and runs the command. Wrong arguments are a usage failure.
Exit run_tool(int argc, char** argv);

}  // namespace braze::tool
