// walk.h — finds what a statement reads: its operands and index expressions, without those of
// nested regions.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "ir/code/code.h"

namespace braze {

/// Calls `visit` for every value operand, but not for literals.
void for_each_value(const Statement& statement, const std::function<void(ValueId)>& visit);
/// Calls `visit` for every operand that may be replaced.
void for_each_operand(Statement& statement, const std::function<void(ValueOperand&)>& visit);
/// Calls `visit` for every value that is read, to replace it by another.
void for_each_value_id(Statement& statement, const std::function<void(ValueId&)>& visit);
/// Calls `visit` for every index expression: coordinates, conditions, bounds.
void for_each_expr(const Statement& statement, const std::function<void(const Expr&)>& visit);
/// The same, to replace them.
void for_each_expr(Statement& statement, const std::function<void(Expr&)>& visit);
/// Calls `visit` for every memory object that is read, written or viewed.
void for_each_memory(const Statement& statement, const std::function<void(MemoryId)>& visit);
/// The same, to replace them.
void for_each_memory(Statement& statement, const std::function<void(MemoryId&)>& visit);
/// The regions inside, in order.
std::vector<Region*> regions_of(Statement& statement);
std::vector<const Region*> regions_of(const Statement& statement);
/// Calls `visit` for every statement of a region and of the regions in it, outer ones first.
void for_each_statement(const Region& region, const std::function<void(const Statement&)>& visit);
/// The symbols of the loops and lets in a region.
std::set<std::string> symbols_of(const Region& region);
/// Whether the statement does anything else than make its results.
bool has_effect(const Statement& statement);

}  // namespace braze
