// skeletons.h — the rules between roles that only running shows: P7, P9 to P14, P16, P17 and P19 of
// docs/ir/languages.md, found by running what the roles do to channels and tokens without
// their values, for a few sizes.
#pragma once

#include "ir/tile/pipeline_rules.h"

namespace braze {

/// Reports what the skeletons of a program break that is sound otherwise. Where loaded values steer
/// what others wait for, it runs nothing and notes that (P15).
void check_skeletons(const TileProgram& program, const ReportRule& report, const ReportRule& note);

}  // namespace braze
