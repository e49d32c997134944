// Indexer scores by matrix units, and the exact selection of the best by clusters of blocks
// (Hopper).
#pragma once

#include "ops/indexer_top_k/indexer_top_k_kernels.h"

namespace atom::ops {

// 16-bit elements, keys of 128, at most 64 heads, aligned rows, and a card of compute capability
// 9.0. `max_keys`: of a row.
bool supports_indexer_top_k_sm90(const IndexerTopKArgs& args, int64_t max_keys);

// As indexer_top_k_cuda().
void indexer_top_k_sm90(const IndexerTopKArgs& args,
                        int64_t begin,
                        int64_t end,
                        float* scores,
                        int64_t score_stride,
                        void* queue);

// The same with the scores of sm90/stream_scores.h, which are added up in another order, in steps
// of few tokens of a sequence.
bool supports_indexer_top_k_stream_sm90(const IndexerTopKArgs& args, int64_t max_keys);
void indexer_top_k_stream_sm90(const IndexerTopKArgs& args,
                               int64_t begin,
                               int64_t end,
                               float* scores,
                               int64_t score_stride,
                               void* queue);

// Its second half alone.
void indexer_select_sm90(const IndexerTopKArgs& args,
                         int64_t begin,
                         int64_t end,
                         const float* scores,
                         int64_t score_stride,
                         void* queue);

}  // namespace atom::ops
