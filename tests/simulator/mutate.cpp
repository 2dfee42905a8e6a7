#include "tests/simulator/mutate.h"

#include <algorithm>
#include <functional>

#include "ir/code/text.h"
#include "ir/code/walk.h"
#include "ir/support/text.h"

namespace braze::testing {

namespace {

/// A statement and the region that it stands in.
struct Site {
  KernelCode& code;
  Region& region;
  size_t index;

  Statement& statement() const { return region.statements[index]; }
  void erase() const {
    region.statements.erase(region.statements.begin() + static_cast<std::ptrdiff_t>(index));
  }
};
/// Plants its fault at the site and says what it did; empty if there is nothing to do there.
using Fault = std::string (*)(const Site&);

bool is_one_of(Instruction i, std::initializer_list<Instruction> all) {
  return std::find(all.begin(), all.end(), i) != all.end();
}

// Replaces the results by the operands that are tied to them, where there are any.
void bypass(const Site& site) {
  const InstructionOp op = *site.statement().as<InstructionOp>();
  const std::vector<ValueId> results = site.statement().results;
  std::vector<ValueId> tied;
  for (const InstructionOperand& operand : op.operands)
    if (const auto* value = std::get_if<ValueOperand>(&operand)) tied.push_back(value->value);
  const std::function<void(Region&)> replace = [&](Region& region) {
    const auto exchange = [&](ValueId& id) {
      for (size_t i = 0; i < results.size(); ++i)
        if (id == results[i]) id = tied[i];
    };
    for (Statement& s : region.statements) {
      for_each_value_id(s, exchange);
      for (Region* inner : regions_of(s)) replace(*inner);
    }
    for (ValueOperand& yielded : region.yields)
      if (!yielded.is_literal()) exchange(yielded.value);
  };
  site.erase();
  for (Phase& phase : site.code.phases) replace(phase.body);
}

std::string drop(const Site& site) {
  const auto* op = site.statement().as<InstructionOp>();
  if (!op || is_one_of(op->instruction, {Instruction::tma_prefetch, Instruction::griddep_launch,
                                         Instruction::griddep_wait}))
    return "";
  const InstructionResult result = info(op->instruction).result;
  if (result == InstructionResult::Tied) {
    bypass(site);
    return "dropped";
  }
  if (result != InstructionResult::None) return "";
  site.erase();
  return "dropped";
}

bool is_bulk_wait(const Statement& s) {
  const auto* op = s.as<InstructionOp>();
  return op && is_one_of(op->instruction, {Instruction::bulk_wait, Instruction::bulk_wait_read});
}

Expr* place_of(Statement& s) {
  if (auto* load = s.as<LoadOp>()) return &load->at[0];
  if (auto* store = s.as<StoreOp>()) return &store->at[0];
  if (auto* special = s.as<InstructionOp>())
    for (InstructionOperand& operand : special->operands) {
      if (auto* place = std::get_if<Place>(&operand)) return &place->at;
      if (auto* map = std::get_if<MapPlace>(&operand); map && !map->at.empty())
        return &map->at.back();
    }
  return nullptr;
}

std::string shift_index(const Site& site) {
  Expr* const at = place_of(site.statement());
  if (!at) return "";
  *at = *at + 1;
  return "index shifted by 1";
}

std::string shift_index_far(const Site& site) {
  Expr* const at = place_of(site.statement());
  if (!at || site.statement().as<LoadOp>()) return "";
  *at = *at - 8;
  return "index shifted by -8";
}

std::string change_number(const Site& site, Instruction instruction, size_t operand, int64_t by) {
  auto* op = site.statement().as<InstructionOp>();
  if (!op || op->instruction != instruction) return "";
  Expr& number = std::get<Expr>(op->operands[operand]);
  number = number + by;
  return fmt::format("operand {} changed by {}", operand, by);
}
std::string fewer_bytes(const Site& site) {
  return change_number(site, Instruction::mbarrier_expect, 1, -16);
}
std::string more_bytes(const Site& site) {
  return change_number(site, Instruction::mbarrier_expect, 1, 16);
}
std::string fewer_arrivals(const Site& site) {
  return change_number(site, Instruction::mbarrier_init, 1, -1);
}
std::string more_arrivals(const Site& site) {
  return change_number(site, Instruction::mbarrier_init, 1, 1);
}
std::string fewer_threads(const Site& site) {
  return change_number(site, Instruction::bar_sync, 1, -32);
}
std::string later_wait(const Site& site) {
  std::string done;
  for (const Instruction i : {Instruction::cp_async_wait, Instruction::wgmma_wait})
    if (done.empty()) done = change_number(site, i, 0, 1);
  return done;
}
std::string other_phase(const Site& site) {
  auto* op = site.statement().as<InstructionOp>();
  if (!op || op->instruction != Instruction::mbarrier_wait) return "";
  Expr& parity = std::get<Expr>(op->operands[1]);
  parity = mod(parity + 1, 2);
  return "phase swapped";
}

// The slot of a ring comes round one step early.
std::string smaller_ring(const Site& site) {
  auto* let = site.statement().as<LetOp>();
  if (!let || let->value.kind() != Expr::Kind::Mod) return "";
  const auto depth = let->value.operands()[1].as_constant();
  if (!depth || *depth < 2 || *depth > 8) return "";
  let->value = mod(let->value.operands()[0], *depth - 1);
  return "a slot reused early";
}

// A release before what is released: the statement changes places with the one before it.
std::string earlier(const Site& site) {
  if (site.index == 0) return "";
  Statement &here = site.statement(), &before = site.region.statements[site.index - 1];
  const auto touches = [](const Statement& s) {
    if (s.as<LoadOp>() || s.as<StoreOp>()) return true;
    const auto* op = s.as<InstructionOp>();
    return op && info(op->instruction).result == InstructionResult::None;
  };
  const auto* op = here.as<InstructionOp>();
  const bool orders =
      op && is_one_of(op->instruction,
                      {Instruction::bar_sync, Instruction::bar_arrive, Instruction::mbarrier_arrive,
                       Instruction::fence_proxy_async, Instruction::bulk_commit,
                       Instruction::cp_async_wait, Instruction::wgmma_commit});
  if (!orders || !touches(before)) return "";
  std::swap(here, before);
  return "moved in front of the statement before it";
}

std::string drop_guard(const Site& site) {
  Statement& s = site.statement();
  if (auto* load = s.as<LoadOp>(); load && load->guard) {
    load->guard = {};
    load->fill = 0;
    return "guard dropped";
  }
  if (auto* store = s.as<StoreOp>(); store && store->guard) {
    store->guard = {};
    return "guard dropped";
  }
  return "";
}

std::string always(const Site& site) {
  auto* branch = site.statement().as<IfOp>();
  if (!branch || branch->otherwise || branch->condition.empty()) return "";
  const Region body = *branch->then;
  const bool waits = std::all_of(body.statements.begin(), body.statements.end(), is_bulk_wait);
  if (waits) return "";
  site.erase();
  site.region.statements.insert(
      site.region.statements.begin() + static_cast<std::ptrdiff_t>(site.index),
      body.statements.begin(), body.statements.end());
  return "its condition dropped";
}

std::string widen_loop(const Site& site) {
  auto* loop = site.statement().as<ForOp>();
  if (!loop || loop->is_static) return "";
  loop->high = loop->high + loop->step;
  return "one turn more";
}
std::string narrow_loop(const Site& site) {
  auto* loop = site.statement().as<ForOp>();
  if (!loop || loop->is_static) return "";
  loop->high = loop->high - loop->step;
  return "one turn less";
}

std::string other_layout(const Site& site) {
  auto* op = site.statement().as<InstructionOp>();
  if (!op) return "";
  for (InstructionOperand& operand : op->operands)
    if (auto* place = std::get_if<Place>(&operand); place && place->matrix) {
      place->matrix->stride *= 2;
      return "descriptor's stride doubled";
    }
  return "";
}

constexpr Fault kFaults[] = {
    drop,          shift_index,   shift_index_far, fewer_bytes, more_bytes,   fewer_arrivals,
    more_arrivals, fewer_threads, later_wait,      other_phase, smaller_ring, earlier,
    drop_guard,    always,        widen_loop,      narrow_loop, other_layout};

// Calls `visit` for every statement until it returns true.
bool each_site(KernelCode& code, Region& region, const std::function<bool(const Site&)>& visit) {
  for (size_t i = 0; i < region.statements.size(); ++i) {
    if (visit({code, region, i})) return true;
    for (Region* inner : regions_of(region.statements[i]))
      if (each_site(code, *inner, visit)) return true;
  }
  return false;
}

}  // namespace

std::vector<Mutant> mutants(const Kernel& kernel) {
  std::vector<Mutant> out;
  const std::string original = to_text(kernel);
  size_t sites = 0;
  Kernel counted = kernel;
  for (Phase& phase : counted.phases)
    each_site(counted, phase.body, [&](const Site&) {
      ++sites;
      return false;
    });
  for (size_t target = 0; target < sites; ++target)
    for (const Fault fault : kFaults) {
      Mutant mutant{"", 0, kernel};
      size_t number = 0;
      std::string what, where;
      for (Phase& phase : mutant.kernel.phases)
        each_site(mutant.kernel, phase.body, [&](const Site& site) {
          if (number++ != target) return false;
          where = to_text(mutant.kernel, site.statement());
          mutant.line = site.statement().location.line;
          what = fault(site);
          return true;
        });
      if (what.empty() || to_text(mutant.kernel) == original) continue;
      mutant.fault = fmt::format("{}: {}", what, where);
      out.push_back(std::move(mutant));
    }
  return out;
}

}  // namespace braze::testing
