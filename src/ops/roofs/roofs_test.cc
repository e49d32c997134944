#include "ops/roofs/roofs.h"

#include <gtest/gtest.h>

#include "base/cpu_info.h"

namespace atom::ops {
namespace {

// Bounds that hold for any x86-64 machine of the last fifteen years, however loaded, and for none
// that measures nothing.
TEST(Roofs, ArePlausible) {
  ThreadPool pool(2);
  const CpuRoofs roofs = measure_cpu_roofs(Stream(&pool), 0.05);
  EXPECT_GT(roofs.read_bandwidth, 0.2e9);
  EXPECT_LT(roofs.read_bandwidth, 400e9);
  EXPECT_GT(roofs.f32_flops, 1e9);
  EXPECT_LT(roofs.f32_flops, 2 * 600e9);
  EXPECT_LT(roofs.bf16_flops, 2 * 1200e9);
  if (cpu_isa() < CpuIsa::kAvx512) {
    EXPECT_EQ(roofs.bf16_flops, roofs.f32_flops);
  }
}

}  // namespace
}  // namespace atom::ops
