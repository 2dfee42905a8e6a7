// manual.cpp — braze manual: the manual page, from the same descriptions as the help.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "braze/version.h"
#include "ir/support/env.h"
#include "ir/support/text.h"
#include "tools/braze/command_line.h"

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

std::string usage(const CommandDescription& command) {
  std::string line = "braze " + command.name;
  for (const ArgumentDescription& argument : command.arguments) {
    if (!argument.positional()) continue;
    const std::string name = argument.names.front() + (argument.several ? "..." : "");
    line += argument.required ? " " + name : " [" + name + "]";
  }
  return line + " [OPTION]...";
}

std::string section(const CommandDescription& command) {
  return fmt::format(".SS {}\n{}\n.PP\nUsage: {}\n{}.PP\nExamples:\n.PP\n{}", roff(command.name),
                     roff(command.purpose), bold(usage(command)), entries(command),
                     unbroken(command.examples));
}

std::string environment() {
  return join(env_variables(), "", [](const EnvVariable& variable) {
    return fmt::format(".TP\n{}\n{}\n", bold(variable.name), roff(variable.meaning));
  });
}

std::string manual(const ToolDescription& description) {
  const CommandDescription& tool = description.tool;
  return fmt::format(
      ".\\\" Made by `braze manual`.\n"
      ".TH BRAZE 1 \"\" \"Braze {}\" \"User Commands\"\n"
      ".SH NAME\nbraze \\- compile tensor graphs to fused kernels\n"
      ".SH SYNOPSIS\n{} {} [{}]...\n"
      ".SH DESCRIPTION\n{}\n"
      ".SH OPTIONS\n{}"
      ".SH COMMANDS\n{}"
      ".SH ENVIRONMENT\n{}"
      ".SH EXIT STATUS\n{}",
      BRAZE_VERSION, bold("braze"), italic("COMMAND"), italic("ARGUMENT"), roff(tool.purpose),
      entries(tool), join(description.commands, "", section), environment(), roff(tool.examples));
}

std::function<Exit()> add(Arguments&) {
  return [] {
    fmt::print("{}", manual(describe_tool()));
    return Exit::Ok;
  };
}

}  // namespace

const Command kManual = {"manual", "Prints the manual page.",
                         "  braze manual | man -l -                # reads it\n", add};

}  // namespace braze::tool
