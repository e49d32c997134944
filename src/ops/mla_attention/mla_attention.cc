#include "ops/mla_attention/mla_attention.h"

#include <algorithm>

#include "ops/mla_attention/mla_attention_kernels.h"
#include "ops/mla_attention/mla_attention_variants.h"
#include "ops/mla_attention/sm90/mla_sm90.h"
#include "ops/paged_batch_rows.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

MlaAttentionArgs checked_args(const Stream& stream, const MlaAttentionParams& params) {
  const DType dtype = params.q_latent.dtype();
  const bool float8_cache = params.cache.dtype() == DType::kFloat8E4M3;
  TensorCheck check("mla_attention");
  check.tensor("q_latent", params.q_latent, {"T", "NH", "rank"}, dtype)
      .tensor("q_rope", params.q_rope, {"T", "NH", "rope"}, dtype)
      .tensor("out", params.out, {"T", "NH", "rank"}, dtype)
      .contiguous("cache",
                  params.cache,
                  {"num_blocks", "block_size", "width"},
                  float8_cache ? params.cache.dtype() : dtype);
  CHECK(check.size("width") == check.size("rank") + check.size("rope"));
  if (params.indices.defined()) {
    check.contiguous("indices", params.indices, {"T", "top_k"}, DType::kInt32);
  }
  return {
      .q_latent = params.q_latent.raw_data(),
      .q_rope = params.q_rope.raw_data(),
      .cache = params.cache.raw_data(),
      .indices = static_cast<const int32_t*>(params.indices.raw_data()),
      .out = params.out.raw_data(),
      .batch = checked_paged_batch(check,
                                   stream,
                                   params.batch,
                                   check.size("T"),
                                   check.size("num_blocks"),
                                   check.size("block_size")),
      .q_latent_strides = {params.q_latent.stride(0), params.q_latent.stride(1)},
      .q_rope_strides = {params.q_rope.stride(0), params.q_rope.stride(1)},
      .out_strides = {params.out.stride(0), params.out.stride(1)},
      .num_heads = check.size("NH"),
      .rank = check.size("rank"),
      .width = check.size("width"),
      .top_k = params.indices.defined() ? params.indices.size(1) : 0,
      .scale = params.scale,
      .element = element_of(dtype),
      .float8_cache = float8_cache,
  };
}

void check_indices(const MlaAttentionArgs& args, int64_t token, const PagedRow& row) {
  if (args.indices == nullptr) return;
  const int32_t* indices = args.indices + token * args.top_k;
  for (int64_t i = 0; i < args.top_k && indices[i] != -1; ++i) {
    CHECK(indices[i] >= 0);
    CHECK(indices[i] <= row.position);
  }
}

// A task is a token and some of its heads. Those of a token late in its sequence cost the most, so
// chunks are small.
template <MlaAttentionKernel* kernel>
void on_pool(const Stream& stream, const MlaAttentionArgs& args, Workspace&) {
  if (stream.is_dry_run()) return;
  const int64_t tasks_per_token = (args.num_heads + kMlaTaskHeads - 1) / kMlaTaskHeads;
  stream.pool().parallel_for(
      args.batch.num_tokens * tasks_per_token, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t token = i / tasks_per_token;
          const int64_t head = i % tasks_per_token * kMlaTaskHeads;
          const PagedRow row = find_row(args.batch, token);
          check_indices(args, token, row);
          kernel(args, token, row, head, std::min<int64_t>(kMlaTaskHeads, args.num_heads - head));
        }
      });
}

bool fits_vectors(const MlaAttentionArgs& args) {
  return args.rank % 32 == 0 && args.width % 16 == 0 && args.width <= kMlaMaxWidth;
}

#ifdef ATOM_CUDA
bool fits_cuda(const MlaAttentionArgs& args) {
  return args.width <= kMlaMaxWidth;
}

void on_queue(const Stream& stream, const MlaAttentionArgs& args, Workspace&) {
  if (stream.is_dry_run() || args.batch.num_tokens == 0) return;
  mla_attention_cuda(args, stream.queue().handle());
}

void on_hopper(const Stream& stream, const MlaAttentionArgs& args, Workspace& scratch) {
  const auto size = static_cast<int64_t>(mla_attention_sm90_workspace_size(args));
  const Tensor workspace = scratch.tensor({size}, DType::kUInt8);
  if (stream.is_dry_run() || args.batch.num_tokens == 0) return;
  mla_attention_sm90(args, workspace.raw_data(), stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const MlaAttentionArgs&, Workspace&);

constexpr Variant<MlaAttentionArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"sm90",
     CpuIsa::kScalar,
     supports_mla_attention_sm90,
     on_hopper,
     DeviceType::kCuda,
     kMixesRows},
    {"cuda", CpuIsa::kScalar, fits_cuda, on_queue, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, fits_vectors, on_pool<mla_attention_avx512>},
    {"avx2", CpuIsa::kAvx2, fits_vectors, on_pool<mla_attention_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<mla_attention_reference>},
};

}  // namespace

void mla_attention(const Stream& stream, const MlaAttentionParams& params, Workspace& scratch) {
  const MlaAttentionArgs args = checked_args(stream, params);
  const Workspace::Scope scope(scratch);
  const auto& variant = pick_variant("mla_attention", kVariants, stream, args, [&] {
    // How much of the cache is read is known to the device alone.
    return moves(params.q_latent, params.q_rope, params.indices, params.out);
  });
  variant.launch(stream, args, scratch);
}

bool mla_attention_by(std::string_view variant_name,
                      const Stream& stream,
                      const MlaAttentionParams& params,
                      Workspace& scratch) {
  const MlaAttentionArgs args = checked_args(stream, params);
  const Workspace::Scope scope(scratch);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, scratch);
  return true;
}

}  // namespace atom::ops
