#include "ops/attention/attention.h"

#include <algorithm>

#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_variants.h"
#include "ops/attention/cpu/kernels.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

bool fits_tiles(const AttentionArgs& args) {
  return args.head_dim % 8 == 0 && args.head_dim <= kAttentionMaxHeadDim &&
         args.num_heads / args.num_kv_heads <= kAttentionTaskRows;
}

bool fits_amx(const AttentionArgs& args) {
  return fits_tiles(args) && args.element == Element::kBFloat16 && args.head_dim % 32 == 0;
}

// Multiply-adds that take a few microseconds: less is not worth a parallel region.
constexpr int64_t kCostPerChunk = 100000;

int32_t int32_of(int64_t value) {
  CHECK(value <= INT32_MAX);
  return static_cast<int32_t>(value);
}

AttentionArgs checked_args(const AttentionParams& params) {
  const bool float8_cache = params.k_cache.dtype() == DType::kFloat8E4M3;
  const DType cache_dtype = float8_cache ? params.k_cache.dtype() : params.q.dtype();
  TensorCheck check("attention");
  check.tensor("q", params.q, {"T", "NH", "D"}, params.q.dtype())
      .tensor("out", params.out, {"T", "NH", "D"}, params.q.dtype())
      .contiguous("k_cache", params.k_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype)
      .contiguous("v_cache", params.v_cache, {"num_blocks", "block_size", "NKV", "D"}, cache_dtype)
      .tensor("block_tables", params.batch.block_tables, {"S", "max_blocks"}, DType::kInt32)
      .contiguous("seq_lens", params.batch.seq_lens, {"S"}, DType::kInt32)
      .contiguous("query_start", params.batch.query_start, {"S+1"}, DType::kInt32);
  CHECK(check.size("S+1") == check.size("S") + 1);
  if (params.batch.settled_lens.defined()) {
    check.contiguous("settled_lens", params.batch.settled_lens, {"S"}, DType::kInt32);
  }
  if (params.sinks.defined()) {
    check.contiguous("sinks", params.sinks, {"NH"}, DType::kFloat32);
  }
  CHECK(check.size("NKV") > 0);
  CHECK(check.size("NH") % check.size("NKV") == 0);
  CHECK(check.size("block_size") > 0);
  CHECK(params.sliding_window >= 0);
  CHECK((float8_cache || (params.k_scale == 1 && params.v_scale == 1)));
  return {
      .q = params.q.raw_data(),
      .k_cache = params.k_cache.raw_data(),
      .v_cache = params.v_cache.raw_data(),
      .block_tables = static_cast<const int32_t*>(params.batch.block_tables.raw_data()),
      .query_start = static_cast<const int32_t*>(params.batch.query_start.raw_data()),
      .seq_lens = static_cast<const int32_t*>(params.batch.seq_lens.raw_data()),
      .settled_lens = static_cast<const int32_t*>(params.batch.settled_lens.raw_data()),
      .sinks = static_cast<const float*>(params.sinks.raw_data()),
      .out = params.out.raw_data(),
      .q_token_stride = params.q.stride(0),
      .q_head_stride = params.q.stride(1),
      .out_token_stride = params.out.stride(0),
      .out_head_stride = params.out.stride(1),
      .block_table_stride = params.batch.block_tables.stride(0),
      .num_sequences = int32_of(check.size("S")),
      .num_tokens = int32_of(check.size("T")),
      .num_blocks = int32_of(check.size("num_blocks")),
      .block_size = int32_of(check.size("block_size")),
      .num_heads = int32_of(check.size("NH")),
      .num_kv_heads = int32_of(check.size("NKV")),
      .head_dim = int32_of(check.size("D")),
      .sliding_window = int32_of(params.sliding_window),
      .max_queries = int32_of(params.batch.max_queries),
      .max_seq_len = int32_of(check.size("max_blocks") * check.size("block_size")),
      .scale = params.scale,
      .k_scale = params.k_scale,
      .v_scale = params.v_scale,
      .element = element_of(params.q.dtype()),
      .float8_cache = float8_cache,
      .min_queries = int32_of(params.batch.min_queries),
  };
}

int64_t queries_per_task(const AttentionArgs& args) {
  return std::max<int64_t>(1, kAttentionTaskRows / (args.num_heads / args.num_kv_heads));
}

int64_t first_visible_key(const AttentionArgs& args, int64_t position) {
  return args.sliding_window == 0 ? 0 : std::max<int64_t>(0, position - args.sliding_window + 1);
}

// The first block of the sequence that its queries need and the table does not have, or -1.
int64_t missing_block(const AttentionArgs& args,
                      int64_t sequence,
                      int64_t first_key,
                      int64_t num_blocks) {
  const int32_t* table = args.block_tables + sequence * args.block_table_stride;
  const int64_t last = (args.seq_lens[sequence] - 1) / args.block_size;
  for (int64_t block = first_key / args.block_size; block <= last; ++block) {
    if (table[block] < 0 || table[block] >= num_blocks) return block;
  }
  return -1;
}

// KV heads that one task of `num_rows` rows per head takes. Several, where few rows leave room, so
// that it reads the cache in long runs; fewer, where there would be too few tasks for the threads.
int64_t kv_heads_per_task(const AttentionArgs& args,
                          int64_t num_rows,
                          int64_t num_sequences,
                          int64_t num_threads) {
  constexpr int64_t kRunSize = 2048;  // bytes of a token
  constexpr int64_t kTasksPerThread = 4;
  int64_t heads =
      std::min(kAttentionTaskRows / num_rows, kRunSize / (args.head_dim * bytes_of(args.element)));
  if (num_threads > 1) {
    heads = std::min(heads, args.num_kv_heads * num_sequences / (num_threads * kTasksPerThread));
  }
  return std::clamp<int64_t>(heads, 1, args.num_kv_heads);
}

// Cuts the queries of all sequences into tasks and returns how many.
int64_t plan_tasks(const AttentionArgs& args,
                   const AttentionParams& params,
                   int64_t num_threads,
                   AttentionTask* tasks) {
  const int64_t num_sequences = params.batch.seq_lens.size(0);
  const int64_t max_keys = params.batch.block_tables.size(1) * args.block_size;
  const int64_t step = queries_per_task(args);
  int64_t num_tasks = 0;
  CHECK(args.query_start[0] >= 0);
  CHECK(args.query_start[num_sequences] <= params.q.size(0));
  for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
    const int64_t seq_len = args.seq_lens[sequence];
    const int64_t num_queries = args.query_start[sequence + 1] - args.query_start[sequence];
    CHECK(num_queries >= 0);
    CHECK(num_queries <= seq_len);
    CHECK(seq_len <= max_keys);
    if (num_queries == 0) continue;
    const int64_t first_position = seq_len - num_queries;
    const int64_t first_key = first_visible_key(args, first_position);
    CHECK(missing_block(args, sequence, first_key, params.k_cache.size(0)) == -1);
    for (int64_t query = 0; query < num_queries; query += step) {
      const int64_t count = std::min(step, num_queries - query);
      const int64_t first = first_position + query;
      const int64_t num_rows = count * (args.num_heads / args.num_kv_heads);
      const int64_t heads = kv_heads_per_task(args, num_rows, num_sequences, num_threads);
      for (int64_t head = 0; head < args.num_kv_heads; head += heads) {
        tasks[num_tasks++] = {
            .sequence = static_cast<int32_t>(sequence),
            .first_query = static_cast<int32_t>(query),
            .num_queries = static_cast<int32_t>(count),
            .num_keys = static_cast<int32_t>(first + count - first_visible_key(args, first)),
            .first_kv_head = static_cast<int32_t>(head),
            .num_kv_heads = static_cast<int32_t>(std::min(heads, args.num_kv_heads - head)),
        };
      }
    }
  }
  return num_tasks;
}

// In multiply-adds, with packing a key counted as so many rows' use of it.
int64_t cost_of(const AttentionArgs& args, const AttentionTask& task) {
  constexpr int64_t kPackingRows = 4;
  const int64_t num_rows = task.num_queries * (args.num_heads / args.num_kv_heads);
  return task.num_kv_heads * (num_rows + kPackingRows) * task.num_keys * 2 * args.head_dim;
}

// Room for the tasks of any split of the tokens among the sequences.
Tensor task_memory_of(const AttentionArgs& args,
                      const AttentionParams& params,
                      Workspace& scratch) {
  static_assert(sizeof(AttentionTask) == 6 * sizeof(int32_t));
  const int64_t max_tasks =
      params.q.size(0) / queries_per_task(args) + params.batch.seq_lens.size(0) + 1;
  return scratch.tensor({max_tasks * args.num_kv_heads, 6}, DType::kInt32);
}

template <AttentionKernel* kernel>
void on_pool(const Stream& stream,
             const AttentionArgs& args,
             const AttentionParams& params,
             Workspace& scratch) {
  const Tensor task_memory = task_memory_of(args, params, scratch);
  if (stream.is_dry_run()) return;
  AttentionTask* tasks = reinterpret_cast<AttentionTask*>(task_memory.data<int32_t>());
  const int64_t num_threads = stream.pool().num_threads();
  const int64_t num_tasks = plan_tasks(args, params, num_threads, tasks);
  CHECK(num_tasks <= task_memory.size(0));
  int64_t total = 0;
  for (int64_t i = 0; i < num_tasks; ++i) total += cost_of(args, tasks[i]);
  if (num_threads > 1) {
    // The costliest first, so that the last ones to finish are short.
    std::sort(tasks, tasks + num_tasks, [&](const AttentionTask& a, const AttentionTask& b) {
      return cost_of(args, a) > cost_of(args, b);
    });
  }
  const int64_t grain =
      std::max<int64_t>(1, kCostPerChunk * num_tasks / std::max<int64_t>(1, total));
  stream.pool().parallel_for(num_tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernel(args, tasks[i]);
  });
}

using AttentionGpuKernel = void(const AttentionArgs&, void* queue);

template <AttentionGpuKernel* kernel>
void on_queue(const Stream& stream, const AttentionArgs& args, const AttentionParams&, Workspace&) {
  if (!stream.is_dry_run() && args.num_tokens > 0) kernel(args, stream.queue().handle());
}

template <int kMaxHeadDim>
bool fits_head_dim(const AttentionArgs& args) {
  return args.head_dim <= kMaxHeadDim;
}

constexpr Variant<AttentionArgs, AttentionLaunch> kVariants[] = {
#ifdef ATOM_CUDA
    {"sm90", CpuIsa::kScalar, fits_attention_sm90, attention_sm90, DeviceType::kCuda, kMixesRows},
    {"mma", CpuIsa::kScalar, fits_attention_mma, attention_mma, DeviceType::kCuda, kMixesRows},
    {"fixed", CpuIsa::kScalar, fits_attention_fixed, attention_fixed, DeviceType::kCuda},
    {"cuda",
     CpuIsa::kScalar,
     fits_head_dim<kAttentionCudaMaxHeadDim>,
     on_queue<attention_cuda>,
     DeviceType::kCuda},
#endif
    {"amx", CpuIsa::kAmx, fits_amx, on_pool<attention_amx>},
    {"avx512", CpuIsa::kAvx512, fits_tiles, on_pool<attention_avx512>},
    {"avx2", CpuIsa::kAvx2, fits_tiles, on_pool<attention_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<attention_reference>},
};

}  // namespace

void attention(const Stream& stream, const AttentionParams& params, Workspace& scratch) {
  const AttentionArgs args = checked_args(params);
  Workspace::Scope scope(scratch);
  const auto& variant = pick_variant("attention", kVariants, stream, args, [&] {
    // How much of the cache is read is known to the device alone.
    return moves(params.q, params.out);
  });
  variant.launch(stream, args, params, scratch);
}

bool attention_by_tiles(const Stream& stream, const AttentionParams& params, Workspace& scratch) {
  const AttentionArgs args = checked_args(params);
  if (!fits_amx(args)) return false;
  Workspace::Scope scope(scratch);
  on_pool<attention_amx>(stream, args, params, scratch);
  return true;
}

bool attention_by(std::string_view variant_name,
                  const Stream& stream,
                  const AttentionParams& params,
                  Workspace& scratch) {
  const AttentionArgs args = checked_args(params);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  Workspace::Scope scope(scratch);
  variant->launch(stream, args, params, scratch);
  return true;
}

}  // namespace atom::ops
