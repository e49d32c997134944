#include "runner/memory_plan.h"

#include <algorithm>
#include <utility>

#include "base/human.h"
#include "base/memory_info.h"
#include "runner/device_sampler.h"
#include "runner/input_builder.h"
#include "runner/step_dry_run.h"
#include "tensor/device_arena.h"
#include "tensor/workspace.h"

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
      "--max-num-batched-tokens, raise --{}-memory-utilization, or free memory",
      human_bytes(needed),
      human_bytes(plan.weights),
      human_bytes(plan.workspace + plan.step_inputs),
      human_bytes(needed_blocks * plan.kv_bytes_per_block),
      config.max_model_len(),
      human_bytes(plan.budget),
      human_bytes(plan.available),
      plan.device.is_cpu() ? "cpu" : "gpu");
}

// Bytes free on the device, and the part of them that the user allows.
Result<std::pair<int64_t, double>> free_memory(const CacheConfig& cache, Device device) {
  if (device.is_cpu()) return std::pair(available_memory(), cache.cpu_memory_utilization);
  ASSIGN_OR_RETURN(const DeviceRuntime* runtime, device_runtime(device.type));
  return std::pair(runtime->memory().free, cache.gpu_memory_utilization);
}

// The workspace's counters, and what rounding each tensor of the reservation up costs at most.
int64_t padding_of(const BuiltModel& built) {
  if (built.device.is_cpu()) return 0;
  constexpr size_t kOtherTensors = 64;  // rope tables, workspace, step inputs
  const size_t num_tensors =
      built.model->named_parameters().size() + 2 * built.kv_cache_specs.size() + kOtherTensors;
  return static_cast<int64_t>(num_tensors) * DeviceArena::kAlignment +
         Workspace::kNumCounters * int64_t{sizeof(int32_t)};
}

}  // namespace

Result<MemoryPlan> plan_memory(const ResolvedConfig& config, const BuiltModel& built) {
  const CacheConfig& cache = config.engine.cache;
  const SchedulerConfig& scheduler = config.scheduler;
  MemoryPlan plan;
  plan.device = built.device;
  plan.block_size = scheduler.block_size;
  plan.weights = built.model->resident_bytes();
  plan.workspace = measure_workspace(config, built);
  plan.step_inputs = InputBuilder::num_bytes(scheduler);
  if (!built.device.is_cpu()) {
    const int64_t max_rows = max_logits_rows(scheduler, built.device);
    plan.step_inputs += max_rows * int64_t{sizeof(int32_t)};  // those that get logits
    plan.step_inputs += DeviceSampler::num_bytes(max_rows, config.model.vocab_size);
  }
  plan.padding = padding_of(built);
  for (const KVCacheSpec& spec : built.kv_cache_specs) {
    plan.kv_bytes_per_block += spec.bytes_per_token() * plan.block_size;
  }
  ASSIGN_OR_RETURN(const auto free, free_memory(cache, built.device));
  plan.available = free.first;
  plan.budget = static_cast<int64_t>(static_cast<double>(plan.available) * free.second);

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
