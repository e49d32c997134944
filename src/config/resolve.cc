#include "config/resolve.h"

#include <algorithm>
#include <cmath>

#include "base/cpu_info.h"
#include "base/env.h"
#include "config/online_quant_config.h"
#include "config/recorded_batches.h"
#include "config/speculative_config.h"

namespace atom {
namespace {

// Enough for a prefill step to be bound by arithmetic, little enough that decodes between its
// chunks do not wait long.
constexpr int32_t kDefaultBatchedTokens = 2048;

Result<int32_t> resolve_max_model_len(const EngineConfig& engine, const ModelConfig& model) {
  const int32_t limit = max_supported_model_len(model);
  const int32_t asked = engine.model.max_model_len;
  if (asked > limit) {
    return invalid_argument(
        "--max-model-len {}: the model's limit is {} tokens (max_position_embeddings {}, rope "
        "type {})",
        asked,
        limit,
        model.max_position_embeddings,
        rope_type_name(model.rope.type));
  }
  return asked > 0 ? asked : limit;
}

Result<int32_t> resolve_checkpoint_interval(const CacheConfig& cache) {
  const int32_t asked = cache.state_checkpoint_interval;
  const auto rounded =
      static_cast<int32_t>(num_blocks_for(asked, cache.block_size) * cache.block_size);
  if (rounded == asked || asked == CacheConfig::kDefaultCheckpointInterval) return rounded;
  return invalid_argument(
      "--state-checkpoint-interval-tokens {} is not a multiple of --block-size {}; the next is {}",
      asked,
      cache.block_size,
      rounded);
}

Status check_prefill_threshold(const SchedulerOptions& options) {
  const bool splits =
      options.enable_chunked_prefill && options.policy != SchedulingPolicy::kPrefillFirst;
  if (options.long_prefill_token_threshold == 0 || splits) return {};
  return invalid_argument(
      "--long-prefill-token-threshold {} needs prompts that are split over steps: chunked prefill, "
      "and another --scheduling-policy than prefill-first",
      options.long_prefill_token_threshold);
}

Result<SchedulerConfig> resolve_scheduler(const EngineConfig& engine, int32_t max_model_len) {
  const SchedulerOptions& options = engine.scheduler;
  SchedulerConfig config;
  config.max_model_len = max_model_len;
  config.max_num_seqs = options.max_num_seqs;
  config.max_num_waiting = options.max_num_waiting;
  config.num_blocks = engine.cache.num_blocks;
  config.block_size = engine.cache.block_size;
  config.enable_prefix_caching = engine.cache.enable_prefix_caching;
  ASSIGN_OR_RETURN(config.state_checkpoint_interval, resolve_checkpoint_interval(engine.cache));
  config.enable_chunked_prefill = options.enable_chunked_prefill;
  config.long_prefill_token_threshold = options.long_prefill_token_threshold;
  RETURN_IF_ERROR(check_prefill_threshold(options));
  config.policy = options.policy;
  config.num_stages = engine.parallel.pipeline_parallel_size;
  config.max_steps_in_flight = options.async_scheduling ? std::max(2, config.num_stages) : 1;

  // Every decode needs a token of the budget, and without chunks a prompt is one step.
  const int32_t least = options.enable_chunked_prefill
                            ? options.max_num_seqs
                            : std::max(options.max_num_seqs, max_model_len);
  config.max_num_batched_tokens = options.max_num_batched_tokens > 0
                                      ? options.max_num_batched_tokens
                                      : std::max(kDefaultBatchedTokens, least);
  if (config.max_num_batched_tokens < options.max_num_seqs) {
    return invalid_argument(
        "--max-num-batched-tokens {} is less than --max-num-seqs {}: each running sequence needs "
        "one token of a step",
        config.max_num_batched_tokens,
        options.max_num_seqs);
  }
  if (config.max_num_batched_tokens < least) {
    return invalid_argument(
        "--max-num-batched-tokens {} is less than the longest sequence, {} tokens: without "
        "--enable-chunked-prefill a prompt is computed in one step",
        config.max_num_batched_tokens,
        max_model_len);
  }
  return config;
}

Result<DType> resolve_kv_cache_dtype(const EngineConfig& engine,
                                     const ModelConfig& model,
                                     DType dtype) {
  if (!engine.cache.dtype) return model.quantization.fp8_kv_cache ? DType::kFloat8E4M3 : dtype;
  const DType asked = *engine.cache.dtype;
  if (asked != dtype && asked != DType::kFloat8E4M3) {
    return unimplemented(
        "--kv-cache-dtype {}: not supported with activations in {}; expected auto, {} or fp8",
        dtype_name(asked),
        dtype_name(dtype),
        dtype_name(dtype));
  }
  return asked;
}

Result<QuantConfig> resolve_quantization(const EngineConfig& engine, const ModelConfig& model) {
  const QuantConfig& own = model.quantization;
  const QuantizationChoice choice = engine.model.quantization;
  const std::string& by_layers = engine.model.online_quant_config;
  if (choice == QuantizationChoice::kAuto && by_layers.empty()) return own;
  if (choice != QuantizationChoice::kAuto && !by_layers.empty()) {
    return invalid_argument(
        "--quantization and --online-quant-config exclude each other: the latter names the format "
        "of all layers as 'global_quant_config'");
  }
  if (own.is_quantized()) {
    if (choice == QuantizationChoice::kFp8 && own.method == "fp8") return own;
    return invalid_argument(
        "{}: the checkpoint is quantized already, by method '{}'; expected auto",
        by_layers.empty() ? "--quantization" : "--online-quant-config",
        own.method);
  }
  switch (choice) {
    case QuantizationChoice::kFp8:
      return online_quant_config(OnlineQuantization::kFp8);
    case QuantizationChoice::kInt8:
      return online_quant_config(OnlineQuantization::kInt8);
    case QuantizationChoice::kMxFp4:
      return online_quant_config(OnlineQuantization::kMxFp4);
    default:
      return parse_online_quant_config(by_layers);
  }
}

bool has_experts(const ModelConfig& model) {
  const ConfigReader reader = model.extension();
  constexpr const char* kKeys[] = {"num_experts", "num_local_experts", "n_routed_experts"};
  return std::ranges::any_of(kKeys, [&](const char* key) {
    const Result<int64_t> count = reader.get_int(key, 0, INT32_MAX, 0);
    return count.ok() && *count > 0;
  });
}

Status check_expert_activations(const EngineConfig& engine, const ModelConfig& model) {
  if (engine.model.moe_activations == ExpertActivations::kAuto) return {};
  if (!has_experts(model)) return invalid_argument("--moe-activations: the model has no experts");
  if (engine.model.emulate_quantized_activations) return {};
  return invalid_argument(
      "--moe-activations fp8 quantizes what --emulate-quantized-activations=false leaves as it is");
}

Status check_deterministic(const EngineConfig& engine) {
  if (!engine.device.deterministic || engine.cache.state_dtype == DType::kFloat32) return {};
  return invalid_argument(
      "--deterministic: not with --mamba-ssm-cache-dtype {}, whose states every step rounds, so "
      "that answers would depend on how a prompt was split; expected auto",
      dtype_name(engine.cache.state_dtype));
}

// Ranks that have the experts of a layer together, each some whole.
Status resolve_moving_experts(const ModelConfig& model, ResolvedConfig* resolved) {
  ParallelConfig& parallel = resolved->engine.parallel;
  ASSIGN_OR_RETURN(parallel.eplb, resolve_eplb(parallel.eplb));
  if (!parallel.eplb.enabled) return {};
  if (!has_experts(model)) return invalid_argument("--enable-eplb: the model has no experts");
  if (!parallel.enable_expert_parallel) {
    return invalid_argument(
        "--enable-eplb needs --enable-expert-parallel: without, every rank has a part of each "
        "expert, and all have as much to do");
  }
  if (parallel.tensor_parallel_size * parallel.data_parallel_size > 1) return {};
  return invalid_argument(
      "--enable-eplb needs several ranks that share experts (--tensor-parallel-size, "
      "--data-parallel-size)");
}

// Which layers share blocks of the KV cache. Layers with a window have blocks of their own where a
// sequence of the longest length takes no more memory so: a block is as large as the larger group
// needs it.
void resolve_kv_groups(const EngineConfig& engine,
                       const ModelConfig& model,
                       const SpeculativeOptions& speculative,
                       SchedulerConfig* scheduler) {
  // Ranks that share the tokens of a prompt send each other rows by the slots of one group.
  if (engine.cache.disable_hybrid_kv_cache_manager ||
      engine.parallel.prefill_context_parallel_size > 1 || model.sliding_window == 0 ||
      model.sliding_window >= scheduler->max_model_len) {
    return;
  }
  const int64_t with_window = std::ranges::count(model.layer_types, LayerType::kSlidingAttention);
  // The layer of a draft model sees everything.
  const int64_t without = std::ranges::count(model.layer_types, LayerType::kFullAttention) +
                          (speculative.method == SpeculativeMethod::kEagle3 ? 1 : 0);
  SchedulerConfig grouped = *scheduler;
  grouped.kv_window = model.sliding_window;
  grouped.num_kv_groups = without > 0 ? 2 : 1;
  const int64_t length = scheduler->max_model_len;
  const int64_t size = std::max(without, with_window) * grouped.max_blocks_of_sequence(length);
  const int64_t ungrouped_size =
      (without + with_window) * scheduler->max_blocks_of_sequence(length);
  if (size <= ungrouped_size) *scheduler = grouped;
}

// Under --enable-dp-attention every rank is a copy of its own.
Status resolve_parallel(const ModelConfig& model, ResolvedConfig* resolved) {
  ParallelConfig& parallel = resolved->engine.parallel;
  if (parallel.enable_dp_attention) {
    const int64_t num_copies = int64_t{parallel.tensor_parallel_size} * parallel.data_parallel_size;
    if (num_copies > kMaxCopies) {
      return invalid_argument(
          "--enable-dp-attention: {} ranks of {} copies would be {} copies; at most {}",
          parallel.tensor_parallel_size,
          parallel.data_parallel_size,
          num_copies,
          kMaxCopies);
    }
    parallel.data_parallel_size = static_cast<int32_t>(num_copies);
    parallel.tensor_parallel_size = 1;
  }
  resolved->copies_share_experts =
      parallel.data_parallel_size > 1 &&
      (parallel.enable_expert_parallel || parallel.enable_dp_attention) && has_experts(model);
  RETURN_IF_ERROR(resolve_moving_experts(model, resolved));
  if (!resolved->copies_share_experts) return {};
  if (parallel.prefill_context_parallel_size > 1) {
    return unimplemented(
        "--prefill-context-parallel-size {}: not with copies that share their experts",
        parallel.prefill_context_parallel_size);
  }
  // An answer of the step before decides what a copy does in the next, which all begin together.
  resolved->scheduler.max_steps_in_flight = 1;
  return {};
}

// The original system's switch is of attention over selected tokens.
int32_t resolve_context_parallel_threshold(const ModelConfig& model) {
  const int32_t threshold = env().dsa_context_parallel_threshold;
  if (threshold == 0) return 0;
  const Result<int64_t> top_k = model.extension().get_int("index_topk", 0, INT32_MAX, 0);
  return top_k.ok() && *top_k > 0 ? threshold : 0;
}

// The threads of one copy of the model: copies of a node share what there is.
int32_t resolve_num_threads(const EngineConfig& engine) {
  int32_t num_threads = num_usable_cores();
  if (env().num_threads > 0) num_threads = env().num_threads;
  if (engine.device.num_threads > 0) num_threads = engine.device.num_threads;
  const int32_t num_copies = engine.parallel.data_parallel_size / engine.nodes.num_nodes;
  return std::max(1, num_threads / std::max(1, num_copies));
}

}  // namespace

int32_t max_supported_model_len(const ModelConfig& model) {
  const RopeConfig& rope = model.rope;
  double length = model.max_position_embeddings;
  if (rope.type == RopeType::kLinear || rope.type == RopeType::kDynamic) length *= rope.factor;
  if (rope.type == RopeType::kYarn) length = rope.original_max_position_embeddings * rope.factor;
  return static_cast<int32_t>(std::clamp(std::floor(length), 1.0, 0x1p30));
}

Result<ResolvedConfig> resolve(const EngineConfig& engine, const ModelConfig& model) {
  RETURN_IF_ERROR(check_nodes(engine));
  RETURN_IF_ERROR(check_expert_activations(engine, model));
  RETURN_IF_ERROR(check_deterministic(engine));
  ResolvedConfig resolved;
  resolved.engine = engine;
  resolved.model = model;
  resolved.dtype = engine.model.dtype.value_or(model.dtype);
  ASSIGN_OR_RETURN(resolved.model.quantization, resolve_quantization(engine, model));
  ASSIGN_OR_RETURN(resolved.kv_cache_dtype, resolve_kv_cache_dtype(engine, model, resolved.dtype));
  ASSIGN_OR_RETURN(const int32_t max_model_len, resolve_max_model_len(engine, model));
  ASSIGN_OR_RETURN(resolved.scheduler, resolve_scheduler(engine, max_model_len));
  ASSIGN_OR_RETURN(resolved.speculative,
                   resolve_speculative(engine.speculative,
                                       {engine.model.model, engine.parallel.tensor_parallel_size}));
  set_speculation(resolved.speculative, &resolved.scheduler);
  ASSIGN_OR_RETURN(
      resolved.recorded_batches,
      resolve_recorded_batches(engine.device.recorded_batches, resolved.scheduler.max_num_seqs));
  RETURN_IF_ERROR(resolve_parallel(model, &resolved));
  resolve_kv_groups(engine, model, resolved.speculative, &resolved.scheduler);
  resolved.context_parallel_threshold = resolve_context_parallel_threshold(resolved.model);
  resolved.num_threads = resolve_num_threads(resolved.engine);
  return resolved;
}

}  // namespace atom
