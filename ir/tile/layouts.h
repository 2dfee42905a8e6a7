// layouts.h — the layouts of the tiles of a pipelined program: section 7.3 of docs/ir/languages.md.
// Some types give their layout. All other layouts are derived from these.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/code/code.h"

namespace braze {

/// The layouts of all values of one program, found in one walk over its statements.
class TileLayouts {
 public:
  /// Receives the faults of layouts, which break rule P5.
  using Report = std::function<void(const Statement&, const std::string&)>;
  explicit TileLayouts(const TileProgram& program, Report report = nullptr);

  /// The layout of a value. Scalars and tiles of one element have axes without digits.
  const Layout& operator[](ValueId value) const { return layouts_[value.index]; }

 private:
  void walk(const Region& region);
  void infer(const Statement& s);
  void infer_row(const RowOp& op, const Statement& s);
  void infer_loop(const ForOp& op, const Statement& s);
  void infer_branch(const IfOp& op, const Statement& s);
  Layout written(const Statement& s);
  static Layout folded(Layout layout, const std::vector<int64_t>& axes);
  Layout sliced(const Layout& from, const ValueType& to, const Statement& s);
  void expect(bool holds, const Statement& s, const std::string& message) const;
  void expect_same_threads(const Layout& a, const Layout& b, const Statement& s);
  const Layout& of(const ValueOperand& operand) const { return layouts_[operand.value.index]; }
  void set(ValueId value, Layout layout) { layouts_[value.index] = std::move(layout); }

  const TileProgram& program_;
  const Report report_;
  std::vector<Layout> layouts_;
};

}  // namespace braze
