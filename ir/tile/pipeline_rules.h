// pipeline_rules.h — checks the rules of pipelined tile programs that need no skeletons: P1 to P3,
// P5, P6, P8 and P9 of docs/ir/languages.md, section 7.4.
#pragma once

#include <functional>
#include <string>

#include "ir/code/code.h"

namespace braze {

/// Receives the statement at fault (null: the kernel's head), the rule's number and a message.
using ReportRule =
    std::function<void(const Statement*, const char* rule, const std::string& message)>;

/// Checks a program whose names and types are sound.
void check_pipeline_rules(const TileProgram& program, const ReportRule& report);

}  // namespace braze
