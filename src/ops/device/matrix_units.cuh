// What kernels for Hopper (sm_90a) say to the matrix units, the copy engine and barriers in shared
// memory. Addresses are those of shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ops/device/cluster.cuh"
#include "tensor/gpu_api.h"

namespace atom::ops::device {

// ---- barriers in shared memory -----------------------------------------------------------------

__device__ inline void init_barrier(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}

// Lets the copy engine and the other blocks of the cluster see barriers that this thread has made.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void arrive_expecting(uint32_t barrier, int num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(num_bytes)
               : "memory");
}

// Waits for the end of the phase of that parity.
__device__ inline void wait_for(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The stage of a ring that comes next, and the parity of its phase.
struct StageCursor {
  int index = 0;
  uint32_t parity = 0;

  __device__ void advance(int num_stages) {
    if (++index < num_stages) return;
    index = 0;
    parity ^= 1;
  }
};

// A barrier of the first kThreads of the block.
template <int kThreads>
__device__ inline void synchronize_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

__device__ inline void store_shared(uint32_t address, float2 value) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(value.x), "f"(value.y)
               : "memory");
}

// ---- the copy engine ---------------------------------------------------------------------------

// One lane of a converged warp. The compiler knows that it is one.
__device__ inline bool is_elected() {
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected));
  return elected != 0;
}

__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ inline void copy_box(uint32_t target,
                                const CUtensorMap* map,
                                int column,
                                int row,
                                int panel,
                                uint32_t barrier,
                                uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(target),
      "l"(map),
      "r"(barrier),
      "r"(column),
      "r"(row),
      "r"(panel),
      "l"(policy)
      : "memory");
}

// Of a map with two dimensions.
__device__ inline void copy_box(uint32_t target,
                                const CUtensorMap* map,
                                int column,
                                int row,
                                uint32_t barrier,
                                uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(target),
      "l"(map),
      "r"(barrier),
      "r"(column),
      "r"(row),
      "l"(policy)
      : "memory");
}

// The same to every block of the cluster whose bit `blocks` has, each with its own barrier.
__device__ inline void copy_box_to_all(uint32_t target,
                                       const CUtensorMap* map,
                                       int column,
                                       int row,
                                       uint32_t barrier,
                                       uint16_t blocks,
                                       uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(target),
      "l"(map),
      "r"(barrier),
      "r"(column),
      "r"(row),
      "h"(blocks),
      "l"(policy)
      : "memory");
}

// A box of a map with two dimensions from shared memory, what of it exists there. The writes to
// shared memory are published to the copy engine before.
__device__ inline void store_box(const CUtensorMap* map, uint32_t source, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(source),
      "r"(column),
      "r"(row)
      : "memory");
}

// ---- matrix units ------------------------------------------------------------------------------

// The descriptor of a matrix of rows of 128 bytes, 128-byte swizzled, at a multiple of 1024 bytes:
// groups of eight rows are 1024 bytes apart. Adding matrix_offset(n) moves it by n bytes.
__device__ inline uint64_t matrix_at(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroupStride = uint64_t{1024 >> 4} << 32;
  const uint32_t uniform = __shfl_sync(0xffffffffu, address, 0);
  return kSwizzle128 | kGroupStride | uniform >> 4;
}

__host__ __device__ constexpr uint64_t matrix_offset(int bytes) {
  return static_cast<uint64_t>(bytes) >> 4;
}

__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The same with a number that the compiler knows.
__device__ inline void wait_for_products(int pending) {
  switch (pending) {
    case 0:
      return wait_for_products<0>();
    case 1:
      return wait_for_products<1>();
    case 2:
      return wait_for_products<2>();
    default:
      return wait_for_products<3>();
  }
}

// Four matrices of eight rows of 16 bytes from the registers of a warp, lane i with the address of
// row i % 8 of matrix i / 8.
__device__ inline void store_matrices(uint32_t address, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(matrices[0]),
               "r"(matrices[1]),
               "r"(matrices[2]),
               "r"(matrices[3])
               : "memory");
}

// Keeps uses of the registers on their side of a wait.
template <int kCount>
__device__ inline void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

}  // namespace atom::ops::device
