// pipelined_dot.h — sums of products on the matrix units of a GPU: a persistent grid of blocks
// walks the tiles of the result; one role copies both factors to a ring of slots, others multiply
// and do what follows.
//
// It starts from a space: any reduction that is such a sum, whatever its graph said, with any
// passes behind it.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/tiling/emitter.h"
#include "compiler/tiling/families.h"

namespace braze {

/// A factor as it lies in memory: a matrix of the contracted axis and one parallel axis.
struct MatrixFactor {
  NodeId node;
  std::vector<Expr> at;          ///< coordinates over the space's symbols
  bool contracted_last = false;  ///< the contracted axis is innermost in memory
};

/// The first pass of a space as a sum of products of two factors in memory.
struct MatrixProduct {
  size_t row = 0, lane = 0;  ///< parallel axes of the factors
  MatrixFactor a, b;         ///< along the rows, along the lanes
  DType dtype = DType::BF16;
};
/// None if the space is no such product, or its factors do not suit bulk copies.
std::optional<MatrixProduct> matrix_product(const TilingRequest& request, const Space& space);

/// For targets with asynchronous matrix instructions.
std::optional<Schedule> schedule_pipelined_dot(const TilingRequest& request, const Space& space);

/// Appends the phase that computes a product; `request` and the others outlive it.
class PipelinedDot {
 public:
  static constexpr int64_t kSlabColumns = 64;
  static constexpr int64_t kSlabRows = 64;

  /// InvalidArgument if the schedule has no program.
  PipelinedDot(CodeBuilder& builder, const Space& space, const MatrixProduct& product,
               const Schedule& schedule, MemoryId a, MemoryId b);

  /// An output whose tiles are written in bulk; returns its number.
  size_t stage_output(MemoryId output);
  /// `slab` computes what follows 64 x 64 sums, f32, whose first element is (row, column); it may
  /// call `store` once for each staged output.
  using Slab = std::function<void(ValueId sums, const Expr& row, const Expr& column)>;
  void emit(const Slab& slab);
  void store(size_t output, Operand value, const Expr& row, const Expr& column);

 private:
  struct Staged {
    MemoryId output, buffer;
  };
  bool cooperative() const { return schedule_.form != "pingpong"; }
  int64_t parts() const;  // accumulators of 64 rows that a consumer has
  int64_t slabs() const { return tile_columns() / kSlabColumns; }  // of an accumulator
  int64_t tile_rows() const { return schedule_.tile[product_.row]; }
  int64_t tile_columns() const { return schedule_.tile[product_.lane]; }
  void check() const;
  Memory field(const MatrixFactor& factor, std::string_view name, int64_t parallel) const;
  void declare();
  void emit_producer(Region& phase);
  void emit_consumers(Region& phase, const Slab& slab);
  void emit_tile(const Expr& u, const Slab& slab);
  std::vector<Operand> multiply(const Expr& first_item);
  void copy(const MatrixFactor& factor, MemoryId memory, MemoryId field, const Expr& k,
            const Expr& parallel, std::string_view axis);
  Expr first_item(const Expr& u) const;
  std::pair<Expr, Expr> place_of(const Expr& u);  // first row and column of a tile
  MemoryId window(MemoryId source, std::optional<Expr> item, std::vector<Expr> offsets,
                  std::vector<int64_t> extents);
  void for_static(std::string_view hint, int64_t count,
                  const std::function<void(const Expr&)>& body);
  KernelCode& code() { return builder_.code(); }

  CodeBuilder& builder_;
  const Space& space_;
  const MatrixProduct& product_;
  const Schedule& schedule_;
  const MemoryId a_, b_;
  MemoryId field_a_, field_b_;
  ChannelId channel_;
  TokenId turn_;
  Expr block_, rank_, row_tiles_, column_tiles_, tiles_, steps_, consumer_;
  Expr slab_;  // number of the slab at hand within its tile
  std::vector<Staged> staged_;
};

/// Names the layouts of the tiles of a program of 64 x 64 slabs and 64 x `columns` accumulators.
void assign_dot_layouts(TileProgram& program, int64_t columns);

}  // namespace braze
