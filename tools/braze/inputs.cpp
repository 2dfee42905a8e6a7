#include "tools/braze/inputs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "braze/io.h"
#include "ir/support/hash.h"
#include "ir/support/parallel.h"
#include "ir/support/text.h"
#include "ir/values/philox.h"
#include "ir/values/value_of.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

constexpr std::string_view kRandom = "random:";

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

std::vector<std::string> names_of(const std::vector<ProgramInput>& inputs) {
  std::vector<std::string> names;
  for (const ProgramInput& input : inputs) names.push_back(input.name);
  return names;
}

// The value of an input, as given.
struct Given {
  std::string text = "";  // "a.npy", "all.npz", "random:1", "0.5"; empty: nothing yet
  std::optional<HostTensor> value = {};  // of the file, once it is read
};

bool is_archive(std::string_view path) {
  return path.ends_with(".npz") || path.ends_with(".safetensors") ||
         path.ends_with(".safetensors.index.json");
}

std::map<std::string, Array> read_archive(const std::string& path) {
  return blame(Exit::BadFile, [&] {
    return path.ends_with(".npz") ? load_npz(path, Device("cpu"))
                                  : load_safetensors(path, Device("cpu"));
  });
}

// The inputs of a program, by name and in order, and their values from the flags.
class Assignment {
 public:
  explicit Assignment(const Program& program)
      : names_(names_of(program.inputs)), given_(names_.size()) {}

  void give(const std::string& name, Given given) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) fail_usage(unknown(name));
    Given& place = given_[static_cast<size_t>(found - names_.begin())];
    if (!place.text.empty()) fail_usage(fmt::format("the input {} is given twice", name));
    if (given.text.empty())
      fail_usage(
          fmt::format("{}= has no value; give a file, a number or random:SEED,LOW..HIGH", name));
    place = std::move(given);
  }

  // Every array of the file is the input of its name.
  void give_all(const std::string& path) {
    const std::map<std::string, Array> arrays = read_archive(path);
    check_fits(path, arrays);
    for (const auto& [name, array] : arrays) give(name, {path, array.to_host()});
  }

  // Values for the inputs that have none, in order: these, then `rest`. A line on stderr says which
  // get `rest` if it `is_noted`.
  std::vector<Given> fill(const std::vector<std::string>& unnamed, const std::string& rest,
                          bool is_noted) && {
    auto next = unnamed.begin();
    std::vector<std::string> left;
    for (size_t i = 0; i < given_.size(); ++i) {
      if (!given_[i].text.empty()) continue;
      if (next == unnamed.end()) left.push_back(names_[i]);
      given_[i].text = next != unnamed.end() ? *next++ : rest;
    }
    if (is_noted && !left.empty()) note(left, rest);
    if (next != unnamed.end())
      fail_usage(
          fmt::format("there are more files than inputs, so none is left for {}; the inputs are {}",
                      *next, fmt::join(names_, ", ")));
    return std::move(given_);
  }

 private:
  std::string unknown(const std::string& name) const {
    return fmt::format("{} is not an input; the inputs are {}{}", name, fmt::join(names_, ", "),
                       did_you_mean(name, names_));
  }

  // Whoever gives some inputs may have forgotten the others, such as the weights of a model.
  static void note(const std::vector<std::string>& left, const std::string& value) {
    constexpr size_t kShown = 5;
    const auto shown = left.begin() + static_cast<ptrdiff_t>(std::min(kShown, left.size()));
    fmt::print(stderr, "braze: no value is given for {}{}; {}\n",
               printable(fmt::format("{}", fmt::join(left.begin(), shown, ", "))),
               left.size() > kShown ? fmt::format(" and {} more inputs", left.size() - kShown) : "",
               left.size() == 1 ? "it is " + value : "they are " + value);
  }

  // An array that is no input may have a wrong name, so that it is not passed over.
  void check_fits(const std::string& path, const std::map<std::string, Array>& arrays) const {
    std::string fitting;
    for (const std::string& name : names_)
      if (arrays.contains(name)) fitting += fmt::format(" {}={}", name, path);
    for (const auto& [name, array] : arrays)
      if (std::find(names_.begin(), names_.end(), name) == names_.end())
        fail_usage(fmt::format(
            "{} does not fit the inputs: {}{}", path, unknown(name),
            fitting.empty() ? ""
                            : "\n  fix: give the arrays that fit by name: --inputs" + fitting));
  }

  const std::vector<std::string> names_;
  std::vector<Given> given_;
};

std::vector<Given> assign(const Program& program, const std::vector<std::string>& flags) {
  Assignment assignment(program);
  std::vector<std::string> unnamed;
  std::optional<std::string> rest;
  for (const std::string& flag : flags) {
    const std::string name = flag.substr(0, flag.find('='));
    const bool is_named = name.size() < flag.size() && !std::filesystem::exists(flag);
    if (flag.starts_with(kRandom)) {
      if (rest)
        fail_usage(
            fmt::format("the values of all other inputs are given twice, {} and {}", *rest, flag));
      rest = flag;
    } else if (is_named) {
      assignment.give(name, {flag.substr(name.size() + 1)});
    } else if (is_archive(flag)) {
      assignment.give_all(flag);
    } else {
      unnamed.push_back(flag);
    }
  }
  const bool is_partial = !flags.empty() && !rest;
  return std::move(assignment).fill(unnamed, rest.value_or(std::string(kRandom) + "0"), is_partial);
}

// --- Sizes
// ----------------------------------------------------------------------------------------

// What is wrong with a value of a symbol; empty if nothing is.
std::string problem_of(const Expr& symbol, int64_t value) {
  const Interval range = symbol.range();
  if (value >= range.min && value <= range.max && value % symbol.divisor() == 0) return "";
  return fmt::format(
      "{} is {}, but must be from {} to {}{}", symbol.symbol_name(), value, range.min, range.max,
      symbol.divisor() > 1 ? fmt::format(", a multiple of {}", symbol.divisor()) : "");
}

void check_symbol(const Expr& symbol, int64_t value) {
  if (const std::string problem = problem_of(symbol, value); !problem.empty()) fail_usage(problem);
}

// A size that the files determine. The import of a model takes other ranges.
void check_size(const Expr& symbol, int64_t value, bool of_model) {
  const std::string problem = problem_of(symbol, value);
  if (problem.empty()) return;
  const std::string fix =
      of_model ? fmt::format("\n  fix: give the size a number or another range: --symbol {}={}",
                             symbol.symbol_name(), value)
               : "";
  throw Failure{Exit::BadFile, "the files do not fit: " + problem + fix};
}

void set_symbol(const std::string& flag, const Program& program, Sizes& sizes) {
  const std::string name = flag.substr(0, flag.find('='));
  const auto value = parse_number<int64_t>(flag.substr(std::min(flag.size(), name.size() + 1)));
  if (!value || name.empty()) fail_usage(fmt::format("--symbol must be NAME=NUMBER, not {}", flag));
  std::vector<std::string> known;
  for (const Expr& symbol : program.symbols) {
    known.push_back(symbol.symbol_name());
    if (symbol.symbol_name() != name) continue;
    check_symbol(symbol, *value);
    if (sizes.has(name) && sizes(std::string_view(name)) != *value)
      fail_usage(fmt::format("{} is {} here, but {} by the files or by another --symbol", name,
                             *value, sizes(std::string_view(name))));
    return sizes.set(name, *value);
  }
  fail_usage(fmt::format("{} is not a symbol of the program{}", name, did_you_mean(name, known)));
}

// A call finds its sizes in the shapes of its arguments, with or without --symbol.
void check_callable(const Program& program, const std::vector<GivenShape>& weights) {
  std::vector<const Shape*> shapes;
  for (const ProgramInput& input : program.inputs) shapes.push_back(&input.type.shape);
  for (const GivenShape& weight : weights) shapes.push_back(weight.declared);
  blame(Exit::BadFile, [&] { check_determined(program.name, shapes, program.symbols); });
}

// Sizes from the weights and the files that were read, `shapes`, then from --symbol.
Sizes find_sizes(const Program& program, std::vector<GivenShape> shapes,
                 const std::vector<std::optional<HostTensor>>& files,
                 const std::vector<std::string>& flags, bool of_model) {
  for (size_t i = 0; i < files.size(); ++i)
    if (files[i])
      shapes.push_back({program.inputs[i].name, &program.inputs[i].type.shape, files[i]->shape()});
  Sizes sizes = blame(Exit::BadFile, [&] { return bind_sizes(shapes, {}); });
  for (const Expr& symbol : program.symbols)
    if (sizes.has(symbol.symbol_name())) check_size(symbol, sizes(symbol.symbol_name()), of_model);
  for (const std::string& flag : flags) set_symbol(flag, program, sizes);
  for (const Expr& symbol : program.symbols) {
    if (!sizes.has(symbol.symbol_name()))
      fail_usage(fmt::format("the size {} is not known; give it, as in --symbol {}={}",
                             symbol.symbol_name(), symbol.symbol_name(),
                             symbol.range().max < 64 ? symbol.range().max : 64));
  }
  return sizes;
}

// --- Values
// ---------------------------------------------------------------------------------------

[[noreturn]] void fail_number(const ProgramInput& input, std::string_view text) {
  fail_usage(fmt::format("{} is not a value of the input {}, which is {}", text, input.name,
                         input.type.to_string()));
}

// "random:SEED", "random:LOW..HIGH" or "random:SEED,LOW..HIGH".
struct Random {
  uint64_t seed = 0;
  std::string_view low = {}, high = {};  // empty: the bounds of the dtype
};

Random parse_random(std::string_view text) {
  std::string_view rest = text.substr(kRandom.size());
  Random random;
  const auto fail_random = [&] {
    fail_usage(
        fmt::format("{} is not a random value; write random:SEED, random:LOW..HIGH or "
                    "random:SEED,LOW..HIGH with a seed from 0 to 2^64 - 1",
                    text));
  };
  const size_t comma = rest.find(',');
  if (comma != rest.npos || rest.find("..") == rest.npos) {
    const auto seed = parse_number<uint64_t>(rest.substr(0, comma));
    if (!seed) fail_random();
    random.seed = *seed;
    if (comma == rest.npos) return random;
    rest.remove_prefix(comma + 1);
  }
  const size_t dots = rest.find("..");
  if (dots == rest.npos) fail_random();
  random.low = rest.substr(0, dots);
  random.high = rest.substr(dots + 2);
  if (random.low.empty() || random.high.empty()) fail_random();
  return random;
}

// A bound as a number that elements can have.
template <class T>
T bound(const ProgramInput& input, std::string_view text) {
  const std::optional<T> value = parse_number<T>(text);
  const DType dtype = input.type.dtype;
  // A double would round it.
  const bool is_any = std::is_integral_v<T> &&
                      (dtype == DType::I64 || (dtype == DType::U64 && value.value_or(-1) >= 0));
  if (!value || !(is_any || is_value(static_cast<double>(*value), dtype)) ||
      !std::isfinite(static_cast<double>(*value)))
    fail_number(input, text);
  return *value;
}

// LOW and HIGH of an input; `least` and `most` for a Random without them.
template <class T>
std::pair<T, T> range_of(const ProgramInput& input, const Random& random, T least, T most) {
  if (random.low.empty()) return {least, most};
  const T low = bound<T>(input, random.low), high = bound<T>(input, random.high);
  if (low > high)
    fail_usage(fmt::format("the range {}..{} of the input {} is empty", random.low, random.high,
                           input.name));
  return {low, high};
}

// Calls `set` with every element's index and 64 random bits, on all cores; every input of one seed
// has a stream of its own.
template <class Set>
void draw(const HostTensor& value, uint64_t seed, std::string_view name, const Set& set) {
  const uint64_t mixed = hash64(fmt::format("{} {}", seed, name));
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(mixed),
                                       static_cast<uint32_t>(mixed >> 32)};
  const auto draw_four = [&](int64_t i) {
    const auto low = static_cast<uint32_t>(i / 4), high = static_cast<uint32_t>(i / 4 >> 32);
    const auto words = philox4x32({low, high, 0, 0}, key),
               more = philox4x32({low, high, 1, 0}, key);
    for (size_t j = 0; j < 4 && i + static_cast<int64_t>(j) < value.numel(); ++j)
      set(i + static_cast<int64_t>(j), uint64_t{more[j]} << 32 | words[j]);
  };
  constexpr int64_t kPiece = 1 << 16;
  parallel_for(static_cast<size_t>((value.numel() + kPiece - 1) / kPiece), [&](size_t piece) {
    const int64_t begin = static_cast<int64_t>(piece) * kPiece;
    for (int64_t i = begin; i < std::min(begin + kPiece, value.numel()); i += 4) draw_four(i);
  });
}

// Floats are uniform from LOW to HIGH, by default from -1 to 1. Integers include both ends, and are
// 0 to 3 by default, so that they can be indices too.
void fill_random(HostTensor& value, const ProgramInput& input, const Random& random) {
  if (is_floating(value.dtype())) {
    const auto [low, high] = range_of<double>(input, random, -1, 1);
    draw(value, random.seed, input.name, [&, from = low, to = high](int64_t i, uint64_t bits) {
      value.set_double(i, std::lerp(from, to, (static_cast<uint32_t>(bits) >> 8) * 0x1p-24));
    });
    return;
  }
  const int64_t most = value.dtype() == DType::Bool ? 1 : 3;
  const auto [low, high] = range_of<int64_t>(input, random, 0, most);
  // 0 stands for 2^64.
  const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  draw(value, random.seed, input.name, [&, from = low](int64_t i, uint64_t bits) {
    const uint64_t drawn = count == 0 ? bits : bits % count;
    value.set_int(i, static_cast<int64_t>(static_cast<uint64_t>(from) + drawn));
  });
}

// Every element is the number, which must be a value of the dtype (rounded, for floats).
void fill_number(HostTensor& value, const ProgramInput& input, const std::string& text) {
  const double number = *parse_number<double>(text);
  // Large integers, which a double would round.
  std::optional<int64_t> integer;
  if (value.dtype() == DType::I64) integer = parse_number<int64_t>(text);
  if (value.dtype() == DType::U64)
    if (const auto magnitude = parse_number<uint64_t>(text))
      integer = static_cast<int64_t>(*magnitude);
  if (!integer && !is_value(number, value.dtype())) fail_number(input, text);
  for (int64_t i = 0; i < value.numel(); ++i)
    integer ? value.set_int(i, *integer) : value.set_double(i, number);
}

HostTensor make_value(const ProgramInput& input, const std::string& text, const Sizes& sizes) {
  HostTensor value(input.type.dtype, sizes(input.type.shape));
  if (text.starts_with(kRandom)) {
    fill_random(value, input, parse_random(text));
    return value;
  }
  fill_number(value, input, text);
  return value;
}

bool is_file(const std::string& text) {
  return !text.starts_with(kRandom) && !parse_number<double>(text);
}

std::string_view numpy_dtype(DType dtype) {
  constexpr DTypeTable<std::string_view> kNames = {
      {DType::Bool, "np.bool_"},
      {DType::I8, "np.int8"},
      {DType::U8, "np.uint8"},
      {DType::I16, "np.int16"},
      {DType::U16, "np.uint16"},
      {DType::I32, "np.int32"},
      {DType::U32, "np.uint32"},
      {DType::I64, "np.int64"},
      {DType::U64, "np.uint64"},
      {DType::F16, "np.float16"},
      {DType::F32, "np.float32"},
      {DType::F64, "np.float64"},
      {DType::BF16, "ml_dtypes.bfloat16"},
      {DType::F8E4M3, "ml_dtypes.float8_e4m3fn"},
      {DType::F8E5M2, "ml_dtypes.float8_e5m2"},
  };
  return kNames[dtype];
}

HostTensor read_file(const ProgramInput& input, const std::string& path) {
  if (!is_archive(path))
    return blame(Exit::BadFile, [&] { return load_npy(path, Device("cpu")).to_host(); });
  // Only that tensor of the weights is read, because others may have types that Braze does not
  // have.
  if (!path.ends_with(".npz"))
    return blame(Exit::BadFile, [&] {
      return load_safetensors(path, Device("cpu"), {input.name}).at(input.name).to_host();
    });
  const std::map<std::string, Array> arrays = read_archive(path);
  const auto found = arrays.find(input.name);
  if (found == arrays.end())
    throw Failure{Exit::BadFile, fmt::format("{} does not hold an array {}", path, input.name)};
  return found->second.to_host();
}

void check_dtype(const ProgramInput& input, const HostTensor& value, const std::string& path) {
  if (value.dtype() == input.type.dtype) return;
  throw Failure{
      Exit::BadFile,
      fmt::format("{} holds {}, but the input {} is {}\n  fix: save the array as a.astype({})",
                  path, name(value.dtype()), input.name, input.type.to_string(),
                  numpy_dtype(input.type.dtype))};
}

}  // namespace

void InputFlags::add_to(Arguments& arguments) {
  arguments
      .add_option("--inputs", inputs,
                  "a.npy ... in order, all.npz or .safetensors by name, NAME=a.npy, NAME=0.5, "
                  "NAME=random:SEED,LOW..HIGH, or random:SEED,LOW..HIGH for all others (default "
                  "random:0; either part may be left out)")
      .several();
  arguments.add_option("--symbol", symbols, "NAME=NUMBER: a size that the files do not determine")
      .several();
}

std::vector<std::string> InputFlags::paths() const {
  std::vector<std::string> paths;
  for (const std::string& flag : inputs) paths.push_back(flag.substr(flag.find('=') + 1));
  return paths;
}

Inputs make_inputs(const Program& program, const InputFlags& flags,
                   const std::vector<GivenShape>& weights) {
  std::vector<Given> given = assign(program, flags.inputs);
  std::vector<std::optional<HostTensor>> files(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const ProgramInput& input = program.inputs[i];
    if (!is_file(given[i].text)) continue;
    files[i] = given[i].value ? std::move(given[i].value) : read_file(input, given[i].text);
    check_dtype(input, *files[i], given[i].text);
  }
  check_callable(program, weights);
  Inputs inputs;
  inputs.sizes = find_sizes(program, weights, files, flags.symbols, flags.of_model);
  for (size_t i = 0; i < given.size(); ++i)
    inputs.values.push_back(files[i] ? std::move(*files[i])
                                     : make_value(program.inputs[i], given[i].text, inputs.sizes));
  return inputs;
}

std::vector<std::string> sizes_left_open(const Program& program,
                                         const std::vector<std::string>& symbols) {
  std::vector<std::string> left;
  for (const std::string& flag : symbols)
    for (const Expr& symbol : program.symbols)
      if (flag.starts_with(symbol.symbol_name() + "=") && flag.find("..") == flag.npos)
        left.push_back(flag);
  return left;
}

Sizes largest_sizes(const Program& program, const std::vector<std::string>& symbols) {
  Sizes sizes;
  for (const std::string& flag : symbols) set_symbol(flag, program, sizes);
  for (const Expr& symbol : program.symbols)
    if (!sizes.has(symbol.symbol_name())) sizes.set(symbol.symbol_name(), symbol.range().max);
  return sizes;
}

}  // namespace braze::tool
