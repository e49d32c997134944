// Latent attention of long chunks in its expanded form: the keys and values of all heads are
// multiplied out of the rows of the cache, into scratch memory, and each query head attends to its
// own, without a rounding more than their own:
//   k_i = W_K [c_i | r_i],  v_i = W_V c_i,   cache row i = [c_i (rank) | r_i (rope)]
// where W_K of a head is [W_UK 0; 0 1]. mla_attention gives the same, absorbed, with three times
// the operations for each pair of a query and a key, but without those that expand a key.
//
// Heads go one group after the other, as many as the memory holds the keys of, so that every query
// meets all of its keys at once, cached ones too, and nothing is to be merged.
#pragma once

#include "ops/attention/paged_batch.h"
#include "ops/linear/linear.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

struct MlaPrefillSizes {
  int64_t num_heads = 0;
  int64_t rank = 0;
  int64_t key_dim = 0;  // of a head: what is not rotated, then the rope elements
  int64_t rope = 0;
  int64_t value_dim = 0;
  DType dtype = DType::kBFloat16;

  int64_t width() const { return rank + rope; }  // of a row of the cache
};

// Whether mla_prefill runs at all for layers of these sizes: whether their weights are needed. Not
// on the CPU unless ATOM_OP_VARIANT asks for it. A row's bits follow from whether its chunk was
// long, so whoever wants fixed rows does without.
bool has_mla_prefill(Device device, const MlaPrefillSizes& sizes);

// Whether a batch's chunks are so long that it is faster than mla_attention: all of them, as
// decides batch.min_queries (kLongChunk), and not more keys than the memory holds.
bool prefers_mla_prefill(const PagedBatch& batch, int64_t block_size);

struct MlaPrefillParams {
  Tensor q;      // [num_tokens, num_heads, key_dim], may be a slice
  Tensor cache;  // [num_blocks, block_size, rank + rope] q's dtype or FP8 (E4M3)
  PagedBatch batch;
  LinearWeight keys;    // W_K of the heads: [num_heads * key_dim, rank + rope]
  LinearWeight values;  // W_V: [num_heads * value_dim, rank]
  float scale = 1;
  Tensor out;  // [num_tokens, num_heads, value_dim] q's dtype
};

// has_mla_prefill() says for which; prefers_mla_prefill() when. A dry run measures the memory that
// any step of so many tokens takes, none when none is long enough.
void mla_prefill(const Stream& stream, const MlaPrefillParams& params, Workspace& scratch);

}  // namespace atom::ops
