#include "layers/attention/mla_attention.h"

#include <algorithm>
#include <cmath>

#include "layers/attention/share_rows.h"
#include "layers/linear/linear_base.h"
#include "layers/quant/pack_parameter.h"
#include "layers/quant/quantized_storage.h"
#include "ops/head_linear/head_linear.h"
#include "ops/kv_cache_write/kv_cache_write.h"
#include "ops/latent_norm_rope_cache/latent_norm_rope_cache.h"
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

// Whether heads have whole blocks of codes that a GPU's kernel multiplies by rows in bfloat16.
bool has_blocks_of_heads(const BuildContext& build,
                         const MlaSizes& sizes,
                         const QuantScheme& scheme) {
  const auto is_whole = [](int64_t size) { return size % kQuantBlockRows == 0; };
  return !build.device.is_cpu() && build.dtype == DType::kBFloat16 && scheme.is_quantized() &&
         !scheme.online && scheme.weight_dtype == QuantDType::kFloat8E4M3 &&
         scheme.weights == QuantType::kPer128x128 && is_whole(sizes.nope_dim) &&
         is_whole(sizes.value_dim) && is_whole(sizes.rank);
}

// to[column, row] = from[row, column] of a matrix that lies in `from` with any row stride.
template <typename T>
void transpose(const T* from, int64_t stride, int64_t num_rows, int64_t num_columns, T* to) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t column = 0; column < num_columns; ++column) {
      to[column * num_rows + row] = from[row * stride + column];
    }
  }
}

// Codes [heads, N, K] and scales of all heads as weights of each.
void take_slices(const Tensor& codes,
                 const Tensor& scales,
                 std::vector<ops::LinearWeight>& weights) {
  const auto count = static_cast<int64_t>(weights.size());
  const int64_t blocks = scales.size(0) / count;
  for (int64_t head = 0; head < count; ++head) {
    weights[head].data = codes.narrow(0, head, 1).view({codes.size(1), codes.size(2)});
    weights[head].scales = scales.narrow(0, head * blocks, blocks);
  }
}

}  // namespace

LatentProjections::LatentProjections(BuildContext& build, const MlaSizes& sizes)
    : sizes_(sizes),
      dtype_(build.dtype),
      keeps_codes_(has_blocks_of_heads(
          build, sizes, build.config.quantization.scheme_of(build.module_name))),
      expand_(!sizes.selects && build.fusions.mla_prefill &&
              ops::has_mla_prefill(build.device, prefill_sizes(build, sizes))) {
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
  const auto meta = [&](int64_t rows, int64_t columns) {
    if (!keeps_codes_) return ops::linear_weight_meta(rows, columns, build.dtype, layout);
    const ops::QuantFormat format = {
        QuantDType::kFloat8E4M3, QuantType::kPer128x128, kQuantBlockRows};
    return ops::quantized_weight_meta(rows, columns, format, layout);
  };
  of_queries_.assign(num_heads, meta(sizes.rank, sizes.nope_dim));
  of_values_.assign(num_heads, meta(sizes.value_dim, sizes.rank));
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
  const Stream host(&stream.pool());
  const HeadCodes codes = keeps_codes_ ? codes_of_heads() : HeadCodes();
  if (quantized_ != nullptr) RETURN_IF_ERROR(quantized_->finish_load(host));
  if (keeps_codes_) place_codes(stream, codes);
  if (expand_ || !keeps_codes_) {
    const Tensor loaded = loaded_rows(host);
    if (expand_) pack_expanding(stream, loaded);  // packing may take content away
    if (!keeps_codes_) pack_heads(stream, loaded);
  }
  if (weight_ != nullptr) weight_->release();
  if (quantized_ != nullptr) quantized_->release();
  return {};
}

LatentProjections::HeadCodes LatentProjections::codes_of_heads() const {
  const auto num_heads = static_cast<int64_t>(of_queries_.size());
  const int64_t rank = sizes_.rank, nope = sizes_.nope_dim, value = sizes_.value_dim;
  const auto blocks = [](int64_t size) { return size / kQuantBlockRows; };
  const int64_t rank_blocks = blocks(rank);
  const HeadCodes codes = {
      Tensor::empty({num_heads, rank, nope}, DType::kFloat8E4M3),
      Tensor::empty({num_heads * rank_blocks, blocks(nope)}, DType::kFloat32),
      Tensor::empty({num_heads, value, rank}, DType::kFloat8E4M3),
      Tensor::empty({num_heads * blocks(value), rank_blocks}, DType::kFloat32)};
  const auto* rows = static_cast<const uint8_t*>(quantized_->loaded_codes().raw_data());
  const float* scales = quantized_->loaded_scales().data<float>();
  auto* queries = static_cast<uint8_t*>(codes.queries.raw_data());
  auto* values = static_cast<uint8_t*>(codes.values.raw_data());
  float* query_scales = codes.query_scales.data<float>();
  float* value_scales = codes.value_scales.data<float>();
  for (int64_t head = 0; head < num_heads; ++head) {
    transpose(rows, rank, nope, rank, queries);
    transpose(scales, rank_blocks, blocks(nope), rank_blocks, query_scales);
    values = std::copy_n(rows + nope * rank, value * rank, values);
    value_scales =
        std::copy_n(scales + blocks(nope) * rank_blocks, blocks(value) * rank_blocks, value_scales);
    rows += (nope + value) * rank;
    scales += blocks(nope + value) * rank_blocks;
    queries += nope * rank;
    query_scales += blocks(nope) * rank_blocks;
  }
  return codes;
}

void LatentProjections::place_codes(const Stream& stream, const HeadCodes& codes) {
  take_slices(
      resident_copy(stream, codes.queries), resident_copy(stream, codes.query_scales), of_queries_);
  take_slices(
      resident_copy(stream, codes.values), resident_copy(stream, codes.value_scales), of_values_);
}

void LatentProjections::pack_heads(const Stream& stream, const Tensor& loaded) {
  const int64_t head_rows = sizes_.nope_dim + sizes_.value_dim;
  const auto pack = [&](const Tensor& rows) {
    return pack_consumed_rows(stream, resident_copy(stream, rows));
  };
  for (size_t head = 0; head < of_queries_.size(); ++head) {
    const Tensor rows = loaded.narrow(0, static_cast<int64_t>(head) * head_rows, head_rows);
    of_queries_[head] = pack(transposed(rows.narrow(0, 0, sizes_.nope_dim)));
    of_values_[head] = pack(rows.narrow(0, sizes_.nope_dim, sizes_.value_dim));
  }
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
  for (const auto* weights : {&of_queries_, &of_values_}) {
    for (const ops::LinearWeight& weight : *weights) {
      bytes += weight.data.num_bytes();
      if (weight.scales.defined()) bytes += weight.scales.num_bytes();
    }
  }
  return bytes;
}

MlaAttention::MlaAttention(BuildContext& build,
                           const RotaryEmbedding& rotary,
                           const MlaSizes& sizes)
    : rotary_(rotary),
      sizes_(sizes),
      num_heads_(local_heads(build, sizes)),
      scale_(softmax_scale(build.config.rope, sizes)),
      prepares_in_one_(!build.device.is_cpu() && build.fusions.qk_norm_rope_cache),
      cache_(build.add_cache({{{"latent", {sizes.row_size()}, build.kv_cache_dtype}}})),
      kv_b_proj_(ModuleScope(build, "kv_b_proj"), sizes) {
  register_module("kv_b_proj", &kv_b_proj_);
}

Tensor MlaAttention::forward(const Tensor& q,
                             const Tensor& kv,
                             const RMSNorm& kv_norm,
                             const Tensor& indices,
                             const ForwardContext& context) const {
  prepare_and_store(q, kv, kv_norm, context);
  share_rows(context, cache_);
  const Tensor out =
      context.workspace.tensor({q.size(0), num_heads_ * sizes_.value_dim}, q.dtype());
  attend(q, indices, out, context);
  return out;
}

void MlaAttention::prepare_and_store(const Tensor& q,
                                     const Tensor& kv,
                                     const RMSNorm& kv_norm,
                                     const ForwardContext& context) const {
  const ops::RotaryStyle style =
      sizes_.interleaved ? ops::RotaryStyle::kInterleaved : ops::RotaryStyle::kNeoX;
  const Tensor q_rope = q.view({q.size(0), num_heads_, sizes_.qk_dim()})
                            .narrow(2, sizes_.nope_dim, sizes_.rope_dim);  // [T, NH, rope_dim]
  const Tensor& cache = context.cache(cache_)[0];
  if (prepares_in_one_) {
    ops::LatentNormRopeCacheParams params;
    params.q = q_rope;
    params.kv = kv;
    params.weight = kv_norm.weight();
    params.eps = kv_norm.eps();
    params.positions = context.positions;
    params.cos_sin = rotary_.table();
    params.style = style;
    params.slot_mapping = context.batch.slot_mapping;
    params.cache = cache;
    return ops::latent_norm_rope_cache(context.stream, params);
  }
  kv_norm.forward(kv.narrow(2, 0, sizes_.rank), context);
  const Tensor k_rope = kv.narrow(2, sizes_.rank, sizes_.rope_dim);  // [T, 1, rope_dim]
  ops::rotary_embedding(context.stream, context.positions, rotary_.table(), q_rope, k_rope, style);
  const Shape plane = {cache.size(0), cache.size(1), 1, sizes_.row_size()};
  ops::kv_cache_write(
      context.stream, kv, Tensor(), context.batch.slot_mapping, cache.view(plane), Tensor());
}

void MlaAttention::attend(const Tensor& q,
                          const Tensor& indices,
                          const Tensor& out,
                          const ForwardContext& context) const {
  if (!kv_b_proj_.expand()) {
    return attend_absorbed(q, indices, context.batch, out, context);
  }
  if (context.parts.empty()) {
    if (attend_expanded(q, context.batch, out, context)) return;
    return attend_absorbed(q, indices, context.batch, out, context);
  }
  for (const ops::BatchPart& part : context.parts) {
    const ops::PagedBatch batch = ops::part_of(context.batch, part);
    const Tensor of_part = part.rows_of(q), out_of_part = part.rows_of(out);
    if (attend_expanded(of_part, batch, out_of_part, context)) continue;
    attend_absorbed(of_part, part.rows_of(indices), batch, out_of_part, context);
  }
}

bool MlaAttention::attend_expanded(const Tensor& q,
                                   const ops::PagedBatch& batch,
                                   const Tensor& out,
                                   const ForwardContext& context) const {
  const Stream& stream = context.stream;
  const Tensor& cache = context.cache(cache_)[0];
  const bool is_long = ops::prefers_mla_prefill(batch, cache.size(1));
  if (!is_long && !stream.is_dry_run()) return false;
  ops::MlaPrefillParams params;
  params.q = q.view({q.size(0), num_heads_, sizes_.qk_dim()});
  params.cache = cache;
  params.batch = batch;
  params.keys = kv_b_proj_.expanding_keys();
  params.values = kv_b_proj_.expanding_values();
  params.scale = scale_;
  params.out = out.view({q.size(0), num_heads_, sizes_.value_dim});
  ops::mla_prefill(stream, params, context.workspace);
  return is_long;  // a dry run measures both ways
}

void MlaAttention::attend_absorbed(const Tensor& q,
                                   const Tensor& indices,
                                   const ops::PagedBatch& batch,
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
  params.batch = batch;
  params.indices = indices;
  params.scale = scale_;
  params.out = attended.view(heads);
  ops::mla_attention(stream, params, workspace);
  ops::head_linear(stream, attended, kv_b_proj_.of_values(), out, workspace);
}

}  // namespace atom
