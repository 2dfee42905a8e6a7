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

/// A factor as it lies in memory: matrices of the contracted axis and one parallel axis.
struct MatrixFactor {
  NodeId node;
  /// Coordinates over the space's symbols: the two axes once each, the others of batch axes.
  std::vector<Expr> at;
  bool contracted_last = false;  ///< the contracted axis is innermost in memory
};

/// The first pass of a space as a sum of products of two factors in memory; one for each index of
/// the parallel axes other than `row` and `lane`, which are the batch axes.
struct MatrixProduct {
  size_t row = 0, lane = 0;  ///< parallel axes of the factors
  MatrixFactor a, b;         ///< along the rows, along the lanes
  DType dtype = DType::BF16;
};
/// Axes that a bulk copy's tensor can have.
constexpr size_t kMostTensorRank = 5;

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

  /// Rows of a slab that the epilogue sees at a time.
  static int64_t epilogue_rows(const Schedule& schedule, DType dtype);

  /// An output whose tiles are written in bulk, at coordinates over the space's symbols; returns
  /// its number.
  size_t stage_output(MemoryId output, std::vector<Expr> at);
  /// A part of the product, which some threads of a consumer hold: its first index along each
  /// parallel axis, and its rows; it has kSlabColumns columns.
  struct Part {
    ValueOperand sums;
    std::vector<Expr> first;
    int64_t rows = kSlabRows;
  };
  /// `rounded` makes 64 x 64 sums, f32, values of the product's result, `dtype`; `follow` computes
  /// what follows a part and may call `store` once for each staged output.
  struct Epilogue {
    DType dtype = DType::F32;
    std::function<ValueOperand(ValueId sums)> rounded;
    std::function<void(const Part& part)> follow;
  };
  void emit(const Epilogue& epilogue);
  void store(size_t output, ValueOperand value);

 private:
  struct Staged {
    MemoryId output;
    std::vector<Expr> at;
    MemoryId buffer = {};
    MemoryId place = {};  // of the slab at hand
  };
  bool cooperative() const { return schedule_.form != "pingpong"; }
  int64_t depth() const;
  int64_t parts() const;  // accumulators of 64 rows that a consumer has
  int64_t slabs() const { return tile_columns() / kSlabColumns; }  // of an accumulator
  int64_t tile_rows() const { return schedule_.tile[product_.row]; }
  int64_t tile_columns() const { return schedule_.tile[product_.lane]; }
  void check() const;
  Memory field(const MatrixFactor& factor, std::string_view name, int64_t parallel) const;
  void declare();
  void emit_producer();
  void emit_consumers();
  void emit_tile(const Expr& u);
  void open_slab(const Expr& number, const std::vector<Expr>& tile);
  ValueOperand rounded_slab(const ValueOperand& sums, const Expr& g);
  void follow_by_rows(const std::vector<ValueOperand>& sums, const std::vector<Expr>& tile);
  void store_slab(const std::vector<ValueOperand>& sums);
  void follow_rows();
  void open(Staged& staged);
  void send(const Staged& staged);
  std::vector<ValueOperand> multiply(const Expr& first_item);
  void copy(const MatrixFactor& factor, MemoryId memory, MemoryId field, const Expr& k,
            const std::vector<Expr>& first, size_t parallel);
  Expr first_item(const Expr& u) const;
  bool is_batch(size_t axis) const { return axis != product_.row && axis != product_.lane; }
  std::vector<Expr> first_of(const Expr& u);  // indices of a tile
  // Coordinates over the space's symbols, for given indices along the parallel axes.
  std::vector<Expr> placed(const std::vector<Expr>& at, std::vector<Expr> parallel,
                           const Expr& contracted = 0) const;
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
  Expr block_, rank_, row_tiles_, column_tiles_, matrix_tiles_, tiles_, steps_, consumer_;
  Expr slab_;       // number of the slab at hand within its tile
  Part slab_part_;  // the slab at hand
  Expr first_row_;  // of the part at hand within it
  std::vector<Staged> staged_;
  const Epilogue* epilogue_ = nullptr;
  MemoryId sums_;  // on chip, for what follows row by row
};

/// Names the layouts of the tiles of a program of 64 x 64 slabs and 64 x `columns` accumulators,
/// whose epilogue sees `rows` of a slab at a time (64: all, as the accumulators hold them).
void assign_dot_layouts(TileProgram& program, int64_t columns, int64_t rows);

}  // namespace braze
