// bench-decode — tokens a second of a language model that writes one token after the other, read by
// the host as they come. The model is that of examples/chat with the sizes of SmolLM2-135M, and
// random weights in the quantised forms of its file: no file is needed. decode_torch.py measures
// PyTorch in the same way. At the end it says how many launches a token takes.
//
// Usage: bench-decode [--device NAME] [--tokens N] [--context N] [--turns N]
#include <braze/braze.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "examples/chat/decoder.h"

namespace {

using namespace braze;

constexpr llama::Sizes kSizes = {.layers = 30,
                                 .width = 576,
                                 .heads = 9,
                                 .kv_heads = 3,
                                 .head = 64,
                                 .tokens = 49152,
                                 .context = 8192,
                                 .epsilon = 1e-5,
                                 .base = 100000};
constexpr int64_t kHidden = 1536;

class Weights {
 public:
  explicit Weights(const Device& device) : device_(device) {}

  llama::Weights<Array> make() {
    llama::Weights<Array> out;
    const int64_t width = kSizes.width, keys = kSizes.kv_heads * kSizes.head;
    for (int64_t i = 0; i < kSizes.layers; ++i)
      out.layers.push_back({.attention_norm = full({width}, 1, f32, device_),
                            .mlp_norm = full({width}, 1, f32, device_),
                            .attention = {unsigned_nibbles(width, width + 2 * keys)},
                            .output = unsigned_nibbles(width, width),
                            .gate = unsigned_nibbles(width, kHidden),
                            .up = unsigned_nibbles(width, kHidden),
                            .down = unsigned_nibbles(kHidden, width)});
    out.embedding = signed_bytes(width, kSizes.tokens);
    out.norm = full({width}, 1, f32, device_);
    return out;
  }

 private:
  static constexpr int64_t kBlock = 32;

  // As Q4_1: 4 bits, a scale and an offset a block. The mean is 0, and 1 / sqrt(rows) the spread.
  llama::Weight<Array> unsigned_nibbles(int64_t rows, int64_t columns) {
    const double scale = 1 / (4.6 * std::sqrt(static_cast<double>(rows)));
    return {.blocks = {{.low = words<uint32_t>(rows / 8, columns),
                        .high = {},
                        .scales = full({rows / kBlock, columns}, scale, f16, device_),
                        .offsets = {full({rows / kBlock, columns}, -7.5 * scale, f16, device_)}}},
            .plain = {}};
  }

  // As Q8_0: 8 bits and a scale a block.
  llama::Weight<Array> signed_bytes(int64_t rows, int64_t columns) {
    const double scale = 1 / (74 * std::sqrt(static_cast<double>(rows)));
    return {.blocks = {{.low = words<int32_t>(rows / 8, columns),
                        .high = {words<int32_t>(rows / 8, columns)},
                        .scales = full({rows / kBlock, columns}, scale, f16, device_),
                        .offsets = {}}},
            .plain = {}};
  }

  template <class T>
  Array words(int64_t rows, int64_t columns) {
    std::vector<T> out(static_cast<size_t>(rows * columns));
    for (T& word : out) word = static_cast<T>(engine_());
    return Array::from(out, {rows, columns}, device_);
  }

  Device device_;
  std::mt19937 engine_{1};
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void run(const std::vector<std::string>& arguments) {
  Device device = default_device();
  int64_t tokens = 256, context = 2048, turns = 5;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string& value = arguments[i + 1];
    if (arguments[i] == "--device") device = Device(value.c_str());
    if (arguments[i] == "--tokens") tokens = std::stoll(value);
    if (arguments[i] == "--context") context = std::stoll(value);
    if (arguments[i] == "--turns") turns = std::stoll(value);
  }
  const DeviceGuard guard(device);
  llama::Decoder decoder(kSizes, Weights(device).make(), {.context = context, .device = device});
  turns = std::max<int64_t>(turns, 1);
  std::vector<double> rates;
  tokens = std::clamp<int64_t>(tokens, 1, decoder.room() - 1);
  for (int64_t turn = 0; turn <= turns; ++turn) {  // the first one compiles
    decoder.forget();
    const double start = seconds();
    decoder.add({1});
    for (int64_t i = 0; i < tokens; ++i) {
      const Array chosen = decoder.chosen();
      if (i + 1 < tokens) decoder.add_chosen();
      chosen.to_vector<int32_t>();
    }
    if (turn > 0) rates.push_back(static_cast<double>(tokens) / (seconds() - start));
  }
  std::ranges::sort(rates);
  std::cout << fmt::format(
                   "braze: {:.1f} tokens a second in the median of {} turns, {:.1f} to {:.1f}",
                   rates[rates.size() / 2], turns, rates.front(), rates.back())
            << std::endl;
  record_launches(true);
  decoder.add_chosen();
  const std::vector<LaunchRecord> launches = launch_history();
  double alone = 0;
  for (const LaunchRecord& launch : launches) alone += launch.seconds;
  std::cout << fmt::format("a token takes {} launches; one after the other they run for {:.0f} us",
                           launches.size(), alone * 1e6)
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "bench-decode: " << error.what() << "\n";
    return 1;
  }
}
