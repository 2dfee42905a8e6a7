// manual.cpp — braze manual: the manual page, from the same descriptions as the help.
#include <fmt/format.h>

#include <functional>

#include "tools/braze/command_line.h"

namespace braze::tool {

namespace {

std::function<Exit()> add(Arguments&) {
  return [] {
    fmt::print("{}", manual_page(describe_tool()));
    return Exit::Ok;
  };
}

}  // namespace

const Command kManual = {"manual", "Prints the manual page.",
                         "  braze manual | man -l -                # shows it\n", add};

}  // namespace braze::tool
