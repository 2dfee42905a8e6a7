#include "tests/fuzz/tile_generator.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "braze/dtype.h"
#include "ir/code/layout.h"
#include "ir/support/text.h"
#include "tests/fuzz/random.h"

namespace braze::fuzz {
namespace {

using Extents = std::vector<int64_t>;

/// A tile or, without extents, a scalar. Where it lies matters to pipelined programs only.
struct Tile {
  std::string name, dtype;
  Extents extents;
  Layout layout;

  int64_t count() const {
    int64_t n = 1;
    for (const int64_t extent : extents) n *= extent;
    return n;
  }
};

DType dtype_of(const std::string& name) { return parse_dtype(name).value(); }

int64_t bytes_of(const std::string& dtype) {
  return static_cast<int64_t>(size_of(dtype_of(dtype)));
}

/// Floats that rows cannot compute in.
bool is_only_stored(const std::string& dtype) {
  return is_floating(dtype_of(dtype)) && bytes_of(dtype) < 4;
}

bool is_unsigned(const std::string& dtype) { return is_unsigned_integer(dtype_of(dtype)); }

std::string list(const Extents& extents) { return fmt::format("[{}]", fmt::join(extents, ", ")); }

/// The digits of each axis where `extents` is not 1; the others have none.
Layout restricted(Layout layout, const Extents& extents) {
  for (size_t axis = 0; axis < layout.rank(); ++axis)
    if (extents[axis] == 1) layout.axes[axis].clear();
  renumber_registers(layout);
  return layout;
}

/// What plain and pipelined programs have in common: lines, names, values and what is computed of
/// them.
class Writer {
 protected:
  Writer(uint64_t seed, bool pipelined) : random_(seed), pipelined_(pipelined) {}

  // --- Lines and names --------------------------------------------------------------------------

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    lines_ += std::string(static_cast<size_t>(2 * depth_), ' ') +
              fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  /// `HEAD {`, the body's lines and `}`; what the body defines is forgotten behind it.
  void block(const std::string& head, const std::function<void()>& body,
             const std::string& end = "}") {
    line("{} {{", head);
    const size_t known = values_.size(), buffers = buffers_.size();
    ++depth_;
    body();
    --depth_;
    line("{}", end);
    values_.resize(known);
    buffers_.resize(buffers);
  }
  std::string fresh(std::string_view hint) { return fmt::format("{}{}", hint, next_name_++); }
  std::string value_name() { return "%" + fresh("v"); }

  // --- Types ------------------------------------------------------------------------------------

  /// As it stands behind an operation. A layout is part of it where the operation takes one.
  std::string type(const std::string& dtype, const Extents& extents) const {
    return dtype + (extents.empty() ? "" : list(extents));
  }
  std::string laid_out(const std::string& dtype, const Extents& extents,
                       const Layout& layout) const {
    return type(dtype, extents) + (pipelined_ ? " " + layout.to_string() : "");
  }

  const Tile& define(Tile tile) {
    values_.push_back(std::move(tile));
    return values_.back();
  }
  /// `%v = TEXT : TYPE` of a value that lies at `layout`.
  Tile make(const std::string& text, const std::string& dtype, const Extents& extents,
            const Layout& layout, bool says_layout = false) {
    Tile tile{value_name(), dtype, extents, layout};
    line("{} = {} : {}", tile.name, text,
         says_layout ? laid_out(dtype, extents, layout) : type(dtype, extents));
    return define(tile);
  }

  // --- Values -----------------------------------------------------------------------------------

  static bool same_digits(const std::vector<Digit>& a, const std::vector<Digit>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Digit& x, const Digit& y) {
      return x.resource == y.resource && x.extent == y.extent &&
             (x.resource == Resource::Register || x.stride == y.stride);
    });
  }
  /// Whether a row that makes a tile like `whole` may take `part`.
  bool fits(const Tile& part, const Tile& whole) const {
    if (part.extents.empty()) return true;
    if (part.extents.size() != whole.extents.size()) return false;
    for (size_t axis = 0; axis < part.extents.size(); ++axis) {
      if (part.extents[axis] == 1) continue;
      if (part.extents[axis] != whole.extents[axis] ||
          (pipelined_ && !same_digits(part.layout.axes[axis], whole.layout.axes[axis])))
        return false;
    }
    return true;
  }

  std::vector<Tile> all_of(const std::function<bool(const Tile&)>& wanted) const {
    std::vector<Tile> out;
    std::copy_if(values_.begin(), values_.end(), std::back_inserter(out), wanted);
    return out;
  }
  std::optional<Tile> any_of(const std::function<bool(const Tile&)>& wanted) {
    const std::vector<Tile> found = all_of(wanted);
    // Young values more often: old ones would never be used together with what came of them.
    if (found.empty()) return std::nullopt;
    const size_t from = random_.one_in(2) && found.size() > 4 ? found.size() - 4 : 0;
    return found[from +
                 static_cast<size_t>(random_.below(static_cast<int64_t>(found.size() - from)))];
  }

  std::string literal(const std::string& dtype) {
    if (dtype == "bool") return random_.pick({"true", "false"});
    if (dtype[0] == 'i' || dtype[0] == 'u') return std::to_string(random_.below(5));
    return random_.pick({"0.0", "1.0", "-1.0", "2.0", "0.5", "-0.0", "3.0"});
  }
  /// A value that a row like `whole` can take, or a literal.
  std::string operand(const std::string& dtype, const Tile& whole) {
    if (random_.one_in(6)) return literal(dtype);
    const auto found = any_of([&](const Tile& t) { return t.dtype == dtype && fits(t, whole); });
    return found ? found->name : literal(dtype);
  }

  /// Now and then a guard for an access of `whole`: one of the bool tiles.
  std::string mask_for(const Tile& whole) {
    if (!random_.one_in(4)) return "";
    const auto flags = any_of([&](const Tile& t) { return t.dtype == "bool" && fits(t, whole); });
    return flags ? " mask " + flags->name : "";
  }
  std::string guarded_load(const std::string& place, const Tile& whole) {
    const std::string mask = mask_for(whole);
    return fmt::format("load {}{}", place,
                       mask.empty() ? "" : mask + " fill " + literal(whole.dtype));
  }

  Tile row(const std::string& text, const std::string& dtype, const Tile& like) {
    return make(text, dtype, like.extents, like.layout);
  }

  /// `tile` in a dtype of arithmetic.
  Tile arithmetic(const Tile& tile) {
    return is_only_stored(tile.dtype) ? row("convert " + tile.name, "f32", tile) : tile;
  }
  Tile converted(const Tile& tile, const std::string& dtype) {
    return tile.dtype == dtype ? tile : row("convert " + tile.name, dtype, tile);
  }

  /// What kernels can hold, other than bool; four of them more often.
  std::string any_dtype() {
    for (;;) {
      const DType dtype = random_.one_in(2)
                              ? random_.pick(kAllDTypes)
                              : random_.pick({DType::BF16, DType::F16, DType::I32, DType::F32});
      if (dtype != DType::Bool) return std::string(name(dtype));
    }
  }

  void add_conversion(const Tile& x) {
    const std::string to = any_dtype();
    converted(is_unsigned(to) ? row(fmt::format("max {}, 0.0", x.name), x.dtype, x) : x, to);
  }

  void add_row() {
    const auto found = any_of([](const Tile& t) { return !t.extents.empty(); });
    if (!found) return;
    const Tile x = arithmetic(*found);
    const auto other = [&] { return operand(x.dtype, x); };
    if (x.dtype == "bool") {
      if (random_.one_in(2)) {
        row(fmt::format("{} {}, {}", random_.pick({"logical_and", "logical_or", "logical_xor"}),
                        x.name, other()),
            "bool", x);
      } else {
        const auto of = all_of([&](const Tile& t) { return t.dtype == "f32" && fits(t, x); });
        const std::string a = of.empty() ? "1.0" : random_.pick(of).name;
        // One of the two fixes the dtype.
        if (!of.empty())
          row(fmt::format("select {}, {}, {}", x.name, a, operand("f32", x)), "f32", x);
      }
      return;
    }
    if (random_.one_in(5)) {
      row(fmt::format("{} {}, {}", random_.pick({"lt", "le", "gt", "eq", "ne"}), x.name, other()),
          "bool", x);
      return;
    }
    if (x.dtype[0] == 'i' || x.dtype[0] == 'u') {
      // The difference of unsigned integers may be their greatest number.
      row(fmt::format("{} {}, {}",
                      random_.pick({"add", is_unsigned(x.dtype) ? "min" : "sub", "mul", "min",
                                    "max", "logical_xor", "rem", "div"}),
                      x.name, other()),
          x.dtype, x);
      return;
    }
    switch (random_.below(6)) {
      case 0:
        row(fmt::format("{} {}", random_.pick({"neg", "abs", "floor", "trunc"}), x.name), x.dtype,
            x);
        break;
      case 1:
        row(fmt::format("fma {}, {}, {}", x.name, other(), other()), x.dtype, x);
        break;
      case 2:
        // Products of products would leave the numbers that are exact.
        add_conversion(row(fmt::format("min {}, 4.0", x.name), x.dtype, x));
        break;
      case 3:
        if (!exact_ && random_.one_in(4)) {
          row(fmt::format("{} {}", random_.pick({"exp", "tanh", "sigmoid", "relu"}), x.name),
              x.dtype, x);
          break;
        }
        [[fallthrough]];
      default:
        row(fmt::format("{} {}, {}", random_.pick({"add", "sub", "mul", "max", "min"}), x.name,
                        other()),
            x.dtype, x);
    }
  }

  std::string monoid(const std::string& dtype) {
    if (dtype == "bool") return random_.pick({"and", "or"});
    return random_.pick({"sum", "max", "min", "sum"});
  }

  std::optional<Tile> add_fold() {
    const auto found = any_of([](const Tile& t) { return t.extents.size() >= 2 && t.count() > 1; });
    if (!found) return std::nullopt;
    const Tile x = arithmetic(*found);
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis < std::ssize(x.extents); ++axis) axes.push_back(axis);
    random_.shuffle(axes);
    axes.resize(static_cast<size_t>(random_.within(1, std::ssize(axes))));
    Extents extents = x.extents;
    for (const int64_t axis : axes) extents[static_cast<size_t>(axis)] = 1;
    return make(
        fmt::format("reduce {} {} axes({})", monoid(x.dtype), x.name, fmt::join(axes, ", ")),
        x.dtype, extents, restricted(x.layout, extents));
  }

  void add_position(const Extents& extents, const Layout& layout) {
    const std::string d = fmt::format("d{}", random_.below(std::ssize(extents)));
    switch (random_.below(4)) {
      case 0:
        make(fmt::format("iota ({}*{} + {})", random_.within(1, 3), d, random_.below(4)), "i32",
             extents, layout, true);
        break;
      case 1:
        make(fmt::format("test (mod({} + {}, 3) < {})", d, random_.below(3), random_.within(1, 2)),
             "bool", extents, layout, true);
        break;
      case 2:
        make(fmt::format("const {}", literal("f32")), "f32", extents, layout, true);
        break;
      default:
        make(fmt::format("const {}", literal("i32")), "i32", extents, layout, true);
    }
  }

  // --- Loops and branches -----------------------------------------------------------------------

  /// Bounds of a loop, about a third of which have no turn.
  struct Bounds {
    std::string low, high;
    int64_t step = 1;
  };
  Bounds random_bounds() {
    Bounds out{std::to_string(random_.below(2)), "", random_.pick({1, 1, 1, 2, 3})};
    switch (random_.below(4)) {
      case 0:
        out.high = std::to_string(random_.below(5));
        break;
      case 1:
        out.high = "floordiv(n, 8)";
        break;
      case 2:
        out.high = "min(n, 3)";
        break;
      default:
        out.high = fmt::format("max(0, {} - n)", random_.within(1, 12));
    }
    return out;
  }

  std::string condition() {
    std::vector<std::string> over = symbols_;
    over.emplace_back("n");
    return fmt::format("({} {} {})", random_.pick(over), random_.pick({"<", ">=", "=="}),
                       random_.below(3));
  }

  /// A loop that carries some of the values at hand.
  void add_loop(const std::function<void()>& body) {
    std::vector<Tile> begins =
        all_of([](const Tile& t) { return !t.extents.empty() && t.dtype != "bool"; });
    random_.shuffle(begins);
    begins.resize(static_cast<size_t>(random_.below(std::min<int64_t>(std::ssize(begins), 2) + 1)));
    const Bounds bounds = random_bounds();
    const std::string k = fresh("k");
    std::string head = fmt::format("for {}: {}..{}", k, bounds.low, bounds.high);
    if (bounds.step > 1) head += fmt::format(" step {}", bounds.step);
    std::vector<Tile> inside, after;
    std::string carries, results;
    for (const Tile& begin : begins) {
      inside.push_back({value_name(), begin.dtype, begin.extents, begin.layout});
      after.push_back({value_name(), begin.dtype, begin.extents, begin.layout});
      carries +=
          fmt::format("{}{} = {}", carries.empty() ? "" : ", ", inside.back().name, begin.name);
      results += fmt::format("{}{}", results.empty() ? "" : ", ", after.back().name);
    }
    if (!begins.empty()) head = fmt::format("{} = {} carry({})", results, head, carries);
    block(head, [&] {
      for (const Tile& tile : inside) define(tile);
      symbols_.push_back(k);
      body();
      symbols_.pop_back();
      yield(inside);
    });
    for (const Tile& tile : after) define(tile);
  }

  /// For each, what is like it: made of it where possible.
  void yield(const std::vector<Tile>& like) {
    std::string yielded;
    for (const Tile& tile : like) {
      const auto found = any_of([&](const Tile& t) {
        return t.dtype == tile.dtype && t.extents == tile.extents && fits(t, tile);
      });
      const Tile bounded =
          tile.dtype == "f32" ? row(fmt::format("min {}, 8.0", found->name), "f32", tile) : *found;
      yielded += fmt::format("{}{}", yielded.empty() ? "" : ", ", bounded.name);
    }
    if (!like.empty()) line("yield {}", yielded);
  }

  void add_branch(const std::function<void()>& body) {
    const auto found = any_of([](const Tile& t) { return !t.extents.empty(); });
    const bool gives = found && random_.one_in(2);
    std::vector<Tile> like;
    if (gives) like.push_back(*found);
    const Tile result{gives ? value_name() : "", gives ? found->dtype : "",
                      gives ? found->extents : Extents{}, gives ? found->layout : Layout{}};
    const auto side = [&] {
      body();
      yield(like);
    };
    const std::string head = (gives ? result.name + " = " : "") + "if " + condition();
    if (gives || random_.one_in(2)) {
      block(head, side, "} else {");
      // The second region goes on where the first one's line has left off.
      const size_t known = values_.size(), buffers = buffers_.size();
      ++depth_;
      side();
      --depth_;
      line("}}");
      values_.resize(known);
      buffers_.resize(buffers);
    } else {
      block(head, side);
    }
    if (gives) define(result);
  }

  struct Buffer {
    std::string name, dtype;
    Extents extents;
    int64_t slots = 1;
  };

  Random random_;
  const bool pipelined_;
  bool exact_ = false;  // sums of any order must agree
  std::string lines_;
  int depth_ = 0, next_name_ = 0;
  std::vector<Tile> values_;
  std::vector<Buffer> buffers_;
  std::vector<std::string> symbols_;  // of loops and the grid, in scope
};

/// The digits of an index are dealt out to registers, lanes and warps.
class LayoutMaker {
 public:
  LayoutMaker(Random& random, int64_t warps) : random_(random), warps_(warps) {}

  /// Any layout of section 7.3 with few registers.
  Layout of(const Extents& extents) {
    constexpr int64_t kMostRegisters = 96;
    for (;;) {
      Layout layout = any(extents);
      int64_t registers = 1;
      for (const RegisterDigit& digit : register_digits(layout)) registers *= digit.extent;
      if (registers <= kMostRegisters) return layout;
    }
  }

 private:
  Layout any(const Extents& extents) {
    Layout layout{std::vector<std::vector<Digit>>(extents.size())};
    int64_t lanes = kWarpThreads, warps = warps_;
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      int64_t rest = extents[axis];
      std::vector<Digit>& digits = layout.axes[axis];
      while (rest > 1) {
        const int64_t part = std::min<int64_t>(rest & -rest, int64_t{1} << random_.within(1, 4));
        if (part == 1) {  // odd: registers, the most significant
          digits.insert(digits.begin(), {Resource::Register, 1, rest});
          break;
        }
        Resource resource =
            random_.pick({Resource::Register, Resource::Lane, Resource::Lane, Resource::Warp});
        int64_t& left = resource == Resource::Lane ? lanes : warps;
        int64_t extent = part;
        if (resource != Resource::Register) extent = std::min(extent, left & -left);
        if (extent == 1) resource = Resource::Register, extent = part;
        if (resource != Resource::Register) left /= extent;
        digits.insert(digits.begin(), {resource, 1, extent});
        rest /= extent;
      }
    }
    number(layout);
    return layout;
  }
  // Numbers of a resource in any order of the digits.
  void number(Layout& layout) {
    for (const Resource resource : {Resource::Register, Resource::Lane, Resource::Warp}) {
      std::vector<Digit*> digits;
      for (std::vector<Digit>& axis : layout.axes)
        for (Digit& digit : axis)
          if (digit.resource == resource) digits.push_back(&digit);
      random_.shuffle(digits);
      int64_t stride = 1;
      for (Digit* digit : digits) {
        digit->stride = stride;
        stride *= digit->extent;
      }
    }
  }

  Random& random_;
  const int64_t warps_;
};

// --- Plain programs
// -------------------------------------------------------------------------------

class PlainWriter : public Writer {
 public:
  PlainWriter(uint64_t seed, bool gpu) : Writer(seed, false), gpu_(gpu) {}

  TileCase run() {
    tile_ = {random_.pick({1, 2, 3, 4, 5, 8, 16}),
             random_.pick({1, 2, 4, 7, 8, 12, 16, 32, 33, 64})};
    any_ = any_dtype();
    warps_ = random_.pick({1, 2, 4});
    grid_ = {random_.within(1, 3), random_.within(1, 2)};
    size_ = random_.pick({0, 1, 7, 8, 9, 15, 16, 24, 31});
    const bool counts = random_.one_in(3);  // who arrives last adds up what all have left
    const int64_t phases = counts ? 1 : random_.pick({1, 1, 2});
    std::string kernel;
    ++depth_;
    if (gpu_) add_layout();
    const std::string layouts = std::move(lines_);
    lines_.clear();
    for (int64_t p = 0; p < phases; ++p) add_phase(p, p + 1 == phases, counts);
    std::string out = "braze 1 tile\nsymbol n: 0..31\n\nkernel @fuzz(" + parameters(phases) + ")";
    if (gpu_) out += fmt::format(" warps {}", warps_);
    out += " {\n" + layouts;
    if (phases > 1) out += fmt::format("  workspace %passed: f32{}\n", shape_of_all());
    if (counts)
      out += fmt::format("  workspace %parts: f32{}\n  workspace %done: i32[2] zero\n",
                         shape_of_all());
    return {out + lines_ + "}\n", {size_}};
  }

 private:
  std::string shape_of_all() const { return list({grid_[0], grid_[1], tile_[0], tile_[1]}); }

  std::string parameters(int64_t) {
    std::string out = fmt::format("%x: in f32[n + {}, {}]{}, %h: in {}[{}, {}], %i: in i32[{}]",
                                  rows_, columns_, align_, any_, tile_[0] * 3, tile_[1], tile_[1]);
    out += fmt::format(", %y: out f32{}, %z: inout f32{}", shape_of_all(), shape_of_all());
    if (sums_) out += fmt::format(", %s: out f32{}", list(tile_));
    return out;
  }

  // At most one digit of registers before the threads of an axis, and neighbours behind those of
  // the last.
  void add_layout() {
    if (random_.one_in(5)) {
      // The default: tiles of other extents then lie elsewhere, and rows may not mix them.
      mixes_ = false;
      return;
    }
    Extents threads = {1, 1};
    int64_t left = warps_ * kWarpThreads;
    for (const size_t axis : {size_t{1}, size_t{0}}) {
      const int64_t part = tile_[axis] & -tile_[axis];
      threads[axis] = std::min({part, left, int64_t{1} << random_.below(7)});
      left /= threads[axis];
    }
    const Layout layout = spread(tile_, threads, random_.pick({1, 2, 4}));
    if (layout.axes[0].empty() && tile_[0] > 1) return;
    line("layout @t = {}", layout.to_string());
  }

  void add_phase(int64_t number, bool last, bool counts) {
    if (number > 0) lines_ += "  barrier grid\n";
    symbols_ = {"i", "j"};
    values_.clear();
    buffers_.clear();
    block(fmt::format("phase grid(i: {}, j: {})", grid_[0], grid_[1]), [&] {
      load_parameter();
      add_position(tile_, {});
      if (number > 0) load("%passed", "f32", passed_place());
      add_buffer();
      statements(random_.within(3, 12), 0);
      const Tile result = total();
      if (!last) {
        line("store {}, %passed[i, j, d0, d1]", result.name);
        return;
      }
      line("store {}, %y[i, j, d0, d1]", result.name);
      const Tile old = load("%z", "f32", "i, j, d0, d1");
      line("store {}, %z[i, j, d0, d1]",
           row(fmt::format("add {}, {}", old.name, result.name), "f32", old).name);
      if (counts) add_up(result);
    });
  }

  // Another instance's, which the barrier has ordered.
  std::string passed_place() const { return fmt::format("mod(i + 1, {}), j, d0, d1", grid_[0]); }

  // Whoever arrives last adds what all have left.
  void add_up(const Tile& result) {
    sums_ = true;
    const int64_t each = random_.below(2);
    line("store {}, %parts[i, j, d0, d1]", result.name);
    line("%last = ticket %done[{}] of ({})", each, grid_[0] * grid_[1]);
    block("if %last", [&] {
      line("%zero = const 0.0 : {}", type("f32", tile_));
      line("%all = for p: 0..{} carry(%a0 = %zero) {{", grid_[0] * grid_[1]);
      line("  %part = load %parts[floordiv(p, {}), mod(p, {}), d0, d1] : {}", grid_[1], grid_[1],
           type("f32", tile_));
      line("  %a1 = add %a0, %part : {}", type("f32", tile_));
      line("  yield %a1");
      line("}}");
      line("store %all, %s[d0, d1]");
    });
  }

  Tile load(const std::string& memory, const std::string& dtype, const std::string& place,
            const std::string& guard = "") {
    return make(fmt::format("load {}[{}]{}", memory, place, guard), dtype, tile_, {});
  }

  void load_parameter() {
    switch (random_.below(5)) {
      case 0: {  // of any dtype
        const std::string first = fmt::format("{}*i + d0", tile_[0]);
        load("%h", any_, first + ", d1");
        return;
      }
      case 1: {  // a gather
        if (!mixes_) return;
        const Tile index = make(fmt::format("load %i[d1]"), "i32", {1, tile_[1]}, {});
        const std::string at = fmt::format("mod({}, {})", index.name, columns_);
        load("%x", "f32", fmt::format("d0, {}", at),
             fmt::format(" mask (d0 < n + {}) fill 1.0", rows_));
        return;
      }
      case 2: {  // aligned columns, which no guard parts
        load("%x", "f32", fmt::format("i + d0, d1"),
             fmt::format(" mask (i + d0 < n + {} and d1 < {}) fill 0.0", rows_, columns_));
        return;
      }
      default: {
        const std::string row =
            random_.pick({std::string("d0"), fmt::format("{}*i + d0", tile_[0]),
                          std::string("d0 - j"), std::string("floordiv(d0, 2)")});
        const std::string column =
            random_.pick({std::string("d1"), std::string("d1 + j"), std::string("2*d1 - 1"),
                          fmt::format("{} - d1", columns_ - 1)});
        load("%x", "f32", row + ", " + column,
             fmt::format(" mask ({0} >= 0 and {0} < n + {2} and {1} >= 0 and {1} < {3}) fill {4}",
                         row, column, rows_, columns_, literal("f32")));
      }
    }
  }

  void add_buffer() {
    Buffer buffer{"%" + fresh("b"), random_.one_in(2) ? "f32" : any_dtype(), tile_,
                  random_.pick({1, 2, 2, 3})};
    line("{} = buffer {}{}", buffer.name, buffer.dtype, list({buffer.slots, tile_[0], tile_[1]}));
    const Tile first = row_of(buffer.dtype);
    for (int64_t slot = 0; slot < buffer.slots; ++slot)
      line("store {}, {}[{}, d0, d1]", first.name, buffer.name, slot);
    buffers_.push_back(std::move(buffer));
  }

  Tile row_of(const std::string& dtype) {
    const auto found =
        any_of([&](const Tile& t) { return t.dtype == dtype && t.extents == tile_; });
    if (found) return *found;
    return make("const " + literal(dtype), dtype, tile_, {});
  }

  std::string slot_of(const Buffer& buffer) {
    if (buffer.slots == 1) return "0";
    const std::string at = random_.pick(symbols_);
    switch (random_.below(4)) {
      case 0:
        return std::to_string(random_.below(buffer.slots));
      case 1:
        return fmt::format("mod({} + 1, {})", at, buffer.slots);
      default:
        return fmt::format("mod({}, {})", at, buffer.slots);
    }
  }

  void use_buffer() {
    const Buffer buffer = random_.pick(buffers_);
    if (random_.one_in(2)) {
      const Tile value = row_of(buffer.dtype);
      line("store {}, {}[{}, d0, d1]{}", value.name, buffer.name, slot_of(buffer), mask_for(value));
      return;
    }
    const std::string row =
        random_.pick({std::string("d0"), fmt::format("{} - d0", tile_[0] - 1), std::string("0")});
    const std::string column =
        random_.pick({std::string("d1"), fmt::format("{} - d1", tile_[1] - 1),
                      fmt::format("mod(d1 + {}, {})", random_.below(tile_[1]), tile_[1])});
    const std::string place =
        fmt::format("{}[{}, {}, {}]", buffer.name, slot_of(buffer), row, column);
    make(guarded_load(place, {"", buffer.dtype, tile_, {}}), buffer.dtype, tile_, {});
  }

  // A copy that may be asynchronous: what is loaded only passes to a buffer, as it lies.
  void pass_to_buffer() {
    const auto wanted = [](const Buffer& b) { return b.dtype == "f32"; };
    const auto found = std::find_if(buffers_.begin(), buffers_.end(), wanted);
    if (found == buffers_.end()) return;
    const std::string name = value_name(), at = "d0 + " + random_.pick(symbols_);
    line("{0} = load %x[{1}, d1] mask ({1} < n + {2} and d1 < {3}) fill 0.0 : {4}", name, at, rows_,
         columns_, type("f32", tile_));
    line("store {}, {}[{}, d0, d1]", name, found->name, slot_of(*found));
  }

  void move() {
    const auto found =
        any_of([&](const Tile& t) { return t.extents == tile_ && t.dtype != "bool"; });
    if (!found) return;
    switch (random_.below(5)) {
      case 0: {
        const Tile t = make(fmt::format("transpose {} perm(1, 0)", found->name), found->dtype,
                            {tile_[1], tile_[0]}, {});
        make(fmt::format("transpose {} perm(1, 0)", t.name), found->dtype, tile_, {});
        break;
      }
      case 1: {
        const Tile flat =
            make(fmt::format("reshape {}", found->name), found->dtype, {tile_[0] * tile_[1]}, {});
        make(fmt::format("reshape {}", flat.name), found->dtype, tile_, {});
        break;
      }
      case 2: {
        const int64_t r = random_.below(tile_[0]), c = random_.below(tile_[1]);
        const Tile part =
            make(fmt::format("slice {}({}, {})", found->name, r, c), found->dtype, {1, 1}, {});
        make(fmt::format("broadcast {}", part.name), found->dtype, tile_, {});
        break;
      }
      case 3:
        if (is_only_stored(found->dtype)) return;
        make(fmt::format("scan {} {} axes({}){}{}", monoid(found->dtype), found->name,
                         random_.below(2), random_.one_in(3) ? " reverse" : "",
                         random_.one_in(3) ? " exclusive" : ""),
             found->dtype, tile_, {});
        break;
      default: {
        const auto axis = random_.below(2);
        if (tile_[static_cast<size_t>(axis)] == 1 || is_only_stored(found->dtype)) return;
        const Tile index = make("iota (d" + std::to_string(axis) + ")", "i32", tile_, {});
        Extents extents = tile_;
        extents[static_cast<size_t>(axis)] = 1;
        const Tile best{value_name(), found->dtype, extents, {}};
        const Tile at{value_name(), "i32", extents, {}};
        line("{}, {} = reduce {} {}, {} axes({}) : {}, {}", best.name, at.name,
             random_.pick({"argmin", "argmax"}), found->name, index.name, axis,
             type(best.dtype, extents), type("i32", extents));
        if (!mixes_) return;
        define(best);
        define(at);
      }
    }
  }

  void statements(int64_t count, int depth) {
    for (int64_t n = 0; n < count; ++n) {
      switch (random_.below(depth < 2 ? 14 : 11)) {
        case 0:
        case 1:
          load_parameter();
          break;
        case 2:
        case 3:
          use_buffer();
          break;
        case 4:
          add_position(tile_, {});
          break;
        case 5:
          if (const auto folded = add_fold(); folded && !mixes_) values_.pop_back();
          break;
        case 6:
          move();
          break;
        case 7:
          pass_to_buffer();
          break;
        case 11:
        case 12:
          add_loop([&] { statements(random_.within(1, 5), depth + 1); });
          break;
        case 13:
          add_branch([&] { statements(random_.within(1, 4), depth + 1); });
          break;
        default:
          add_row();
      }
    }
  }

  // Something that depends on much of what there is.
  Tile total() {
    Tile sum = row_of("f32");
    for (int i = 0; i < 3; ++i) {
      const auto found = any_of([&](const Tile& t) { return t.dtype != "bool" && fits(t, sum); });
      const Tile wide = converted(*found, "f32");
      sum = row(fmt::format("add {}, {}", sum.name, wide.name), "f32", sum);
    }
    return sum;
  }

  const bool gpu_;
  Extents tile_, grid_;
  int64_t warps_ = 4, size_ = 0;
  const int64_t rows_ = random_.within(1, 9), columns_ = random_.pick({3, 8, 16, 32, 40});
  const std::string align_ = random_.one_in(2) ? " align 16" : "";
  std::string any_;    // the dtype of %h
  bool mixes_ = true;  // tiles of extent 1 lie as those that they broadcast to
  bool sums_ = false;
};

// --- Pipelined programs
// ---------------------------------------------------------------------------

/// A role copies items of one or two fields; copies of another one compute with them. In half of
/// the programs they multiply them on matrix units.
class PipelinedWriter : public Writer {
 public:
  explicit PipelinedWriter(uint64_t seed) : Writer(seed, true) {}

  TileCase run() {
    dots_ = random_.one_in(2);
    exact_ = dots_;
    cluster_ = random_.one_in(4) ? 2 : 1;
    blocks_ = random_.within(1, 3);
    copies_ = random_.within(1, dots_ ? 2 : 3);
    warps_ = dots_ ? 4 : random_.pick({1, 2, 4});
    depth_of_ring_ = random_.within(1, 4);
    size_ = random_.pick({0, 1, 7, 8, 16, 24, 31});
    choose_hand_over();
    choose_fields();
    constexpr int64_t kMostSlots = 96 << 10;  // buffers need room, too
    while (depth_of_ring_ > receivers() && depth_of_ring_ * item_bytes() > kMostSlots)
      depth_of_ring_ -= receivers();
    ++depth_;
    add_phase();
    if (parts_) add_second_phase();
    std::string out = "braze 1 tile\nsymbol n: 0..31\n\nkernel @fuzz(" + parameters() +
                      ") pipelined target \"sm_90a\" {\n";
    if (parts_ || counts_) out += fmt::format("  workspace %parts: f32{}\n", shape_of_all());
    if (counts_) out += fmt::format("  workspace %done: i32[{}] zero\n", copies_ * cluster_);
    return {out + lines_ + "}\n", {size_}};
  }

 private:
  /// Which copies receive an item.
  enum class HandOver { All, InTurn, ByToken };

  struct Field {
    std::string name, dtype, parameter;
    Extents extents;
    int64_t swizzle = 0;
    bool replicated = false;
  };

  // In turn: a copy receives every slot again itself, or a token orders them.
  void choose_hand_over() {
    hand_over_ = copies_ == 1 ? HandOver::All
                              : random_.pick({HandOver::All, HandOver::InTurn, HandOver::ByToken});
    if (hand_over_ == HandOver::InTurn) depth_of_ring_ = copies_ * random_.within(1, 2);
    parts_ = random_.one_in(4) && cluster_ == 1;
    counts_ = !parts_ && random_.one_in(3);
  }

  int64_t item_bytes() const {
    int64_t bytes = 0;
    for (const Field& field : fields_) {
      int64_t own = bytes_of(field.dtype);
      for (const int64_t extent : field.extents) own *= extent;
      bytes += own;
    }
    return bytes;
  }

  int64_t receivers() const { return hand_over_ == HandOver::All ? 1 : copies_; }

  int64_t random_swizzle(int64_t rows, int64_t row_bytes, bool needed) {
    std::vector<int64_t> fitting;
    for (const int64_t swizzle : {32, 64, 128})
      if (row_bytes % swizzle == 0 && rows % 8 == 0) fitting.push_back(swizzle);
    if (fitting.empty() || (!needed && random_.one_in(4))) return 0;
    return random_.pick(fitting);
  }

  void add_field(std::string name, std::string dtype, Extents extents, bool needs_swizzle) {
    Field field{std::move(name), std::move(dtype), "", std::move(extents), 0, false};
    const int64_t rows = field.extents[field.extents.size() - 2];
    field.swizzle =
        random_swizzle(rows, field.extents.back() * bytes_of(field.dtype), needs_swizzle);
    field.parameter = "%x" + std::to_string(fields_.size());
    // What does not depend on the rank is fetched once for all blocks.
    field.replicated = cluster_ > 1 && random_.one_in(2);
    fields_.push_back(std::move(field));
  }

  void choose_fields() {
    if (dots_) {
      const bool tf32 = random_.one_in(5);
      const std::string dtype = tf32 ? "f32" : random_.pick({"bf16", "f16"});
      columns_ = random_.pick({8, 16, 32, 64});
      inner_ = random_.pick({16, 32, 64});
      a_inner_ = tf32 || random_.one_in(2);
      b_inner_ = tf32 || columns_ < 16 || random_.one_in(2);
      tile_ = {64, columns_};
      a_rows_ = random_.one_in(2) ? copies_ * 64 : 64;  // rows of each copy, or of all
      if (!a_inner_) a_rows_ = 64;
      a_in_registers_ = !tf32 && random_.one_in(5);
      tf32_ = tf32;
      if (!a_in_registers_)
        add_field("a", dtype, a_inner_ ? Extents{a_rows_, inner_} : Extents{inner_, 64}, true);
      add_field("b", dtype, b_inner_ ? Extents{columns_, inner_} : Extents{inner_, columns_}, true);
      layout_ = accumulator_layout(columns_);
      return;
    }
    tile_ = {random_.pick({1, 2, 3, 8, 16, 24}), random_.pick({4, 8, 16, 32, 48, 64})};
    layout_ = LayoutMaker(random_, warps_).of(tile_);
    const int64_t count = random_.within(1, 2);
    for (int64_t f = 0; f < count; ++f) {
      const std::string dtype = any_dtype();
      Extents extents = tile_;
      if (random_.one_in(4)) extents[0] *= 2;
      if (random_.one_in(5)) extents.insert(extents.begin(), 2);
      add_field(fmt::format("f{}", f), dtype, extents, false);
    }
  }

  std::string shape_of_all() const {
    return list({blocks_, cluster_, copies_, tile_[0], tile_[1]});
  }

  std::string parameters() {
    std::string out;
    for (const Field& field : fields_) {
      const Extents& e = field.extents;
      const int64_t extra = parameter_columns(field);
      std::string shape = fmt::format("[n + {}, {}]", e[e.size() - 2] / 2 + 1, extra);
      if (e.size() == 3) shape = fmt::format("[2, n + {}, {}]", e[1] / 2 + 1, extra);
      out += fmt::format("{}: in {}{}{}, ", field.parameter, field.dtype, shape,
                         aligned_ ? " align 16" : "");
    }
    out += fmt::format("%p: in f32{}, ", list(tile_));
    if (a_in_registers_) out += fmt::format("%r: in {}[64, {}], ", fields_[0].dtype, inner_);
    out += fmt::format("%y: out f32{}", shape_of_all());
    if (bulk_)
      out += fmt::format(", %o: out {}[max(1, {} - n), {}] align 16", bulk_dtype_,
                         blocks_ * cluster_ * copies_ * tile_[0], tile_[1]);
    if (parts_) out += fmt::format(", %s: out f32{}", shape_of_all());
    if (counts_)
      out += fmt::format(", %s: out f32{}", list({cluster_, copies_, tile_[0], tile_[1]}));
    return out;
  }
  // Whole multiples of 16 bytes, for a tensor map; else threads copy.
  int64_t parameter_columns(const Field& field) const {
    const int64_t whole = field.extents.back() + 16 / bytes_of(field.dtype) * 2;
    return aligned_ ? whole : whole - 1;
  }

  void add_phase() {
    symbols_ = {"t"};
    if (cluster_ > 1) symbols_.emplace_back("b");
    std::string head = fmt::format("phase grid(t: {})", blocks_);
    if (cluster_ > 1) head += fmt::format(" cluster(b: {})", cluster_);
    block(head, [&] {
      choose_items();
      std::string only;
      if (hand_over_ != HandOver::All) only = fmt::format(" only (mod(item, {}))", copies_);
      block(fmt::format("channel %q depth {} from load to work{}", depth_of_ring_, only), [&] {
        for (const Field& field : fields_)
          line("{}: {}{}{}", field.name, field.dtype, list(field.extents),
               field.swizzle > 0 ? fmt::format(" swizzle {}", field.swizzle) : "");
      });
      if (hand_over_ == HandOver::ByToken) line("token %turn[{}] among work first 0", copies_);
      add_producer();
      add_consumers();
    });
  }

  // Items of an instance: some have none.
  void choose_items() {
    switch (random_.below(4)) {
      case 0:
        line("let rounds = {}", random_.within(1, 4));
        break;
      case 1:
        line("let rounds = floordiv(n, 8)");
        break;
      case 2:
        line("let rounds = max(0, {} - t)", random_.within(1, 4));
        break;
      default:
        line("let rounds = min(n, {})", random_.within(1, 5));
    }
    nested_ = random_.one_in(2);
    if (nested_) line("let walks = {}", random_.pick({"2", "min(n, 2)", "3"}));
  }

  // Rounds of all copies, or two loops around them.
  void each_round(
      const std::function<void(const std::string& number, const std::string& round)>& body) {
    if (!nested_) return body("", "rounds");
    block("for u: 0..walks", [&] {
      symbols_.emplace_back("u");
      line("let q = u*rounds*{}", receivers());
      body("q + ", "rounds");
      symbols_.pop_back();
    });
  }

  void add_producer() {
    block(fmt::format("role load warps {}", random_.pick({1, 1, 2, 4})), [&] {
      each_round([&](const std::string& base, const std::string& rounds) {
        block(fmt::format("for k: 0..{}*{}", rounds, receivers()), [&] {
          block(fmt::format("put %q[{}k]", base), [&] {
            for (const Field& field : fields_) line("{}", copy(field));
          });
        });
      });
    });
  }

  std::string copy(const Field& field) {
    const size_t rank = field.extents.size();
    std::vector<std::string> at;
    for (size_t axis = 0; axis < rank; ++axis) at.push_back(fmt::format("d{}", axis));
    std::string& row = at[rank - 2];
    row = random_.pick({row, "k + " + row, "t + " + row});
    if (cluster_ > 1 && !field.replicated) row = "b + " + row;
    if (random_.one_in(4))
      at.back() = fmt::format("{} - 1", at.back());
    else if (random_.one_in(3))
      at.back() = fmt::format("{} + {}", at.back(), 16 / bytes_of(field.dtype));
    return fmt::format("copy {}[{}] clip, %q.{}", field.parameter, fmt::join(at, ", "), field.name);
  }

  void add_consumers() {
    block(fmt::format("role work(c: {}) warps {}", copies_, warps_), [&] {
      symbols_.emplace_back("c");
      declare_buffers();
      begin();
      Tile state = make("const 0.0", "f32", tile_, layout_, true);
      each_round([&](const std::string& base, const std::string& rounds) {
        // Behind the walks the state is that of the last buffer, for loops cannot give it out of
        // a block without a yield.
        add_rounds(state, base, rounds);
      });
      finish();
    });
  }

  void declare_buffers() {
    // What walks leave passes through here.
    keep_ = "%" + fresh("keep");
    line("{} = buffer f32{}{}", keep_, list(tile_), swizzle_text(tile_, "f32"));
    if (random_.one_in(2)) {
      Buffer buffer{"%" + fresh("b"), any_dtype(), tile_, 1};
      line("{} = buffer {}{}{}", buffer.name, buffer.dtype, list(tile_),
           swizzle_text(tile_, buffer.dtype));
      buffers_.push_back(buffer);
    }
    bulk_ = random_.one_in(3) && tile_[1] % 8 == 0;
    bulk_dtype_ = dots_ ? "bf16" : random_.pick({"bf16", "f32"});
    if (bulk_)
      line("%out = buffer {}{}{}", bulk_dtype_, list(tile_), swizzle_text(tile_, bulk_dtype_));
  }
  std::string swizzle_text(const Extents& extents, const std::string& dtype) {
    const int64_t swizzle = random_swizzle(extents[0], extents[1] * bytes_of(dtype), false);
    return swizzle > 0 ? fmt::format(" swizzle {}", swizzle) : "";
  }

  void begin() {
    const Tile first = make("load %p[d0, d1]", "f32", tile_, layout_, true);
    line("store {}, {}[d0, d1]", first.name, keep_);
    for (const Buffer& buffer : buffers_)
      line("store {}, {}[d0, d1]", converted(first, buffer.dtype).name, buffer.name);
    add_position(tile_, layout_);
    if (a_in_registers_)
      left_ = make("load %r[d0, d1]", fields_[0].dtype, {64, inner_},
                   dot_operand_layout(inner_, false), true)
                  .name;
  }

  void add_rounds(const Tile& zero, const std::string& base, const std::string& rounds) {
    const auto item_of = [&](const std::string& round) {
      return hand_over_ == HandOver::All ? base + round
                                         : fmt::format("{}({})*{} + c", base, round, copies_);
    };
    const std::string item = item_of("r");
    // A dot may run while the next one is started; then two items of a copy are held.
    const bool late = dots_ && hand_over_ != HandOver::ByToken &&
                      depth_of_ring_ >= 2 * receivers() && random_.one_in(2);
    const Tile inside{value_name(), "f32", tile_, layout_},
        after{value_name(), "f32", tile_, layout_};
    block(
        fmt::format("{} = for r: 0..{} carry({} = {})", after.name, rounds, inside.name, zero.name),
        [&] {
          if (!late) define(inside);
          symbols_.emplace_back("r");
          const std::string turn = base.empty() ? "r" : "u*rounds + r";
          if (hand_over_ == HandOver::ByToken) line("take %turn[c, {}]", turn);
          line("get %q[{}]", item);
          const Tile next = dots_ ? multiply(inside, item, late) : combine(inside, item);
          if (late)
            block("if (r > 0)", [&] { line("release %q[{}]", item_of("r - 1")); });
          else
            line("release %q[{}]", item);
          if (hand_over_ == HandOver::ByToken)
            line("pass %turn[mod(c + 1, {0}), {1} + floordiv(c + 1, {0})]", copies_, turn);
          statements(random_.below(4), 1);
          line("yield {}", next.name);
          symbols_.pop_back();
        });
    Tile made = after;
    if (late) {
      made.name = value_name();
      line("{} = dot.wait 0, {}", made.name, after.name);
      block("if (rounds > 0)", [&] { line("release %q[{}]", item_of("rounds - 1")); });
    }
    define(made);
    if (!base.empty()) statements(random_.below(3), 1);
    const Tile old = make(fmt::format("load {}[d0, d1]", keep_), "f32", tile_, layout_, true);
    const Tile sum = row(fmt::format("add {}, {}", old.name, made.name), "f32", old);
    line("store {}, {}[d0, d1]", sum.name, keep_);
  }

  Tile multiply(const Tile& sum, const std::string& item, bool late) {
    const Field& b = fields_.back();
    std::string left = left_;
    if (!a_in_registers_) {
      const Field& a = fields_[0];
      left = value_name();
      const std::string row = a_inner_ && a_rows_ > 64 ? "c*64" : "0";
      line("{} = view %q.a[{}]({}, 0) : {}{}", left, item, row, a.dtype,
           a_inner_ ? list({64, inner_}) : list({inner_, 64}));
    }
    const std::string right = value_name();
    line("{} = view %q.b[{}](0, 0) : {}{}", right, item, b.dtype, list(b.extents));
    const std::string started = value_name();
    const bool a_last = a_in_registers_ || a_inner_;
    line("{} = dot.start {}, {}, {} contract({}, {}){}{}", started, left, right, sum.name,
         a_last ? 1 : 0, b_inner_ ? 1 : 0, tf32_ ? " tf32" : "",
         random_.pick({"", "", " fresh (r == 0)", " fresh"}));
    const Tile done{value_name(), "f32", tile_, layout_};
    line("{} = dot.wait {}, {}", done.name, late ? 1 : 0, started);
    return late ? done : define(done);
  }

  Tile combine(const Tile& state, const std::string& item) {
    Tile sum = state;
    for (const Field& field : fields_) {
      const std::string window = value_name();
      const int64_t most = field.extents[field.extents.size() - 2] - tile_[0];
      std::string offsets =
          fmt::format("{}, 0", most > 0 ? random_.pick({int64_t{0}, most, most / 2}) : 0);
      if (field.extents.size() == 3) offsets = fmt::format("{}, {}", random_.below(2), offsets);
      line("{} = view %q.{}[{}]({}) : {}{}", window, field.name, item, offsets, field.dtype,
           list(tile_));
      const std::string column = random_.pick(
          {std::string("d1"), std::string("d1"), fmt::format("{} - d1", tile_[1] - 1)});
      const Tile part =
          make(fmt::format("load {}[d0, {}]", window, column), field.dtype, tile_, layout_, true);
      const Tile wide = converted(part, "f32");
      sum = row(fmt::format("{} {}, {}", random_.pick({"add", "max", "sub"}), sum.name, wide.name),
                "f32", sum);
    }
    return sum;
  }

  void use_buffer() {
    if (buffers_.empty()) return;
    const Buffer buffer = random_.pick(buffers_);
    if (random_.one_in(2)) {
      const auto found = any_of([&](const Tile& t) {
        return t.extents == tile_ && t.dtype != "bool" && t.dtype != "i64";
      });
      line("store {}, {}[d0, d1]", converted(*found, buffer.dtype).name, buffer.name);
      return;
    }
    const std::string row = random_.pick({std::string("d0"), fmt::format("{} - d0", tile_[0] - 1)});
    const std::string column =
        random_.pick({std::string("d1"), fmt::format("{} - d1", tile_[1] - 1)});
    const std::string place = fmt::format("{}[{}, {}]", buffer.name, row, column);
    make(guarded_load(place, {"", buffer.dtype, tile_, layout_}), buffer.dtype, tile_, layout_,
         true);
  }

  // Along an axis, or a slice of it.
  void move() {
    const auto found =
        any_of([&](const Tile& t) { return t.extents == tile_ && t.dtype != "bool"; });
    if (!found) return;
    const Tile x = arithmetic(*found);
    switch (random_.below(2)) {
      case 0:
        make(
            fmt::format("scan {} {} axes({}){}{}", monoid(x.dtype), x.name, random_.below(2),
                        random_.one_in(3) ? " reverse" : "", random_.one_in(3) ? " exclusive" : ""),
            x.dtype, tile_, x.layout);
        break;
      default: {
        const auto axis = static_cast<size_t>(random_.below(2));
        const std::vector<Digit>& digits = x.layout.axes[axis];
        if (digits.empty() || digits[0].resource != Resource::Register || digits[0].extent % 2 != 0)
          return;
        Extents extents = tile_;
        extents[axis] /= 2;
        Layout half = x.layout;
        half.axes[axis][0].extent /= 2;
        if (half.axes[axis][0].extent == 1) half.axes[axis].erase(half.axes[axis].begin());
        renumber_registers(half);
        std::vector<int64_t> at = {0, 0};
        at[axis] = random_.below(2) * extents[axis];
        make(fmt::format("slice {}({})", x.name, fmt::join(at, ", ")), x.dtype, extents, half);
      }
    }
  }

  void statements(int64_t count, int depth) {
    for (int64_t n = 0; n < count; ++n) {
      switch (random_.below(depth < 3 ? 10 : 8)) {
        case 0:
        case 1:
          use_buffer();
          break;
        case 2:
          add_fold();
          break;
        case 3:
          move();
          break;
        case 4:
          if (random_.one_in(2)) add_position(tile_, layout_);
          break;
        case 8:
          add_loop([&] { statements(random_.within(1, 3), depth + 1); });
          break;
        case 9:
          add_branch([&] { statements(random_.within(1, 3), depth + 1); });
          break;
        default:
          add_row();
      }
    }
  }

  void finish() {
    statements(random_.within(1, 6), 0);
    Tile sum = make(fmt::format("load {}[d0, d1]", keep_), "f32", tile_, layout_, true);
    for (int i = 0; i < 3; ++i) {
      const auto found = any_of([&](const Tile& t) { return t.dtype != "bool" && fits(t, sum); });
      sum = row(fmt::format("add {}, {}", sum.name, converted(*found, "f32").name), "f32", sum);
    }
    if (cluster_ > 1 && random_.one_in(2)) {
      const Tile part = random_.one_in(2)
                            ? sum
                            : make(fmt::format("reduce sum {} axes(1)", sum.name), "f32",
                                   {tile_[0], 1}, restricted(sum.layout, {tile_[0], 1}));
      const Tile all =
          make(fmt::format("reduce {} {} cluster", random_.pick({"sum", "max"}), part.name), "f32",
               part.extents, part.layout);
      sum = row(fmt::format("sub {}, {}", sum.name, all.name), "f32", sum);
    }
    const std::string rank = cluster_ > 1 ? "b" : "0";
    line("store {}, %y[t, {}, c, d0, d1]", sum.name, rank);
    if (bulk_) store_bulk(sum, rank);
    if (parts_ || counts_) line("store {}, %parts[t, {}, c, d0, d1]", sum.name, rank);
    if (counts_) add_up(rank);
  }

  void store_bulk(const Tile& sum, const std::string& rank) {
    const Tile value = converted(sum, bulk_dtype_);
    line("store {}, %out[d0, d1]", value.name);
    line("%leaving = view %out(0, 0) : {}{}", bulk_dtype_, list(tile_));
    line("store.start %leaving, %o[((t*{} + {})*{} + c)*{} + d0, d1] clip", cluster_, rank, copies_,
         tile_[0]);
    if (random_.one_in(2)) {
      line("store.wait 0");
      line("store {}, %out[d0, d1]", value.name);
    }
  }

  void add_up(const std::string& rank) {
    line("%last = ticket %done[c*{} + {}] of ({})", cluster_, rank, blocks_);
    block("if %last", [&] {
      const Tile zero = make("const 0.0", "f32", tile_, layout_, true);
      line("%all = for p: 0..{} carry(%a0 = {}) {{", blocks_, zero.name);
      line("  %part = load %parts[p, {}, c, d0, d1] : {}", rank, laid_out("f32", tile_, layout_));
      line("  %a1 = add %a0, %part : {}", type("f32", tile_));
      line("  yield %a1");
      line("}}");
      line("store %all, %s[{}, c, d0, d1]", rank);
    });
  }

  // Reads what other instances have left.
  void add_second_phase() {
    lines_ += "  barrier grid\n";
    values_.clear();
    buffers_.clear();
    block(fmt::format("phase grid(t: {})", blocks_), [&] {
      block(fmt::format("role after(c: {}) warps {}", copies_, warps_), [&] {
        symbols_ = {"t", "c"};
        const Tile part = make(
            fmt::format("load %parts[mod(t + 1, {}), 0, {} - c, d0, d1]", blocks_, copies_ - 1),
            "f32", tile_, layout_, true);
        define(part);
        statements(random_.within(1, 4), 1);
        const auto found =
            any_of([&](const Tile& t) { return t.dtype != "bool" && fits(t, part); });
        const Tile sum =
            row(fmt::format("add {}, {}", part.name, converted(*found, "f32").name), "f32", part);
        line("store {}, %s[t, 0, c, d0, d1]", sum.name);
      });
    });
  }

  bool dots_ = false, nested_ = false, parts_ = false, counts_ = false, bulk_ = false;
  bool a_inner_ = true, b_inner_ = true, a_in_registers_ = false, tf32_ = false;
  const bool aligned_ = !random_.one_in(4);
  int64_t cluster_ = 1, blocks_ = 1, copies_ = 1, warps_ = 4, depth_of_ring_ = 2, size_ = 0;
  int64_t columns_ = 8, inner_ = 16, a_rows_ = 64;
  HandOver hand_over_ = HandOver::All;
  std::vector<Field> fields_;
  Extents tile_;
  Layout layout_;
  std::string keep_, left_, bulk_dtype_ = "f32";
};

}  // namespace

TileCase random_tile_program(uint64_t seed, TileKind kind) {
  if (kind == TileKind::Pipelined) return PipelinedWriter(seed).run();
  return PlainWriter(seed, kind == TileKind::Gpu).run();
}

}  // namespace braze::fuzz
