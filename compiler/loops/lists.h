// lists.h — kernels that are equal up to their sizes become one kernel for a list of members.
//
// Updates of many tensors make kernels whose first trees differ only in names and extents. The form
// of such a tree has its axes joined and its tensors flattened, so that a matrix and a vector have
// the same one. From forms that differ in numbers alone, one tree is made in which a symbol stands
// for each extent that differs. Rules and emission treat it as any tree with symbolic sizes. The
// kernel made from it states the sizes of each member (languages.md, section 4.1: `members`).
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "compiler/loops/steps/refusal.h"
#include "compiler/loops/tree.h"

namespace braze {

namespace codes {
inline constexpr Code kUnlike{"unlike", ErrorKind::Unsupported,
                              "Kernels differ in more than what members of a list may differ in."};
}  // namespace codes

/// A first tree with axes joined and tensors flattened, where all accesses run through them as
/// through one. Its tensors are those of the first tree, in the same order.
LoopTree list_form(LoopTree first);

/// A text that two forms have in common if they differ only in names and in integers of index
/// expressions; or the reason why a kernel with this form is no member of a list.
std::variant<std::string, Refusal> list_key(const LoopTree& form);

struct ListTree {
  LoopTree tree;                            ///< with the names of the first member
  std::vector<std::vector<int64_t>> sizes;  ///< by member: the values of the tree's symbols
};
/// One tree for two or more forms with the same key, or the reason why there is none.
std::variant<ListTree, Refusal> list_tree(std::span<const LoopTree* const> forms);

/// The tree of a list, also after steps, with the sizes of one member in place of its symbols.
LoopTree with_sizes(LoopTree tree, const std::vector<int64_t>& sizes);

}  // namespace braze
