// Attention of sequences with a single query in this step: all query heads of a KV head together,
// the keys split among the blocks. Which block computes what is found on the device from
// query_start and seq_lens, so that a captured launch serves all later lengths; its grid depends on
// the device alone.
//
// By default the blocks share all rows' keys evenly, or take whole rows if those are of about one
// length: where a row is cut, and so the order of its sums, depends on the other rows' lengths.
// With fixed splits it depends on the row's position and the window alone, and a row has the same
// bits in every batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/device/visible_keys.h"

namespace atom::ops {

struct AttentionDecodeTuning {
  bool fixed_splits = false;
  // query_start, seq_lens and block_tables are not written by the kernel before this one, which
  // lets this one start (ops/device/programmatic_launch.cuh).
  bool overlaps_previous = true;
  int max_parts = 2;        // blocks that a row's keys are to be divided among where rows are many
  int max_blocks = 0;       // 0: one for each multiprocessor
  bool even_splits = true;  // rows of about a length are cut alike rather than in shares
  int max_even_teams = 8;   // head items that a block then takes at once
  int shares_tiles = 5;     // of a warp, that the plan and the joins of shares take as long as
  int max_cluster = 8;      // blocks that share a row of few by their shared memory; 1: none do
};

// Blocks of the cache must be of a multiple of 16 tokens; the device must have Hopper's amount of
// shared memory.
bool supports_attention_decode_cuda(const AttentionArgs& params);

// Bytes of partial results; with fixed splits for params.max_seq_len.
size_t attention_decode_workspace_size(const AttentionArgs& params,
                                       const AttentionDecodeTuning& tuning = {});

// Number of int32 counters: zero before the first launch, and zero again after each.
size_t attention_decode_num_counters(const AttentionArgs& params);

// Sequences with another number of queries than one are left alone. `workspace` (16-byte aligned)
// and `counters` belong to the launch until it has run.
gpuError_t launch_attention_decode_cuda(const AttentionArgs& params,
                                        void* workspace,
                                        int32_t* counters,
                                        gpuStream_t stream,
                                        const AttentionDecodeTuning& tuning = {});

}  // namespace atom::ops
