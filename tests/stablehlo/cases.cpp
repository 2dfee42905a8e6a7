// cases.cpp — runs programs of StableHLO that say themselves what is right.
//
// tests/models/suite.h says how it is called. NAME.mlir with NAME.txt beside it takes the arguments
// there, and its results are compared with those there, which were computed in f64: the greatest
// error may be four times that of the program that made the text. Other programs check themselves
// (custom calls check.*): exactly, or to 1e-4, or to one unit of the last place. Counted apart is
// what is off by more and still right: within what the graph's sums and functions leave open
// (ir/graph/reference.h), or nearer to the exact value than what the program expects, which other
// code computed, by at most 8 units (for 16 bits: of the greatest element). The floor is about
// those without complex numbers, sorts and loops.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "braze/model.h"
#include "frontend/models/stablehlo/node.h"
#include "ir/graph/reference.h"
#include "tests/models/suite.h"

namespace {

namespace fs = std::filesystem;
using namespace braze;
using test::Outcome;
using test::Verdict;

// ---- Values -------------------------------------------------------------------------------------

struct Expected {
  HostTensor value;
  double error = 0;
};

struct Given {
  std::vector<HostTensor> arguments;
  std::vector<Expected> results;
};

// "argument f32 2 3 4 : 12 numbers" and "result ERROR f64 ...", a line each: dtype, rank, extents.
std::optional<Given> read_given(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  Given out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, dtype;
    Expected one;
    size_t rank = 0;
    words >> kind;
    if (kind == "result") words >> one.error;
    words >> dtype >> rank;
    std::vector<int64_t> shape(rank);
    for (int64_t& extent : shape) words >> extent;
    one.value = HostTensor(parse_dtype(dtype).value(), shape);
    for (int64_t i = 0; i < one.value.numel(); ++i) {
      double number = 0;
      words >> number;
      one.value.set_double(i, number);
    }
    if (!words) throw std::runtime_error(path.string() + " is cut off");
    if (kind == "argument")
      out.arguments.push_back(std::move(one.value));
    else
      out.results.push_back(std::move(one));
  }
  return out;
}

std::vector<Array> run(const Model& model, const std::vector<HostTensor>& arguments,
                       const Device& device) {
  std::vector<Array> arrays;
  for (const HostTensor& argument : arguments) arrays.push_back(Array::from_host(argument, device));
  const DeviceGuard guard(device);
  return model.run(arrays);
}

Outcome compare_given(const Model& model, const Given& given, const Device& device) {
  const std::vector<Array> results = run(model, given.arguments, device);
  if (results.size() != given.results.size()) return {Verdict::Wrong, false, "other results"};
  for (size_t i = 0; i < results.size(); ++i) {
    const HostTensor got = results[i].to_host();
    const Expected& expected = given.results[i];
    if (got.shape() != expected.value.shape())
      return {Verdict::Wrong, false, fmt::format("result {} has another shape", i)};
    double worst = 0;
    for (int64_t k = 0; k < got.numel(); ++k) {
      const double error = std::abs(got.get_double(k) - expected.value.get_double(k));
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    if (worst > 4 * expected.error)
      return {
          Verdict::Wrong, false,
          fmt::format("result {} is off by {}, more than four times {}", i, worst, expected.error)};
  }
  return {};
}

// The distance from a number of a dtype to the next.
double unit_at(double number, DType dtype) {
  const DTypeInfo& row = info(dtype);
  const int least = 2 - (1 << (row.exponent - 1));
  const int exponent = number != 0 && std::isfinite(number) ? std::ilogb(number) : least;
  return std::ldexp(1.0, std::max(exponent, least) - row.fraction);
}

// One check: `bound` is what the graph leaves open for each element of `got`.
std::string difference(const std::string& check, const HostTensor& got, const HostTensor& expected,
                       const Bounded& bound, bool& by_bound) {
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape())
    return "another type than expected";
  double greatest = 0;
  for (int64_t i = 0; is_floating(got.dtype()) && i < got.numel(); ++i)
    if (std::isfinite(expected.get_double(i)))
      greatest = std::max(greatest, std::abs(expected.get_double(i)));
  for (int64_t i = 0; i < got.numel(); ++i) {
    if (got.get_bits(i) == expected.get_bits(i)) continue;
    const std::string text =
        fmt::format("element {} is {}, not {}", i, got.element_text(i), expected.element_text(i));
    if (!is_floating(got.dtype())) return text;
    const double a = got.get_double(i), b = expected.get_double(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double units = std::abs(a - b) / unit_at(std::max(std::abs(a), std::abs(b)), got.dtype());
    if (check.find("almost") != std::string::npos && std::abs(a - b) <= 1e-4) continue;
    if (check.find("close") != std::string::npos && units <= 1) continue;
    // Both are results of the same sums and functions.
    const double exact = bound.value.get_double(i);
    // Programs expect sums whose every term was rounded to 16 bits, on the way to which they may
    // have been as great as any element.
    const double most = 8 * unit_at(size_of(got.dtype()) < 4 ? greatest : std::abs(b), got.dtype());
    if (std::abs(a - b) <= 2 * bound.bound[static_cast<size_t>(i)] ||
        (std::abs(a - b) <= most && std::abs(a - exact) <= std::abs(b - exact))) {
      by_bound = true;
      continue;
    }
    return fmt::format("{} ({:.3g} units)", text, units);
  }
  return "";
}

Outcome compare_checks(const Model& model, const Device& device) {
  const auto outputs = model.outputs();
  std::vector<HostTensor> values;
  for (const Array& result : run(model, {}, device)) values.push_back(result.to_host());
  std::vector<HostTensor> inputs;
  const auto weights = model.weights();
  for (const NodeId input : model.graph().inputs())
    inputs.push_back(weights.at(model.graph()[input].as<InputOp>()->name).to_host());
  const std::vector<Bounded> bounds = reference(model.graph(), inputs);
  Outcome outcome;
  size_t checks = 0;
  for (size_t i = 0; i + 1 < outputs.size(); ++i) {
    const std::string& name = outputs[i].name;
    if (!name.starts_with("check.") || !name.ends_with(".got")) continue;
    ++checks;
    const std::string why = difference(name, values[i], values[i + 1], bounds[i], outcome.is_apart);
    if (!why.empty()) return {Verdict::Wrong, false, why};
  }
  if (checks == 0) return {Verdict::Wrong, false, "it checks nothing"};
  return outcome;
}

Outcome run_case(const fs::path& path, const Device& device) {
  std::optional<Model> model;
  try {
    try {
      model = load_stablehlo(path.string());
    } catch (const Error& error) {
      const bool is_refusal = error.kind() == ErrorKind::Unsupported;
      return {is_refusal ? Verdict::Refused : Verdict::Wrong, false,
              test::without_path(error.message(), path)};
    }
    const auto given = read_given(fs::path(path).replace_extension(".txt"));
    return given ? compare_given(*model, *given, device) : compare_checks(*model, device);
  } catch (const std::exception& error) {
    return {Verdict::Wrong, false, error.what()};
  }
}

// ---- Counting -----------------------------------------------------------------------------------

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What the floor leaves out.
std::string group_of(const std::string& text) {
  if (text.find("complex<") != std::string::npos) return "complex numbers";
  if (text.find("stablehlo.sort") != std::string::npos ||
      text.find("chlo.top_k") != std::string::npos)
    return "sorts";
  if (text.find("stablehlo.while") != std::string::npos) return "loops";
  return "";
}

// "add_float32_..." -> "add"; the program is named after what it is about.
std::string subject_of(const std::string& name) {
  size_t end = 0;
  while (end != std::string::npos) {
    const size_t next = name.find('_', end + 1);
    const std::string word = name.substr(end ? end + 1 : 0, next - (end ? end + 1 : 0));
    if (end && (word.empty() || std::any_of(word.begin(), word.end(), ::isdigit) ||
                word == "shape" || word == "dtypes" || word == "inshape"))
      return name.substr(0, end);
    end = next;
  }
  return name;
}

}  // namespace

int main(int argc, char** argv) {
  return test::run_suite(
      {.program = "stablehlo-cases",
       .title = "Self-checking programs of StableHLO",
       .script = "tests/stablehlo/run_testdata.sh",
       .items = "programs",
       .apart = "of these within what sums and functions leave open, not to the unit",
       .floor = "without complex numbers, sorts and loops",
       .in_group = "with",
       .subject = "about",
       .is_case = [](const fs::path& path) { return path.extension() == ".mlir"; },
       .judge =
           [](const fs::path& path, const Device& device) {
             const std::string name = path.stem().string();
             return test::Judged{run_case(path, device), name, subject_of(name),
                                 group_of(content(path))};
           },
       .reason =
           [](const std::string& line) {
             const size_t begin = line.find('('), end = line.find("): ");
             if (end == std::string::npos) return line;
             return line.substr(begin + 1, end - begin - 1) + ": " + line.substr(end + 3);
           },
       .print_ops =
           [] {
             for (const std::string& op : stablehlo::imported_ops()) fmt::print("{}\n", op);
           }},
      argc, argv);
}
