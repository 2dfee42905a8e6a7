// skeletons.h — the rules between roles that only running shows: P7, P9 to P14, P16, P17 and P19 of
// docs/ir/languages.md. They are found by running, for a few sizes and without values, what the
// roles do to channels and tokens.
#pragma once

#include "ir/tile/pipeline_rules.h"

namespace braze {

/// Reports what the skeletons of an otherwise sound program break. If loaded values decide about
/// statements that others wait for, it runs nothing and notes that (P15).
void check_skeletons(const TileProgram& program, const ReportRule& report, const ReportRule& note);

}  // namespace braze
