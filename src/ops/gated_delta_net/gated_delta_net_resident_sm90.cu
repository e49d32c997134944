// A step of one token a sequence, of many sequences, by one kernel. A block stays on its
// multiprocessor with one key head and takes sequences one after the other: it convolves the key
// head's queries and keys once for all of its value heads, and while some states are advanced in
// registers the next ones are on their way to shared memory.
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/silu.cuh"
#include "ops/gated_delta_net/resident_channels_sm90.cuh"
#include "ops/gated_delta_net/resident_sm90.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace delta_device;

// Of the gated norm of a value head's result, by one warp: whose sums are in the order of a block
// for each head.
template <typename T>
class HeadNorm {
 public:
  __device__ HeadNorm(const GatedDeltaNetArgs& args, int64_t row, int head)
      : args_(args), row_(row), head_(head), lane_(threadIdx.x % device::kWarpSize) {}

  // Long before they are used.
  __device__ void load() {
    const T* z = static_cast<const T*>(args_.z) + row_ * args_.z_stride + head_ * kDim + lane_;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      gate_[i] = gpu_load_from_l2(z + i * device::kWarpSize);
      weight_[i] = args_.norm_weight[i * device::kWarpSize + lane_];
    }
  }

  // The norm's factor is last, and no product or rounding changes an order: with it the largest
  // magnitude is that of the largest one without.
  __device__ void store(const float* result) const {
    float gated[kParts], squares = 0, largest = 0;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const float x = device::round_to<T>(result[i * device::kWarpSize + lane_]);
      const float z = device::to_float(gate_[i]);
      gated[i] = x * (weight_[i] * device::silu<device::kSiluFor<T>>(z));
      squares += device::reduce_lanes(x * x, device::kWarpSize, device::Sum{});
      largest = fmaxf(largest, fabsf(gated[i]));
    }
    largest = device::reduce_lanes(largest, device::kWarpSize, device::Largest{});
    const float factor = 1.0f / sqrtf(squares / static_cast<float>(kDim) + args_.eps);
    const float scale = scale_of_largest(device::round_to<T>(largest * factor));
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int column = head_ * kDim + i * device::kWarpSize + lane_;
      const float y = gated[i] * factor;
      if (args_.codes.values == nullptr) {
        static_cast<T*>(args_.rule.out)[row_ * args_.rule.out_stride + column] =
            device::from_float<T>(y);
      } else {
        args_.codes.values[row_ * args_.codes.values_stride + column] =
            float8_code(device::round_to<T>(y), scale).bits;
      }
    }
    // A value head is a group.
    if (args_.codes.values != nullptr && lane_ == 0) {
      args_.codes.scales[row_ * args_.rule.num_v_heads + head_] = scale;
    }
  }

 private:
  static constexpr int kParts = kDim / device::kWarpSize;

  const GatedDeltaNetArgs& args_;
  const int64_t row_;
  const int head_, lane_;
  T gate_[kParts];
  float weight_[kParts];
};

// Of all value heads of the block.
template <typename T>
__device__ void store_zeros(const GatedDeltaNetArgs& args, const Unit& unit, const Place& place) {
  const int size = place.num_heads * kDim, first = place.first_head * kDim;
  for (int i = place.thread; i < unit.count * size; i += kResidentThreads) {
    const int64_t row = int64_t{unit.row} + i / size;
    const int column = first + i % size;
    if (args.codes.values == nullptr) {
      static_cast<T*>(args.rule.out)[row * args.rule.out_stride + column] =
          device::from_float<T>(0.0f);
      continue;
    }
    args.codes.values[row * args.codes.values_stride + column] = 0;
    if (column % kDim == 0) args.codes.scales[row * args.rule.num_v_heads + column / kDim] = 1;
  }
}

// One value head's state of one sequence, by the threads of a group.
template <typename T, typename Stored>
__device__ void advance_head(const GatedDeltaNetArgs& args,
                             const Place& place,
                             int index,
                             int head,
                             const StateRing<Stored>& ring,
                             ResidentShared<Stored>& shared) {
  constexpr int kNormWarp = kRecurrentWarps - 1;  // the first ones find factors
  const Unit unit = shared.units[index];
  const int group = place.group, warp = threadIdx.x / device::kWarpSize;
  HeadNorm<T> norm(args, unit.row, place.first_head + head);
  if (warp == kNormWarp) norm.load();
  StateTile<kDim> tile;
  const Stored* landed = ring.wait(index, head);
  if (unit.has_history) {
    tile.load_shared(landed);
  } else {
    tile.clear();
  }
  const TokenRows rows = shared.rows(index, head);
  tile.find_update(rows, shared.sums[group], GroupBarrier{group});
  if (threadIdx.x == 0) ring.refill(index, head);
  if (warp == kNormWarp) norm.store(rows.out);
  tile.add_update(rows, shared.sums[group]);
  if (unit.target >= 0) {
    tile.store_as(static_cast<Stored*>(args.rule.state) +
                  place.state_offset(args.rule, unit.target, head));
  }
}

// grid: key heads, blocks of each; block: threads of a group, groups.
template <typename T, typename Stored, int kChannels>
__global__ void __launch_bounds__(kResidentThreads, 1)
    gated_delta_net_resident_kernel(const __grid_constant__ GatedDeltaNetArgs args) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<ResidentShared<Stored>*>(shared_bytes);
  device::allow_next_grid();
  const GatedDeltaRuleArgs& rule = args.rule;
  const Place place(rule);
  const StateRing<Stored> ring(rule, place, shared);
  if (place.thread == 0) ring.make_barriers();
  // What sequences there are is the step's input, and their states are those of steps before.
  find_units(rule.batch, place, shared.units);
  __syncthreads();
  if (place.thread == 0) ring.fill();

  TokenChannels<T, kChannels> channels(args, place);
  const int warp = threadIdx.x / device::kWarpSize, warp_head = warp * kGroups + place.group;
  const bool finds_factors = warp_head < place.num_heads;
  GateInputs gates(rule, place.first_head + (finds_factors ? warp_head : 0));
  channels.load_history(shared.units[0]);
  device::wait_for_previous_grid();
  const auto load_inputs = [&](const Unit& unit) {
    channels.load_inputs(unit);
    if (finds_factors && unit.slot >= 0) {
      gates.load<T>(rule, unit.row, place.first_head + warp_head);
    }
  };
  load_inputs(shared.units[0]);

  for (int index = 0; index < place.num_units; ++index) {
    const Unit unit = shared.units[index];
    if (unit.slot < 0) {
      store_zeros<T>(args, unit, place);
    } else {
      channels.convolve(unit, shared.tokens[index % 2][0]);
    }
    __syncthreads();
    if (finds_factors && unit.slot >= 0) find_factors(gates, shared.rows(index, warp_head));
    if (index + 1 < place.num_units) {
      channels.load_history(shared.units[index + 1]);
      load_inputs(shared.units[index + 1]);
    }
    if (unit.slot < 0) {
      if (place.thread == 0) ring.refill_all(index);
      continue;
    }
    for (int first = 0; first < place.num_heads; first += kGroups) {
      // No group is a round ahead of the other, so that a stage is filled in order.
      if (first > 0) __syncthreads();
      const int head = first + place.group;
      if (head < place.num_heads) advance_head<T>(args, place, index, head, ring, shared);
    }
  }
}

template <typename T, typename Stored, int kChannels>
void launch(const GatedDeltaNetArgs& args, gpuStream_t stream, int64_t blocks_of_head) {
  constexpr int kSize = sizeof(ResidentShared<Stored>);
  const auto kernel = gated_delta_net_resident_kernel<T, Stored, kChannels>;
  (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSize);
  (void)gpu_launch({.grid = dim3(static_cast<unsigned>(args.rule.num_k_heads),
                                 static_cast<unsigned>(blocks_of_head)),
                    .block = dim3(kRecurrentThreads, kGroups),
                    .shared_size = kSize,
                    .stream = stream,
                    .overlaps_previous = true},
                   kernel,
                   args);
  check_gpu_launch("gated_delta_net");
}

template <typename T, typename Stored>
void launch_for(const GatedDeltaNetArgs& args, gpuStream_t stream, int64_t blocks_of_head) {
  if ((2 + args.rule.num_v_heads / args.rule.num_k_heads) * kDim <= kResidentThreads) {
    return launch<T, Stored, 1>(args, stream, blocks_of_head);
  }
  launch<T, Stored, 2>(args, stream, blocks_of_head);
}

template <typename T>
void launch_for(const GatedDeltaNetArgs& args, gpuStream_t stream, int64_t blocks_of_head) {
  if (args.rule.state_element == Element::kFloat32) {
    return launch_for<T, float>(args, stream, blocks_of_head);
  }
  launch_for<T, device::BFloat16>(args, stream, blocks_of_head);
}

// 0: on a card of which nothing is known.
int64_t num_multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 0;
  }
  return count;
}

int64_t blocks_of_key_head(const GatedDeltaRuleArgs& rule) {
  return std::min(num_multiprocessors() / rule.num_k_heads, rule.batch.num_sequences);
}

}  // namespace

bool fits_gated_delta_net_resident_sm90(const GatedDeltaNetArgs& args) {
  // Below, a block for each value head, or for a part of it, fills the card better.
  constexpr int64_t kLeastUnits = 2;
  const GatedDeltaRuleArgs& rule = args.rule;
  if (!fits_gated_delta_net_sm90(args) || rule.batch.max_queries != 1 ||
      args.gate_weight != nullptr || rule.num_v_heads > kMaxHeads * rule.num_k_heads) {
    return false;
  }
  const int64_t blocks = blocks_of_key_head(rule);
  return rule.batch.num_sequences >= kLeastUnits * blocks && blocks > 0 &&
         rule.batch.num_sequences <= kMaxUnits * blocks;
}

void gated_delta_net_resident_sm90(const GatedDeltaNetArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  const int64_t blocks = blocks_of_key_head(args.rule);
  if (args.rule.element == Element::kBFloat16) {
    return launch_for<gpu_bfloat16>(args, stream, blocks);
  }
  launch_for<__half>(args, stream, blocks);
}

}  // namespace atom::ops
