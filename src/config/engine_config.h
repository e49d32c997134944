// Everything a user may choose about an engine, as flags give it: one tree of plain values. 0 and
// "auto" mean that resolve() (config/resolve.h) chooses. One row of flags.def per field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/eplb_config.h"
#include "config/nodes_config.h"
#include "config/scheduler_config.h"
#include "config/speculative_options.h"
#include "tensor/dtype.h"

namespace atom {

// Weights made up instead of read: to measure speed and memory without a checkpoint's tensors.
enum class DummyWeights {
  kNone,    // read the checkpoint
  kEmpty,   // whatever the memory holds
  kZero,    // all zero
  kRandom,  // small, reproducible by tensor name, index and seed
};

enum class QuantizationChoice {
  kAuto,   // as the checkpoint is
  kFp8,    // weights and activations quantized at load when the checkpoint is not quantized
  kInt8,   // likewise
  kMxFp4,  // likewise
};

enum class ExpertActivations {
  kAuto,  // as the checkpoint says
  kFp8,   // of experts in MXFP4 whose checkpoint leaves them as they are
};

enum class DeviceChoice { kAuto, kCpu, kCuda };

struct ModelSourceConfig {
  std::string model;      // folder of the checkpoint, or a model of the hub
  std::string revision;   // of a model of the hub; empty: the one in its name, else main
  std::string tokenizer;  // folder or file; empty: the model's folder
  std::string chat_template;
  std::string generation_config = "auto";  // of the checkpoint; "vllm": neutral; else a folder
  std::string override_generation_config;  // JSON object laid over it, or empty
  bool skip_tokenizer_init = false;
  std::optional<DType> dtype;  // none: the checkpoint's
  QuantizationChoice quantization = QuantizationChoice::kAuto;
  std::string online_quant_config;  // JSON, by layers; empty: none
  // Where the device multiplies FP8 weights by wider activations: round these to FP8 all the same.
  bool emulate_quantized_activations = true;
  ExpertActivations moe_activations = ExpertActivations::kAuto;
  int32_t max_model_len = 0;  // tokens; 0: the model's limit
  DummyWeights load_dummy = DummyWeights::kNone;
  uint64_t seed = 0;  // of dummy weights, and of requests without one
};

struct CacheConfig {
  int32_t block_size = 16;              // tokens
  std::optional<DType> dtype;           // none: what the checkpoint was made for
  DType state_dtype = DType::kFloat32;  // of recurrent states: float32 or bfloat16
  bool enable_prefix_caching = true;
  // Layers with a sliding window keep all blocks of a sequence, in groups with the other layers.
  bool disable_hybrid_kv_cache_manager = false;
  // Recurrent states are saved so often; 0: never. The default is rounded up to whole blocks.
  static constexpr int32_t kDefaultCheckpointInterval = 8192;
  int32_t state_checkpoint_interval = kDefaultCheckpointInterval;  // tokens
  int64_t kv_cache_memory = 0;                                     // bytes; 0: what is left
  int32_t num_blocks = 0;                                          // 0: as many as fit
  // The part of the memory free at start that weights, activations and KV cache may take together.
  double cpu_memory_utilization = 0.8;
  // The same of a GPU's memory.
  double gpu_memory_utilization = 0.9;
};

struct SchedulerOptions {
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 0;  // 0: chosen by resolve()
  int32_t max_num_waiting = 4096;
  bool enable_chunked_prefill = true;
  int32_t long_prefill_token_threshold = 0;  // of one prompt in one step; 0: no limit
  bool async_scheduling = true;              // schedule a step while the one before it runs
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
};

// Which data-parallel rank a request goes to.
enum class DataParallelBalance {
  kLeastRequests,  // that has fewest unfinished requests
  kLeastTokens,    // whose unfinished requests have fewest tokens, of prompts and answers
  kRoundRobin,
};

inline constexpr int32_t kMaxCopies = 64;

// How tokens come to the experts that copies of the model share, and results back.
enum class ExpertDispatch {
  kAuto,
  kGather,         // every rank sees all tokens; sums are scattered
  kAllToAll,       // a token goes to the ranks that have its experts
  kAllToAllFloat8  // likewise, in FP8 with a scale for each 128
};

struct ParallelConfig {
  int32_t tensor_parallel_size = 1;
  int32_t pipeline_parallel_size = 1;
  int32_t data_parallel_size = 1;
  // Ranks with the same weights that share the tokens of prompts.
  int32_t prefill_context_parallel_size = 1;
  DataParallelBalance data_parallel_balance = DataParallelBalance::kLeastRequests;
  // Whole experts are spread over the ranks of all copies, instead of a part of each over those of
  // a copy.
  bool enable_expert_parallel = false;
  // Each rank is a copy of its own but for the experts, which are spread over all.
  bool enable_dp_attention = false;
  ExpertDispatch expert_dispatch = ExpertDispatch::kAuto;
  EplbConfig eplb = {};

  // Ranks of one stage, and of one copy of the model.
  int32_t ranks_of_stage() const { return tensor_parallel_size * prefill_context_parallel_size; }
  int32_t ranks_of_copy() const { return ranks_of_stage() * pipeline_parallel_size; }
};

struct DeviceConfig {
  DeviceChoice device = DeviceChoice::kAuto;
  int32_t first_card = 0;  // of a GPU's cards, that of the first rank; others have the next ones
  int64_t assumed_memory = 0;  // of plans: bytes free for each rank; 0: what is
  // Record the decode step of common batch sizes at start and replay it.
  bool enable_graphs = true;
  std::string recorded_batches;  // their sizes, "1,2,4" or "[1, 2, 4]"; empty: resolve() leaves it
  // A request's tokens do not depend on its batch, nor on how its prompt was split or cached.
  bool deterministic = false;
  // Measure the algorithms of the GPU's library at start and keep the fastest.
  bool enable_tuning = true;
  int32_t num_threads = 0;  // 0: ATOM_NUM_THREADS, else the cores this process may use
};

// How a front end looks after an engine in a process of its own. Times in seconds.
struct SupervisionConfig {
  double hang_timeout = 10;     // silence after which it is killed
  double step_timeout = 300;    // without progress on a step, or while loading
  double shutdown_timeout = 5;  // for the step that runs when the front end stops
  int32_t max_restarts = 5;     // in a row, none of which served anything
};

struct EngineConfig {
  ModelSourceConfig model;
  CacheConfig cache;
  SchedulerOptions scheduler;
  SpeculativeOptions speculative;
  ParallelConfig parallel;
  NodesConfig nodes;
  DeviceConfig device;
  SupervisionConfig supervision;
  std::string profile_dir;  // folder for profiles of steps; empty: none can be made
  std::string log_level;    // empty: ATOM_LOG_LEVEL, else the command's own
  std::string log_format;   // empty: ATOM_LOG_FORMAT, else text
};

}  // namespace atom
