// completion.cpp — braze completion: a script that completes commands and options in a shell.
#include <fmt/format.h>

#include <functional>
#include <memory>

#include "tools/braze/command_line.h"

namespace braze::tool {

namespace {

std::function<Exit()> add(Arguments& arguments) {
  auto shell = std::make_shared<std::string>();
  arguments.add_option("SHELL", *shell, "bash, zsh or fish").required().offers(shells());
  return [shell] {
    fmt::print("{}", completion_script(*shell, describe_tool()));
    return Exit::Ok;
  };
}

}  // namespace

const Command kCompletion = {
    "completion", "Prints a script that completes commands and options in a shell.",
    "  braze completion bash > ~/.local/share/bash-completion/completions/braze\n"
    "  source <(braze completion zsh)\n"
    "  braze completion fish > ~/.config/fish/completions/braze.fish\n",
    add};

}  // namespace braze::tool
