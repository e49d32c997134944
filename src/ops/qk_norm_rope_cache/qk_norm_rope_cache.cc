#include "ops/qk_norm_rope_cache/qk_norm_rope_cache.h"

#include "ops/qk_norm_rope_cache/qk_norm_rope_cache_kernels.h"
#include "ops/qk_norm_rope_cache/qk_norm_rope_cache_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

QkNormRopeCacheArgs::Heads heads_of(const Tensor& x) {
  return {x.raw_data(), x.stride(0), x.stride(1), x.size(1)};
}

void check_tensors(const QkNormRopeCacheParams& params) {
  const DType dtype = params.q.dtype();
  const bool float8_cache = params.k_cache.dtype() == DType::kFloat8E4M3;
  const DType cache_dtype = float8_cache ? DType::kFloat8E4M3 : dtype;
  TensorCheck check("qk_norm_rope_cache");
  check.tensor("q", params.q, {"T", "NH", "D"}, dtype)
      .tensor("k", params.k, {"T", "NKV", "D"}, dtype)
      .tensor("v", params.v, {"T", "NKV", "D"}, dtype)
      .contiguous("positions", params.positions, {"T"}, DType::kInt32)
      .tensor("cos_sin", params.cos_sin, {"max_position", "rotary_dim"}, DType::kFloat32)
      .contiguous("slot_mapping", params.slot_mapping, {"T"}, DType::kInt32)
      .contiguous("k_cache", params.k_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype)
      .contiguous("v_cache", params.v_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype);
  CHECK(params.q_weight.defined() == params.k_weight.defined());
  if (params.q_weight.defined()) {
    const bool is_float = params.q_weight.dtype() == DType::kFloat32;
    const DType weight_dtype = is_float ? DType::kFloat32 : dtype;
    check.contiguous("q_weight", params.q_weight, {"D"}, weight_dtype)
        .contiguous("k_weight", params.k_weight, {"D"}, weight_dtype);
  }
  CHECK(check.size("rotary_dim") % 2 == 0);
  CHECK(check.size("rotary_dim") <= check.size("D"));
  CHECK((float8_cache || (params.k_scale == 1.0f && params.v_scale == 1.0f)));
}

QkNormRopeCacheArgs checked_args(const QkNormRopeCacheParams& params) {
  check_tensors(params);
  return {
      .heads = {heads_of(params.q), heads_of(params.k), heads_of(params.v)},
      .weights = {params.q_weight.raw_data(), params.k_weight.raw_data()},
      .caches = {{params.k_cache.raw_data(), params.k_scale},
                 {params.v_cache.raw_data(), params.v_scale}},
      .positions = static_cast<const int32_t*>(params.positions.raw_data()),
      .slots = static_cast<const int32_t*>(params.slot_mapping.raw_data()),
      .cos_sin = static_cast<const float*>(params.cos_sin.raw_data()),
      .cos_sin_stride = params.cos_sin.stride(0),
      .max_position = params.cos_sin.size(0),
      .num_tokens = params.q.size(0),
      .num_slots = params.k_cache.size(0) * params.k_cache.size(1),
      .head_dim = params.q.size(2),
      .rotary_dim = params.cos_sin.size(1),
      .eps = params.eps,
      .element = element_of(params.q.dtype()),
      .interleaved = params.style == RotaryStyle::kInterleaved,
      .float8_cache = params.k_cache.dtype() == DType::kFloat8E4M3,
      .float_weights = params.q_weight.defined() && params.q_weight.dtype() == DType::kFloat32,
  };
}

using Launch = void(const Stream&, const QkNormRopeCacheArgs&, const QkNormRopeCacheParams&);

void by_separate(const Stream& stream,
                 const QkNormRopeCacheArgs&,
                 const QkNormRopeCacheParams& params) {
  qk_norm_rope_cache_separate(stream, params);
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream, const QkNormRopeCacheArgs& args, const QkNormRopeCacheParams&) {
  if (args.num_tokens > 0) qk_norm_rope_cache_cuda(args, stream.queue().handle());
}
#endif

constexpr Variant<QkNormRopeCacheArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, fits_qk_norm_rope_cache_cuda, on_queue, DeviceType::kCuda},
    {"separate", CpuIsa::kScalar, nullptr, by_separate, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, by_separate},
};

}  // namespace

void qk_norm_rope_cache(const Stream& stream, const QkNormRopeCacheParams& params) {
  const QkNormRopeCacheArgs args = checked_args(params);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("qk_norm_rope_cache", kVariants, stream, args, [&] {
    const int64_t stored =
        (params.k.num_elements() + params.v.num_elements()) * dtype_size(params.k_cache.dtype());
    const int64_t moved = moves(params.q, params.q, params.k, params.v, params.positions).bytes;
    return OperatorWork{.bytes = moved + stored};
  });
  variant.launch(stream, args, params);
}

bool qk_norm_rope_cache_by(std::string_view variant_name,
                           const Stream& stream,
                           const QkNormRopeCacheParams& params) {
  const QkNormRopeCacheArgs args = checked_args(params);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, params);
  return true;
}

}  // namespace atom::ops
