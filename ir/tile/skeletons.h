// skeletons.h — checks the rules between roles by running skeletons: P7, P9 to P14, P16, P17 and
// P19 of docs/ir/languages.md. A skeleton is what a role does to channels, tokens, dots and stores.
// It runs for a few sizes, and without values.
#pragma once

#include "ir/tile/pipeline_rules.h"

namespace braze {

/// Reports the rules that the skeletons of an otherwise sound program break. If loaded values
/// decide whether statements run for which others wait, it runs nothing, and reports a note (P15).
void check_skeletons(const TileProgram& program, const ReportRule& report, const ReportRule& note);

}  // namespace braze
