#include "compiler/tiling/schedule.h"

#include <charconv>

#include "braze/error.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr Code kBadSchedule{"bad-schedule", ErrorKind::InvalidArgument,
                            "A schedule's text is malformed or does not fit its kernel."};

std::string list_text(const std::vector<int64_t>& list) {
  return join(list, ",", [](int64_t v) { return std::to_string(v); });
}

int64_t parse_number(std::string_view text, std::string_view key) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < -1 ||
      value > (int64_t{1} << 40))
    fail(kBadSchedule, fmt::format("schedule: '{}' is not a value for {}", text, key));
  return value;
}

std::vector<int64_t> parse_list(std::string_view text, std::string_view key) {
  std::vector<int64_t> list;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    list.push_back(parse_number(text.substr(0, comma), key));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

}  // namespace

std::string Schedule::to_string() const {
  std::string out = "family=" + family;
  if (!block.empty()) out += " block=" + list_text(block) + " tile=" + list_text(tile);
  out += fmt::format(" lane={}", lane_axis);
  if (inner_tile != 1) out += fmt::format(" inner={}", inner_tile);
  if (unroll != 1) out += fmt::format(" unroll={}", unroll);
  if (split != 1) out += fmt::format(" split={}", split);
  if (pack) out += " pack=1";
  if (stage) out += " stage=1";
  if (by_row) out += " by_row=1";
  if (scan != 1) out += fmt::format(" scan={}", scan);
  if (direct) out += " direct=1";
  if (stream) out += " stream=1";
  if (!threads.empty()) out += " threads=" + list_text(threads);
  if (vector != 1) out += fmt::format(" vector={}", vector);
  if (registers > 0) out += fmt::format(" registers={}", registers);
  if (mma) out += " mma=1";
  if (slice > 0) out += fmt::format(" slice={}", slice);
  if (slice > 0 && stages > 0)
    out += fmt::format(" stages={}", stages);
  else if (stages > 0)
    out += fmt::format(" stages={} consumers={} form={} cluster={} blocks={}", stages, consumers,
                       form, cluster, blocks);
  else if (cluster != 1)
    out += fmt::format(" cluster={}", cluster);
  if (band > 0) out += fmt::format(" band={}", band);
  return out;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      fail(kBadSchedule, fmt::format("schedule: '{}' is not key=value", word));
    const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "family")
      schedule.family = value;
    else if (key == "block")
      schedule.block = parse_list(value, key);
    else if (key == "tile")
      schedule.tile = parse_list(value, key);
    else if (key == "lane")
      schedule.lane_axis = parse_number(value, key);
    else if (key == "inner")
      schedule.inner_tile = parse_number(value, key);
    else if (key == "unroll")
      schedule.unroll = parse_number(value, key);
    else if (key == "split")
      schedule.split = parse_number(value, key);
    else if (key == "pack")
      schedule.pack = parse_number(value, key) != 0;
    else if (key == "stage")
      schedule.stage = parse_number(value, key) != 0;
    else if (key == "by_row")
      schedule.by_row = parse_number(value, key) != 0;
    else if (key == "scan")
      schedule.scan = parse_number(value, key);
    else if (key == "direct")
      schedule.direct = parse_number(value, key) != 0;
    else if (key == "stream")
      schedule.stream = parse_number(value, key) != 0;
    else if (key == "threads")
      schedule.threads = parse_list(value, key);
    else if (key == "vector")
      schedule.vector = parse_number(value, key);
    else if (key == "registers")
      schedule.registers = parse_number(value, key);
    else if (key == "mma")
      schedule.mma = parse_number(value, key) != 0;
    else if (key == "slice")
      schedule.slice = parse_number(value, key);
    else if (key == "stages")
      schedule.stages = parse_number(value, key);
    else if (key == "consumers")
      schedule.consumers = parse_number(value, key);
    else if (key == "form")
      schedule.form = value;
    else if (key == "cluster")
      schedule.cluster = parse_number(value, key);
    else if (key == "blocks")
      schedule.blocks = parse_number(value, key);
    else if (key == "band")
      schedule.band = parse_number(value, key);
    else
      fail(kBadSchedule, fmt::format("schedule: there is no key '{}'", key),
           {{},
            {},
            "keys: family block tile lane inner unroll split pack stage by_row scan direct stream "
            "threads vector registers mma slice stages consumers form cluster blocks band"});
  }
  return schedule;
}

}  // namespace braze
