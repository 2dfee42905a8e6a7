// suite.h — runs the cases of a suite of models on a device, and writes which are right, by subject
// and by reason.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "braze/device.h"

namespace braze::test {

enum class Verdict { Right, Refused, Wrong };  ///< refused: the import says why
struct Outcome {
  Verdict verdict = Verdict::Right;
  bool is_apart = false;  ///< right, and counted apart as well
  std::string why = {};
};

/// A case, as the tables name it.
struct Judged {
  Outcome outcome;
  std::string name, subject;
  std::string group = {};  ///< what the floor leaves out; empty for others
};

/// The message of an error about a file, without the file's path in front.
std::string without_path(const std::string& message, const std::filesystem::path& file);

struct Suite {
  std::string program;   ///< "onnx-cases"
  std::string title;     ///< of the page of results
  std::string script;    ///< that writes the page
  std::string items;     ///< "cases": what it has
  std::string apart;     ///< heading of those counted apart
  std::string floor;     ///< "without loops": what the floor is about
  std::string in_group;  ///< "about": between a count and a group
  std::string subject;   ///< heading
  std::function<bool(const std::filesystem::path&)> is_case;
  std::function<Judged(const std::filesystem::path&, const Device&)> judge;  ///< by many threads
  /// The reason behind the name of a node, and what stands between the two.
  std::function<std::string(const std::string& line)> reason;
  std::function<void()> print_ops;
};

/// PROGRAM FOLDER [--device D] [--only TEXT] [--results FILE.md] [--floor SHARE] [--threads N]
/// PROGRAM --ops    prints the operations that are imported
///
/// The exit status: 1 if a case is wrong, or if fewer than SHARE of those without a group are
/// right.
int run_suite(const Suite& suite, int argc, char** argv);

}  // namespace braze::test
