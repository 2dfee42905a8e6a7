#include "compiler/passes/merge_sorts.h"

#include <algorithm>
#include <bit>

#include "compiler/passes/graph_emitter.h"
#include "compiler/passes/search_by_halves.h"
#include "ir/graph/axis_lists.h"
#include "ir/graph/rewrite.h"
#include "ir/ops/elementwise.h"

namespace braze {

namespace {

// In a piece of so many elements, each element is compared with all others.
constexpr int64_t kPiece = 32;
// A line of at most so many elements is one piece.
constexpr int64_t kMostInPiece = 64;
// A merge first finds where each group of so many results begins.
constexpr int64_t kGroup = 64;
// The first elements of a line are looked for in a few parts of it if so many times fewer elements
// are sorted then.
constexpr int64_t kLeastSaved = 4;

// An integer that is less, equal or greater as the element is before, equal to or after another
// one.
Scalar key_of(const Scalar& x, bool descending) {
  const DType type = compute_type(x.dtype());
  Scalar key;
  if (is_floating(x.dtype())) {
    const DType integer = type == DType::F64 ? DType::I64 : DType::I32;
    const int bits = 8 * static_cast<int>(size_of(integer));
    const Scalar wide = convert(x, type), zero = wide.constant(0);
    const Scalar number = bitcast(select(eq(wide, zero), zero, wide), integer);
    const Scalar greatest = number.constant_bits(integer, (uint64_t{1} << (bits - 1)) - 1);
    // The bits of negative numbers decrease where the numbers increase, except for the sign.
    const Scalar sign = shr(number, number.constant(bits - 1));
    const Scalar ordered = logical_xor(number, logical_and(sign, greatest));
    key = select(is_nan(wide), greatest, ordered);
  } else if (x.dtype() == DType::U32 || x.dtype() == DType::U64) {
    const DType integer = x.dtype() == DType::U32 ? DType::I32 : DType::I64;
    const int bits = 8 * static_cast<int>(size_of(integer));
    const Scalar same = bitcast(x, integer);
    key = logical_xor(same, same.constant_bits(integer, uint64_t{1} << (bits - 1)));
  } else {
    key = x.dtype() == DType::I64 ? x : convert(x, DType::I32);
  }
  return descending ? logical_not(key) : key;
}

static_assert(kGroup % kPiece == 0, "lines of whole groups are whole pieces");

// The number of elements, a power of two, of each of the parts of a line in which its first `count`
// elements are looked for; 0 if they are not looked for in parts.
int64_t part_of(int64_t extent, int64_t count) {
  if (extent <= kMostInPiece || count == 0) return 0;
  // Sorted are the least elements of all parts, and the elements of `count` parts. These are about
  // equally many if a part has the root of extent / count elements.
  int64_t part = 1;
  while (count * part * part < extent) part *= 2;
  const int64_t sorted = (extent + part - 1) / part + count * part;
  return kLeastSaved * sorted <= extent ? part : 0;
}

// Sorts lines of `extent` elements. Values of lines have one axis, along which one line follows the
// other.
class Sorter {
 public:
  Sorter(Graph& graph, SourceLocation where, const Expr& lines, int64_t extent, int64_t count)
      : graph_(graph),
        where_(where),
        emitter_(graph, where, /*expand_formulas=*/true),
        lines_(lines),
        extent_(extent),
        count_(count),
        piece_(extent <= kMostInPiece ? std::max<int64_t>(extent, 1) : kPiece),
        padded_(extent <= kMostInPiece ? piece_ : (extent + kGroup - 1) / kGroup * kGroup),
        part_(part_of(extent, count)),
        number_((lines * (padded_ + part_)).range().max <= INT32_MAX ? DType::I32 : DType::I64) {}

  // The indices of the first `count` elements of each line, [lines, count], of keys [lines,
  // extent].
  NodeId sort(NodeId lines) { return part_ > 0 ? sorted_parts(lines) : merged_pieces(lines); }

 private:
  // The same, of the parts in which they are: those whose least elements come first. A part that is
  // not among these has no element that is wanted, because `count` parts have one before it.
  NodeId sorted_parts(NodeId lines) {
    const int64_t parts = (extent_ + part_ - 1) / part_, candidates = count_ * part_;
    const NodeId cut = build::reshape(graph_, filled(lines, parts * part_),
                                      Shape({lines_, Expr(parts), Expr(part_)}), where_);
    const NodeId least = build::reduce(graph_, Monoid::Min, cut, {2}, where_);
    const NodeId chosen = narrow(Sorter(graph_, where_, lines_, parts, count_).sort(least));
    // In the order of the line, in which equal elements are wanted.
    const NodeId order = narrow(Sorter(graph_, where_, lines_, count_, count_).sort(chosen));
    const Scalar line = line_of(element_of(count_), count_);
    const NodeId part = gather(flat(chosen), line * number(count_) + value(flat(order)));
    const NodeId rows = build::reshape(graph_, cut, Shape({lines_ * parts, Expr(part_)}), where_);
    const NodeId found = build::reshape(graph_, gather(rows, line * number(parts) + value(part)),
                                        Shape({lines_, Expr(candidates)}), where_);
    const Scalar place =
        value(flat(narrow(Sorter(graph_, where_, lines_, candidates, count_).sort(found))));
    const Scalar of = shr(place, place.constant(std::countr_zero(static_cast<uint64_t>(part_))));
    const Scalar begin = value(gather(part, line * number(count_) + of));
    const Scalar index = begin * number(part_) + (place - of * number(part_));
    return build::reshape(graph_,
                          build::convert(graph_, GraphEmitter::node(index), DType::I64, where_),
                          Shape({lines_, Expr(count_)}), where_);
  }

  NodeId merged_pieces(NodeId lines) {
    NodeId keys = flat(filled(lines, padded_));
    NodeId indices = sorted_pieces(keys);
    int64_t run = std::min(piece_, count_), have = padded_ / piece_ * run;
    if (run < have) {
      const Scalar places = value(indices) + line_of(element_of(have), have) * number(padded_);
      keys = gather(keys, places);
    }
    while (run < have) {
      const Merge merge(run, have, count_);
      const Scalar from = sources(keys, merge);
      if (merge.run < merge.have) keys = gather(keys, from);
      indices = gather(indices, from);
      run = merge.run;
      have = merge.have;
    }
    indices = build::convert(graph_, indices, DType::I64, where_);
    indices = build::reshape(graph_, indices, Shape({lines_, Expr(have)}), where_);
    if (have == count_) return indices;
    return build::slice(graph_, indices, {Expr(0), Expr(0)}, {lines_, Expr(count_)}, {1, 1},
                        where_);
  }

  // A merge of sorted runs, of which each but the last of a line has `from` elements, in pairs. Of
  // each pair, the first `run` elements are wanted.
  struct Merge {
    Merge(int64_t from_run, int64_t from_have, int64_t most)
        : from(from_run), had(from_have), run(std::min(2 * from, most)) {
      const int64_t whole = (had - 1) / (2 * from);
      have = whole * run + std::min(had - whole * 2 * from, run);
    }
    int64_t from, had;  // elements of a run and of a line before
    int64_t run;        // and after
    int64_t have = 0;
  };

  // What belongs to each of some results of a merge.
  struct Pair {
    Scalar place;          // of the result in its pair
    Scalar begin;          // where the pair's first run begins
    Scalar first, second;  // elements of its two runs
  };

  static double number(int64_t n) { return static_cast<double>(n); }
  Scalar value(NodeId x) { return emitter_.value(x); }
  Scalar iota(const Shape& shape, int64_t axis) {
    return value(build::iota(graph_, {number_, shape}, axis, where_));
  }
  // The number of each element in lines of `have`, and the number of its line.
  Scalar element_of(int64_t have) { return iota(Shape({lines_ * have}), 0); }
  Scalar line_of(const Scalar& element, int64_t have) const {
    return lines_ == Expr(1) ? element.constant(0) : element / number(have);
  }
  NodeId flat(NodeId x) {
    return build::reshape(graph_, x, Shape({graph_[x].type.shape.numel()}), where_);
  }
  NodeId narrow(NodeId x) { return build::convert(graph_, x, number_, where_); }
  NodeId gather(NodeId x, const Scalar& places) {
    // An axis that may be empty has no index.
    if (lines_.range().min == 0) {
      const NodeId zero = build::scalar(graph_, graph_[x].type.dtype, 0, where_);
      const size_t rank = graph_[x].type.shape.rank();
      std::vector<Expr> none(rank, Expr(0)), one = none;
      one[0] = Expr(1);
      x = build::pad(graph_, x, zero, none, one, std::vector<int64_t>(rank, 0), where_);
    }
    return build::gather(graph_, x, GraphEmitter::node(places), 0, where_);
  }
  // The same, of a place that counts only if there is such an element.
  Scalar look_up(NodeId x, const Scalar& place) {
    const Expr end = graph_[x].type.shape[0];
    const NodeId last =
        build::convert(graph_, build::size(graph_, max(end - 1, 0), where_), number_, where_);
    return value(gather(x, min(place, value(last))));
  }

  // The keys of each line, followed by keys that nothing comes after, so that they are `whole`.
  NodeId filled(NodeId keys, int64_t whole) {
    if (whole == extent_) return keys;
    const DType type = graph_[keys].type.dtype;
    const int bits = 8 * static_cast<int>(size_of(type));
    const NodeId last = build::scalar_bits(graph_, type, (uint64_t{1} << (bits - 1)) - 1, where_);
    return build::pad(graph_, keys, last, {Expr(0), Expr(0)}, {Expr(0), Expr(whole - extent_)},
                      {0, 0}, where_);
  }

  // The indices in the line of the elements of each piece in their order, of which the first are
  // wanted, one piece after the other.
  NodeId sorted_pieces(NodeId keys) {
    const int64_t pieces = padded_ / piece_, wanted = std::min(piece_, count_);
    const Shape pairs({lines_, Expr(pieces), Expr(piece_), Expr(piece_)});
    const NodeId cut =
        build::reshape(graph_, keys, Shape({lines_, Expr(pieces), Expr(piece_)}), where_);
    const Scalar own = value(build::broadcast(graph_, cut, pairs, {0, 1, 2}, where_));
    const Scalar other = value(build::broadcast(graph_, cut, pairs, {0, 1, 3}, where_));
    const Scalar own_place = iota(pairs, 2), other_place = iota(pairs, 3);
    const Scalar is_less = lt(other, own), is_equal = eq(other, own);
    const Scalar before = logical_or(is_less, logical_and(is_equal, lt(other_place, own_place)));
    const NodeId rank = summed(convert(before, number_));
    const Shape choices({lines_, Expr(pieces), Expr(wanted), Expr(piece_)});
    const Scalar ranks = value(build::broadcast(graph_, rank, choices, {0, 1, 3}, where_));
    const Scalar found = eq(ranks, iota(choices, 2));
    const Scalar place = iota(choices, 3), none = ranks.constant(0);
    const Scalar within = value(summed(select(found, place, none)));
    const Scalar begin = iota(Shape({lines_, Expr(pieces), Expr(wanted)}), 1) * number(piece_);
    return flat(GraphEmitter::node(begin + within));
  }
  NodeId summed(const Scalar& x) {
    return build::reduce(graph_, Monoid::Sum, GraphEmitter::node(x), {3}, where_);
  }

  Pair pair_of(const Merge& merge, const Scalar& element) {
    const Scalar line = line_of(element, merge.have);
    const Scalar within = element - line * number(merge.have);
    const Scalar pair = within / number(merge.run), begin = pair * number(2 * merge.from);
    const Scalar whole = element.constant(number(merge.from)), zero = element.constant(0);
    return {.place = within - pair * number(merge.run),
            .begin = line * number(merge.had) + begin,
            .first = min(number(merge.had) - begin, whole),
            .second = max(min(number(merge.had - merge.from) - begin, whole), zero)};
  }

  // How many of the results before a place come from the first run, for each of `pair`: the least
  // number from `least` to `most` at which the next element of the first run comes after the last
  // of the second. `most - least` is at most `span`.
  Scalar split(NodeId keys, const Merge& merge, const Pair& pair, const Scalar& least,
               const Scalar& most, int64_t span) {
    const Scalar last = pair.begin + number(merge.from - 1) + pair.place;
    return search_by_halves(least, most, span, [&](const Scalar& middle) {
      const Scalar one = look_up(keys, pair.begin + middle), other = look_up(keys, last - middle);
      return le(one, other);
    });
  }

  // For each result of a merge, the place of its element among all elements.
  Scalar sources(NodeId keys, const Merge& merge) {
    const Scalar element = element_of(merge.have), zero = element.constant(0);
    const Pair pair = pair_of(merge, element);
    Scalar least = max(pair.place - pair.second, zero), most = min(pair.place, pair.first);
    int64_t span = std::min(merge.from, merge.run);
    if (merge.run % kGroup == 0 && merge.have % kGroup == 0 && span > 2 * kGroup) {
      const Pair of = pair_of(merge, element_of(merge.have / kGroup) * number(kGroup));
      const Scalar from = max(of.place - of.second, zero), to = min(of.place, of.first);
      const Scalar begins = split(keys, merge, of, from, to, span);
      const Scalar group = shr(element, element.constant(std::countr_zero(uint64_t{kGroup})));
      const Scalar before = value(gather(GraphEmitter::node(begins), group));
      least = max(least, before);
      most = min(most, before + (element - group * number(kGroup)));
      span = kGroup - 1;
    }
    const Scalar taken = split(keys, merge, pair, least, most, span);
    const Scalar rest = pair.place - taken;
    const Scalar one = pair.begin + taken, other = pair.begin + number(merge.from) + rest;
    const Scalar first = look_up(keys, one), second = look_up(keys, other);
    const Scalar is_left = lt(taken, pair.first), has_ended = ge(rest, pair.second);
    const Scalar is_before = le(first, second);
    const Scalar is_first = logical_and(is_left, logical_or(has_ended, is_before));
    return select(is_first, one, other);
  }

  Graph& graph_;
  SourceLocation where_;
  GraphEmitter emitter_;
  Expr lines_;
  int64_t extent_, count_;
  int64_t piece_, padded_;  // elements of a piece and of a line of pieces
  int64_t part_;
  DType number_;  // of places
};

NodeId merged(const Rewriting& step, const ArgSortOp& op) {
  Graph& graph = step.result;
  const SourceLocation where = step.node.location;
  const Shape& result = step.node.type.shape;
  const NodeId x = step.operands[0];
  const Shape from = graph[x].type.shape;
  const auto axis = static_cast<size_t>(op.axis), last = from.rank() - 1;
  const int64_t extent = *from[axis].as_constant(), count = *result[axis].as_constant();

  // The axis becomes the innermost one.
  Axes order = other_axes(from.rank(), Axes{op.axis});
  order.push_back(op.axis);
  std::vector<Expr> outer;
  Expr lines(1);
  for (size_t i = 0; i < last; ++i) {
    outer.push_back(from[static_cast<size_t>(order[i])]);
    lines = lines * outer.back();
  }

  GraphEmitter emitter(graph, where, /*expand_formulas=*/true);
  const NodeId keys = GraphEmitter::node(key_of(emitter.value(x), op.descending));
  // Keys and indices of lines that are not contiguous in x are stored in the order of the lines, in
  // which the steps of the sort read and write them.
  const auto stored = [&](NodeId value) {
    const NodeId waits_for[] = {value};
    return axis == last ? value : build::barrier(graph, value, waits_for, {}, where);
  };
  const NodeId rows = stored(build::reshape(graph, build::transpose(graph, keys, order, where),
                                            Shape({lines, Expr(extent)}), where));
  const NodeId sorted = stored(Sorter(graph, where, lines, extent, count).sort(rows));
  outer.push_back(Expr(count));
  return build::transpose(graph, build::reshape(graph, sorted, Shape(std::move(outer)), where),
                          inverse(order), where);
}

}  // namespace

Graph merge_sorts(const Graph& graph) {
  return rewrite(graph, [&](const Rewriting& step) {
    const auto* op = step.node.as<ArgSortOp>();
    return op ? merged(step, *op) : step.keep();
  });
}

}  // namespace braze
