#include "layers/attention/mla_attention.h"

#include <cmath>

#include "layers/attention/share_rows.h"
#include "layers/linear/linear_base.h"
#include "layers/quant/pack_parameter.h"
#include "ops/head_linear/head_linear.h"
#include "ops/kv_cache_write/kv_cache_write.h"
#include "ops/mla_attention/mla_attention.h"
#include "tensor/device_arena.h"
#include "tensor/dispatch.h"

namespace atom {
namespace {

// Of the size of the keys before they were compressed, whatever is multiplied here. YaRN sharpens
// the softmax by the square of its factor for all dimensions (DeepSeek-V3's inference/model.py).
float softmax_scale(const RopeConfig& rope, const MlaSizes& sizes) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(sizes.qk_dim()));
  if (rope.type == RopeType::kDefault || rope.mscale_all_dim == 0 || rope.factor <= 1) {
    return static_cast<float>(scale);
  }
  const double mscale = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  return static_cast<float>(scale * mscale * mscale);
}

int64_t local_heads(BuildContext& build, const MlaSizes& sizes) {
  require_even_split(build, sizes.num_heads, "attention heads");
  return sizes.num_heads / tensor_parallel_part(build).world;
}

// Of a matrix on the CPU.
Tensor transposed(const Tensor& matrix) {
  const Tensor result = Tensor::empty({matrix.size(1), matrix.size(0)}, matrix.dtype());
  const int64_t num_rows = matrix.size(0), num_columns = matrix.size(1);
  dispatch_float(matrix.dtype(), [&]<typename T>(TypeTag<T>) {
    for (int64_t row = 0; row < num_rows; ++row) {
      const T* from = matrix.data<T>() + row * matrix.stride(0);
      T* to = result.data<T>() + row;
      for (int64_t column = 0; column < num_columns; ++column) to[column * num_rows] = from[column];
    }
  });
  return result;
}

ops::MlaPrefillSizes prefill_sizes(BuildContext& build, const MlaSizes& sizes) {
  return {.num_heads = local_heads(build, sizes),
          .rank = sizes.rank,
          .key_dim = sizes.qk_dim(),
          .rope = sizes.rope_dim,
          .value_dim = sizes.value_dim,
          .dtype = build.dtype};
}

// The transpose of a weight [out_features, size], expanded: [size, out_features] of `dtype`.
Tensor product_with_identity(const Stream& host,
                             const ops::LinearWeight& weight,
                             int64_t size,
                             DType dtype) {
  const Tensor identity = Tensor::zeros({size, size}, dtype);
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < size; ++i) identity.data<T>()[i * size + i] = from_float<T>(1.0f);
  });
  const Tensor product = Tensor::empty({size, weight.out_features}, dtype);
  Workspace measuring;
  ops::linear(Stream::dry_run(host.device()), identity, weight, Tensor(), product, measuring);
  Workspace scratch(measuring.peak_size());
  ops::linear(host, identity, weight, Tensor(), product, scratch);
  return product;
}

}  // namespace

LatentProjections::LatentProjections(BuildContext& build, const MlaSizes& sizes)
    : sizes_(sizes),
      dtype_(build.dtype),
      expand_(!sizes.selects && ops::has_mla_prefill(build.device, prefill_sizes(build, sizes))) {
  const ShardPart part = tensor_parallel_part(build);
  const int64_t num_rows = sizes.num_heads * (sizes.nope_dim + sizes.value_dim);
  const QuantScheme scheme = build.config.quantization.scheme_of(build.module_name);
  // What loading would quantize would be expanded again.
  if (scheme.is_quantized() && !scheme.online) {
    const LinearPartition partition = {{{"", num_rows, part}}, sizes.rank, {}};
    const Status status = check_quantized_weight(scheme, partition, build.module_name);
    if (!status.ok()) build.fail(status);
    if (!status.ok()) return;
    BuildContext host = build;
    host.device = {};
    quantized_ = std::make_unique<QuantizedWeight>(host, scheme, partition);
    register_module("", quantized_.get());
  } else {
    weight_ = std::make_unique<Parameter>(build.dtype, Shape{num_rows, sizes.rank}, 0, part);
    weight_->keep_on_host();
    register_parameter("weight", weight_.get());
  }
  const ops::WeightLayout layout = ops::preferred_weight_layout(build.device);
  const auto num_heads = static_cast<size_t>(local_heads(build, sizes));
  of_queries_.assign(num_heads,
                     ops::linear_weight_meta(sizes.rank, sizes.nope_dim, build.dtype, layout));
  of_values_.assign(num_heads,
                    ops::linear_weight_meta(sizes.value_dim, sizes.rank, build.dtype, layout));
  if (!expand_) return;
  const auto heads = static_cast<int64_t>(num_heads);
  expanding_keys_ =
      ops::linear_weight_meta(heads * sizes.qk_dim(), sizes.row_size(), build.dtype, layout);
  expanding_values_ =
      ops::linear_weight_meta(heads * sizes.value_dim, sizes.rank, build.dtype, layout);
}

// [heads of this rank * (nope_dim + value_dim), rank] on the CPU.
Tensor LatentProjections::loaded_rows(const Stream& stream) const {
  if (weight_ != nullptr) return weight_->data();
  return transposed(
      product_with_identity(stream, quantized_->parts().front().weight, sizes_.rank, dtype_));
}

Status LatentProjections::finish_load(const Stream& stream) {
  const int64_t head_rows = sizes_.nope_dim + sizes_.value_dim;
  const Stream host(&stream.pool());
  if (quantized_ != nullptr) RETURN_IF_ERROR(quantized_->finish_load(host));
  const Tensor loaded = loaded_rows(host);
  const auto pack = [&](const Tensor& rows) {
    return pack_consumed_rows(stream, resident_copy(stream, rows));
  };
  if (expand_) pack_expanding(stream, loaded);  // packing may take content away
  for (size_t head = 0; head < of_queries_.size(); ++head) {
    const Tensor rows = loaded.narrow(0, static_cast<int64_t>(head) * head_rows, head_rows);
    of_queries_[head] = pack(transposed(rows.narrow(0, 0, sizes_.nope_dim)));
    of_values_[head] = pack(rows.narrow(0, sizes_.nope_dim, sizes_.value_dim));
  }
  if (weight_ != nullptr) weight_->release();
  if (quantized_ != nullptr) quantized_->release();
  return {};
}

// Of keys W_UK over the latent and one over what is rotated already.
void LatentProjections::pack_expanding(const Stream& stream, const Tensor& loaded) {
  const int64_t num_heads = static_cast<int64_t>(of_queries_.size()), rank = sizes_.rank;
  const int64_t head_rows = sizes_.nope_dim + sizes_.value_dim, width = sizes_.row_size();
  const Tensor keys = Tensor::zeros({num_heads * sizes_.qk_dim(), width}, dtype_);
  const Tensor values = Tensor::empty({num_heads * sizes_.value_dim, rank}, dtype_);
  for (int64_t head = 0; head < num_heads; ++head) {
    const Tensor rows = loaded.narrow(0, head * head_rows, head_rows);
    const Tensor of_head = keys.narrow(0, head * sizes_.qk_dim(), sizes_.qk_dim());
    copy_convert(rows.narrow(0, 0, sizes_.nope_dim),
                 of_head.narrow(0, 0, sizes_.nope_dim).narrow(1, 0, rank));
    dispatch_float(dtype_, [&]<typename T>(TypeTag<T>) {
      for (int64_t i = 0; i < sizes_.rope_dim; ++i) {
        of_head.data<T>()[(sizes_.nope_dim + i) * width + rank + i] = from_float<T>(1.0f);
      }
    });
    copy_convert(rows.narrow(0, sizes_.nope_dim, sizes_.value_dim),
                 values.narrow(0, head * sizes_.value_dim, sizes_.value_dim));
  }
  expanding_keys_ = pack_consumed_rows(stream, resident_copy(stream, keys));
  expanding_values_ = pack_consumed_rows(stream, resident_copy(stream, values));
}

int64_t LatentProjections::resident_bytes() const {
  int64_t bytes =
      expand_ ? expanding_keys_.data.num_bytes() + expanding_values_.data.num_bytes() : 0;
  for (const ops::LinearWeight& weight : of_queries_) bytes += weight.data.num_bytes();
  for (const ops::LinearWeight& weight : of_values_) bytes += weight.data.num_bytes();
  return bytes;
}

MlaAttention::MlaAttention(BuildContext& build,
                           const RotaryEmbedding& rotary,
                           const MlaSizes& sizes)
    : rotary_(rotary),
      sizes_(sizes),
      num_heads_(local_heads(build, sizes)),
      scale_(softmax_scale(build.config.rope, sizes)),
      cache_(build.add_cache({{{"latent", {sizes.row_size()}, build.kv_cache_dtype}}})),
      kv_b_proj_(ModuleScope(build, "kv_b_proj"), sizes) {
  register_module("kv_b_proj", &kv_b_proj_);
}

Tensor MlaAttention::forward(const Tensor& q,
                             const Tensor& kv,
                             const Tensor& indices,
                             const ForwardContext& context) const {
  const Stream& stream = context.stream;
  Workspace& workspace = context.workspace;
  const int64_t num_tokens = q.size(0);
  const Tensor q_rope = q.view({num_tokens, num_heads_, sizes_.qk_dim()})
                            .narrow(2, sizes_.nope_dim, sizes_.rope_dim);  // [T, NH, rope_dim]
  const Tensor rows = kv.view({num_tokens, 1, sizes_.row_size()});
  const Tensor k_rope = rows.narrow(2, sizes_.rank, sizes_.rope_dim);  // [T, 1, rope_dim]
  ops::rotary_embedding(
      stream,
      context.positions,
      rotary_.table(),
      q_rope,
      k_rope,
      sizes_.interleaved ? ops::RotaryStyle::kInterleaved : ops::RotaryStyle::kNeoX);
  const Tensor& cache = context.cache(cache_)[0];
  const Shape plane = {cache.size(0), cache.size(1), 1, sizes_.row_size()};
  ops::kv_cache_write(
      stream, rows, Tensor(), context.batch.slot_mapping, cache.view(plane), Tensor());
  share_rows(context, cache_);

  const Tensor out = workspace.tensor({num_tokens, num_heads_ * sizes_.value_dim}, q.dtype());
  if (!attend_expanded(q, out, context)) attend_absorbed(q, indices, out, context);
  return out;
}

bool MlaAttention::attend_expanded(const Tensor& q,
                                   const Tensor& out,
                                   const ForwardContext& context) const {
  const Stream& stream = context.stream;
  const Tensor& cache = context.cache(cache_)[0];
  if (!kv_b_proj_.expand() || stream.has_fixed_rows()) return false;
  const bool is_long = ops::prefers_mla_prefill(context.batch, cache.size(1));
  if (!is_long && !stream.is_dry_run()) return false;
  ops::MlaPrefillParams params;
  params.q = q.view({q.size(0), num_heads_, sizes_.qk_dim()});
  params.cache = cache;
  params.batch = context.batch;
  params.keys = kv_b_proj_.expanding_keys();
  params.values = kv_b_proj_.expanding_values();
  params.scale = scale_;
  params.out = out.view({q.size(0), num_heads_, sizes_.value_dim});
  ops::mla_prefill(stream, params, context.workspace);
  return is_long;  // a dry run measures both ways
}

void MlaAttention::attend_absorbed(const Tensor& q,
                                   const Tensor& indices,
                                   const Tensor& out,
                                   const ForwardContext& context) const {
  const Stream& stream = context.stream;
  Workspace& workspace = context.workspace;
  const int64_t num_tokens = q.size(0);
  const Workspace::Scope scope(workspace);
  const Shape latents = {num_tokens, num_heads_ * sizes_.rank};
  const Shape heads = {num_tokens, num_heads_, sizes_.rank};
  const Tensor q_latent = workspace.tensor(latents, q.dtype());
  ops::head_linear(stream, q, kv_b_proj_.of_queries(), q_latent, workspace);
  const Tensor attended = workspace.tensor(latents, q.dtype());
  ops::MlaAttentionParams params;
  params.q_latent = q_latent.view(heads);
  params.q_rope =
      q.view({num_tokens, num_heads_, sizes_.qk_dim()}).narrow(2, sizes_.nope_dim, sizes_.rope_dim);
  params.cache = context.cache(cache_)[0];
  params.batch = context.batch;
  params.indices = indices;
  params.scale = scale_;
  params.out = attended.view(heads);
  ops::mla_attention(stream, params, workspace);
  ops::head_linear(stream, attended, kv_b_proj_.of_values(), out, workspace);
}

}  // namespace atom
