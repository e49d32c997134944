#include "ops/sparse_attention/sparse_attention.h"

#include <algorithm>

#include "ops/paged_batch_rows.h"
#include "ops/sparse_attention/sparse_attention_kernels.h"
#include "ops/sparse_attention/sparse_attention_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// Multiply-adds that take a few microseconds: less is not worth a parallel region.
constexpr int64_t kCostPerChunk = 100000;

void check_indices(const SparseAttentionArgs& args, int64_t token, const PagedRow& row) {
  const int32_t* indices = args.indices + token * args.top_k;
  for (int64_t i = 0; i < args.top_k && indices[i] != -1; ++i) {
    CHECK(indices[i] >= 0);
    CHECK(indices[i] <= row.position);
  }
}

template <SparseAttentionKernel* kernel>
void on_pool(const Stream& stream, const SparseAttentionArgs& args) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  const int64_t cost = std::max<int64_t>(1, 2 * group * args.head_dim * args.top_k);
  stream.pool().parallel_for(args.batch.num_tokens * args.num_kv_heads,
                             std::max<int64_t>(1, kCostPerChunk / cost),
                             [&](int64_t begin, int64_t end) {
                               for (int64_t i = begin; i < end; ++i) {
                                 const int64_t token = i / args.num_kv_heads;
                                 const PagedRow row = find_row(args.batch, token);
                                 check_indices(args, token, row);
                                 kernel(args, token, row, i % args.num_kv_heads);
                               }
                             });
}

bool fits_vectors(const SparseAttentionArgs& args) {
  return args.head_dim % 16 == 0 && args.head_dim <= kSparseMaxHeadDim &&
         args.num_heads / args.num_kv_heads <= kSparseMaxGroup;
}

#ifdef ATOM_CUDA
bool fits_cuda(const SparseAttentionArgs& args) {
  return args.head_dim <= kSparseMaxHeadDim;
}

template <SparseAttentionGpuKernel* kernel>
void on_queue(const Stream& stream, const SparseAttentionArgs& args) {
  if (args.batch.num_tokens > 0) kernel(args, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const SparseAttentionArgs&);

constexpr Variant<SparseAttentionArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"mma",
     CpuIsa::kScalar,
     fits_sparse_attention_mma,
     on_queue<sparse_attention_mma>,
     DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, fits_cuda, on_queue<sparse_attention_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, fits_vectors, on_pool<sparse_attention_avx512>},
    {"avx2", CpuIsa::kAvx2, fits_vectors, on_pool<sparse_attention_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<sparse_attention_reference>},
};

SparseAttentionArgs checked_args(const Stream& stream, const SparseAttentionParams& params) {
  const DType dtype = params.q.dtype();
  const bool float8_cache = params.k_cache.dtype() == DType::kFloat8E4M3;
  const DType cache_dtype = float8_cache ? params.k_cache.dtype() : dtype;
  TensorCheck check("sparse_attention");
  check.tensor("q", params.q, {"T", "NH", "D"}, dtype)
      .tensor("out", params.out, {"T", "NH", "D"}, dtype)
      .contiguous("k_cache", params.k_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype)
      .contiguous("v_cache", params.v_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype)
      .contiguous("indices", params.indices, {"T", "top_k"}, DType::kInt32);
  CHECK(check.size("NKV") > 0);
  CHECK(check.size("NH") % check.size("NKV") == 0);
  CHECK((float8_cache || (params.k_scale == 1 && params.v_scale == 1)));
  return {
      .q = params.q.raw_data(),
      .k_cache = params.k_cache.raw_data(),
      .v_cache = params.v_cache.raw_data(),
      .indices = static_cast<const int32_t*>(params.indices.raw_data()),
      .out = params.out.raw_data(),
      .batch = checked_paged_batch(check,
                                   stream,
                                   params.batch,
                                   check.size("T"),
                                   check.size("num_blocks"),
                                   check.size("block_size")),
      .q_strides = {params.q.stride(0), params.q.stride(1)},
      .out_strides = {params.out.stride(0), params.out.stride(1)},
      .num_heads = check.size("NH"),
      .num_kv_heads = check.size("NKV"),
      .head_dim = check.size("D"),
      .top_k = check.size("top_k"),
      .scale = params.scale * params.k_scale,
      .v_scale = params.v_scale,
      .element = element_of(dtype),
      .float8_cache = float8_cache,
  };
}

}  // namespace

void sparse_attention(const Stream& stream, const SparseAttentionParams& params) {
  const SparseAttentionArgs args = checked_args(stream, params);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("sparse_attention", kVariants, stream, args, [&] {
    // How much of the cache is read is known to the device alone.
    return moves(params.q, params.indices, params.out);
  });
  variant.launch(stream, args);
}

bool sparse_attention_by(std::string_view variant_name,
                         const Stream& stream,
                         const SparseAttentionParams& params) {
  const SparseAttentionArgs args = checked_args(stream, params);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args);
  return true;
}

}  // namespace atom::ops
