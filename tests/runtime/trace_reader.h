// trace_reader.h — reads a timeline back, and checks what holds for every one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/io/json.h"

namespace braze::test {

struct TraceEvent {
  char phase = 0;  // X: span, i: moment, C: counter, M: name of a process or thread
  std::string category, name;
  std::string process;  // its name
  int64_t pid = 0, tid = 0;
  int64_t begin = 0, end = 0;  // nanoseconds
  std::string text;            // all of it
  bool has(std::string_view part) const { return text.find(part) != text.npos; }
};

/// The value of `key` in an event's text, up to the next comma or bracket.
inline std::string_view trace_value(std::string_view text, const std::string& key) {
  const size_t at = text.find("\"" + key + "\":");
  if (at == text.npos) return {};
  const std::string_view value = text.substr(at + key.size() + 3);
  return value.substr(0, value.find_first_of(",}]"));
}

inline int64_t trace_nanoseconds(std::string_view text, const std::string& key) {
  const std::string value(trace_value(text, key));
  return value.empty() ? 0 : std::llround(1000 * std::stold(value));
}

/// Whole: ends with its bracket, as one JSON array. Else of a process that died: whole lines only.
inline std::vector<TraceEvent> read_trace(const std::string& path, bool whole = true) {
  std::ifstream file(path);
  std::string all{std::istreambuf_iterator<char>(file), {}};
  if (whole) {
    JsonReader reader(all, path);
    reader.array([&] { reader.skip(); });
    reader.finish();
  }
  std::vector<TraceEvent> events;
  std::map<int64_t, std::string> processes;
  size_t line_end = 0;
  for (size_t begin = 0; begin < all.size(); begin = line_end + 1) {
    line_end = std::min(all.find('\n', begin), all.size());
    std::string line = all.substr(begin, line_end - begin);
    if (line == "[" || line == "]" || line.empty()) continue;
    if (line.back() == ',') line.pop_back();
    TraceEvent event;
    JsonReader reader(line, path);
    try {
      reader.object([&](const std::string& member) {
        if (member == "ph") {
          event.phase = reader.string()[0];
        } else if (member == "cat") {
          event.category = reader.string();
        } else if (member == "name") {
          event.name = reader.string();
        } else {
          reader.skip();
        }
      });
      reader.finish();
    } catch (const Error& error) {
      if (whole || line_end < all.size()) ADD_FAILURE() << error.what() << "\n" << line;
      continue;  // what was cut off
    }
    event.pid = std::stoll(std::string(trace_value(line, "pid")));
    event.tid = std::stoll(std::string(trace_value(line, "tid")));
    event.begin = trace_nanoseconds(line, "ts");
    event.end = event.begin + trace_nanoseconds(line, "dur");
    event.text = std::move(line);
    if (event.name == "process_name") {
      std::string name(trace_value(event.text.substr(event.text.find("args")), "name"));
      processes[event.pid] = name.substr(1, name.size() - 2);
    }
    events.push_back(std::move(event));
  }
  for (TraceEvent& event : events) event.process = processes[event.pid];
  return events;
}

/// Spans of a thread lie within one another or apart.
inline void check_nesting(std::vector<TraceEvent> events) {
  std::erase_if(events, [](const TraceEvent& e) { return e.phase != 'X'; });
  std::sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.pid, a.tid, a.begin, -a.end) < std::tuple(b.pid, b.tid, b.begin, -b.end);
  });
  std::vector<const TraceEvent*> open;
  for (const TraceEvent& event : events) {
    EXPECT_GE(event.end, event.begin) << event.text;
    while (!open.empty() &&
           (std::pair(open.back()->pid, open.back()->tid) != std::pair(event.pid, event.tid) ||
            open.back()->end <= event.begin)) {
      open.pop_back();
    }
    if (!open.empty()) {
      EXPECT_LE(event.end, open.back()->end) << event.text << "\nwithin\n" << open.back()->text;
    }
    open.push_back(&event);
  }
}

/// Those with this category, in order of their beginning; on a device if one is given.
inline std::vector<TraceEvent> in_category(const std::vector<TraceEvent>& events,
                                           std::string_view category,
                                           std::string_view process = {}) {
  std::vector<TraceEvent> found;
  for (const TraceEvent& event : events)
    if (event.category == category && (process.empty() || event.process == process))
      found.push_back(event);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return found;
}

inline std::vector<std::string> names_of(const std::vector<TraceEvent>& events) {
  std::vector<std::string> names;
  for (const TraceEvent& event : events) names.push_back(event.name);
  return names;
}

}  // namespace braze::test
