#include "runtime/devices/cuda/strided_copy.h"

#include <algorithm>

#include "braze/error.h"
#include "ir/support/text.h"

namespace braze {

namespace {

constexpr unsigned kThreads = 256;
constexpr uint64_t kMostBlocks = 1 << 15;  // for more units, each thread copies several

// The text is for PTX 7.0 and sm_80, the oldest GPUs that Braze supports. Division in 64 bits is
// several times slower, so it is used only if the operands do not fit in 32 bits.
//   %to %from   the addresses to which and from which it copies
//   %i %step    the number of a unit, and the distance to the thread's next unit
//   %rest %at   the part of %i that further axes will divide, and the offset so far
constexpr std::string_view kEntry = R"(
.visible .entry {entry}(.param .align 8 .b8 p[{bytes}])
{{
  .reg .pred %end, %stored, %wide;
  .reg .b32 %a, %b, %q, %m, %block, %blocks, %thread, %threads;
  .reg .b64 %to, %from, %units, %axes, %i, %step, %rest, %at, %axis, %left;
  .reg .b64 %extent, %stride, %both, %mod, %t;
  {registers}
  ld.param.u64 %to, [p];
  ld.param.u64 %from, [p+8];
  ld.param.u64 %units, [p+16];
  ld.param.u64 %axes, [p+24];
  mov.u32 %block, %ctaid.x;
  mov.u32 %blocks, %nctaid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %threads, %ntid.x;
  cvt.u64.u32 %t, %thread;
  mul.wide.u32 %i, %block, %threads;
  add.u64 %i, %i, %t;
  mul.wide.u32 %step, %blocks, %threads;
NEXT:
  setp.ge.u64 %end, %i, %units;
  @%end bra END;
  mov.u64 %rest, %i;
  mov.u64 %at, %from;
  mov.u64 %axis, p;
  mov.u64 %left, %axes;
AXIS:
  setp.eq.u64 %stored, %left, 0;
  @%stored bra STORE;
  ld.param.u64 %extent, [%axis+32];
  ld.param.u64 %stride, [%axis+40];
  or.b64 %both, %rest, %extent;
  shr.u64 %both, %both, 32;
  setp.ne.u64 %wide, %both, 0;
  @%wide bra WIDE;
  cvt.u32.u64 %a, %rest;
  cvt.u32.u64 %b, %extent;
  div.u32 %q, %a, %b;
  mul.lo.u32 %m, %q, %b;
  sub.u32 %m, %a, %m;
  cvt.u64.u32 %rest, %q;
  cvt.u64.u32 %mod, %m;
  bra ADD;
WIDE:
  rem.u64 %mod, %rest, %extent;
  div.u64 %rest, %rest, %extent;
ADD:
  mad.lo.u64 %at, %mod, %stride, %at;
  add.u64 %axis, %axis, 16;
  sub.u64 %left, %left, 1;
  bra AXIS;
STORE:
  mad.lo.u64 %t, %i, {unit}, %to;
  ld.global.{type} {value}, [%at];
  st.global.{type} [%t], {value};
  add.u64 %i, %i, %step;
  bra NEXT;
END:
  ret;
}}
)";

}  // namespace

std::string StridedCopies::entry(int unit) { return fmt::format("strided_copy_{}", unit); }

std::string StridedCopies::ptx() {
  std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n";
  for (const int unit : kUnits) {
    const bool is_pair = unit == 16;
    const std::string type = is_pair ? "v2.u64" : fmt::format("u{}", 8 * unit);
    // A register has at least 16 bits.
    const std::string registers =
        is_pair ? ".reg .b64 %v, %w;" : fmt::format(".reg .b{} %v;", std::max(16, 8 * unit));
    text += fmt::format(kEntry, fmt::arg("entry", entry(unit)), fmt::arg("unit", unit),
                        fmt::arg("bytes", sizeof(Parameters)), fmt::arg("registers", registers),
                        fmt::arg("type", type), fmt::arg("value", is_pair ? "{%v, %w}" : "%v"));
  }
  return text;
}

void StridedCopies::copy(cuda::CUstream stream, std::byte* to, const std::byte* from,
                         const StridedCopy& copy) {
  BRAZE_CHECK(copy.axes.size() <= StridedCopy::kMostAxes, "a strided copy has too many axes");
  // All distances and both addresses are multiples of the unit.
  uint64_t distances = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) |
                       static_cast<uint64_t>(copy.bytes);
  for (const StridedCopy::Axis& axis : copy.axes) distances |= static_cast<uint64_t>(axis.stride);
  const int unit = *std::ranges::find_if(
      kUnits, [&](int size) { return distances % static_cast<uint64_t>(size) == 0; });

  Parameters parameters{};
  parameters.to = reinterpret_cast<uintptr_t>(to);
  parameters.from = reinterpret_cast<uintptr_t>(from);
  parameters.units = 1;
  const auto add = [&](uint64_t extent, int64_t stride) {
    parameters.axis[parameters.axes++] = {extent, stride};
    parameters.units *= extent;
  };
  if (copy.bytes != static_cast<size_t>(unit)) add(copy.bytes / static_cast<uint64_t>(unit), unit);
  for (auto axis = copy.axes.rbegin(); axis != copy.axes.rend(); ++axis)
    add(static_cast<uint64_t>(axis->extent), axis->stride);

  cuda::CUfunction function = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!module_) module_.emplace(context_, ptx(), "strided_copy");
    function = module_->find(entry(unit));
  }
  BRAZE_CHECK(function, "the kernel of strided copies has no entry of this name");
  cuda::CUlaunchConfig config{};
  config.gridDimX =
      static_cast<unsigned>(std::clamp<uint64_t>(parameters.units / kThreads, 1, kMostBlocks));
  config.blockDimX = kThreads;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  void* values[] = {&parameters};
  context_.check(context_.api().launch_kernel_ex(&config, function, values, nullptr),
                 "a copy of strided memory");
}

}  // namespace braze
