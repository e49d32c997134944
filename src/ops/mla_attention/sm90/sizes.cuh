// Inside latent attention for Hopper: the sizes of items and tiles, and how they lie in shared
// memory.
#pragma once

#include <type_traits>

#include "ops/attention/device/softmax.cuh"
#include "ops/attention/device/wgmma.cuh"
#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"

namespace atom::ops::mla_device {

constexpr int kRank = 512;
constexpr int kWidth = 576;
constexpr int kRows = 64;  // of an item: query heads
constexpr int kKeys = 64;  // of a tile

constexpr int kWarpgroup = 128;  // threads
constexpr int kThreads = 3 * kWarpgroup;
constexpr uint32_t kAllLanes = 0xffffffffu;

// A matrix of 64 rows lies as panels of 64 columns, 128 bytes a row, 128-byte swizzled.
constexpr int kPanelColumns = 64;
constexpr int kPanelBytes = 64 * 128;
constexpr int kEightRowsBytes = 8 * 128;
constexpr int kHalfPanels = kRank / kPanelColumns / 2;
constexpr int kRopePanel = 2 * kHalfPanels;
constexpr int kPanels = kRopePanel + 1;
constexpr int kTileBytes = kPanels * kPanelBytes;

// What products are of. Codes of FP8 are float16 as they are; queries become it with a scale.
template <bool kFloat8>
using ElementOf = std::conditional_t<kFloat8, __half, gpu_bfloat16>;

// Byte of a chunk of 16 bytes in a panel.
__device__ inline uint32_t panel_offset(int row, int chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

}  // namespace atom::ops::mla_device
