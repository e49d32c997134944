// Inside fused_moe for one token by experts in MXFP4 as images on Hopper: the warps that multiply,
// and what becomes of their sums.
#pragma once

#include "ops/fused_moe/moe_one_images_activation.cuh"
#include "ops/fused_moe/moe_one_images_multiplier.cuh"

namespace atom::ops::device::moe_one_images {

template <Tokens kTokens>
class Consumer {
 public:
  __device__ Consumer(const MoeOneImagesArgs& args, uint8_t* memory, Shared& shared)
      : args_(args),
        call_(args.call),
        layout_(args),
        memory_(memory),
        shared_(shared),
        slots_{memory + layout_.sums},
        warp_(thread() / kWarpSize),
        lane_(thread() % kWarpSize) {}

  // What is known of the block's part of as many choices, which nothing waits for if it is computed
  // before choices are there.
  struct Prepared {
    int num_choices;
    Plan plan;
    Columns columns;
    int64_t gate_place;
    int num_down_parts, down_part;  // of the warp's slot of the result

    __device__ Prepared(const FusedMoeGpuCall& call, int num)
        : num_choices(num),
          plan(call, num),
          columns(plan.downs, plan.down_part),
          gate_place(gate_place_of(call, *this, thread())) {
      const int slot = plan.down_part.first_slot + thread() / kWarpSize;
      num_down_parts = plan.downs.num_parts_of(slot);
      down_part = static_cast<int>(blockIdx.x) - plan.downs.first_block_of(slot);
      asm volatile("" : "+l"(gate_place), "+r"(num_down_parts), "+r"(down_part));
    }
  };

  __device__ Prepared prepare(int num_choices) const {
    const Prepared prepared(call_, num_choices);
    const Plan& plan = prepared.plan;
#pragma unroll 1
    for (int image = thread(); image < prepared.columns.count; image += kNumConsumers) {
      const int from_tile = prepared.columns.first + image;
      const int tile = from_tile / plan.downs.tile_images;
      gate_tiles()[image] = GateTiles(call_,
                                      token(),
                                      plan.gates,
                                      (plan.down_part.first_tile + tile) % num_choices,
                                      from_tile - tile * plan.downs.tile_images);
    }
    return prepared;
  }

  // `x_scale`: of the token's terms.
  __device__ void run(const Prepared& prepared, float x_scale) const {
    const Plan& plan = prepared.plan;
    Multiplier<kTokens> multiplier(args_, memory_, shared_);
    multiplier.template run<false>(plan.gates, plan.gate_part, prepared.columns, 0);
    synchronize_first<kNumConsumers>();
    store_gates(prepared, x_scale);
    synchronize_first<kNumConsumers>();
    if (thread() == 0) moe_one::wait_for_all_blocks(counters_of(args_, token()));
    synchronize_first<kNumConsumers>();
    activate(prepared);
    fence_before_copies();
    synchronize_first<kNumConsumers>();
    multiplier.template run<true>(
        plan.downs, plan.down_part, prepared.columns, plan.gate_part.num_quads);
    synchronize_first<kNumConsumers>();
    if (warp_ < plan.down_part.num_slots) store_downs(prepared);
    // Here that takes none of the time in which others wait.
    if (thread() == kNumConsumers - 1) moe_one::leave_meeting(counters_of(args_, token()));
  }

 private:
  static constexpr int kBatch = 2;  // images that a warp activates while it asks for as many more

  static __device__ int thread() {
    return static_cast<int>(threadIdx.x);
  }

  static __device__ int token() {
    return own_token<kTokens>();
  }

  __device__ GateTiles* gate_tiles() const {
    return reinterpret_cast<GateTiles*>(memory_ + layout_.gate_tiles);
  }

  // Where the block's sum of its i-th row of the first matrix goes.
  static __device__ int64_t gate_place_of(const FusedMoeGpuCall& call,
                                          const Prepared& prepared,
                                          int i) {
    const Images& gates = prepared.plan.gates;
    const int tile = prepared.plan.gate_part.first_tile + i / kImageRows;
    const int own = static_cast<int>(blockIdx.x) - gates.first_block_of(tile);
    return first_gate_of(call, token()) + (int64_t{own} * gates.num_tiles + tile) * kImageRows +
           i % kImageRows;
  }

  // Of a row of a tile of the block's, whose beginning it has.
  __device__ float bias_of(const ExpertMatrices& matrices, int tile, int row) const {
    if (matrices.bias == nullptr) return 0.0f;
    const uint8_t* const biases = memory_ + layout_.biases + tile * Layout::kBiasesSize;
    return float_at(matrices.bias_element, biases, row);
  }

  // What the block has of tiles of gates and ups.
  __device__ void store_gates(const Prepared& prepared, float x_scale) const {
    const Part& part = prepared.plan.gate_part;
#pragma unroll 1
    for (int i = thread(); i < part.num_tiles * kImageRows; i += kNumConsumers) {
      const int tile = i / kImageRows, row = i % kImageRows;
      float sum = slots_.take(tile, row) * (terms::kUnit * x_scale);
      if (part.begins(tile)) sum += bias_of(call_.gate_up, tile, row);
      const int64_t place =
          i < kNumConsumers ? prepared.gate_place : gate_place_of(call_, prepared, i);
      args_.scratch.gates[place] = sum;
    }
  }

  // Every kWarps-th image of columns.
  __device__ void activate(const Prepared& prepared) const {
    const Activation activation(call_.activation);
    Batch current, next;
    load(prepared, warp_, current);
#pragma unroll 1
    for (int first = warp_; first < prepared.columns.count; first += kBatch * kWarps) {
      load(prepared, first + kBatch * kWarps, next);
      activate(prepared, activation, first, current);
      current = next;
    }
  }

  struct Batch {
    LaneGates images[kBatch];
  };

  __device__ __forceinline__ void load(const Prepared& prepared, int first, Batch& batch) const {
    const int count = prepared.plan.gates.num_tiles * kImageRows;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int image = first + i * kWarps;
      if (image >= prepared.columns.count) continue;
      batch.images[i].load(
          gate_tiles()[image], call_.activation.is_interleaved, args_.scratch.gates, count);
    }
  }

  __device__ __forceinline__ void activate(const Prepared& prepared,
                                           const Activation& activation,
                                           int first,
                                           const Batch& batch) const {
    const bool interleaved = call_.activation.is_interleaved;
    const int count = prepared.plan.gates.num_tiles * kImageRows;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int image = first + i * kWarps;
      if (image >= prepared.columns.count) continue;
      const float weight = shared_.choices[gate_tiles()[image].choice].weight;
      const float2 values = batch.images[i].activated(activation, interleaved, count);
      split_activated({values.x * weight, values.y * weight},
                      memory_ + layout_.terms + image * kImageTermsSize,
                      reinterpret_cast<float*>(memory_ + layout_.scales) + image * kImageBlocks);
    }
  }

  // Of a row of the warp's slot, from the choices whose tiles begin here.
  __device__ float down_bias_of(const Prepared& prepared, int row) const {
    const Part& part = prepared.plan.down_part;
    const int first_choice =
        (part.first_slot + warp_) * prepared.num_choices - part.first_tile;  // as a tile
    float sum = 0;
#pragma unroll 1
    for (int choice = 0; choice < prepared.num_choices; ++choice) {
      const int tile = first_choice + choice;
      if (tile < 0 || tile >= part.num_tiles || !part.begins(tile)) continue;
      sum +=
          shared_.choices[choice].weight * bias_of(call_.down, args_.most_gate_tiles + tile, row);
    }
    return sum;
  }

  // A slot of the result by a warp. Of several blocks that have parts of it the last one adds them,
  // in their order.
  __device__ void store_downs(const Prepared& prepared) const {
    const int slot = prepared.plan.down_part.first_slot + warp_, row = 2 * lane_;
    const auto own = [&](int i) {
      return slots_.take(warp_, row + i) * terms::kUnit + down_bias_of(prepared, row + i);
    };
    float2 sum = {own(0), own(1)};
    if (prepared.num_down_parts > 1) {
      auto* const parts = reinterpret_cast<float2*>(downs_of(args_, token()) +
                                                    int64_t{slot} * kMostDownParts * kImageRows);
      constexpr int kPart = kImageRows / 2;
      parts[prepared.down_part * kPart + lane_] = sum;
      if (!is_last(slot, prepared.num_down_parts)) return;
      sum = {};
#pragma unroll 1
      for (int i = 0; i < prepared.num_down_parts; ++i) {
        const float2 part = gpu_load_from_l2(parts + i * kPart + lane_);
        sum.x += part.x;
        sum.y += part.y;
      }
    }
    moe_one::store_result(call_, token(), slot * kImageRows + row, sum.x);
    moe_one::store_result(call_, token(), slot * kImageRows + row + 1, sum.y);
  }

  // Whether the others' parts of a slot are there; leaves the counter as it was.
  __device__ bool is_last(int slot, int num_parts) const {
    int32_t* const counter = counters_of(args_, token()) + kMeetingCounters + slot;
    __syncwarp();
    int before = 0;
    if (lane_ == 0) {
      asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                   : "=r"(before)
                   : "l"(counter)
                   : "memory");
      if (before == num_parts - 1) *counter = 0;
    }
    return __shfl_sync(0xffffffffu, before, 0) == num_parts - 1;
  }

  static constexpr int kMeetingCounters = 2;

  const MoeOneImagesArgs& args_;
  const FusedMoeGpuCall& call_;
  const Layout layout_;
  uint8_t* const memory_;
  Shared& shared_;
  const Slots slots_;
  const int warp_, lane_;
};

}  // namespace atom::ops::device::moe_one_images
