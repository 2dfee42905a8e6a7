// text.h — a schedule: the steps that lead from a kernel's first tree to its last, as a value and
// as text.
//
//   split i 128; split i.2 64; whole i.3; on i grid; on i.2 group; stage x j; ring j 4
//
// Loops are named by their axis: `j` is the first loop over j in the order of the tree's text, and
// `j.2` is the second. Names of values begin with %; names of tensors and axes do not. A new kind
// of step needs a struct with its name and fields, `legal` and `take`, and an entry in the list
// below.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/loops/steps/axes.h"
#include "compiler/loops/steps/chunk.h"
#include "compiler/loops/steps/factors.h"
#include "compiler/loops/steps/levels.h"
#include "compiler/loops/steps/marks.h"
#include "compiler/loops/steps/merge.h"
#include "compiler/loops/steps/order.h"
#include "compiler/loops/steps/picks.h"
#include "compiler/loops/steps/share.h"
#include "compiler/loops/steps/skips.h"
#include "compiler/loops/steps/stage.h"
#include "compiler/loops/steps/sums.h"
#include "compiler/loops/steps/terms.h"

namespace braze {

using StepKind =
    std::variant<SplitStep, SlabsStep, WholeStep, CollapseStep, ReorderStep, TupleStep, OnStep,
                 SerialStep, ReverseStep, MergeStep, DrawStep, SkipStep, LimitStep, PickStep,
                 ChunkStep, ApartStep, StageStep, LoadStep, ShareStep, KeepStep, AgainStep,
                 FactorStep, PackStep, RingStep, RolesStep, RegistersStep, UnitStep, DealStep,
                 TurnsStep, AheadStep, UnrollStep, PartialStep, PartStep, EncloseStep, SeekStep,
                 BindStep, CacheStep, LastStep, LeadStep, FlattenStep, ResiduesStep, ComposeStep,
                 PadStep>;

struct LoopTreeStep {
  StepKind kind;
  SourceLocation location = {};
};
using LoopTreeSteps = std::vector<LoopTreeStep>;

/// Reads steps joined by `;`. The text is not trusted.
LoopTreeSteps parse_steps(std::string_view text, std::string_view file_name);
LoopTreeSteps parse_steps(Scanner& scanner);
/// The canonical text; `parse_steps` reads it back.
std::string to_text(const LoopTreeStep& step);
std::string to_text(const LoopTreeSteps& steps);

/// Why a step does not apply to this tree; nullopt if it does.
std::optional<Refusal> legal(const LoopTree& tree, const LoopTreeStep& step);
/// The tree after legal steps. An illegal step throws an error with the code of its refusal. The
/// error names the step, the reason, and what would be legal.
LoopTree take(const LoopTree& tree, const LoopTreeStep& step);
LoopTree take(const LoopTree& tree, const LoopTreeSteps& steps);

}  // namespace braze
