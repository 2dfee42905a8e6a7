#include "ir/program/exchanges.h"

#include "ir/ops/exchange.h"
#include "ir/support/text.h"

namespace braze {

namespace {

Expr bytes_of(const TensorType& type) {
  return type.shape.numel() * Expr(static_cast<int64_t>(size_of(type.dtype)));
}

}  // namespace

void describe_exchange(const Program& program, Launch& launch) {
  Expr elements = 0;
  launch.bytes_read = launch.bytes_written = 0;
  for (size_t b = 0; b + 1 < launch.buffers.size(); b += 2) {
    const TensorType &from = program.slots.at(launch.buffers[b]).type,
                     &to = program.slots.at(launch.buffers[b + 1]).type;
    elements += to.shape.numel();
    launch.bytes_read += bytes_of(from);
    launch.bytes_written += bytes_of(to);
  }
  launch.instances = {elements};
}

void describe_custom_call(const Program& program, Launch& launch) {
  const auto bytes = [&](uint32_t slot) { return bytes_of(program.slots.at(slot).type); };
  launch.bytes_read = 0;
  for (size_t b = 0; b + 1 < launch.buffers.size(); ++b)
    launch.bytes_read += bytes(launch.buffers[b]);
  launch.bytes_written = bytes(launch.buffers.back());
}

Expr received_bytes(const Program& program, const Launch& launch) {
  Expr bytes = 0;
  for (size_t b = 0; b < launch.buffers.size(); b += 2)
    bytes += bytes_of(program.slots[launch.buffers[b]].type);
  const Collective& what = launch.collective;
  return received_bytes(what.kind, program.mesh[what.axis].size, bytes);
}

std::string exchanges_text(const Program& program) {
  std::string out;
  for (const Launch& launch : program.launches) {
    if (launch.artifact != Launch::kCollective) continue;
    const MeshAxis& axis = program.mesh[launch.collective.axis];
    const Expr received = received_bytes(program, launch);
    const int64_t blocks = launch.collective.blocks;
    const double seconds =
        exchange_seconds(program.target, static_cast<double>(received.range().max), blocks);
    out += fmt::format("  {:<14}  over {} ({} devices)  {:>10} bytes  {:>8.3g} us  {}{}\n",
                       name(launch.collective.kind), axis.name, axis.size, received.to_string(),
                       1e6 * seconds, launch.name,
                       blocks > 0 ? fmt::format(", in at most {} blocks", blocks) : "");
  }
  return out.empty() ? out : "exchanges, with the bytes that each device receives\n" + out;
}

}  // namespace braze
