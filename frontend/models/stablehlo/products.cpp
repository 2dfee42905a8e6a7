// products.cpp — contractions and convolution.
#include <algorithm>
#include <numeric>

#include "braze/windows.h"
#include "frontend/models/stablehlo/node.h"
#include "ir/support/text.h"

namespace braze::stablehlo {

namespace {

// The product of the operands. If the factors have different types, or another type than the
// result, both are first converted to the type of the result.
Tensor product(Node& n, DotAxes axes) {
  const DType to = n.result().dtype;
  if (to == boolean) n.refuse("a product of bools");
  Tensor x = n[0], y = n[1];
  const bool is_ours =
      x.dtype() == y.dtype() && (x.dtype() == to || (is_half(x.dtype()) && to == f32));
  if (is_ours) {
    if (x.dtype() != to) axes.result = to;
    return dot_general(x, y, axes);
  }
  return dot_general(cast(x, to), cast(y, to), axes);
}

// These attributes say how exact products must be on some devices. Ours are always exact enough.
void ignore_precision(Node& n) {
  for (const char* name : {"precision", "precision_config", "algorithm"}) n.ignore(name);
}

Tensor contraction(Node& n) {
  constexpr std::string_view kWithin = "dot_dimension_numbers";
  const auto axes = [&](std::string_view name) {
    return n.integers(name, std::vector<int64_t>(), kWithin);
  };
  ignore_precision(n);
  return product(n, {.batch_left = axes("lhs_batching_dimensions"),
                     .batch_right = axes("rhs_batching_dimensions"),
                     .contract_left = axes("lhs_contracting_dimensions"),
                     .contract_right = axes("rhs_contracting_dimensions"),
                     .result = {}});
}

Tensor matrix_product(Node& n) {
  ignore_precision(n);
  return product(n, {.batch_left = {},
                     .batch_right = {},
                     .contract_left = {static_cast<int64_t>(n[0].rank()) - 1},
                     .contract_right = {0},
                     .result = {}});
}

// ---- Convolution --------------------------------------------------------------------------------

// Where each axis of a convolution is, as read from "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]".
struct Places {
  std::vector<int64_t> left, right, result;  // [b, f, 0, 1..], [o, i, 0, 1..], [b, f, 0, 1..]

  // Images whose features are last stay as they are, since a copy in another order takes time.
  Channels channels() const {
    const auto is_last = [](const std::vector<int64_t>& image) {
      return image[1] + 1 == static_cast<int64_t>(image.size());
    };
    return is_last(left) && is_last(result) ? Channels::Last : Channels::First;
  }
  // With channels last: [b, 0, 1.., f], [0, 1.., i, o], [b, 0, 1.., f].
  void put_channels_last() {
    for (std::vector<int64_t>* image : {&left, &result})
      std::rotate(image->begin() + 1, image->begin() + 2, image->end());
    std::swap(right[0], right[1]);
    std::rotate(right.begin(), right.begin() + 2, right.end());
  }
};

// The positions of the axes called `first` and `second`, followed by those of 0, 1, ..
std::vector<int64_t> axes_called(Node& n, std::string_view list, char first, char second) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : list) {
    if (c == ',') {
      words.push_back(word);
      word.clear();
    } else if (c != ' ') {
      word += c;
    }
  }
  words.push_back(word);
  std::vector<int64_t> out;
  const auto add = [&](const std::string& name) {
    const auto found = std::ranges::find(words, name);
    if (found == words.end()) n.refuse(fmt::format("there is no axis {} in [{}]", name, list));
    out.push_back(found - words.begin());
  };
  add(std::string(1, first));
  add(std::string(1, second));
  for (size_t i = 0; i + 2 < words.size(); ++i) add(std::to_string(i));
  return out;
}

Places places_of(Node& n) {
  const std::string text = n.word("dimension_numbers");
  std::vector<std::string> lists;
  for (size_t begin = 0; (begin = text.find('[', begin)) != std::string::npos;) {
    const size_t end = text.find(']', begin);
    if (end == std::string::npos) break;
    lists.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end;
  }
  if (lists.size() != 3) n.refuse(fmt::format("its axes are {}", text));
  return {axes_called(n, lists[0], 'b', 'f'), axes_called(n, lists[1], 'o', 'i'),
          axes_called(n, lists[2], 'b', 'f')};
}

Tensor convolved(Node& n) {
  Places places = places_of(n);
  const size_t spatial = places.left.size() - 2;
  if (places.right.size() != spatial + 2 || places.result.size() != spatial + 2 ||
      n[0].rank() != spatial + 2 || n[1].rank() != spatial + 2)
    n.refuse("its operands have other axes");
  ignore_precision(n);
  const std::vector<int64_t> ones(spatial, 1);
  const auto padding = n.integers("padding", std::vector<int64_t>(2 * spatial, 0));
  const auto reversal = n.integers("window_reversal", std::vector<int64_t>(spatial, 0));
  const int64_t groups = n.integer("feature_group_count", 1);
  const int64_t batches = n.integer("batch_group_count", 1);
  ConvOptions options{.strides = n.integers("window_strides", ones),
                      .dilations = n.integers("rhs_dilation", ones),
                      .gaps = n.integers("lhs_dilation", ones),
                      .groups = groups * batches,
                      .channels = places.channels()};
  const bool last = options.channels == Channels::Last;
  if (last) places.put_channels_last();
  if (padding.size() != 2 * spatial || reversal.empty())
    n.refuse("its windows are of another rank");
  constexpr int64_t kMostGroups = 1 << 30;
  if (groups < 1 || batches < 1 || groups > kMostGroups || batches > kMostGroups)
    n.refuse("its groups are none");
  for (size_t i = 0; i < spatial; ++i) {
    options.low.emplace_back(padding[2 * i]);
    options.high.emplace_back(padding[2 * i + 1]);
  }
  const DType dtype = n.result().dtype;
  if (!is_floating(dtype)) n.refuse("a convolution of whole numbers");
  Tensor x = cast(permute(n[0], places.left), dtype);
  Tensor filters = cast(permute(n[1], places.right), dtype);
  std::vector<int64_t> turned;
  for (size_t i = 0; i < spatial; ++i)
    if (reversal[reversal.size() == 1 ? 0 : i])
      turned.push_back(static_cast<int64_t>(last ? i : i + 2));
  for (const int64_t axis : turned) filters = reverse(filters, axis);
  if (batches > 1) {
    // The parts of the batch become groups of channels. Each group has its own part of the filters.
    if (groups > 1) n.refuse("groups of the batch and of the features at once");
    Dims parts = x.shape();
    if (extent(x, 0) % batches != 0) n.refuse("the batch does not divide into its groups");
    parts[0] = extent(x, 0) / batches;
    parts.insert(parts.begin(), Dim(batches));
    std::vector<int64_t> order(parts.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    // The number of the part goes in front of the channels, with which it is merged.
    const size_t channels = last ? spatial + 1 : 1;
    std::rotate(order.begin(), order.begin() + 1,
                order.begin() + static_cast<std::ptrdiff_t>(channels) + 1);
    Dims merged = x.shape();
    merged[0] = parts[1];
    merged[channels] = extent(x, static_cast<int64_t>(channels)) * batches;
    x = reshape(permute(reshape(x, parts), order), merged);
  }
  const Tensor y = conv(x, filters, options);
  std::vector<int64_t> back(places.result.size());
  for (size_t i = 0; i < back.size(); ++i)
    back[static_cast<size_t>(places.result[i])] = static_cast<int64_t>(i);
  return permute(y, back);
}

}  // namespace

const Rows& product_rows() {
  static const Rows kRows = {
      {"stablehlo.convolution", convolved},
      {"stablehlo.dot", matrix_product},
      {"stablehlo.dot_general", contraction},
  };
  return kRows;
}

}  // namespace braze::stablehlo
