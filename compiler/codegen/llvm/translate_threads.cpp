// translate_threads.cpp — loads and stores of one GPU thread, its instructions, and its roles.
//
// A thread branches around elements that its guard excludes. Elements with one guard share the
// branch.
#include <llvm/IR/Constants.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>
#include <cctype>

#include "compiler/codegen/llvm/translator_p.h"
#include "ir/kernel/gpu_rules.h"
#include "ir/support/text.h"
#include "ir/target/occupancy.h"

namespace braze::codegen {

namespace {

// "$1" or "{$1, $2}", for the registers from `first` on.
std::string word_list(size_t first, size_t words) {
  std::string out;
  for (size_t i = 0; i < words; ++i) out += fmt::format("{}${}", i ? ", " : "", first + i);
  return words == 1 ? out : "{" + out + "}";
}

std::string vector_suffix(size_t words) {
  return words == 1 ? ".b32" : fmt::format(".v{}.b32", words);
}

// Appends a text with the same results. Its inputs become further inputs.
void append(AsmText& whole, const AsmText& next) {
  if (whole.text.empty()) return static_cast<void>(whole = next);
  const size_t results = whole.results.size(), more = whole.inputs.size();
  whole.text += "\n\t";
  for (size_t i = 0; i < next.text.size();) {
    whole.text += next.text[i];
    if (next.text[i++] != '$') continue;
    size_t hole = 0;
    for (; i < next.text.size() && std::isdigit(static_cast<unsigned char>(next.text[i])); ++i)
      hole = 10 * hole + static_cast<size_t>(next.text[i] - '0');
    whole.text += std::to_string(hole < results ? hole : hole + more);
  }
  whole.inputs += next.inputs;
  whole.ties.insert(whole.ties.end(), next.ties.begin(), next.ties.end());
}

}  // namespace

// --- Accesses ------------------------------------------------------------------------------------

// All addresses and conditions of an access, so that its instructions are close together. Equal
// conditions are one value.
std::vector<Translator::Piece> Translator::pieces(Access& access, bool is_load) {
  const ValueType& type = access.type;
  const auto stride = lane_stride(access);
  const bool lanes_differ = (access.mask && type_of(access.mask).lanes > 1) ||
                            std::any_of(access.parts.begin(), access.parts.end(),
                                        [](const Access::Part& part) { return part.by_lane; });
  const bool one_scalar = type.lanes > 1 && stride == 0 && is_load && !lanes_differ;
  const bool whole = one_scalar || (stride == 1 && !lanes_differ);
  const auto bytes = static_cast<int64_t>(size_of(type.dtype)) * type.lanes;
  const bool at_edges = stride == 1 && lanes_differ && type.lanes > 1 && access.align >= bytes;
  std::map<std::vector<Value*>, Value*> conditions;
  const auto never = [](Value* term) {
    const auto* known = llvm::dyn_cast<llvm::ConstantInt>(term);
    return known && known->isZero();
  };
  const auto all_of = [&](const std::vector<Value*>& terms) -> Value* {
    if (const auto found = std::ranges::find_if(terms, never); found != terms.end()) return *found;
    Value*& condition = conditions[terms];
    if (!condition && !terms.empty()) condition = b_.CreateAnd(terms);
    return condition;
  };
  std::vector<Piece> out;
  for (int64_t i = 0; i < type.count(); ++i) {
    Value* indices = gathered_index(access, i);
    std::vector<Piece> lanes;
    std::vector<Value*> terms;  // of the guards of all lanes
    bool alike = true;
    for (int32_t l = 0; l < (whole ? 1 : type.lanes); ++l) {
      const auto own = guard_terms(access, i, l);
      alike = alike && (l == 0 || all_of(own) == lanes.back().condition);
      for (Value* term : own)
        if (std::find(terms.begin(), terms.end(), term) == terms.end()) terms.push_back(term);
      Value* at = indices ? address_of(access.memory, lane_of(indices, type.lanes, l))
                          : address(access, i, l);
      lanes.push_back({at, all_of(own), i, l, whole && !one_scalar ? type.lanes : 1});
    }
    if (type.lanes > 1 && !whole && !indices && !access.rank) place_lanes(access, lanes);
    if (at_edges) {
      Piece vector{lanes[0].at, all_of(terms), i, 0, type.lanes};
      if (!alike) vector.apart = std::move(lanes);
      out.push_back(std::move(vector));
    } else {
      out.insert(out.end(), lanes.begin(), lanes.end());
    }
  }
  return out;
}

// Lanes of a gather may still be neighbours in memory, in pairs or in reverse order. LLVM finds out
// which of them one instruction can load if their addresses are written as distances from a common
// one, and if it knows where a lane is aligned better than all of them are.
void Translator::place_lanes(const Access& access, std::vector<Piece>& lanes) {
  std::unordered_map<std::string, Expr> position;
  const auto at = unflatten(lanes[0].element, access.type.extents);
  for (size_t d = 0; d < at.size(); ++d) position.emplace("e" + std::to_string(d), Expr(at[d]));
  const auto bytes = static_cast<int64_t>(size_of(access.type.dtype));
  const int64_t known = kernel_[access.memory].align;
  Expr first;
  for (Piece& piece : lanes) {
    const Expr place = access.at.substitute(position).substitute("lane", Expr(piece.lane));
    if (piece.lane == 0) first = place;
    if (const auto distance = (place - first).as_constant(); distance && *distance != 0)
      piece.at = b_.CreateGEP(memory_type(context_, kernel_[access.memory].dtype, 1), lanes[0].at,
                              i64(*distance));
    else if (distance)
      piece.at = lanes[0].at;
    piece.align = std::max(known & -known, bytes);
    while (piece.align > bytes && !place.is_multiple_of(piece.align / bytes)) piece.align /= 2;
  }
}

// What must hold for a lane of an element.
std::vector<Value*> Translator::guard_terms(Access& access, int64_t i, int32_t lane) {
  std::vector<Value*> terms;
  const auto add = [&](Value* term) {
    auto* known = llvm::dyn_cast<llvm::ConstantInt>(term);
    if (!known || known->isZero()) terms.push_back(term);
  };
  Position position = position_of(access.type, i);
  position.lane = lane;
  for (Access::Part& part : access.parts) {
    if (!part.diff) {
      add(compare(part.comparison, position));
      continue;
    }
    const int64_t offset = part.diff->offset(position.at) + part.diff->lane * lane;
    if (part.diff->rest.range().min > -offset) continue;
    if (part.diff->rest.range().max <= -offset) return {b_.getFalse()};
    Value*& holds = part.holds[offset];
    if (!holds) holds = exceeds(part.rest, -offset);
    add(holds);
  }
  if (access.mask) add(lane_of(mask_element(access, i), type_of(access.mask).lanes, lane));
  return terms;
}

// Emits body(from, to) for each run of pieces with one condition, under a branch if they have a
// condition, and then joined(from, to, block before the branch, block at the end of its body). If
// only a part of a vector exists, apart(piece) is emitted before that join. For pieces that never
// exist, absent(from, to) is emitted instead.
template <class Body, class Absent, class Apart, class Joined>
void Translator::guarded(const std::vector<Piece>& pieces, const Body& body, const Absent& absent,
                         const Apart& apart, const Joined& joined) {
  for (size_t from = 0, to = 0; from < pieces.size(); from = to) {
    Value* condition = pieces[from].condition;
    const bool parts = !pieces[from].apart.empty();
    do ++to;
    while (!parts && to < pieces.size() && pieces[to].condition == condition &&
           pieces[to].apart.empty());
    if (!condition) {
      body(from, to);
      continue;
    }
    // No block is emitted for these pieces.
    if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition);
        known && known->isZero() && !parts) {
      absent(from, to);
      continue;
    }
    BasicBlock *before = b_.GetInsertBlock(), *inside = block("inside"), *after = block("after");
    BasicBlock* outside = parts ? block("outside") : after;
    b_.CreateCondBr(condition, inside, outside);
    b_.SetInsertPoint(inside);
    body(from, to);
    BasicBlock* end = b_.GetInsertBlock();
    b_.CreateBr(after);
    if (parts) {
      b_.SetInsertPoint(outside);
      apart(from);
      before = b_.GetInsertBlock();
      b_.CreateBr(after);
    }
    b_.SetInsertPoint(after);
    joined(from, to, before, end);
  }
}

std::vector<Value*> Translator::load_elements(const LoadOp& op, const ValueType& type) {
  Access access = make_access(op, type);
  const std::vector<Piece> parts = pieces(access, /*is_load=*/true);
  const std::vector<Value*> loaded = load_pieces(access, parts, op.fill);
  std::vector<Value*> out(static_cast<size_t>(type.count()));
  for (size_t p = 0; p < parts.size(); ++p) {
    Value*& element = out[static_cast<size_t>(parts[p].element)];
    Value* value = from_memory(loaded[p], type.dtype);
    if (parts[p].lanes == type.lanes) {
      element = value;
    } else if (p + 1 == parts.size() || parts[p + 1].element != parts[p].element) {
      element = parts[p].lane == 0 ? splat(value, type.lanes)
                                   : with_lane(element, type.lanes, parts[p].lane, value);
    } else {
      if (!element) element = llvm::PoisonValue::get(register_type(type));
      element = with_lane(element, type.lanes, parts[p].lane, value);
    }
  }
  return out;
}

// The value that each piece moves, in the form that it has in memory; `fill` if its condition does
// not hold.
std::vector<Value*> Translator::load_pieces(const Access& access, const std::vector<Piece>& parts,
                                            uint64_t fill) {
  const DType dtype = access.type.dtype;
  std::vector<Value*> loaded(parts.size()), others(parts.size());
  const auto body = [&](size_t from, size_t to) {
    for (size_t p = from; p < to; ++p) {
      others[p] = memory_literal(dtype, fill, parts[p].lanes);
      loaded[p] = load_piece(access, parts[p]);
    }
  };
  const auto absent = [&](size_t from, size_t to) {
    for (size_t p = from; p < to; ++p) loaded[p] = memory_literal(dtype, fill, parts[p].lanes);
  };
  const auto apart = [&](size_t p) {
    const std::vector<Value*> lanes = load_pieces(access, parts[p].apart, fill);
    others[p] = llvm::PoisonValue::get(memory_type(context_, dtype, parts[p].lanes));
    for (size_t l = 0; l < lanes.size(); ++l)
      others[p] = b_.CreateInsertElement(others[p], lanes[l], l);
  };
  guarded(parts, body, absent, apart,
          [&](size_t from, size_t to, BasicBlock* before, BasicBlock* end) {
            for (size_t p = from; p < to; ++p) {
              auto* phi = b_.CreatePHI(loaded[p]->getType(), 2);
              phi->addIncoming(others[p], before);
              phi->addIncoming(loaded[p], end);
              loaded[p] = phi;
            }
          });
  return loaded;
}

// The number of words of an access whose data is used once, so that it should not push other data
// out of the caches. LLVM cannot express this, so inline assembly does. 0 for an ordinary access.
size_t Translator::streamed_words(const Access& access, const Piece& piece) const {
  const bool on_device = is_device_memory(kernel_[access.memory]);
  const auto bytes = static_cast<int64_t>(size_of(access.type.dtype)) * piece.lanes;
  const bool one_instruction =
      (bytes == 4 || bytes == 8 || bytes == 16) && (bytes == 4 || access.align >= bytes);
  return access.cache == CacheHint::Stream && on_device && one_instruction
             ? static_cast<size_t>(bytes / 4)
             : 0;
}

llvm::Type* Translator::words_type(size_t words) {
  return shaped(b_.getInt32Ty(), static_cast<int32_t>(words));
}

Value* Translator::load_streamed(const Piece& piece, DType dtype, size_t words) {
  AsmText text;
  text.text = fmt::format("ld.global.nc.L1::no_allocate{} {}, [${}];", vector_suffix(words),
                          word_list(0, words), words);
  text.results = std::string(words, 'r');
  text.inputs = "l";
  text.ties = {-1};
  text.effects = false;
  const auto parts = inline_asm(text, {b_.CreatePtrToInt(piece.at, b_.getInt64Ty())});
  Value* value = words == 1 ? parts[0] : llvm::PoisonValue::get(words_type(words));
  for (size_t i = 0; words > 1 && i < words; ++i)
    value = b_.CreateInsertElement(value, parts[i], i);
  return b_.CreateBitCast(value, memory_type(context_, dtype, piece.lanes));
}

void Translator::store_streamed(const Piece& piece, Value* value, size_t words) {
  AsmText text;
  text.text = fmt::format("st.global.cs{} [$0], {};", vector_suffix(words), word_list(1, words));
  text.inputs = "l" + std::string(words, 'r');
  text.ties.assign(1 + words, -1);
  Value* parts = b_.CreateBitCast(value, words_type(words));
  std::vector<Value*> inputs = {b_.CreatePtrToInt(piece.at, b_.getInt64Ty())};
  for (size_t i = 0; i < words; ++i)
    inputs.push_back(words == 1 ? parts : b_.CreateExtractElement(parts, i));
  inline_asm(text, inputs);
}

Value* Translator::load_piece(const Access& access, const Piece& piece) {
  const DType dtype = access.type.dtype;
  if (const size_t words = streamed_words(access, piece); words && is_constant(access.memory))
    return load_streamed(piece, dtype, words);
  const bool whole = piece.lanes == access.type.lanes;
  const llvm::Align own(std::max<int64_t>(piece.align, static_cast<int64_t>(size_of(dtype))));
  auto* load = b_.CreateAlignedLoad(memory_type(context_, dtype, piece.lanes), piece.at,
                                    whole ? alignment(access) : own);
  annotate(load, access.memory);
  return load;
}

void Translator::store_elements(Access& access, const ValueOperand& operand) {
  const std::vector<Value*> values = elements_of(operand, access.type);
  store_pieces(access, pieces(access, /*is_load=*/false), values);
}

void Translator::store_pieces(const Access& access, const std::vector<Piece>& parts,
                              const std::vector<Value*>& values) {
  const ValueType& type = access.type;
  const auto body = [&](size_t from, size_t to) {
    for (size_t p = from; p < to; ++p) {
      const bool whole = parts[p].lanes == type.lanes;
      Value* value = values[static_cast<size_t>(parts[p].element)];
      if (!whole) value = lane_of(value, type.lanes, parts[p].lane);
      value = to_memory(value, type.dtype, parts[p].lanes);
      if (const size_t words = streamed_words(access, parts[p])) {
        store_streamed(parts[p], value, words);
        continue;
      }
      auto* store = b_.CreateAlignedStore(value, parts[p].at,
                                          whole ? alignment(access) : element_alignment(access));
      annotate(store, access.memory);
    }
  };
  const auto apart = [&](size_t p) { store_pieces(access, parts[p].apart, values); };
  const auto absent = [](size_t, size_t) {};
  guarded(parts, body, absent, apart, [](size_t, size_t, BasicBlock*, BasicBlock*) {});
}

// --- Instructions --------------------------------------------------------------------------------

// The same place in the shared memory of the block with that rank.
Value* Translator::of_block(Value* pointer, const Expr& rank, const Position& position) {
  Value* number = fit(index(rank, position), b_.getInt32Ty());
  return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_mapa_shared_cluster, {pointer, number});
}

void Translator::emit_instruction(const InstructionOp& op, const Statement& s) {
  if (info(op.instruction).result == InstructionResult::First) return emit_by_element(op, s);
  Registers inputs;
  const std::string_view letters = info(op.instruction).operands;
  for (size_t i = 0; i < op.operands.size(); ++i)
    add_operand(letters[std::min(i, letters.size() - 1)], op.operands[i], inputs, s);
  std::vector<AsmOperand> results;
  for (ValueId id : s.results)
    results.push_back({static_cast<size_t>(type_of(id).count()), letter_of(type_of(id), s)});
  const AsmText text = asm_text(op, inputs.operands, results);
  const std::vector<Value*> out = inline_asm(text, inputs.values);
  size_t next = 0;
  for (ValueId id : s.results) {
    std::vector<Value*> elements;
    for (int64_t i = 0; i < type_of(id).count(); ++i)
      elements.push_back(from_register(out[next++], type_of(id)));
    bind(id, std::move(elements));
  }
}

// The number of statements, from the first on, that are products of one chain: each adds to the
// accumulator of the one before it. 1 if the first is no such product. A chain is one piece of
// assembly. If each product were its own, LLVM would take apart and put together all registers of
// the accumulator between two of them, which took more time than the rest of a kernel.
size_t Translator::chain_length(std::span<const Statement> statements) {
  const auto product = [](const Statement& s) {
    const auto* op = s.as<InstructionOp>();
    return op && is_wgmma(op->instruction) ? op : nullptr;
  };
  if (!product(statements[0])) return 1;
  size_t length = 1;
  for (; length < statements.size(); ++length) {
    const InstructionOp* next = product(statements[length]);
    if (!next) break;
    const auto* sum = std::get_if<ValueOperand>(&next->operands[2]);
    if (!sum || sum->is_literal() || sum->value != statements[length - 1].results[0]) break;
  }
  return length;
}

void Translator::emit_chain(std::span<const Statement> chain) {
  statement_ = &chain[0];
  locate(chain[0]);
  const ValueType& type = type_of(chain[0].results[0]);
  const std::vector<AsmOperand> result = {
      {static_cast<size_t>(type.count()), letter_of(type, chain[0])}};
  AsmText whole;
  std::vector<Value*> values;
  for (const Statement& s : chain) {
    const auto& op = *s.as<InstructionOp>();
    const std::string_view letters = info(op.instruction).operands;
    Registers inputs;
    const bool continues = &s != &chain[0];
    for (size_t i = 0; i < op.operands.size(); ++i) {
      // The accumulator stays in the registers of the results, which the text names.
      if (continues && i == 2)
        inputs.add({.letter = result[0].letter}, {});
      else
        add_operand(letters[i], op.operands[i], inputs, s);
    }
    append(whole, asm_text(op, inputs.operands, result));
    values.insert(values.end(), inputs.values.begin(), inputs.values.end());
  }
  const std::vector<Value*> out = inline_asm(whole, values);
  std::vector<Value*> elements;
  for (Value* element : out) elements.push_back(from_register(element, type));
  for (const Statement& s : chain) bind(s.results[0], elements);
}

// A shuffle moves one register, so each element of an array has its own shuffle.
void Translator::emit_by_element(const InstructionOp& op, const Statement& s) {
  const auto& value = std::get<ValueOperand>(op.operands[0]);
  const ValueType& type = type_of(s.results[0]);
  const char letter = letter_of(type, s);
  const std::string_view letters = info(op.instruction).operands;
  std::vector<Value*> moved;
  for (Value* element : elements_of(value, type)) {
    Registers inputs;
    inputs.add({.letter = letter}, {element});
    for (size_t i = 1; i < op.operands.size(); ++i)
      add_operand(letters[i], op.operands[i], inputs, s);
    const AsmText text = asm_text(op, inputs.operands, {{1, letter}});
    moved.push_back(from_register(inline_asm(text, inputs.values)[0], type));
  }
  bind(s.results[0], std::move(moved));
}

char Translator::letter_of(const ValueType& type, const Statement& s) const {
  const auto letter = register_letter(type);
  if (!letter) not_kernel_ir(kernel_, s, "no instruction can take " + type.to_string());
  return *letter;
}

void Translator::add_operand(char letter, const InstructionOperand& operand, Registers& out,
                             const Statement& s) {
  const Position nowhere{};
  const auto small = [&](const Expr& e) { return fit(index(e), b_.getInt32Ty()); };
  if (const auto* e = std::get_if<Expr>(&operand)) {
    out.add({.constant = e->as_constant()},
            letter == '#' ? std::vector<Value*>{} : std::vector<Value*>{small(*e)});
  } else if (const auto* value = std::get_if<ValueOperand>(&operand)) {
    const ValueType type =
        value->is_literal() ? ValueType{value->dtype, 1, {}} : type_of(value->value);
    out.add({.letter = letter_of(type, s)}, elements_of(*value, type));
  } else if (const auto* map = std::get_if<MapPlace>(&operand)) {
    std::vector<Value*> registers = {
        b_.CreatePtrToInt(phase_.maps[map->map.index], b_.getInt64Ty())};
    for (const Expr& x : map->at) registers.push_back(small(x));
    out.add({}, std::move(registers));
  } else {
    const auto& place = std::get<Place>(operand);
    if (place.matrix) return out.add({.matrix = place.matrix}, {descriptor(place)});
    const auto [begin, behind] = addressed(letter, place, kernel_[place.memory].dtype);
    Value* at = address_of(place.memory, index(begin));
    std::vector<Value*> registers = {
        b_.CreatePtrToInt(at, letter == 'P' ? b_.getInt64Ty() : b_.getInt32Ty())};
    if (place.rank) registers.push_back(small(*place.rank));
    out.add({.has_rank = place.rank.has_value(), .behind = behind}, std::move(registers));
  }
}

// The descriptor of a matrix in shared memory, whose address is in units of 16 bytes. All constant
// parts of the address become one addition.
Value* Translator::descriptor(const Place& place) {
  const MatrixLayout& layout = *place.matrix;
  const Memory& memory = kernel_[place.memory];
  const Expr bytes = place.at * Expr(static_cast<int64_t>(size_of(memory.dtype)));
  BRAZE_CHECK(bytes.is_multiple_of(16), "a matrix operand must begin at a multiple of 16 bytes");
  Value* address = b_.CreatePtrToInt(phase_.pointers[place.memory.index], b_.getInt32Ty());
  Value* base = b_.CreateLShr(b_.CreateAnd(address, kDescriptorAddress), 4);
  Value* at =
      fit(index(floordiv(bytes, Expr(16)) + Expr(layout.leading / 16 << 16)), b_.getInt32Ty());
  Value* low = b_.CreateZExt(b_.CreateAdd(base, at), b_.getInt64Ty());
  return b_.CreateOr(low, b_.getInt64(uint64_t{descriptor_high(layout)} << 32));
}

llvm::Type* Translator::asm_type(char letter) {
  switch (letter) {
    case 'f':
      return b_.getFloatTy();
    case 'd':
      return b_.getDoubleTy();
    case 'l':
      return b_.getInt64Ty();
    default:
      return b_.getInt32Ty();
  }
}

// Pairs of 16 bits are one register, and bool is 0 or 1.
Value* Translator::to_register(Value* value, char letter) {
  if (value->getType()->isIntegerTy(1)) return b_.CreateZExt(value, b_.getInt32Ty());
  return b_.CreateBitCast(value, asm_type(letter));
}

Value* Translator::from_register(Value* value, const ValueType& type) {
  if (type.dtype == DType::Bool) return b_.CreateICmpNE(value, b_.getInt32(0));
  return b_.CreateBitCast(value, register_type(type));
}

std::vector<Value*> Translator::inline_asm(const AsmText& text, const std::vector<Value*>& inputs) {
  std::vector<llvm::Type*> results, types;
  std::vector<Value*> arguments;
  std::string constraints;
  const auto add = [&](const std::string& constraint) {
    constraints += (constraints.empty() ? "" : ",") + constraint;
  };
  for (char letter : text.results) {
    results.push_back(asm_type(letter));
    add(std::string("=") + letter);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    arguments.push_back(to_register(inputs[i], text.inputs[i]));
    types.push_back(arguments.back()->getType());
    add(text.ties[i] < 0 ? std::string(1, text.inputs[i]) : std::to_string(text.ties[i]));
  }
  if (text.effects) add("~{memory}");
  llvm::Type* result = results.empty()       ? b_.getVoidTy()
                       : results.size() == 1 ? results[0]
                                             : llvm::StructType::get(context_, results);
  auto* type = llvm::FunctionType::get(result, types, false);
  auto* call =
      b_.CreateCall(llvm::InlineAsm::get(type, text.text, constraints, text.effects), arguments);
  locate_assembly(*call);
  call->setDoesNotThrow();
  if (!text.effects) call->setDoesNotAccessMemory();
  if (text.converges) call->setConvergent();
  std::vector<Value*> out;
  for (unsigned i = 0; i < results.size(); ++i)
    out.push_back(results.size() == 1 ? call : b_.CreateExtractValue(call, i));
  return out;
}

// --- Roles ---------------------------------------------------------------------------------------

// Roles stand last in a phase, and each ends its threads. The number of the warp comes from a
// shuffle, so that the assembler knows that the branch is uniform.
void Translator::emit_role(const RoleOp& role) {
  prepare(*role.body);
  Value* warp = b_.CreateLShr(fit(symbols_.at("tid"), b_.getInt32Ty()), 5);
  const InstructionOp shuffle{Instruction::shfl_idx, {ValueOperand(), Expr(0)}, 0};
  const AsmText text = asm_text(shuffle, {{.registers = 1}, {.registers = 1}}, {{.registers = 1}});
  warp = inline_asm(text, {warp, b_.getInt32(0)})[0];
  Value* within =
      b_.CreateICmpULT(b_.CreateSub(warp, b_.getInt32(static_cast<uint32_t>(role.begin))),
                       b_.getInt32(static_cast<uint32_t>(role.end - role.begin)));
  BasicBlock *body = block(role.name.c_str()), *next = block("next");
  b_.CreateCondBr(within, body, next);
  b_.SetInsertPoint(body);
  set_registers(role.registers);
  symbols_["rtid"] = b_.CreateSub(fit(symbols_.at("tid"), b_.getInt32Ty()),
                                  b_.getInt32(static_cast<uint32_t>(32 * role.begin)));
  run_region(*role.body);
  b_.CreateRetVoid();
  b_.SetInsertPoint(next);
}

// Changes the number of registers that a thread has from here on. 0: it keeps that of the launch.
void Translator::set_registers(int64_t registers) {
  if (registers == 0) return;
  const int64_t at_launch =
      code_->registers > 0 ? code_->registers : launch_registers(code_->block);
  if (registers == at_launch) return;
  const auto id = registers < at_launch ? llvm::Intrinsic::nvvm_setmaxnreg_dec_sync_aligned_u32
                                        : llvm::Intrinsic::nvvm_setmaxnreg_inc_sync_aligned_u32;
  b_.CreateIntrinsic(id, {b_.getInt32(static_cast<uint32_t>(registers))});
}

}  // namespace braze::codegen
