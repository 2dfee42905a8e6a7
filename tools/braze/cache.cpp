// cache.cpp — braze cache: shows the compiled programs and kernels that are kept, checks them, and
// explains why a program was not found.
#include "tools/braze/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "frontend/builder/program_cache.h"
#include "ir/program/package.h"
#include "ir/support/text.h"
#include "ir/support/words.h"
#include "runtime/cache/disk_cache.h"
#include "tools/braze/arguments.h"
#include "tools/braze/command.h"
#include "tools/braze/options.h"
#include "tools/braze/report.h"
#include "tools/braze/source.h"

namespace braze::tool {

namespace {

using Files = std::vector<CacheFolder::File>;

struct Options {
  std::string action, source, device, max_size, older_than;
  bool remove = false, all = false, dry_run = false, json = false;
  CompileFlags compile;
};

// --- Words ---------------------------------------------------------------------------------------

constexpr struct {
  char letter;
  std::string_view name;
  double seconds;
} kUnits[] = {
    {'d', "days", 86400}, {'h', "hours", 3600}, {'m', "minutes", 60}, {'s', "seconds", 1}};

std::string age_text(CacheClock::time_point used) {
  const double age = std::chrono::duration<double>(CacheClock::now() - used).count();
  for (const auto& unit : kUnits)
    if (age >= 2 * unit.seconds)
      return fmt::format("{:.0f} {} ago", std::floor(age / unit.seconds), unit.name);
  return "just now";
}

std::chrono::seconds parse_age(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  for (const auto& unit : kUnits)
    if (value >= 0 && value < 1e6 && end != text.c_str() && end[0] == unit.letter && end[1] == '\0')
      return std::chrono::seconds(static_cast<int64_t>(value * unit.seconds));
  fail_usage(fmt::format("--older-than must be a time such as 30d, 12h, 5m or 10s, not {}", text));
}

uint64_t parse_size(const std::string& text) {
  if (const auto bytes = parse_bytes(text)) return *bytes;
  fail_usage(fmt::format("--max-size must be a number of bytes, such as 512M or 2G, not {}", text));
}

uint64_t bytes_of(const Files& files) {
  uint64_t bytes = 0;
  for (const CacheFolder::File& file : files) bytes += file.bytes;
  return bytes;
}

// Entries are programs and codes of kernels. Which of them it is stands in the file.
std::string entries_text(size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "entry" : "entries");
}

double seconds_since(CacheClock::time_point used) {
  return std::chrono::duration<double>(CacheClock::now() - used).count();
}

// For commands that work in the folder. The cache has no folder if nothing was stored yet.
CacheView usable_cache() {
  CacheView cache = view_cache();
  if (!cache.refusal.empty()) throw Failure{Exit::BadFile, "the cache is " + cache.state};
  return cache;
}

// --- stat ----------------------------------------------------------------------------------------

Exit stat(const Options& options) {
  const CacheView cache = view_cache();
  const Files entries = cache.folder ? cache.folder->entries() : Files();
  const size_t orphans =
      cache.folder ? cache.folder->orphans(std::chrono::seconds(0)).size() : size_t{0};
  if (options.json) {
    json::Members members = {{"folder", json::string(cache.settings.folder)},
                             {"state", json::string(cache.state)},
                             {"entries", std::to_string(entries.size())},
                             {"bytes", std::to_string(bytes_of(entries))},
                             {"max_bytes", std::to_string(cache.settings.max_bytes)},
                             {"unfinished", std::to_string(orphans)}};
    if (!entries.empty()) {
      members.push_back({"oldest_use_s", json::number(seconds_since(entries.front().used))});
      members.push_back({"newest_use_s", json::number(seconds_since(entries.back().used))});
    }
    json::print(members);
    return Exit::Ok;
  }
  const auto line = [](std::string_view what, const std::string& text) {
    fmt::print("  {:<12}{}\n", what, text);
  };
  line("folder", cache.settings.folder);
  line("state", cache.state);
  line("entries", std::to_string(entries.size()));
  line("size", fmt::format("{} of {}", bytes_text(bytes_of(entries)),
                           bytes_text(cache.settings.max_bytes)));
  if (!entries.empty())
    line("used", fmt::format("{}; the oldest {}", age_text(entries.back().used),
                             age_text(entries.front().used)));
  if (orphans > 0) line("unfinished", count_text(orphans, "file"));
  return Exit::Ok;
}

// --- verify --------------------------------------------------------------------------------------

SignedBytes parts_of(const CacheFolder::Reading& file) {
  return split_signature(std::as_bytes(std::span(file.bytes)));
}

// The reason why an entry is not used; empty if it is used.
std::string fault_of(const CacheView& cache, const CacheFolder::Reading& file,
                     const std::string& name) {
  if (file.error == std::errc::no_such_file_or_directory) return "the cache has no such entry";
  if (file.error && !file.untrusted) return file.error.message();
  const EntryView entry = view_entry(file, name, cache.settings.trusted);
  if (!entry.fault.empty()) return std::string(entry.fault);
  try {
    decode(std::as_bytes(std::span(entry.payload)), name);
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

// The same, or what is wrong with the signature, although no signature is demanded.
std::string any_fault_of(const CacheView& cache, const CacheFolder::Reading& file,
                         const std::string& name) {
  std::string fault = fault_of(cache, file, name);
  const SignedBytes parts = parts_of(file);
  if (fault.empty() && parts.signer && has_signatures())
    fault = signature_fault(parts, {*parts.signer});
  return fault;
}

// Whether an entry is useful to those who trust its maker, although not here: it is complete,
// signed, and in a shared folder.
bool is_anothers(const CacheView& cache, const CacheFolder::Reading& file) {
  const SignedBytes parts = parts_of(file);
  const PublicKeys& trusted = cache.settings.trusted;
  return cache.folder->shared() && parts.signer &&
         std::ranges::find(trusted, *parts.signer) == trusted.end() &&
         signature_fault(parts, {*parts.signer}).empty();
}

Exit verify(const Options& options) {
  const CacheView cache = usable_cache();
  const Files entries = cache.folder ? cache.folder->entries() : Files();
  std::vector<std::string> items;
  size_t faulty = 0, removed = 0, untrusted = 0;
  std::map<std::string, size_t> signers;  // the number of entries that each has signed
  for (const CacheFolder::File& file : entries) {
    const CacheFolder::Reading reading = cache.folder->read(file.name);
    const std::string fault = any_fault_of(cache, reading, file.name);
    if (fault.empty()) {
      if (const auto signer = parts_of(reading).signer) ++signers[signer->to_string()];
      continue;
    }
    if (is_anothers(cache, reading)) {
      ++untrusted;
      continue;
    }
    ++faulty;
    const std::error_code error =
        options.remove ? cache.folder->remove(file.name) : std::error_code();
    const bool gone = options.remove && !error;
    removed += gone;
    items.push_back(json::object({{"name", json::string(file.name)},
                                  {"fault", json::string(fault)},
                                  {"removed", json::boolean(gone)},
                                  {"removal_error", json::string(error ? error.message() : "")}}));
    if (!options.json)
      fmt::print("{}: {}{}\n", file.name, fault,
                 gone    ? " (removed)"
                 : error ? fmt::format(" (not removed: {})", error.message())
                         : "");
  }
  if (options.json) {
    json::Members signed_by;
    for (const auto& [key, count] : signers) signed_by.push_back({key, std::to_string(count)});
    json::print({{"entries", std::to_string(entries.size())},
                 {"faulty", json::array(items)},
                 {"not_trusted", std::to_string(untrusted)},
                 {"signed_by", json::object(signed_by)}});
  } else {
    fmt::print("{}, {} faulty\n", entries_text(entries.size()), faulty);
    if (untrusted > 0)
      fmt::print("  signed by keys that are not trusted here: {}\n", entries_text(untrusted));
    for (const auto& [key, count] : signers)
      fmt::print("  signed by {}: {}\n", key, entries_text(count));
  }
  return faulty == removed ? Exit::Ok : Exit::BadFile;
}

// --- prune ---------------------------------------------------------------------------------------

struct Unremoved {
  size_t count = 0;
  std::error_code why;  // of the last
};

// Leaves those in `files` that are removed. A file that another process removed first counts as
// removed.
Unremoved remove_all(const CacheFolder& folder, Files& files) {
  Unremoved stayed;
  std::erase_if(files, [&](const CacheFolder::File& file) {
    const std::error_code error = folder.remove(file.name);
    if (error && error != std::errc::no_such_file_or_directory) {
      ++stayed.count;
      stayed.why = error;
    }
    return bool(error);
  });
  return stayed;
}

Exit prune(const Options& options) {
  if (!options.all && options.max_size.empty() && options.older_than.empty())
    fail_usage("prune needs --max-size, --older-than or --all to say what to remove");
  const uint64_t max_bytes = options.all                ? 0
                             : options.max_size.empty() ? UINT64_MAX
                                                        : parse_size(options.max_size);
  const CacheClock::time_point oldest = options.older_than.empty()
                                            ? CacheClock::time_point()
                                            : CacheClock::now() - parse_age(options.older_than);
  const std::optional<CacheFolder> folder = usable_cache().folder;
  Files files;
  if (folder) {
    files = superfluous(folder->entries(), max_bytes, oldest);
    const Files orphans =
        folder->orphans(options.all ? std::chrono::seconds(0) : std::chrono::hours(1));
    files.insert(files.end(), orphans.begin(), orphans.end());
  }
  const Unremoved stayed = options.dry_run || !folder ? Unremoved() : remove_all(*folder, files);
  if (options.json)
    json::print({{"removed", std::to_string(files.size())},
                 {"bytes", std::to_string(bytes_of(files))},
                 {"not_removed", std::to_string(stayed.count)},
                 {"dry_run", json::boolean(options.dry_run)}});
  else
    fmt::print("{} {}, {}\n", options.dry_run ? "would remove" : "removed",
               count_text(files.size(), "file"), bytes_text(bytes_of(files)));
  if (stayed.count > 0)
    throw Failure{Exit::BadFile,
                  fmt::format("{} of {} could not be removed: {}", count_text(stayed.count, "file"),
                              folder->path(), stayed.why.message())};
  return Exit::Ok;
}

// --- explain -------------------------------------------------------------------------------------

// The key of another program, and how it differs.
struct Neighbour {
  CacheFolder::File file;
  std::vector<KeyDifference> parts;

  size_t lines() const {
    size_t count = 0;
    for (const KeyDifference& part : parts) count += part.ours.size() + part.theirs.size();
    return count;
  }
};

// The programs whose keys are most similar to `key`, the most similar first.
std::vector<Neighbour> neighbours(const CacheView& cache, const std::string& key) {
  constexpr size_t kShown = 3;
  std::vector<Neighbour> found;
  for (const CacheFolder::File& file : cache.folder->entries()) {
    const CacheFolder::Reading reading = cache.folder->read(file.name);
    const EntryView entry = view_entry(reading, file.name, cache.settings.trusted);
    if (entry.fault.empty() && !is_kernel_code(entry.key))
      found.push_back({file, differences(key, entry.key)});
  }
  std::stable_sort(found.begin(), found.end(), [](const Neighbour& a, const Neighbour& b) {
    return std::pair(a.parts.size(), a.lines()) < std::pair(b.parts.size(), b.lines());
  });
  if (found.size() > kShown) found.resize(kShown);
  return found;
}

void print_part(const KeyDifference& part) {
  static constexpr size_t kLines = 4;
  const auto print = [](char sign, const std::vector<std::string>& lines) {
    for (size_t i = 0; i < std::min(kLines, lines.size()); ++i)
      fmt::print("      {} {}\n", sign, lines[i]);
    if (lines.size() > kLines) fmt::print("      {} and {} more\n", sign, lines.size() - kLines);
  };
  fmt::print("    {}\n", part.name);
  print('+', part.ours);
  print('-', part.theirs);
}

std::string neighbour_json(const Neighbour& neighbour) {
  const auto lines = [](const std::vector<std::string>& texts) {
    std::vector<std::string> items;
    for (const std::string& text : texts) items.push_back(json::string(text));
    return json::array(items);
  };
  std::vector<std::string> parts;
  for (const KeyDifference& part : neighbour.parts)
    parts.push_back(json::object({{"name", json::string(part.name)},
                                  {"here", lines(part.ours)},
                                  {"there", lines(part.theirs)}}));
  return json::object(
      {{"name", json::string(neighbour.file.name)}, {"differs", json::array(parts)}});
}

void print_neighbour(const Neighbour& neighbour) {
  fmt::print("  {}, used {}, differs in {}\n", neighbour.file.name, age_text(neighbour.file.used),
             join(neighbour.parts, ", ", [](const KeyDifference& part) { return part.name; }));
  for (const KeyDifference& part : neighbour.parts) print_part(part);
}

Exit explain_key(const Options& options, const CacheKey& key) {
  const std::string name = key.name();
  const CacheView cache = view_cache();
  const std::string fault =
      cache.folder ? fault_of(cache, cache.folder->read(name), name) : cache.state;
  const std::vector<Neighbour> near =
      cache.folder && !fault.empty() ? neighbours(cache, key.text()) : std::vector<Neighbour>();
  if (options.json) {
    std::vector<std::string> items;
    for (const Neighbour& neighbour : near) items.push_back(neighbour_json(neighbour));
    json::print({{"name", json::string(name)},
                 {"hit", json::boolean(fault.empty())},
                 {"why", json::string(fault)},
                 {"nearest", json::array(items)}});
    return Exit::Ok;
  }
  if (fault.empty()) {
    fmt::print("hit: {}\n", name);
    return Exit::Ok;
  }
  fmt::print("miss: {} ({})\n", name, fault);
  if (!near.empty()) fmt::print("the nearest entries (+ requested, - in the cache):\n");
  for (const Neighbour& neighbour : near) print_neighbour(neighbour);
  return Exit::Ok;
}

bool is_entry_name(const std::string& text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

Exit show_entry(const Options& options) {
  const CacheView cache = usable_cache();
  if (!cache.folder) throw Failure{Exit::BadFile, options.source + ": the cache is empty"};
  const CacheFolder::Reading file = cache.folder->read(options.source);
  const std::string fault = any_fault_of(cache, file, options.source);
  if (!fault.empty()) throw Failure{Exit::BadFile, fmt::format("{}: {}", options.source, fault)};
  const EntryView entry = view_entry(file, options.source, cache.settings.trusted);
  const auto key = parts_of(file).signer;
  const std::string signer = key ? key->to_string() : "";
  if (options.json) {
    json::print({{"name", json::string(options.source)},
                 {"bytes", std::to_string(file.bytes.size())},
                 {"used_s", json::number(seconds_since(file.used))},
                 {"signed_by", key ? json::string(signer) : "null"},
                 {"key", json::string(entry.key)}});
    return Exit::Ok;
  }
  fmt::print("{}, {}, used {}\n", options.source, bytes_text(file.bytes.size()),
             age_text(file.used));
  if (key) fmt::print("signed by {}\n", signer);
  fmt::print("{}", entry.key);
  return Exit::Ok;
}

Exit explain(const Options& options) {
  if (is_entry_name(options.source)) return show_entry(options);
  const Source source = read_source(options.source);
  const Device device = options.device.empty() ? default_device() : find_device(options.device);
  const Target& target = device.target();
  const CompileOptions compile = options.compile.options(target);
  return std::visit(
      [&](const auto& code) { return explain_key(options, program_key(code, target, compile)); },
      source);
}

// --- The command ---------------------------------------------------------------------------------

constexpr std::pair<std::string_view, Exit (*)(const Options&)> kActions[] = {
    {"stat", stat}, {"verify", verify}, {"prune", prune}, {"explain", explain}};

std::vector<std::string> action_names() {
  std::vector<std::string> names;
  for (const auto& [action, run] : kActions) names.emplace_back(action);
  return names;
}

// Options belong to actions, and a read-only cache stays as it is.
void check_options(const Options& options) {
  const bool prunes = options.action == "prune";
  if (options.remove && options.action != "verify")
    fail_usage("--delete is an option of `braze cache verify` only");
  if (!prunes &&
      (options.all || options.dry_run || !options.max_size.empty() || !options.older_than.empty()))
    fail_usage(
        "--all, --max-size, --older-than and --dry-run are options of `braze cache prune` only");
  const bool removes = options.remove || (prunes && !options.dry_run);
  if (removes && CacheSettings::of_process().mode == CacheMode::ReadOnly)
    fail_usage("nothing is removed, because BRAZE_CACHE is readonly");
}

Exit act(const Options& options) {
  check_options(options);
  const bool explains = options.action == "explain";
  if (explains && options.source.empty())
    fail_usage("explain needs the file of a program, or the name of an entry");
  if (!explains && !options.source.empty())
    fail_usage(fmt::format("cache {} does not take a file", options.action));
  for (const auto& [action, run] : kActions)
    if (action == options.action) return run(options);
  const std::vector<std::string> names = action_names();
  fail_usage(fmt::format("{} is not an action; the actions are {}{}", options.action,
                         fmt::join(names, ", "), did_you_mean(options.action, names)));
}

std::function<Exit()> add(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.add_option("ACTION", options->action, "stat, verify, prune or explain")
      .required()
      .offers(action_names());
  arguments.add_option("FILE", options->source,
                       "explain: graph, loop, tile or kernel text, or the name of an entry");
  arguments.add_flag("--delete", options->remove, "verify: remove the faulty entries");
  arguments.add_option("--max-size", options->max_size,
                       "prune: the size to which the cache is reduced, such as 512M");
  arguments.add_option("--older-than", options->older_than,
                       "prune: remove what was not used for 30d, 12h, 5m ...");
  arguments.add_flag("--all", options->all, "prune: remove everything");
  arguments.add_flag("--dry-run", options->dry_run, "prune: only say what would be removed");
  arguments.add_device(options->device, "explain: ");
  options->compile.add_to(arguments);
  arguments.add_flag("--json", options->json, "Print JSON");
  return [options] { return act(*options); };
}

}  // namespace

CacheView view_cache() {
  CacheView view{CacheSettings::of_process()};
  view.state = name(view.settings.mode);
  const auto refuse = [&view](const std::string& why) {
    view.refusal = why;
    view.state = "off: " + why;
  };
  if (!view.settings.sign_fault.empty()) view.state += ", cannot sign: " + view.settings.sign_fault;
  if (!view.settings.refusal.empty()) {
    refuse(view.settings.refusal);
    return view;
  }
  if (view.settings.folder.empty()) {
    refuse("neither HOME nor BRAZE_CACHE_DIR names a folder");
    return view;
  }
  try {
    view.folder = CacheFolder::open(view.settings.folder, false, !view.settings.trusted.empty());
    if (view.folder->shared()) view.state += ", shared: signed programs only";
  } catch (const Error& error) {
    if (&error.code() == &codes::kFileMissing)
      view.state += ", empty";
    else
      refuse(error.message() + (error.fix().empty() ? "" : fmt::format(" ({})", error.fix())));
  }
  return view;
}

std::string summary(const CacheView& cache) {
  if (!cache.folder) return fmt::format("{} ({})", cache.settings.folder, cache.state);
  const Files entries = cache.folder->entries();
  return fmt::format("{}, {}, {}, {} of {}", cache.state, cache.settings.folder,
                     entries_text(entries.size()), bytes_text(bytes_of(entries)),
                     bytes_text(cache.settings.max_bytes));
}

const Command kCache = {
    "cache", "Shows, checks and prunes the cache of compiled programs.",
    "  braze cache stat\n  braze cache verify --delete          # checks every entry, and removes "
    "the faulty\n  braze cache prune --older-than 30d --max-size 512M\n  braze cache explain "
    "softmax.braze    # hit or miss, and what differs\n",
    add};

}  // namespace braze::tool
