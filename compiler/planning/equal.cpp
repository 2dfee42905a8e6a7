#include "compiler/planning/equal.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <unordered_map>

#include "ir/code/text.h"
#include "ir/code/walk.h"

namespace braze {

namespace {

bool is_in_name(std::string_view text, size_t i) {
  return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
}
size_t end_of_name(std::string_view text, size_t i) {
  while (is_in_name(text, i) || (is_in_name(text, i + 1) && text[i] == '.')) ++i;
  return i;
}

// Calls `visit` with every name in the text, and whether it is the name of a value or memory.
// `visit` returns what replaces the name, or nothing to keep it.
template <class Visit>
std::string each_name(std::string_view text, const Visit& visit) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t end = end_of_name(text, i);
    if (end == i) {
      out += text[i++];
      continue;
    }
    const std::string_view name = text.substr(i, end - i);
    const std::string other = visit(name, i > 0 && text[i - 1] == '%');
    out += other.empty() ? name : std::string_view(other);
    i = end;
  }
  return out;
}

// The symbols of grids, loops and lets. Symbols of sizes are not among them and keep their names.
std::set<std::string, std::less<>> own_symbols(const Kernel& kernel) {
  std::set<std::string, std::less<>> out;
  for (const Phase& phase : kernel.phases) {
    for (const GridAxis& axis : phase.grid) out.insert(axis.symbol);
    if (!phase.cluster.empty()) out.insert(phase.cluster);
    out.merge(symbols_of(phase.body));
  }
  return out;
}

// Sorts the list of parameters by their first use in the text of the phases.
void sort_parameters(Kernel& kernel, std::string_view text) {
  const size_t body = std::min(text.find("\n  phase"), text.size());
  std::unordered_map<std::string_view, size_t> uses;
  each_name(text.substr(body), [&](std::string_view name, bool is_value) {
    if (is_value) uses.emplace(name, uses.size());
    return std::string();
  });
  const auto use_of = [&](const std::string& name) {
    const auto found = uses.find(name);
    return found == uses.end() ? SIZE_MAX : found->second;
  };
  std::vector<size_t> first(kernel.memories.size());
  for (size_t i = 0; i < first.size(); ++i) first[i] = use_of(kernel.memories[i].name);
  for (const TensorMap& map : kernel.tensor_maps)
    first[map.memory.index] = std::min(first[map.memory.index], use_of(map.name));
  // A tensor map follows its memory.
  const auto place = [&](const auto& parameter) -> std::pair<size_t, size_t> {
    if (const auto* memory = std::get_if<MemoryId>(&parameter)) return {first[memory->index], 0};
    if (const auto* map = std::get_if<TensorMapId>(&parameter))
      return {first[kernel[*map].memory.index], use_of(kernel[*map].name)};
    return {use_of(kernel[std::get<ValueId>(parameter)].name), 0};
  };
  std::ranges::stable_sort(kernel.parameters, {}, place);
}

// `text` of the kernel, with numbers in place of its own names.
std::string with_numbers(std::string_view text, const Kernel& kernel) {
  const auto symbols = own_symbols(kernel);
  std::unordered_map<std::string_view, size_t> values, others;
  return each_name(text, [&](std::string_view name, bool is_value) -> std::string {
    if (is_value) return std::to_string(values.emplace(name, values.size()).first->second);
    if (!symbols.contains(name)) return {};
    return "$" + std::to_string(others.emplace(name, others.size()).first->second);
  });
}

bool has_locations(const Region& region) {
  return std::ranges::any_of(region.statements, [](const Statement& s) {
    const std::vector<const Region*> inside = regions_of(s);
    return s.location ||
           std::ranges::any_of(inside, [](const Region* r) { return has_locations(*r); });
  });
}

}  // namespace

KernelKey key_of(const CompiledFusion& fusion) {
  KernelKey key;
  if (fusion.parameters.empty()) return key;
  Kernel kernel = fusion.kernel;
  kernel.name = "kernel";
  kernel.schedule.clear();
  std::string text = to_text(kernel);
  const auto parameters = kernel.parameters;
  sort_parameters(kernel, text);
  if (kernel.parameters != parameters) text = to_text(kernel);
  for (const auto& parameter : kernel.parameters)
    if (const auto* memory = std::get_if<MemoryId>(&parameter))
      key.parameters.push_back(memory->index);
  key.text = with_numbers(text, kernel);
  return key;
}

std::string code_key(const Kernel& kernel) {
  const auto has_lines = [](const Phase& phase) { return has_locations(phase.body); };
  if (std::ranges::any_of(kernel.phases, has_lines)) return {};
  Kernel plain = kernel;
  plain.name = "kernel";
  plain.schedule.clear();
  std::string text = to_text(plain);
  // The code takes its parameters in these orders, which need not be that of the text.
  text += "order";
  for (const Memory& memory : plain.memories) text += " %" + memory.name;
  for (const TensorMap& map : plain.tensor_maps) text += " %" + map.name;
  for (const ValueId scalar : plain.scalar_parameters) text += " %" + plain[scalar].name;
  for (const Expr& symbol : plain.symbols) text += " " + symbol.to_string();
  return with_numbers(text, plain);
}

void take_kernel(CompiledFusion& fusion, KernelKey& key, const CompiledFusion& other,
                 const KernelKey& other_key) {
  BRAZE_CHECK(key.text == other_key.text, "a kernel takes the place of one that is not equal");
  std::vector<NodeId> parameters(fusion.parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    parameters[other_key.parameters[i]] = fusion.parameters[key.parameters[i]];
  std::string name = std::move(fusion.kernel.name), schedule = std::move(fusion.kernel.schedule);
  fusion.kernel = other.kernel;
  fusion.kernel.name = std::move(name);
  fusion.kernel.schedule = std::move(schedule);
  fusion.parameters = std::move(parameters);
  key.parameters = other_key.parameters;
}

}  // namespace braze
