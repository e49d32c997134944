#include "ops/latent_norm_rope_cache/latent_norm_rope_cache.h"

#include "ops/kv_cache_write/kv_cache_write.h"
#include "ops/latent_norm_rope_cache/latent_norm_rope_cache_kernels.h"
#include "ops/latent_norm_rope_cache/latent_norm_rope_cache_variants.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

LatentNormRopeCacheArgs checked_args(const LatentNormRopeCacheParams& params) {
  const DType dtype = params.q.dtype();
  const bool float8_cache = params.cache.dtype() == DType::kFloat8E4M3;
  TensorCheck check("latent_norm_rope_cache");
  check.tensor("q", params.q, {"T", "NH", "R"}, dtype)
      .tensor("kv", params.kv, {"T", "1", "row"}, dtype)
      .contiguous("weight", params.weight, {"rank"}, dtype)
      .contiguous("positions", params.positions, {"T"}, DType::kInt32)
      .tensor("cos_sin", params.cos_sin, {"max_position", "R"}, DType::kFloat32)
      .contiguous("slot_mapping", params.slot_mapping, {"T"}, DType::kInt32)
      .contiguous("cache",
                  params.cache,
                  {"num_blocks", "block_size", "row"},
                  float8_cache ? DType::kFloat8E4M3 : dtype);
  CHECK(check.size("R") % 2 == 0);
  CHECK(check.size("row") == check.size("rank") + check.size("R"));
  return {
      .q = params.q.raw_data(),
      .q_token_stride = params.q.stride(0),
      .q_head_stride = params.q.stride(1),
      .num_heads = params.q.size(1),
      .kv = params.kv.raw_data(),
      .kv_stride = params.kv.stride(0),
      .weight = params.weight.raw_data(),
      .cache = params.cache.raw_data(),
      .positions = static_cast<const int32_t*>(params.positions.raw_data()),
      .slots = static_cast<const int32_t*>(params.slot_mapping.raw_data()),
      .cos_sin = static_cast<const float*>(params.cos_sin.raw_data()),
      .cos_sin_stride = params.cos_sin.stride(0),
      .max_position = params.cos_sin.size(0),
      .num_tokens = params.q.size(0),
      .num_slots = params.cache.size(0) * params.cache.size(1),
      .rank = static_cast<int>(params.weight.size(0)),
      .rope_dim = static_cast<int>(params.q.size(2)),
      .eps = params.eps,
      .element = element_of(dtype),
      .interleaved = params.style == RotaryStyle::kInterleaved,
      .float8_cache = float8_cache,
  };
}

using Launch = void(const Stream&,
                    const LatentNormRopeCacheArgs&,
                    const LatentNormRopeCacheParams&);

// An operator for each part, on any device.
void by_separate(const Stream& stream,
                 const LatentNormRopeCacheArgs& args,
                 const LatentNormRopeCacheParams& params) {
  const Tensor& rows = params.kv;
  const Tensor latents = rows.narrow(2, 0, args.rank);
  rms_norm(stream, latents, params.weight, params.eps, latents);
  rotary_embedding(stream,
                   params.positions,
                   params.cos_sin,
                   params.q,
                   rows.narrow(2, args.rank, args.rope_dim),
                   params.style);
  const Shape plane = {params.cache.size(0), params.cache.size(1), 1, rows.size(2)};
  kv_cache_write(stream, rows, Tensor(), params.slot_mapping, params.cache.view(plane), Tensor());
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream,
              const LatentNormRopeCacheArgs& args,
              const LatentNormRopeCacheParams&) {
  if (args.num_tokens > 0) latent_norm_rope_cache_cuda(args, stream.queue().handle());
}
#endif

constexpr Variant<LatentNormRopeCacheArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, fits_latent_norm_rope_cache_cuda, on_queue, DeviceType::kCuda},
    {"separate", CpuIsa::kScalar, nullptr, by_separate, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, by_separate},
};

}  // namespace

void latent_norm_rope_cache(const Stream& stream, const LatentNormRopeCacheParams& params) {
  const LatentNormRopeCacheArgs args = checked_args(params);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("latent_norm_rope_cache", kVariants, stream, args, [&] {
    const int64_t stored = params.kv.num_elements() * dtype_size(params.cache.dtype());
    return OperatorWork{.bytes = moves(params.q, params.q, params.kv).bytes + stored};
  });
  variant.launch(stream, args, params);
}

bool latent_norm_rope_cache_by(std::string_view variant_name,
                               const Stream& stream,
                               const LatentNormRopeCacheParams& params) {
  const LatentNormRopeCacheArgs args = checked_args(params);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, params);
  return true;
}

}  // namespace atom::ops
