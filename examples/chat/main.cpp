// Talks with a language model: a .gguf file of the Llama family whose chats are written as ChatML.
// tools/chat.sh fetches one. Usage: chat FILE [--device NAME] [--prompt TEXT] [--system TEXT]
// [--tokens N] [--context N] [--temperature T] [--top-k K] [--top-p P] [--seed N]
// [--check FILE [--results PAGE]]
//
// --check asks the questions of a file and compares the answers with those that stand there;
// --results writes what comes of it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "decoder.h"
#include "model_tool.h"

using namespace braze;

namespace {

struct Options {
  std::string file;
  Device device = default_device();
  std::string prompt;  // empty: asks at the terminal
  std::string system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
  int64_t tokens = 512;    // of an answer, at most
  int64_t context = 2048;  // of the whole talk
  double temperature = 0;  // 0: always the likeliest token
  int top_k = 0;           // 0: all
  double top_p = 1;
  uint64_t seed = 1;
  std::string check, results;
};

Options parse(int argc, char** argv) {
  Options options;
  model_tool::Options reader(
      "chat FILE [--device NAME] [--prompt TEXT] [--system TEXT] [--tokens N] [--context N] "
      "[--temperature T] [--top-k K] [--top-p P] [--seed N] [--check FILE [--results PAGE]]");
  reader.add("--device", options.device);
  reader.add("--prompt", options.prompt);
  reader.add("--system", options.system);
  reader.add("--tokens", options.tokens);
  reader.add("--context", options.context);
  reader.add("--temperature", options.temperature);
  reader.add("--top-k", options.top_k);
  reader.add("--top-p", options.top_p);
  reader.add("--seed", options.seed);
  reader.add("--check", options.check);
  reader.add("--results", options.results);
  const std::vector<std::string> words = reader.read(argc, argv);
  if (words.size() != 1) reader.fail();
  options.file = words[0];
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw std::runtime_error("--top-p must be above 0 and at most 1");
  return options;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// ---- The model on its device
// ----------------------------------------------------------------------

class Model {
 public:
  explicit Model(const Options& options)
      : options_(options),
        file_(GgufFile::open(options.file)),
        decoder_(llama::sizes_of(file_), llama::load_weights(file_, options.device),
                 {.context = options.context,
                  .temperature = options.temperature,
                  .seed = options.seed,
                  .device = options.device}),
        engine_(options.seed) {}

  const GgufFile& file() const { return file_; }
  int64_t room() const { return decoder_.room() + (is_ahead_ ? 1 : 0); }

  /// Begins anew.
  void forget() {
    is_ahead_ = false;
    decoder_.forget();
  }

  /// Adds these tokens; the one that comes next.
  int32_t read(const std::vector<int32_t>& ids) {
    stop();
    decoder_.add(ids);
    return last_ = is_cut() ? draw(decoder_.scores().to_vector<float>()) : read(decoder_.chosen());
  }

  /// Adds the token that came last; the one that comes next. If the device chooses it, the device
  /// goes on with it while the host waits for it and shows it.
  int32_t next() {
    if (is_cut()) return read({last_});
    if (!is_ahead_) decoder_.add_chosen();
    const Array chosen = decoder_.chosen();
    is_ahead_ = decoder_.room() > 0;
    if (is_ahead_) decoder_.add_chosen();
    return last_ = read(chosen);
  }

  /// Forgets the token that came last and was not asked for its successor.
  void stop() {
    if (is_ahead_) decoder_.take_back();
    is_ahead_ = false;
  }

 private:
  /// Whether the host chooses among some of the tokens.
  bool is_cut() const {
    return options_.temperature > 0 && (options_.top_k > 0 || options_.top_p < 1);
  }
  static int32_t read(const Array& token) { return token.to_vector<int32_t>()[0]; }

  /// One of the likeliest: at most top_k of them, and no more than make up top_p together.
  int32_t draw(const std::vector<float>& scores) {
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    const float greatest = scores[static_cast<size_t>(order[0])];
    std::vector<double> chances;
    for (const int32_t id : order)
      chances.push_back(
          std::exp((scores[static_cast<size_t>(id)] - greatest) / options_.temperature));
    const double all = std::accumulate(chances.begin(), chances.end(), 0.0);
    size_t kept = 0;
    for (double sum = 0; kept < chances.size() && sum <= options_.top_p * all; ++kept) {
      if (options_.top_k > 0 && kept == static_cast<size_t>(options_.top_k)) break;
      sum += chances[kept];
    }
    chances.resize(std::max<size_t>(kept, 1));
    return order[std::discrete_distribution<size_t>(chances.begin(), chances.end())(engine_)];
  }

  const Options& options_;
  GgufFile file_;
  llama::Decoder decoder_;
  std::mt19937_64 engine_;
  int32_t last_ = 0;       // the token that came last
  bool is_ahead_ = false;  // whether it is added already
};

// ---- A talk
// -----------------------------------------------------------------------------------------

class Talk {
 public:
  explicit Talk(const Options& options)
      : options_(options), model_(options), tokenizer_(Tokenizer::from_gguf(model_.file())) {
    const auto end = tokenizer_.id("<|im_end|>");
    if (!end)
      throw std::runtime_error(options.file + " has no token <|im_end|>: its chats are no ChatML");
    end_ = *end;
    begin();
  }

  /// Forgets what was said.
  void begin() {
    model_.forget();
    pending_.clear();
    add("<|im_start|>system\n", options_.system, "<|im_end|>\n");
  }

  /// Answers on stdout, and returns the answer's tokens. A talk that fills --context begins anew.
  std::vector<int32_t> answer(const std::string& question) {
    ask(question);
    if (is_full()) {
      begin();
      ask(question);
      if (is_full()) {
        const std::string message =
            "the question is too long for --context: with what the system says it has " +
            std::to_string(pending_.size()) + " tokens, and there is room for " +
            std::to_string(model_.room());
        begin();
        throw std::invalid_argument(message);
      }
      std::fprintf(stderr, "what was said before is forgotten: it fills --context\n");
    }
    if (is_first_) std::fprintf(stderr, "preparing the model for this machine\n");
    const auto began = std::chrono::steady_clock::now();
    const size_t asked = pending_.size();
    int32_t token = model_.read(pending_);
    const double first = seconds_since(began);
    auto decoding = std::chrono::steady_clock::now();
    int64_t count = 0;
    std::vector<int32_t> said;
    while (token != end_ && count < options_.tokens && model_.room() > 1) {
      print(token);
      said.push_back(token);
      token = model_.next();
      if (++count == 1) decoding = std::chrono::steady_clock::now();  // the first one compiles
    }
    const double seconds = seconds_since(decoding);
    model_.stop();
    std::printf("%s\n", text_.c_str());
    text_.clear();
    // The answer ends for the model as well.
    pending_ = {end_};
    add("", "", "\n");
    std::fflush(stdout);
    std::fprintf(stderr, "%zu tokens read in %.2f s%s; %lld written, %.1f a second\n", asked, first,
                 is_first_ ? ", with the compilation" : "", static_cast<long long>(count),
                 count > 1 ? static_cast<double>(count - 1) / seconds : 0);
    is_first_ = false;
    return said;
  }

 private:
  void ask(const std::string& question) {
    add("<|im_start|>user\n", question, "<|im_end|>\n<|im_start|>assistant\n");
  }
  bool is_full() const { return static_cast<int64_t>(pending_.size()) + 1 >= model_.room(); }

  /// What the user wrote is text, whatever names of tokens stand in it. If it is no text, nothing
  /// is added.
  void add(const std::string& before, const std::string& text, const std::string& behind) {
    std::vector<int32_t> all;
    const auto append = [&](const std::string& part, bool special) {
      const auto ids = tokenizer_.encode(part, {.frame = false, .special = special});
      all.insert(all.end(), ids.begin(), ids.end());
    };
    append(before, true);
    append(text, false);
    append(behind, true);
    pending_.insert(pending_.end(), all.begin(), all.end());
  }

  /// As soon as characters are whole.
  void print(int32_t token) {
    text_ += tokenizer_.piece(token);
    size_t whole = text_.size();
    while (whole > 0 && text_.size() - whole < 4 && (text_[whole - 1] & 0xc0) == 0x80) --whole;
    if (whole > 0 && (text_[whole - 1] & 0x80) != 0) --whole;  // the first byte of the last one
    const auto lead = static_cast<unsigned char>(whole < text_.size() ? text_[whole] : 0);
    const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (text_.size() - whole >= size) whole = text_.size();
    std::fwrite(text_.data(), 1, whole, stdout);
    std::fflush(stdout);
    text_.erase(0, whole);
  }

  const Options& options_;
  Model model_;
  Tokenizer tokenizer_;
  int32_t end_ = 0;
  std::vector<int32_t> pending_;  // tokens that the model has not seen yet
  std::string text_;              // not printed yet
  bool is_first_ = true;          // the first answer compiles
};

/// The file has two lines for each question: it, and the tokens of its answer. The number of
/// answers that are other ones.
int check(Talk& talk, const Options& options) {
  const std::string& path = options.check;
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  std::string rows;
  int asked = 0, wrong = 0;
  for (std::string question, line; std::getline(file, question) && std::getline(file, line);
       ++asked) {
    std::istringstream numbers(line);
    const std::vector<int32_t> expected{std::istream_iterator<int32_t>(numbers), {}};
    talk.begin();
    const std::vector<int32_t> said = talk.answer(question);
    std::string result = "as expected";
    if (said != expected) {
      const auto parted = std::mismatch(said.begin(), said.end(), expected.begin(), expected.end());
      result =
          "other than expected from token " + std::to_string(parted.first - said.begin()) + " on";
      std::printf("^ %s\n", result.c_str());
      ++wrong;
    }
    rows += "| " + question + " | " + std::to_string(said.size()) + " | " + result + " |\n";
  }
  if (asked == 0) throw std::runtime_error(path + " has no questions");
  const std::string count =
      std::to_string(asked - wrong) + " of " + std::to_string(asked) + " answers are as expected";
  std::printf("%s\n", count.c_str());
  if (!options.results.empty())
    model_tool::write_page(
        options.results,
        "# Answers of a language model on " + options.device.name() +
            "\n\nMade by `tools/chat.sh --check --results PAGE` with SmolLM2-135M-Instruct (Q4_1): "
            "greedy answers of at most " +
            std::to_string(options.tokens) +
            " tokens, compared token by token with those of transformers for the same file.\n\n" +
            count + ".\n\n| question | tokens | answer |\n| --- | ---: | --- |\n" + rows);
  return wrong;
}

// A question that cannot be asked does not end the talk.
void talk_at_terminal(Talk& talk) {
  std::string question;
  while (std::cout << "> " << std::flush && std::getline(std::cin, question)) {
    if (question.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      talk.answer(question);
    } catch (const std::invalid_argument& error) {
      std::cerr << "chat: " << error.what() << "\n";
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::InvalidArgument) throw;
      std::cerr << "chat: " << error.what() << "\n";
    }
  }
  std::cout << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    const DeviceGuard device(options.device);
    Talk talk(options);
    if (!options.check.empty()) return check(talk, options) == 0 ? 0 : 1;
    if (!options.prompt.empty()) {
      talk.answer(options.prompt);
      return 0;
    }
    talk_at_terminal(talk);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "chat: " << error.what() << "\n";
    return 1;
  }
}
