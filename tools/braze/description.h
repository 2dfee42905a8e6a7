// description.h — what a tool takes, as data: its completions and its manual page are made from it.
#pragma once

#include <string>
#include <vector>

#include "tools/braze/arguments.h"

namespace braze::tool {

struct CommandDescription {
  std::string name, purpose, examples;
  std::vector<ArgumentDescription> arguments;
};

/// What the tool as a whole takes, then each command. A tool without commands is one.
struct ToolDescription {
  CommandDescription tool;
  std::string summary;  ///< a few words, for the name section of the manual
  std::vector<CommandDescription> commands;
};

/// The shells that there are completions for.
std::vector<std::string> shells();
/// A script that completes commands and options in that shell, or a usage failure.
std::string completion_script(const std::string& shell, const ToolDescription& description);

/// The manual page, in roff.
std::string manual_page(const ToolDescription& description);

}  // namespace braze::tool
