#include "ops/device/dispatch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kColumns = device::kWarpSize;  // of the state, by a block
constexpr int kGroups = 4;                   // warps, each with every fourth of the state's rows
constexpr int kThreads = kColumns * kGroups;

struct Scratch {
  float q[kDeltaMaxHeadDim];
  float k[kDeltaMaxHeadDim];
  float sums[device::kWarpSize];
  float known[kGroups][kColumns];
  float result[kGroups][kColumns];
};

// x / sqrt(sum x^2 + 1e-6) * scale into `out`.
template <typename T>
__device__ void normalize(const T* x, int64_t size, float scale, float* sums, float* out) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    const float value = device::to_float(x[i]);
    squares = fmaf(value, value, squares);
  }
  squares = device::reduce_block(squares, sums, device::Sum{});
  const float factor = scale / sqrtf(squares + 1e-6f);
  for (int64_t i = threadIdx.x; i < size; i += kThreads) out[i] = device::to_float(x[i]) * factor;
  __syncthreads();
}

__device__ float over_groups(const float (&parts)[kGroups][kColumns], int lane) {
  float sum = parts[0][lane];
  for (int group = 1; group < kGroups; ++group) sum += parts[group][lane];
  return sum;
}

// One sequence's tokens one after the other, for kColumns columns of one value head's state, which
// stay in shared memory. A thread has every fourth row of one column.
template <typename T, typename State>
__global__ void gated_delta_rule_kernel(GatedDeltaRuleArgs args) {
  extern __shared__ float tile[];  // [head_k_dim, kColumns]
  __shared__ Scratch scratch;
  const int64_t head = blockIdx.x, sequence = blockIdx.y;
  const int64_t key_head = head / (args.num_v_heads / args.num_k_heads);
  const int64_t begin = args.batch.query_start[sequence];
  const int64_t end = args.batch.query_start[sequence + 1];
  const int64_t slot = args.batch.state_slots[sequence];
  const int group = threadIdx.x / kColumns, lane = threadIdx.x % kColumns;
  const int64_t column = int64_t{blockIdx.z} * kColumns + lane;
  const bool has_column = column < args.head_v_dim;
  const int64_t dk = args.head_k_dim, dv = args.head_v_dim;
  const T* qkv = static_cast<const T*>(args.qkv);
  T* out = static_cast<T*>(args.out) + head * dv + column;
  if (begin == end) return;
  if (slot >= args.batch.num_slots) gpu_trap();
  if (slot < 0) {
    for (int64_t token = begin + group; token < end && has_column; token += kGroups) {
      out[token * args.out_stride] = device::from_float<T>(0.0f);
    }
    return;
  }
  const int32_t* kept = args.batch.token_slots;
  const auto state_in = [&](int64_t at) {
    if (at >= args.batch.num_slots) gpu_trap();
    return static_cast<State*>(args.state) + (at * args.num_v_heads + head) * dk * dv + column;
  };
  const auto keep_in = [&](State* state) {
    for (int64_t d = group; d < dk && has_column; d += kGroups) {
      float& own = tile[d * kColumns + lane];
      state[d * dv] = device::from_float<State>(own);
      own = device::to_float(state[d * dv]);
    }
  };
  const State* state = state_in(slot);
  const bool has_history = args.batch.seq_lens[sequence] > end - begin;
  for (int64_t d = group; d < dk; d += kGroups) {
    tile[d * kColumns + lane] = has_history && has_column ? device::to_float(state[d * dv]) : 0.0f;
  }
  const float q_scale = 1.0f / sqrtf(static_cast<float>(dk));
  const float decay_rate = expf(args.a_log[head]), dt_bias = args.dt_bias[head];
  for (int64_t token = begin; token < end; ++token) {
    const T* row = qkv + token * args.qkv_stride;
    normalize(row + key_head * dk, dk, q_scale, scratch.sums, scratch.q);
    normalize(row + (args.num_k_heads + key_head) * dk, dk, 1.0f, scratch.sums, scratch.k);
    const float a =
        device::to_float(static_cast<const T*>(args.a)[token * args.a_stride + head]) + dt_bias;
    const float b = device::to_float(static_cast<const T*>(args.b)[token * args.b_stride + head]);
    const float decay = expf(-decay_rate * (a > 20.0f ? a : log1pf(expf(a))));
    const float beta = 1.0f / (1.0f + expf(-b));

    float known = 0;
    for (int64_t d = group; d < dk; d += kGroups) {
      const float kept = tile[d * kColumns + lane] * decay;
      tile[d * kColumns + lane] = kept;
      known = fmaf(scratch.k[d], kept, known);
    }
    scratch.known[group][lane] = known;
    __syncthreads();
    const float value =
        has_column ? device::to_float(row[2 * args.num_k_heads * dk + head * dv + column]) : 0.0f;
    const float update = beta * (value - over_groups(scratch.known, lane));
    float result = 0;
    for (int64_t d = group; d < dk; d += kGroups) {
      const float added = fmaf(scratch.k[d], update, tile[d * kColumns + lane]);
      tile[d * kColumns + lane] = added;
      result = fmaf(scratch.q[d], added, result);
    }
    scratch.result[group][lane] = result;
    __syncthreads();
    if (group == 0 && has_column) {
      out[token * args.out_stride] = device::from_float<T>(over_groups(scratch.result, lane));
    }
    if (kept != nullptr && kept[token] >= 0) keep_in(state_in(kept[token]));
  }
  if (kept == nullptr) keep_in(state_in(slot));
}

}  // namespace

void gated_delta_rule_cuda(const GatedDeltaRuleArgs& args, void* queue) {
  const dim3 grid(static_cast<unsigned>(args.num_v_heads),
                  static_cast<unsigned>(args.batch.num_sequences),
                  static_cast<unsigned>((args.head_v_dim + kColumns - 1) / kColumns));
  const size_t shared_size = static_cast<size_t>(args.head_k_dim) * kColumns * sizeof(float);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    const auto kernel = args.state_element == Element::kFloat32
                            ? gated_delta_rule_kernel<T, float>
                            : gated_delta_rule_kernel<T, device::BFloat16>;
    kernel<<<grid, kThreads, shared_size, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("gated_delta_rule");
}

}  // namespace atom::ops
