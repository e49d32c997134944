// Copies of contiguous bytes from global to shared memory by the copy engine (Hopper).
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

}  // namespace atom::ops::device
