#include "ops/mla_prefill/mla_prefill.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/mla_prefill/mla_prefill_kernels.h"
#include "ops/mla_prefill/mla_prefill_variants.h"
#include "ops/paged_batch_rows.h"
#include "ops/variant.h"
#include "tensor/dispatch.h"
#include "tensor/element_of.h"
#include "tensor/float8.h"
#include "tensor/tensor_check.h"
#ifdef ATOM_CUDA
#include "ops/attention/prefill/expanded_sm90.h"
#include "tensor/device_runtime.h"
#include "tensor/gpu_check.h"
#endif

namespace atom::ops {
namespace {

constexpr int64_t kMaxRows = int64_t{1} << 16;     // of keys that are expanded
constexpr int64_t kMaxBytes = int64_t{320} << 20;  // of keys and values together

int64_t rows_per_sequence(int64_t max_blocks, int64_t block_size) {
  const int64_t most = std::max<int64_t>(1, max_blocks * block_size);
  return (most + kMlaPrefillBlock - 1) / kMlaPrefillBlock * kMlaPrefillBlock;
}

// What a call's kernels need beside the tensors.
struct Call {
  const MlaPrefillParams& params;
  MlaPrefillSizes sizes;
  PagedBatchArgs batch;
  int64_t rows_per_sequence;
  int64_t num_rows;  // of all sequences, or on a dry run the most

  int64_t max_heads = 0;  // at once; 0: as many as fit

  // Heads whose keys are in memory together, of so many rows.
  int64_t heads_at_once() const {
    if (max_heads > 0) return std::min(max_heads, sizes.num_heads);
    const int64_t size = num_rows * (sizes.key_dim + sizes.value_dim) * dtype_size(sizes.dtype);
    return std::clamp<int64_t>(kMaxBytes / size, 1, sizes.num_heads);
  }
};

// ---- on a GPU ----

bool is_made_for(const MlaPrefillSizes& sizes) {
  return sizes.key_dim == 192 && sizes.dtype == DType::kBFloat16;
}

#ifdef ATOM_CUDA
LinearWeight rows_of(const LinearWeight& weight, int64_t first, int64_t count) {
  LinearWeight part = weight;
  part.data = weight.data.narrow(0, first, count);
  part.out_features = count;
  return part;
}

AttentionArgs attention_args(const Call& call,
                             int64_t first_head,
                             int64_t num_heads,
                             const Tensor& keys,
                             const Tensor& values,
                             const Tensor& tables) {
  const MlaPrefillParams& params = call.params;
  const Tensor q = params.q.narrow(1, first_head, num_heads);
  const Tensor out = params.out.narrow(1, first_head, num_heads);
  AttentionArgs args = {};
  args.q = q.raw_data();
  args.k_cache = keys.raw_data();
  args.v_cache = values.raw_data();
  args.block_tables = static_cast<const int32_t*>(tables.raw_data());
  args.query_start = call.batch.query_start;
  args.seq_lens = call.batch.seq_lens;
  args.out = out.raw_data();
  args.q_token_stride = q.stride(0);
  args.q_head_stride = q.stride(1);
  args.out_token_stride = out.stride(0);
  args.out_head_stride = out.stride(1);
  args.block_table_stride = tables.stride(0);
  args.num_sequences = static_cast<int32_t>(call.batch.num_sequences);
  args.num_tokens = static_cast<int32_t>(call.batch.num_tokens);
  args.num_blocks = static_cast<int32_t>(call.num_rows / kMlaPrefillBlock);
  args.block_size = static_cast<int32_t>(kMlaPrefillBlock);
  args.num_heads = args.num_kv_heads = static_cast<int32_t>(num_heads);
  args.head_dim = static_cast<int32_t>(call.sizes.key_dim);
  args.max_seq_len = static_cast<int32_t>(call.rows_per_sequence);
  args.scale = params.scale;
  args.k_scale = args.v_scale = 1;
  args.element = element_of(call.sizes.dtype);
  return args;
}

MlaGatherArgs gather_args(const Call& call, const Tensor& rows, const Tensor& tables) {
  return {.cache = call.params.cache.raw_data(),
          .rows = rows.raw_data(),
          .tables = static_cast<int32_t*>(tables.raw_data()),
          .batch = call.batch,
          .rows_per_sequence = call.rows_per_sequence,
          .width = call.sizes.width(),
          .element = element_of(call.sizes.dtype),
          .float8_cache = call.params.cache.dtype() == DType::kFloat8E4M3};
}

void on_sm90(const Stream& stream, const Call& call, Workspace& scratch) {
  const auto& [num_heads, rank, key_dim, rope, value_dim, dtype] = call.sizes;
  const Tensor rows = scratch.tensor({call.num_rows, call.sizes.width()}, dtype);
  const Tensor table_memory = scratch.tensor({call.num_rows / kMlaPrefillBlock}, DType::kInt32);
  const bool is_dry_run = stream.is_dry_run();
  const int64_t most_heads = call.heads_at_once();
  // With fewer rows there are more heads, in not more memory than this.
  const int64_t most_rows = is_dry_run
                                ? std::min(call.num_rows * num_heads,
                                           kMaxBytes / ((key_dim + value_dim) * dtype_size(dtype)))
                                : call.num_rows * most_heads;
  const Tensor key_memory = scratch.tensor({std::max(most_rows, call.num_rows), key_dim}, dtype);
  const Tensor value_memory =
      scratch.tensor({std::max(most_rows, call.num_rows), value_dim}, dtype);
  Tensor tables;
  if (!is_dry_run) {
    tables =
        table_memory.view({call.batch.num_sequences, call.rows_per_sequence / kMlaPrefillBlock});
    mla_gather_cuda(gather_args(call, rows, tables), stream.queue().handle());
  }
  for (int64_t head = 0; head < num_heads; head += most_heads) {
    const int64_t count = std::min(most_heads, num_heads - head);
    const Tensor keys =
        key_memory.narrow(0, 0, call.num_rows * count).view({call.num_rows, count * key_dim});
    const Tensor values =
        value_memory.narrow(0, 0, call.num_rows * count).view({call.num_rows, count * value_dim});
    linear(stream,
           rows,
           rows_of(call.params.keys, head * key_dim, count * key_dim),
           Tensor(),
           keys,
           scratch);
    linear(stream,
           rows.narrow(1, 0, rank),
           rows_of(call.params.values, head * value_dim, count * value_dim),
           Tensor(),
           values,
           scratch);
    if (is_dry_run) continue;
    GPU_CHECK(
        launch_attention_expanded_sm90(attention_args(call, head, count, keys, values, tables),
                                       scratch.counters().data<int32_t>(),
                                       static_cast<gpuStream_t>(stream.queue().handle())));
  }
}

bool has_kernels(const MlaPrefillSizes& sizes) {
  // Plans for a GPU are also made where there is none to ask.
  if (!device_facts(DeviceType::kCuda).ok()) return is_made_for(sizes);
  AttentionArgs args = {};
  args.head_dim = static_cast<int32_t>(sizes.key_dim);
  args.num_heads = args.num_kv_heads = 1;
  args.block_size = static_cast<int32_t>(kMlaPrefillBlock);
  args.scale = 1;
  args.element = element_of(sizes.dtype);
  return supports_attention_expanded_sm90(args);
}
#else
// Plans for a GPU are also made where there are no kernels for one.
void on_sm90(const Stream&, const Call&, Workspace&) {
  CHECK(false);
}

bool has_kernels(const MlaPrefillSizes& sizes) {
  return is_made_for(sizes);
}
#endif

bool fits_sm90(const MlaPrefillSizes& sizes) {
  return sizes.value_dim == 128 && sizes.width() % 16 == 0 && has_kernels(sizes);
}

// ---- on the CPU: plain loops, the oracle ----

template <typename T, typename C>
void gather(const Call& call, const Tensor& rows) {
  const int64_t width = call.sizes.width(), block_size = call.batch.block_size;
  for (int64_t s = 0; s < call.batch.num_sequences; ++s) {
    const int32_t* table = call.batch.block_tables + s * call.batch.block_table_stride;
    for (int64_t i = 0; i < call.batch.seq_lens[s]; ++i) {
      const int64_t slot = table[i / block_size] * block_size + i % block_size;
      const C* from = static_cast<const C*>(call.params.cache.raw_data()) + slot * width;
      T* to = rows.data<T>() + (s * call.rows_per_sequence + i) * width;
      for (int64_t d = 0; d < width; ++d) to[d] = from_float<T>(to_float(from[d]));
    }
  }
}

struct Expanded {
  Tensor keys, values;  // [rows, num_heads * dimension]
};

template <typename T>
void attend(const Call& call, const Expanded& expanded, int64_t token, int64_t head) {
  const auto& [num_heads, rank, key_dim, rope, value_dim, dtype] = call.sizes;
  const PagedRow row = find_row(call.batch, token);
  const T* q =
      call.params.q.data<T>() + token * call.params.q.stride(0) + head * call.params.q.stride(1);
  T* out = call.params.out.data<T>() + token * call.params.out.stride(0) +
           head * call.params.out.stride(1);
  const int64_t sequence =
      row.block_table == nullptr
          ? 0
          : (row.block_table - call.batch.block_tables) / call.batch.block_table_stride;
  const int64_t first = sequence * call.rows_per_sequence;
  std::vector<float> weights(row.position + 1), sums(value_dim);
  float largest = -INFINITY, total = 0;
  for (int64_t i = 0; i <= row.position; ++i) {
    const T* key = expanded.keys.data<T>() + ((first + i) * num_heads + head) * key_dim;
    float product = 0;
    for (int64_t d = 0; d < key_dim; ++d) product += to_float(q[d]) * to_float(key[d]);
    weights[i] = product * call.params.scale;
    largest = std::max(largest, weights[i]);
  }
  for (int64_t i = 0; i <= row.position; ++i) {
    const T* value = expanded.values.data<T>() + ((first + i) * num_heads + head) * value_dim;
    const float weight = std::exp(weights[i] - largest);
    total += weight;
    for (int64_t d = 0; d < value_dim; ++d) sums[d] += weight * to_float(value[d]);
  }
  for (int64_t d = 0; d < value_dim; ++d) out[d] = from_float<T>(total > 0 ? sums[d] / total : 0);
}

void by_reference(const Stream& stream, const Call& call, Workspace& scratch) {
  const MlaPrefillSizes& sizes = call.sizes;
  const Tensor rows = scratch.tensor({call.num_rows, sizes.width()}, sizes.dtype);
  const Expanded expanded = {
      scratch.tensor({call.num_rows, sizes.num_heads * sizes.key_dim}, sizes.dtype),
      scratch.tensor({call.num_rows, sizes.num_heads * sizes.value_dim}, sizes.dtype)};
  const bool is_float8 = call.params.cache.dtype() == DType::kFloat8E4M3;
  if (!stream.is_dry_run()) {
    std::fill_n(static_cast<char*>(rows.raw_data()), rows.num_bytes(), 0);
    dispatch_float(sizes.dtype, [&]<typename T>(TypeTag<T>) {
      is_float8 ? gather<T, Float8E4M3>(call, rows) : gather<T, T>(call, rows);
    });
  }
  linear(stream, rows, call.params.keys, Tensor(), expanded.keys, scratch);
  linear(stream,
         rows.narrow(1, 0, sizes.rank),
         call.params.values,
         Tensor(),
         expanded.values,
         scratch);
  if (stream.is_dry_run()) return;
  const int64_t num_tasks = call.batch.num_tokens * sizes.num_heads;
  stream.pool().parallel_for(num_tasks, 1, [&](int64_t begin, int64_t end) {
    dispatch_float(sizes.dtype, [&]<typename T>(TypeTag<T>) {
      for (int64_t i = begin; i < end; ++i) {
        attend<T>(call, expanded, i / sizes.num_heads, i % sizes.num_heads);
      }
    });
  });
}

// Where no other runs: layers take mla_attention.
void by_none(const Stream&, const Call&, Workspace&) {
  CHECK(false);
}

using Launch = void(const Stream&, const Call&, Workspace&);

constexpr Variant<MlaPrefillSizes, Launch> kVariants[] = {
    {"sm90", CpuIsa::kScalar, fits_sm90, on_sm90, DeviceType::kCuda, kMixesRows},
    {"absorbed", CpuIsa::kScalar, nullptr, by_none, DeviceType::kCuda},
    // On the CPU a token's bits do not depend on how its prompt was cut.
    {"absorbed", CpuIsa::kScalar, nullptr, by_none},
    {"reference", CpuIsa::kScalar, nullptr, by_reference, DeviceType::kCpu, kMixesRows},
};

MlaPrefillSizes sizes_of(const MlaPrefillParams& params) {
  const int64_t key_dim = params.q.size(2), width = params.cache.size(2);
  return {.num_heads = params.q.size(1),
          .rank = params.values.in_features,
          .key_dim = key_dim,
          .rope = width - params.values.in_features,
          .value_dim = params.out.size(2),
          .dtype = params.q.dtype()};
}

// On a dry run with the keys that steps of so many tokens have at most, or with those of this one.
enum class Measured { kAnyStep, kThisOne };

Call checked_call(const Stream& stream, const MlaPrefillParams& params, Measured measured) {
  const MlaPrefillSizes sizes = sizes_of(params);
  const bool float8_cache = params.cache.dtype() == DType::kFloat8E4M3;
  TensorCheck check("mla_prefill");
  check.tensor("q", params.q, {"T", "NH", "key_dim"}, sizes.dtype)
      .tensor("out", params.out, {"T", "NH", "value_dim"}, sizes.dtype)
      .contiguous("cache",
                  params.cache,
                  {"num_blocks", "block_size", "width"},
                  float8_cache ? params.cache.dtype() : sizes.dtype);
  CHECK(sizes.rope >= 0);
  CHECK(params.keys.in_features == sizes.width());
  CHECK(params.keys.out_features == sizes.num_heads * sizes.key_dim);
  CHECK(params.values.out_features == sizes.num_heads * sizes.value_dim);
  const PagedBatchArgs batch = checked_paged_batch(check,
                                                   stream,
                                                   params.batch,
                                                   check.size("T"),
                                                   check.size("num_blocks"),
                                                   check.size("block_size"));
  const int64_t of_one = rows_per_sequence(batch.max_blocks, batch.block_size);
  const int64_t num_rows = of_one * batch.num_sequences;
  if (!stream.is_dry_run() || measured == Measured::kThisOne) {
    return {params, sizes, batch, of_one, num_rows};
  }
  // Any number of sequences that have enough queries each.
  const int64_t most_sequences = batch.num_tokens / kLongChunk;
  const int64_t most_rows = std::min(kMaxRows, most_sequences * of_one);
  return {params, sizes, batch, of_one, most_rows / kMlaPrefillBlock * kMlaPrefillBlock};
}

// What is expanded counts with the products that it takes.
OperatorWork work_of(const Call& call) {
  return moves(call.params.q, call.params.out);
}

}  // namespace

bool has_mla_prefill(Device device, const MlaPrefillSizes& sizes) {
  return pick_variant("mla_prefill", kVariants, device.type, sizes).launch != by_none;
}

bool prefers_mla_prefill(const PagedBatch& batch, int64_t block_size) {
  const int64_t num_rows =
      batch.seq_lens.size(0) * rows_per_sequence(batch.block_tables.size(1), block_size);
  return batch.min_queries >= kLongChunk && num_rows <= kMaxRows;
}

void mla_prefill(const Stream& stream, const MlaPrefillParams& params, Workspace& scratch) {
  const Call call = checked_call(stream, params, Measured::kAnyStep);
  if (call.num_rows == 0 || call.batch.num_tokens == 0) return;
  const Workspace::Scope scope(scratch);
  const auto& variant =
      pick_variant("mla_prefill", kVariants, stream, call.sizes, [&] { return work_of(call); });
  variant.launch(stream, call, scratch);
}

bool mla_prefill_by(std::string_view variant_name,
                    const Stream& stream,
                    const MlaPrefillParams& params,
                    Workspace& scratch,
                    int64_t max_heads) {
  Call call = checked_call(stream, params, Measured::kThisOne);
  call.max_heads = max_heads;
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, call.sizes);
  if (variant == nullptr) return false;
  const Workspace::Scope scope(scratch);
  if (call.num_rows > 0 && call.batch.num_tokens > 0) variant->launch(stream, call, scratch);
  return true;
}

}  // namespace atom::ops
