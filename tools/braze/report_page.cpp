// Notation: `esc` makes text of anybody's harmless in HTML, in attributes as well; what is written
// without it is ours. Anchors: #k3 is kernel 3 of the launches, #L12 line 12 of the graph's file.
#include "tools/braze/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "ir/program/text.h"
#include "ir/support/text.h"
#include "tools/braze/measured.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --bar: #3b82f6; --hot: 59 130 246; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem 1.5rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; }
h2 { border-bottom: 1px solid var(--line); font-size: 1.15rem; margin: 2.2rem 0 .8rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .15rem .7rem .15rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; }
.n { text-align: right; white-space: nowrap; }
code, .code { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.note { opacity: .7; }
.bar { background: var(--bar); border-radius: 2px; display: inline-block; height: .7em; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; padding: .3rem .8rem; }
summary { cursor: pointer; }
svg text { fill: currentColor; font: 12px ui-monospace, monospace; }
svg .box { stroke: currentColor; stroke-opacity: .5; }
svg .edge { fill: none; stroke: currentColor; stroke-opacity: .35; }
ol.source { background: var(--soft); border-radius: 6px; padding: .5rem 0 .5rem 4rem; }
ol.source li:target { background: #facc1566; }
ol.source code { white-space: pre-wrap; }
)";

std::string esc(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // HTML has no other control characters.
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
          out += "\uFFFD";
        else
          out += c;
    }
  }
  return out;
}

/// A path as a part of an address.
std::string address(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/._-~").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : std::string();
}

std::string bar(double part, double whole) {
  const double width = whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
  return fmt::format("<span class=bar style=\"width:{:.2f}rem\"></span>", 8 * width);
}

/// One kernel or copy, with all that is known of its time.
struct Row {
  const Launch* launch = nullptr;
  std::vector<const FusedKernel*> fused = {};  ///< empty: a copy, or an interpreted graph
  const Timing* timing = nullptr;
  size_t index = 0;
  double bytes = 0, flops = 0;

  bool computes(const std::string& value) const {
    return std::ranges::any_of(
        fused, [&](const FusedKernel* kernel) { return kernel->values.contains(value); });
  }
  double estimated() const {
    double seconds = 0;
    for (const FusedKernel* kernel : fused) seconds += kernel->cost.seconds;
    return seconds;
  }
  /// Measured where that was done, else estimated.
  double seconds() const { return timing ? timing->quantile(0.5) : estimated(); }
};

class Page {
 public:
  explicit Page(const ReportData& data)
      : data_(data), program_(data.explanation.program), measured_(!data.timings.of.empty()) {
    for (const SourceLocation& location : program_.locations)
      if (location) places_.emplace(location.to_string(), location);
    std::map<std::string_view, const Timing*> timings;
    for (size_t i = 1; i < data.timings.of.size(); ++i)
      timings[data.timings.of[i].name] = &data.timings.of[i];
    for (const Launch& launch : program_.launches) {
      Row row{
          .launch = &launch, .fused = fused_in(data.explanation, launch), .index = rows_.size()};
      if (const auto found = timings.find(launch.name); found != timings.end())
        row.timing = found->second;
      row.bytes = static_cast<double>(data.sizes(launch.bytes_read)) +
                  static_cast<double>(data.sizes(launch.bytes_written));
      row.flops = static_cast<double>(data.sizes(launch.flops));
      total_ += row.seconds();
      rows_.push_back(row);
    }
  }

  std::string html() {
    begin();
    overview();
    picture();
    kernels();
    memory();
    compile_time();
    reasons();
    source();
    out_ += "</main></body></html>\n";
    return std::move(out_);
  }

 private:
  template <class... Arguments>
  void put(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_ += fmt::format(format, std::forward<Arguments>(arguments)...);
  }

  void begin() {
    put("<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\">\n<meta name=viewport content=\"width=device-width\">\n"
        "<title>{0}: Braze</title><style>{1}</style></head>\n<body><main>\n<h1>{0}</h1>\n",
        esc(program_.name), kStyle);
  }

  void heading(std::string_view id, std::string_view title) {
    put("<h2 id={}>{}</h2>\n", id, title);
  }

  /// A link to a place of the source: into this page if it is of the graph's own file.
  std::string place(const std::string& text) const {
    if (text.empty()) return "";
    const auto found = places_.find(text);
    if (found == places_.end()) return esc(text);
    const SourceLocation& location = found->second;
    if (location.file == data_.file)
      return fmt::format("<a href=\"#L{}\">{}</a>", location.line, esc(text));
    std::error_code error;
    const auto path = std::filesystem::absolute(location.file, error);
    if (error) return esc(text);
    return fmt::format("<a href=\"file://{}\">{}</a>", address(path.string()), esc(text));
  }

  std::string link(const Row& row) const {
    return fmt::format("<a href=\"#k{}\"><code>{}</code></a>", row.index, esc(row.launch->name));
  }

  // --- At the top
  // ---------------------------------------------------------------------------------

  void overview() {
    put("<p>{} ops in {} for {}, {} precision", program_.ops_before_fusion,
        esc(kernels_text(program_)), esc(program_.target.name), esc(name(program_.precision)));
    if (measured_) put(", measured on {}", esc(data_.device));
    put(".");
    for (const Expr& symbol : program_.symbols)
      put(" <code>{} = {}</code>", esc(symbol.symbol_name()), data_.sizes(symbol));
    put("</p>\n<table id=overview>\n");
    const auto fact = [&](std::string_view what, const std::string& value) {
      put("<tr><th>{}<td>{}\n", what, esc(value));
    };
    if (measured_) {
      const Timing& call = data_.timings.of.front();
      fact("a call", fmt::format("{} in the median of {}", seconds_text(call.quantile(0.5)),
                                 call.seconds.size()));
    }
    fact(measured_ ? "its kernels" : "kernels, estimated", seconds_text(total_));
    if (data_.timings.has_machine)
      fact("the machine", fmt::format("{:.3g} GB/s copied from memory, {:.3g} GFLOP/s of f32",
                                      data_.timings.machine.copy_bytes_per_second / 1e9,
                                      data_.timings.machine.flops_per_second / 1e9));
    else
      fact("the machine, assumed", fmt::format("{:.3g} GB/s of memory, {:.3g} GFLOP/s of f32",
                                               program_.target.memory_bytes_per_second / 1e9,
                                               program_.target.flops_per_second / 1e9));
    fact("temporary memory", bytes_text(static_cast<uint64_t>(data_.sizes(program_.arena_bytes))));
    fact("compiled in", seconds_text(data_.compile.elapsed));
    put("</table>\n");
    if (!measured_ && !program_.symbols.empty())
      put("<p class=note>Estimated times are for the largest sizes.</p>\n");
  }

  // --- The graph, folded by kernel
  // ----------------------------------------------------------------

  void picture() {
    const std::vector<FusedKernel>& fused = data_.explanation.kernels;
    if (fused.empty()) return;
    heading("graph", "The graph, folded by kernel");
    constexpr int kWidth = 230, kHeight = 46, kAcross = 24, kDown = 34;
    std::map<const FusedKernel*, const Row*> row_of;
    for (const Row& row : rows_)
      for (const FusedKernel* kernel : row.fused) row_of[kernel] = &row;
    std::vector<int> depth(fused.size()), column(fused.size()), used;
    for (size_t i = 0; i < fused.size(); ++i) {
      for (const size_t producer : fused[i].reads)
        depth[i] = std::max(depth[i], depth[producer] + 1);
      used.resize(std::max<size_t>(used.size(), static_cast<size_t>(depth[i]) + 1));
      column[i] = used[static_cast<size_t>(depth[i])]++;
    }
    const int columns = *std::max_element(used.begin(), used.end());
    const auto x = [&](size_t i) { return 8 + column[i] * (kWidth + kAcross); };
    const auto y = [&](size_t i) { return 8 + depth[i] * (kHeight + kDown); };
    put("<p class=note>A box is a kernel, with a link to its ops. The more time it takes, the "
        "darker it is. A line is a value that goes through memory.</p>\n<div class=wide><svg "
        "id=picture width={} height={} role=img aria-label=\"kernels and the values between "
        "them\">\n",
        16 + columns * (kWidth + kAcross), 16 + static_cast<int>(used.size()) * (kHeight + kDown));
    for (size_t i = 0; i < fused.size(); ++i) {
      for (const size_t from : fused[i].reads) {
        const int x0 = x(from) + kWidth / 2, y0 = y(from) + kHeight, x1 = x(i) + kWidth / 2,
                  y1 = y(i), bend = (y1 - y0) / 2;
        put("<path class=edge d=\"M{} {} C{} {} {} {} {} {}\"/>\n", x0, y0, x0, y0 + bend, x1,
            y1 - bend, x1, y1);
      }
    }
    for (size_t i = 0; i < fused.size(); ++i) {
      const auto found = row_of.find(&fused[i]);
      if (found == row_of.end()) continue;
      const Row& row = *found->second;
      constexpr size_t kMostLetters = 28;
      std::string label = fused[i].name;
      if (label.size() > kMostLetters) label = label.substr(0, kMostLetters - 2) + "..";
      const double share = total_ > 0 ? row.seconds() / total_ : 0;
      put("<a href=\"#k{}\"><title>{}</title><rect class=box x={} y={} width={} height={} rx=5 "
          "style=\"fill:rgb(var(--hot) / {:.2f})\"/><text x={} y={}>{}</text><text x={} "
          "y={}>{}</text></a>\n",
          row.index, esc(fused[i].name), x(i), y(i), kWidth, kHeight, 0.06 + 0.6 * share, x(i) + 10,
          y(i) + 19, esc(label), x(i) + 10, y(i) + 36,
          esc(seconds_text(row.seconds()) + "  " + percent(row.seconds(), total_)));
    }
    put("</svg></div>\n");
  }

  // --- Kernels
  // ------------------------------------------------------------------------------------

  // The share of the machine's speed that a kernel reaches, for memory and for arithmetic.
  std::string memory_share(const Row& row) const {
    if (row.timing) return percent(row.timing->least, row.seconds());
    return row.fused.empty()
               ? ""
               : percent(row.bytes / program_.target.memory_bytes_per_second, row.seconds());
  }
  std::string arithmetic_share(const Row& row) const {
    const double most = data_.timings.has_machine ? data_.timings.machine.flops_per_second
                                                  : program_.target.flops_per_second;
    if (measured_ && !data_.timings.has_machine) return "";
    return percent(row.flops / most, row.seconds());
  }

  void kernels() {
    heading("kernels", "Kernels");
    put("<div class=wide><table id=times><tr><th>kernel<th class=n>{}<th class=n>of all<th>{}<th "
        "class=n>read and written<th class=n>of memory's speed<th class=n>flops<th class=n>of "
        "f32's speed\n",
        measured_ ? "measured" : "estimated", measured_ ? "<th class=n>estimated" : "");
    for (const Row& row : rows_) {
      put("<tr><td>{}<td class=n>{}<td class=n>{}<td>{}", link(row),
          row.seconds() > 0 ? esc(seconds_text(row.seconds())) : "", percent(row.seconds(), total_),
          bar(row.seconds(), total_));
      if (measured_)
        put("<td class=n>{}", row.fused.empty() ? "" : esc(seconds_text(row.estimated())));
      put("<td class=n>{}<td class=n>{}<td class=n>{:.3g}<td class=n>{}\n",
          bytes_text(static_cast<uint64_t>(row.bytes)), memory_share(row), row.flops,
          arithmetic_share(row));
    }
    put("</table></div>\n<p class=note>The bytes count what a kernel reads of every input and "
        "writes of every output, once each. Data that fits into a cache can be faster than "
        "memory.</p>\n");
    for (const Row& row : rows_) kernel(row);
    rest_of_edges();
  }

  void kernel(const Row& row) {
    const Launch& launch = *row.launch;
    const bool copy = launch.artifact == Launch::kCopy;
    put("<details class=kernel><summary><code>{}</code> {}</summary>\n<div id=k{}>\n",
        esc(launch.name),
        copy ? "a copy"
             : fmt::format("{} op{}", launch.ops.size(), launch.ops.size() == 1 ? "" : "s"),
        row.index);
    put("<p>{} read, {} written, {} flops, instances <code>{}</code></p>\n",
        esc(bytes_amount(launch.bytes_read)), esc(bytes_amount(launch.bytes_written)),
        esc(flops_amount(launch.flops)), esc(instances_text(launch)));
    if (!launch.schedule.empty())
      put("<p>Schedule <code class=schedule>{}</code></p>\n", esc(launch.schedule));
    if (!launch.members.empty())
      put("<p>{} equal kernels in one launch: <code>{}</code></p>\n", launch.members.size(),
          esc(join(launch.members, ", ", std::identity())));
    for (const FusedKernel* fused : row.fused)
      put("<p>Estimated {}</p>\n", esc(fused->cost.to_string()));
    if (launch.is_kernel()) {
      const Artifact& artifact = program_.artifacts[launch.artifact];
      put("<p>Code: {}, {}{}</p>\n", esc(artifact.format),
          bytes_text(static_cast<uint64_t>(artifact.code.size())),
          artifact.maker.empty() ? "" : esc(" by " + artifact.maker));
    }
    phases(launch);
    put("<table class=ops><tr><th>op<th>line\n");
    for (const std::string& op : op_texts(program_, launch)) {
      const size_t at = op.rfind(" at ");
      const std::string where = at == std::string::npos ? "" : op.substr(at + 4);
      const bool known = places_.contains(where);
      put("<tr><td><code>{}</code><td>{}\n", esc(known ? op.substr(0, at) : op),
          known ? place(where) : "");
    }
    put("</table>\n");
    if (!row.fused.empty()) {
      std::vector<const Edge*> edges;
      for (const Edge& edge : data_.explanation.edges)
        if (row.computes(edge.consumer)) edges.push_back(&edge);
      edge_table(edges);
    }
    put("</div></details>\n");
  }

  void phases(const Launch& launch) {
    const std::vector<PhaseFacts> phases = phase_facts(program_, launch);
    if (phases.empty()) return;
    put("<table><tr><th>phase<th class=n>threads<th class=n>registers<th class=n>spilled<th "
        "class=n>stack<th class=n>shared<th class=n>blocks on a multiprocessor<th class=n>of its "
        "threads\n");
    for (const PhaseFacts& phase : phases)
      put("<tr><td><code>{}</code><td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td "
          "class=n>{}<td class=n>{}<td class=n>{:.0f} %\n",
          esc(phase.entry), phase.threads, phase.registers,
          bytes_text(static_cast<uint64_t>(phase.spill_bytes)),
          bytes_text(static_cast<uint64_t>(phase.stack_bytes)),
          bytes_text(static_cast<uint64_t>(phase.shared_bytes)), phase.resident_blocks,
          100 * phase.occupancy());
    put("</table>\n");
  }

  void edge_table(const std::vector<const Edge*>& edges) {
    if (edges.empty()) return;
    put("<table class=edges><tr><th>from<th>to<th>verdict<th>costs<th>line\n");
    for (const Edge* edge : edges)
      put("<tr><td><code>{}</code><td><code>{}</code><td title=\"{}\">{}<td>{}<td>{}\n",
          esc(edge->producer), esc(edge->consumer), esc(edge->reason->summary),
          esc(edge->reason->name), esc(edge->costs), place(edge->where));
    put("</table>\n");
  }

  // Edges to values that no kernel computes.
  void rest_of_edges() {
    std::vector<const Edge*> rest;
    for (const Edge& edge : data_.explanation.edges)
      if (std::none_of(rows_.begin(), rows_.end(),
                       [&](const Row& row) { return row.computes(edge.consumer); }))
        rest.push_back(&edge);
    if (rest.empty()) return;
    put("<details class=kernel><summary>edges to values that no kernel computes</summary><div>\n");
    edge_table(rest);
    put("</div></details>\n");
  }

  // --- Memory
  // -------------------------------------------------------------------------------------

  void memory() {
    struct Life {
      const Slot* slot;
      size_t first, last;
      double offset, bytes;
    };
    std::vector<Life> lives;
    double inputs = 0, outputs = 0, constants = 0;
    for (size_t s = 0; s < program_.slots.size(); ++s) {
      const Slot& slot = program_.slots[s];
      const double bytes = static_cast<double>(data_.sizes(slot.type.shape.numel())) *
                           static_cast<double>(size_of(slot.type.dtype));
      if (slot.kind == Slot::Kind::Input) inputs += bytes;
      if (slot.kind == Slot::Kind::Constant) constants += bytes;
      if (slot.kind == Slot::Kind::Output && !program_.outputs[slot.index].updates)
        outputs += bytes;
      if (slot.kind != Slot::Kind::Temporary || bytes == 0) continue;
      Life life{&slot, rows_.size(), 0, static_cast<double>(data_.sizes(slot.offset)), bytes};
      for (const Row& row : rows_) {
        const std::vector<uint32_t>& buffers = row.launch->buffers;
        if (std::find(buffers.begin(), buffers.end(), s) == buffers.end()) continue;
        life.first = std::min(life.first, row.index);
        life.last = row.index;
      }
      if (life.first < rows_.size()) lives.push_back(life);
    }
    heading("memory", "Memory");
    const auto text = [](double bytes) { return bytes_text(static_cast<uint64_t>(bytes)); };
    const auto arena = static_cast<double>(data_.sizes(program_.arena_bytes));
    put("<p>Inputs: {}. Constants: {}. Results, without those that take over the memory of inputs: "
        "{}. Temporaries: {}.</p>\n",
        text(inputs), text(constants), text(outputs), text(arena));
    if (lives.empty() || arena <= 0) return;
    put("<p class=note>The temporaries of a call. Its launches go from left to right, and "
        "addresses from the bottom to the top.</p>\n");
    const double step = std::clamp(900.0 / static_cast<double>(rows_.size()), 6.0, 120.0);
    constexpr double kHeight = 240;
    put("<div class=wide><svg id=arena width={:.0f} height={:.0f} role=img aria-label=\"temporary "
        "memory over the launches\"><rect x=0 y=0 width={:.1f} height={:.0f} fill=none "
        "class=box />\n",
        step * static_cast<double>(rows_.size()) + 2, kHeight + 2,
        step * static_cast<double>(rows_.size()), kHeight);
    for (const Life& life : lives) {
      const double height = std::max(kHeight * life.bytes / arena, 1.0);
      put("<rect class=box x={:.1f} y={:.1f} width={:.1f} height={:.1f} "
          "style=\"fill:rgb(var(--hot) "
          "/ .35)\"><title>{}: {}, from {} to {}</title></rect>\n",
          step * static_cast<double>(life.first),
          std::max(kHeight - kHeight * life.offset / arena - height, 0.0),
          step * static_cast<double>(life.last - life.first + 1), height, esc(life.slot->label),
          text(life.bytes), esc(rows_[life.first].launch->name),
          esc(rows_[life.last].launch->name));
    }
    put("</svg></div>\n<table><tr><th>launch<th class=n>temporaries in use\n");
    for (const Row& row : rows_) {
      double live = 0;
      for (const Life& life : lives)
        if (life.first <= row.index && row.index <= life.last) live += life.bytes;
      put("<tr><td>{}<td class=n>{}<td>{}\n", link(row), text(live), bar(live, arena));
    }
    put("</table>\n");
  }

  // --- The rest
  // -----------------------------------------------------------------------------------

  void compile_time() {
    const CompileTimes& times = data_.compile;
    heading("compile", "Time of compiling");
    put("<p>{}: {} of work on {} thread{}.</p>\n<table><tr><th>step<th class=n>work<th "
        "class=n>share<th><th class=n>times\n",
        seconds_text(times.elapsed), seconds_text(times.work), times.threads,
        times.threads == 1 ? "" : "s");
    for (const StepTime& step : times.steps)
      put("<tr><td>{}<td class=n>{}<td class=n>{}<td>{}<td class=n>{}\n", esc(step.step),
          seconds_text(step.seconds), percent(step.seconds, times.work),
          bar(step.seconds, times.work), step.times);
    put("</table>\n<details><summary>by kernel</summary><table><tr><th>kernel<th "
        "class=n>work\n");
    for (const KernelTime& kernel : times.kernels)
      put("<tr><td><code>{}</code><td class=n>{}<td>{}\n", esc(kernel.kernel),
          seconds_text(kernel.seconds), bar(kernel.seconds, times.work));
    put("</table></details>\n");
  }

  void reasons() {
    std::map<std::string_view, std::pair<std::string_view, int>> counts;
    for (const Edge& edge : data_.explanation.edges) {
      auto& [summary, count] = counts[edge.reason->name];
      summary = edge.reason->summary;
      ++count;
    }
    if (counts.empty()) return;
    heading("reasons", "What the verdicts mean");
    put("<table><tr><th>verdict<th class=n>edges<th>meaning\n");
    for (const auto& [reason, known] : counts)
      put("<tr><td>{}<td class=n>{}<td>{}\n", esc(reason), known.second, esc(known.first));
    put("</table>\n");
  }

  void source() {
    heading("source", "The graph's text");
    put("<p><code>{}</code></p>\n<ol class=source>\n", esc(data_.file));
    size_t line = 1;
    for (size_t begin = 0; begin < data_.text.size(); ++line) {
      const size_t end = std::min(data_.text.find('\n', begin), data_.text.size());
      put("<li id=L{}><code>{}</code>\n", line,
          esc(std::string_view(data_.text).substr(begin, end - begin)));
      begin = end + 1;
    }
    put("</ol>\n");
  }

  const ReportData& data_;
  const Program& program_;
  const bool measured_;
  std::map<std::string, SourceLocation> places_;
  std::vector<Row> rows_;
  double total_ = 0;  ///< seconds of all kernels
  std::string out_;
};

}  // namespace

std::string report_page(const ReportData& data) { return Page(data).html(); }

}  // namespace braze::tool
