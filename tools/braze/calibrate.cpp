#include "tools/braze/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "braze/array.h"
#include "braze/compile.h"
#include "ir/graph/text.h"
#include "ir/ops/exchange.h"
#include "ir/program/program.h"
#include "ir/support/clocks.h"
#include "runtime/mesh/mesh_executable.h"
#include "tools/braze/report.h"

namespace braze::tool {

namespace {

constexpr int kCalls = 20, kLargeCalls = 5;
// So many that what a call costs besides is a small part.
constexpr int kExchanges = 33;
constexpr int64_t kFew = 64;

/// So many all_reduces of so many elements, each of which needs the one before.
MeshExecutable exchanges(const Mesh& mesh, int count, int64_t elements) {
  const MeshAxis& axis = mesh.axes()[0];
  const std::string type = fmt::format("f32[{}]", elements);
  std::string text =
      fmt::format("braze 1 graph\nmesh {}: {}\ngraph @exchanges(%x: {} varying [{}]) {{\n",
                  axis.name, axis.size, type, axis.name);
  std::string last = "x";
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += fmt::format("  %p{} = mul %{}, %x : {}\n", i, last, type);
    const std::string from = i > 0 ? fmt::format("p{}", i) : last;
    text +=
        fmt::format("  %s{} = all_reduce sum %{} {{over: {}}} : {}\n", i, from, axis.name, type);
    last = fmt::format("s{}", i);
  }
  text += fmt::format("  return %{}\n}}\n", last);
  const auto program = std::make_shared<const Program>(
      compile(parse_graph(text, "calibration"), mesh.devices()[0].target()));
  return MeshExecutable::load(program, mesh);
}

/// The shortest time of `calls`, until all results are there.
double seconds_of(const Mesh& mesh, int count, int64_t elements, int calls) {
  const MeshExecutable run = exchanges(mesh, count, elements);
  std::vector<std::vector<Array>> arguments(mesh.size());
  const HostTensor zeros(DType::F32, {elements});
  for (size_t place = 0; place < mesh.size(); ++place)
    if (mesh.is_local(place))
      arguments[place].push_back(Array::from_host(zeros, mesh.devices()[place]));
  double best = 0;
  for (int i = 0; i < calls; ++i) {
    WallClock clock;
    const auto results = run.run(arguments);
    for (size_t place = 0; place < mesh.size(); ++place)
      if (mesh.is_local(place)) synchronize(mesh.devices()[place]);
    const double taken = clock.lap();
    best = i == 0 ? taken : std::min(best, taken);
  }
  return best;
}

double copy_seconds(const Mesh& mesh, int64_t elements, int calls) {
  const Array source = Array::from_host(HostTensor(DType::F32, {elements}), mesh.devices()[0]);
  synchronize(mesh.devices()[0]);
  double best = 0;
  for (int i = 0; i < calls; ++i) {
    WallClock clock;
    const Array copied = source.to(mesh.devices()[1]);
    synchronize(mesh.devices()[1]);
    const double taken = clock.lap();
    best = i == 0 ? taken : std::min(best, taken);
  }
  return best;
}

/// Bytes in the time that the many take longer than the few.
double rate(double bytes, double many, double few) { return bytes / std::max(many - few, 1e-9); }

}  // namespace

Links measure_links(const Mesh& mesh) {
  Links links{mesh.size(), mesh.devices()[0].target(), 0, 0};
  const bool on_gpus = links.target.kind == TargetKind::Gpu;
  const int64_t many = (on_gpus ? 256 : 16) << 18;  // f32: MiB
  const double bytes = static_cast<double>(many) * sizeof(float);
  const double one = seconds_of(mesh, 1, kFew, kCalls);
  const double several = seconds_of(mesh, kExchanges, kFew, kCalls);
  links.target.link_seconds = std::max((several - one) / (kExchanges - 1), 1e-9);
  const Expr received = received_bytes(CollectiveKind::AllReduce, mesh.axes()[0].size,
                                       Expr(many * static_cast<int64_t>(sizeof(float))));
  links.target.link_bytes_per_second = rate(static_cast<double>(received.as_constant().value()),
                                            seconds_of(mesh, 1, many, kLargeCalls), one);
  if (mesh.is_local(0) && mesh.is_local(1)) {
    links.copy_seconds = copy_seconds(mesh, kFew, kCalls);
    links.copy_bytes_per_second =
        rate(bytes, copy_seconds(mesh, many, kLargeCalls), links.copy_seconds);
  }
  return links;
}

std::string link_text(double seconds, double bytes_per_second) {
  return fmt::format("{} and {:.3g} GB/s", seconds_text(seconds), bytes_per_second / 1e9);
}

}  // namespace braze::tool
