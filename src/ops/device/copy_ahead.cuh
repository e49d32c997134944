// Copies to shared memory that a barrier there counts, of single floats, and those that bring a box
// of a tensor to the second-level cache alone.
#pragma once

#include "ops/device/matrix_units.cuh"

namespace atom::ops::device {

// Without waiting. `target` is an address in shared memory.
__device__ inline void copy_4(uint32_t target, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(target), "l"(source) : "memory");
}

// Arrives, as one of those that the barrier expects, when all asynchronous copies that this thread
// has begun, copy_4()'s too, are there.
__device__ inline void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Of a map with two dimensions.
__device__ inline void prefetch_box(const CUtensorMap* map, int column, int row) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map),
               "r"(column),
               "r"(row)
               : "memory");
}

// Of one with three.
__device__ inline void prefetch_box(const CUtensorMap* map, int column, int row, int panel) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map),
               "r"(column),
               "r"(row),
               "r"(panel)
               : "memory");
}

}  // namespace atom::ops::device
