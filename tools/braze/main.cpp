// main.cpp — braze: runs programs, shows their compilation, and checks their results.
#include <malloc.h>

#include "tools/braze/command_line.h"

namespace braze::tool {

namespace {

constexpr const Command* kCommands[] = {&kRun,      &kImport,  &kCompile, &kInspect,    &kExplain,
                                        &kReport,   &kCompare, &kCache,   &kKey,        &kSign,
                                        &kTimeline, &kDevices, &kDoctor,  &kCompletion, &kManual};

}  // namespace

std::span<const Command* const> commands() { return kCommands; }

}  // namespace braze::tool

namespace {

// LLVM and the assembler of GPUs allocate and free much memory for every kernel. By default the C
// library gives it back to the system, and all cores then wait until the system gives it again.
// With these limits a fifth of the page faults of a compilation is left. A library may not decide
// this for its host program, but a tool may.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

}  // namespace

int main(int argc, char** argv) {
  namespace tool = braze::tool;
  keep_freed_memory();
  return tool::report_failures("braze",
                               [&] { return static_cast<int>(tool::run_tool(argc, argv)); });
}
