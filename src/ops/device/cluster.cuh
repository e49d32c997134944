// What the blocks of a cluster say to each other on Hopper (sm_90a): barriers, and each other's
// shared memory. Addresses are those of shared memory, as address_in() makes them for other blocks.
#pragma once

#include <cstdint>

namespace atom::ops::device {

__device__ inline int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// An address of this block as one of the same place in block `rank` of the cluster.
__device__ inline uint32_t address_in(int rank, uint32_t address) {
  uint32_t result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}

// ---- the barrier of the cluster, by all of its threads; whole warps come to it together ---------

// Comes without waiting. What was written before is not there for the others.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Comes without waiting. What was written before is there for those that have waited.
__device__ inline void release_to_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// Until all have come.
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ inline void synchronize_cluster() {
  release_to_cluster();
  wait_for_cluster();
}

// ---- shared memory of any block of the cluster -------------------------------------------------

__device__ inline uint32_t load_uint32_in_cluster(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline float load_float_in_cluster(uint32_t address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

__device__ inline void store_in_cluster(uint32_t address, float2 value) {
  asm volatile(
      "st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(value.x), "f"(value.y)
      : "memory");
}

__device__ inline void store_in_cluster(uint32_t address, float4 value) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "f"(value.x),
               "f"(value.y),
               "f"(value.z),
               "f"(value.w)
               : "memory");
}

// Stores without waiting; `barrier`, of the same block as `address`, counts the bytes.
__device__ inline void send_in_cluster(uint32_t address, float value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address),
      "f"(value),
      "r"(barrier)
      : "memory");
}

__device__ inline void send_in_cluster(uint32_t address, float2 value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          address),
      "f"(value.x),
      "f"(value.y),
      "r"(barrier)
      : "memory");
}

__device__ inline void send_in_cluster(uint32_t address, float4 value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "f"(value.x),
      "f"(value.y),
      "f"(value.z),
      "f"(value.w),
      "r"(barrier)
      : "memory");
}

// At a barrier in shared memory.
__device__ inline void arrive_in_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

}  // namespace atom::ops::device
