#include "ops/roofs/roofs.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/cpu_info.h"

namespace atom::ops {
namespace {

// Bounds that hold for any x86-64 machine of the last fifteen years, however loaded, and for none
// that measures nothing.
TEST(Roofs, ArePlausible) {
  ThreadPool pool(2);
  const Roofs roofs = measure_roofs(Stream(&pool), 0.05);
  EXPECT_GT(roofs.read_bandwidth, 0.2e9);
  EXPECT_LT(roofs.read_bandwidth, 400e9);
  EXPECT_GT(roofs.f32_flops, 1e9);
  EXPECT_LT(roofs.f32_flops, 2 * 600e9);
  EXPECT_LT(roofs.bf16_flops, 2 * 1200e9);
  if (cpu_isa() < CpuIsa::kAvx512) {
    EXPECT_EQ(roofs.bf16_flops, roofs.f32_flops);
  }
}

// The same for cards from compute capability 8.0 on. Twice: the second uses what the first made.
TEST(Roofs, OfAGpuArePlausible) {
  const Result<DeviceRuntime*> runtime = device_runtime(DeviceType::kCuda);
  if (!runtime.ok()) GTEST_SKIP() << runtime.status().message();
  ThreadPool pool(1);
  const std::unique_ptr<DeviceQueue> queue = (*runtime)->create_queue();
  for (int i = 0; i < 2; ++i) {
    const Roofs roofs = measure_roofs(Stream(&pool, queue.get()), 0.02);
    EXPECT_GT(roofs.read_bandwidth, 50e9);
    EXPECT_LT(roofs.read_bandwidth, 40e12);
    EXPECT_GT(roofs.copy_bandwidth, 50e9);
    EXPECT_LT(roofs.copy_bandwidth, 40e12);
    // 0 where the library is missing.
    EXPECT_TRUE(roofs.bf16_flops == 0 || roofs.bf16_flops > 5e12) << roofs.bf16_flops;
    EXPECT_TRUE(roofs.f32_flops == 0 || roofs.f32_flops > 1e12) << roofs.f32_flops;
    EXPECT_TRUE(roofs.fp8_flops == 0 || roofs.fp8_flops > roofs.bf16_flops) << roofs.fp8_flops;
  }
}

}  // namespace
}  // namespace atom::ops
