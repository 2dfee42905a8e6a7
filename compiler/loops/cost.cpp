#include "compiler/loops/cost.h"

#include <algorithm>
#include <cmath>

#include "compiler/loops/cost_p.h"
#include "compiler/loops/rules/facts.h"
#include "ir/support/text.h"

namespace braze {

namespace {

// What kernels reach on one kind of machine.
struct Reached {
  double memory, cache;  // shares of the Target's rates
  double contractions;   // of products on vector units, a share of the Target's rate
  // The share of the shared cache whose content is there because of the kernel before, or remains
  // there for its next use.
  double resident;
  // The shorter one of memory time and compute time is hidden by the longer one, except for this
  // share; the second is for kernels that compute elements from folds over their own tile.
  double not_overlapped, not_overlapped_after_folds;
  // The same for kernels with dots on matrix units, which load before and store after their loops,
  // and for the operations beside asynchronous dots, which mostly wait for each other.
  double not_overlapped_by_dots, not_overlapped_beside_dots;
  // In launches: what a kernel takes besides its phases, and what a phase with folds or with matrix
  // units takes besides a launch.
  double start, folding, multiplying;
};
// The speeds of a CPU are those that the runtime knows for its class (host_target).
constexpr Reached kCpu{.memory = 1,
                       .cache = 1,
                       .contractions = 0.8,
                       .resident = 1,
                       .not_overlapped = 0.25,
                       .not_overlapped_after_folds = 0.25,
                       .not_overlapped_by_dots = 0.25,
                       .not_overlapped_beside_dots = 1,
                       .start = 0,
                       .folding = 0,
                       .multiplying = 0};
// The speeds of a GPU are those of its data sheet. Fitted on one half of the kernels of the sweep
// on an H200, and judged on the other half (bench/sweep/predictions.py).
constexpr Reached kGpu{.memory = 0.76,
                       .cache = 0.9,
                       .contractions = 0.5,
                       .resident = 0.25,
                       .not_overlapped = 0.1,
                       .not_overlapped_after_folds = 0.2,
                       .not_overlapped_by_dots = 0.5,
                       .not_overlapped_beside_dots = 0.6,
                       .start = 0.25,
                       .folding = 0.1,
                       .multiplying = 0.67};

// The shares of their rates that dots on matrix units reach; the last one, of 16-bit factors, is a
// share of what the matrix units of warps can do.
constexpr double kAsynchronousDots = 0.8, kWarpDots = 0.25, kWarpHalfDots = 0.62;
// Where there are asynchronous instructions, those of warps reach this share of the rate.
constexpr double kBesideAsynchronous = 0.62;
// A multiprocessor needs so long for each line of a bulk copy: convolutions with rows of 32 to 128
// bytes took up to 2 ns, all in all, on an H200, and products with rows inside of lines 2.9.
constexpr double kBulkLineSeconds = 1.5e-9;
// What is loaded often comes faster than from the shared cache, by this factor, because a part of
// it is in a closer one.
constexpr double kCloser = 2.25;
// In the time of 160 operations, a multiprocessor loads a line of 128 bytes from its nearest cache.
constexpr double kLineBytesPerFlop = 0.8;
// The number of tile elements that must be under way to keep the memory busy for one
// multiprocessor.
constexpr double kElementsToFill = 2400;
// A multiprocessor whose dots need data can draw this multiple of its share of the memory's rate.
constexpr double kDrawn = 2;
// The blocks of products on the matrix units of warps load, multiply and store one after the other,
// so they reach this share of the memory's rate.
constexpr double kWarpDotsMoving = 0.6;
// A turn of a loop that loads what it needs takes at least so long. A multiprocessor runs about so
// many blocks at once.
constexpr double kTurnSeconds = 0.8e-6, kResidentBlocks = 12;

// The share of the machine that the instances keep busy.
double busy_share(const Work& work, const Target& target) {
  const double waves = work.instances / std::max(target.cores, 1);
  if (target.kind != TargetKind::Gpu) return std::min(waves, 1.0);
  if (work.multiplies) return waves / std::ceil(waves);
  return std::min({waves, 1.0, waves * work.tile / kElementsToFill});
}

// The share of the memory's rate that the instances can draw.
double drawn_share(const Work& work, const Target& target) {
  if (target.kind != TargetKind::Gpu || !work.multiplies) return busy_share(work, target);
  return std::min(work.instances / std::max(target.cores, 1) * kDrawn, 1.0);
}

}  // namespace

double matrix_rate(const Target& target) {
  return target.asynchronous_dots
             ? target.flops_per_second * target.matrix_speed * kAsynchronousDots
             : target.flops_per_second * warp_matrix_speed(target) * kWarpHalfDots;
}

double warp_matrix_speed(const Target& target) {
  return target.matrix_speed * (target.asynchronous_dots ? kBesideAsynchronous : 1);
}

double tile_share(double warps, double rows, double columns) {
  constexpr double kMost = 0.9, kUnits = 4, kHiddenWarps = 1.5;
  return kMost * std::min(warps / kUnits, 1.0) * warps / (warps + kHiddenWarps) * rows * columns /
         (rows * columns + rows + columns);
}

Cost cost_of(const LoopTree& tree, const Target& target) {
  const Work work = work_of(tree, target);
  const bool gpu = target.kind == TargetKind::Gpu;
  const Reached& reached = gpu ? kGpu : kCpu;
  const double memory = target.memory_bytes_per_second * reached.memory;
  const double cache = target.cache_bytes_per_second * reached.cache;
  const double beside = work.read + work.written - work.beside_products;
  const double resident = std::min(beside, static_cast<double>(target.l3_bytes) * reached.resident);
  double moving =
      (resident + work.cached_again) / cache + (beside - resident + work.read_again) / memory;
  if (gpu && !work.multiplies)
    moving = std::max(moving, (work.loaded + work.written) / (cache * kCloser));
  if (gpu) moving = std::max(moving, work.lines / (target.flops_per_second * kLineBytesPerFlop));
  if (gpu && work.multiplies && !work.asynchronous) moving /= kWarpDotsMoving;
  const double operations = work.operations / elementwise_rate(target);
  double products = work.products / (target.flops_per_second * reached.contractions);
  products += work.tile_time / target.flops_per_second;
  if (work.multiplies)
    products +=
        (work.matrix_products + work.small_tiles) /
            (work.asynchronous ? matrix_rate(target)
                               : target.flops_per_second * target.matrix_speed * kWarpDots) +
        work.warp_products / (target.flops_per_second * warp_matrix_speed(target) * kWarpHalfDots);
  const auto beside_each_other = [](double a, double b, double not_overlapped) {
    return std::max(a, b) + not_overlapped * std::min(a, b);
  };
  const double copying = work.bulk_lines * kBulkLineSeconds / std::max(target.cores, 1);
  const double computing =
      beside_each_other(operations, std::max(products, copying),
                        work.asynchronous ? reached.not_overlapped_beside_dots : 1);
  double running =
      beside_each_other(moving / drawn_share(work, target), computing / busy_share(work, target),
                        work.multiplies ? reached.not_overlapped_by_dots
                        : work.waits    ? reached.not_overlapped_after_folds
                                        : reached.not_overlapped);
  if (gpu && !work.asynchronous)
    running =
        std::max(running, work.turns * kTurnSeconds *
                              std::max(1.0, work.instances / (kResidentBlocks * target.cores)));
  const double phase = 1 + (work.multiplies ? reached.multiplying
                            : work.folds    ? reached.folding
                                            : 0);
  Cost out;
  out.bytes_read = work.read;
  out.bytes_written = work.written;
  out.flops = work.operations + work.products + work.tile_products + work.matrix_products +
              work.warp_products;
  out.instances = work.instances;
  out.start_seconds =
      target.launch_seconds * (reached.start + phase * static_cast<double>(tree.phases.size()));
  out.seconds = out.start_seconds + work.slowly / memory + running;
  return out;
}

std::string Cost::to_string() const {
  const bool long_time = seconds >= 1e-3;
  return fmt::format("{:.3g} {}: {} read, {} written, {:.3g} Mflop, {} instances",
                     seconds * (long_time ? 1e3 : 1e6), long_time ? "ms" : "us",
                     bytes_text(static_cast<uint64_t>(bytes_read)),
                     bytes_text(static_cast<uint64_t>(bytes_written)), flops * 1e-6,
                     static_cast<int64_t>(instances));
}

}  // namespace braze
