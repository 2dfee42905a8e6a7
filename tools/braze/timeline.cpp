// timeline.cpp — braze timeline: joins the timelines of several processes to one file, and says how
// much of the communication of each device its kernels hide.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/io/file_writer.h"
#include "runtime/io/json.h"
#include "runtime/io/mapped_file.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/files.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

struct Options {
  std::vector<std::string> files;
  std::string output;
  bool json = false;
};

/// A time, in microseconds of the host's clock.
struct Span {
  double begin = 0, end = 0;
};

/// What a line of a timeline says that matters here.
struct Event {
  std::string phase, category, name;
  std::string new_name;  // which a "process_name" or "thread_name" gives
  uint64_t process = 0, row = 0;
  double begin = 0, duration = 0;
};

/// The rows of a device, or of a process of the host.
struct Process {
  std::string name;
  std::map<uint64_t, std::string> rows;
  std::vector<Span> kernels;
  std::map<uint64_t, std::vector<Span>> collectives;  // by row
};

/// The communication of a device.
struct Exchanged {
  std::string device;
  size_t collectives = 0;
  double kernel_seconds = 0, seconds = 0, hidden_seconds = 0;

  double share() const { return seconds > 0 ? hidden_seconds / seconds : 0; }
};

Event read_event(std::string_view line, std::string_view where) {
  Event event;
  JsonReader reader(line, where);
  reader.object([&](const std::string& member) {
    if (member == "ph") {
      event.phase = reader.string();
    } else if (member == "cat") {
      event.category = reader.string();
    } else if (member == "name") {
      event.name = reader.string();
    } else if (member == "pid") {
      event.process = reader.integer();
    } else if (member == "tid") {
      event.row = reader.integer();
    } else if (member == "ts") {
      event.begin = reader.number();
    } else if (member == "dur") {
      event.duration = reader.number();
    } else if (member == "args" && event.phase == "M" && event.name.ends_with("_name")) {
      reader.object([&](const std::string& argument) {
        if (argument == "name")
          event.new_name = reader.string();
        else
          reader.skip();
      });
    } else {
      reader.skip();
    }
  });
  reader.finish();
  return event;
}

/// The timeline of one process.
class Timeline {
 public:
  explicit Timeline(const std::string& path) : file_(MappedFile::open(path)) {
    const auto bytes = file_->bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    size_t number = 1;
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1, ++number) {
      end = std::min(text.find('\n', begin), text.size());
      std::string_view line = text.substr(begin, end - begin);
      if (line.ends_with(',')) line.remove_suffix(1);
      if (line.empty() || line == "[" || line == "]" || line == "{}") continue;
      // A process that died has left a part of its last line.
      const bool is_cut = end == text.size() && !line.ends_with('}');
      if (is_cut && number > 1) break;
      const Event event = read_event(line, fmt::format("{}:{}", path, number));
      add(event);
      lines_.push_back({line, event.process});
    }
  }

  const std::map<uint64_t, Process>& processes() const { return processes_; }

  /// Appends the lines to `to`. The numbers of processes grow by `offset`.
  void write(FileWriter& to, uint64_t offset) const {
    for (const Line& line : lines_) {
      const std::string before = fmt::format("\"pid\":{}", line.process);
      const size_t at = offset == 0 ? line.text.npos : line.text.find(before);
      if (at == line.text.npos) {
        to.append(line.text);
      } else {
        to.append(line.text.substr(0, at));
        to.append(fmt::format("\"pid\":{}", line.process + offset));
        to.append(line.text.substr(at + before.size()));
      }
      to.append(",\n");
    }
  }

 private:
  void add(const Event& event) {
    Process& process = processes_[event.process];
    const Span span{event.begin, event.begin + event.duration};
    if (event.name == "process_name" && event.phase == "M")
      process.name = event.new_name;
    else if (event.name == "thread_name" && event.phase == "M")
      process.rows[event.row] = event.new_name;
    else if (event.phase == "X" && event.category == "kernel")
      process.kernels.push_back(span);
    else if (event.phase == "X" && event.category == "collective")
      process.collectives[event.row].push_back(span);
  }

  struct Line {
    std::string_view text;  // an event, without the comma after it
    uint64_t process;
  };
  std::shared_ptr<const MappedFile> file_;
  std::vector<Line> lines_;
  std::map<uint64_t, Process> processes_;
};

/// Spans that do not overlap, in order, and cover the same time.
std::vector<Span> joined(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::begin);
  std::vector<Span> out;
  for (const Span& span : spans) {
    if (!out.empty() && span.begin <= out.back().end)
      out.back().end = std::max(out.back().end, span.end);
    else
      out.push_back(span);
  }
  return out;
}

double length(const std::vector<Span>& spans) {
  double out = 0;
  for (const Span& span : spans) out += span.end - span.begin;
  return out;
}

/// The time that both cover.
double common_length(const std::vector<Span>& a, const std::vector<Span>& b) {
  double out = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    out += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return out;
}

/// Null if the process has no collectives. On a GPU they run in the row "together"; in the row
/// "work" stands only where they were submitted.
std::optional<Exchanged> exchanged(const Process& process) {
  const std::vector<Span>* spans = nullptr;
  for (const auto& [row, of_row] : process.collectives) {
    const auto name = process.rows.find(row);
    if (!spans || (name != process.rows.end() && name->second == "together")) spans = &of_row;
  }
  if (!spans) return std::nullopt;
  const std::vector<Span> kernels = joined(process.kernels), collectives = joined(*spans);
  constexpr double kMicro = 1e-6;
  return Exchanged{process.name, spans->size(), kMicro * length(kernels),
                   kMicro * length(collectives), kMicro * common_length(collectives, kernels)};
}

void print_text(const std::vector<Exchanged>& all) {
  if (all.empty()) {
    fmt::print("no collective\n");
    return;
  }
  std::vector<std::vector<std::string>> rows = {
      {"device", "kernels", "collectives", "their time", "hidden", "share"}};
  for (const Exchanged& one : all)
    rows.push_back({one.device, seconds_text(one.kernel_seconds), std::to_string(one.collectives),
                    seconds_text(one.seconds), seconds_text(one.hidden_seconds),
                    fmt::format("{:.1f} %", 100 * one.share())});
  fmt::print("{}", table(rows));
}

void print_json(const std::vector<Exchanged>& all) {
  std::vector<std::string> items;
  for (const Exchanged& one : all)
    items.push_back(json::object({{"device", json::string(one.device)},
                                  {"kernel_seconds", json::number(one.kernel_seconds)},
                                  {"collectives", std::to_string(one.collectives)},
                                  {"collective_seconds", json::number(one.seconds)},
                                  {"hidden_seconds", json::number(one.hidden_seconds)},
                                  {"hidden_share", json::number(one.share())}}));
  json::print({{"devices", json::array(items)}});
}

Exit show_timelines(const Options& options) {
  std::vector<ReadFile> read;
  for (const std::string& file : options.files) read.push_back({file, "is one of the timelines"});
  check_overwrites(read, {options.output});
  std::optional<FileWriter> writer;
  if (!options.output.empty()) {
    writer.emplace(options.output);
    writer->append("[\n");
  }
  std::vector<Exchanged> all;
  std::set<uint64_t> numbers;  // of the processes so far
  for (const std::string& file : options.files) {
    const Timeline timeline = blame(Exit::BadFile, [&] { return Timeline(file); });
    // Processes of other hosts may have the same numbers.
    uint64_t offset = 0;
    for (const auto& [number, process] : timeline.processes())
      if (numbers.contains(number)) offset = *numbers.rbegin() + 1;
    for (const auto& [number, process] : timeline.processes()) {
      numbers.insert(number + offset);
      if (const auto found = exchanged(process)) all.push_back(*found);
    }
    if (writer) timeline.write(*writer, offset);
  }
  if (writer) {
    writer->append("{}\n]\n");
    writer->publish();
  }
  std::ranges::stable_sort(all, {}, &Exchanged::device);
  options.json ? print_json(all) : print_text(all);
  return Exit::Ok;
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.add_option("FILE", options->files, "Timelines, one of each process")
      .required()
      .several();
  arguments.add_option("-o,--output", options->output, "File for all of them, for Perfetto");
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return show_timelines(*options); };
}

}  // namespace

const Command kTimeline = {
    "timeline", "Joins timelines of several processes, and shows how much communication is hidden.",
    "  BRAZE_TRACE=trace-%p.json mpirun -n 4 ./train\n"
    "  braze timeline trace-*.json -o all.json\n"
    "\n"
    "For each device: the time of its kernels and of its collectives, and how much of the latter\n"
    "passes while kernels run on the same device.\n",
    add};

}  // namespace braze::tool
