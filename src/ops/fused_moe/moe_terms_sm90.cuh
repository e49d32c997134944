// Inside fused_moe by terms in FP8: the kernel. Of a block's warps the last copies a tile's tokens
// and rows of a matrix to a ring of stages, by one thread; the others multiply.
#pragma once

#include "ops/fused_moe/moe_terms_copy.cuh"
#include "ops/fused_moe/moe_terms_multiplier.cuh"

namespace atom::ops::device::terms {

// By a warp, of which one lane copies.
template <int kTokens, bool kGated, bool kImages>
__device__ void copy_tiles(const MoeTermsArgs& args, const Shared<kTokens, kGated>& shared) {
  Copier<kTokens, kGated, kImages> copier(args, shared);
  const bool copies = is_elected();
  bool has_waited = kGated;
  for_tiles<kTokens>(args, [&](const MoeTile& tile) {
    if (!has_waited) {
      if (copies) copier.begin(tile);
      wait_for_previous_grid();
      has_waited = true;
    }
    if (copies) copier.run(tile);
  });
  if (!has_waited) wait_for_previous_grid();
}

// The order of choices is of the kernel before the first of the two, whose blocks have waited for
// it before the second may start.
template <int kTokens, bool kGated, bool kImages>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    moe_terms(const __grid_constant__ MoeTermsArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<kTokens, kGated> shared(args, memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    if (!kImages) prefetch_map(&args.matrices);
    shared.init_barriers();
  }
  shared.clear_exponents();
  __syncthreads();
  if (kGated) wait_for_previous_grid();
  allow_next_grid();
  if (threadIdx.x >= kNumConsumers) {
    copy_tiles<kTokens, kGated, kImages>(args, shared);
  } else {
    Multiplier<kTokens, kGated, kImages> multiplier(args, shared);
    for_tiles<kTokens>(args, [&](const MoeTile& tile) { multiplier.run(tile); });
  }
}

}  // namespace atom::ops::device::terms
