#include "cli/bench_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

namespace atom::cli {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// The first of a file's spellings, or 0.
int64_t config_number(const ModelConfig& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = config.raw->find(key);
    if (found != config.raw->end() && found->is_number_integer()) return found->get<int64_t>();
  }
  return 0;
}

// Elements that a parameter stands for: codes of 4 bits are two to a byte.
int64_t num_values(const Parameter& parameter) {
  return parameter.shape().num_elements() * (parameter.dtype() == DType::kUInt8 ? 2 : 1);
}

void count_experts(const ModelConfig& config, const Parameter& weight, ModelWork* work) {
  work->num_experts =
      config_number(config, {"num_local_experts", "num_experts", "n_routed_experts"});
  work->top_k = config_number(config, {"num_experts_per_tok", "experts_per_token"});
  work->num_shared = weight.shape()[0] - work->num_experts;
}

// A matrix of experts, [experts, outputs, inputs], that loading quantizes counts as it is stored
// then.
int64_t stored_bytes(const ModelConfig& config, const NamedParameter& named) {
  const Shape& shape = named.parameter->shape();
  const std::string module = named.name.substr(0, named.name.rfind('.'));
  const QuantScheme scheme = config.quantization.scheme_of(module);
  if (shape.rank() != 3 || !scheme.online) return named.parameter->num_bytes();
  const int64_t size = shape.num_elements();
  switch (scheme.weights) {
    case QuantType::kPer1x32:  // FP4 with scales of a byte
      return size / 2 + size / 32;
    case QuantType::kPer128x128:
      return size + size / (128 * 128) * 4;
    default:  // a float for each row at most
      return size + shape[0] * shape[1] * 4;
  }
}

void count_parameters(const ModelConfig& config, const BuiltModel& built, ModelWork* work) {
  for (const NamedParameter& named : built.model->named_parameters()) {
    const std::string_view name = named.name;
    const Parameter& parameter = *named.parameter;
    const bool is_matrix = name.ends_with("weight") && parameter.shape().rank() >= 2;
    if (contains(name, "embed_tokens")) {
      work->embedding_row_bytes = parameter.num_bytes() / parameter.shape()[0];
      if (!config.tie_word_embeddings) work->weight_bytes -= parameter.num_bytes();
      continue;
    }
    if (contains(name, ".experts.")) {
      work->expert_bytes += stored_bytes(config, named);
      if (is_matrix) work->expert_size += num_values(parameter);
      if (is_matrix) count_experts(config, parameter, work);
    } else if (is_matrix && !contains(name, "lm_head")) {
      work->matrix_size += num_values(parameter);
    }
  }
  work->weight_bytes -= work->expert_bytes;
}

void count_layers(const ModelConfig& config, const BuiltModel& built, ModelWork* work) {
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.layer_types[layer] == LayerType::kLinearAttention) continue;
    work->windows.push_back(config.layer_sliding_window(layer));
  }
  const auto num_layers = static_cast<int64_t>(work->windows.size());
  for (const CachePlane& plane : built.storage.caches) {
    if (contains(plane.name, "index")) work->index_bytes += plane.bytes_per_token();
  }
  const int64_t kv_bytes = built.storage.bytes_per_token() - work->index_bytes;
  work->kv_bytes = num_layers == 0 ? 0 : kv_bytes / num_layers;
  work->state_bytes = built.storage.bytes_per_slot();
  const int64_t selected = config_number(config, {"index_topk"});
  if (work->index_bytes == 0 || selected == 0) return;
  for (int64_t& window : work->windows) window = selected;
}

std::string types_text(const ResolvedConfig& config) {
  std::string text = dtype_name(config.dtype);
  const QuantConfig& quantization = config.model.quantization;
  if (quantization.is_quantized())
    text += fmt::format(", linear layers {}", quantization.to_string());
  if (config.kv_cache_dtype != config.dtype) {
    text += fmt::format(", cache {}", dtype_name(config.kv_cache_dtype));
  }
  if (config.engine.cache.state_dtype != DType::kFloat32) {
    text += fmt::format(", states {}", dtype_name(config.engine.cache.state_dtype));
  }
  return text;
}

// Query-key pairs of one head, summed over the layers, for the queries that have [first, last]
// tokens before them, themselves included.
int64_t attended_pairs(const ModelWork& model, int64_t first, int64_t last) {
  int64_t pairs = 0;
  for (const int64_t window : model.windows) {
    const int64_t full_until = window == 0 ? last : std::min(last, window);
    if (full_until >= first) pairs += (first + full_until) * (full_until - first + 1) / 2;
    pairs += window * std::max<int64_t>(0, last - std::max(full_until, first - 1));
  }
  return pairs;
}

int64_t weight_bytes(const ModelWork& model, int64_t num_tokens, double num_chosen) {
  int64_t bytes = model.weight_bytes + num_tokens * model.embedding_row_bytes;
  if (model.num_experts > 0) {
    const double read = num_chosen + static_cast<double>(model.num_shared);
    const auto slots = static_cast<double>(model.num_experts + model.num_shared);
    bytes += std::llround(static_cast<double>(model.expert_bytes) * read / slots);
  }
  return bytes;
}

// What one token takes, without the head.
int64_t matrix_flops(const ModelWork& model) {
  int64_t size = model.matrix_size;
  const int64_t slots = model.num_experts + model.num_shared;
  if (slots > 0) size += model.expert_size / slots * (model.top_k + model.num_shared);
  return 2 * size;
}

}  // namespace

ModelWork count_work(const ResolvedConfig& config, const BuiltModel& built) {
  const QuantConfig& quantization = config.model.quantization;
  ModelWork work;
  work.dtype = config.dtype;
  work.types = types_text(config);
  work.head_size = int64_t{config.model.hidden_size} * config.model.vocab_size;
  work.multiplies_fp8 = !built.device.is_cpu() && !quantization.groups.empty() &&
                        quantization.groups.front().scheme.activations != QuantType::kNo;
  // Without the tables of rotations, of which a step reads a few rows.
  const int64_t rope_bytes =
      int64_t{config.max_model_len()} * config.model.rope.rotary_dim * sizeof(float);
  work.weight_bytes = built.model->resident_bytes() - rope_bytes;
  count_parameters(config.model, built, &work);
  count_layers(config.model, built, &work);
  work.pair_flops = attention_pair_flops(config.model);
  return work;
}

double evenly_chosen(const ModelWork& model, int64_t num_tokens) {
  if (model.num_experts == 0) return 0;
  const auto experts = static_cast<double>(model.num_experts);
  const double left_out = std::pow(1 - static_cast<double>(model.top_k) / experts, num_tokens);
  return experts * (1 - left_out);
}

StepWork decode_work(const ModelWork& model, int64_t batch, int64_t context_len) {
  return decode_work(model, batch, context_len, evenly_chosen(model, batch));
}

StepWork decode_work(const ModelWork& model,
                     int64_t batch,
                     int64_t context_len,
                     double num_chosen) {
  const int64_t pairs = attended_pairs(model, context_len, context_len);
  StepWork work;
  work.weight_bytes = weight_bytes(model, batch, num_chosen);
  // One of the tokens attended to is written by the step itself.
  work.kv_bytes =
      batch * (model.kv_bytes * pairs + model.index_bytes * context_len + 2 * model.state_bytes);
  work.attention_flops = batch * model.pair_flops.decode * pairs;
  work.flops = batch * (matrix_flops(model) + 2 * model.head_size) + work.attention_flops;
  work.fp8_flops = model.multiplies_fp8 ? batch * matrix_flops(model) : 0;
  return work;
}

StepWork prefill_work(const ModelWork& model, int64_t batch, int64_t prompt_len) {
  const int64_t num_tokens = batch * prompt_len;
  const auto num_layers = static_cast<int64_t>(model.windows.size());
  StepWork work;
  work.weight_bytes = weight_bytes(model, num_tokens, evenly_chosen(model, num_tokens));
  work.kv_bytes =
      num_tokens * (num_layers * model.kv_bytes + model.index_bytes) + batch * model.state_bytes;
  work.attention_flops = batch * model.pair_flops.prefill * attended_pairs(model, 1, prompt_len);
  work.flops =
      num_tokens * matrix_flops(model) + 2 * batch * model.head_size + work.attention_flops;
  work.fp8_flops = model.multiplies_fp8 ? num_tokens * matrix_flops(model) : 0;
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
