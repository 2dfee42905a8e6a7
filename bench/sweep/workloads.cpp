#include "bench/sweep/workloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "ir/graph/graph.h"
#include "ir/graph/text.h"
#include "ir/support/hash.h"
#include "ir/values/host_tensor.h"

namespace braze::sweep {

namespace {

namespace codes {
inline constexpr Code kBadWorkload{"bad-workload", ErrorKind::InvalidArgument,
                                   "A row of the sweep's list does not say what it needs to."};
}  // namespace codes

int64_t parse_number(std::string_view key, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(codes::kBadWorkload, fmt::format("{} is to be a number, not \"{}\"", key, text));
  return value;
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool is_extents(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789x") == text.npos &&
         text.front() != 'x' && text.back() != 'x';
}

int64_t shrunk_extent(int64_t extent) {
  if (extent <= 64) return extent;
  const int doublings = std::bit_width(static_cast<uint64_t>(extent / 64)) - 1;
  return 64 + 8 * doublings + extent % 8;
}

Workload parse_row(const std::string& line) {
  std::istringstream words(line);
  Workload row;
  words >> row.name >> row.kind;
  bool for_cpus = false;
  for (std::string word; words >> word;) {
    if (word == "|") {
      for_cpus = true;
      continue;
    }
    row.cpu.set(word);
    if (!for_cpus) row.gpu.set(word);
  }
  if (row.name.find('/') == row.name.npos)
    fail(codes::kBadWorkload, "a name is a family, a slash, and what is special about the row");
  if (!kinds().contains(row.kind))
    fail(codes::kBadWorkload, fmt::format("there is no kind \"{}\" of workloads", row.kind));
  return row;
}

// --- Gradients
// ------------------------------------------------------------------------------------

using Build = std::function<std::vector<Tensor>(const Weights&)>;

std::string traced(const Build& build, const Inputs& inputs) {
  Named<Spec> specs;
  std::vector<std::string> names;
  for (const Input& input : inputs) {
    specs.add(input.name, spec(input.dtype, Dims(input.shape.begin(), input.shape.end())));
    names.push_back(input.name);
  }
  return jit(build, {.name = "workload"}).graph(specs);
}

std::vector<std::string> differentiated(const std::string& wanted, const Inputs& inputs) {
  if (wanted != "*") return parts_of(wanted, ',');
  std::vector<std::string> names;
  for (const Input& input : inputs)
    if (input.dtype != DType::I32 && input.dtype != DType::I64 && input.dtype != DType::Bool)
      names.push_back(input.name);
  return names;
}

// Without `direction` the first result is a loss.
Build gradient_of(const Build& build, const std::vector<std::string>& wanted,
                  const std::optional<std::string>& direction) {
  return [=](const Weights& in) {
    Weights chosen;
    for (const std::string& name : wanted) chosen.add(name, in[name]);
    const auto value = [&](const Weights& arguments) {
      Weights all = in;
      for (const auto& [name, tensor] : arguments) all.set(name, tensor);
      const Tensor result = build(all)[0];
      return direction ? sum(cast(result, f32) * cast(in[*direction], f32)) : result;
    };
    const auto [loss, gradients] = value_and_grad(value)(chosen);
    std::vector<Tensor> results;
    if (!direction) results.push_back(loss);
    for (const auto& [name, gradient] : gradients) results.push_back(gradient);
    return results;
  };
}

// The type of the first result: that of the input in whose direction gradients are taken.
Input direction_like(const std::string& graph) {
  const Graph forward = parse_graph(graph, "workload");
  const TensorType& type = forward[forward.outputs()[0].node].type;
  Input input{"direction", type.dtype, {}, -1, 1};
  for (const Expr& extent : type.shape) input.shape.push_back(extent.as_constant().value());
  return input;
}

}  // namespace

void Settings::set(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == 0 || equals == assignment.npos)
    fail(codes::kBadWorkload, fmt::format("\"{}\" is to be key=value", assignment));
  values_[std::string(assignment.substr(0, equals))] = assignment.substr(equals + 1);
}

const std::string& Settings::at(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) fail(codes::kBadWorkload, fmt::format("it needs {}=", key));
  return found->second;
}

int64_t Settings::operator[](std::string_view key) const { return parse_number(key, at(key)); }
int64_t Settings::get(std::string_view key, int64_t fallback) const {
  return has(key) ? (*this)[key] : fallback;
}
std::string Settings::text(std::string_view key, std::string_view fallback) const {
  return has(key) ? at(key) : std::string(fallback);
}
std::vector<int64_t> Settings::list(std::string_view key) const {
  std::vector<int64_t> numbers;
  for (const std::string& part : parts_of(at(key), 'x')) numbers.push_back(parse_number(key, part));
  return numbers;
}

DType Settings::dtype() const {
  const std::string text = this->text("dtype", "f32");
  const std::optional<DType> dtype = parse_dtype(text);
  if (!dtype) fail(codes::kBadWorkload, fmt::format("there is no dtype {}", text));
  return *dtype;
}

Settings Settings::shrunk() const {
  Settings out;
  for (const auto& [key, value] : values_) {
    std::string small;
    if (is_extents(value))
      for (const int64_t extent : list(key))
        small += fmt::format("{}{}", small.empty() ? "" : "x", shrunk_extent(extent));
    out.set(fmt::format("{}={}", key, small.empty() ? value : small));
  }
  return out;
}

std::string_view Workload::half() const { return hash64(name) % 2 == 0 ? "fit" : "judge"; }

Settings Workload::settings(Scale scale) const {
  if (scale == Scale::Gpu) return gpu;
  return scale == Scale::Cpu ? cpu : cpu.shrunk();
}

std::vector<Workload> read_workloads(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(codes::kBadWorkload, fmt::format("cannot read {}", path));
  std::vector<Workload> rows;
  std::set<std::string> names;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(' ') == line.npos) continue;
    try {
      rows.push_back(parse_row(line));
      if (!names.insert(rows.back().name).second)
        fail(codes::kBadWorkload, "another row has this name");
    } catch (const Error& error) {
      fail(codes::kBadWorkload, fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
  return rows;
}

Instance make_instance(const Workload& workload, Scale scale) {
  const Settings settings = workload.settings(scale);
  const Kind& kind = kinds().at(workload.kind);
  Instance instance{kind.inputs(settings), ""};
  if (!kind.build) return instance;
  bool is_whole = true;
  Build build = [&](const Weights& in) {
    auto results = kind.build(settings, in);
    is_whole = results.has_value();
    return is_whole ? *results : std::vector<Tensor>{in.begin()->second};
  };
  instance.graph = traced(build, instance.inputs);
  if (is_whole && settings.has("gradient")) {
    std::optional<std::string> direction;
    const auto wanted = differentiated(settings.text("gradient", ""), instance.inputs);
    const Input like = direction_like(instance.graph);
    if (!like.shape.empty()) {
      instance.inputs.push_back(like);
      direction = like.name;
    }
    instance.graph = traced(gradient_of(build, wanted, direction), instance.inputs);
  }
  if (!is_whole) instance.graph.clear();
  return instance;
}

Array make_values(const Input& input, size_t position, const Device& device) {
  const Dims shape(input.shape.begin(), input.shape.end());
  const bool is_index = input.dtype == DType::I32 || input.dtype == DType::I64;
  const auto values = [&](const Tensor& salt, const Tensor& low, const Tensor& span) {
    if (input.runs) {
      const int64_t n = input.shape.back();
      const Tensor i = arange(i64, shape, static_cast<int64_t>(shape.size()) - 1);
      return cast(i * i * static_cast<int64_t>(input.high) / (n * n), input.dtype);
    }
    Tensor h =
        (shape.empty() ? salt * 0u : reshape(arange(u32, Dim(checked_numel(input.shape))), shape));
    h = (h ^ salt) * 0x9E3779B1u;
    h = (h ^ shr(h, 16u)) * 0x85EBCA6Bu;
    h = (h ^ shr(h, 13u)) * 0xC2B2AE35u;
    h = h ^ shr(h, 16u);
    const Tensor unit = cast(shr(h, 8u), f32) * 0x1p-24;
    const Tensor value = unit * span + low;
    if (input.dtype == DType::Bool) return value < 0.5;
    return cast(is_index ? floor(value) : value, input.dtype);
  };
  const DeviceGuard guard(device);
  const auto scalar = [](double value) {
    return Array::from(std::vector<float>{static_cast<float>(value)}, {});
  };
  const Array salt =
      Array::from(std::vector<uint32_t>{scramble(static_cast<uint32_t>(position) + 1)}, {});
  Array made = jit(values)(salt, scalar(input.low), scalar(input.high - input.low));
  made.wait();
  return made;
}

}  // namespace braze::sweep
