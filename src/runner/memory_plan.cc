#include "runner/memory_plan.h"

#include <algorithm>
#include <utility>

#include "base/human.h"
#include "base/memory_info.h"
#include "layers/moe/expert_balancer.h"
#include "runner/context_rows.h"
#include "runner/device_sampler.h"
#include "runner/draft_rows.h"
#include "runner/input_builder.h"
#include "runner/step_dry_run.h"
#include "spec_decode/eagle_proposer.h"
#include "tensor/device_arena.h"
#include "tensor/workspace.h"

namespace atom {
namespace {

// What takes less memory, of what this device and configuration have.
std::string remedies(const MemoryPlan& plan, const ResolvedConfig& config) {
  std::string text = "Lower --max-model-len or --max-num-batched-tokens";
  if (!config.model.quantization.is_quantized()) text += ", take --quantization fp8";
  if (config.kv_cache_dtype != DType::kFloat8E4M3) text += ", --kv-cache-dtype fp8";
  if (plan.device.is_cpu()) {
    return text + ", raise --cpu-memory-utilization, or free memory";
  }
  return text +
         ", raise --gpu-memory-utilization, end other programs on the GPU (nvidia-smi lists "
         "them), or take --device cpu";
}

Status does_not_fit(const MemoryPlan& plan, const ResolvedConfig& config, int64_t needed_blocks) {
  const int64_t needed = plan.fixed() + plan.states() + needed_blocks * plan.kv_bytes_per_block;
  std::string free = human_bytes(plan.available) + " free";
  if (plan.num_ranks > 1) free += fmt::format(" for each of {} ranks", plan.num_ranks);
  if (!plan.device.is_cpu()) {
    free += fmt::format(" (the GPU has {}, and {} are taken)",
                        human_bytes(plan.device_total),
                        human_bytes(plan.device_total - plan.available));
  }
  return resource_exhausted(
      "the model does not fit: it needs {} ({} weights, {} activations,{} {} KV cache for one "
      "sequence of {} tokens), and {} is allowed of the {}. {}",
      human_bytes(needed),
      human_bytes(plan.weights),
      human_bytes(plan.workspace + plan.step_inputs),
      plan.states() > 0 ? fmt::format(" {} states,", human_bytes(plan.states())) : "",
      human_bytes(needed_blocks * plan.kv_bytes_per_block),
      config.max_model_len(),
      human_bytes(plan.budget),
      free,
      remedies(plan, config));
}

// The size of the cache that the user chose is the limit, not memory.
Status cache_too_small(const MemoryPlan& plan,
                       const ResolvedConfig& config,
                       int64_t needed_blocks) {
  const CacheConfig& cache = config.engine.cache;
  const std::string chosen = cache.num_blocks > 0
                                 ? fmt::format("--num-blocks {}", cache.num_blocks)
                                 : "--kv-cache-memory " + human_bytes(cache.kv_cache_memory);
  return resource_exhausted(
      "{} is too little: it gives {} blocks of {} tokens, and one sequence of {} tokens needs {} "
      "({}). Raise it, or lower --max-model-len",
      chosen,
      plan.num_blocks,
      plan.block_size,
      config.max_model_len(),
      needed_blocks,
      human_bytes(needed_blocks * plan.kv_bytes_per_block));
}

int32_t ranks_of_copy(const ParallelContext& parallel) {
  return parallel.tensor_parallel_size * parallel.context_parallel_size *
         parallel.pipeline_parallel_size;
}

// What is free on the device, shared out on the CPU among so many on all nodes, and the part of it
// that the user allows.
Status add_free_memory(const ResolvedConfig& config, int32_t num_sharing, MemoryPlan* plan) {
  const CacheConfig& cache = config.engine.cache;
  double utilization = cache.cpu_memory_utilization;
  if (config.engine.device.assumed_memory > 0) {
    plan->available = plan->device_total = config.engine.device.assumed_memory;
    utilization = cache.gpu_memory_utilization;
  } else if (plan->device.is_cpu()) {
    plan->available = available_memory() / std::max(1, num_sharing / config.engine.nodes.num_nodes);
  } else {
    ASSIGN_OR_RETURN(const DeviceRuntime* runtime, device_runtime(plan->device));
    const DeviceRuntime::Memory memory = runtime->memory();
    plan->available = memory.free;
    plan->device_total = memory.total;
    utilization = cache.gpu_memory_utilization;
  }
  plan->budget = static_cast<int64_t>(static_cast<double>(plan->available) * utilization);
  return {};
}

// The workspace's counters, and what rounding each tensor of the reservation up costs at most.
int64_t padding_of(const BuiltModel& built) {
  if (built.device.is_cpu()) return 0;
  constexpr size_t kOtherTensors = 64;  // rope tables, workspace, step inputs
  const size_t num_of_draft = built.draft == nullptr ? 0 : built.draft->named_parameters().size();
  const size_t num_tensors = built.model->named_parameters().size() + num_of_draft +
                             built.storage.caches.size() + built.storage.states.size() +
                             kOtherTensors;
  return static_cast<int64_t>(num_tensors) * DeviceArena::kAlignment +
         Workspace::kNumCounters * int64_t{sizeof(int32_t)};
}

// Tokens between checkpoints of states; 0: there are none.
int32_t checkpoint_interval(const SchedulerConfig& scheduler) {
  return scheduler.enable_prefix_caching ? scheduler.state_checkpoint_interval : 0;
}

// Divides what is left of the memory among KV blocks and state slots. Running sequences get a slot
// each, of at most half of the memory and not at the cost of a longest sequence's blocks; those
// that find none wait. Of the rest a block takes its own bytes and its share of a checkpoint, of
// which there is one for each interval of the cache's tokens.
void divide_memory(const ResolvedConfig& config, MemoryPlan* plan) {
  const SchedulerConfig& scheduler = config.scheduler;
  const int64_t asked = config.engine.cache.kv_cache_memory;
  const int64_t memory = std::max<int64_t>(0, asked > 0 ? asked : plan->budget - plan->fixed());
  const int64_t slot_bytes = plan->state_bytes_per_slot;
  const int64_t interval = slot_bytes > 0 ? checkpoint_interval(scheduler) : 0;
  int64_t block_bytes = plan->kv_bytes_per_block;
  if (interval > 0) block_bytes += slot_bytes * plan->block_size / interval + 1;

  const int64_t longest = plan->blocks_per_sequence;
  if (slot_bytes > 0) {
    const int64_t for_states = std::min(memory / 2, memory - longest * block_bytes);
    const int64_t of_one = scheduler.num_slots_per_sequence();
    plan->num_state_slots = static_cast<int32_t>(
        of_one *
        std::clamp<int64_t>(for_states / (of_one * slot_bytes), 1, scheduler.max_num_seqs));
  }
  if (scheduler.num_blocks > 0) {
    plan->num_blocks = scheduler.num_blocks;
  } else {
    const int64_t left = std::max<int64_t>(0, memory - plan->states());
    const int64_t fitting = block_bytes > 0 ? left / block_bytes : INT32_MAX;
    plan->num_blocks = static_cast<int32_t>(
        std::min({longest * scheduler.max_num_seqs, fitting, int64_t{INT32_MAX}}));
  }
  if (interval > 0) {
    plan->num_checkpoint_slots = static_cast<int32_t>(plan->num_cached_tokens() / interval);
    plan->num_state_slots += plan->num_checkpoint_slots;
  }
}

void count_blocks_of_sequence(const SchedulerConfig& scheduler, MemoryPlan* plan) {
  plan->max_model_len = scheduler.max_model_len;
  plan->blocks_per_sequence = scheduler.max_blocks_of_sequence(scheduler.max_model_len);
  if (scheduler.kv_window == 0) return;
  const int32_t group = scheduler.num_kv_groups - 1;
  plan->window_blocks_per_sequence = scheduler.max_blocks_of_group(group, scheduler.max_model_len);
  SchedulerConfig decoding = scheduler;
  decoding.max_num_batched_tokens = 1 + scheduler.num_speculative_tokens;
  plan->window_blocks_in_decode = decoding.max_blocks_of_group(group, scheduler.max_model_len);
}

}  // namespace

Result<MemoryPlan> plan_memory(const ResolvedConfig& config, const BuiltModel& built) {
  const CacheConfig& cache = config.engine.cache;
  const SchedulerConfig& scheduler = config.scheduler;
  MemoryPlan plan;
  plan.device = built.device;
  plan.num_ranks = ranks_of_copy(built.parallel) * config.engine.parallel.data_parallel_size;
  plan.block_size = scheduler.block_size;
  count_blocks_of_sequence(scheduler, &plan);
  plan.weights = built.model->resident_bytes();
  if (built.draft != nullptr) plan.weights += built.draft->resident_bytes();
  plan.workspace = measure_workspace(config, built);
  plan.step_inputs =
      InputBuilder::num_bytes(limits_of_parts(scheduler, built.parallel.context_parallel_size));
  plan.step_inputs += ContextRows::num_elements(scheduler, built.parallel.context_parallel_size) *
                      int64_t{sizeof(int32_t)};
  if (built.draft != nullptr) {
    plan.step_inputs += EagleProposer::num_bytes(*built.draft, scheduler, built.device);
  }
  if (!built.moving_experts.empty()) {
    plan.step_inputs += ExpertBalancer::num_bytes(built.moving_experts);
  }
  if (!built.device.is_cpu()) {
    const int64_t max_rows = max_logits_rows(scheduler, built.device);
    plan.step_inputs += max_rows * int64_t{sizeof(int32_t)};  // those that get logits
    plan.step_inputs += DeviceSampler::num_bytes(max_rows, config.model.vocab_size);
    if (built.draft != nullptr) {
      plan.step_inputs +=
          draft_states_shape(config, *built.draft).num_elements() * dtype_size(config.dtype);
    }
  }
  plan.padding = padding_of(built);
  plan.kv_bytes_per_block = built.storage.pool_bytes_per_token() * plan.block_size;
  plan.state_bytes_per_slot = built.storage.bytes_per_slot();
  // Copies with a cache of known size take what they need, also one that comes back beside others.
  const int32_t num_sharing = cache.num_blocks > 0 ? ranks_of_copy(built.parallel) : plan.num_ranks;
  RETURN_IF_ERROR(add_free_memory(config, num_sharing, &plan));

  divide_memory(config, &plan);
  const int64_t blocks_per_sequence = plan.blocks_per_sequence;
  const bool is_chosen = cache.num_blocks > 0 || cache.kv_cache_memory > 0;
  if (is_chosen && plan.num_blocks < blocks_per_sequence) {
    return cache_too_small(plan, config, blocks_per_sequence);
  }
  if (plan.num_blocks < blocks_per_sequence || plan.total() > plan.available) {
    return does_not_fit(plan, config, std::max<int64_t>(plan.num_blocks, blocks_per_sequence));
  }
  return plan;
}

Status agree_on_memory(const ParallelContext& parallel, ThreadPool* pool, MemoryPlan* plan) {
  const Tensor counts = Tensor::empty({3}, DType::kInt32);
  int32_t* values = counts.data<int32_t>();
  values[0] = plan->num_blocks;
  values[1] = plan->num_state_slots;
  values[2] = plan->num_checkpoint_slots;
  parallel.reduce_over_all(Stream(pool), counts, ReduceOp::kMin);
  plan->num_blocks = values[0];
  plan->num_state_slots = values[1];
  plan->num_checkpoint_slots = values[2];
  return parallel.status();
}

}  // namespace atom
