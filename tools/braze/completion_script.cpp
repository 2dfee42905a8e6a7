// completion_script.cpp — scripts that complete commands and options in bash, zsh and fish.
#include <fmt/format.h>

#include "ir/support/text.h"
#include "tools/braze/command.h"
#include "tools/braze/description.h"

namespace braze::tool {

namespace {

using Words = std::vector<std::string>;

std::string spaced(const Words& words) { return fmt::format("{}", fmt::join(words, " ")); }

Words options_of(const CommandDescription& command) {
  Words words;
  for (const ArgumentDescription& argument : command.arguments)
    if (!argument.positional())
      words.insert(words.end(), argument.names.begin(), argument.names.end());
  return words;
}

// What completions offer at a place without an option; nothing means files.
Words offers_of(const CommandDescription& command) {
  Words words;
  for (const ArgumentDescription& argument : command.arguments)
    if (argument.positional())
      words.insert(words.end(), argument.offers.begin(), argument.offers.end());
  return words;
}

Words names_of(const std::vector<CommandDescription>& commands) {
  Words names;
  for (const CommandDescription& command : commands) names.push_back(command.name);
  return names;
}

// The commands. A tool without commands is one command without a name.
std::vector<CommandDescription> commands_of(const ToolDescription& description) {
  if (!description.commands.empty()) return description.commands;
  CommandDescription only = description.tool;
  only.name.clear();
  return {only};
}

// `text` within single quotes of bash, zsh and fish.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

constexpr std::string_view kBash = R"(# Completes {name} in bash. Made by {name} itself.
_{name}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  # --option=word is three words here.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  local command={command} words=
  if ((COMP_CWORD == {command_at})); then
    words={tool}
  else
    case $command:$previous in
{values}      *)
        case $command:$current in
{options}        esac
        ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _{name} {name}
)";

std::string bash(const ToolDescription& description) {
  std::string values, options;
  for (const CommandDescription& command : commands_of(description)) {
    for (const ArgumentDescription& argument : command.arguments)
      if (!argument.positional() && !argument.flag)
        for (const std::string& name : argument.names)
          values += fmt::format("      {}:{}) words={} ;;\n", command.name, name,
                                quoted(spaced(argument.offers)));
    options += fmt::format("          {}:-*) words={} ;;\n", command.name,
                           quoted(spaced(options_of(command))));
    options += fmt::format("          {}:*) words={} ;;\n", command.name,
                           quoted(spaced(offers_of(command))));
  }
  Words tool = names_of(description.commands);
  for (const std::string& option : options_of(description.tool)) tool.push_back(option);
  const bool has_commands = !description.commands.empty();
  return fmt::format(kBash, fmt::arg("name", description.tool.name),
                     fmt::arg("tool", quoted(spaced(tool))),
                     fmt::arg("command", has_commands ? "${COMP_WORDS[1]}" : ""),
                     fmt::arg("command_at", has_commands ? 1 : 0),  // 0 is the tool's own name
                     fmt::arg("values", values), fmt::arg("options", options));
}

constexpr std::string_view kZsh = R"(#compdef {name}
# Completes {name} in zsh. Made by {name} itself.
_{name}() {{
{body}}}
if [[ $funcstack[1] == _{name} ]]; then
  _{name} "$@"
else
  compdef _{name} {name}
fi
)";

constexpr std::string_view kZshCommands = R"(  local -a commands=(
{commands}  )
  if ((CURRENT == 2)); then
    _describe command commands
    _arguments {tool}
    return
  fi
  local command=$words[2]
  ((--CURRENT))
  shift words
  case $command in
{arguments}  esac
)";

// `text` at a place where zsh gives brackets and colons a meaning.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// A specification of _arguments: 'NAME[text]:value:action' or 'N:value:action'.
Words zsh_specifications(const CommandDescription& command) {
  Words specifications;
  int position = 0;
  for (const ArgumentDescription& argument : command.arguments) {
    const std::string action =
        argument.offers.empty() ? "_files" : "(" + spaced(argument.offers) + ")";
    if (argument.positional()) {
      const std::string place = argument.several ? "*" : std::to_string(++position);
      specifications.push_back(fmt::format("{}:{}:{}", place, argument.names.front(), action));
      continue;
    }
    const std::string text = "[" + zsh_text(argument.text) + "]";
    for (const std::string& name : argument.names) {
      if (argument.flag)
        specifications.push_back(name + text);
      else if (argument.several)
        specifications.push_back(fmt::format("*{}{}:*-*:value:{}", name, text, action));
      else
        specifications.push_back(fmt::format("*{}={}:value:{}", name, text, action));
    }
  }
  return specifications;
}

// A call of _arguments, indented by `indent`.
std::string zsh_arguments(const CommandDescription& command, const std::string& indent) {
  std::string call = indent + "_arguments";
  for (const std::string& specification : zsh_specifications(command))
    call += " \\\n  " + indent + quoted(specification);
  return call + "\n";
}

std::string zsh_commands(const ToolDescription& description) {
  std::string commands, arguments;
  for (const CommandDescription& command : description.commands) {
    commands += fmt::format("    {}\n", quoted(zsh_text(command.name) + ":" + command.purpose));
    arguments +=
        fmt::format("    {})\n{}      ;;\n", command.name, zsh_arguments(command, "      "));
  }
  return fmt::format(kZshCommands, fmt::arg("commands", commands), fmt::arg("arguments", arguments),
                     fmt::arg("tool", join(zsh_specifications(description.tool), " ", quoted)));
}

std::string zsh(const ToolDescription& description) {
  return fmt::format(
      kZsh, fmt::arg("name", description.tool.name),
      fmt::arg("body", description.commands.empty() ? zsh_arguments(description.tool, "  ")
                                                    : zsh_commands(description)));
}

// The arguments of `complete` for one argument of a command.
std::string fish_argument(const ArgumentDescription& argument) {
  std::string line;
  for (const std::string& name : argument.names)
    if (!argument.positional())
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!argument.offers.empty())
    line += fmt::format(" {} -a {}", argument.positional() ? "-f" : "-x",
                        quoted(spaced(argument.offers)));
  else if (!argument.positional() && !argument.flag)
    line += " -r";
  return line + " -d " + quoted(argument.text) + "\n";
}

std::string fish(const ToolDescription& description) {
  const std::string& tool = description.tool.name;
  std::string script = fmt::format("# Completes {0} in fish. Made by {0} itself.\n", tool);
  const auto add = [&](const CommandDescription& command, std::string_view condition) {
    for (const ArgumentDescription& argument : command.arguments)
      if (!argument.positional() || !argument.offers.empty())
        script += fmt::format("complete -c {}{}{}", tool, condition, fish_argument(argument));
  };
  add(description.tool, description.commands.empty() ? "" : " -n __fish_use_subcommand");
  for (const CommandDescription& command : description.commands) {
    script += fmt::format("complete -c {} -n __fish_use_subcommand -f -a {} -d {}\n", tool,
                          command.name, quoted(command.purpose));
    add(command, fmt::format(" -n '__fish_seen_subcommand_from {}'", command.name));
  }
  return script;
}

struct Shell {
  std::string_view name;
  std::string (*script)(const ToolDescription&);
};
constexpr Shell kShells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

}  // namespace

std::vector<std::string> shells() {
  Words names;
  for (const Shell& shell : kShells) names.emplace_back(shell.name);
  return names;
}

std::string completion_script(const std::string& shell, const ToolDescription& description) {
  for (const Shell& known : kShells)
    if (known.name == shell) return known.script(description);
  fail_usage(fmt::format("completions exist for {}, not for {}{}", fmt::join(shells(), ", "), shell,
                         did_you_mean(shell, shells())));
}

}  // namespace braze::tool
