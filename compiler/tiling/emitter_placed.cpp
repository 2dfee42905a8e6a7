// emitter_placed.cpp — reductions whose terms say where they are added: an instance owns a block of
// places, walks all terms in order, and takes those whose place is its own.
#include <algorithm>

#include "compiler/tiling/emitter_p.h"

namespace braze {

namespace {

constexpr Code kScheduleDirect{
    "schedule-direct", ErrorKind::InvalidArgument,
    "A schedule asks for sums in the memory of the result, which the kernel does not allow."};

}  // namespace

// The sums of one instance: in a buffer, or in the memory of the result.
class PlacedSums {
 public:
  /// `blocks`: the instance's numbers along the parallel axes.
  PlacedSums(TileEmitter& emitter, const std::vector<Expr>& blocks)
      : emitter_(emitter),
        builder_(emitter.builder_),
        space_(emitter.space_),
        schedule_(emitter.schedule_),
        dims_(emitter.dims_),
        bindings_(emitter.bindings_),
        blocks_(blocks),
        axis_(space_.placed->axis),
        task_(space_.passes[space_.placed->pass].reduces.front()),
        form_(*emitter.request_.forms.find(task_.node)) {}

  void emit();

 private:
  using Body = TileEmitter::Body;

  void declare();
  void begin();
  void walk_terms(size_t depth);
  void take_each(const Expr& low, const Expr& high);
  Expr scan_groups(const Expr& extent);
  void at_places(int64_t count, const Expr& first, const Body& body);
  TileValue loaded_places();
  ValueId among(const TileValue& places);
  void add_term(const TileValue& loaded);
  void finish();
  std::vector<Expr> at(const Expr& place) const;
  Expr place_at_hand() const;
  Guard guard() const;
  TileValue load(const std::vector<Expr>& at);
  const Expr& extent() const { return space_.parallel[axis_].extent; }
  const std::vector<SpaceAxis>& inner() const { return space_.passes[space_.placed->pass].inner; }

  TileEmitter& emitter_;
  CodeBuilder& builder_;
  const Space& space_;
  const Schedule& schedule_;
  std::vector<TileDim>& dims_;
  Bindings& bindings_;
  const std::vector<Expr>& blocks_;
  const size_t axis_;  // of the places
  const SpaceTask& task_;
  const LoopForm& form_;
  MemoryId memory_;
  Expr first_, end_;  // of the places that are the instance's
  DType place_dtype_ = DType::I64;
  ValueOperand lowest_, highest_;  // the loaded places that are theirs
};

// The sums begin with what the terms are added to; in the end comes what follows in the kernel.
void PlacedSums::emit() {
  declare();
  begin();
  walk_terms(0);
  finish();
}

void PlacedSums::declare() {
  const Expr block = schedule_.block[axis_];
  first_ = builder_.let("first", blocks_[axis_] * block);
  end_ = builder_.let("end", min(first_ + block, extent()));
  if (schedule_.direct)
    memory_ = emitter_.memory_of_.at({task_.node.index, true});
  else
    memory_ = builder_.buffer("sums", accumulator_type(form_), schedule_.block);

  // Places beyond the axis count as its first or last.
  const Graph& graph = emitter_.graph_;
  const NodeId indices = graph[task_.node].operands[form_.placement->indices];
  const bool narrow = graph[indices].type.dtype == DType::I32 && extent().range().max <= INT32_MAX;
  if (narrow) place_dtype_ = DType::I32;
  const Interval range = narrow ? Interval{INT32_MIN, INT32_MAX} : Interval{};
  const ValueType scalar{place_dtype_, 1, {}}, flag{DType::Bool, 1, {}};
  const auto unless = [&](const Expr& a, const Expr& b, int64_t limit, const Expr& value) {
    return builder_.row(
        ElementwiseOp::select,
        {builder_.test({{a, IndexComparison::Kind::Eq, b}}, flag),
         ValueOperand::literal(place_dtype_, constant_bits_int(place_dtype_, limit)),
         builder_.iota(value, scalar)});
  };
  lowest_ = unless(first_, 0, range.min, first_);
  highest_ = unless(end_, extent(), range.max, end_ - 1);
}

// Where the sum at `place` and the other coordinates at hand is.
std::vector<Expr> PlacedSums::at(const Expr& place) const {
  Bindings bindings = emitter_.exact_bindings();
  bindings[space_.parallel[axis_].symbol.symbol_name()] = place;
  if (schedule_.direct)
    return {linear_offset(substitute(task_.at, bindings), emitter_.graph_[task_.node].type.shape)};
  std::vector<Expr> at;
  for (size_t p = 0; p < space_.parallel.size(); ++p) {
    const Expr low = p == axis_ ? first_ : blocks_[p] * Expr(schedule_.block[p]);
    at.push_back(space_.parallel[p].symbol.substitute(bindings) - low);
  }
  return at;
}

// Buffers have room for whole tiles.
Guard PlacedSums::guard() const {
  return schedule_.direct ? Guard{emitter_.inside_extents(), {}} : Guard{};
}

TileValue PlacedSums::load(const std::vector<Expr>& at) {
  const DType dtype = accumulator_type(form_);
  return {builder_.load(memory_, at, emitter_.full_type(dtype), guard()), dtype};
}

// The place of the tile that a walk over the instance's block has reached.
Expr PlacedSums::place_at_hand() const {
  return emitter_.exact_bindings().at(space_.parallel[axis_].symbol.symbol_name());
}

// What comes before the placed reduction is computed on the way. Sums that are in the memory of
// what they begin with are there already.
void PlacedSums::begin() {
  const TilingRequest& request = emitter_.request_;
  const auto alias = request.aliases.find(start_of(request.forms, task_).node);
  if (schedule_.direct && alias != request.aliases.end() && alias->second == task_.node) return;
  emitter_.walk_parallel(emitter_.loop_order(), 0, blocks_, [&] {
    const TileValue start = emitter_.converted(
        emitter_.inliner_.start(task_.node, emitter_.bound(task_.at)), accumulator_type(form_));
    builder_.store(emitter_.full(start.operand, start.dtype), memory_, at(place_at_hand()),
                   guard());
    for (size_t n = 0; n < space_.placed->pass; ++n) emitter_.emit_pass(n);
  });
  emitter_.new_scope();
}

// The terms in order, the innermost axis of them by groups.
void PlacedSums::walk_terms(size_t depth) {
  if (depth == inner().size()) return take_each(0, 1);
  const Expr& count = inner()[depth].extent;
  if (count.range().max <= 0) return;  // no terms; their places may have no meaning
  if (depth + 1 == inner().size()) {
    Expr end;
    if (schedule_.scan > 1) end = scan_groups(count);
    if (!(end - count).is_constant(0)) take_each(end, count);
    return;
  }
  builder_.for_loop("t", 0, count, 1, {}, [&](Expr t, const auto&) {
    bindings_[inner()[depth].symbol.symbol_name()] = t;
    emitter_.new_scope();
    walk_terms(depth + 1);
    return std::vector<ValueOperand>{};
  });
  emitter_.new_scope();
}

// Terms [low, high) of the innermost axis, one by one.
void PlacedSums::take_each(const Expr& low, const Expr& high) {
  builder_.for_loop("t", low, high, 1, {}, [&](Expr t, const auto&) {
    at_places(1, t, [&] {
      const TileValue places = loaded_places();
      Region region;
      const ValueId own = among(places);
      builder_.enter(region);
      add_term(places);
      builder_.leave();
      builder_.append(IfOp{{}, own, std::move(region), {}}, {});
    });
    return std::vector<ValueOperand>{};
  });
  emitter_.new_scope();
}

// Whole groups of the terms below `extent`; what is returned is where they end. The places of a
// group are compared at once; the number of a term among those that are the instance's is the least
// after that of the one before.
Expr PlacedSums::scan_groups(const Expr& extent) {
  const int64_t group = schedule_.scan;
  const ValueType scalar{DType::I32, 1, {}}, tile{DType::I32, 1, {group}};
  const ValueOperand none = ValueOperand::literal(DType::I32, constant_bits_int(DType::I32, group));
  const Expr end = builder_.let("whole", floordiv(extent, group) * Expr(group));
  const auto all = [&](Monoid monoid, const ValueOperand& value) {
    return builder_.view(ViewKind::Reshape, builder_.fold(monoid, value, {0}), scalar);
  };
  if (end.is_constant(0)) return end;
  // A thread's own terms first, then those of others: the fewest are exchanged.
  if (emitter_.on_gpu())
    emitter_.add_layout(spread({group}, {emitter_.result_.program.warps * kWarpThreads}, 1));
  builder_.for_loop("group", 0, end, group, {}, [&](Expr first, const auto&) {
    at_places(group, first, [&] {
      const ValueOperand own = emitter_.full(among(loaded_places()), DType::Bool);
      const ValueId number = builder_.iota(position_symbol('d', 0, group), tile);
      const ValueId numbers = builder_.row(ElementwiseOp::select, {own, number, none});
      const ValueId count =
          all(Monoid::Sum, builder_.row(ElementwiseOp::convert, {own}, DType::I32));
      const ValueId before = builder_.constant(scalar, constant_bits_int(DType::I32, -1));
      const Expr hits = value_symbol(builder_.code(), count);
      builder_.for_loop("hit", 0, hits, 1, {before}, [&](Expr, const auto& last) {
        const ValueId after = builder_.row(ElementwiseOp::gt, {numbers, last[0]});
        const ValueId rest = builder_.row(ElementwiseOp::select, {after, numbers, none});
        const ValueId next = all(Monoid::Min, rest);
        const Expr term = value_symbol(builder_.code(), next);
        emitter_.value_extents_[term.symbol_name()] = {};
        at_places(1, first + term, [&] { add_term(loaded_places()); });
        return std::vector<ValueOperand>{next};
      });
    });
    return std::vector<ValueOperand>{};
  });
  emitter_.new_scope();
  return end;
}

// Runs the body with a tile of `count` places from term `first` on, or a scalar, in place of the
// kernel's tile.
void PlacedSums::at_places(int64_t count, const Expr& first, const Body& body) {
  std::vector<TileDim> dims;
  const Bindings bindings = bindings_;
  if (!inner().empty()) {
    const std::string& axis = inner().back().symbol.symbol_name();
    bindings_[axis] = count > 1 ? first + position_symbol('d', 0, count) : first;
    if (count > 1)
      dims.push_back({.axis = axis, .extent = inner().back().extent, .tile = count, .base = first});
  }
  std::swap(dims_, dims);
  emitter_.new_scope();
  body();
  emitter_.new_scope();
  std::swap(dims_, dims);
  bindings_ = bindings;
}

TileValue PlacedSums::loaded_places() {
  return emitter_.converted(emitter_.inliner_.place(task_.node, emitter_.bound(task_.reduction)),
                            place_dtype_);
}

// Which places are the instance's.
ValueId PlacedSums::among(const TileValue& places) {
  ValueOperand loaded = places.operand;
  if (loaded.is_literal()) loaded = builder_.constant({place_dtype_, 1, {}}, loaded.bits);
  return builder_.row(ElementwiseOp::logical_and,
                      {builder_.row(ElementwiseOp::ge, {loaded, lowest_}),
                       builder_.row(ElementwiseOp::le, {loaded, highest_})});
}

// The term at hand, all of its elements that are the instance's.
void PlacedSums::add_term(const TileValue& loaded) {
  const Expr place = emitter_.sink_.as_index(emitter_.converted(loaded, DType::I64), extent());
  const std::vector<TileDim> scalar = std::move(dims_);
  dims_ = schedule_.tile[axis_] > 1 ? std::vector<TileDim>{} : emitter_.tile_dims_;
  std::vector<size_t> order = emitter_.loop_order();
  std::erase(order, axis_);
  emitter_.walk_parallel(order, 0, blocks_, [&] {
    const std::vector<Expr> sum = at(place);
    // A literal is nothing to combine with: the term takes its place.
    std::vector<ValueOperand> state{
        form_.monoid ? load(sum).operand : ValueOperand::literal(accumulator_type(form_), 0)};
    emitter_.accumulate({&task_, &form_, 0}, state);
    builder_.store(state[0], memory_, sum, guard());
  });
  emitter_.new_scope();
  dims_ = scalar;
}

// What follows in the kernel reads the sums tile by tile.
void PlacedSums::finish() {
  if (schedule_.direct) return;  // they are the result
  emitter_.walk_parallel(emitter_.loop_order(), 0, blocks_, [&] {
    emitter_.reduced_[task_.node.index] =
        emitter_.converted(load(at(place_at_hand())), form_.result);
    for (size_t n = space_.placed->pass + 1; n < space_.passes.size(); ++n) emitter_.emit_pass(n);
  });
  emitter_.reduced_.clear();
}

void TileEmitter::emit_placed_phase() {
  const SpaceTask& task = space_.passes[space_.placed->pass].reduces.front();
  const LoopForm& form = *request_.forms.find(task.node);
  // Sums can be in the memory of the result if it is all that follows, in their dtype.
  if (schedule_.direct &&
      (request_.fusion.outputs != std::vector{task.node} || form.result != accumulator_type(form)))
    refuse(kScheduleDirect,
           "direct= needs sums that are the only result of the kernel, in its dtype",
           "remove direct= from the schedule");
  emit_instances([&](const std::vector<Expr>& blocks) { PlacedSums(*this, blocks).emit(); });
}

}  // namespace braze
