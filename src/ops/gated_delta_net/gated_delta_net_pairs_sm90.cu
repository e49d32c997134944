// A step of many sequences by one kernel. A block has both value heads of a key head: it convolves
// their queries and keys once, and the second head's state is on its way while the first one's is
// advanced, which keeps twice as many bytes in flight as a block for each head.
#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/gated_delta_net/step_sm90.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace delta_device;

constexpr int kHeads = 2;  // of a key head
constexpr int kMaxPairTokens = kTokenBatch / kHeads;
static_assert(kHeads * kDim == kRecurrentThreads);

// Float32 states fill a thread's registers, so the first one is loaded to those at once.
template <typename Stored>
constexpr int kFirstShared = sizeof(Stored) == sizeof(float) ? 1 : 0;

template <typename Stored>
struct PairShared {
  alignas(128) Stored states[kHeads - kFirstShared<Stored>][kDim * kDim];
  RecurrentShared<kDim> rule;  // by place_of()
  float2 parts[kTokenBatch];   // by place_of(): the sum of squares, the largest gated result
  uint64_t arrived[kHeads];
};

__device__ int place_of(int token, int head) {
  return kHeads * token + head;
}

// Four columns of a row of a float32 state in global memory.
struct GlobalState {
  const float* state;

  __device__ float4 load(int row, int column) const {
    return gpu_load_once(reinterpret_cast<const float4*>(state + row * kDim + column));
  }
};

// Of a state in shared memory.
template <typename Stored>
struct SharedState {
  const Stored* state;

  __device__ float4 load(int row, int column) const {
    const Stored* at = state + row * kDim + column;
    if constexpr (sizeof(Stored) == sizeof(float)) {
      return *reinterpret_cast<const float4*>(at);
    } else {
      return StateColumns::widened(*reinterpret_cast<const uint2*>(at));
    }
  }
};

// The bytes of the states that come to shared memory, by one thread.
template <typename Stored>
__device__ void begin_copies(const Stored* states, PairShared<Stored>& shared) {
  constexpr int kBytes = kDim * kDim * sizeof(Stored);
  const uint64_t policy = device::read_once_policy();
#pragma unroll
  for (int head = kFirstShared<Stored>; head < kHeads; ++head) {
    const auto barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&shared.arrived[head]));
    device::init_barrier(barrier, 1);
    device::publish_barriers();
    device::fence_before_copies();
    device::arrive_expecting(barrier, kBytes);
    device::copy_bulk(
        static_cast<uint32_t>(__cvta_generic_to_shared(shared.states[head - kFirstShared<Stored>])),
        states + head * kDim * kDim,
        kBytes,
        barrier,
        policy);
  }
}

// Both value heads' tokens. Results are in shared memory behind the next barrier.
template <typename Stored>
__device__ void advance_heads(const GatedDeltaRuleArgs& rule,
                              const Sequence& sequence,
                              int first_head,
                              StateTile<kDim>& tile,
                              PairShared<Stored>& shared) {
#pragma unroll
  for (int head = 0; head < kHeads; ++head) {
    if (head >= kFirstShared<Stored> && sequence.has_history) {
      device::wait_for(static_cast<uint32_t>(__cvta_generic_to_shared(&shared.arrived[head])), 0);
      tile.load(SharedState<Stored>{shared.states[head - kFirstShared<Stored>]});
    } else if (!sequence.has_history) {
      tile.clear();
    }
    for (int token = 0; token < sequence.count; ++token) {
      tile.advance(place_of(token, head), shared.rule);
      const int slot = sequence.slot_behind(token);
      if (slot >= 0) tile.store(StateColumns(rule, slot, first_head + head, 0));
    }
  }
}

// The norm of both heads' results, and their gates. A thread has one column of one head.
template <typename T>
class PairNorm {
 public:
  __device__ PairNorm(const GatedDeltaNetArgs& args, int first_head)
      : args_(args),
        head_(static_cast<int>(threadIdx.x) / kDim),
        own_(threadIdx.x % kDim),
        group_(first_head + head_),
        weight_(args.norm_weight[own_]) {}

  // The first gate, long before it is used.
  __device__ void load(const Sequence& sequence) { gate_ = gate(sequence, 0); }

  // Multiplies the results, rounded, by weights and gates, and leaves them where the values were.
  __device__ void multiply(const Sequence& sequence, RecurrentShared<kDim>& shared) const {
    for (int token = 0; token < sequence.count; ++token) {
      const int place = place_of(token, head_);
      const float z = device::to_float(token == 0 ? gate_ : gate(sequence, token));
      const float result = device::round_to<T>(shared.out[place][own_]);
      shared.out[place][own_] = result;
      shared.v[place][own_] = result * (weight_ * (z / (1.0f + expf(-z))));
    }
  }

  // The norm's factor is last, and no product or rounding changes an order: with it the largest
  // magnitude is that of the largest one without.
  template <typename Stored>
  __device__ void store(const Sequence& sequence, const PairShared<Stored>& shared) const {
    for (int token = 0; token < sequence.count; ++token) {
      const int place = place_of(token, head_);
      const float2 parts = shared.parts[place];
      const float factor = 1.0f / sqrtf(parts.x / static_cast<float>(kDim) + args_.eps);
      const float y = shared.rule.v[place][own_] * factor;
      const int64_t row = int64_t{sequence.begin} + token;
      if (args_.codes.values == nullptr) {
        static_cast<T*>(args_.rule.out)[row * args_.rule.out_stride + column()] =
            device::from_float<T>(y);
      } else {
        store_code(row, device::round_to<T>(y), device::round_to<T>(parts.y * factor));
      }
    }
  }

  __device__ void store_zeros(const Sequence& sequence) const {
    for (int token = 0; token < sequence.count; ++token) {
      const int64_t row = int64_t{sequence.begin} + token;
      if (args_.codes.values == nullptr) {
        static_cast<T*>(args_.rule.out)[row * args_.rule.out_stride + column()] =
            device::from_float<T>(0.0f);
        continue;
      }
      args_.codes.values[row * args_.codes.values_stride + column()] = 0;
      if (own_ == 0) args_.codes.scales[row * args_.rule.num_v_heads + group_] = 1;
    }
  }

 private:
  __device__ int column() const { return group_ * kDim + own_; }
  __device__ T gate(const Sequence& sequence, int token) const {
    const int64_t row = int64_t{sequence.begin} + token;
    return static_cast<const T*>(args_.z)[row * args_.z_stride + column()];
  }
  // A value head is a group.
  __device__ void store_code(int64_t row, float y, float largest) const {
    const float scale = scale_of_largest(largest);
    args_.codes.values[row * args_.codes.values_stride + column()] = float8_code(y, scale).bits;
    if (own_ == 0) args_.codes.scales[row * args_.rule.num_v_heads + group_] = scale;
  }

  const GatedDeltaNetArgs& args_;
  const int head_, own_, group_;
  const float weight_;
  T gate_ = {};
};

// What a token's norm is made of, by one warp, in the order of a block for each head.
template <typename Stored>
__device__ void find_parts(int place, PairShared<Stored>& shared) {
  const int lane = threadIdx.x % device::kWarpSize;
  float sum = 0, largest = 0;
#pragma unroll
  for (int i = 0; i < kDim; i += device::kWarpSize) {
    const float x = shared.rule.out[place][i + lane];
    sum += device::reduce_lanes(x * x, device::kWarpSize, device::Sum{});
    largest = fmaxf(largest, fabsf(shared.rule.v[place][i + lane]));
  }
  largest = device::reduce_lanes(largest, device::kWarpSize, device::Largest{});
  if (lane == 0) shared.parts[place] = {sum, largest};
}

// grid: key heads, sequences.
template <typename T, typename Stored>
__global__ void __launch_bounds__(kRecurrentThreads, 2)
    gated_delta_net_pairs_kernel(const __grid_constant__ GatedDeltaNetArgs args) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<PairShared<Stored>*>(shared_bytes);
  device::allow_next_grid();
  const GatedDeltaRuleArgs& rule = args.rule;
  const int key_head = static_cast<int>(blockIdx.x), first_head = kHeads * key_head;
  // What sequences there are is the step's input, and their states are those of steps before.
  const Sequence sequence(rule.batch, blockIdx.y);
  PairNorm<T> norm(args, first_head);
  if (sequence.count == 0 || sequence.slot < 0) {
    device::wait_for_previous_grid();
    return norm.store_zeros(sequence);
  }
  const int thread = threadIdx.x, warp = thread / device::kWarpSize;
  const auto* states = static_cast<const Stored*>(rule.state) +
                       (sequence.slot * rule.num_v_heads + first_head) * kDim * kDim;
  if (thread == 0 && sequence.has_history) begin_copies(states, shared);
  StateTile<kDim> tile;
  if constexpr (kFirstShared<Stored> == 1) {
    if (sequence.has_history) tile.load(GlobalState{states});
  }
  const int d = thread % kDim;
  const bool is_key = thread >= kDim;
  const int num_k_heads = static_cast<int>(rule.num_k_heads);
  Channel<T> key(args, (is_key ? num_k_heads + key_head : key_head) * kDim + d);
  Channel<T> value(args, (2 * num_k_heads + first_head) * kDim + thread);
  key.load_history(sequence);
  value.load_history(sequence);
  GateInputs gates(rule, first_head + warp % kHeads);
  device::wait_for_previous_grid();
  if (warp < kHeads * sequence.count) {
    gates.load<T>(rule, sequence.begin + warp / kHeads, first_head + warp % kHeads);
  }
  norm.load(sequence);

  key.convolve(sequence, [&](int token, float y) {
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      (is_key ? shared.rule.k : shared.rule.q)[place_of(token, head)][d] = y;
    }
  });
  value.convolve(sequence,
                 [&](int token, float y) { shared.rule.v[place_of(token, thread / kDim)][d] = y; });
  __syncthreads();
  if (warp < kHeads * sequence.count) find_factors(gates, warp, shared.rule);
  __syncthreads();
  advance_heads(rule, sequence, first_head, tile, shared);
  __syncthreads();
  norm.multiply(sequence, shared.rule);
  __syncthreads();
  if (warp < kHeads * sequence.count) find_parts(warp, shared);
  value.keep(sequence);
  key.keep(sequence);
  __syncthreads();
  norm.store(sequence, shared);
}

template <typename T, typename Stored>
void launch(const GatedDeltaNetArgs& args, gpuStream_t stream) {
  constexpr int kSize = sizeof(PairShared<Stored>);
  const auto kernel = gated_delta_net_pairs_kernel<T, Stored>;
  (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSize);
  (void)gpu_launch({.grid = dim3(static_cast<unsigned>(args.rule.num_k_heads),
                                 static_cast<unsigned>(args.rule.batch.num_sequences)),
                    .block = dim3(kRecurrentThreads),
                    .shared_size = kSize,
                    .stream = stream,
                    .overlaps_previous = true},
                   kernel,
                   args);
  check_gpu_launch("gated_delta_net");
}

template <typename T>
void launch_for(const GatedDeltaNetArgs& args, gpuStream_t stream) {
  if (args.rule.state_element == Element::kFloat32) return launch<T, float>(args, stream);
  launch<T, gpu_bfloat16>(args, stream);
}

}  // namespace

bool fits_gated_delta_net_pairs_sm90(const GatedDeltaNetArgs& args) {
  constexpr int64_t kEnoughBlocks = 132;  // one for each multiprocessor of a large card
  const GatedDeltaRuleArgs& rule = args.rule;
  return fits_gated_delta_net_sm90(args) && rule.num_v_heads == kHeads * rule.num_k_heads &&
         rule.batch.max_queries <= kMaxPairTokens && args.gate_weight == nullptr &&
         rule.num_k_heads * rule.batch.num_sequences >= kEnoughBlocks;
}

void gated_delta_net_pairs_sm90(const GatedDeltaNetArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.rule.element == Element::kBFloat16) return launch_for<gpu_bfloat16>(args, stream);
  launch_for<__half>(args, stream);
}

}  // namespace atom::ops
