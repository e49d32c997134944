#include "ops/gated_delta_rule/recurrent/recurrent_cuda.h"

#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/gated_delta_rule/recurrent/recurrent.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace delta_device;

// Queries, keys and this block's values of the tokens from `first` on.
template <typename T, int kColumns>
__device__ void load_tokens(const GatedDeltaRuleArgs& args,
                            int64_t first,
                            int count,
                            int64_t head,
                            int column,
                            RecurrentShared<kColumns>& shared) {
  const int64_t key_head = head / (args.num_v_heads / args.num_k_heads);
  const int thread = threadIdx.x, d = thread % kDim;
  const bool is_key = thread >= kDim;
  const T* row = static_cast<const T*>(args.qkv) + first * args.qkv_stride;
  const T* own = row + (is_key ? args.num_k_heads + key_head : key_head) * kDim + d;
  const T* value = row + (2 * args.num_k_heads + head) * kDim + column + thread;
  for (int i = 0; i < count; ++i) {
    (is_key ? shared.k : shared.q)[i][d] = device::to_float(own[i * args.qkv_stride]);
    if (thread < kColumns) shared.v[i][thread] = device::to_float(value[i * args.qkv_stride]);
  }
}

// grid: parts of value heads, sequences.
template <typename T, int kColumns>
__global__ void ATOM_LAUNCH_BOUNDS(kRecurrentThreads, recurrent_blocks(kColumns))
    recurrent_kernel(GatedDeltaRuleArgs args, int64_t max_tokens) {
  constexpr int kSplits = kDim / kColumns;
  __shared__ __align__(16) RecurrentShared<kColumns> shared;
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const int64_t head = blockIdx.x / kSplits, sequence = blockIdx.y;
  const int column = blockIdx.x % kSplits * kColumns;
  const int64_t begin = args.batch.query_start[sequence];
  const int64_t end = args.batch.query_start[sequence + 1];
  const int64_t slot = args.batch.state_slots[sequence];
  const int32_t* kept = args.batch.token_slots;
  if (begin == end) return;
  // Padding is nobody else's, of any number of rows.
  const bool is_long = max_tokens > 0 && end - begin >= max_tokens;
  if (is_long && slot >= 0 && (kept == nullptr || kept[begin] < 0)) return;
  if (slot >= args.batch.num_slots) gpu_trap();
  const auto state_in = [&](int64_t at) {
    if (at >= args.batch.num_slots) gpu_trap();
    return StateColumns(args, at, head, column);
  };
  T* out = static_cast<T*>(args.out) + head * kDim + column;
  if (slot < 0) {
    if (threadIdx.x >= kColumns) return;
    for (int64_t token = begin; token < end; ++token) {
      out[token * args.out_stride + threadIdx.x] = device::from_float<T>(0.0f);
    }
    return;
  }
  StateTile<kColumns> tile;
  if (args.batch.seq_lens[sequence] > end - begin) {
    tile.load(state_in(slot));
  } else {
    tile.clear();
  }
  GateInputs gates(args, head);
  for (int64_t first = begin; first < end; first += kTokenBatch) {
    const int count = static_cast<int>(min(end - first, int64_t{kTokenBatch}));
    if (first > begin) __syncthreads();  // the last token's key has been read
    const int place = threadIdx.x / device::kWarpSize;
    if (place < count) gates.load<T>(args, first + place, head);
    load_tokens<T, kColumns>(args, first, count, head, column, shared);
    __syncthreads();
    if (place < count) find_factors(gates, shared.rows(place));
    if (first == begin) tile.widen(args.state_element);
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      tile.find_update(shared.rows(i), shared.sums);
      tile.add_update(shared.rows(i), shared.sums);
      if (kept != nullptr && kept[first + i] >= 0) tile.store(state_in(kept[first + i]));
    }
    if (threadIdx.x < kColumns) {
      for (int i = 0; i < count; ++i) {
        out[(first + i) * args.out_stride + threadIdx.x] =
            device::from_float<T>(shared.out[i][threadIdx.x]);
      }
    }
  }
  if (kept == nullptr) tile.store(state_in(slot));
}

template <typename T, int kColumns>
void launch(const GatedDeltaRuleArgs& args, int64_t max_tokens, gpuStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.num_v_heads * (kDim / kColumns)),
                  static_cast<unsigned>(args.batch.num_sequences));
  (void)device::launch(recurrent_kernel<T, kColumns>,
                       grid,
                       dim3(kRecurrentThreads),
                       0,
                       stream,
                       true,
                       args,
                       max_tokens);
  check_gpu_launch("gated_delta_rule");
}

}  // namespace

bool fits_recurrent_cuda(const GatedDeltaRuleArgs& args) {
  return args.head_k_dim == kDim && args.head_v_dim == kDim;
}

int recurrent_splits(int64_t num_heads, int64_t max_splits) {
  constexpr int64_t kEnoughBlocks = 256;  // two for each multiprocessor of a large card
  int splits = 1;
  while (splits < 4 && 2 * splits <= max_splits && num_heads * splits < kEnoughBlocks) splits *= 2;
  return splits;
}

void recurrent_cuda(const GatedDeltaRuleArgs& args, int64_t max_tokens, void* queue, int splits) {
  const auto stream = static_cast<gpuStream_t>(queue);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    switch (splits > 0 ? splits
                       : recurrent_splits(args.num_v_heads * args.batch.num_sequences, 4)) {
      case 1:
        return launch<T, 128>(args, max_tokens, stream);
      case 2:
        return launch<T, 64>(args, max_tokens, stream);
      default:
        return launch<T, 32>(args, max_tokens, stream);
    }
  });
}

}  // namespace atom::ops
