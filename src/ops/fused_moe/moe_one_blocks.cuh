// Inside fused_moe for one token on Hopper: the threads of a block, the token's experts, and how
// all blocks wait for each other.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_one.h"

namespace atom::ops::device::moe_one {

// Warps that multiply, and then one that copies.
constexpr int kWarps = 16, kNumConsumers = kWarps * kWarpSize;
constexpr int kThreads = kNumConsumers + kWarpSize;
constexpr int kMaxChoices = 32;

struct Choice {
  int expert;
  float weight;
};

// On the CPU: as many tokens as are made side by side, each of whole vectors of x in bfloat16.
inline bool fits_tokens(const FusedMoeGpuCall& call) {
  constexpr int kVectorValues = kVectorSize / sizeof(BFloat16);
  return call.num_tokens >= 1 && call.num_tokens <= kMaxMoeOneTokens &&
         reinterpret_cast<uintptr_t>(call.x) % kVectorSize == 0 &&
         (call.num_tokens == 1 || call.x_stride % kVectorValues == 0);
}

// Of a card's blocks those of each token, one of each multiprocessor.
inline dim3 blocks_of_tokens(const FusedMoeGpuCall& call, int num_blocks) {
  return dim3(num_blocks / call.num_tokens, call.num_tokens);
}

// The block's token.
__device__ inline int own_token() {
  return static_cast<int>(blockIdx.y);
}

__device__ inline const BFloat16* x_of(const FusedMoeGpuCall& call, int token) {
  return static_cast<const BFloat16*>(call.x) + token * call.x_stride;
}

// A token's experts that are here, by one warp; returns their number.
__device__ inline int find_choices(const FusedMoeGpuCall& call,
                                   int token,
                                   Choice (&choices)[kMaxChoices]) {
  const int lane = threadIdx.x % kWarpSize, choice = token * call.top_k + lane;
  // Of all choices, so that nothing is asked for when something else has come.
  const float weight = lane < call.top_k ? gpu_load_from_l2(call.weights + choice) : 0.0f;
  const int place = lane < call.top_k ? place_of(call, choice) : -1;
  const uint32_t present = __ballot_sync(0xffffffffu, place >= 0);
  if (place >= 0) choices[__popc(present & ((1u << lane) - 1))] = {place, weight};
  return __popc(present);
}

// Of the last block that says that it has seen all others come, the counters are as they were.
__device__ inline void leave_meeting(int32_t* counters) {
  const int32_t all = static_cast<int32_t>(gridDim.x);
  if (atomicAdd(counters + 1, 1) == all - 1) counters[0] = counters[1] = 0;
}

// Returns when all blocks have come here. By one thread.
__device__ inline void wait_for_all_blocks(int32_t* counters) {
  const int32_t all = static_cast<int32_t>(gridDim.x);
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counters) : "memory");
  int32_t count = 0;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(counters) : "memory");
  } while (count < all);
}

// The same, and the last one to see that leaves the counters as they were. By the warps that
// multiply.
__device__ inline void meet_all_blocks(int32_t* counters) {
  synchronize_first<kNumConsumers>();
  if (threadIdx.x == 0) {
    wait_for_all_blocks(counters);
    leave_meeting(counters);
  }
  synchronize_first<kNumConsumers>();
}

__device__ inline void store_result(const FusedMoeGpuCall& call, int token, int row, float value) {
  const int64_t place = token * call.y_stride + row;
  if (call.y_element == Element::kFloat32) {
    static_cast<float*>(call.y)[place] = value;
  } else {
    static_cast<BFloat16*>(call.y)[place] = from_float<BFloat16>(value);
  }
}

}  // namespace atom::ops::device::moe_one
