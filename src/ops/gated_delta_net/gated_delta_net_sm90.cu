// A step of few tokens a sequence by one kernel, with a block for each sequence and part of a head,
// or with blocks that go from sequence to sequence.
#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/gated_delta_net/block_sm90.cuh"
#include "ops/gated_delta_rule/recurrent/recurrent_cuda.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace delta_device;

// grid: parts of value heads, sequences; clusters of the blocks of a key head.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kRecurrentThreads, recurrent_blocks(kColumns))
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
  device::wait_for_previous_grid();
  const int warp = thread / device::kWarpSize;
  if (warp < sequence.count) gates.load<T>(rule, sequence.begin + warp, place.head);
  norm.load(sequence);

  key.convolve(sequence,
               [&](int token, float y) { (is_key ? shared.rule.k : shared.rule.q)[token][d] = y; });
  if (has_value) {
    value.convolve(sequence, [&](int token, float y) { shared.rule.v[token][thread] = y; });
  }
  __syncthreads();
  advance_tokens<T>(rule, sequence, place, gates, tile, shared.rule);
  __syncthreads();
  norm.multiply(sequence, shared.rule);
  __syncthreads();
  device::wait_for_cluster_start();
  if (warp < sequence.count) share_parts(warp, place, shared);
  synchronize_cluster();
  if (has_value) value.keep(sequence);
  if (device::cluster_rank() == 0) key.keep(sequence);
  norm.store(sequence, shared);
}

constexpr int kStateBytes = kDim * kDim * static_cast<int>(sizeof(float));

// A whole head's state on its way to shared memory while the one before is advanced.
class StateAhead {
 public:
  __device__ StateAhead(float* target, uint64_t* barrier)
      : target_(device::shared_address(target)), barrier_(device::shared_address(barrier)) {}

  // By one thread, when nobody reads the state before any more.
  __device__ void ask(const GatedDeltaRuleArgs& rule,
                      const Place<kDim>& place,
                      int64_t index) const {
    if (index >= rule.batch.num_sequences) return;
    const Sequence sequence(rule.batch, index);
    if (!has_state(sequence)) return;
    device::fence_before_copies();
    device::arrive_expecting(barrier_, kStateBytes);
    device::copy_bulk(target_,
                      place.state_in(rule, sequence.slot),
                      kStateBytes,
                      barrier_,
                      device::read_once_policy());
  }
  __device__ void wait() {
    device::wait_for(barrier_, parity_);
    parity_ ^= 1;
  }
  static __device__ bool has_state(const Sequence& sequence) {
    return sequence.count > 0 && sequence.slot >= 0 && sequence.has_history;
  }

 private:
  uint32_t target_, barrier_, parity_ = 0;
};

// grid: value heads, blocks that share out the sequences; clusters of the blocks of a key head. As
// many as run at once, so that a state is always under way to each.
template <typename T>
__global__ void __launch_bounds__(kRecurrentThreads, recurrent_blocks(kDim))
    gated_delta_net_states_kernel(const __grid_constant__ GatedDeltaNetArgs args) {
  extern __shared__ __align__(128) float next_state[];
  __shared__ __align__(16) Shared<kDim> shared;
  __shared__ uint64_t arrived;
  device::allow_next_grid();
  device::arrive_at_cluster();
  const GatedDeltaRuleArgs& rule = args.rule;
  const Place<kDim> place(rule);
  StateAhead ahead(next_state, &arrived);
  const int thread = threadIdx.x, d = thread % kDim, warp = thread / device::kWarpSize;
  if (thread == 0) {
    device::init_barrier(device::shared_address(&arrived), 1);
    device::publish_barriers();
    ahead.ask(rule, place, blockIdx.y);
  }
  const bool is_key = thread >= kDim, has_value = thread < kDim;
  const int num_k_heads = static_cast<int>(rule.num_k_heads);
  const int key_head = is_key ? num_k_heads + place.key_head : place.key_head;
  Channel<T> key(args, key_head * kDim + d);
  Channel<T> value(args, (2 * num_k_heads + place.head) * kDim + d);
  GateInputs gates(rule, place.head);
  GatedNorm<T, kDim> norm(args, place);
  device::wait_for_previous_grid();
  device::wait_for_cluster_start();
  for (int64_t index = blockIdx.y; index < rule.batch.num_sequences; index += gridDim.y) {
    const Sequence sequence(rule.batch, index);
    const bool is_padding = sequence.count == 0 || sequence.slot < 0;
    StateTile<kDim> tile;
    if (!is_padding) {
      key.load_history(sequence);
      value.load_history(sequence);
      if (warp < sequence.count) gates.load<T>(rule, sequence.begin + warp, place.head);
      norm.load(sequence);
    }
    __syncthreads();  // the barrier is there, and the results before have been read
    if (!is_padding && sequence.has_history) {
      ahead.wait();
      tile.take(next_state);
    } else {
      tile.clear();
    }
    if (!is_padding) {
      key.convolve(sequence, [&](int token, float y) {
        (is_key ? shared.rule.k : shared.rule.q)[token][d] = y;
      });
      if (has_value) {
        value.convolve(sequence, [&](int token, float y) { shared.rule.v[token][d] = y; });
      }
    }
    __syncthreads();
    if (thread == 0) ahead.ask(rule, place, index + gridDim.y);
    if (is_padding) {
      store_zeros<T, kDim>(args, sequence, place);
      continue;
    }
    advance_tokens<T>(rule, sequence, place, gates, tile, shared.rule);
    __syncthreads();
    norm.multiply(sequence, shared.rule);
    __syncthreads();
    if (warp < sequence.count) share_parts(warp, place, shared);
    synchronize_cluster();
    if (has_value) value.keep(sequence);
    if (device::cluster_rank() == 0) key.keep(sequence);
    norm.store(sequence, shared);
  }
  synchronize_cluster();  // no block ends before the others have begun and are done with it
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

// Blocks that run at once for each value head.
int blocks_of_head(const GatedDeltaRuleArgs& rule) {
  const int blocks = recurrent_blocks(kDim) * device_attribute(cudaDevAttrMultiProcessorCount);
  return blocks / static_cast<int>(rule.num_v_heads);
}

template <typename T>
void launch_states(const GatedDeltaNetArgs& args, gpuStream_t stream) {
  const GatedDeltaRuleArgs& rule = args.rule;
  const auto kernel = gated_delta_net_states_kernel<T>;
  (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kStateBytes);
  (void)gpu_launch({.grid = dim3(static_cast<unsigned>(rule.num_v_heads),
                                 static_cast<unsigned>(blocks_of_head(rule))),
                    .block = dim3(kRecurrentThreads),
                    .shared_size = kStateBytes,
                    .stream = stream,
                    .overlaps_previous = true,
                    .cluster_size = static_cast<unsigned>(rule.num_v_heads / rule.num_k_heads)},
                   kernel,
                   args);
  check_gpu_launch("gated_delta_net");
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
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

void gated_delta_net_sm90(const GatedDeltaNetArgs& args, void* queue, int splits) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.rule.element == Element::kBFloat16)
    return launch_for<gpu_bfloat16>(args, stream, splits);
  launch_for<__half>(args, stream, splits);
}

bool fits_gated_delta_net_states(const GatedDeltaNetArgs& args) {
  if (!fits_gated_delta_net_sm90(args)) return false;
  const int blocks = blocks_of_head(args.rule);
  return blocks > 0 && args.rule.batch.num_sequences >= 2 * blocks;
}

void gated_delta_net_states(const GatedDeltaNetArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.rule.element == Element::kBFloat16) return launch_states<gpu_bfloat16>(args, stream);
  launch_states<__half>(args, stream);
}

}  // namespace atom::ops
