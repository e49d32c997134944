// Inside sparse_attention: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/paged_batch_args.h"
#include "tensor/element.h"

namespace atom::ops {

// Of kernels that keep a group of query heads on the stack.
constexpr int kSparseMaxHeadDim = 512;
constexpr int kSparseMaxGroup = 16;

// One call. Strides are in elements.
struct SparseAttentionArgs {
  const void* q;
  const void* k_cache;
  const void* v_cache;
  const int32_t* indices;
  void* out;
  PagedBatchArgs batch;
  int64_t q_strides[2];  // token, head
  int64_t out_strides[2];
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t top_k;
  float scale;    // of products with keys as the cache holds them
  float v_scale;  // of sums of values as the cache holds them
  Element element;
  bool float8_cache;
};

// One query, for the query heads of one KV head.
using SparseAttentionKernel = void(const SparseAttentionArgs& args,
                                   int64_t token,
                                   const PagedRow& row,
                                   int64_t kv_head);

SparseAttentionKernel sparse_attention_reference;
SparseAttentionKernel sparse_attention_avx2;
SparseAttentionKernel sparse_attention_avx512;

// On a GPU's queue (DeviceQueue::handle()). A block outside the cache ends the process.
using SparseAttentionGpuKernel = void(const SparseAttentionArgs& args, void* queue);

SparseAttentionGpuKernel sparse_attention_cuda;
SparseAttentionGpuKernel sparse_attention_mma;  // by products of matrices
bool fits_sparse_attention_mma(const SparseAttentionArgs& args);

}  // namespace atom::ops
