// kernels.h — kernels in PTX by hand, and programs of them. The fake driver knows their names.
#pragma once

#include <string>
#include <string_view>

#include "tests/runtime/programs.h"

namespace braze::test {

/// add_p0: z = x + y over n floats. add_all_p0: as add_p0, for two members. fault_p0: writes where nothing is. slow_p0: runs for at least
/// `nanoseconds`.
inline constexpr std::string_view kPlainPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry add_p0(.param .u64 x, .param .u64 y, .param .u64 z, .param .s64 n) {
  .reg .pred %p;
  .reg .f32 %f<3>;
  .reg .b32 %r<3>;
  .reg .b64 %d<8>;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %d0, %r0, %r1;
  cvt.u64.u32 %d1, %r2;
  add.s64 %d0, %d0, %d1;
  ld.param.s64 %d1, [n];
  setp.ge.s64 %p, %d0, %d1;
  @%p ret;
  shl.b64 %d0, %d0, 2;
  ld.param.u64 %d2, [x];
  ld.param.u64 %d3, [y];
  ld.param.u64 %d4, [z];
  add.s64 %d2, %d2, %d0;
  add.s64 %d3, %d3, %d0;
  add.s64 %d4, %d4, %d0;
  ld.global.f32 %f0, [%d2];
  ld.global.f32 %f1, [%d3];
  add.f32 %f2, %f0, %f1;
  st.global.f32 [%d4], %f2;
  ret;
}
.visible .entry add_all_p0(.param .align 8 .b8 pointers[48], .param .s64 n) {
  .reg .pred %p;
  .reg .f32 %f<3>;
  .reg .b32 %r<4>;
  .reg .b64 %d<8>;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.y;
  mul.wide.u32 %d0, %r0, %r1;
  cvt.u64.u32 %d1, %r2;
  add.s64 %d0, %d0, %d1;
  ld.param.s64 %d1, [n];
  setp.ge.s64 %p, %d0, %d1;
  @%p ret;
  shl.b64 %d0, %d0, 2;
  mul.wide.u32 %d5, %r3, 24;
  mov.u64 %d6, pointers;
  add.s64 %d6, %d6, %d5;
  ld.param.u64 %d2, [%d6];
  ld.param.u64 %d3, [%d6+8];
  ld.param.u64 %d4, [%d6+16];
  add.s64 %d2, %d2, %d0;
  add.s64 %d3, %d3, %d0;
  add.s64 %d4, %d4, %d0;
  ld.global.f32 %f0, [%d2];
  ld.global.f32 %f1, [%d3];
  add.f32 %f2, %f0, %f1;
  st.global.f32 [%d4], %f2;
  ret;
}
.visible .entry fault_p0(.param .u64 x) {
  .reg .b32 %r0;
  .reg .b64 %d0;
  mov.u32 %r0, 1;
  mov.u64 %d0, 64;
  st.global.u32 [%d0], %r0;
  ret;
}
.visible .entry slow_p0(.param .u64 x, .param .s64 nanoseconds) {
  .reg .pred %p;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [nanoseconds];
  mov.u64 %d1, %globaltimer;
again:
  mov.u64 %d2, %globaltimer;
  sub.u64 %d3, %d2, %d1;
  setp.lt.u64 %p, %d3, %d0;
  @%p bra again;
  ret;
}
)";

/// rank_p0: y[i] = rank of block i in its cluster.
/// box_p0: y[8, 32] = the box of x at row 4, column 16, through a tensor map; 256 threads.
inline constexpr std::string_view kHopperPtx = R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 memory[];
.visible .entry rank_p0(.param .u64 y) {
  .reg .f32 %f0;
  .reg .b32 %r<2>;
  .reg .b64 %d<2>;
  mov.u32 %r0, %cluster_ctarank;
  cvt.rn.f32.u32 %f0, %r0;
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %d0, %r1, 4;
  ld.param.u64 %d1, [y];
  add.s64 %d1, %d1, %d0;
  st.global.f32 [%d1], %f0;
  ret;
}
.visible .entry box_p0(.param .u64 x, .param .u64 y, .param .align 128 .b8 map[128]) {
  .reg .pred %p;
  .reg .f32 %f0;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, memory;
  add.u32 %r2, %r1, 1024;
  setp.ne.u32 %p, %r0, 0;
  @%p bra ready;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 %d0, [%r2], 1024;
  mov.u64 %d1, map;
  cvta.param.u64 %d1, %d1;
  mov.u32 %r3, 16;
  mov.u32 %r4, 4;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1, {%r3, %r4}], [%r2];
ready:
  bar.sync 0;
again:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%r2], 0;
  @!%p bra again;
  shl.b32 %r5, %r0, 2;
  add.u32 %r6, %r1, %r5;
  ld.shared.f32 %f0, [%r6];
  cvt.u64.u32 %d2, %r5;
  ld.param.u64 %d3, [y];
  add.s64 %d3, %d3, %d2;
  st.global.f32 [%d3], %f0;
  ret;
}
)";

inline constexpr int64_t kThreads = 128;

/// Makes programs for a GPU. Every kernel has one phase.
struct GpuMaker : Maker {
  explicit GpuMaker(std::string name, std::vector<Expr> symbols = {symbol_n()},
                    std::string_view target = "sm_80")
      : Maker(std::move(name), std::move(symbols)) {
    program->target = *find_target(target);
  }
  Launch& kernel(std::string_view ptx, const std::string& name, std::vector<uint32_t> buffers,
                 std::vector<Expr> scalars, const Expr& instances, GpuPhase phase = {kThreads}) {
    Launch& l = launch(name, {}, std::move(buffers), std::move(scalars), instances);
    program->artifacts.back() = {"ptx", name, std::string(ptx), {}, {name + "_p0"}};
    l.instances = {instances};
    l.gpu = {phase};
    l.ops = {name + ".1 : f32[n] at model.cpp:7"};
    return l;
  }
  Launch& add(uint32_t x, uint32_t y, uint32_t z, const Expr& n) {
    return kernel(kPlainPtx, "add", {x, y, z}, {n}, ceildiv(n, kThreads));
  }
};

/// z = x + y over f32[n].
inline GpuMaker gpu_add_program() {
  GpuMaker m("sum");
  const Expr n = symbol_n();
  const uint32_t x = m.input("x", vector_type(n));
  const uint32_t y = m.input("y", vector_type(n));
  m.add(x, y, m.output("z", vector_type(n)), n);
  return m;
}

/// w = 16 x, in four launches, three through the arena.
inline Executable sixteen_program(const Device& device) {
  GpuMaker m("sixteen");
  const Expr n = symbol_n();
  const Expr bytes = 256 * ceildiv(4 * n, 256);
  uint32_t value = m.input("x", vector_type(n));
  for (int i = 0; i < 3; ++i) {
    const uint32_t twice = m.temporary("t", vector_type(n), i * bytes);
    m.add(value, value, twice, n);
    value = twice;
  }
  m.add(value, value, m.output("w", vector_type(n)), n);
  m.program->arena_bytes = 3 * bytes;
  return m.load(device);
}

}  // namespace braze::test
