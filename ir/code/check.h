// check.h — checks the rules that Tile IR and Kernel IR share. The checkers of both languages are
// derived from it.
//
// Findings carry the number of their rule in docs/ir/languages.md, sections 3.4 and 4.4.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "braze/error.h"
#include "ir/code/code.h"

namespace braze {

namespace codes {
inline constexpr Code kBrokenRule{"broken-rule", ErrorKind::InvalidArgument,
                                  "A tile program or kernel breaks a rule of its language."};
inline constexpr Code kUnprovenAccess{
    "unproven-access", ErrorKind::InvalidArgument,
    "An access without a mask is not proven to stay inside; the interpreter checks it."};
inline constexpr Code kRegisterBudget{"register-budget", ErrorKind::InvalidArgument,
                                      "A thread's values may take more registers than it has."};
}  // namespace codes

/// The finding that `statement` breaks the rule with this number. Null: the whole program does.
Diagnostic broken_rule(const KernelCode& code, const Statement* statement, const char* rule,
                       const std::string& message);

/// Walks a program and checks the common rules. Each language adds its own rules by the virtual
/// functions.
class CodeChecker {
 public:
  virtual ~CodeChecker() = default;
  CodeChecker(const CodeChecker&) = delete;
  CodeChecker& operator=(const CodeChecker&) = delete;

  void run();
  std::vector<Diagnostic> findings;
  std::vector<Diagnostic> notes;

 protected:
  /// The numbers of the common rules in one language; nullptr if the language does not have the
  /// rule.
  struct Rules {
    const char *names, *symbols, *index, *extents, *type, *positions, *operands, *literals, *places,
        *guards, *bounds, *axes, *loops, *level;
  };
  /// `level` is one of the bits of Level in statements.h, `letter` begins the position symbols.
  CodeChecker(const KernelCode& code, const Rules& rules, char letter, int level)
      : code_(code), rules_(rules), letter_(letter), level_(level) {}

  virtual void check_kernel() {}
  virtual void check_type(const ValueType& type) = 0;
  virtual void check_row(const RowOp&) {}
  /// Checks what only this language demands of a statement. Its level, and what its row in
  /// statements.def says of its parts, were checked before.
  virtual void check_own(const Statement& statement) = 0;
  virtual void check_access(MemoryId, const std::vector<Expr>&, const Guard&, const ValueType&,
                            bool /*store*/) {}
  virtual void check_alloc(const BufferOp&) {}
  virtual void leave_region(const Region&) {}
  virtual void note_loop(const ForOp&) {}

  /// Reports a finding at the current statement unless `holds`.
  void expect(bool holds, const char* rule, const std::string& message);
  const ValueType& type_of(ValueId id) const { return code_[id].type; }
  const ValueType& type_of(const ValueOperand& operand) const { return code_[operand.value].type; }
  const ValueType& result_type(size_t i = 0) const { return code_[statement_->results[i]].type; }
  void expect_type(const ValueType& expected);
  bool axis_of(int64_t axis, const ValueType& type);
  void use(ValueId value);
  void check_index(const Expr& e, const ValueType* positions);
  /// Checks the offsets, over symbols of static loops, at which `to` is a part of `from`.
  void check_offsets(const std::vector<Expr>& offsets, const ValueType& from, const ValueType& to);
  void check_condition(const Condition& condition, const ValueType* positions);
  void check_guard(const Guard& guard, const ValueType& type);
  void check_bounds(MemoryId memory, const std::vector<Expr>& at);
  /// Notes the name of an on-chip memory object, which is visible from here on.
  void declare(MemoryId memory);
  void check_visible(MemoryId memory);
  void check_carried(const std::vector<std::pair<ValueId, ValueOperand>>& carried,
                     const std::vector<ValueOperand>& yields);
  void check_region(const Region& region, const std::vector<ValueId>& defined,
                    const std::string* symbol, const Expr* range);
  void check_align(int64_t align, const char* rule, std::string_view what);

  const KernelCode& code_;
  const Rules& rules_;
  const char letter_;
  const int level_;
  const Statement* statement_ = nullptr;
  size_t phase_ = 0;
  size_t depth_ = 0;                            // depth of regions below the phase
  size_t branches_ = 0;                         // number of `if`s around
  std::unordered_map<std::string, Expr> lets_;  // their values over the other symbols

 private:
  class PartChecker;

  void check_symbols();
  void check_memories();
  void check_phase(size_t p);
  void check(const Statement& statement);
  bool check_level(const Statement& statement);
  bool check_parts(const Statement& statement);
  void check_common(const Statement& statement);
  void check_fold(const FoldOp& op);
  void check_view(const MovementOp& op);
  void check_row_types(const RowOp& op);
  void check_loop(const ForOp& op);
  bool check_loop_bounds(const ForOp& op);
  int64_t copies_of(const ForOp& op);
  void check_branch(const IfOp& op);
  void define(ValueId value);
  void define_symbol(const std::string& name);
  bool is_position(const std::string& name) const;

  std::unordered_set<std::string> names_;    // all %names so far
  std::unordered_set<std::string> sizes_;    // size symbols
  std::unordered_set<std::string> symbols_;  // visible
  std::unordered_set<std::string> statics_;  // symbols of the static loops around
  std::unordered_set<std::string> values_;   // visible, with %
  std::set<MemoryId> memories_;              // visible
  std::vector<SymbolBound> bounds_;          // of loop and grid symbols
  int64_t copies_ = 1;  // copies of a statement that the unrolled loops around it make
};

/// Whether an operand of the type `from` broadcasts to `to`: every extent of `from` is that of `to`
/// or 1, or `from` has no extents.
bool broadcasts(const ValueType& from, const ValueType& to);

}  // namespace braze
