#include "sampling/row_logprobs_cuda.h"
#include "sampling/row_select.cuh"

namespace atom {
namespace {

using namespace device;

__device__ void restore_row(const SampleRowsArgs& args, const SampleRowParams& params) {
  float* logits = args.logits + blockIdx.x * args.logits_stride;
  for (int32_t i = threadIdx.x; i < params.num_edits; i += kRowThreads) {
    const LogitEdit edit = args.edits[params.first_edit + i];
    if (edit.token_id >= 0) logits[edit.token_id] = edit.original;
  }
  __syncthreads();
}

// The k best tokens, each put where its rank says.
template <typename Store>
__device__ void store_best(const RowView& row, int32_t k, SelectScratch& scratch, Store&& store) {
  __shared__ unsigned long long keys[kMaxRowLogprobs];
  __shared__ int num_keys;
  const auto counts = [](int32_t, float logit) -> unsigned long long {
    return logit >= kLowestLogit ? 1 : 0;
  };
  const Selected last = select_by_weight(row, k, scratch, counts);
  const RowCut cut{from_ordered_bits(last.ordered),
                   nth_of_equals(row, last.ordered, k - last.above, scratch)};
  if (threadIdx.x == 0) num_keys = 0;
  __syncthreads();
  for_each_token(row, [&](int32_t id, float logit) {
    if (!cut.keeps(logit, id) || logit < kLowestLogit) return;
    keys[atomicAdd(&num_keys, 1)] =
        uint64_t{ordered_bits(logit)} << 32 | static_cast<uint32_t>(~id);
  });
  __syncthreads();
  // The order in which they came does not matter: each finds its own place.
  if (static_cast<int>(threadIdx.x) >= num_keys) {
    if (static_cast<int>(threadIdx.x) < kMaxRowLogprobs) store(1 + threadIdx.x, -1, 0.0f, 0);
    return;
  }
  const unsigned long long key = keys[threadIdx.x];
  int place = 0, rank = 1;
  for (int i = 0; i < num_keys; ++i) {
    place += keys[i] > key ? 1 : 0;
    rank += (keys[i] >> 32) > (key >> 32) ? 1 : 0;
  }
  store(1 + place,
        static_cast<int32_t>(~static_cast<uint32_t>(key)),
        from_ordered_bits(static_cast<uint32_t>(key >> 32)),
        rank);
}

__global__ void __launch_bounds__(kRowThreads) row_logprobs_kernel(const SampleRowsArgs args) {
  extern __shared__ __align__(16) unsigned char shared[];
  SelectScratch& scratch = *reinterpret_cast<SelectScratch*>(shared);
  const int64_t index = blockIdx.x;
  const SampleRowParams params = args.rows[index];
  const int32_t chosen = args.token_ids[index];
  if (params.num_logprobs < 0 || params.vocab_size == 0 || chosen < 0) return;
  restore_row(args, params);
  const RowView row{args.logits + index * args.logits_stride, params.vocab_size};  // unmasked
  const RowMax scanned = scan_row(row, scratch);
  if (fault_of(scanned) != 0) {
    if (threadIdx.x == 0) args.token_ids[index] = fault_of(scanned);
    return;
  }
  const float max = scanned.max, chosen_logit = row.logits[chosen];
  unsigned long long total = 0, num_better = 0;
  for_each_token(row, [&](int32_t, float logit) {
    total += token_mass(logit, max, 1.0f);
    num_better += logit > chosen_logit ? 1 : 0;
  });
  total = reduce_row(total, scratch, ops::device::Sum());
  num_better = reduce_row(num_better, scratch, ops::device::Sum());
  const double log_total = log(static_cast<double>(total) / static_cast<double>(kMassUnit));
  TokenLogprob* entries = args.logprobs + index * (1 + kMaxRowLogprobs);
  const auto store = [&](int entry, int32_t id, float logit, int32_t rank) {
    const double logprob = static_cast<double>(logit) - static_cast<double>(max) - log_total;
    entries[entry].token_id = id;
    entries[entry].logprob = static_cast<float>(logprob);
    entries[entry].rank = rank;
  };
  if (threadIdx.x == 0) store(0, chosen, chosen_logit, static_cast<int32_t>(num_better) + 1);
  const int32_t k = min(params.num_logprobs, kMaxRowLogprobs);
  if (k > 0) store_best(row, k, scratch, store);
}

}  // namespace

void launch_row_logprobs(const SampleRowsArgs& args, gpuStream_t stream) {
  launch_with_scratch(&row_logprobs_kernel, args, stream);
}

}  // namespace atom
