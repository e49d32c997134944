#include "layers/attention/attention.h"

#include <cmath>

#include "layers/attention/share_rows.h"
#include "ops/attention/attention.h"
#include "ops/kv_cache_write/kv_cache_write.h"
#include "ops/qk_norm_rope_cache/qk_norm_rope_cache.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace atom {

Attention::Attention(BuildContext& build, const AttentionOptions& options)
    : cache_(
          build.add_cache({{{"k", {options.num_kv_heads, options.head_dim}, build.kv_cache_dtype},
                            {"v", {options.num_kv_heads, options.head_dim}, build.kv_cache_dtype}},
                           options.sliding_window})),
      scale_(1.0f / std::sqrt(static_cast<float>(options.head_dim))),
      sliding_window_(options.sliding_window),
      prepares_in_one_(!build.device.is_cpu() && build.fusions.qk_norm_rope_cache),
      gate_leaves_codes_(build.fusions.silu_and_mul_quant) {
  if (build.kv_cache_dtype == DType::kFloat8E4M3) {
    kv_scales_ = std::make_unique<KVScales>();
    register_module("", kv_scales_.get());
  }
  if (options.has_sinks) {
    sinks_ = std::make_unique<Parameter>(
        DType::kFloat32,
        Shape{options.num_heads * build.parallel.tensor_parallel_size},
        0,
        ShardPart{build.parallel.tensor_parallel_rank, build.parallel.tensor_parallel_size});
    register_parameter("sinks", sinks_.get());
  }
}

Activation Attention::forward(const Tensor& q,
                              const Tensor& k,
                              const Tensor& v,
                              const QkPreparation& preparation,
                              const ForwardContext& context,
                              const AttentionExtras& extras) const {
  prepare_and_store(q, k, v, preparation, context);
  share_rows(context, cache_);
  const Tensor out = context.workspace.tensor(q.shape(), q.dtype());
  if (extras.indices.defined()) {
    attend_to(extras.indices, q, out, context);
  } else {
    attend(q, out, context);
  }
  const int64_t num_tokens = q.size(0), size = q.size(1) * q.size(2);
  const ActivationFormat& format = extras.format;
  if (extras.gate.defined() && gate_leaves_codes_ && format.has_codes() && !format.rows) {
    const ops::QuantizedRows codes = make_codes(format, num_tokens, size, context.workspace);
    ops::sigmoid_gate(context.stream, out, extras.gate, out, codes);
    return {Tensor(), codes};
  }
  if (extras.gate.defined()) ops::sigmoid_gate(context.stream, out, extras.gate, out);
  return out.view({num_tokens, size});
}

void Attention::prepare_and_store(const Tensor& q,
                                  const Tensor& k,
                                  const Tensor& v,
                                  const QkPreparation& preparation,
                                  const ForwardContext& context) const {
  const std::span<const Tensor> cache = context.cache(cache_);
  const Tensor& slots = context.batch_of(cache_).slot_mapping;
  const auto& [rotary, q_norm, k_norm] = preparation;
  if (!prepares_in_one_) {
    if (q_norm != nullptr) {
      q_norm->forward(q, context);
      k_norm->forward(k, context);
    }
    rotary.forward(q, k, context);
    ops::kv_cache_write(context.stream, k, v, slots, cache[0], cache[1], k_scale(), v_scale());
    return;
  }
  ops::QkNormRopeCacheParams params;
  params.q = q;
  params.k = k;
  params.v = v;
  if (q_norm != nullptr) {
    params.q_weight = q_norm->weight();
    params.k_weight = k_norm->weight();
    params.eps = q_norm->eps();
  }
  params.positions = context.positions;
  params.cos_sin = rotary.table();
  params.style = RotaryEmbedding::kStyle;
  params.slot_mapping = slots;
  params.k_cache = cache[0];
  params.v_cache = cache[1];
  params.k_scale = k_scale();
  params.v_scale = v_scale();
  ops::qk_norm_rope_cache(context.stream, params);
}

void Attention::attend(const Tensor& q, const Tensor& out, const ForwardContext& context) const {
  const std::span<const Tensor> cache = context.cache(cache_);
  ops::AttentionParams params;
  params.q = q;
  params.k_cache = cache[0];
  params.v_cache = cache[1];
  params.batch = context.batch_of(cache_);
  params.scale = scale_;
  params.k_scale = k_scale();
  params.v_scale = v_scale();
  params.sliding_window = sliding_window_;
  if (sinks_ != nullptr) params.sinks = sinks_->data();
  params.out = out;
  ops::attention(context.stream, params, context.workspace);
}

void Attention::attend_to(const Tensor& indices,
                          const Tensor& q,
                          const Tensor& out,
                          const ForwardContext& context) const {
  const std::span<const Tensor> cache = context.cache(cache_);
  ops::SparseAttentionParams params;
  params.q = q;
  params.k_cache = cache[0];
  params.v_cache = cache[1];
  params.batch = context.batch_of(cache_);
  params.indices = indices;
  params.scale = scale_;
  params.k_scale = k_scale();
  params.v_scale = v_scale();
  params.out = out;
  ops::sparse_attention(context.stream, params);
}

}  // namespace atom
