// Trains a classifier of handwritten digits. One compiled function does a whole step: forward,
// gradients, AdamW, in place. Usage: digits [--device NAME] [--mesh data=N] [--threads N]
// [--epochs N] [--save FOLDER] [--trace FILE]
#include <braze/braze.h>
#include <braze/io.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "data.h"

using namespace braze;

namespace {

constexpr int64_t kBatch = 64;
constexpr int64_t kTrained = 1347;  // the first lines; the others are held out

// Beside the program or one folder up, where a bundle has it; else where this was built.
std::string find_data() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& file : {folder / "digits.csv.gz", folder.parent_path() / "digits.csv.gz"})
    if (fs::exists(file, error)) return file;
  return DIGITS_FILE;
}

struct Options {
  Device device = default_device();
  int devices = 1;  // each takes a part of every batch
  int threads = 0;  // 0: as many as the machine has
  int epochs = 40;
  std::string data = find_data();
  std::string save;  // folder for what it takes to run the model elsewhere; empty: none
};

// Of "data=N" the N; 0 if there is anything else, such as a second axis.
int count_of(const std::string& text) {
  const bool is_number =
      !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::stoi(text) : 0;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) throw std::runtime_error(option + " needs a value");
    if (option == "--device")
      options.device = Device(argv[i + 1]);
    else if (option == "--mesh" && std::string(argv[i + 1]).starts_with("data="))
      options.devices = count_of(argv[i + 1] + 5);
    else if (option == "--threads")
      options.threads = std::stoi(argv[i + 1]);
    else if (option == "--epochs")
      options.epochs = std::stoi(argv[i + 1]);
    else if (option == "--trace") {
      if (!start_trace(argv[i + 1])) throw std::runtime_error("--trace needs a file to write");
    } else if (option == "--data")
      options.data = argv[i + 1];
    else if (option == "--save")
      options.save = argv[i + 1];
    else
      throw std::runtime_error(
          "usage: digits [--device NAME] [--mesh data=N] [--threads N] [--epochs N] [--data FILE] "
          "[--save FOLDER] [--trace FILE]");
  }
  if (options.epochs < 1) throw std::runtime_error("--epochs is at least 1");
  if (options.devices < 1) throw std::runtime_error("--mesh is data=N, with one device or more");
  return options;
}

// ---- The model --------------------------------------------------------------------------------

struct Model {
  Parameters parameters = nn::mlp_parameters({digits::kPixels, 256, 128, 10}, random::Key(1));
  Parameters state = optim::adamw_state(parameters);
};

/// The loss, and beside it the share of digits that are right.
std::pair<Tensor, Tensor> loss_and_accuracy(Weights parameters, Tensor pixels, Tensor labels) {
  const Tensor logits = nn::mlp(parameters, pixels);
  return {nn::cross_entropy(logits, labels), nn::accuracy(logits, labels)};
}

/// (parameters, state, pixels [n, 64], labels [n]) -> (parameters, state, loss, accuracy).
std::tuple<Weights, Weights, Tensor, Tensor> training_step(Weights parameters, Weights state,
                                                           Tensor pixels, Tensor labels) {
  const auto [value, gradient] = value_and_grad(loss_and_accuracy)(parameters, pixels, labels);
  const auto [updated, next] = optim::adamw(parameters, gradient, state);
  return {updated, next, value.first, value.second};
}

/// The same of a batch whose last rows only fill it up: `mask` [n] is true for those that count.
std::pair<Tensor, Tensor> loss_and_accuracy_of_part(Weights parameters, Tensor pixels,
                                                    Tensor labels, Tensor mask) {
  const Tensor logits = nn::mlp(parameters, pixels);
  const Tensor right = cast(argmax(logits, -1) == labels, f32);
  return {masked_mean(nn::cross_entropy_rows(logits, labels), mask), masked_mean(right, mask)};
}
std::tuple<Weights, Weights, Tensor, Tensor> padded_step(Weights parameters, Weights state,
                                                         Tensor pixels, Tensor labels,
                                                         Tensor mask) {
  const auto [value, gradient] =
      value_and_grad(loss_and_accuracy_of_part)(parameters, pixels, labels, mask);
  const auto [updated, next] = optim::adamw(parameters, gradient, state);
  return {updated, next, value.first, value.second};
}

/// It for any batch of 1 to 64, taking over the memory of the first two.
auto make_step(CompileOptions compile = {}) {
  return jit(training_step,
             {as_given, as_given, spec(f32, {"n:1..64", digits::kPixels}), spec(i64, {"n:1..64"})},
             {.name = "training_step",
              .donate = {0, 1},
              .inputs = {"parameters", "state", "pixels", "labels"},
              .compile = std::move(compile)});
}

/// (parameters, pixels [n, 64]) -> the digits, i64 [n].
auto make_classify() {
  return jit(
      [](Weights parameters, Tensor pixels) { return argmax(nn::mlp(parameters, pixels), -1); },
      {as_given, spec(f32, {"n:1..1024", digits::kPixels})},
      {.name = "classify", .inputs = {"parameters", "pixels"}});
}

/// (parameters, pixels [n, 64], labels [n]) -> the share of digits that are right.
auto make_evaluate() {
  return jit([](Weights parameters, Tensor pixels,
                Tensor labels) { return nn::accuracy(nn::mlp(parameters, pixels), labels); },
             {as_given, spec(f32, {"n:1..1024", digits::kPixels}), spec(i64, {"n:1..1024"})},
             {.name = "evaluate", .inputs = {"parameters", "pixels", "labels"}});
}

Array pixels_of(const digits::Data& data) {
  return Array::from(data.pixels, {data.size(), digits::kPixels});
}
Array labels_of(const digits::Data& data) { return Array::from(data.labels, {data.size()}); }

// ---- Reporting --------------------------------------------------------------------------------

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void show_progress(int epoch, int epochs, double loss, double accuracy) {
  constexpr int kWidth = 30;
  const bool terminal = isatty(fileno(stdout));
  if (!terminal && epoch % 10 != 0 && epoch != epochs) return;
  const int filled = kWidth * epoch / epochs;
  const std::string bar = std::string(static_cast<size_t>(filled), '=') +
                          std::string(static_cast<size_t>(kWidth - filled), ' ');
  std::printf("%sepoch %*d/%d [%s] loss %.4f  accuracy %5.1f %%%s", terminal ? "\r" : "",
              epochs < 10 ? 1 : 2, epoch, epochs, bar.c_str(), loss, 100 * accuracy,
              terminal && epoch < epochs ? "" : "\n");
  std::fflush(stdout);
}

/// The median time of one step on a full batch.
template <class Step>
double time_step(const Step& step, const Array& pixels, const Array& labels) {
  Model model;
  std::vector<double> seconds;
  for (int i = 0; i < 60; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Array loss, accuracy;
    std::tie(model.parameters, model.state, loss, accuracy) =
        step(model.parameters, model.state, pixels, labels);
    loss.wait();
    accuracy.wait();
    seconds.push_back(seconds_since(start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + 30, seconds.end());
  return seconds[30];
}

// ---- Saving -----------------------------------------------------------------------------------

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

/// Weights, functions and the images that were held out: what `braze compile` and `braze-run` need.
void save(const std::filesystem::path& folder, const Parameters& parameters, const Array& pixels,
          const Array& labels) {
  std::filesystem::create_directories(folder);
  save_safetensors(folder / "weights.safetensors", state_dict(parameters));
  write_text(folder / "classify.braze", make_classify().graph(parameters, pixels));
  write_text(folder / "evaluate.braze", make_evaluate().graph(parameters, pixels, labels));
  save_npy(folder / "pixels.npy", pixels);
  save_npy(folder / "labels.npy", labels);
}

/// Trains for all epochs, by `step(parameters, state, arrays_of(batch)...)`; checks some steps
/// against the reference interpreter.
template <class Step, class ArraysOf>
void train(const Step& step, const ArraysOf& arrays_of, const Options& options,
           const digits::Data& data, std::vector<int64_t>& order, Model& model, CheckReport& worst,
           int& checked) {
  std::mt19937_64 shuffle(1);
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[shuffle() % i]);
    std::vector<Array> losses, accuracies;
    std::vector<double> sizes;
    for (int64_t begin = 0; begin < kTrained; begin += kBatch) {
      const digits::Data batch = digits::take(data, order, begin, kBatch);
      const auto arrays = arrays_of(batch);
      const auto call = [&](const auto& function) {
        return std::apply(
            [&](const auto&... all) { return function(model.parameters, model.state, all...); },
            arrays);
      };
      // The same step in the reference interpreter: at the first and the last, which has a batch
      // of 3, of the first and the last epoch.
      const bool compare = (epoch == 1 || epoch == options.epochs) &&
                           (begin == 0 || begin + kBatch >= kTrained) &&
                           options.device.kind() != DeviceKind::Interpreter &&
                           (options.devices == 1 || rank_count() == 1);  // else parts are elsewhere
      if (compare) {
        const CheckReport report = call([&](const auto&... all) { return step.check(all...); });
        ++checked;
        if (worst.ok && (!report.ok || report.judged < worst.judged)) worst = report;
        if (!report.ok) std::cerr << report.text << "\n";
      }
      auto [parameters, state, loss, accuracy] = call(step);
      model = {std::move(parameters), std::move(state)};
      losses.push_back(std::move(loss));
      accuracies.push_back(std::move(accuracy));
      sizes.push_back(static_cast<double>(batch.size()));
    }
    double loss = 0, accuracy = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      loss += sizes[i] * losses[i].item() / static_cast<double>(kTrained);
      accuracy += sizes[i] * accuracies[i].item() / static_cast<double>(kTrained);
    }
    show_progress(epoch, options.epochs, loss, accuracy);
  }
}

int run(const Options& options) {
  if (options.threads > 0) set_cpu_threads(options.threads);
  const DeviceGuard guard(options.device);
  const digits::Data data = digits::load(options.data);
  std::vector<int64_t> order(kTrained), held_out(static_cast<size_t>(data.size() - kTrained));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::iota(held_out.begin(), held_out.end(), kTrained);

  const auto step = make_step();
  Model model;
  CheckReport worst;
  int checked = 0;
  if (options.devices > 1) {
    if (options.device.kind() == DeviceKind::Cpu) set_cpu_device_count(options.devices);
    const Mesh mesh({{"data", options.devices}});
    const auto parallel =
        data_parallel(padded_step, mesh,
                      {.batch = {2, 3, 4},
                       .donate = {0, 1},
                       .name = "training_step",
                       .inputs = {"parameters", "state", "pixels", "labels", "mask"}});
    const auto padded = [&](const digits::Data& batch) {
      return pad_batch(options.devices, pixels_of(batch), labels_of(batch));
    };
    train(parallel, padded, options, data, order, model, worst, checked);
    // One of the copies.
    model.parameters =
        model.parameters.map([&](const Array& value) { return value.to(options.device); });
  } else {
    const auto whole = [](const digits::Data& batch) {
      return std::tuple{pixels_of(batch), labels_of(batch)};
    };
    train(step, whole, options, data, order, model, worst, checked);
  }

  const digits::Data test = digits::take(data, held_out, 0, data.size());
  const Array test_pixels = pixels_of(test), test_labels = labels_of(test);
  const double accuracy = make_evaluate()(model.parameters, test_pixels, test_labels).item();
  if (!options.save.empty()) save(options.save, model.parameters, test_pixels, test_labels);
  std::printf("\naccuracy on %d held-out images  %.1f %%\n", static_cast<int>(test.size()),
              100 * accuracy);
  // What this model reaches with any seed.
  const double expected = options.epochs >= 40 ? 0.92 : options.epochs >= 3 ? 0.8 : 0;
  if (options.devices > 1) {
    std::printf("devices                        %d\n", options.devices);
    if (checked > 0)
      std::printf("%d steps in the interpreter     %s, %.1f %% of the values judged\n", checked,
                  worst.ok ? "right" : "WRONG", 100 * worst.judged);
    const bool is_checked = checked > 0 || rank_count() > 1;
    return worst.ok && is_checked && accuracy >= expected ? 0 : 1;
  }
  const CompileSummary summary = step.summary();
  std::printf("ops before fusion              %d\n", summary.ops);
  std::printf("kernels after                  %d\n", summary.kernels);
  std::printf("compilations, time             %d, %.0f ms\n", step.compile_count(),
              1e3 * summary.seconds);
  if (options.device.kind() != DeviceKind::Interpreter) {
    const digits::Data batch = digits::take(data, order, 0, kBatch);
    const Array pixels = pixels_of(batch), labels = labels_of(batch);
    const auto unfused = make_step({.fuse = false});
    std::printf("a step, fused                  %.0f us\n", 1e6 * time_step(step, pixels, labels));
    std::printf("a step, one kernel an op       %.0f us\n",
                1e6 * time_step(unfused, pixels, labels));
    std::printf("%d steps in the interpreter     %s, %.1f %% of the values judged\n", checked,
                worst.ok ? "right" : "WRONG", 100 * worst.judged);
  }
  const bool is_checked = checked > 0 || options.device.kind() == DeviceKind::Interpreter;
  return worst.ok && is_checked && accuracy >= expected ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
