// emitter_matrix_units.cpp — what surrounds a pipelined dot: its outputs, and the passes after it.

#include <algorithm>

#include "compiler/tiling/emitter_p.h"
#include "compiler/tiling/pipelined_dot.h"

namespace braze {

namespace {

// Whether the last coordinate is the lane, another the row, and all others neither.
bool lies_along(const std::vector<Expr>& at, const Expr& row, const Expr& lane) {
  if (at.size() < 2 || at.size() > kMostTensorRank || at.back() != lane) return false;
  return std::count(at.begin(), at.end(), row) == 1 &&
         std::all_of(at.begin(), at.end() - 1, [&](const Expr& e) {
           return e == row || (!e.uses(row.symbol_name()) && !e.uses(lane.symbol_name()));
         });
}

}  // namespace

// The skeleton multiplies. The passes after it run on one slab of its sums at a time.
void TileEmitter::emit_on_matrix_units() {
  const auto product = matrix_product(request_, space_);
  if (!product)
    refuse(kScheduleThreads,
           "stages= needs a product of two matrices of 16-bit floats that bulk copies can fetch; "
           "this kernel is none",
           "remove stages= from the schedule");
  result_.program.pipelined = true;
  result_.program.target = request_.target.name;
  PipelinedDot dot(builder_, space_, *product, schedule_,
                   memory_of_.at({product->a.node.index, false}),
                   memory_of_.at({product->b.node.index, false}));
  dot_ = &dot;
  const auto dimension = [&](size_t p, int64_t tile, int64_t whole, bool lane) {
    const SpaceAxis& axis = space_.parallel[p];
    dims_.push_back({.axis = axis.symbol.symbol_name(),
                     .extent = axis.extent,
                     .tile = tile,
                     .lane = lane,
                     .partial = !axis.extent.is_multiple_of(whole)});
  };
  dimension(product->row, PipelinedDot::kSlabRows, schedule_.tile[product->row] * schedule_.cluster,
            false);
  dimension(product->lane, PipelinedDot::kSlabColumns, schedule_.tile[product->lane], true);
  stage_outputs(*product);
  const NodeId node = space_.passes[0].reduces[0].node;
  const DType dtype = request_.forms.find(node)->result;
  PipelinedDot::Epilogue epilogue{.dtype = dtype};
  epilogue.rounded = [&](ValueId sums) { return converted({sums, DType::F32}, dtype).operand; };
  epilogue.follow = [&](const PipelinedDot::Part& part) {
    for (size_t p = 0; p < part.first.size(); ++p) {
      const std::string& axis = space_.parallel[p].symbol.symbol_name();
      bindings_[axis] = store_bindings_[axis] = part.first[p];
    }
    dims_[0].base = part.first[product->row];
    dims_[0].tile = part.rows;
    dims_[1].base = part.first[product->lane];
    for (TileDim& dim : dims_) bind_parallel_tile(dim);
    forget_values();
    reduced_[node.index] = {part.sums, dtype};
    for (size_t n = 1; n < space_.passes.size(); ++n) emit_pass(n);
  };
  dot.emit(epilogue);
  assign_dot_layouts(result_.program, schedule_.tile[product->lane],
                     PipelinedDot::epilogue_rows(schedule_, dtype));
}

// Outputs whose matrices have rows and lanes in order are stored by bulk copies.
void TileEmitter::stage_outputs(const MatrixProduct& product) {
  const Expr &row = space_.parallel[product.row].symbol,
             &lane = space_.parallel[product.lane].symbol;
  for (size_t n = 1; n < space_.passes.size(); ++n) {
    for (const SpaceTask& task : space_.passes[n].stores) {
      const auto bytes = static_cast<int64_t>(size_of(graph_[task.node].type.dtype));
      const TensorView& view = views_.at(task.node);
      std::vector<Expr> at = view.at(task.at);
      if ((bytes == 2 || bytes == 4) && lies_along(at, row, lane) &&
          (view.shape().dims().back() * Expr(bytes)).is_multiple_of(16))
        bulk_outputs_[task.node] =
            dot_->stage_output(memory_of_.at({task.node.index, true}), std::move(at));
    }
  }
}

}  // namespace braze
