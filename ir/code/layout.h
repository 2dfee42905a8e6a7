// layout.h — layouts, which say which thread and register of a GPU block holds each element of a
// tile: section 7.3 of docs/ir/languages.md.
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

/// The mixed-radix digits of each axis, the most significant first. Their extents multiply to the
/// extent of the axis; an axis of extent 1 has no digits.
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

/// Threads of a block are numbered warp by warp: a lane digit of stride s steps by s threads, and a
/// warp digit by 32 s.
inline constexpr int64_t kWarpThreads = 32;
bool is_thread_digit(const Digit& digit);
/// Whether a digit spreads elements over threads, or over the blocks of a cluster.
bool is_spread(const Digit& digit);
int64_t thread_stride(const Digit& digit);

/// Renumbers the registers without gaps, in the order of the digits' present strides.
void renumber_registers(Layout& layout);

/// A digit that is an axis of a thread's array, and its place in the tile's index.
struct RegisterDigit {
  size_t axis = 0;
  int64_t weight = 1;  ///< in the index of the axis
  int64_t extent = 1;
  friend bool operator==(const RegisterDigit&, const RegisterDigit&) = default;
};
/// The register digits, the greatest stride first.
std::vector<RegisterDigit> register_digits(const Layout& layout);

/// The layout of the accumulator of m64 x `columns`; and the layout of an operand in registers,
/// with 16-bit elements (for tf32, 32-bit ones), whose contracted axis has `depth` elements. See
/// section 7.3.
Layout accumulator_layout(int64_t columns);
Layout dot_operand_layout(int64_t depth, bool tf32);

/// A layout that spreads a tile of `extents` over a block. Axis k runs over threads[k] threads, the
/// last axis fastest, with `vector` neighbours along the last axis in one thread. Then the last
/// axis runs over the blocks of a cluster. What is left of an axis goes to registers, outermost.
/// Shorter extents use fewer neighbours, then fewer threads, then fewer blocks. Extents, and the
/// numbers of threads and blocks, must be multiples of the powers of two that are used.
Layout spread(const std::vector<int64_t>& extents, const std::vector<int64_t>& threads,
              int64_t vector, int64_t cluster = 1);

/// A layout that spreads a tile of rows x columns over rows x columns of threads, with `vector`
/// neighbours along the columns in each thread. A warp has 4 x 8 threads, and neighbours along the
/// rows have neighbouring numbers. If each thread reads 16 bytes of its row, or of its columns,
/// half a warp then reads at most 128 different bytes.
Layout product_layout(const std::vector<int64_t>& extents, const std::vector<int64_t>& threads,
                      int64_t vector);

/// `spread` with numbers of threads that follow from the extents, the last axis first.
Layout default_layout(const std::vector<int64_t>& extents, int64_t threads);

/// The place of the first layout that fits a tile with these extents, which has its extents but for
/// axes of one element. `defined.size()` if there is none.
size_t first_that_fits(const std::vector<NamedLayout>& defined,
                       const std::vector<int64_t>& extents);

/// The layout of a tile in a plain program: the first of `defined` that has its extents. Where an
/// extent of the tile is 1, the layout may have any extent, and its digits are dropped. If no
/// layout fits, it is the default layout.
Layout layout_of(const std::vector<NamedLayout>& defined, const std::vector<int64_t>& extents,
                 int64_t threads);

}  // namespace braze
