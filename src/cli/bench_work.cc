#include "cli/bench_work.h"

#include <algorithm>

namespace atom::cli {
namespace {

// Elements of the weights that one token is multiplied with in a layer.
int64_t layer_matrix_size(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t attention = hidden * (2 * config.q_size() + 2 * config.kv_size());
  const int64_t feed_forward = 3 * hidden * config.intermediate_size;
  return attention + feed_forward;
}

// Elements of biases and norms of a layer. Norms of single heads (QK norm) are head_dim each, and
// not every architecture has them: too little to ask for.
int64_t layer_vector_size(const ModelConfig& config) {
  int64_t size = 2 * int64_t{config.hidden_size};
  if (config.qkv_bias) size += config.q_size() + 2 * config.kv_size();
  if (config.o_proj_bias) size += config.hidden_size;
  if (config.mlp_bias) size += 2 * int64_t{config.intermediate_size} + config.hidden_size;
  return size;
}

int64_t head_size(const ModelConfig& config) {
  return int64_t{config.hidden_size} * config.vocab_size;
}

int64_t weight_bytes(const ModelConfig& config, const WorkTypes& types, int64_t num_tokens) {
  const int64_t matrices = config.num_hidden_layers * layer_matrix_size(config);
  const int64_t vectors = config.num_hidden_layers * layer_vector_size(config);
  const int64_t embedding_rows = num_tokens * config.hidden_size;
  const int64_t final_norm = config.hidden_size;
  return matrices * dtype_size(types.linears) +
         (vectors + embedding_rows + final_norm + head_size(config)) * dtype_size(types.dtype);
}

int64_t kv_bytes_per_token(const ModelConfig& config, const WorkTypes& types) {
  return 2 * config.kv_size() * dtype_size(types.kv_cache);
}

// Query-key pairs of one head, summed over the layers, for the queries that have [first, last]
// tokens before them, themselves included.
int64_t attended_pairs(const ModelConfig& config, int64_t first, int64_t last) {
  int64_t pairs = 0;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const int64_t window = config.layer_sliding_window(layer);
    const int64_t full_until = window == 0 ? last : std::min(last, window);
    if (full_until >= first) pairs += (first + full_until) * (full_until - first + 1) / 2;
    pairs += window * std::max<int64_t>(0, last - std::max(full_until, first - 1));
  }
  return pairs;
}

// Scores and their weighted sum: two multiply-adds per element of a head.
int64_t attention_flops(const ModelConfig& config, int64_t pairs) {
  return 4 * config.q_size() * pairs;
}

}  // namespace

WorkTypes work_types(const ResolvedConfig& config, Device device) {
  const QuantScheme scheme = config.model.quantization.groups.empty()
                                 ? QuantScheme()
                                 : config.model.quantization.groups.front().scheme;
  return {config.dtype,
          scheme.is_quantized() ? DType::kFloat8E4M3 : config.dtype,
          config.kv_cache_dtype,
          !device.is_cpu() && scheme.activations != QuantType::kNo};
}

StepWork decode_work(const ModelConfig& config,
                     const WorkTypes& types,
                     int64_t batch,
                     int64_t context_len) {
  const int64_t pairs = attended_pairs(config, context_len, context_len);
  const int64_t matrix_flops = 2 * batch * config.num_hidden_layers * layer_matrix_size(config);
  StepWork work;
  work.weight_bytes = weight_bytes(config, types, batch);
  // One of the tokens attended to is written by the step itself.
  work.kv_bytes = batch * kv_bytes_per_token(config, types) * pairs;
  work.attention_flops = batch * attention_flops(config, pairs);
  work.flops = matrix_flops + 2 * batch * head_size(config) + work.attention_flops;
  work.fp8_flops = types.multiplies_fp8 ? matrix_flops : 0;
  return work;
}

StepWork prefill_work(const ModelConfig& config,
                      const WorkTypes& types,
                      int64_t batch,
                      int64_t prompt_len) {
  const int64_t num_tokens = batch * prompt_len;
  const int64_t matrix_flops =
      2 * num_tokens * config.num_hidden_layers * layer_matrix_size(config);
  StepWork work;
  work.weight_bytes = weight_bytes(config, types, num_tokens);
  work.kv_bytes = num_tokens * config.num_hidden_layers * kv_bytes_per_token(config, types);
  work.attention_flops = batch * attention_flops(config, attended_pairs(config, 1, prompt_len));
  work.flops = matrix_flops + 2 * batch * head_size(config) + work.attention_flops;
  work.fp8_flops = types.multiplies_fp8 ? matrix_flops : 0;
  return work;
}

double least_compute_seconds(const StepWork& work, const ops::Roofs& roofs, DType dtype) {
  const double peak =
      dtype == DType::kFloat32 ? roofs.f32_flops : std::max(roofs.bf16_flops, roofs.f32_flops);
  if (peak == 0) return 0;
  const double fp8_peak = std::max(peak, roofs.fp8_flops);
  return static_cast<double>(work.flops - work.fp8_flops) / peak +
         static_cast<double>(work.fp8_flops) / fp8_peak;
}

double least_seconds(const StepWork& work, const ops::Roofs& roofs, DType dtype) {
  return std::max(static_cast<double>(work.bytes()) / roofs.read_bandwidth,
                  least_compute_seconds(work, roofs, dtype));
}

}  // namespace atom::cli
