#include "ops/device/programmatic_launch.cuh"
#include "sampling/argmax_cuda.h"
#include "sampling/row_select.cuh"
#include "sampling/sample_rows_cuda.h"

namespace atom {
namespace {

using namespace device;
using ops::device::allow_next_grid;
using ops::device::launch;
using ops::device::wait_for_previous_grid;

constexpr float kInfinity = __builtin_inff();
constexpr float kLowestLogit = -3.402823466e+38f;
constexpr float kGreedyTemperature = 1e-5f;

__global__ void __launch_bounds__(kRowThreads) edit_logits_kernel(const SampleRowsLaunch p) {
  allow_next_grid();
  wait_for_previous_grid();
  const SampleRowParams row = p.rows[blockIdx.x];
  float* logits = p.logits + blockIdx.x * p.logits_stride;
  if (row.allowed_row >= 0) {
    const uint32_t* allowed = p.allowed + row.allowed_row * p.allowed_stride;
    for (int32_t id = threadIdx.x; id < row.vocab_size; id += kRowThreads) {
      if ((allowed[id / 32] >> id % 32 & 1u) == 0) logits[id] = -kInfinity;
    }
    __syncthreads();
  }
  for (int32_t i = threadIdx.x; i < row.num_edits; i += kRowThreads) {
    const LogitEdit edit = p.edits[row.first_edit + i];
    float x = edit.is_forbidden ? -kInfinity : logits[edit.token_id];
    x = __fadd_rn(x, edit.bias);
    if (edit.is_seen) {
      x = x > 0.0f ? __fdiv_rn(x, row.repetition_penalty) : __fmul_rn(x, row.repetition_penalty);
      if (edit.num_generated > 0) {
        const float count = static_cast<float>(edit.num_generated);
        x = __fsub_rn(x, __fmul_rn(row.frequency_penalty, count));
        x = __fsub_rn(x, row.presence_penalty);
      }
    }
    logits[edit.token_id] = x;
  }
}

// min_p, top_k and top_p as one cut; sampling/filters.h.
__device__ RowCut choose_cut(const RowView& row,
                             const SampleRowParams& params,
                             float max,
                             SelectScratch& scratch) {
  RowCut cut{-kInfinity, 0x7fffffff};
  if (params.min_p_offset > -kInfinity) cut.logit = __fadd_rn(max, params.min_p_offset);
  if (cut.logit < kLowestLogit) cut.logit = kLowestLogit;
  if (params.top_k > 0 && params.top_k < row.vocab_size) {
    const auto counts = [&](int32_t id, float logit) -> unsigned long long {
      return cut.keeps(logit, id) ? 1 : 0;
    };
    const auto top_k = static_cast<unsigned long long>(params.top_k);
    const Selected last = select_by_weight(row, top_k, scratch, counts);
    // With fewer candidates than top_k this is the worst of them and keeps all.
    const int32_t id = nth_of_equals(row, last.ordered, top_k - last.above, scratch);
    cut = {from_ordered_bits(last.ordered), id};
  }
  if (params.top_p >= 1.0f) return cut;

  const auto masses = [&](int32_t id, float logit) -> unsigned long long {
    return cut.keeps(logit, id) ? token_mass(logit, max, params.inverse_temperature) : 0;
  };
  unsigned long long total = 0;
  for_each_token(row, [&](int32_t id, float logit) { total += masses(id, logit); });
  total = reduce_row(total, scratch, ops::device::Sum());
  const double share = static_cast<double>(params.top_p) * static_cast<double>(total);
  const auto target = static_cast<unsigned long long>(ceil(share));
  const Selected last = select_by_weight(row, target > 0 ? target : 1, scratch, masses);
  const unsigned long long each =
      token_mass(from_ordered_bits(last.ordered), max, params.inverse_temperature);
  const unsigned long long missing = target > last.above ? target - last.above : 1;
  const unsigned long long needed = (missing + each - 1) / each;
  const int32_t id = nth_of_equals(row, last.ordered, needed > 0 ? needed : 1, scratch);
  const float logit = from_ordered_bits(last.ordered);
  return {logit, logit == cut.logit ? min(id, cut.token_id) : id};
}

// The exponential race of sampling/row_kernels.h. A thread takes the four tokens of one counter.
__device__ uint64_t draw(const RowView& row,
                         const SampleRowParams& params,
                         float max,
                         const RowCut& cut) {
  float best = kLeastNoise;
  int32_t best_id = -1;
  const int32_t num_counters = (row.vocab_size + 63) / 64 * 16;
  for (int32_t counter = threadIdx.x; counter < num_counters; counter += kRowThreads) {
    const int32_t first = counter / 16 * 64 + counter % 16;
    float score[4];
    bool any = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t id = first + 16 * i;
      const float logit = id < row.vocab_size ? row.logits[id] : -kInfinity;
      const bool kept = id < row.vocab_size && cut.keeps(logit, id);
      score[i] = kept ? tempered(logit, max, params.inverse_temperature) : -kInfinity;
      any = any || score[i] + kMostNoise >= best;
    }
    if (!any) continue;
    const uint4 words = philox(counter, params.position, params.seed);
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float total = __fadd_rn(score[i], gumbel_noise(word[i]));
      if (total > best || (total == best && first + 16 * i < best_id)) {
        best = total;
        best_id = first + 16 * i;
      }
    }
  }
  if (best_id < 0) return 0;
  return uint64_t{ordered_bits(best)} << 32 | static_cast<uint32_t>(~best_id);
}

__global__ void __launch_bounds__(kRowThreads) sample_rows_kernel(const SampleRowsLaunch p) {
  extern __shared__ __align__(16) unsigned char shared[];
  SelectScratch& scratch = *reinterpret_cast<SelectScratch*>(shared);
  allow_next_grid();
  wait_for_previous_grid();
  const SampleRowParams params = p.rows[blockIdx.x];
  const RowView row{p.logits + blockIdx.x * p.logits_stride, params.vocab_size};
  int32_t& token_id = p.token_ids[blockIdx.x];
  const RowMax scanned = scan_row(row, scratch);
  if (scanned.has_nan || scanned.max == kInfinity || scanned.max == -kInfinity) {
    const bool is_number = !scanned.has_nan && scanned.max < 0;
    if (threadIdx.x == 0) token_id = is_number ? kTokenNoCandidate : kTokenNotANumber;
    return;
  }
  uint64_t best = 0;
  if (params.temperature < kGreedyTemperature) {
    for_each_token(row, [&](int32_t id, float logit) {
      if (logit == scanned.max) best = max(best, uint64_t{1} << 32 | static_cast<uint32_t>(~id));
    });
  } else {
    best = draw(row, params, scanned.max, choose_cut(row, params, scanned.max, scratch));
  }
  best = reduce_row(best, scratch, ops::device::Largest());
  if (threadIdx.x == 0) token_id = static_cast<int32_t>(~static_cast<uint32_t>(best));
}

// One block: the tokens at least as good as the k-th, in rank order.
__global__ void __launch_bounds__(kRowThreads) row_logprobs_kernel(const RowLogprobsLaunch p) {
  extern __shared__ __align__(16) unsigned char shared[];
  SelectScratch& scratch = *reinterpret_cast<SelectScratch*>(shared);
  __shared__ unsigned long long keys[kMaxRowLogprobs];
  __shared__ int num_keys;
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t index = blockIdx.x;
  const int32_t chosen = p.chosen[index];
  if (chosen < 0) return;
  const RowView row{p.logits + index * p.logits_stride, p.vocab_sizes[index]};
  const float max = scan_row(row, scratch).max, chosen_logit = row.logits[chosen];
  unsigned long long total = 0, num_better = 0;
  for_each_token(row, [&](int32_t, float logit) {
    total += token_mass(logit, max, 1.0f);
    num_better += logit > chosen_logit ? 1 : 0;
  });
  total = reduce_row(total, scratch, ops::device::Sum());
  num_better = reduce_row(num_better, scratch, ops::device::Sum());
  const double log_total = log(static_cast<double>(total) / static_cast<double>(kMassUnit));
  const auto store = [&](int64_t entry, int32_t id, float logit, int32_t rank) {
    const int64_t at = index * (p.max_best + 1) + entry;
    p.token_ids[at] = id;
    p.logprobs[at] =
        static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_total);
    p.ranks[at] = rank;
  };
  if (threadIdx.x == 0) store(0, chosen, chosen_logit, static_cast<int32_t>(num_better) + 1);

  const int32_t k = min(min(p.num_best[index], p.max_best), row.vocab_size);
  if (k <= 0) return;
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
  if (threadIdx.x >= num_keys) return;
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

template <typename Params>
gpuError_t launch_with_scratch(void (*kernel)(Params), const Params& p, gpuStream_t stream) {
  if (p.num_rows == 0) return ATOM_GPU(Success);
  const gpuError_t error =
      ATOM_GPU(FuncSetAttribute)(reinterpret_cast<const void*>(kernel),
                                 ATOM_GPU(FuncAttributeMaxDynamicSharedMemorySize),
                                 sizeof(SelectScratch));
  if (error != ATOM_GPU(Success)) return error;
  return launch(kernel,
                dim3(p.num_rows),
                dim3(kRowThreads),
                sizeof(SelectScratch),
                stream,
                p.overlaps_previous,
                p);
}

}  // namespace

gpuError_t launch_edit_logits(const SampleRowsLaunch& p, gpuStream_t stream) {
  if (p.num_rows == 0) return ATOM_GPU(Success);
  return launch(
      &edit_logits_kernel, dim3(p.num_rows), dim3(kRowThreads), 0, stream, p.overlaps_previous, p);
}

gpuError_t launch_sample_rows(const SampleRowsLaunch& p, gpuStream_t stream) {
  return launch_with_scratch<SampleRowsLaunch>(&sample_rows_kernel, p, stream);
}

gpuError_t launch_row_logprobs(const RowLogprobsLaunch& p, gpuStream_t stream) {
  if (p.max_best < 0 || p.max_best > kMaxRowLogprobs) return ATOM_GPU(ErrorInvalidValue);
  return launch_with_scratch<RowLogprobsLaunch>(&row_logprobs_kernel, p, stream);
}

}  // namespace atom
