#include "sampling/row_logprobs_cuda.h"
#include "sampling/row_select.cuh"
#include "sampling/sample_rows.h"
#include "tensor/gpu_launch.h"

namespace atom {
namespace {

using namespace device;

constexpr float kGreedyTemperature = 1e-5f;
constexpr int kEditThreads = 256;

// sampling/logit_edits.h.
__device__ void apply_edit(const SampleRowParams& row, LogitEdit& edit, float* logits) {
  float x = logits[edit.token_id];
  edit.original = x;
  x = edit.bias == -kInfinity ? -kInfinity : gpu_add(x, edit.bias);
  if (edit.num_generated >= 0) {
    x = x > 0.0f ? __fdiv_rn(x, row.repetition_penalty) : gpu_multiply(x, row.repetition_penalty);
    if (edit.num_generated > 0) {
      const float count = static_cast<float>(edit.num_generated);
      x = gpu_subtract(x, gpu_multiply(row.frequency_penalty, count));
      x = gpu_subtract(x, row.presence_penalty);
    }
  }
  logits[edit.token_id] = x;
}

__global__ void __launch_bounds__(kEditThreads) edit_logits_kernel(const SampleRowsArgs args) {
  __shared__ bool is_pending_known;
  const SampleRowParams row = args.rows[blockIdx.x];
  if (row.num_edits == 0) return;
  float* logits = args.logits + blockIdx.x * args.logits_stride;
  LogitEdit* edits = args.edits + row.first_edit;
  LogitEdit& last = edits[row.num_edits - 1];
  const int32_t pending_row = ~last.token_id;  // below 0: none
  const int32_t pending = pending_row >= 0 ? args.previous_ids[pending_row] : -1;
  if (threadIdx.x == 0) is_pending_known = false;
  __syncthreads();
  for (int32_t i = threadIdx.x; i < row.num_edits; i += kEditThreads) {
    LogitEdit edit = edits[i];
    if (edit.token_id < 0) continue;
    if (edit.token_id == pending) {
      edit.num_generated = max(edit.num_generated, 0) + 1;
      is_pending_known = true;
    }
    apply_edit(row, edit, logits);
    edits[i] = edit;
  }
  __syncthreads();
  if (pending_row < 0 || threadIdx.x != 0) return;
  // A row without a choice has no token; what follows it is dropped.
  LogitEdit edit = last;
  edit.token_id = is_pending_known || pending < 0 ? -1 : pending;
  edit.num_generated = 1;
  if (edit.token_id >= 0) apply_edit(row, edit, logits);
  last = edit;
}

// min_p, top_k and top_p as one cut; sampling/filters.h.
__device__ RowCut choose_cut(const RowView& row,
                             const SampleRowParams& params,
                             float max,
                             SelectScratch& scratch) {
  RowCut cut{-kInfinity, 0x7fffffff};
  if (params.min_p_offset > -kInfinity) cut.logit = gpu_add(max, params.min_p_offset);
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
  const unsigned long long needed = each > 0 ? (missing + each - 1) / each : 1;
  const int32_t id = nth_of_equals(row, last.ordered, needed > 0 ? needed : 1, scratch);
  const float logit = from_ordered_bits(last.ordered);
  return {logit, logit == cut.logit ? min(id, cut.token_id) : id};
}

// The exponential race of sampling/row_kernels.h. A thread takes the four tokens of one counter.
__device__ unsigned long long draw(const RowView& row,
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
      const float logit = id < row.vocab_size ? row.at(id) : -kInfinity;
      const bool kept = id < row.vocab_size && cut.keeps(logit, id);
      score[i] = kept ? tempered(logit, max, params.inverse_temperature) : -kInfinity;
      any = any || score[i] + kMostNoise >= best;
    }
    if (!any) continue;
    const uint4 words = philox(counter, params.position, params.seed);
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float total = gpu_add(score[i], gumbel_noise(word[i]));
      if (total > best || (total == best && first + 16 * i < best_id)) {
        best = total;
        best_id = first + 16 * i;
      }
    }
  }
  if (best_id < 0) return 0;
  return uint64_t{ordered_bits(best)} << 32 | static_cast<uint32_t>(~best_id);
}

__global__ void __launch_bounds__(kRowThreads) sample_rows_kernel(const SampleRowsArgs args) {
  extern __shared__ __align__(16) unsigned char shared[];
  SelectScratch& scratch = *reinterpret_cast<SelectScratch*>(shared);
  const SampleRowParams params = args.rows[blockIdx.x];
  int32_t& token_id = args.token_ids[blockIdx.x];
  if (params.vocab_size == 0) {
    if (threadIdx.x == 0) token_id = 0;
    return;
  }
  const uint32_t* mask = params.mask < 0 ? nullptr : args.masks + params.mask * args.mask_words;
  const RowView row{args.logits + blockIdx.x * args.logits_stride, params.vocab_size, mask};
  const RowMax scanned = scan_row(row, scratch);
  if (fault_of(scanned) != 0) {
    if (threadIdx.x == 0) token_id = fault_of(scanned);
    return;
  }
  unsigned long long best = 0;
  if (params.temperature < kGreedyTemperature) {
    for_each_token(row, [&](int32_t id, float logit) {
      const unsigned long long key = uint64_t{1} << 32 | static_cast<uint32_t>(~id);
      if (logit == scanned.max) best = max(best, key);
    });
  } else {
    best = draw(row, params, scanned.max, choose_cut(row, params, scanned.max, scratch));
  }
  best = reduce_row(best, scratch, ops::device::Largest());
  if (threadIdx.x == 0) token_id = static_cast<int32_t>(~static_cast<uint32_t>(best));
}

}  // namespace

void sample_rows(const SampleRowsArgs& args, void* queue) {
  if (args.num_rows == 0) return;
  const auto stream = static_cast<gpuStream_t>(queue);
  const auto num_rows = static_cast<unsigned>(args.num_rows);
  edit_logits_kernel<<<num_rows, kEditThreads, 0, stream>>>(args);
  launch_with_scratch(&sample_rows_kernel, args, stream);
  launch_row_logprobs(args, stream);
  check_gpu_launch("sample_rows");
}

}  // namespace atom
