// Latent attention by Hopper's warpgroup instructions: rank 512 and 64 rotated elements, bfloat16
// over a cache of bfloat16 or FP8. Decode and prompts alike: the 64 rows of an item are query heads
// of one sequence, of as many of its queries as they cover, and see the same keys once.
//
// Few items are cut by their keys into shares that all multiprocessors get alike, whose results
// are joined in ascending order: where a row is cut depends on the other rows' lengths.
#pragma once

#include <cstddef>

#include "ops/mla_attention/mla_attention_kernels.h"

namespace atom::ops {

struct MlaSm90Tuning {
  bool overlaps_previous = true;  // ops/device/programmatic_launch.cuh
  int max_blocks = 0;             // 0: one for each multiprocessor
  int min_share = 4;              // tiles of 64 keys that a block is given at least
};

// Aligned rows, a positive scale, and a card of compute capability 9.0. Any size of blocks.
bool supports_mla_attention_sm90(const MlaAttentionArgs& args);

// Bytes, no more than for a step of more tokens or sequences.
size_t mla_attention_sm90_workspace_size(const MlaAttentionArgs& args,
                                         const MlaSm90Tuning& tuning = {});

// On a GPU's queue (DeviceQueue::handle()), to which `workspace` (16-byte aligned) belongs until it
// has run. A block outside the cache ends the process.
void mla_attention_sm90(const MlaAttentionArgs& args,
                        void* workspace,
                        void* queue,
                        const MlaSm90Tuning& tuning = {});

}  // namespace atom::ops
