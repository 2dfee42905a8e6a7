// cases.cpp — runs ONNX's cases of single operators: a folder of folders, as write_cases.py makes
// them.
//
// tests/models/suite.h says how it is called. Inputs that decide a shape are bound at import; those
// cases are counted apart. The floor is about those without strings, sequences, optionals, loops
// and convolution.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "braze/model.h"
#include "frontend/models/onnx/file.h"
#include "frontend/models/onnx/node.h"
#include "frontend/models/onnx/types.h"
#include "ir/values/host_tensor.h"
#include "runtime/io/mapped_file.h"
#include "tests/models/suite.h"

namespace {

namespace fs = std::filesystem;
using namespace braze;
using test::Outcome;
using test::Verdict;

struct Facts {
  double rtol = 1e-3, atol = 1e-7;
  std::string op, group;
};

Facts read_facts(const fs::path& folder) {
  Facts facts;
  std::ifstream file(folder / "facts");
  for (std::string line; std::getline(file, line);) {
    const size_t blank = line.find(' ');
    const std::string key = line.substr(0, blank), value = line.substr(blank + 1);
    if (key == "rtol") facts.rtol = std::stod(value);
    if (key == "atol") facts.atol = std::stod(value);
    if (key == "op") facts.op = value;
    if (key == "group") facts.group = value;
  }
  return facts;
}

std::optional<HostTensor> read_tensor(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  const auto file = MappedFile::open(path.string());
  return onnx::TensorReader("").read(onnx::parse_tensor(file->bytes(), path.string()));
}

// What numpy.testing.assert_allclose says, which ONNX's own runner asks.
std::string difference(const HostTensor& got, const HostTensor& expected, const Facts& facts) {
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape())
    return fmt::format("{} {} in place of {} {}", name(got.dtype()), fmt::join(got.shape(), "x"),
                       name(expected.dtype()), fmt::join(expected.shape(), "x"));
  for (int64_t i = 0; i < got.numel(); ++i) {
    if (!is_floating(got.dtype())) {
      if (got.get_int(i) != expected.get_int(i))
        return fmt::format("element {} is {}, not {}", i, got.element_text(i),
                           expected.element_text(i));
      continue;
    }
    const double a = got.get_double(i), b = expected.get_double(i);
    if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
    // The cases round to 16 bits after each step, and so may be off by two units of the last place.
    const double step = std::ldexp(1.0, 1 - info(got.dtype()).fraction);
    const double rtol = std::max(facts.rtol, size_of(got.dtype()) < 4 ? step : 0);
    if (!(std::abs(a - b) <= facts.atol + rtol * std::abs(b)))
      return fmt::format("element {} is {}, not {}", i, a, b);
  }
  return "";
}

// The inputs that the error says shall be given at import.
std::set<std::string> named_inputs(const std::string& error) {
  std::set<std::string> names;
  for (size_t at = 0; (at = error.find("is computed from ", at)) != std::string::npos;) {
    const size_t end = error.find_first_of(";\n", at);
    const std::string list = error.substr(at, end - at);
    for (size_t quote = 0; (quote = list.find('"', quote)) != std::string::npos;) {
      const size_t close = list.find('"', quote + 1);
      if (close == std::string::npos) break;
      names.insert(list.substr(quote + 1, close - quote - 1));
      quote = close + 1;
    }
    at = end == std::string::npos ? error.size() : end;
  }
  return names;
}

Outcome run_case(const fs::path& folder, const Facts& facts, const Device& device) {
  Outcome outcome;
  try {
    const auto file = MappedFile::open((folder / "model.onnx").string());
    const onnx::ModelData data = onnx::parse_model(file->bytes(), folder.filename().string());
    std::map<std::string, Array> arguments;
    size_t given = 0;
    for (size_t i = 0; i < data.graph.inputs.size(); ++i) {
      const auto value = read_tensor(folder / fmt::format("input_{}.pb", i));
      if (!value) continue;
      arguments[data.graph.inputs[i].name] = Array::from_host(*value, "cpu");
      ++given;
    }
    ImportOptions options;
    std::optional<Model> model;
    for (int attempt = 0; !model; ++attempt) {
      try {
        model = load_onnx((folder / "model.onnx").string(), options);
      } catch (const Error& error) {
        const size_t before = options.values.size();
        for (const std::string& name : named_inputs(error.message()))
          if (const auto found = arguments.find(name); found != arguments.end())
            options.values.insert(*found);
        if (options.values.size() == before || attempt == 4) {
          outcome.verdict = Verdict::Refused;
          outcome.why = test::without_path(error.message(), folder / "model.onnx");
          return outcome;
        }
        outcome.is_apart = true;
      }
    }
    std::vector<Array> in_order;
    for (const Model::Value& input : model->inputs())
      in_order.push_back(arguments.at(input.name).to(device));
    std::vector<Array> results;
    if (in_order.empty()) {
      const DeviceGuard guard(device);
      results = model->run(in_order);
    } else {
      results = model->run(in_order);
    }
    for (size_t i = 0; i < results.size() && outcome.verdict == Verdict::Right; ++i) {
      const auto expected = read_tensor(folder / fmt::format("output_{}.pb", i));
      if (!expected) continue;
      outcome.why = difference(results[i].to_host(), *expected, facts);
      if (!outcome.why.empty()) {
        outcome.verdict = Verdict::Wrong;
        outcome.why = fmt::format("result {}: {}", i, outcome.why);
      }
    }
  } catch (const Error& error) {
    // A type of an argument that the import would refuse as well.
    const bool is_refusal = error.code().name == "onnx-type";
    outcome.verdict = is_refusal ? Verdict::Refused : Verdict::Wrong;
    outcome.why = is_refusal ? error.message() : error.what();
  } catch (const std::exception& error) {
    outcome.verdict = Verdict::Wrong;
    outcome.why = error.what();
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  return test::run_suite(
      {.program = "onnx-cases",
       .title = "ONNX's cases of single operators",
       .script = "tests/onnx/run_cases.sh",
       .items = "cases",
       .apart = "of these with shapes bound at import",
       .floor = "without strings, sequences, optionals, loops and convolution",
       .in_group = "about",
       .subject = "operator",
       .is_case = [](const fs::path&) { return true; },
       .judge =
           [](const fs::path& path, const Device& device) {
             const Facts facts = read_facts(path);
             return test::Judged{run_case(path, facts, device), path.filename().string(), facts.op,
                                 facts.group};
           },
       .reason =
           [](const std::string& line) {
             // Behind "NAME (OP, opset N): " or "NAME (input, TYPE): ". Names are quoted.
             const size_t name = line.find("\" (");
             const size_t end = line.find("): ", name == std::string::npos ? 0 : name);
             return end == std::string::npos ? line : line.substr(end + 3);
           },
       .print_ops =
           [] {
             for (const auto& [op, versions] : onnx::imported_ops())
               fmt::print("{}{}\n", op, versions.empty() ? "" : " (" + versions + ")");
           }},
      argc, argv);
}
