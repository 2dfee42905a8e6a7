// completion.cpp — braze completion: a script that completes commands and options in a shell.
#include <fmt/format.h>

#include <functional>

#include "ir/support/text.h"
#include "tools/braze/command_line.h"

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

// What completions offer where no option is; nothing: files.
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

// `text` within single quotes of bash, zsh and fish.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

constexpr std::string_view kBash = R"(# Completes braze in bash. Made by `braze completion bash`.
_braze() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  # --option=word is three words here.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  local command=${{COMP_WORDS[1]}} words=
  if ((COMP_CWORD == 1)); then
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
complete -o default -F _braze braze
)";

std::string bash(const ToolDescription& description) {
  std::string values, options;
  for (const CommandDescription& command : description.commands) {
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
  return fmt::format(kBash, fmt::arg("tool", quoted(spaced(tool))), fmt::arg("values", values),
                     fmt::arg("options", options));
}

constexpr std::string_view kZsh = R"(#compdef braze
# Completes braze in zsh. Made by `braze completion zsh`.
_braze() {{
  local -a commands=(
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
}}
if [[ $funcstack[1] == _braze ]]; then
  _braze "$@"
else
  compdef _braze braze
fi
)";

// `text` where zsh gives brackets and colons a meaning.
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

std::string zsh(const ToolDescription& description) {
  std::string commands, arguments;
  for (const CommandDescription& command : description.commands) {
    commands += fmt::format("    {}\n", quoted(zsh_text(command.name) + ":" + command.purpose));
    arguments += fmt::format("    {})\n      _arguments", command.name);
    for (const std::string& specification : zsh_specifications(command))
      arguments += " \\\n        " + quoted(specification);
    arguments += "\n      ;;\n";
  }
  return fmt::format(kZsh, fmt::arg("commands", commands), fmt::arg("arguments", arguments),
                     fmt::arg("tool", join(zsh_specifications(description.tool), " ", quoted)));
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
  std::string script = "# Completes braze in fish. Made by `braze completion fish`.\n";
  for (const ArgumentDescription& argument : description.tool.arguments)
    script += "complete -c braze -n __fish_use_subcommand" + fish_argument(argument);
  for (const CommandDescription& command : description.commands) {
    script += fmt::format("complete -c braze -n __fish_use_subcommand -f -a {} -d {}\n",
                          command.name, quoted(command.purpose));
    for (const ArgumentDescription& argument : command.arguments)
      if (!argument.positional() || !argument.offers.empty())
        script += fmt::format("complete -c braze -n '__fish_seen_subcommand_from {}'{}",
                              command.name, fish_argument(argument));
  }
  return script;
}

struct Shell {
  std::string_view name;
  std::string (*script)(const ToolDescription&);
};
constexpr Shell kShells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

Exit complete(const std::string& name) {
  Words known;
  for (const Shell& shell : kShells) {
    known.emplace_back(shell.name);
    if (shell.name != name) continue;
    fmt::print("{}", shell.script(describe_tool()));
    return Exit::Ok;
  }
  fail_usage(fmt::format("there are completions for {}, not for {}{}", fmt::join(known, ", "), name,
                         did_you_mean(name, known)));
}

std::function<Exit()> add(Arguments& arguments) {
  auto name = std::make_shared<std::string>();
  Words known;
  for (const Shell& shell : kShells) known.emplace_back(shell.name);
  arguments.add_option("SHELL", *name, "bash, zsh or fish").required().offers(known);
  return [name] { return complete(*name); };
}

}  // namespace

const Command kCompletion = {
    "completion", "Prints a script that completes commands and options in a shell.",
    "  braze completion bash > ~/.local/share/bash-completion/completions/braze\n"
    "  source <(braze completion zsh)\n"
    "  braze completion fish > ~/.config/fish/completions/braze.fish\n",
    add};

}  // namespace braze::tool
