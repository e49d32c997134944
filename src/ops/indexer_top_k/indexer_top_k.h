// Which earlier tokens a query attends to, where attention is sparse. An indexer scores every token
// that the query may see,
//   score(t, s) = scale * sum_h weights[t, h] * activation(q[t, h] . k[s])
// in float32, and the top_k of the largest scores are selected, of equal ones that of the lowest
// position first; NaN is less than all else. A query that sees no more than top_k selects all.
//
// A row's selection depends on its own query and its sequence's keys alone.
#pragma once

#include "ops/attention/paged_batch.h"
#include "ops/indexer_top_k/indexer_activation.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

struct IndexerTopKParams {
  Tensor q;          // [num_tokens, num_heads * head_dim], row stride allowed
  Tensor weights;    // [num_tokens, num_heads] q's dtype or float32, row stride allowed
  Tensor key_cache;  // [num_blocks, block_size, head_dim] q's dtype; this step's are there already
  PagedBatch batch;
  float scale = 1;
  IndexerActivation activation = IndexerActivation::kRelu;
  // [num_tokens, top_k] int32: positions in the token's own sequence, ascending, then -1.
  Tensor indices;
};

// float32, float16 or bfloat16.
void indexer_top_k(const Stream& stream, const IndexerTopKParams& params, Workspace& scratch);

}  // namespace atom::ops
