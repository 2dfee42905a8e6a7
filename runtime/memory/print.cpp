// print.cpp — prints arrays for people, with the same layout as NumPy.

#include <algorithm>
#include <ostream>

#include "ir/support/text.h"
#include "ir/values/elision.h"
#include "ir/values/host_tensor.h"
#include "runtime/memory/array_state.h"
#include "runtime/mesh/mesh_state.h"

namespace braze {

namespace {

constexpr int64_t kShownWhole = 1000;  // elements; beyond, only the ends of each axis are shown
constexpr int64_t kEdge = 3;
constexpr std::string_view kGap = "...";

class Printer {
 public:
  explicit Printer(const HostTensor& value)
      : value_(value), elided_(shown_items(value.shape()) > kShownWhole) {
    // A first pass finds the width of the columns.
    visit(
        0, 0, [this](int64_t i) { width_ = std::max(width_, element(i).size()); }, [](auto...) {});
  }

  std::string print() {
    std::string out;
    visit(
        0, 0, [&](int64_t i) { out += fmt::format("{:>{}}", element(i), width_); },
        [&](std::string_view punctuation, size_t depth) {
          out += punctuation;
          if (punctuation == ",") {
            // A line break between rows, and an empty line as well between matrices.
            const size_t inner = value_.shape().size() - depth;
            out += inner > 0 ? std::string(inner, '\n') + std::string(depth, ' ') : " ";
          }
        });
    return out;
  }

 private:
  template <class Element, class Mark>
  void visit(size_t axis, int64_t offset, const Element& on_element, const Mark& mark) {
    if (axis == value_.shape().size()) {
      on_element(offset);
      return;
    }
    const int64_t extent = value_.shape()[axis];
    int64_t stride = 1;
    for (size_t i = axis + 1; i < value_.shape().size(); ++i) stride *= value_.shape()[i];
    mark("[", axis);
    for (int64_t i = 0; i < extent; ++i) {
      if (i > 0) mark(",", axis + 1);
      if (elided_ && extent > 2 * kEdge && i == kEdge) {
        mark(kGap, axis + 1);
        mark(",", axis + 1);
        i = extent - kEdge;
      }
      visit(axis + 1, offset + i * stride, on_element, mark);
    }
    mark("]", axis);
  }

  std::string element(int64_t i) const {
    if (!is_floating(value_.dtype())) return value_.element_text(i);
    // The number of significant digits that every number of the dtype has.
    const int digits = size_of(value_.dtype()) == 8 ? 8 : size_of(value_.dtype()) == 4 ? 6 : 4;
    return fmt::format("{:.{}g}", value_.get_double(i), digits);
  }

  const HostTensor& value_;
  const bool elided_;
  size_t width_ = 0;
};

}  // namespace

std::string Array::to_string() const {
  const HostTensor value = to_host();
  return fmt::format("{} {} on {}", Printer(value).print(), type_text(dtype(), shape()),
                     spread_ ? fmt::format("the mesh {}, {}", spread_->mesh.to_string(),
                                           spread_->sharding.to_string())
                             : state_->driver.name());
}

std::ostream& operator<<(std::ostream& out, const Array& array) { return out << array.to_string(); }

}  // namespace braze
