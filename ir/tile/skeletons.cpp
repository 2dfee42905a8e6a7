#include "ir/tile/skeletons.h"

#include <algorithm>
#include <set>

#include "ir/code/interpret.h"
#include "ir/code/walk.h"

namespace braze {

namespace {

constexpr int64_t kRagged = 333, kLarge = 4096;

// Finds statements for which others wait and that depend on loaded values: P15.
class SteeredByValues {
 public:
  explicit SteeredByValues(const ReportRule& note) : note_(note) {}

  bool check(const Region& region) {
    for (const Statement& s : region.statements) {
      check(s);
      for (const Region* inner : regions_of(s)) check(*inner);
    }
    return found_;
  }

 private:
  void check(const Statement& s) {
    bool steered = false;
    for_each_expr(s, [&](const Expr& e) { steered = steered || depends(e); });
    if (const auto* branch = s.as<IfOp>()) steered = steered || branch->flag;
    if (const auto* let = s.as<LetOp>(); let && steered) symbols_.insert(let->symbol);
    if (const auto* loop = s.as<ForOp>(); loop && steered) symbols_.insert(loop->symbol);
    if (!steered || !has_protocol(s) || s.as<TileRoleOp>()) return;
    found_ = true;
    note_(&s, "P15",
          "a loaded value decides about this statement, so the order and pairing of puts, gets and "
          "turns cannot be checked here");
  }
  bool depends(const Expr& e) const {
    const auto used = e.symbols();
    return std::any_of(used.begin(), used.end(), [&](const std::string& symbol) {
      return symbol[0] == '%' || symbols_.contains(symbol);
    });
  }

  const ReportRule& note_;
  std::set<std::string> symbols_;
  bool found_ = false;
};

// Gives every symbol the value in its range that is nearest to `wanted`.
std::vector<int64_t> sizes_near(const TileProgram& program, int64_t wanted) {
  std::vector<int64_t> out;
  for (const Expr& symbol : program.symbols) {
    const Interval range = symbol.range();
    const int64_t divisor = symbol.divisor();
    const int64_t least = (range.min + divisor - 1) / divisor * divisor;
    const int64_t most = range.max / divisor * divisor;
    out.push_back(std::max(least, std::min(most, wanted / divisor * divisor)));
  }
  return out;
}

}  // namespace

void check_skeletons(const TileProgram& program, const ReportRule& report, const ReportRule& note) {
  SteeredByValues steered(note);
  for (const Phase& phase : program.phases)
    if (steered.check(phase.body)) return;
  std::set<std::pair<const Statement*, std::string>> seen;
  for (const int64_t wanted : {int64_t{0}, kRagged, kLarge})
    for (const BrokenRule& broken : run_skeleton(program, sizes_near(program, wanted)))
      if (seen.emplace(broken.statement, broken.rule).second)
        report(broken.statement, broken.rule.c_str(), broken.message);
}

}  // namespace braze
