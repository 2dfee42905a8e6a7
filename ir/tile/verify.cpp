#include "ir/tile/verify.h"

#include <algorithm>

#include "ir/code/statements.h"
#include "ir/code/text.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"
#include "ir/tile/pipeline_rules.h"
#include "ir/tile/skeletons.h"

namespace braze {

namespace {

class TileChecker : public CodeChecker {
 public:
  explicit TileChecker(const TileProgram& program)
      : CodeChecker(program, kRules, 'd', program.pipelined ? Level::Pipelined : Level::PlainTile) {
  }

 private:
  static constexpr Rules kRules = {.names = "T1",
                                   .symbols = "T2",
                                   .index = "T3",
                                   .extents = "T4",
                                   .type = "T5",
                                   .positions = "T6",
                                   .operands = "T7",
                                   .literals = "T8",
                                   .places = "T9",
                                   .guards = "T7",
                                   .bounds = "T11",
                                   .axes = "T12",
                                   .loops = "T13",
                                   .level = "T21"};

  void check_type(const ValueType& type) override {
    expect(type.lanes == 1, "T21", "a type of a tile program cannot have lanes");
    int64_t count = 1;
    for (const int64_t extent : type.extents) {
      expect(extent >= 1 && extent <= 1 << 20, "T5",
             fmt::format("an extent of {} is not from 1 to 2^20", type.to_string()));
      count = std::min<int64_t>(count * std::clamp<int64_t>(extent, 1, 1 << 20), 1 << 21);
    }
    expect(count <= 1 << 20, "T5", fmt::format("{} has more than 2^20 elements", type.to_string()));
  }

  void check_own(const Statement& s) override {
    if (const auto* fold = s.as<ArgFoldOp>()) {
      check_arg_fold(*fold);
    } else if (const auto* scan = s.as<TileScanOp>()) {
      check_scan(*scan);
    } else if (const auto* dot = s.as<TileDotOp>()) {
      check_dot(*dot);
    } else if (const auto* ticket = s.as<TicketOp>()) {
      check_ticket(*ticket);
    } else if (s.as<AwaitOp>()) {
      expect(depth_ == 1 && !code_.resident, "T17",
             "await_predecessors must stand at the top of a phase whose instances do not wait for "
             "each other");
      expect(accessed_ != phase_, "T17", "device memory is accessed before await_predecessors");
    } else if (const auto* channel = s.as<ChannelOp>()) {
      for (const MemoryId field : code_[channel->channel].fields) declare(field);
    } else if (const auto* role = s.as<TileRoleOp>()) {
      check_role(*role);
    } else if (const auto* put = s.as<PutOp>()) {
      check_region(*put->body, {}, nullptr, nullptr);
    } else if (const auto* copy = s.as<CopyOp>()) {
      note_access(copy->memory);
      if (!copy->guard) check_bounds(copy->memory, copy->at);
    } else if (const auto* view = s.as<MemoryViewOp>()) {
      expect_on_chip(view->source);
      expect_on_chip(view->window);
      declare(view->window);
    } else if (const auto* start = s.as<StartDotOp>()) {
      if (start->a_window) expect_on_chip(start->a_window);
      expect_on_chip(start->b_window);
    } else if (const auto* store = s.as<StartStoreOp>()) {
      note_access(store->memory);
      if (!store->guard) check_bounds(store->memory, store->at);
      stored_.insert(store->memory);
    }
  }

  // On-chip memory must have constant extents. All later checks rely on that.
  void expect_on_chip(MemoryId id) {
    const Memory& memory = code_[id];
    const bool constant = std::all_of(memory.shape.begin(), memory.shape.end(),
                                      [](const Expr& e) { return e.as_constant().has_value(); });
    expect(constant, "T5", fmt::format("%{} is not on-chip memory", memory.name));
  }

  void check_role(const TileRoleOp& role) {
    const Expr range[2] = {0, role.copies - 1};
    check_region(*role.body, {}, role.symbol.empty() ? nullptr : &role.symbol, range);
  }

  void check_arg_fold(const ArgFoldOp& op) {
    ValueType values = type_of(op.values), indices = type_of(op.indices);
    expect(is_integer(indices.dtype) && indices.extents == values.extents, "T7",
           "the indices must be integers with the extents of the values");
    expect(kOrdered.contains(values.dtype), "T7",
           fmt::format("values of {} have no order", name(values.dtype)));
    expect(op.axes.size() == 1, "T12", "an arg-reduction is along one axis");
    for (const int64_t axis : op.axes) {
      if (!axis_of(axis, values) || !axis_of(axis, indices)) return;
      values.extents[static_cast<size_t>(axis)] = indices.extents[static_cast<size_t>(axis)] = 1;
    }
    expect(statement_->results.size() == 2 && result_type(0) == values && result_type(1) == indices,
           "T7",
           "an arg-reduction has two results, the values and the indices, with extent 1 along the "
           "axis");
  }

  void check_scan(const TileScanOp& op) {
    const Combiner& combiner = op.combiner;
    expect(op.operands.size() == combiner.parts(), "T7",
           fmt::format("the combiner takes {} parts, but {} are given", combiner.parts(),
                       op.operands.size()));
    if (op.operands.size() != combiner.parts()) return;
    std::vector<ValueType> types;
    for (const ValueOperand& operand : op.operands) {
      if (!axis_of(op.axis, type_of(operand))) return;
      types.push_back(type_of(operand));
      expect(types.back().extents == types[0].extents, "T7",
             "the parts of a scan must have the same extents");
      expect(!combiner.body() || types.back().dtype == combiner.body()->dtypes[types.size() - 1],
             "T7", "a part does not have the dtype in which it is combined");
    }
    for (size_t i = 0; op.totals && i < combiner.parts(); ++i) {
      types.push_back(types[i]);
      types.back().extents[static_cast<size_t>(op.axis)] = 1;
    }
    const auto& results = statement_->results;
    bool same = results.size() == types.size();
    for (size_t i = 0; same && i < types.size(); ++i) same = result_type(i) == types[i];
    expect(same, "T7",
           op.totals
               ? "a scan with totals has two results for each part: one with the part's type, "
                 "and then one with extent 1 along the axis"
               : "a scan has one result for each part, which has its type");
  }

  ValueType side(const ValueOperand& operand, MemoryId buffer) {
    if (!buffer) return type_of(operand);
    ValueType type{code_[buffer].dtype, 1, {}};
    for (const Expr& extent : code_[buffer].shape)
      type.extents.push_back(extent.as_constant().value_or(0));
    expect(code_[buffer].space == MemorySpace::Local, "T9",
           fmt::format("%{} is not a buffer", code_[buffer].name));
    return type;
  }

  void check_dot(const TileDotOp& op) {
    const auto a = side(op.a, op.a_buffer), b = side(op.b, op.b_buffer);
    const bool axes =
        a.rank() == 2 && b.rank() == 2 && (op.contract_a | 1) == 1 && (op.contract_b | 1) == 1;
    expect(axes, "T12", "the operands of a dot must be matrices, contracted along axis 0 or 1");
    if (!axes) return;
    const auto at = [](const ValueType& type, int64_t axis) {
      return type.extents[static_cast<size_t>(axis)];
    };
    expect(at(a, op.contract_a) == at(b, op.contract_b), "T12",
           "the contracted axes have different extents");
    const bool f64 = a.dtype == DType::F64;
    expect(is_arithmetic_float(a.dtype) && is_arithmetic_float(b.dtype) &&
               f64 == (b.dtype == DType::F64),
           "T7", "the operands of a dot must be floats, both f64 or neither");
    const ValueType result{
        f64 ? DType::F64 : DType::F32, 1, {at(a, 1 - op.contract_a), at(b, 1 - op.contract_b)}};
    expect(type_of(op.c) == result, "T7",
           fmt::format("the accumulator must be {}", result.to_string()));
    expect_type(result);
  }

  void check_ticket(const TicketOp& op) {
    const Memory& memory = code_[op.memory];
    note_access(op.memory);
    expect(memory.space == MemorySpace::Workspace && memory.dtype == DType::I32 && memory.zeroed,
           "T16", "a ticket must be an i32 workspace with `zero`");
    expect(op.count.range().min >= 1, "T16",
           "the number of arrivals of a ticket must be at least 1");
    tickets_.insert(op.memory);
  }

  void check_access(MemoryId id, const std::vector<Expr>& at, const Guard&, const ValueType&,
                    bool store) override {
    const Memory& memory = code_[id];
    note_access(id);
    if (!store) {
      const bool known = memory.space != MemorySpace::Workspace || memory.zeroed ||
                         stored_.contains(id) || stored_here(id);
      expect(known, "T18",
             fmt::format("%{} is loaded here, but nothing was stored to it before", memory.name));
      return;
    }
    stored_.insert(id);
    if (!is_device_memory(memory) || branches_ > 0) return;
    for (const GridAxis& axis : code_.phases[phase_].grid) {
      if (axis.extent.as_constant().value_or(1) <= 1) continue;
      const bool varies =
          std::any_of(at.begin(), at.end(), [&](const Expr& e) { return depends(e, axis.symbol); });
      expect(varies, "T20", fmt::format("all values of {} store to the same place", axis.symbol));
    }
  }
  void note_access(MemoryId id) {
    if (is_device_memory(code_[id])) accessed_ = phase_;
  }
  // Whether the phase stores to the memory, even after the load: the next turn of a loop sees it.
  bool stored_here(MemoryId id) const { return stores(code_.phases[phase_].body, id); }
  static bool stores(const Region& region, MemoryId id) {
    return std::any_of(region.statements.begin(), region.statements.end(), [&](const Statement& s) {
      const auto* store = s.as<StoreOp>();
      if (store && store->memory == id) return true;
      const auto inner = regions_of(s);
      return std::any_of(inner.begin(), inner.end(),
                         [&](const Region* r) { return stores(*r, id); });
    });
  }

  // Whether an expression depends on a grid variable, directly or through lets, loop bounds and
  // values.
  bool depends(const Expr& e, const std::string& symbol) const {
    const auto symbols = e.symbols();
    return std::any_of(symbols.begin(), symbols.end(), [&](const std::string& s) {
      if (s == symbol || s[0] == '%') return true;
      if (const auto let = lets_.find(s); let != lets_.end()) return depends(let->second, symbol);
      const auto loop = loops_.find(s);
      return loop != loops_.end() &&
             (depends(loop->second.first, symbol) || depends(loop->second.second, symbol));
    });
  }

  void check_kernel() override {
    if (code_.pipelined && findings.empty()) check_roles(static_cast<const TileProgram&>(code_));
    if (!code_.pipelined)
      for (const NamedLayout& named : code_.layouts) check_layout(named);
    for (size_t i = 0; i < code_.memories.size(); ++i) {
      const Memory& memory = code_.memories[i];
      const bool out = memory.space == MemorySpace::Parameter && memory.mode == Mode::Out;
      expect(!out || stored_.contains(MemoryId(i)), "T19",
             fmt::format("the output %{} is never stored to", memory.name));
    }
    for (const MemoryId ticket : tickets_)
      expect(!stored_.contains(ticket), "T16",
             fmt::format("the ticket %{} is stored to", code_[ticket].name));
  }

  void check_roles(const TileProgram& program) {
    const ReportRule report = [&](const Statement* statement, const char* rule,
                                  const std::string& message) {
      statement_ = statement;
      expect(false, rule, message);
      statement_ = nullptr;
    };
    check_pipeline_rules(program, report);
    if (!findings.empty()) return;
    check_skeletons(program, report,
                    [&](const Statement* s, const char* rule, const std::string& message) {
                      notes.push_back({&codes::kUnprovenAccess, s->location, to_text(program, *s),
                                       fmt::format("{}: {}", rule, message)});
                    });
  }

  // T22: each lane, warp and block belongs to at most one digit.
  void check_layout(const NamedLayout& named) {
    const auto check = [&](Resource resource, int64_t count, std::string_view what) {
      std::vector<Digit> digits;
      for (const std::vector<Digit>& axis : named.layout.axes)
        std::copy_if(axis.begin(), axis.end(), std::back_inserter(digits),
                     [&](const Digit& digit) { return digit.resource == resource; });
      std::sort(digits.begin(), digits.end(),
                [](const Digit& a, const Digit& b) { return a.stride < b.stride; });
      int64_t next = 1;
      for (const Digit& digit : digits) {
        expect(digit.stride >= next, "T22",
               fmt::format("layout @{}: two digits count the same {}", named.name, what));
        next = digit.stride * digit.extent;
      }
      expect(
          next <= count, "T22",
          fmt::format("layout @{} uses {} {}; the kernel has {}", named.name, next, what, count));
    };
    check(Resource::Lane, kWarpThreads, "lanes");
    if (code_.warps > 0) check(Resource::Warp, code_.warps, "warps");
    check(Resource::Block, code_.cluster, "blocks");
  }

  void note_loop(const ForOp& op) override {
    loops_.insert_or_assign(op.symbol, std::pair(op.low, op.high));
  }

  std::set<MemoryId> stored_, tickets_;
  std::optional<size_t> accessed_;  // the last phase that accesses device memory
  std::unordered_map<std::string, std::pair<Expr, Expr>> loops_;
};

}  // namespace

std::vector<Diagnostic> verify(const TileProgram& program, std::vector<Diagnostic>* notes) {
  TileChecker checker(program);
  checker.run();
  if (notes) *notes = std::move(checker.notes);
  return std::move(checker.findings);
}

}  // namespace braze
