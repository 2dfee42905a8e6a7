// cases.cpp — runs ONNX's cases of single operators: a folder of folders, as write_cases.py makes
// them.
//
// Usage: onnx-cases FOLDER [--device D] [--only TEXT] [--results FILE.md] [--floor SHARE]
//        onnx-cases --ops    prints the operators that are imported
//
// A case is right, refused (the import says why) or wrong. Inputs that decide a shape are bound at
// import; those cases are counted apart as well. Ends with 1 if one is wrong, or if fewer than
// SHARE of those without strings, sequences, optionals, loops and convolution are right.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "braze/model.h"
#include "frontend/models/onnx/file.h"
#include "frontend/models/onnx/node.h"
#include "frontend/models/onnx/types.h"
#include "ir/values/host_tensor.h"
#include "runtime/io/mapped_file.h"

namespace {

namespace fs = std::filesystem;
using namespace braze;

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

enum class Verdict { Right, Refused, Wrong };
struct Outcome {
  Verdict verdict = Verdict::Right;
  bool bound = false;  // inputs were bound at import
  std::string why;
};

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
          outcome.why = error.message();
          return outcome;
        }
        outcome.bound = true;
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

// The reason behind the node's name, for counting.
std::string reason_of(const std::string& why) {
  std::string line = why;
  const size_t node = why.find("\n  ");
  if (node != std::string::npos) {
    line = why.substr(node + 3);
    const size_t opset = line.find("opset ");
    const size_t end = line.find("): ", opset == std::string::npos ? 0 : opset);
    if (end != std::string::npos) line = line.substr(end + 3);
  }
  return line.substr(0, line.find_first_of("\n;"));
}

struct Row {
  int right = 0, bound = 0, refused = 0, wrong = 0;
  std::map<std::string, int> reasons;
};

int print_ops() {
  for (const auto& [op, versions] : onnx::imported_ops())
    fmt::print("{}{}\n", op, versions.empty() ? "" : " (" + versions + ")");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder, only, results_file, device_name = "cpu";
  double floor = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (argument == "--ops") return print_ops();
    if (argument == "--device")
      device_name = value();
    else if (argument == "--only")
      only = value();
    else if (argument == "--results")
      results_file = value();
    else if (argument == "--floor")
      floor = std::stod(value());
    else
      folder = argument;
  }
  if (folder.empty()) {
    fmt::print(stderr,
               "usage: onnx-cases FOLDER [--device D] [--only TEXT] [--results FILE] "
               "[--floor SHARE] | --ops\n");
    return 2;
  }
  const Device device(device_name.c_str());
  std::vector<fs::path> cases;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().find(only) != std::string::npos)
      cases.push_back(entry.path());
  std::ranges::sort(cases);
  std::map<std::string, Row> by_op;
  std::map<std::string, Row> by_group;
  Row ours, all;
  for (const fs::path& path : cases) {
    const Facts facts = read_facts(path);
    const Outcome outcome = run_case(path, facts, device);
    const std::string name = path.filename().string();
    if (outcome.verdict == Verdict::Wrong) fmt::print("WRONG   {}: {}\n", name, outcome.why);
    if (outcome.verdict == Verdict::Refused && !only.empty())
      fmt::print("refused {}: {}\n", name, outcome.why);
    std::vector<Row*> rows = {&by_op[facts.op], &all,
                              facts.group.empty() ? &ours : &by_group[facts.group]};
    for (Row* row : rows) {
      row->right += outcome.verdict == Verdict::Right;
      row->bound += outcome.verdict == Verdict::Right && outcome.bound;
      row->refused += outcome.verdict == Verdict::Refused;
      row->wrong += outcome.verdict == Verdict::Wrong;
      if (outcome.verdict == Verdict::Refused) ++row->reasons[reason_of(outcome.why)];
    }
    std::fflush(stdout);
  }
  const auto total = [](const Row& row) { return row.right + row.refused + row.wrong; };
  const double share = total(ours) ? static_cast<double>(ours.right) / total(ours) : 0;
  std::string text = fmt::format(
      "| cases | right | of these with shapes bound at import | refused | wrong |\n"
      "| --- | ---: | ---: | ---: | ---: |\n"
      "| all {} | {} | {} | {} | {} |\n"
      "| {} without strings, sequences, optionals, loops and convolution | {} ({:.1f} %) | {} | {} "
      "| {} |\n",
      total(all), all.right, all.bound, all.refused, all.wrong, total(ours), ours.right,
      100 * share, ours.bound, ours.refused, ours.wrong);
  for (const auto& [group, row] : by_group)
    text += fmt::format("| {} about {} | {} | {} | {} | {} |\n", total(row), group, row.right,
                        row.bound, row.refused, row.wrong);
  text += "\n| operator | cases | right | refused | why |\n| --- | ---: | ---: | ---: | --- |\n";
  for (const auto& [op, row] : by_op) {
    std::string why;
    for (const auto& [reason, count] : row.reasons)
      why += (why.empty() ? "" : "; ") +
             (row.reasons.size() > 1 ? fmt::format("{}: ", count) : "") + reason;
    std::ranges::replace(why, '|', '/');
    text +=
        fmt::format("| {} | {} | {} | {} | {} |\n", op, total(row), row.right, row.refused, why);
  }
  if (!results_file.empty())
    std::ofstream(results_file) << "# ONNX's cases of single operators on " << device_name
                                << "\n\nWritten by tests/onnx/run_cases.sh.\n\n"
                                << text;
  fmt::print(
      "{} cases on {}: {} right, {} refused, {} wrong; {:.1f} % of those without strings, "
      "sequences, optionals, loops and convolution are right\n",
      total(all), device_name, all.right, all.refused, all.wrong, 100 * share);
  return all.wrong > 0 || share < floor ? 1 : 0;
}
