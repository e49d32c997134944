// Inside indexer_top_k: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/indexer_top_k/indexer_activation.h"
#include "ops/paged_batch_args.h"
#include "tensor/element.h"

namespace atom::ops {

// Of kernels that keep a query's heads, and a block of keys, on the stack.
constexpr int kIndexerMaxQuerySize = 64 * 128;
constexpr int kIndexerMaxKeySize = 512;

// One call. Strides are in elements.
struct IndexerTopKArgs {
  const void* q;
  const void* weights;
  const void* key_cache;
  int32_t* indices;
  PagedBatchArgs batch;
  int64_t q_stride;
  int64_t weights_stride;
  int64_t num_heads;
  int64_t head_dim;
  int64_t top_k;
  float scale;
  Element element;         // of q and the cache
  Element weight_element;  // q's or float32
  IndexerActivation activation;
};

// Scores of one query with the tokens 0 to row.position, on the CPU. `scores` has room for whole
// blocks of 32.
using IndexerScoreKernel = void(const IndexerTopKArgs& args,
                                int64_t token,
                                const PagedRow& row,
                                float* scores);

constexpr int kIndexerScoreBlock = 32;

IndexerScoreKernel indexer_scores_reference;
IndexerScoreKernel indexer_scores_avx2;
IndexerScoreKernel indexer_scores_avx512;

// The positions of the top_k of `count` scores, ascending, then -1.
void select_top_k(const float* scores, int64_t count, int64_t top_k, int32_t* indices);

// On a GPU's queue (DeviceQueue::handle()): tokens [begin, end), whose scores fit `scores`, rows of
// `score_stride` each. A block outside the cache ends the process.
void indexer_top_k_cuda(const IndexerTopKArgs& args,
                        int64_t begin,
                        int64_t end,
                        float* scores,
                        int64_t score_stride,
                        void* queue);

}  // namespace atom::ops
