#include "tests/fuzz/cascades.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "frontend/autodiff/gradient.h"
#include "ir/graph/build.h"
#include "tests/fuzz/random.h"

namespace braze::fuzz {
namespace {

using Op = ElementwiseOp;

/// What both kinds of graphs need.
class Maker {
 public:
  Maker(uint64_t seed, const char* name) : random_(seed), graph_(name) {}

 protected:
  NodeId input(const char* name, DType dtype, Shape shape) {
    return build::input(graph_, name, {dtype, std::move(shape)});
  }
  NodeId number(DType dtype, double value) { return build::scalar(graph_, dtype, value); }
  NodeId map(Op op, std::vector<NodeId> operands) {
    return build::map(graph_, op, std::move(operands));
  }
  NodeId iota(const Shape& shape, int64_t axis) {
    return build::iota(graph_, {DType::I32, shape}, axis);
  }
  const Shape& shape(NodeId id) const { return graph_[id].type.shape; }

  /// The gradients of the sum of `value` times something for `inputs`, or `value` itself, as the
  /// outputs.
  Graph finish(NodeId value, const std::vector<NodeId>& inputs, bool gradients) {
    std::vector<GraphOutput> outputs;
    if (gradients) {
      const DType dtype = graph_[value].type.dtype;
      const NodeId direction = input("g", dtype, shape(value));
      std::vector<int64_t> axes(shape(value).rank());
      std::iota(axes.begin(), axes.end(), 0);
      const NodeId loss =
          build::reduce(graph_, Monoid::Sum, map(Op::mul, {value, direction}), std::move(axes));
      for (const NodeId gradient : differentiate(graph_, loss, inputs))
        outputs.push_back({gradient, "d" + std::to_string(outputs.size()), {}});
    }
    if (!gradients || random_.one_in(3)) outputs.push_back({value, "y", {}});
    graph_.set_outputs(std::move(outputs));
    return std::move(graph_);
  }

  Random random_;
  Graph graph_;
};

class CascadeMaker : Maker {
 public:
  explicit CascadeMaker(uint64_t seed) : Maker(seed, "cascade") {}

  Graph run() {
    const bool gradients = random_.one_in(3);
    dtype_ = random_.pick({DType::BF16, DType::BF16, DType::F16, DType::F32});
    batch_ = random_.pick({1, 1, 2});
    groups_ = random_.pick({1, 1, 2});
    heads_ = random_.pick({1, 1, 2, 3});
    // Few rows, as in decoding, or many; at times there is nothing.
    n_ = random_.one_in(4) ? random_.within(1, 4) : length(gradients);
    m_ = random_.one_in(3) ? n_ : length(gradients);
    if (random_.one_in(16)) m_ = random_.within(0, 1);
    if (!gradients && random_.one_in(8)) m_ = random_.within(280, 600);  // walks of several turns
    width_ = random_.pick({16, 20, 32, 40, 64, 64, 80, 96, 128, 256});
    value_width_ = random_.one_in(3) ? random_.pick({16, 48, 64, 128}) : width_;
    if (gradients) width_ = std::min<int64_t>(width_, 64), value_width_ = width_;
    all_ = {batch_, groups_, heads_, n_, m_};

    const NodeId q = input("q", dtype_, {batch_, groups_ * heads_, n_, width_});
    const NodeId k = input("k", dtype_, {batch_, groups_, m_, width_});
    const NodeId v = input("v", dtype_, {batch_, groups_, m_, value_width_});
    const NodeId queries = build::reshape(graph_, q, {batch_, groups_, heads_, n_, width_});
    shared_by_broadcast_ = random_.one_in(4);
    NodeId scores = dot(queries, k, 3, score_type());
    scores = map(Op::mul, {scores, number(type(scores), 1 / std::sqrt(double(width_)))});
    if (random_.one_in(4)) scores = cap(scores);
    if (random_.one_in(3)) scores = biased(scores);
    scores = masked(scores);
    NodeId p = softmax(scores);
    if (random_.one_in(6)) p = dropped(p);
    const NodeId mixed = dot(build::convert(graph_, p, dtype_), v, 2, dtype_);
    const NodeId y =
        random_.one_in(2)
            ? build::reshape(graph_, mixed, {batch_, groups_ * heads_, n_, value_width_})
            : build::transpose(graph_, mixed, {0, 3, 1, 2, 4});
    return finish(y, {q, k, v}, gradients);
  }

 private:
  int64_t length(bool gradients) {
    return random_.one_in(4) ? random_.pick({1, 16, 63, 64, 65, 127, 128, 129})
                             : random_.within(1, gradients ? 160 : 280);
  }
  DType type(NodeId id) const { return graph_[id].type.dtype; }
  DType score_type() { return dtype_ == DType::F32 || !random_.one_in(4) ? DType::F32 : dtype_; }

  /// The dot of [batch, groups, heads, n, x] and keys or values [batch, groups, m, y], whose axis
  /// `contract` is summed.
  NodeId dot(NodeId left, NodeId right, int64_t contract, DType result) {
    if (shared_by_broadcast_) {
      const Shape& own = shape(right);
      right =
          build::broadcast(graph_, right, {own[0], own[1], heads_, own[2], own[3]}, {0, 1, 3, 4});
      return build::dot(graph_, left, right, {{0, 1, 2}, {0, 1, 2}, {4}, {contract + 1}}, result);
    }
    return build::dot(graph_, left, right, {{0, 1}, {0, 1}, {4}, {contract}}, result);
  }

  NodeId everywhere(NodeId x, std::vector<int64_t> axes) {
    return build::broadcast(graph_, x, all_, std::move(axes));
  }

  NodeId cap(NodeId scores) {
    const NodeId most = number(type(scores), random_.pick({5.0, 50.0}));
    return map(Op::mul, {map(Op::tanh, {map(Op::div, {scores, most})}), most});
  }

  NodeId biased(NodeId scores) {
    if (random_.one_in(2)) {
      const NodeId bias = input("bias", dtype_, {groups_, heads_, n_, m_});
      const NodeId wide = build::convert(graph_, bias, type(scores));
      return map(Op::add, {scores, everywhere(wide, {1, 2, 3, 4})});
    }
    const NodeId slopes = input("slopes", type(scores), {groups_, heads_});
    const NodeId distance =
        build::convert(graph_, map(Op::sub, {iota({n_, m_}, 1), iota({n_, m_}, 0)}), type(scores));
    return map(Op::add,
               {scores, map(Op::mul, {everywhere(slopes, {1, 2}), everywhere(distance, {3, 4})})});
  }

  NodeId masked(NodeId scores) {
    const Shape pairs{n_, m_};
    const NodeId column = iota(pairs, 1);
    const NodeId row =
        map(Op::add, {iota(pairs, 0), number(DType::I32, random_.one_in(2) ? double(m_ - n_) : 0)});
    NodeId seen;
    std::vector<int64_t> axes{3, 4};
    switch (random_.below(9)) {
      case 0:
        return scores;
      case 1:
      case 2:
        seen = map(Op::le, {column, row});
        break;
      case 3: {
        const NodeId behind = map(Op::sub, {row, column});
        const NodeId window = number(DType::I32, double(random_.within(1, 80)));
        seen = map(Op::logical_and, {map(Op::le, {column, row}), map(Op::lt, {behind, window})});
        break;
      }
      case 4:
        seen = input("seen", DType::Bool, {batch_, m_});
        axes = {0, 4};
        break;
      case 5: {  // documents
        NodeId of_rows = input("rows", DType::I32, {batch_, n_});
        NodeId of_columns = input("columns", DType::I32, {batch_, m_});
        if (random_.one_in(2)) {  // one after the other, of about as many rows
          const NodeId length = number(DType::I32, double(random_.within(8, 150)));
          const auto packed = [&](NodeId of, int64_t extent) {
            const NodeId place = iota({batch_, extent}, 1);
            const NodeId moved =
                map(Op::add, {place, map(Op::logical_and, {of, number(DType::I32, 7)})});
            return map(Op::div, {moved, length});
          };
          of_rows = packed(of_rows, n_);
          of_columns = packed(of_columns, m_);
        }
        seen = map(Op::eq, {build::broadcast(graph_, of_rows, {batch_, n_, m_}, {0, 1}),
                            build::broadcast(graph_, of_columns, {batch_, n_, m_}, {0, 2})});
        axes = {0, 3, 4};
        break;
      }
      case 6: {  // up to a number on the device, and at times not before another one
        NodeId start = build::reshape(graph_, input("start", DType::I32, {1}), {});
        start = map(Op::mul, {start, number(DType::I32, random_.pick({1, 8, 30}))});
        const NodeId last = map(Op::add, {row, start});
        seen = map(Op::le, {column, last});
        if (!random_.one_in(3)) break;
        const NodeId window = number(DType::I32, double(random_.within(1, 80)));
        seen = map(Op::logical_and, {seen, map(Op::gt, {column, map(Op::sub, {last, window})})});
        break;
      }
      case 7: {  // up to a length of each row of the batch
        const DType dtype = random_.pick({DType::I8, DType::I32, DType::I64, DType::U8});
        const bool by_row = random_.one_in(3);  // of each query
        NodeId lengths = input("lengths", dtype, by_row ? Shape{batch_, n_} : Shape{batch_});
        lengths = build::convert(graph_, lengths, DType::I32);
        if (random_.one_in(2)) lengths = map(Op::mul, {lengths, number(DType::I32, 30)});
        const Shape columns = by_row ? Shape{batch_, n_, m_} : Shape{batch_, m_};
        const std::vector<int64_t> own =
            by_row ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
        seen = map(Op::lt, {iota(columns, by_row ? 2 : 1),
                            build::broadcast(graph_, lengths, columns, own)});
        axes = by_row ? std::vector<int64_t>{0, 3, 4} : std::vector<int64_t>{0, 4};
        break;
      }
      default: {
        const double low = random_.pick({-1e4, -1e9, double(std::numeric_limits<float>::lowest())});
        const double most = type(scores) == DType::F16 ? -1e4 : low;
        const NodeId added =
            map(Op::select, {map(Op::le, {column, row}),
                             build::broadcast_to(graph_, number(type(scores), 0), pairs),
                             build::broadcast_to(graph_, number(type(scores), most), pairs)});
        return map(Op::add, {scores, everywhere(added, {3, 4})});
      }
    }
    const NodeId low = build::broadcast_to(
        graph_, number(type(scores), -std::numeric_limits<double>::infinity()), all_);
    return map(Op::select, {everywhere(seen, axes), scores, low});
  }

  NodeId softmax(NodeId scores) {
    if (random_.one_in(3)) scores = build::convert(graph_, scores, DType::F32);
    const std::vector<int64_t> rows{0, 1, 2, 3};
    const auto of_rows = [&](Monoid monoid, NodeId x) {
      return build::broadcast(graph_, build::reduce(graph_, monoid, x, {4}), all_, rows);
    };
    if (random_.one_in(4)) return guarded_softmax(scores);
    const NodeId e = map(Op::exp, {map(Op::sub, {scores, of_rows(Monoid::Max, scores)})});
    return map(Op::div, {e, of_rows(Monoid::Sum, e)});
  }

  /// 0 in rows that see nothing, in the spellings of users.
  NodeId guarded_softmax(NodeId scores) {
    const auto wide = [&](NodeId x) { return build::broadcast(graph_, x, all_, {0, 1, 2, 3}); };
    const auto same = [&](NodeId x, double value) {
      return build::broadcast_to(graph_, number(type(x), value), shape(x));
    };
    NodeId most = build::reduce(graph_, Monoid::Max, scores, {4});
    if (random_.one_in(2)) {
      most = map(Op::max, {most, same(most, type(most) == DType::F16 ? -6e4 : -1e30)});
    } else {
      const NodeId infinite =
          map(Op::eq, {most, same(most, -std::numeric_limits<double>::infinity())});
      most = map(Op::select, {infinite, same(most, 0), most});
    }
    const NodeId e = map(Op::exp, {map(Op::sub, {scores, wide(most)})});
    NodeId sum = build::reduce(graph_, Monoid::Sum, e, {4});
    if (random_.one_in(2))
      sum = map(Op::add, {sum, same(sum, 1e-6)});
    else
      sum = map(Op::select, {map(Op::eq, {sum, same(sum, 0)}), same(sum, 1), sum});
    return map(Op::div, {e, wide(sum)});
  }

  NodeId dropped(NodeId p) {
    const NodeId key = input("key", DType::U32, {2});
    const NodeId bits = build::random_bits(graph_, key, all_);
    const NodeId kept = map(Op::lt, {bits, number(DType::U32, 3u << 30)});
    const NodeId zero = build::broadcast_to(graph_, number(type(p), 0), all_);
    return map(Op::select, {kept, map(Op::div, {p, number(type(p), 0.75)}), zero});
  }

  DType dtype_ = DType::F32;
  int64_t batch_ = 1, groups_ = 1, heads_ = 1, n_ = 1, m_ = 1, width_ = 1, value_width_ = 1;
  bool shared_by_broadcast_ = false;
  Shape all_;
};

class WindowedMaker : Maker {
 public:
  explicit WindowedMaker(uint64_t seed) : Maker(seed, "windowed") {}

  Graph run() {
    const bool gradients = random_.one_in(2);
    const DType dtype = random_.pick({DType::BF16, DType::F16, DType::F32});
    const int64_t taps_y = random_.within(1, 4), taps_x = random_.within(1, 3);
    const int64_t channels = random_.one_in(3) ? random_.within(1, 24) : random_.within(1, 9) * 8;
    const int64_t filters = random_.one_in(3) ? random_.within(1, 24) : random_.within(1, 12) * 8;
    WindowsOp op{.axes = {1, 2}, .taps = {3, 4}};
    Shape image{1, 0, 0, channels};
    std::vector<int64_t> results;
    for (const int64_t taps : {taps_y, taps_x}) {
      const int64_t stride = random_.one_in(2) ? 1 : random_.within(1, 3);
      const int64_t dilation = random_.one_in(2) ? 1 : random_.within(1, 3);
      const int64_t gap = random_.one_in(6) ? 2 : 1;
      const int64_t low = random_.within(0, 2), high = random_.within(0, 2);
      const int64_t span = (taps - 1) * dilation + 1;
      const int64_t extent = random_.within(std::max<int64_t>(span, 4), 18);
      op.strides.push_back(stride);
      op.dilations.push_back(dilation);
      op.gaps.push_back(gap);
      op.low.emplace_back(low);
      results.push_back(((extent - 1) * gap + 1 + low + high - span) / stride + 1);
      image[results.size()] = extent;
    }
    // Images until the rules for large products serve it, or few of them.
    const int64_t each = results[0] * results[1] * channels * filters * taps_y * taps_x;
    const int64_t images = random_.one_in(3) ? 1 : std::min<int64_t>((1 << 22) / each + 1, 12);
    image[0] = images;
    const NodeId x = input("x", dtype, image);
    const NodeId w = input("w", dtype, {taps_y, taps_x, channels, filters});
    const NodeId wide = build::broadcast(
        graph_, x, {images, image[1], image[2], taps_y, taps_x, channels}, {0, 1, 2, 5});
    const NodeId seen = build::windows(graph_, wide, number(dtype, 0), std::move(op),
                                       {images, results[0], results[1], taps_y, taps_x, channels});
    NodeId y = build::dot(graph_, seen, w, {{}, {}, {3, 4, 5}, {0, 1, 2}}, DType::F32);
    if (random_.one_in(2)) {
      const NodeId bias = input("bias", DType::F32, {filters});
      y = map(Op::relu, {map(Op::add, {y, build::broadcast_to(graph_, bias, shape(y))})});
    }
    return finish(build::convert(graph_, y, dtype), {x, w}, gradients);
  }
};

}  // namespace

Graph random_cascade(uint64_t seed) { return CascadeMaker(seed).run(); }

Graph random_windowed_product(uint64_t seed) { return WindowedMaker(seed).run(); }

}  // namespace braze::fuzz
