#include "tests/models/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

namespace braze::test {

namespace {

namespace fs = std::filesystem;

struct Row {
  int right = 0, apart = 0, refused = 0, wrong = 0;
  std::map<std::string, int> reasons = {};

  int total() const { return right + refused + wrong; }
  double share() const { return total() ? static_cast<double>(right) / total() : 0; }
  // "90 (90.0 %) | 3 | 8 | 2 |"
  std::string cells(bool with_share = false) const {
    return fmt::format("{}{} | {} | {} | {} |", right,
                       with_share ? fmt::format(" ({:.1f} %)", 100 * share()) : "", apart, refused,
                       wrong);
  }
};

struct Options {
  std::string folder, only, results, device = "cpu";
  double floor = 0;
  size_t threads = 1;
  bool ops = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (argument == "--ops")
      options.ops = true;
    else if (argument == "--device")
      options.device = value();
    else if (argument == "--only")
      options.only = value();
    else if (argument == "--results")
      options.results = value();
    else if (argument == "--floor")
      options.floor = std::stod(value());
    else if (argument == "--threads")
      options.threads = std::stoul(value());
    else
      options.folder = argument;
  }
  return options;
}

// The first line that names a node, without the name.
std::string reason_of(const Suite& suite, const std::string& why) {
  const size_t node = why.find("\n  ");
  const std::string line = node == std::string::npos ? why : suite.reason(why.substr(node + 3));
  return line.substr(0, line.find_first_of("\n;"));
}

std::string reasons_text(const Row& row) {
  std::string text;
  for (const auto& [reason, count] : row.reasons)
    text += (text.empty() ? "" : "; ") +
            (row.reasons.size() > 1 ? fmt::format("{}: ", count) : "") + reason;
  std::ranges::replace(text, '|', '/');
  return text;
}

// In the order of the cases.
std::vector<Judged> judge_all(const Suite& suite, const std::vector<fs::path>& cases,
                              const Device& device, size_t threads) {
  std::vector<Judged> out(cases.size());
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> workers;
  for (size_t t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (size_t i = next++; i < cases.size(); i = next++) {
        out[i] = suite.judge(cases[i], device);
        if (out[i].outcome.verdict == Verdict::Wrong) {
          fmt::print("WRONG   {}: {}\n", out[i].name, out[i].outcome.why);
          std::fflush(stdout);
        }
      }
    });
  workers.clear();
  return out;
}

}  // namespace

std::string without_path(const std::string& message, const fs::path& file) {
  if (!message.starts_with(file.string())) return message;
  return message.substr(
      std::min(message.find_first_not_of(": ", file.string().size()), message.size()));
}

int run_suite(const Suite& suite, int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.ops) {
    suite.print_ops();
    return 0;
  }
  if (options.folder.empty()) {
    fmt::print(stderr,
               "usage: {} FOLDER [--device D] [--only TEXT] [--results FILE] [--floor SHARE] "
               "[--threads N] | --ops\n",
               suite.program);
    return 2;
  }
  const Device device(options.device.c_str());
  std::vector<fs::path> cases;
  for (const auto& entry : fs::directory_iterator(options.folder))
    if (suite.is_case(entry.path()) &&
        entry.path().filename().string().find(options.only) != std::string::npos)
      cases.push_back(entry.path());
  std::ranges::sort(cases);

  std::map<std::string, Row> by_subject, by_group;
  Row ours, all;
  for (const Judged& judged : judge_all(suite, cases, device, options.threads)) {
    const auto& [verdict, is_apart, why] = judged.outcome;
    if (verdict == Verdict::Refused && !options.only.empty())
      fmt::print("refused {}: {}\n", judged.name, why);
    for (Row* row : {&by_subject[judged.subject], &all,
                     judged.group.empty() ? &ours : &by_group[judged.group]}) {
      row->right += verdict == Verdict::Right;
      row->apart += verdict == Verdict::Right && is_apart;
      row->refused += verdict == Verdict::Refused;
      row->wrong += verdict == Verdict::Wrong;
      if (verdict == Verdict::Refused) ++row->reasons[reason_of(suite, why)];
    }
  }

  std::string text = fmt::format(
      "| cases | right | {} | refused | wrong |\n"
      "| --- | ---: | ---: | ---: | ---: |\n"
      "| all {} | {}\n| {} {} | {}\n",
      suite.apart, all.total(), all.cells(), ours.total(), suite.floor, ours.cells(true));
  for (const auto& [group, row] : by_group)
    text += fmt::format("| {} {} {} | {}\n", row.total(), suite.in_group, group, row.cells());
  text +=
      fmt::format("\n| {} | cases | right | refused | why |\n| --- | ---: | ---: | ---: | --- |\n",
                  suite.subject);
  for (const auto& [subject, row] : by_subject)
    text += fmt::format("| {} | {} | {} | {} | {} |\n", subject, row.total(), row.right,
                        row.refused, reasons_text(row));
  if (!options.results.empty())
    std::ofstream(options.results) << fmt::format("# {} on {}\n\nWritten by {}.\n\n{}", suite.title,
                                                  options.device, suite.script, text);
  fmt::print("{} {} on {}: {} right, {} refused, {} wrong; {:.1f} % of those {} are right\n",
             all.total(), suite.items, options.device, all.right, all.refused, all.wrong,
             100 * ours.share(), suite.floor);
  return all.wrong > 0 || ours.share() < options.floor ? 1 : 0;
}

}  // namespace braze::test
