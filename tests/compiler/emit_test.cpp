// Tile programs that are emitted of loop trees typed by hand: what they compute is what the trees
// say, and where a program was written by hand, it is that one.
#include "compiler/loops/emit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include "compiler/loops/interpret.h"
#include "compiler/loops/text.h"
#include "compiler/loops/verify.h"
#include "compiler/lowering/lower.h"
#include "ir/code/interpret.h"
#include "ir/code/text.h"
#include "ir/code/walk.h"
#include "ir/kernel/verify.h"
#include "ir/support/hash.h"
#include "ir/support/text.h"
#include "ir/target/target.h"
#include "ir/tile/verify.h"
#include "tests/source_path.h"

namespace braze {
namespace {

std::string joined(const std::vector<Diagnostic>& findings) {
  return join(findings, "\n", [](const Diagnostic& d) { return d.to_string(); });
}

// The case of a text test whose header names `name`; without what is expected of it.
std::string case_named(const std::string& path, const std::string& name) {
  std::ifstream file(test::source_path("tests/" + path));
  std::vector<std::string> cases(1);
  bool expected = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("// ----")) {
      cases.emplace_back();
      expected = false;
    }
    expected = expected || line.starts_with("// run:") || line.starts_with("// expect:");
    if (!expected) cases.back() += line + "\n";
  }
  for (const std::string& text : cases)
    if (text.find(" @" + name + "(") != std::string::npos) return text;
  ADD_FAILURE() << path << " has no " << name;
  return "";
}

LoopTree tree_named(const std::string& name) {
  const LoopTree tree = parse_loops(case_named("loops/emit.braze", name), "emit.braze");
  EXPECT_EQ(joined(verify(tree)), "");
  return tree;
}

// --- Programs up to names -------------------------------------------------------------------

// What a program does, in order: copies, dots, stores and what roles owe each other, with the loops
// around them. Values without effect stand where they are used, as what they are made of. Names are
// places: of loops by depth, of memory and channels by order.
class Outline {
 public:
  explicit Outline(const KernelCode& code) : code_(code) {
    for (size_t i = 0; i < code.memories.size(); ++i) {
      const Memory& m = code.memories[i];
      if (m.space == MemorySpace::Parameter) memories_[i] = fmt::format("P{}", i);
    }
    for (size_t p = 0; p < code.phases.size(); ++p) {
      const Phase& phase = code.phases[p];
      for (size_t g = 0; g < phase.grid.size(); ++g) {
        const Expr extent = phase.grid[g].extent;
        line(fmt::format("grid {}", extent.to_string()));
        rename(phase.grid[g].symbol, grid_symbol(fmt::format("G{}", g), extent));
      }
      region(phase.body);
    }
  }
  std::string text;

 private:
  void line(const std::string& what) { text += std::string(2 * depth_, ' ') + what + "\n"; }
  void rename(const std::string& symbol, const Expr& to) { symbols_.insert_or_assign(symbol, to); }

  std::string e(const Expr& x) const { return x.substitute(symbols_).to_string(); }
  std::string list(const std::vector<Expr>& at) const {
    return "[" + join(at, ", ", [&](const Expr& x) { return e(x); }) + "]";
  }
  std::string condition(const Condition& list) const {
    return join(list, " and ", [&](const IndexComparison& c) {
      return fmt::format("{} ~{} {}", e(c.left), static_cast<int>(c.kind), e(c.right));
    });
  }
  // A load outside of its tensor is the same whether it is clipped or masked.
  std::string guard(const Guard& g, MemoryId memory, const std::vector<Expr>& at) const {
    if (g.mask) return " mask " + value(g.mask);
    if (!g.clip) return g.condition.empty() ? "" : " mask " + condition(g.condition);
    Condition inside;
    for (size_t i = 0; i < at.size(); ++i)
      if (!proves_in_bounds(at[i].substitute(symbols_), code_[memory].shape[i]))
        inside.push_back({at[i], IndexComparison::Kind::Lt, code_[memory].shape[i]});
    return inside.empty() ? "" : " mask " + condition(inside);
  }
  std::string value(const ValueOperand& o) const {
    if (o.is_literal()) return fmt::format("{}:{:x}", name(o.dtype), o.bits);
    const auto found = values_.find(o.value);
    return found == values_.end() ? "?" : found->second;
  }
  std::string values(const std::vector<ValueOperand>& list) const {
    return join(list, ", ", [&](const ValueOperand& o) { return value(o); });
  }
  std::string memory(MemoryId id) const { return memories_.at(id.index); }
  std::string type(ValueId id) const {
    const Value& v = code_[id];
    return v.type.to_string() + (v.layout ? " " + v.layout->layout.to_string() : "");
  }
  static std::string shorter(const std::string& made) {
    constexpr size_t kLong = 400;
    return made.size() < kLong ? made : fmt::format("#{:x}", hash64(made));
  }

  void body(const std::string& head, const Region& inner) {
    line(head + " {");
    ++depth_;
    region(inner);
    --depth_;
  }

  void region(const Region& r) {
    for (const Statement& s : r.statements) statement(s);
    if (!r.yields.empty()) line("yield " + values(r.yields));
  }

  void statement(const Statement& s) {
    const auto pure = [&](const std::string& made) { values_[s.results[0]] = shorter(made); };
    if (const auto* let = s.as<LetOp>()) {
      rename(let->symbol, let->value.substitute(symbols_));
    } else if (const auto* constant = s.as<ConstOp>()) {
      pure(fmt::format("const {:x}: {}", constant->bits, type(s.results[0])));
    } else if (const auto* index = s.as<IndexOp>()) {
      pure(fmt::format("iota {}: {}", e(index->value), type(s.results[0])));
    } else if (const auto* test = s.as<TestOp>()) {
      pure(fmt::format("test {}: {}", condition(test->condition), type(s.results[0])));
    } else if (const auto* load = s.as<LoadOp>()) {
      pure(fmt::format("load {}{}{}: {}", memory(load->memory), list(load->at),
                       guard(load->guard, load->memory, load->at), type(s.results[0])));
    } else if (const auto* row = s.as<RowOp>()) {
      pure(fmt::format("{}({})", name(row->op), values(row->operands)));
    } else if (const auto* fold = s.as<FoldOp>()) {
      pure(fmt::format("fold {} {} {}", name(fold->monoid), value(fold->operand),
                       join(fold->axes, ",", [](int64_t a) { return std::to_string(a); })));
    } else if (const auto* view = s.as<MovementOp>()) {
      std::vector<Expr> at = view->offsets;
      for (const int64_t a : view->arguments) at.emplace_back(a);
      pure(fmt::format("view{} {}{}: {}", static_cast<int>(view->kind), value(view->operand),
                       list(at), type(s.results[0])));
    } else if (const auto* window = s.as<MemoryViewOp>()) {
      memories_[window->window.index] = fmt::format(
          "{}{}{}: {}", memory(window->source), window->item ? "<" + e(*window->item) + ">" : "",
          list(window->offsets), memory_type(code_[window->window]).to_string());
    } else {
      effect(s);
    }
  }

  void effect(const Statement& s) {
    if (const auto* channel = s.as<ChannelOp>()) {
      const size_t number = channels_.size();
      channels_[channel->channel] = number;
      const Channel& c = code_[channel->channel];
      for (size_t f = 0; f < c.fields.size(); ++f) {
        const Memory& field = code_[c.fields[f]];
        memories_[c.fields[f].index] = fmt::format("C{}.{}", number, f);
        line(fmt::format("field {}.{} depth {}: {} swizzle {}", number, f, c.depth,
                         memory_type(field).to_string(), field.swizzle));
      }
    } else if (const auto* buffer = s.as<BufferOp>()) {
      memories_[buffer->memory.index] = fmt::format("B{}", buffers_++);
      const Memory& m = code_[buffer->memory];
      line(fmt::format("buffer {} swizzle {}", memory_type(m).to_string(), m.swizzle));
    } else if (const auto* role = s.as<TileRoleOp>()) {
      if (!role->symbol.empty()) rename(role->symbol, grid_symbol("copy", role->copies));
      body(fmt::format("role {} of {} warps {} registers", role->copies, role->warps,
                       role->registers),
           *role->body);
    } else if (const auto* loop = s.as<ForOp>()) {
      for_loop(s, *loop);
    } else if (const auto* branch = s.as<IfOp>()) {
      body("if " + (branch->flag ? value(branch->flag) : condition(branch->condition)),
           *branch->then);
      if (branch->otherwise) body("else", *branch->otherwise);
    } else if (const auto* put = s.as<PutOp>()) {
      body(fmt::format("put {} {}", channels_.at(put->channel), e(put->item)), *put->body);
    } else if (const auto* get = s.as<GetItemOp>()) {
      line(fmt::format("get {} {}", channels_.at(get->channel), e(get->item)));
    } else if (const auto* release = s.as<ReleaseOp>()) {
      line(fmt::format("release {} {}", channels_.at(release->channel), e(release->item)));
    } else if (const auto* copy = s.as<CopyOp>()) {
      line(fmt::format("copy {}{}{} to {}", memory(copy->memory), list(copy->at),
                       copy->guard.clip ? " clip" : "", memory(copy->field)));
    } else if (const auto* store = s.as<StoreOp>()) {
      line(fmt::format("store {} to {}{}{}", value(store->value), memory(store->memory),
                       list(store->at), guard(store->guard, store->memory, store->at)));
    } else if (const auto* start = s.as<StartStoreOp>()) {
      line(fmt::format("store.start {} to {}{}{}", memory(start->window), memory(start->memory),
                       list(start->at), start->guard.clip ? " clip" : ""));
    } else if (const auto* wait_store = s.as<WaitStoreOp>()) {
      line(fmt::format("store.wait {}", wait_store->pending));
    } else if (const auto* dot = s.as<StartDotOp>()) {
      start_dot(s, *dot);
    } else if (const auto* wait = s.as<WaitDotOp>()) {
      line(fmt::format("dot.wait {} {}", wait->pending, values(wait->operands)));
      for (size_t i = 0; i < s.results.size(); ++i)
        values_[s.results[i]] = fmt::format("wait{}.{}", waits_, i);
      ++waits_;
    } else {
      line("another statement");
    }
  }

  void start_dot(const Statement& s, const StartDotOp& dot) {
    // A condition that never holds makes no fresh sum.
    const bool never =
        std::any_of(dot.fresh_when.begin(), dot.fresh_when.end(), [&](const IndexComparison& c) {
          const Expr left = c.left.substitute(symbols_), right = c.right.substitute(symbols_);
          return c.kind == IndexComparison::Kind::Gt ? proves_at_most(left, right)
                                                     : proves_less(right, left).value_or(false);
        });
    std::string fresh;
    if (dot.fresh && !never)
      fresh = dot.fresh_when.empty() ? " fresh" : " fresh " + condition(dot.fresh_when);
    line(fmt::format("dot{} = {} x {} + {} contract {} {}{}", dots_,
                     dot.a_window ? memory(dot.a_window) : value(dot.a), memory(dot.b_window),
                     value(dot.c), dot.contract_a, dot.contract_b, fresh));
    values_[s.results[0]] = fmt::format("dot{}", dots_++);
  }

  void for_loop(const Statement& s, const ForOp& loop) {
    const size_t number = loops_++;
    std::string first;
    for (const auto& [value_in, initial] : loop.carried) first += " " + value(initial);
    const Expr low = loop.low.substitute(symbols_), high = loop.high.substitute(symbols_),
               step = loop.step.substitute(symbols_);
    for (size_t i = 0; i < loop.carried.size(); ++i)
      values_[loop.carried[i].first] = fmt::format("carry{}.{}", number, i);
    rename(loop.symbol, loop_symbol(fmt::format("L{}", depth_), low, high, step));
    body(fmt::format("for {}: {}..{} step {}{} carry{}", depth_, low.to_string(), high.to_string(),
                     step.to_string(), loop.is_static ? " static" : "", first),
         *loop.body);
    for (size_t i = 0; i < s.results.size(); ++i)
      values_[s.results[i]] = fmt::format("for{}.{}", number, i);
  }

  const KernelCode& code_;
  std::unordered_map<std::string, Expr> symbols_;
  std::map<size_t, std::string> memories_;
  std::map<ChannelId, size_t> channels_;
  std::map<ValueId, std::string> values_;
  size_t depth_ = 0, loops_ = 0, dots_ = 0, waits_ = 0, buffers_ = 0;
};

void expect_as_written(const std::string& tree, const std::string& file, const std::string& name) {
  const TileProgram written = parse_tile(case_named("tile/" + file, name), file);
  const TileProgram emitted = emit(tree_named(tree));
  ASSERT_EQ(joined(verify(emitted)), "") << to_text(emitted);
  EXPECT_EQ(Outline(emitted).text, Outline(written).text) << to_text(emitted);
}

// --- Values ---------------------------------------------------------------------------------

// Runs the tree and its program on random numbers. The program is also lowered for its machine.
void expect_same_values(const std::string& name, const std::map<std::string, int64_t>& extents) {
  SCOPED_TRACE(name);
  const LoopTree tree = tree_named(name);
  const TileProgram program = emit(tree);
  SCOPED_TRACE(to_text(program));
  ASSERT_EQ(joined(verify(program)), "");
  const Kernel kernel =
      lower(program, find_target(program.pipelined ? program.target : "x86-64-v3").value());
  ASSERT_EQ(joined(verify(kernel)), "");
  Sizes sizes;
  std::vector<int64_t> scalars;
  for (const Expr& symbol : tree.symbols) {
    scalars.push_back(extents.at(symbol.symbol_name()));
    sizes.set(symbol.symbol_name(), scalars.back());
  }
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<HostTensor> expected, got;
  for (const LoopTensor& tensor : tree.tensors) {
    expected.emplace_back(tensor.type.dtype, sizes(tensor.type.shape));
    for (int64_t i = 0; tensor.mode != Mode::Out && i < expected.back().numel(); ++i)
      expected.back().set_double(i, uniform(random));
  }
  got = expected;
  std::vector<std::span<std::byte>> memories;
  for (HostTensor& tensor : got) memories.emplace_back(tensor.data(), tensor.size_bytes());
  ASSERT_EQ(joined(run_code(program, memories, scalars)), "");
  interpret(tree, sizes, expected);
  for (size_t t = 0; t < got.size(); ++t) {
    if (tree.tensors[t].mode == Mode::In) continue;
    const double allowed = is_half(got[t].dtype()) ? 1.0 / 64 : 1e-4;
    for (int64_t i = 0; i < got[t].numel(); ++i) {
      const double want = expected[t].get_double(i), have = got[t].get_double(i);
      if (std::isnan(have) && std::isnan(want)) continue;
      ASSERT_NEAR(have, want, allowed * (1 + std::abs(want))) << "element " << i << " of " << t;
    }
  }
}

TEST(Emit, TheProgramsWrittenByHand) {
  expect_as_written("gated", "gated_product.braze", "gated");
  expect_as_written("linear_gelu", "linear_gelu.braze", "linear_gelu");
  expect_as_written("conv", "convolution.braze", "conv");
  expect_as_written("attention_dq", "attention_queries.braze", "attention_dq");
}

TEST(Emit, ProgramsWithRolesComputeWhatTheirTreesSay) {
  expect_same_values("gated", {{"m", 130}, {"n", 136}, {"k", 72}});
  expect_same_values("linear_gelu", {{"m", 70}, {"n", 264}, {"k", 136}});
  expect_same_values("attention", {{"h", 1}, {"s", 130}});
  expect_same_values("attention_dq", {{"h", 1}, {"s", 130}});
  expect_same_values("attention_dkv", {{"h", 1}, {"s", 140}});
}

TEST(Emit, PlainProgramsComputeWhatTheirTreesSay) {
  expect_same_values("softmax_short", {{"n", 5}});
  expect_same_values("softmax_long", {{"n", 7}, {"k", 75}});
  expect_same_values("softmax_online", {{"n", 9}, {"k", 75}});
  expect_same_values("pointwise", {{"t", 13}, {"c", 37}});
  expect_same_values("norm_backward", {{"n", 21}});
  expect_same_values("product", {{"n", 6}, {"m", 19}, {"k", 21}});
  for (const int64_t k : {1, 21, 24, 100})
    expect_same_values("in_parts", {{"n", 6}, {"m", 19}, {"k", k}});
}

}  // namespace
}  // namespace braze
