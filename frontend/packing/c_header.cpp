#include "frontend/packing/c_header.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "ir/support/text.h"
#include "ir/support/words.h"
#include "runtime/package/package.h"

namespace braze {

namespace {

using fmt::format;

// The C type of an element, and the dtype's name in c.h.
struct CType {
  std::string_view element, name;
};
constexpr DTypeTable<CType> kCTypes = {
    {DType::Bool, {"bool", "BRAZE_BOOL"}},        {DType::I8, {"int8_t", "BRAZE_I8"}},
    {DType::U8, {"uint8_t", "BRAZE_U8"}},         {DType::I16, {"int16_t", "BRAZE_I16"}},
    {DType::U16, {"uint16_t", "BRAZE_U16"}},      {DType::I32, {"int32_t", "BRAZE_I32"}},
    {DType::U32, {"uint32_t", "BRAZE_U32"}},      {DType::I64, {"int64_t", "BRAZE_I64"}},
    {DType::U64, {"uint64_t", "BRAZE_U64"}},      {DType::F16, {"uint16_t", "BRAZE_F16"}},
    {DType::BF16, {"uint16_t", "BRAZE_BF16"}},    {DType::F32, {"float", "BRAZE_F32"}},
    {DType::F64, {"double", "BRAZE_F64"}},        {DType::F8E4M3, {"uint8_t", "BRAZE_F8E4M3"}},
    {DType::F8E5M2, {"uint8_t", "BRAZE_F8E5M2"}},
};

// Makes names that C allows. Within one scope each name is used once.
class Names {
 public:
  /// `taken` are names that the scope already has.
  explicit Names(std::set<std::string> taken) : used_(std::move(taken)) {}

  std::string add(std::string_view text) {
    std::string name;
    for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    // No reserved name ends in an underscore.
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) || is_reserved(name))
      name += '_';
    if (std::isdigit(static_cast<unsigned char>(name[0]))) name.insert(0, 1, '_');
    while (!used_.insert(name).second) name += '_';
    return name;
  }

 private:
  static bool is_reserved(std::string_view name) {
    constexpr std::string_view kWords[] = {
        "auto",      "bool",     "break",   "case",     "char",     "class",    "const",
        "continue",  "default",  "delete",  "do",       "double",   "else",     "enum",
        "extern",    "false",    "float",   "for",      "goto",     "if",       "inline",
        "int",       "long",     "new",     "private",  "public",   "register", "return",
        "short",     "signed",   "sizeof",  "static",   "struct",   "switch",   "template",
        "this",      "true",     "typedef", "union",    "unsigned", "using",    "virtual",
        "void",      "volatile", "while",   "operator", "restrict", "and",      "asm",
        "bitand",    "bitor",    "catch",   "compl",    "concept",  "export",   "friend",
        "namespace", "not",      "nullptr", "or",       "requires", "throw",    "try",
        "typename",  "xor",      "NULL"};
    return std::ranges::find(kWords, name) != std::end(kWords) || name.ends_with("_t") ||
           name.starts_with("braze_") || name.starts_with("BRAZE_");
  }
  std::set<std::string> used_;
};

using SymbolNames = std::map<std::string, std::string>;

std::string c_text(const Expr& e, const SymbolNames& names) {
  const auto operand = [&](size_t i) { return c_text(e.operands()[i], names); };
  const auto joined = [&](std::string_view separator) {
    return "(" + join(e.operands(), separator, [&](const Expr& o) { return c_text(o, names); }) +
           ")";
  };
  const auto folded = [&](std::string_view function) {
    std::string out = operand(0);
    for (size_t i = 1; i < e.operands().size(); ++i)
      out = format("{}({}, {})", function, out, operand(i));
    return out;
  };
  switch (e.kind()) {
    case Expr::Kind::Constant:
      return format("INT64_C({})", *e.as_constant());
    case Expr::Kind::Symbol:
      return names.at(e.symbol_name());
    case Expr::Kind::Sum:
      return joined(" + ");
    case Expr::Kind::Product:
      return joined(" * ");
    case Expr::Kind::FloorDiv:
      return folded("braze_floordiv");
    case Expr::Kind::Mod:
      return folded("braze_mod");
    case Expr::Kind::Min:
      return folded("braze_min");
    case Expr::Kind::Max:
      return folded("braze_max");
  }
  return "0";
}

struct Port {
  std::string name;
  TensorType type;
  std::string comment;
};

class FunctionWriter {
 public:
  FunctionWriter(const PackageReader::Function& function, const Program& program,
                 std::string c_name)
      : function_(function), program_(program), c_name_(std::move(c_name)) {
    for (const Expr& symbol : program.symbols)
      if (is_parameter(symbol)) symbols_[symbol.symbol_name()] = names_.add(symbol.symbol_name());
    for (size_t i = 0; i < program.inputs.size(); ++i)
      if (!is_weight(i))
        inputs_.push_back({names_.add(program.inputs[i].name), program.inputs[i].type, ""});
    const std::vector<std::string> names = output_names(program.outputs);
    for (size_t i = 0; i < names.size(); ++i) {
      const ProgramOutput& output = program.outputs[i];
      outputs_.push_back({names_.add(names[i]), output.type,
                          output.updates
                              ? ", written in place of " + program.inputs[*output.updates].name
                              : ", written"});
    }
  }

  std::string text() const {
    std::string out =
        format("\n/* Loads @{} on a device, \"cpu\" or \"cuda:0\". */\n", function_.name);
    out += format(
        "static inline braze_status {0}_load(const braze_package* package, const char* device,\n"
        "                                    braze_function** out) {{\n"
        "  return braze_function_load(package, \"{1}\", device, out);\n}}\n\n",
        c_name_, function_.name);
    return out + comment() + signature() + body();
  }

 private:
  bool is_weight(size_t input) const {
    return std::ranges::any_of(function_.weights,
                               [&](const WeightBinding& w) { return w.input == input; });
  }

  // Whether a size is a parameter of the C function. Sizes that occur only in weights are not.
  bool is_parameter(const Expr& symbol) const {
    for (size_t i = 0; i < program_.inputs.size(); ++i)
      for (const Expr& extent : program_.inputs[i].type.shape)
        if (!is_weight(i) && extent.uses(symbol.symbol_name())) return true;
    return false;
  }

  std::string comment() const {
    std::string out = format("/* One call of @{}; waits for the results.\n", function_.name);
    for (const Expr& symbol : program_.symbols) {
      const Interval range = symbol.range();
      const auto parameter = symbols_.find(symbol.symbol_name());
      out += format(" *   {}: from {} to {}{}{}\n",
                    parameter == symbols_.end() ? symbol.symbol_name() : parameter->second,
                    range.min, range.max,
                    symbol.divisor() > 1 ? format(", a multiple of {}", symbol.divisor()) : "",
                    parameter == symbols_.end() ? ", as the weights have it" : "");
    }
    for (const std::vector<Port>* const ports : {&inputs_, &outputs_})
      for (const Port& port : *ports)
        out += format(" *   {}: {}{}\n", port.name, port.type.to_string(), port.comment);
    return out + " */\n";
  }

  std::string signature() const {
    std::vector<std::string> parameters = {"const braze_function* function"};
    for (const Expr& symbol : program_.symbols)
      if (is_parameter(symbol))
        parameters.push_back("int64_t " + symbols_.at(symbol.symbol_name()));
    for (const Port& port : inputs_)
      parameters.push_back(format("const {}* {}", kCTypes[port.type.dtype].element, port.name));
    for (const Port& port : outputs_)
      parameters.push_back(format("{}* {}", kCTypes[port.type.dtype].element, port.name));
    return format("static inline braze_status {}_run({}) {{\n", c_name_,
                  join(parameters, ",\n    ", [](const std::string& p) { return p; }));
  }

  std::string body() const {
    const size_t in = inputs_.size(), out = outputs_.size();
    // C has no arrays of length 0.
    std::string text = format(
        "  braze_array* arguments[{}] = {{0}};\n  braze_array* results[{}] = {{0}};\n"
        "  braze_status status = BRAZE_OK;\n  int i;\n"
        "  if (!function) return braze_run(function, 0, 0, 0, 0); /* says so */\n",
        in + 1, out + 1);
    for (size_t i = 0; i < in; ++i) text += upload(i);
    text += format(
        "  if (status == BRAZE_OK)\n    status = braze_run(function, (const braze_array* const*)"
        "arguments, {}, results, {});\n",
        in, out);
    for (size_t i = 0; i < out; ++i)
      text += format(
          "  if (status == BRAZE_OK)\n    status = braze_array_to_host(results[{0}], {1}, "
          "braze_array_bytes(results[{0}]));\n",
          i, outputs_[i].name);
    text += format("  for (i = 0; i < {}; ++i) braze_array_release(arguments[i]);\n", in + 1);
    text += format("  for (i = 0; i < {}; ++i) braze_array_release(results[i]);\n", out + 1);
    return text + "  return status;\n}\n";
  }

  std::string upload(size_t i) const {
    const TensorType& type = inputs_[i].type;
    const std::string extents =
        join(type.shape, ", ", [&](const Expr& e) { return c_text(e, symbols_); });
    const size_t rank = type.shape.rank();
    return format(
        "  if (status == BRAZE_OK) {{\n    const int64_t shape[{}] = {{{}}};\n"
        "    status = braze_array_from_host({}, {}, shape, {},\n"
        "                                   braze_function_device(function), &arguments[{}]);\n"
        "  }}\n",
        std::max<size_t>(rank, 1), rank == 0 ? "1" : extents, kCTypes[type.dtype].name, rank,
        inputs_[i].name, i);
  }

  const PackageReader::Function& function_;
  const Program& program_;
  const std::string c_name_;
  Names names_{{"function", "arguments", "results", "status", "i", "shape"}};
  SymbolNames symbols_;
  std::vector<Port> inputs_, outputs_;
};

std::string guard_of(std::string_view file) {
  std::string guard = std::filesystem::path(file).filename().string();
  for (char& c : guard) {
    const auto byte = static_cast<unsigned char>(c);
    c = std::isalnum(byte) ? static_cast<char>(std::toupper(byte)) : '_';
  }
  return "BRAZE_PACKAGE_" + guard;
}

}  // namespace

std::string c_header(const Package& package, std::string_view file) {
  const PackageReader& reader = reader_of(package);
  const std::string guard = guard_of(file);
  std::string out = "/* Made by `braze compile --header`; changes here are lost. */\n";
  out += format("#ifndef {0}\n#define {0}\n\n#include <braze/c.h>\n#include <stdbool.h>\n", guard);
  Names names{{"braze"}};
  for (const PackageReader::Function& function : reader.functions()) {
    const Program program = reader.program(function.variants.front());
    out += FunctionWriter(function, program, names.add(function.name)).text();
  }
  return out + format("\n#endif /* {} */\n", guard);
}

}  // namespace braze
