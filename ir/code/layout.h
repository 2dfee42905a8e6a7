// layout.h — which thread and register of a GPU block holds each element of a tile: section 7.3 of
// docs/ir/languages.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace braze {

enum class Resource : uint8_t { Block, Warp, Lane, Register };

/// One digit of an index: `extent` values, each worth `stride` of the resource's numbers.
struct Digit {
  Resource resource = Resource::Register;
  int64_t stride = 1;
  int64_t extent = 1;
  friend bool operator==(const Digit&, const Digit&) = default;
};

/// Mixed-radix digits of each axis, the most significant first. Their extents multiply to the
/// axis's; an axis of extent 1 has none.
struct Layout {
  std::vector<std::vector<Digit>> axes;

  size_t rank() const { return axes.size(); }
  int64_t extent(size_t axis) const;
  /// "(w1:4 r2:2 l4:8 | r4:8 l1:4 r1:2)".
  std::string to_string() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

struct NamedLayout {
  std::string name;
  Layout layout;
  friend bool operator==(const NamedLayout&, const NamedLayout&) = default;
};

/// Threads of a block in the order of their numbers: a lane digit of stride s steps by s threads,
/// a warp digit by 32 s.
inline constexpr int64_t kWarpThreads = 32;
bool is_thread_digit(const Digit& digit);
/// The number of a digit among threads, or among the blocks of a cluster.
bool is_spread(const Digit& digit);
int64_t thread_stride(const Digit& digit);

/// Gives the register digits dense strides, in the order of their present strides.
void renumber_registers(Layout& layout);

/// A digit that is an axis of a thread's array, and its place in the tile's index.
struct RegisterDigit {
  size_t axis = 0;
  int64_t weight = 1;  ///< in the index of the axis
  int64_t extent = 1;
  friend bool operator==(const RegisterDigit&, const RegisterDigit&) = default;
};
/// The digits, the greatest stride first.
std::vector<RegisterDigit> register_digits(const Layout& layout);

/// Where the accumulator of m64 x `columns` lies, and an operand of 16-bit elements (tf32: of 32
/// bits) in registers whose contracted axis has `depth` elements: section 7.3.
Layout accumulator_layout(int64_t columns);
Layout dot_operand_layout(int64_t depth, bool tf32);

/// A tile of `extents` spread over a block: axis k over threads[k] of its threads, the last axis
/// fastest, `vector` neighbours along the last axis in one thread; then the last axis over the
/// blocks of a cluster; what is left goes to registers, outermost. Extents that are short of that
/// use fewer neighbours, then fewer threads, then fewer blocks.
/// Extents and counts of threads and blocks are multiples of the powers of two they use.
Layout spread(const std::vector<int64_t>& extents, const std::vector<int64_t>& threads,
              int64_t vector, int64_t cluster = 1);

/// A tile of rows x columns over rows x columns of threads, `vector` neighbours along the columns
/// in each. A warp is 4 x 8 threads, row neighbours beside each other in its order: then each half
/// of a warp that reads 16 bytes of every thread's row, or columns, reads 128 different bytes at
/// most.
Layout product_layout(const std::vector<int64_t>& extents, const std::vector<int64_t>& threads,
                      int64_t vector);

/// `spread` with the threads dealt out by extents, the last axis first.
Layout default_layout(const std::vector<int64_t>& extents, int64_t threads);

/// The layout of a tile in a plain program: the first of `defined` that has its extents, except
/// where the tile's is 1, whose digits are dropped; if there is none, the default.
Layout layout_of(const std::vector<NamedLayout>& defined, const std::vector<int64_t>& extents,
                 int64_t threads);

}  // namespace braze
