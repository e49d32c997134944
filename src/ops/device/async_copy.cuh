// Asynchronous copies of 16 bytes per thread from global to shared memory, counted in groups.
#pragma once

#include <cstdint>

#include "tensor/gpu_api.h"

namespace atom::ops::device {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A cache policy for data that is read once.
__device__ inline uint64_t read_once_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// And one for data that other blocks read too.
__device__ inline uint64_t keep_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// 16 bytes, or zeros where they do not exist. `target` is an address in shared memory.
__device__ inline void copy_16(uint32_t target, const void* source, bool exists, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(target),
               "l"(source),
               "r"(exists ? 16 : 0),
               "l"(policy)
               : "memory");
}

__device__ inline uint4 load_shared(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

// Ends this thread's current group of copies.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Returns when at most the last kGroups of this thread's groups are under way.
template <int kGroups>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

__device__ inline void prefetch_to_l2(const void* source) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(source) : "memory");
}

}  // namespace atom::ops::device
