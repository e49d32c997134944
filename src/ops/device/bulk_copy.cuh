// Copies of contiguous bytes between global and shared memory by the copy engine (Hopper).
#pragma once

#include <cstdint>

#include "tensor/gpu_api.h"

namespace atom::ops::device {

// `num_bytes`, a multiple of 16, between addresses that are multiples of 16, by one thread. The
// barrier counts the bytes.
__device__ inline void copy_bulk(
    uint32_t target, const void* source, int num_bytes, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(target),
      "l"(source),
      "r"(num_bytes),
      "r"(barrier),
      "l"(policy)
      : "memory");
}

// Between accesses of shared memory by threads and copies to it that come after a barrier.
__device__ inline void fence_before_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The other way; this thread's copies are counted in groups.
__device__ inline void store_bulk(void* target, uint32_t source, int num_bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target),
               "r"(source),
               "r"(num_bytes)
               : "memory");
}

__device__ inline void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Returns when shared memory may be written again, but for this thread's last kGroups of stores.
template <int kGroups = 0>
__device__ inline void wait_for_reads_of_stores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace atom::ops::device
