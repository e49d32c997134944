#include "runner/memory_plan.h"

#include <algorithm>

#include "base/human.h"
#include "base/memory_info.h"
#include "runner/input_builder.h"
#include "runner/step_dry_run.h"

namespace atom {
namespace {

int64_t blocks_for(int64_t num_tokens, int64_t block_size) {
  return (num_tokens + block_size - 1) / block_size;
}

Status does_not_fit(const MemoryPlan& plan, const ResolvedConfig& config, int64_t needed_blocks) {
  const int64_t needed = plan.fixed() + needed_blocks * plan.kv_bytes_per_block;
  return resource_exhausted(
      "the model does not fit: it needs {} ({} weights, {} activations, {} KV cache for one "
      "sequence "
      "of {} tokens), and {} is allowed of the {} free. Lower --max-model-len or "
      "--max-num-batched-tokens, raise --cpu-memory-utilization, or free memory",
      human_bytes(needed),
      human_bytes(plan.weights),
      human_bytes(plan.workspace + plan.step_inputs),
      human_bytes(needed_blocks * plan.kv_bytes_per_block),
      config.max_model_len(),
      human_bytes(plan.budget),
      human_bytes(plan.available));
}

}  // namespace

Result<MemoryPlan> plan_memory(const ResolvedConfig& config,
                               const CausalLM& model,
                               const std::vector<KVCacheSpec>& kv_cache_specs) {
  const CacheConfig& cache = config.engine.cache;
  const SchedulerConfig& scheduler = config.scheduler;
  MemoryPlan plan;
  plan.block_size = scheduler.block_size;
  plan.weights = model.resident_bytes();
  plan.workspace = measure_workspace(config, model, kv_cache_specs);
  plan.step_inputs = InputBuilder::num_bytes(scheduler);
  for (const KVCacheSpec& spec : kv_cache_specs) {
    plan.kv_bytes_per_block += spec.bytes_per_token() * plan.block_size;
  }
  plan.available = available_memory();
  plan.budget =
      static_cast<int64_t>(static_cast<double>(plan.available) * cache.cpu_memory_utilization);

  const int64_t blocks_per_sequence = blocks_for(config.max_model_len(), plan.block_size);
  if (scheduler.num_blocks > 0) {
    plan.num_blocks = scheduler.num_blocks;
  } else {
    const int64_t useful = blocks_per_sequence * scheduler.max_num_seqs;
    const int64_t memory =
        cache.kv_cache_memory > 0 ? cache.kv_cache_memory : plan.budget - plan.fixed();
    const int64_t fitting = std::max<int64_t>(0, memory) / plan.kv_bytes_per_block;
    plan.num_blocks = static_cast<int32_t>(std::min({useful, fitting, int64_t{INT32_MAX}}));
  }
  if (plan.num_blocks < blocks_per_sequence || plan.total() > plan.available) {
    return does_not_fit(plan, config, std::max<int64_t>(plan.num_blocks, blocks_per_sequence));
  }
  return plan;
}

}  // namespace atom
