// Inside mla_attention: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/paged_batch_args.h"
#include "tensor/element.h"

namespace atom::ops {

// Of kernels that keep rows of queries and keys in memory of a fixed size.
constexpr int kMlaMaxWidth = 640;  // rank + rope
// Query heads of a token that one task of the CPU computes: they share the keys that it expands.
constexpr int kMlaTaskHeads = 16;

// One call. Strides are in elements.
struct MlaAttentionArgs {
  const void* q_latent;
  const void* q_rope;
  const void* cache;
  const int32_t* indices;  // null: every position up to the query's own
  void* out;
  PagedBatchArgs batch;
  int64_t q_latent_strides[2];  // token, head
  int64_t q_rope_strides[2];
  int64_t out_strides[2];
  int64_t num_heads;
  int64_t rank;
  int64_t width;  // of a row of the cache: rank + rope
  int64_t top_k;
  float scale;
  Element element;
  bool float8_cache;
};

// The most keys that a row may see.
inline int64_t mla_most_keys(const MlaAttentionArgs& args, const PagedRow& row) {
  return args.indices == nullptr || row.position < 0 ? row.position + 1 : args.top_k;
}

// One query, for at most kMlaTaskHeads of its heads.
using MlaAttentionKernel = void(const MlaAttentionArgs& args,
                                int64_t token,
                                const PagedRow& row,
                                int64_t first_head,
                                int64_t num_heads);

MlaAttentionKernel mla_attention_reference;
MlaAttentionKernel mla_attention_avx2;
MlaAttentionKernel mla_attention_avx512;

// On a GPU's queue (DeviceQueue::handle()). A block outside the cache ends the process.
void mla_attention_cuda(const MlaAttentionArgs& args, void* queue);

}  // namespace atom::ops
