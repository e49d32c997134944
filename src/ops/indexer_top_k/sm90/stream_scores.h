// Inside the indexer for Hopper: the scores of few tokens by the bytes of their keys.
#pragma once

#include "ops/indexer_top_k/indexer_top_k_kernels.h"

namespace atom::ops {

// Of what supports_indexer_top_k_sm90() says: blocks of a multiple of 16 keys.
bool supports_indexer_stream_scores(const IndexerTopKArgs& args);

// Of tokens [begin, end), as indexer_top_k_cuda() takes them; those that see no more than top_k
// keys have none. On a GPU's queue. False, with nothing done, where the driver refuses the
// description of the keys.
[[nodiscard]] bool launch_indexer_stream_scores(const IndexerTopKArgs& args,
                                                int64_t begin,
                                                int64_t end,
                                                float* scores,
                                                int64_t score_stride,
                                                void* queue);

}  // namespace atom::ops
