// main.cpp — braze: runs programs, shows their compilation, and checks their results.
#include "tools/braze/command_line.h"

namespace braze::tool {

namespace {

constexpr const Command* kCommands[] = {&kRun,      &kImport,  &kCompile, &kInspect,    &kExplain,
                                        &kReport,   &kCompare, &kCache,   &kKey,        &kSign,
                                        &kTimeline, &kDevices, &kDoctor,  &kCompletion, &kManual};

}  // namespace

std::span<const Command* const> commands() { return kCommands; }

}  // namespace braze::tool

int main(int argc, char** argv) {
  namespace tool = braze::tool;
  return tool::report_failures("braze",
                               [&] { return static_cast<int>(tool::run_tool(argc, argv)); });
}
