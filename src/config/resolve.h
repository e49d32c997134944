// Turns every "auto" of an EngineConfig into a value, once, and refuses what does not fit the model
// or is not supported.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "config/engine_config.h"
#include "config/model_config.h"
#include "config/scheduler_config.h"

namespace atom {

struct ResolvedConfig {
  EngineConfig engine;                     // as asked for, but for --enable-dp-attention
  ModelConfig model;                       // with the quantization that is computed with
  DType dtype = DType::kFloat32;           // of activations, and of weights that are not quantized
  DType kv_cache_dtype = DType::kFloat32;  // dtype, or FP8
  // num_blocks is 0 unless --num-blocks is given: the memory plan decides.
  SchedulerConfig scheduler;
  SpeculativeOptions speculative;  // json empty, forced_acceptance also where its rate was given
  // Ascending sizes of the batches whose steps a device records; nothing: DecodeGraphs chooses.
  std::optional<std::vector<int64_t>> recorded_batches;
  int32_t num_threads = 1;  // of one of the copies that data parallelism has on a node
  bool copies_share_experts = false;
  // Fewer tokens of a prompt are not shared out by context parallelism; 0: as few as ranks.
  int32_t context_parallel_threshold = 0;

  int32_t max_model_len() const { return scheduler.max_model_len; }
  // Copies that share their experts step together, and those of several nodes come and go together.
  bool copies_are_one_core() const {
    const bool have_nodes = engine.nodes.num_nodes > 1 && engine.parallel.data_parallel_size > 1;
    return copies_share_experts || have_nodes;
  }
  int32_t num_cores() const {
    return copies_are_one_core() ? 1 : engine.parallel.data_parallel_size;
  }
};

Result<ResolvedConfig> resolve(const EngineConfig& engine, const ModelConfig& model);

// The longest sequence the model was made for: max_position_embeddings, extended by rope scaling
// the way vLLM does it.
int32_t max_supported_model_len(const ModelConfig& model);

}  // namespace atom
