// bench-models — loads a model and calls it for as long as it is told. run.py measures it in turns
// with a peer.
//
// Usage: bench-models FILE [--device NAME] [--symbol NAME=SIZE]... NAME=FILE.npy...
// Prints "ready", the wall and CPU seconds of the import and of the compilation and preparation of
// weights, which nothing is cached of, and writes the first results beside each other into
// FILE.results.npz. Then, for each number on stdin, calls the model for so many seconds, at least
// three times, and prints the median and the least milliseconds.
#include <braze/braze.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace braze;

double wall() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Prints the seconds since the last call.
class Laps {
 public:
  void print() {
    const double w = wall(), c = cpu();
    std::cout << " " << w - wall_ << " " << c - cpu_;
    wall_ = w, cpu_ = c;
  }

 private:
  double wall_ = wall(), cpu_ = cpu();
};

std::pair<std::string, std::string> halves(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos) throw std::runtime_error(text + " must be NAME=VALUE");
  return {text.substr(0, at), text.substr(at + 1)};
}

void run(const std::vector<std::string>& arguments) {
  ImportOptions options;
  std::map<std::string, std::string> files;
  Device device("cpu");
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "--symbol" && i + 1 < arguments.size()) {
      const auto [name, size] = halves(arguments[++i]);
      options.sizes.insert_or_assign(name, Dim(std::stol(size)));
    } else if (arguments[i] == "--device" && i + 1 < arguments.size()) {
      device = Device(arguments[++i].c_str());
    } else {
      const auto [name, file] = halves(arguments[i]);
      files.insert_or_assign(name, file);
    }
  }
  std::map<std::string, Array> inputs;
  for (const auto& [name, file] : files) inputs.emplace(name, load_npy(file, device));
  Laps laps;
  std::cout << "ready";
  const Model model = load_model(arguments.at(0), options);
  laps.print();
  static_cast<void>(model.executable(device));
  laps.print();
  save_npz(arguments[0] + ".results.npz", model.run(inputs));
  std::cout << std::endl;

  std::vector<Array> in_order;
  for (const Model::Value& input : model.inputs()) in_order.push_back(inputs.at(input.name));
  for (double seconds = 0; std::cin >> seconds;) {
    std::vector<double> times;
    for (const double end = wall() + seconds; wall() < end || times.size() < 3;) {
      const double start = wall();
      for (const Array& result : model.run(in_order)) result.wait();
      times.push_back(1e3 * (wall() - start));
    }
    std::ranges::sort(times);
    std::cout << times[times.size() / 2] << " " << times[0] << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "bench-models: " << error.what() << "\n";
    return 1;
  }
}
