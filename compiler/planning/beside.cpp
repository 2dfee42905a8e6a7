#include "compiler/planning/beside.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <ranges>
#include <vector>

#include "ir/ops/exchange.h"
#include "ir/program/exchanges.h"
#include "ir/target/occupancy.h"

namespace braze {

namespace {

constexpr int64_t kFewer[] = {8, 4, 2};
// Fewer blocks must save this share of the whole time. Collectives that have a bound need
// communicators of their own.
constexpr double kLeastSaving = 0.005;
// Of the last ones, a bound must save this share of the time by which it makes the exchange longer.
// What follows may take less than its estimates, and then this time lies bare.
constexpr double kLeastOfLater = 0.1;
// A kernel that takes so many times as long has one round of blocks on the whole machine, and two
// on what is left of it. Others lose the share of the machine that is held, as long as it is.
constexpr double kMoreRounds = 2;

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
      users_[n] = first_user(program_, n);
      awaited_[users_[n]].push_back(n);
      if (has_kernels(n)) beside_.push_back(n);
    }
  }

  /// The collectives that have kernels between them and their first user.
  const std::vector<uint32_t>& beside() const { return beside_; }

  double exchange_of(uint32_t n, int64_t bound) const {
    return exchange_seconds(program_.target, most(received_bytes(program_, program_.launches[n])),
                            bound);
  }

  /// The time of the program with these bounds, by launch.
  double time(const std::vector<int64_t>& bounds) const {
    double now = 0, exchanged = 0;  // when the exchanges so far are over
    std::vector<double> ends(users_.size());
    std::deque<uint32_t> queue;  // exchanges that are not over: only the first is under way
    for (uint32_t n = 0; n < users_.size(); ++n) {
      if (is_collective(n)) {
        exchanged = std::max(now, exchanged) + exchange_of(n, bounds[n]);
        ends[n] = exchanged;
        queue.push_back(n);
        continue;
      }
      for (const uint32_t k : awaited_[n]) now = std::max(now, ends[k]);
      double left = seconds_[n];
      for (; !queue.empty(); queue.pop_front()) {
        const double more = ends[queue.front()] - now;
        if (more <= 0) continue;
        const double slower = slowdown(program_.launches[n], held_by(bounds[queue.front()]));
        if (slower >= kMoreRounds) {
          // Blocks that find no room begin when others end, or when the exchanges are over.
          now += std::min(exchanged - now, left * (slower - 1));
          break;
        }
        if (left * slower < more) {
          now += left * (slower - 1);
          break;
        }
        now += more;
        left -= more / slower;
      }
      now += left;
    }
    return std::max(now, exchanged);
  }

 private:
  bool is_collective(uint32_t n) const {
    return program_.launches[n].artifact == Launch::kCollective;
  }

  int64_t held_by(int64_t bound) const {
    return bound > 0 ? bound : blocks_for_links(program_.target);
  }

  bool has_kernels(uint32_t n) const {
    for (uint32_t k = n + 1; k < users_[n]; ++k)
      if (program_.launches[k].is_kernel()) return true;
    return false;
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

uint32_t first_user(const Program& program, uint32_t collective) {
  const std::vector<uint32_t>& own = program.launches[collective].buffers;
  const auto uses = [&](const Launch& launch) {
    for (size_t b = 1; b < own.size(); b += 2)
      if (std::ranges::find(launch.buffers, own[b]) != launch.buffers.end()) return true;
    return false;
  };
  uint32_t user = collective + 1;
  while (user < program.launches.size() && !uses(program.launches[user])) ++user;
  return user;
}

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
      const double longer = beside.exchange_of(n, blocks) - beside.exchange_of(n, 0);
      if (other > time + kLeastOfLater * longer) {
        bounds[n] = blocks;
        break;
      }
      time = other;
    }
    if (time >= least) continue;
    best = bounds;
    least = time * (1 - kLeastSaving);
  }
  for (const uint32_t n : beside.beside()) program.launches[n].collective.blocks = best[n];
}

}  // namespace braze
