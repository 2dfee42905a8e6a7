// cascades_gpu.h — what the rules for cascades of dots on a GPU share: the factors that are copied,
// and the steps from rows on the grid to a walk in turns.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/loops/rules/cascade.h"

namespace braze {

/// What multiplies the factors of the dots: asynchronous matrix units, the matrix units of warps,
/// or threads.
enum class CascadeUnit { Asynchronous, Warps, Threads };

inline bool is_load(const LoopStep& s) { return s.kind == LoopStep::Kind::Load; }

/// A dot by name, which steps do not change.
struct NamedDot {
  std::string name;
  bool swap;        ///< whether the right factor has the rows
  bool is_first;    ///< whether its sums are complete in a turn of the walk
  int64_t columns;  ///< of its sums; without those along the walk
};

/// A factor to be staged, which is read directly from memory.
struct StagedFactor {
  std::string tensor;
  bool in_walk;
  int64_t row_bytes;      ///< bytes of a row of the tile
  bool has_rows = false;  ///< whether it varies along the rows
  bool across = false;    ///< whether neighbours in memory are of different rows
};

struct CascadeFactors {
  std::vector<NamedDot> dots;
  std::set<size_t> tiled;  ///< the axes of the dots' tiles
  std::vector<StagedFactor> staged;
  int64_t element_bytes = 2;
  int64_t columns = 0;       ///< of all sums that are carried
  int64_t most_columns = 0;  ///< of the sums of one such dot
  int64_t first_dots = 0;    ///< dots whose sums are complete in a turn
  int64_t made = 0;          ///< factors that are made of such sums
  double walked_bytes = 0;   ///< bytes that all tiles of rows read in their walks
};

/// The dots, and the factors that are copied. Bulk copies, those for asynchronous units, cannot
/// fetch all factors.
std::optional<Refusal> find_factors(const LoopTree& tree, const Cascade& cascade, CascadeUnit unit,
                                    CascadeFactors& out);

/// How the rows are cut inside of an instance, and which of these loops are dealt to the machine.
struct RowSteps {
  std::vector<StepKind> cut, dealt;
  bool one_tile = false;  ///< whether an instance has all rows
};

/// Whether an instance, which has so many rows, has all of them, and another axis is on the grid.
bool is_one_tile(const LoopTree& tree, const Cascade& cascade, int64_t rows);
/// The instances if all rows are one tile.
int64_t instances_of(const LoopTree& tree, const Cascade& cascade);

/// Deals the rows to instances; then walks in turns of `turn` indices, in so many chunks, and
/// stages the factors.
std::optional<Refusal> walk_in_turns(Scheduled& out, const Cascade& cascade,
                                     const CascadeFactors& factors, RowSteps row_steps,
                                     int64_t turn, int64_t chunks, const WalkRanges& ranges);

/// Deals the tiles: instances that walk over the same data run at the same time, as many as the
/// shared cache can serve. If walks end with their rows, the longest come first.
void deal_tiles(Scheduled& out, const Cascade& cascade, double walked_bytes, const Target& target);

/// Whether one warp of matrix units multiplies all rows at once.
bool has_rows_of_one_warp(const LoopTree& tree, const Cascade& cascade);

/// The steps for the matrix units of warps, or for threads. `picks` says whether phases may list
/// the turns.
std::optional<Refusal> tile_cascade_by_warps(Scheduled& out, const Cascade& cascade,
                                             const Target& target, CascadeUnit unit, bool picks);

}  // namespace braze
