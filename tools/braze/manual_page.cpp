// manual_page.cpp — the manual page of a tool.
#include <fmt/format.h>

#include <algorithm>

#include "braze/version.h"
#include "ir/support/env.h"
#include "ir/support/text.h"
#include "tools/braze/command.h"
#include "tools/braze/description.h"

namespace braze::tool {

namespace {

// `text` as roff shows it literally: no escapes, no line that begins with a request.
std::string roff(std::string_view text) {
  std::string out;
  for (char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }
std::string unbroken(std::string_view text) { return fmt::format(".nf\n{}.fi\n", roff(text)); }

// The value of an option, after the last word of its name: "--cpu-target" has TARGET.
std::string value_name(const ArgumentDescription& argument) {
  const std::string& name = argument.names.back();
  std::string value = name.substr(name.rfind('-') + 1);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value;
}

std::string entry(const ArgumentDescription& argument) {
  std::string title;
  if (argument.positional()) {
    title = italic(argument.names.front());
  } else {
    title = join(argument.names, ", ", bold);
    if (!argument.flag) title += " " + italic(value_name(argument));
  }
  if (argument.several) title += " ...";
  return fmt::format(".TP\n{}\n{}\n", title, roff(argument.text));
}

std::string entries(const CommandDescription& command) {
  return join(command.arguments, "", entry);
}

// `start`, followed by the positional arguments of the command.
std::string usage(const std::string& start, const CommandDescription& command) {
  std::string line = start;
  for (const ArgumentDescription& argument : command.arguments) {
    if (!argument.positional()) continue;
    const std::string name = argument.names.front() + (argument.several ? "..." : "");
    line += argument.required ? " " + name : " [" + name + "]";
  }
  return line + " [OPTION]...";
}

std::string section(const std::string& tool, const CommandDescription& command) {
  return fmt::format(".SS {}\n{}\n.PP\nUsage: {}\n{}.PP\nExamples:\n.PP\n{}", roff(command.name),
                     roff(command.purpose), bold(usage(tool + " " + command.name, command)),
                     entries(command), unbroken(command.examples));
}

// The commands. For a tool without commands, its own examples.
std::string commands(const ToolDescription& description) {
  const CommandDescription& tool = description.tool;
  if (description.commands.empty()) return fmt::format(".SH EXAMPLES\n{}", unbroken(tool.examples));
  return ".SH COMMANDS\n" + join(description.commands, "", [&](const CommandDescription& command) {
           return section(tool.name, command);
         });
}

std::string synopsis(const ToolDescription& description) {
  const CommandDescription& tool = description.tool;
  if (description.commands.empty()) return bold(usage(tool.name, tool));
  return fmt::format("{} {} [{}]...", bold(tool.name), italic("COMMAND"), italic("ARGUMENT"));
}

std::string environment() {
  return join(env_variables(), "", [](const EnvVariable& variable) {
    return fmt::format(".TP\n{}\n{}\n", bold(variable.name), roff(variable.meaning));
  });
}

}  // namespace

std::string manual_page(const ToolDescription& description) {
  const CommandDescription& tool = description.tool;
  std::string title = tool.name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(
      ".\\\" Made by {0} itself.\n"
      ".TH {1} 1 \"\" \"Braze {2}\" \"User Commands\"\n"
      ".SH NAME\n{0} \\- {3}\n"
      ".SH SYNOPSIS\n{4}\n"
      ".SH DESCRIPTION\n{5}\n"
      ".SH OPTIONS\n{6}"
      "{7}"
      ".SH ENVIRONMENT\n{8}"
      ".SH EXIT STATUS\n{9}",
      roff(tool.name), roff(title), BRAZE_VERSION, roff(description.summary), synopsis(description),
      roff(tool.purpose), entries(tool), commands(description), environment(), roff(kExitCodes));
}

}  // namespace braze::tool
