#include "compiler/tiling/schedule.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "compiler/tiling/check_schedule.h"
#include "ir/support/text.h"

namespace braze {

namespace {

std::string list_text(const std::vector<int64_t>& list) {
  return join(list, ",", [](int64_t v) { return std::to_string(v); });
}

constexpr int64_t kGreatest = int64_t{1} << 40;  // blocks can cover any axis

[[noreturn]] void fail_value(std::string_view text, std::string_view key,
                             std::string_view allowed) {
  fail(codes::kBadSchedule, fmt::format("schedule: '{}' is not a value for {}", text, key),
       {.fix = fmt::format("{} takes {}", key, allowed)});
}

void parse(std::string_view text, std::string_view key, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < -1 || value > kGreatest)
    fail_value(text, key, fmt::format("a number up to {}", kGreatest));
}

void parse(std::string_view text, std::string_view key, bool& value) {
  if (text != "0" && text != "1") fail_value(text, key, "0 or 1");
  value = text == "1";
}

void parse(std::string_view text, std::string_view key, std::vector<int64_t>& list) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    parse(text.substr(0, comma), key, list.emplace_back());
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
}

void parse(std::string_view text, std::string_view, std::string& value) { value = text; }

struct Key {
  std::string_view name;
  void (*set)(Schedule& schedule, std::string_view value, std::string_view key);
};

template <auto Member>
void set(Schedule& schedule, std::string_view value, std::string_view key) {
  parse(value, key, schedule.*Member);
}

constexpr Key kKeys[] = {
    {"family", set<&Schedule::family>},       {"block", set<&Schedule::block>},
    {"tile", set<&Schedule::tile>},           {"lane", set<&Schedule::lane_axis>},
    {"inner", set<&Schedule::inner_tile>},    {"unroll", set<&Schedule::unroll>},
    {"split", set<&Schedule::split>},         {"stream", set<&Schedule::stream>},
    {"threads", set<&Schedule::threads>},     {"vector", set<&Schedule::vector>},
    {"registers", set<&Schedule::registers>}, {"mma", set<&Schedule::mma>},
    {"slice", set<&Schedule::slice>},         {"stages", set<&Schedule::stages>},
    {"cluster", set<&Schedule::cluster>}};

}  // namespace

std::string Schedule::to_string() const {
  std::string out = "family=" + family;
  if (!block.empty()) out += " block=" + list_text(block) + " tile=" + list_text(tile);
  out += fmt::format(" lane={}", lane_axis);
  if (inner_tile != 1) out += fmt::format(" inner={}", inner_tile);
  if (unroll != 1) out += fmt::format(" unroll={}", unroll);
  if (split != 1) out += fmt::format(" split={}", split);
  if (stream) out += " stream=1";
  if (!threads.empty()) out += " threads=" + list_text(threads);
  if (vector != 1) out += fmt::format(" vector={}", vector);
  if (registers > 0) out += fmt::format(" registers={}", registers);
  if (mma) out += " mma=1";
  if (slice > 0) out += fmt::format(" slice={}", slice);
  if (stages > 0) out += fmt::format(" stages={}", stages);
  if (cluster != 1) out += fmt::format(" cluster={}", cluster);
  return out;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  std::set<std::string_view> given;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      fail(codes::kBadSchedule,
           fmt::format("schedule: '{}' does not have the form key=value", word));
    const std::string_view name = word.substr(0, equals);
    const auto* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                   [&](const Key& k) { return k.name == name; });
    if (key == std::end(kKeys))
      fail(codes::kBadSchedule, fmt::format("schedule: '{}' is not a key", name),
           {.fix = "the keys are " +
                   join(kKeys, " ", [](const Key& k) { return std::string(k.name); })});
    if (!given.insert(name).second)
      fail(codes::kBadSchedule, fmt::format("schedule: {} is given twice", name));
    key->set(schedule, word.substr(equals + 1), name);
  }
  return schedule;
}

}  // namespace braze
