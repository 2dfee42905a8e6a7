// statements.h — the rows of statements.def, and the parts of which they are made.
//
// `visit_parts(op, visitor)` calls `visitor(parts...)` with the parts of the statement's row,
// which refer to its members. A visitor is a function that overloads on the types of parts:
// the printer, the reader, the checks, and `LeafVisitor` below, which sees only what a statement
// reads.
#pragma once

#include <tuple>
#include <type_traits>

#include "ir/code/code.h"

namespace braze {

/// The programs that can contain a statement, as bits.
struct Level {
  enum Bits : uint8_t {
    PlainTile = 1,
    Pipelined = 2,
    Cpu = 4,
    Gpu = 8,
    Tile = 3,
    Kernel = 12,
    Any = 15
  };
};

enum class ResultTypes : uint8_t { None, Written, Known, Names };
enum class Effect : uint8_t { Pure, Acts };

struct StatementInfo {
  std::string_view keywords;
  uint8_t levels;
  ResultTypes results;
  Effect effect;
};

/// What a statement does to a memory object.
enum class MemoryUse : uint8_t { Reads, Writes, Updates };

// --- Parts --------------------------------------------------------------------------------------
//
// Each part says how it is printed and read by the visitors of print.cpp and parse.cpp, and which
// leaves it has: the parts that a statement reads when it runs.

namespace parts {

/// Stands for the result of the statement.
struct TheResult {};
inline constexpr TheResult kResult;

/// "%memory", "%memory[1, 2]", "%memory@rank[1]": a memory object, and perhaps a place in it.
template <class M, class At, class Rank>
struct Access {
  MemoryUse use;
  M& memory;
  At& at;
  Rank& rank;
  void print(auto& out) const { out.access(memory, at, rank); }
  void read(auto& in) const { in.access(memory, at, rank); }
  void leaves(auto& visit) const {
    visit.memory(memory, use);
    visit(at, rank);
  }
};
inline constexpr std::nullptr_t kNone = nullptr;
auto access(MemoryUse use, auto& memory) { return Access{use, memory, kNone, kNone}; }
auto access(MemoryUse use, auto& memory, auto& at) { return Access{use, memory, at, kNone}; }
auto access(MemoryUse use, auto& memory, auto& at, auto& rank) {
  return Access{use, memory, at, rank};
}
auto reads(auto&... place) { return access(MemoryUse::Reads, place...); }
auto writes(auto&... place) { return access(MemoryUse::Writes, place...); }
auto updates(auto&... place) { return access(MemoryUse::Updates, place...); }

/// A value or literal, or a list of them. Literals have the dtype of `source`: another operand, a
/// memory object or the result. A number of 64 bits holds a literal only.
template <class Operand, class Source>
struct Like {
  Operand& operand;
  Source& source;
  void print(auto& out) const { out.literal_or_value(operand, source); }
  void read(auto& in) const { in.literal_or_value(operand, source); }
  void leaves(auto& visit) const {
    if constexpr (!std::is_same_v<std::remove_const_t<Operand>, uint64_t>) visit(operand);
  }
};
/// Nothing in the text: position symbols that follow are those of the type of `source`.
template <class Source>
struct Over {
  Source& source;
  void print(auto&) const {}
  void read(auto& in) const { in.positions(source); }
};
/// Nothing but the keyword: which of the alternatives it is.
template <class Which>
struct Chosen {
  Which& which;
  void print(auto& out) const { out.keyword(static_cast<size_t>(which)); }
  void read(auto& in) const { which = static_cast<Which>(in.keyword()); }
};
template <class Bool>
struct Flag {
  std::string_view text;
  Bool& is;
  void print(auto& out) const {
    if (is) out(text);
  }
  void read(auto& in) const { is = in.accept(text); }
};
/// `text`, then the number or index expression, unless that is `absent`.
template <class Value>
struct Option {
  std::string_view text;
  Value& value;
  int64_t absent;
  void print(auto& out) const {
    if (!Expr(value).is_constant(absent)) out(text, " ", value);
  }
  void read(auto& in) const {
    if (in.accept(text)) in(value);
  }
  void leaves(auto& visit) const { visit(value); }
};
/// A part that only programs of these levels can have.
template <class Part>
struct Only {
  int levels;
  Part inner;
  void print(auto& out) const { out(inner); }
  void read(auto& in) const {
    if (in.level() & levels) in(inner);
  }
  void leaves(auto& visit) const { visit(inner); }
};
/// IF(condition, parts..): they are there if the condition holds, which can read earlier parts.
template <class Holds, class... Inner>
struct When {
  Holds holds;
  std::tuple<Inner...> inner;
  void visit(auto& visitor) const {
    if (holds()) std::apply(visitor, inner);
  }
  void print(auto& out) const { visit(out); }
  void read(auto& in) const { visit(in); }
  void leaves(auto& visitor) const { visit(visitor); }
};
template <class Holds, class... Inner>
auto when(Holds holds, Inner&&... inner) {
  return When<Holds, Inner...>{holds, {std::forward<Inner>(inner)...}};
}

/// A value or the name of a memory object: a tile, or all of the memory.
template <class Value, class M>
struct TileOrMemory {
  Value& value;
  M& memory;
  void print(auto& out) const { memory ? out(reads(memory)) : out(value); }
  void read(auto& in) const { in.at_memory() ? in(reads(memory)) : in(value); }
  void leaves(auto& visit) const { memory ? visit(reads(memory)) : visit(value); }
};
/// Further values, each after a comma.
template <class List>
struct MoreValues {
  List& values;
  void print(auto& out) const {
    for (auto& value : values) out(", ", value);
  }
  void read(auto& in) const {
    while (in.accept(",")) in(values.emplace_back());
  }
  void leaves(auto& visit) const { visit(values); }
};
/// "(condition)" or "%flag".
template <class C, class Value>
struct ConditionOrFlag {
  C& condition;
  Value& flag;
  void print(auto& out) const { flag ? out(flag) : out(condition); }
  void read(auto& in) const { in.at("(") ? in(condition) : in(flag); }
  void leaves(auto& visit) const { flag ? visit(flag) : visit(condition); }
};
template <class C>
struct MaybeCondition {
  C& condition;
  void print(auto& out) const {
    if (!condition.empty()) out(" ", condition);
  }
  void read(auto& in) const {
    if (in.at("(")) in(condition);
  }
  void leaves(auto& visit) const { visit(condition); }
};
/// "1, 2": integers if all are; else index expressions over symbols that count as constants.
template <class Numbers, class Exprs>
struct Constants {
  Numbers& numbers;
  Exprs& exprs;
  void print(auto& out) const { exprs.empty() ? out.list(numbers) : out.list(exprs); }
  void read(auto& in) const { in.constants(numbers, exprs); }
  void leaves(auto& visit) const { visit(exprs); }
};
/// "(offsets)", of which there is at least one.
template <class Exprs>
struct Offsets {
  Exprs& exprs;
  void print(auto& out) const {
    out("(");
    out.list(exprs);
    out(")");
  }
  void read(auto& in) const {
    in("(");
    do in(exprs.emplace_back());
    while (in.accept(","));
    in(")");
  }
  void leaves(auto& visit) const { visit(exprs); }
};
template <class Item>
struct MaybeItem {
  Item& item;
  void print(auto& out) const {
    if (item) out("[", *item, "]");
  }
  void read(auto& in) const {
    if (in.at("[")) in("[", item.emplace(), "]");
  }
  void leaves(auto& visit) const { visit(item); }
};
/// "(axis)".
template <class Number>
struct Axis {
  Number& axis;
  void print(auto& out) const { out("(", axis, ")"); }
  void read(auto& in) const { axis = in.one_axis(); }
};
/// The contracted axes of the operands of a dot.
template <class Number>
struct Contract {
  Number &a, &b;
  void print(auto& out) const {
    if (a != 1 || b != 0) out(" contract(", a, ", ", b, ")");
  }
  void read(auto& in) const {
    if (in.accept("contract")) in.two_axes(a, b);
  }
};
/// A number of copies of a role, or of warps of one.
template <class Number>
struct Few {
  Number& number;
  std::string_view what;
  void print(auto& out) const { out(number); }
  void read(auto& in) const { number = in.few(what); }
};
/// A number of operations that may still be under way.
template <class Number>
struct InFlight {
  Number& count;
  void print(auto& out) const { out(count); }
  void read(auto& in) const { count = in.in_flight(); }
};

/// The name of a symbol. It is visible in the body, or after a statement without a body.
template <class Name>
struct NewSymbol {
  Name& name;
  void print(auto& out) const { out(std::string_view(name)); }
  void read(auto& in) const { in.new_symbol(name); }
};
template <class Name>
struct RoleName {
  Name& name;
  void print(auto& out) const { out(std::string_view(name)); }
  void read(auto& in) const { name = in.role_name(); }
};
/// "(symbol: copies)" of a role, unless there is one copy without a symbol.
template <class Name, class Number>
struct RoleCopies {
  Name& symbol;
  Number& copies;
  void print(auto& out) const {
    if (!symbol.empty()) out("(", NewSymbol{symbol}, ": ", copies, ")");
  }
  void read(auto& in) const {
    if (in.accept("(")) in(NewSymbol{symbol}, ": ", Few{copies, "number of a role's copies"}, ")");
  }
};
/// The declaration of a memory object, a channel or a token.
template <class Id>
struct Declares {
  Id& id;
  void print(auto& out) const { out.declaration(id); }
  void read(auto& in) const { in.declaration(id); }
};
/// The values that a loop carries: " carry(%inside = %first)".
template <class List>
struct Carry {
  List& list;
  void print(auto& out) const { out.carry(list); }
  void read(auto& in) const { in.carry(list); }
  void leaves(auto& visit) const {
    for (auto& [inside, first] : list) visit(first);
  }
};
/// " { .. }". The statement `ending` gives the values that leave the region; "": no values leave.
template <class R>
struct Body {
  R& region;
  std::string_view ending;
  void print(auto& out) const { out.body(*region, ending); }
  void read(auto& in) const { region = in.body(ending); }
  void leaves(auto& visit) const { visit.region(*region); }
};
template <class R>
struct ElseBody {
  Body<R> body;
  void print(auto& out) const {
    if (body.region) out(" else", body);
  }
  void read(auto& in) const {
    if (in.accept("else")) in(body);
  }
  void leaves(auto& visit) const {
    if (body.region) visit(body);
  }
};

#define IF(condition, ...) when([&] { return condition; }, __VA_ARGS__)

template <class Op>
struct Declaration;
#define STATEMENT(Op, keywords, levels, results, effect, ...)                             \
  template <>                                                                             \
  struct Declaration<Op> {                                                                \
    static constexpr StatementInfo kInfo{keywords, Level::levels, ResultTypes::results,   \
                                         Effect::effect};                                 \
    static void visit([[maybe_unused]] auto& op, auto& visitor) { visitor(__VA_ARGS__); } \
  };
#include "ir/code/statements.def"
#undef STATEMENT
#undef IF

}  // namespace parts

template <class Op>
inline constexpr const StatementInfo& kInfoOf = parts::Declaration<std::remove_const_t<Op>>::kInfo;

inline const StatementInfo& info(const Statement& s) {
  return std::visit([]<class Op>(const Op&) -> const StatementInfo& { return kInfoOf<Op>; }, s.op);
}

template <class Op>
void visit_parts(Op& op, auto& visitor) {
  parts::Declaration<std::remove_const_t<Op>>::visit(op, visitor);
}

/// Calls value(ValueOperand or ValueId), index(Expr), memory(MemoryId, MemoryUse) and
/// region(Region) of `Derived` for what a statement reads. Functions that are missing there do
/// nothing.
template <class Derived>
class LeafVisitor {
 public:
  void operator()(auto&&... parts) { (leaf(parts), ...); }
  void value(auto&) {}
  void index(auto&) {}
  void memory(auto&, MemoryUse) {}
  void region(auto&) {}

 protected:
  Derived& derived() { return static_cast<Derived&>(*this); }
  template <class Part>
  void leaf(Part& part) {
    using P = std::remove_const_t<Part>;
    if constexpr (std::is_same_v<P, ValueOperand> || std::is_same_v<P, ValueId>) {
      derived().value(part);
    } else if constexpr (std::is_same_v<P, Expr>) {
      derived().index(part);
    } else if constexpr (std::is_same_v<P, std::optional<Expr>>) {
      if (part) derived().index(*part);
    } else if constexpr (std::is_same_v<P, std::vector<Expr>> ||
                         std::is_same_v<P, std::vector<ValueOperand>> ||
                         std::is_same_v<P, std::vector<InstructionOperand>>) {
      for (auto& element : part) leaf(element);
    } else if constexpr (std::is_same_v<P, Condition>) {
      for (auto& c : part) derived()(c.left, c.right);
    } else if constexpr (std::is_same_v<P, Guard>) {
      leaf(part.condition);
      if (part.mask) derived().value(part.mask);
    } else if constexpr (std::is_same_v<P, InstructionOperand>) {
      std::visit([&](auto& operand) { leaf(operand); }, part);
    } else if constexpr (std::is_same_v<P, Place>) {
      derived().memory(part.memory, MemoryUse::Updates);
      derived()(part.at, part.rank);
    } else if constexpr (std::is_same_v<P, MapPlace>) {
      leaf(part.at);
    } else if constexpr (requires { part.leaves(derived()); }) {
      part.leaves(derived());
    }
  }
};

}  // namespace braze
