// Inside mla_prefill: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/paged_batch_args.h"
#include "tensor/element.h"

namespace atom::ops {

// Keys that one block of the expanded ones has.
constexpr int64_t kMlaPrefillBlock = 128;

// The rows of the cache that the sequences of a step see, each sequence's from a multiple of
// rows_per_sequence on, a multiple of kMlaPrefillBlock.
struct MlaGatherArgs {
  const void* cache;
  void* rows;       // [num_sequences * rows_per_sequence, width]; behind a sequence as they were
  int32_t* tables;  // [num_sequences, rows_per_sequence / kMlaPrefillBlock], written
  PagedBatchArgs batch;
  int64_t rows_per_sequence;
  int64_t width;
  Element element;
  bool float8_cache;
};

// On a GPU's queue (DeviceQueue::handle()). A block outside the cache ends the process. `width` is
// a multiple of 16.
void mla_gather_cuda(const MlaGatherArgs& args, void* queue);

}  // namespace atom::ops
