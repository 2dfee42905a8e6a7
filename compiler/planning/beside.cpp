#include "compiler/planning/beside.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <vector>

#include "ir/ops/exchange.h"
#include "ir/program/exchanges.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

// The model of the links: the rate of a large collective grows in proportion to its blocks up to
// this number, which NCCL takes if it may.
constexpr int64_t kAllBlocks = 16;
constexpr int64_t kFewer[] = {8, 4, 2};
// Fewer blocks must save this share of the whole time. Collectives that have a bound need
// communicators of their own.
constexpr double kLeastSaving = 0.005;

double most(const Expr& e) { return static_cast<double>(std::max<int64_t>(e.range().max, 0)); }

class Beside {
 public:
  Beside(const Program& program, std::span<const double> seconds)
      : program_(program),
        seconds_(seconds),
        users_(program.launches.size()),
        awaited_(program.launches.size() + 1) {
    for (uint32_t n = 0; n < users_.size(); ++n) {
      if (!is_collective(n)) continue;
      users_[n] = first_user(n);
      awaited_[users_[n]].push_back(n);
      if (has_kernels(n)) beside_.push_back(n);
    }
  }

  /// The collectives that have kernels between them and their first user.
  const std::vector<uint32_t>& beside() const { return beside_; }

  /// The time of the program with these bounds, by launch.
  double time(const std::vector<int64_t>& bounds) const {
    double now = 0, exchanged = 0;  // when the exchanges so far are over
    int64_t held = 0;               // blocks of the present exchange
    std::vector<double> ends(users_.size());
    for (uint32_t n = 0; n < users_.size(); ++n) {
      if (is_collective(n)) {
        held = bounds[n] > 0 ? bounds[n] : kAllBlocks;
        const double share = static_cast<double>(kAllBlocks) / static_cast<double>(held);
        const double bytes = most(received_bytes(program_, program_.launches[n]));
        exchanged = std::max(now, exchanged) + program_.target.link_seconds +
                    share * bytes / program_.target.link_bytes_per_second;
        ends[n] = exchanged;
        continue;
      }
      for (const uint32_t k : awaited_[n]) now = std::max(now, ends[k]);
      // Blocks that find no room begin when others end, or when the exchange is over.
      const double late = seconds_[n] * (slowdown(program_.launches[n], held) - 1);
      now += seconds_[n] + std::clamp(exchanged - now, 0.0, late);
    }
    return std::max(now, exchanged);
  }

 private:
  bool is_collective(uint32_t n) const {
    return program_.launches[n].artifact == Launch::kCollective;
  }

  bool has_kernels(uint32_t n) const {
    for (uint32_t k = n + 1; k < users_[n]; ++k)
      if (program_.launches[k].is_kernel()) return true;
    return false;
  }

  uint32_t first_user(uint32_t n) const {
    const std::vector<uint32_t>& own = program_.launches[n].buffers;
    uint32_t user = n + 1;
    const auto uses = [&](const Launch& launch) {
      for (size_t b = 1; b < own.size(); b += 2)
        if (std::ranges::find(launch.buffers, own[b]) != launch.buffers.end()) return true;
      return false;
    };
    while (user < users_.size() && !uses(program_.launches[user])) ++user;
    return user;
  }

  // How many times as long a kernel takes if so many multiprocessors are held by others.
  double slowdown(const Launch& launch, int64_t held) const {
    double worst = 1;
    for (size_t i = 0; i < launch.gpu.size(); ++i) {
      const GpuPhase& phase = launch.gpu[i];
      const auto at_once = static_cast<double>(std::max<int64_t>(
          resident_blocks(program_.target,
                          {.threads = phase.block, .shared_bytes = phase.shared_bytes}),
          1));
      const double blocks = most(launch.instances[i]) * static_cast<double>(phase.cluster) *
                            static_cast<double>(launch.grid_rows());
      const auto rounds = [&](int64_t cores) {
        return std::ceil(blocks / (at_once * static_cast<double>(std::max<int64_t>(cores, 1))));
      };
      if (blocks > 0)
        worst =
            std::max(worst, rounds(program_.target.cores - held) / rounds(program_.target.cores));
    }
    return worst;
  }

  const Program& program_;
  const std::span<const double> seconds_;
  std::vector<uint32_t> users_;  // by launch; of collectives: the first launch that reads a result
  std::vector<std::vector<uint32_t>> awaited_;  // by launch: the collectives of which it is that
  std::vector<uint32_t> beside_;
};

}  // namespace

void choose_blocks_of_collectives(Program& program, std::span<const double> seconds) {
  if (program.target.kind != TargetKind::Gpu || program.mesh.empty()) return;
  const Beside beside(program, seconds);
  const std::vector<int64_t> free(program.launches.size());
  std::vector<int64_t> best = free;
  double least = beside.time(free) * (1 - kLeastSaving);
  for (const int64_t blocks : kFewer) {
    std::vector<int64_t> bounds = free;
    for (const uint32_t n : beside.beside()) bounds[n] = blocks;
    double time = beside.time(bounds);
    // Too little may run beside the last ones to hide them.
    for (const uint32_t n : std::views::reverse(beside.beside())) {
      bounds[n] = 0;
      const double other = beside.time(bounds);
      if (other >= time) {
        bounds[n] = blocks;
        break;
      }
      time = other;
    }
    if (time < least) best = bounds;
    least = std::min(least, time);
  }
  for (const uint32_t n : beside.beside()) program.launches[n].collective.blocks = best[n];
}

}  // namespace braze
