// A row of the step among its sequence's tokens, on the device.
#pragma once

#include "ops/paged_batch_args.h"
#include "tensor/gpu_api.h"

namespace atom::ops::device {

// Rows of no sequence, and of sequences of length 0, are padding: their position is -1, also where
// such a sequence has several rows.
__device__ inline PagedRow find_row(const PagedBatchArgs& args, int64_t token) {
  int64_t low = 0, high = args.num_sequences;  // the first sequence that begins behind the token
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (args.query_start[middle] <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const int64_t sequence = low - 1;
  if (sequence < 0 || token >= args.query_start[sequence + 1]) return {nullptr, -1};
  return {args.block_tables + sequence * args.block_table_stride,
          max(args.seq_lens[sequence] - args.query_start[sequence + 1] + token, int64_t{-1})};
}

// How many tokens of the row's sequence were in the cache before this step.
__device__ inline int64_t settled_tokens(const PagedBatchArgs& args, const PagedRow& row) {
  if (args.settled_lens == nullptr || row.block_table == nullptr) return 0;
  return args.settled_lens[(row.block_table - args.block_tables) / args.block_table_stride];
}

// Where a position of the row's sequence is in the cache, in slots.
__device__ inline int64_t slot_of(const PagedBatchArgs& args,
                                  const PagedRow& row,
                                  int64_t position) {
  const int64_t block = row.block_table[position / args.block_size];
  if (block < 0 || block >= args.num_blocks) gpu_trap();
  return block * args.block_size + position % args.block_size;
}

}  // namespace atom::ops::device
