// Inside attention: copies of the keys and values that chunks see of a cache in FP8, as q's
// elements in blocks of 128 tokens, in scratch memory. Kernels for many queries would expand the
// codes again for every head and 128 queries: with copies they reach twice the FLOP rate.
//
// Copies are exact, and the scales are left to the scores and the result, so both ways compute the
// same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/device/visible_keys.h"

namespace atom::ops {

// Where the sequences of one launch are.
struct AttentionCopies {
  AttentionArgs copied;  // over the copies; sequences that are not there have length 0
  AttentionArgs direct;  // over the cache; sequences that were copied have length 0
  bool has_direct;       // whether there may be chunks that were not copied
};

// Bytes for all sequences, or as much as is worth it; 0 where nothing is gained: a cache of other
// elements, or short chunks. The cache's blocks are multiples of 16 tokens.
size_t attention_copies_size(const AttentionArgs& params);

// Copies what the queries of sequences with at least `min_queries` see, sequence by sequence as far
// as `size` bytes reach: at least one block.
gpuError_t launch_attention_copies(const AttentionArgs& params,
                                   int32_t min_queries,
                                   void* memory,
                                   size_t size,
                                   gpuStream_t stream,
                                   AttentionCopies& copies);

}  // namespace atom::ops
