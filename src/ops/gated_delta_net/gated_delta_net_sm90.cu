// A step of few tokens a sequence by one kernel. A block has some columns of one value head's
// state; the blocks of a key head are a cluster, because they all convolve its queries and keys,
// whose last inputs one of them then replaces, and because a value head's norm is over all its
// columns.
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/silu.cuh"
#include "ops/gated_delta_net/gates_sm90.cuh"
#include "ops/gated_delta_net/step_sm90.cuh"
#include "ops/gated_delta_rule/recurrent/recurrent_cuda.h"
#include "ops/quantize/quantize_device.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace delta_device;

constexpr int kMaxTokens = kDeltaNetMaxTokens;
constexpr int kMaxSplits = 4;
constexpr int kMaxCluster = 8;
static_assert(kMaxTokens <= kTokenBatch);

template <int kColumns>
struct Shared {
  RecurrentShared<kColumns> rule;
  // Of each block of the value head: the sum of the squares of its results, and the largest one
  // with its gate.
  float2 parts[kMaxTokens][kMaxSplits];
  float2 gates[kMaxTokens][kRecurrentWarps];  // b and a, of what each warp has multiplied
};

// Where a block stands.
template <int kColumns>
struct Place {
  static constexpr int kSplits = kDim / kColumns;
  int head, key_head;
  int column;
  int split;
  int first_rank;  // of the value head's blocks in the cluster

  __device__ explicit Place(const GatedDeltaRuleArgs& args) {
    const int heads_per_key =
        static_cast<int>(args.num_v_heads) / static_cast<int>(args.num_k_heads);
    head = static_cast<int>(blockIdx.x) / kSplits;
    key_head = head / heads_per_key;
    split = static_cast<int>(blockIdx.x) % kSplits;
    column = split * kColumns;
    first_rank = (head - key_head * heads_per_key) * kSplits;
  }
  __device__ StateColumns state_in(const GatedDeltaRuleArgs& args, int64_t slot) const {
    return {args, slot, head, column};
  }
};

// What a token's norm is made of, by one warp, to all blocks of the value head. Results with their
// gates are where the values were.
template <int kColumns>
__device__ void share_parts(int token, const Place<kColumns>& place, Shared<kColumns>& shared) {
  const int lane = threadIdx.x % device::kWarpSize;
  float sum = 0, largest = 0;
#pragma unroll
  for (int i = 0; i < kColumns; i += device::kWarpSize) {
    const float x = shared.rule.out[token][i + lane];
    sum += device::reduce_lanes(x * x, device::kWarpSize, device::Sum{});
    largest = fmaxf(largest, fabsf(shared.rule.v[token][i + lane]));
  }
  largest = device::reduce_lanes(largest, device::kWarpSize, device::Largest{});
  if (lane >= Place<kColumns>::kSplits) return;
  const auto own =
      static_cast<uint32_t>(__cvta_generic_to_shared(&shared.parts[token][place.split]));
  const uint32_t target = device::address_in(place.first_rank + lane, own);
  device::store_in_cluster(target, make_float2(sum, largest));
}

// The norm of the results, and their gates. Each thread has one column, and of several tokens every
// so many.
template <typename T, int kColumns>
class GatedNorm {
 public:
  __device__ GatedNorm(const GatedDeltaNetArgs& args, const Place<kColumns>& place)
      : args_(args),
        place_(place),
        own_(threadIdx.x % kColumns),
        first_(threadIdx.x / kColumns),
        column_(place.head * kDim + place.column + own_),
        weight_(args.norm_weight[place.column + own_]) {}

  // The first gate, long before it is used.
  __device__ void load(const Sequence& sequence) {
    if (first_ < sequence.count) gate_ = gate(sequence, first_);
  }

  // Multiplies the results by weights and gates and leaves them where the values were.
  __device__ void multiply(const Sequence& sequence, RecurrentShared<kColumns>& shared) const {
    for (int token = first_; token < sequence.count; token += kTokensAtOnce) {
      const float z = device::to_float(token == first_ ? gate_ : gate(sequence, token));
      shared.v[token][own_] =
          shared.out[token][own_] * (weight_ * device::silu<device::kSiluFor<T>>(z));
    }
  }

  // The norm's factor is last, and no product or rounding changes an order: with it the largest
  // magnitude is that of the largest one without.
  __device__ void store(const Sequence& sequence, const Shared<kColumns>& shared) const {
    for (int token = first_; token < sequence.count; token += kTokensAtOnce) {
      float squares = 0, largest = 0;
#pragma unroll
      for (int i = 0; i < Place<kColumns>::kSplits; ++i) {
        squares += shared.parts[token][i].x;
        largest = fmaxf(largest, shared.parts[token][i].y);
      }
      const float factor = 1.0f / sqrtf(squares / static_cast<float>(kDim) + args_.eps);
      const float y = shared.rule.v[token][own_] * factor;
      const int64_t row = int64_t{sequence.begin} + token;
      if (args_.codes.values == nullptr) {
        static_cast<T*>(args_.rule.out)[row * args_.rule.out_stride + column_] =
            device::from_float<T>(y);
      } else {
        store_code(row, device::round_to<T>(y), device::round_to<T>(largest * factor));
      }
    }
  }

 private:
  static constexpr int kTokensAtOnce = kRecurrentThreads / kColumns;

  __device__ T gate(const Sequence& sequence, int token) const {
    const int64_t row = int64_t{sequence.begin} + token;
    return static_cast<const T*>(args_.z)[row * args_.z_stride + column_];
  }

  // A value head is a group.
  __device__ void store_code(int64_t row, float y, float largest) const {
    const float scale = scale_of_largest(largest);
    args_.codes.values[row * args_.codes.values_stride + column_] = float8_code(y, scale).bits;
    if (own_ + place_.split == 0) {
      args_.codes.scales[row * args_.rule.num_v_heads + place_.head] = scale;
    }
  }

  const GatedDeltaNetArgs& args_;
  const Place<kColumns>& place_;
  const int own_, first_, column_;
  const float weight_;
  T gate_ = {};
};

template <typename T, int kColumns>
__device__ void store_zeros(const GatedDeltaNetArgs& args,
                            const Sequence& sequence,
                            const Place<kColumns>& place) {
  const int first = place.head * kDim + place.column;
  for (int i = threadIdx.x; i < sequence.count * kColumns; i += kRecurrentThreads) {
    const int64_t row = int64_t{sequence.begin} + i / kColumns;
    const int column = first + i % kColumns;
    if (args.codes.values == nullptr) {
      static_cast<T*>(args.rule.out)[row * args.rule.out_stride + column] =
          device::from_float<T>(0.0f);
      continue;
    }
    args.codes.values[row * args.codes.values_stride + column] = 0;
    if (column % kDim == 0) args.codes.scales[row * args.rule.num_v_heads + place.head] = 1;
  }
}

// The rule's results, rounded, are in shared memory behind the next barrier.
template <typename T, int kColumns>
__device__ void advance_tokens(const GatedDeltaRuleArgs& rule,
                               const Sequence& sequence,
                               const Place<kColumns>& place,
                               const GateInputs& gates,
                               StateTile<kColumns>& tile,
                               RecurrentShared<kColumns>& shared) {
  const int warp = threadIdx.x / device::kWarpSize;
  if (warp < sequence.count) find_factors(gates, shared.rows(warp));
  tile.widen(rule.state_element);
  for (int token = 0; token < sequence.count; ++token) {
    // Between its two barriers the factors are there too.
    tile.find_update(shared.rows(token), shared.sums);
    tile.add_update(shared.rows(token), shared.sums);
    const int slot = sequence.slot_behind(token);
    if (slot >= 0) tile.store(place.state_in(rule, slot));
  }
  if (threadIdx.x >= kColumns) return;
  for (int token = 0; token < sequence.count; ++token) {
    float& result = shared.out[token][threadIdx.x];
    result = device::round_to<T>(result);
  }
}

// Of a multiprocessor, so that at the narrowest, which one sequence gets, a block leaves registers
// for one of the linears before and after it, whose weights are copied meanwhile.
constexpr int least_blocks(int columns) {
  return columns == 32 ? 4 : recurrent_blocks(columns);
}

// grid: parts of value heads, sequences; clusters of the blocks of a key head.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kRecurrentThreads, least_blocks(kColumns))
    gated_delta_net_kernel(const __grid_constant__ GatedDeltaNetArgs args) {
  __shared__ __align__(16) Shared<kColumns> shared;
  device::allow_next_grid();
  const GatedDeltaRuleArgs& rule = args.rule;
  const Place<kColumns> place(rule);
  // What sequences there are is the step's input, and their states are those of steps before.
  const Sequence sequence(rule.batch, blockIdx.y);
  if (sequence.count == 0 || sequence.slot < 0) {
    device::wait_for_previous_grid();
    return store_zeros<T, kColumns>(args, sequence, place);
  }
  device::arrive_at_cluster();
  StateTile<kColumns> tile;
  if (sequence.has_history) {
    tile.load(place.state_in(rule, sequence.slot));
  } else {
    tile.clear();
  }
  const int thread = threadIdx.x, d = thread % kDim;
  const bool is_key = thread >= kDim, has_value = thread < kColumns;
  const int num_k_heads = static_cast<int>(rule.num_k_heads);
  const int key_head = is_key ? num_k_heads + place.key_head : place.key_head;
  const int value_channel = (2 * num_k_heads + place.head) * kDim + place.column;
  Channel<T> key(args, key_head * kDim + d);
  Channel<T> value(args, value_channel + thread % kColumns);
  key.load_history(sequence);
  value.load_history(sequence);
  GateInputs gates(rule, place.head);
  GatedNorm<T, kColumns> norm(args, place);
  const GateProducts<T> products(args, place.head);
  products.prefetch();
  device::wait_for_previous_grid();
  const int warp = thread / device::kWarpSize;
  if (warp < sequence.count && !products.exists()) {
    gates.load<T>(rule, sequence.begin + warp, place.head);
  }
  key.load_input(sequence);
  value.load_input(sequence);
  norm.load(sequence);

  key.convolve(sequence,
               [&](int token, float y) { (is_key ? shared.rule.k : shared.rule.q)[token][d] = y; });
  if (has_value) {
    value.convolve(sequence, [&](int token, float y) { shared.rule.v[token][thread] = y; });
  }
  if (products.exists()) products.multiply(sequence, shared.gates);
  __syncthreads();
  if (products.exists() && warp < sequence.count) products.take(shared.gates[warp], &gates);
  advance_tokens<T>(rule, sequence, place, gates, tile, shared.rule);
  __syncthreads();
  norm.multiply(sequence, shared.rule);
  __syncthreads();
  device::wait_for_cluster();
  if (warp < sequence.count) share_parts(warp, place, shared);
  device::synchronize_cluster();
  if (has_value) value.keep(sequence);
  if (device::cluster_rank() == 0) key.keep(sequence);
  norm.store(sequence, shared);
}

template <typename T, int kColumns>
void launch(const GatedDeltaNetArgs& args, gpuStream_t stream) {
  constexpr unsigned kSplits = kDim / kColumns;
  const GatedDeltaRuleArgs& rule = args.rule;
  (void)gpu_launch(
      {.grid = dim3(static_cast<unsigned>(rule.num_v_heads) * kSplits,
                    static_cast<unsigned>(rule.batch.num_sequences)),
       .block = dim3(kRecurrentThreads),
       .stream = stream,
       .overlaps_previous = true,
       .cluster_size = static_cast<unsigned>(rule.num_v_heads / rule.num_k_heads) * kSplits},
      gated_delta_net_kernel<T, kColumns>,
      args);
  check_gpu_launch("gated_delta_net");
}

template <typename T>
void launch_for(const GatedDeltaNetArgs& args, gpuStream_t stream, int splits) {
  const GatedDeltaRuleArgs& rule = args.rule;
  const int64_t max_splits = kMaxCluster / (rule.num_v_heads / rule.num_k_heads);
  switch (splits > 0 ? splits
                     : recurrent_splits(rule.num_v_heads * rule.batch.num_sequences, max_splits)) {
    case 1:
      return launch<T, 128>(args, stream);
    case 2:
      return launch<T, 64>(args, stream);
    default:
      return launch<T, 32>(args, stream);
  }
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

bool fits_gates(const GatedDeltaNetArgs& args) {
  constexpr int64_t kVector = sizeof(uint4), kElement = 2;
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % kVector == 0;
  };
  return args.gate_weight == nullptr ||
         (args.rule.batch.num_tokens <= kDeltaNetMaxGateTokens && is_aligned(args.gate_weight) &&
          is_aligned(args.gate_x) && args.gate_x_stride * kElement % kVector == 0 &&
          args.hidden_size * kElement % kVector == 0);
}

bool fits_codes(const QuantizeArgs& codes) {
  return codes.values == nullptr ||
         (codes.is_float8() && codes.group_size == kDim && codes.scales != nullptr);
}

}  // namespace

bool fits_gated_delta_net_sm90(const GatedDeltaNetArgs& args) {
  const GatedDeltaRuleArgs& rule = args.rule;
  const bool element = rule.element == Element::kFloat16 || rule.element == Element::kBFloat16;
  return element && rule.head_k_dim == kDim && rule.head_v_dim == kDim &&
         args.conv_kernel_size == kHistory + 1 && rule.batch.max_queries > 0 &&
         rule.batch.max_queries <= kMaxTokens &&
         rule.num_v_heads / rule.num_k_heads <= kMaxCluster && fits_codes(args.codes) &&
         fits_gates(args) && device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

void gated_delta_net_sm90(const GatedDeltaNetArgs& args, void* queue, int splits) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.rule.element == Element::kBFloat16)
    return launch_for<gpu_bfloat16>(args, stream, splits);
  launch_for<__half>(args, stream, splits);
}

}  // namespace atom::ops
