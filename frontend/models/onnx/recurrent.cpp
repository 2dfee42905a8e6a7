// recurrent.cpp — networks that go through a sequence step by step: RNN, GRU, LSTM. The steps are
// built one after the other. The products of the inputs do not depend on the step before, so they
// are one product for all steps.
#include <algorithm>
#include <numeric>

#include "frontend/builder/builder.h"
#include "frontend/models/onnx/node.h"
#include "ir/support/text.h"

namespace braze::onnx {

namespace {

// Longer sequences are refused.
constexpr int64_t kMostSteps = 512;

struct Activation {
  std::string name;
  double alpha = 0, beta = 0;

  Tensor operator()(const OnnxNode& n, const Tensor& x) const {
    if (name == "Affine") return x * alpha + beta;
    if (name == "Elu") return elu(x, alpha);
    if (name == "HardSigmoid") return clamp(x * alpha + beta, 0.0, 1.0);
    if (name == "LeakyRelu") return leaky_relu(x, alpha);
    if (name == "Relu") return relu(x);
    if (name == "ScaledTanh") return tanh(x * beta) * alpha;
    if (name == "Sigmoid") return sigmoid(x);
    if (name == "Softplus") return softplus(x);
    if (name == "Softsign") return x / (abs(x) + 1.0);
    if (name == "Tanh") return tanh(x);
    if (name == "ThresholdedRelu") return where(x > alpha, x, zeros_like(x));
    n.refuse(fmt::format("there is no activation {}", name));
  }
};

// An activation with the values that ONNX gives to alpha and beta by default.
Activation with_defaults(const std::string& name) {
  if (name == "Affine") return {name, 1, 0};
  if (name == "Elu" || name == "ThresholdedRelu") return {name, 1, 0};
  if (name == "HardSigmoid") return {name, double{0.2f}, 0.5};
  if (name == "LeakyRelu") return {name, double{0.01f}, 0};
  if (name == "ScaledTanh") return {name, 1, 1};
  return {name, 0, 0};
}

// The activations of all directions. Only activations that have an alpha or beta take one from the
// lists.
std::vector<Activation> activations(const OnnxNode& n, size_t directions,
                                    const std::vector<std::string>& usual) {
  std::vector<std::string> names = n.texts("activations");
  if (names.empty())
    for (size_t d = 0; d < directions; ++d) names.insert(names.end(), usual.begin(), usual.end());
  if (names.size() != directions * usual.size())
    n.refuse(fmt::format("it has {} activations", names.size()));
  const std::vector<double> alphas = n.reals("activation_alpha"),
                            betas = n.reals("activation_beta");
  size_t alpha = 0, beta = 0;
  std::vector<Activation> out;
  for (std::string name : names) {
    // Some files write the names with small letters.
    if (!name.empty() && name[0] >= 'a' && name[0] <= 'z')
      name[0] = static_cast<char>(name[0] - 32);
    Activation one = with_defaults(name);
    constexpr std::string_view kOfTwo[] = {"Affine", "HardSigmoid", "ScaledTanh"};
    constexpr std::string_view kOfOne[] = {"Elu", "LeakyRelu", "ThresholdedRelu"};
    const bool two = std::ranges::find(kOfTwo, one.name) != std::end(kOfTwo);
    if ((two || std::ranges::find(kOfOne, one.name) != std::end(kOfOne)) && alpha < alphas.size())
      one.alpha = alphas[alpha++];
    if (two && beta < betas.size()) one.beta = betas[beta++];
    out.push_back(one);
  }
  return out;
}

// The part [i * size, (i + 1) * size) of x along an axis.
Tensor part(const Tensor& x, int64_t axis, int64_t i, const Dim& size) {
  return slice(x, axis, size * Dim(i), size * Dim(i + 1));
}
Tensor row(const Tensor& x, int64_t i) { return squeeze(slice(x, 0, i, i + 1), Axes(0)); }

struct State {
  Tensor hidden, cell;  // [batch, hidden]; only an LSTM has `cell`
};

// One direction of a network. A step computes the next state from two things: the state, and the
// products of its inputs [batch, gates * hidden], to which the biases have been added.
struct Cell {
  const OnnxNode& n;
  Dim hidden;
  Tensor recurrent;       // [gates * hidden, hidden]
  Tensor recurrent_bias;  // [gates * hidden]
  Tensor peepholes;       // [3 * hidden], or invalid
  const Activation* act = nullptr;
  double clip = 0;
  bool linear_before_reset = false, input_forget = false;

  Tensor clipped(const Tensor& x) const { return clip > 0 ? minimum(maximum(x, -clip), clip) : x; }
  Tensor gate(const Tensor& x, int64_t i) const { return part(x, -1, i, hidden); }
  Tensor product(const Tensor& h, const Tensor& weights) const {
    return dot_general(h, weights,
                       {.batch_left = {},
                        .batch_right = {},
                        .contract_left = {1},
                        .contract_right = {1},
                        .result = {}});
  }
  Tensor weights_of(int64_t i) const { return part(recurrent, 0, i, hidden); }
  Tensor bias_of(int64_t i) const { return part(recurrent_bias, 0, i, hidden); }

  State rnn(const Tensor& x, const State& s) const {
    return {act[0](n, clipped(x + product(s.hidden, recurrent) + recurrent_bias)), {}};
  }

  // The gates are z, r, h.
  State gru(const Tensor& x, const State& s) const {
    const auto outer = [&](int64_t i) {
      return gate(x, i) + product(s.hidden, weights_of(i)) + bias_of(i);
    };
    const Tensor z = act[0](n, clipped(outer(0))), r = act[0](n, clipped(outer(1)));
    const Tensor inner = linear_before_reset
                             ? gate(x, 2) + r * (product(s.hidden, weights_of(2)) + bias_of(2))
                             : gate(x, 2) + product(r * s.hidden, weights_of(2)) + bias_of(2);
    const Tensor h = act[1](n, clipped(inner));
    return {(1.0 - z) * h + z * s.hidden, {}};
  }

  // The gates are i, o, f, c. The peepholes are i, o, f.
  State lstm(const Tensor& x, const State& s) const {
    const Tensor all = x + product(s.hidden, recurrent) + recurrent_bias;
    const auto seen = [&](int64_t i, const Tensor& cell) {
      return peepholes.valid() ? gate(all, i) + gate(peepholes, i) * cell : gate(all, i);
    };
    const Tensor i = act[0](n, clipped(seen(0, s.cell)));
    const Tensor f = input_forget ? 1.0 - i : act[0](n, clipped(seen(2, s.cell)));
    const Tensor cell = f * s.cell + i * act[1](n, clipped(gate(all, 3)));
    const Tensor o = act[0](n, clipped(seen(1, cell)));
    return {o * act[2](n, cell), cell};
  }
};

using Step = State (Cell::*)(const Tensor&, const State&) const;

struct Kind {
  int64_t gates;
  std::vector<std::string> activations;
  Step step;
};

// What the attributes and the shapes of the operands say about a network.
struct Network {
  Tensor x;          // [steps, batch, inputs]
  bool batch_first;  // of the operands and results that have a batch
  size_t directions;
  bool reverse;  // the only direction
  int64_t steps;
  Dim batch, hidden;
};

// Refuses an operand that is there and whose extents cannot be those of `shape`. Extents that are
// not known yet are compared by the ops that use them.
void check_operand(const OnnxNode& n, size_t i, std::string_view name, const Dims& shape) {
  if (!n.has(i) || may_equal(n[i].shape(), shape)) return;
  n.refuse(fmt::format("{} (operand {}) is {}, and with the other operands and attributes it is {}",
                       name, i, n[i].to_string(), text_of(shape)),
           "make direction, hidden_size and the weights agree");
}

Network network(const OnnxNode& n, const Kind& kind, bool has_cell) {
  const int64_t layout = n.integer("layout", 0);
  if (layout != 0 && layout != 1)
    n.refuse(fmt::format("layout is {}", layout),
             "give layout 0, steps first, or 1, the batch first");
  const std::string direction = n.text("direction", "forward");
  const bool both = direction == "bidirectional";
  if (!both && direction != "forward" && direction != "reverse")
    n.refuse(fmt::format("direction is {}", direction),
             "direction is one of forward, reverse, bidirectional");
  if (n.has_attribute("clip") && !(n.real("clip") > 0))
    n.refuse(fmt::format("clip is {}", n.real("clip")),
             "give clip a positive number, or remove it");
  const Tensor &w = n[1], &r = n[2];
  if (n[0].rank() != 3 || w.rank() != 3 || r.rank() != 3)
    n.refuse(
        fmt::format("X is {}, W is {} and R is {}", n[0].to_string(), w.to_string(), r.to_string()),
        "each of them has three axes");
  const Dim hidden = r.dim(2);
  const auto size = n.has_attribute("hidden_size") ? Dim(n.integer("hidden_size")) : hidden;
  if (hidden.is_constant() && !(size == hidden))
    n.refuse(fmt::format("hidden_size is {}, and the weights R (operand 2) are {}",
                         size.to_string(), r.to_string()),
             fmt::format("set hidden_size to {}, the last extent of R", hidden.to_string()));

  Network out{.x = layout == 1 ? transpose(n[0], 0, 1) : n[0],
              .batch_first = layout == 1,
              .directions = both ? 2u : 1u,
              .reverse = direction == "reverse",
              .steps = 0,
              .batch = n[0].dim(layout == 1 ? 0 : 1),
              .hidden = hidden};
  const Dim directions(static_cast<int64_t>(out.directions)), gates = hidden * Dim(kind.gates);
  check_operand(n, 1, "W", {directions, gates, out.x.dim(2)});
  check_operand(n, 2, "R", {directions, gates, hidden});
  check_operand(n, 3, "B", {directions, gates * Dim(2)});
  check_operand(n, 4, "sequence_lens", {out.batch});
  const Dims state =
      out.batch_first ? Dims{out.batch, directions, hidden} : Dims{directions, out.batch, hidden};
  check_operand(n, 5, "initial_h", state);
  if (has_cell) check_operand(n, 6, "initial_c", state);
  if (has_cell) check_operand(n, 7, "P", {directions, hidden * Dim(3)});

  const Dim steps = out.x.dim(0);
  if (!steps.is_constant() || steps.value() > kMostSteps)
    n.refuse(fmt::format("a sequence of {} steps: they are built one by one, up to {}",
                         steps.to_string(), kMostSteps),
             steps.is_constant() ? "" : "give that size a number at import");
  if (steps.value() == 0) n.refuse("a sequence of no steps");
  out.steps = steps.value();
  return out;
}

// The part of an operand that belongs to one direction.
Tensor of_direction(const OnnxNode& n, size_t i, size_t d) {
  return row(n[i], static_cast<int64_t>(d));
}

// The results of one direction: of all steps in the order of time, and the last state.
struct Outputs {
  Tensors by_step;
  State last;
};

Outputs run_direction(const OnnxNode& n, const Network& network, const Kind& kind, bool has_cell,
                      size_t d, const Activation* act, const Tensor& zero) {
  const Dim width = network.hidden * Dim(kind.gates);
  Cell cell{.n = n, .hidden = network.hidden, .recurrent = of_direction(n, 2, d)};
  cell.act = act;
  cell.clip = n.real("clip", 0.0);
  cell.linear_before_reset = kind.gates == 3 && n.integer("linear_before_reset", 0) != 0;
  cell.input_forget = has_cell && n.integer("input_forget", 0) != 0;
  const Tensor biases = n.has(3) ? of_direction(n, 3, d) : Tensor();
  cell.recurrent_bias =
      biases.valid()
          ? part(biases, 0, 1, width)
          : broadcast_to(reshape(slice(reshape(zero, {zero.numel()}), 0, 0, 1), {1}), {width});
  if (has_cell && n.has(7)) cell.peepholes = of_direction(n, 7, d);
  // The products of the inputs of all steps at once.
  Tensor inputs = dot_general(network.x, of_direction(n, 1, d),
                              {.batch_left = {},
                               .batch_right = {},
                               .contract_left = {2},
                               .contract_right = {1},
                               .result = {}});
  if (biases.valid()) inputs = inputs + part(biases, 0, 0, width);
  const auto initial = [&](size_t i) {
    if (!n.has(i)) return zero;
    return row(network.batch_first ? transpose(n[i], 0, 1) : n[i], static_cast<int64_t>(d));
  };
  Outputs out{.by_step = Tensors(static_cast<size_t>(network.steps)),
              .last = {initial(5), has_cell ? initial(6) : Tensor()}};
  State& state = out.last;
  const bool backward = network.reverse || d == 1;
  for (int64_t k = 0; k < network.steps; ++k) {
    const int64_t t = backward ? network.steps - 1 - k : k;
    State next = (cell.*kind.step)(row(inputs, t), state);
    Tensor y = next.hidden;
    if (n.has(4)) {  // each sequence has its own length, and steps after its end change nothing
      const Tensor is_inside = reshape(n[4] > static_cast<int64_t>(t), {network.batch, 1});
      y = where(is_inside, next.hidden, zero);
      next.hidden = where(is_inside, next.hidden, state.hidden);
      if (has_cell) next.cell = where(is_inside, next.cell, state.cell);
    }
    state = next;
    out.by_step[static_cast<size_t>(t)] = y;
  }
  return out;
}

// The operands are X, W, R, B, sequence_lens, initial_h, and for an LSTM initial_c and P. The
// results are Y, Y_h, and for an LSTM Y_c.
Tensors recurrent(OnnxNode& n, const Kind& kind, bool has_cell) {
  const Network net = network(n, kind, has_cell);
  const std::vector<Activation> acts = activations(n, net.directions, kind.activations);
  const Tensor& r = n[2];
  const Tensor zero = zeros_like(broadcast_to(
      reshape(slice(reshape(r, {r.numel()}), 0, 0, 1), {1, 1}), {net.batch, net.hidden}));
  std::vector<Outputs> outputs;
  for (size_t d = 0; d < net.directions; ++d)
    outputs.push_back(
        run_direction(n, net, kind, has_cell, d, &acts[d * kind.activations.size()], zero));
  Tensors by_step, last, last_cells;
  for (size_t t = 0; t < static_cast<size_t>(net.steps); ++t) {
    Tensors both;
    for (const Outputs& one : outputs) both.push_back(one.by_step[t]);
    by_step.push_back(stack(both));
  }
  for (const Outputs& one : outputs) {
    last.push_back(one.last.hidden);
    if (has_cell) last_cells.push_back(one.last.cell);
  }
  // y is [steps, directions, batch, hidden]. The batch may have to come first.
  const auto placed = [&](const Tensor& y, std::vector<int64_t> order) {
    return net.batch_first ? permute(y, std::move(order)) : y;
  };
  Tensors out = {placed(stack(by_step), {2, 0, 1, 3}), placed(stack(last), {1, 0, 2})};
  if (has_cell) out.push_back(placed(stack(last_cells), {1, 0, 2}));
  return out;
}

Tensors rnn(OnnxNode& n) { return recurrent(n, {1, {"Tanh"}, &Cell::rnn}, false); }
Tensors gru(OnnxNode& n) { return recurrent(n, {3, {"Sigmoid", "Tanh"}, &Cell::gru}, false); }
Tensors lstm(OnnxNode& n) {
  return recurrent(n, {4, {"Sigmoid", "Tanh", "Tanh"}, &Cell::lstm}, true);
}

}  // namespace

const Rows& recurrent_rows() {
  static const Rows kRows = {
      {"GRU", gru, 7},
      {"LSTM", lstm, 7},
      {"RNN", rnn, 7},
  };
  return kRows;
}

}  // namespace braze::onnx
