// Inside the ordered linear for few rows on Hopper: the kernel. A block owns tiles of weight rows
// and all of k. One thread starts the copies of the weight and of x into a ring of stages in shared
// memory, and two warpgroups multiply: half of a large tile's rows each, or those of a gate and of
// up; or all of a tile's rows, in FP8 of every other stage, and hand the sums so far over to each
// other, in 16 bits the first one alone, or each with half of the rows of x. At the end of a tile
// the sums pass through shared memory, so that neighboring threads store neighboring outputs.
//
// The ring is filled with weights before the kernel before has ended.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/linear_epilogue.cuh"
#include "ops/linear/ordered/launch_sm90.h"
#include "ops/linear/skinny/wgmma.cuh"

namespace atom::ops::device::ordered {

constexpr int kPanelSize = 128;  // bytes of k
constexpr int kStepSize = 32;    // bytes of k that one instruction multiplies
constexpr int kSteps = kPanelSize / kStepSize;
constexpr int kWarpgroups = 2, kWarpgroupWarps = 4, kWarpgroupSize = kWarpgroupWarps * kWarpSize;
constexpr int kNumConsumers = kWarpgroups * kWarpgroupSize;  // threads; a warp that copies follows
constexpr int kBarrierSize = 8;
constexpr int kTurnBarrier = 2;  // + warpgroup: it has its turn

// Where things are in shared memory.
class Memory {
 public:
  __device__ Memory(const OrderedArgs& args, uint8_t* memory)
      : layout_(args),
        memory_(memory),
        base_(shared_address(memory)),
        num_stages_(args.num_stages) {}

  __device__ uint32_t stage(int index) const { return base_ + index * layout_.stage_size; }
  __device__ int stage_size() const { return layout_.stage_size; }
  __device__ uint32_t full(int index) const {
    return base_ + layout_.barriers + index * kBarrierSize;
  }
  __device__ uint32_t empty(int index) const { return full(num_stages_ + index); }
  // The sums of a row of x with all of a tile's rows.
  __device__ float* sums(int x_row) const {
    return reinterpret_cast<float*>(memory_ + layout_.sums) + x_row * layout_.sums_stride;
  }
  // Scale and bias of a tile's rows.
  __device__ float2* rows() const { return reinterpret_cast<float2*>(memory_ + layout_.rows); }
  __device__ float* x_scales() const {
    return reinterpret_cast<float*>(memory_ + layout_.x_scales);
  }

 private:
  const OrderedLayout layout_;
  uint8_t* const memory_;
  const uint32_t base_;
  const int num_stages_;
};

// What is copied to stages: by one thread.
class Producer {
 public:
  __device__ Producer(const OrderedArgs& args, const Memory& memory)
      : args_(args),
        memory_(memory),
        weight_policy_(read_once_policy()),
        x_policy_(keep_policy()),
        num_tiles_((args.num_tiles - static_cast<int>(blockIdx.x) + gridDim.x - 1) / gridDim.x),
        num_items_(num_tiles_ * args.num_chunks),
        num_prefilled_(min(args.num_stages, num_items_)) {}

  // Before the kernel before has ended.
  __device__ void prefill() const {
    for (int i = 0; i < num_prefilled_; ++i) {
      arrive_expecting(memory_.full(i), memory_.stage_size());
      copy_weight(i, i);
    }
  }

  __device__ void run() const {
    for (int i = 0; i < num_prefilled_; ++i) copy_x(i, i);
    StageCursor stage;
    for (int i = num_prefilled_; i < num_items_; ++i) {
      wait_for(memory_.empty(stage.index), stage.parity);
      arrive_expecting(memory_.full(stage.index), memory_.stage_size());
      copy_weight(i, stage.index);
      copy_x(i, stage.index);
      stage.advance(args_.num_stages);
    }
  }

 private:
  // Copies the block's item `i`, a chunk of k of a tile.
  __device__ void copy_weight(int i, int stage) const {
    const int first_row = (blockIdx.x + i / args_.num_chunks * gridDim.x) * args_.box_rows();
    copy_weight_box(i, memory_.stage(stage), first_row, memory_.full(stage));
    if (!args_.is_gated) return;
    const uint32_t of_up = memory_.stage(stage) + args_.num_panels * args_.box_rows() * kPanelSize;
    copy_weight_box(i, of_up, args_.num_outputs() + first_row, memory_.full(stage));
  }

  __device__ void copy_weight_box(int i, uint32_t target, int first_row, uint32_t barrier) const {
    const int panel = i % args_.num_chunks * args_.num_panels;
    copy_box(target, &args_.weight, 0, first_row, panel, barrier, weight_policy_);
  }

  __device__ void copy_x(int i, int stage) const {
    const int panel = i % args_.num_chunks * args_.num_panels;
    const uint32_t target = memory_.stage(stage) + args_.num_panels * args_.tile_rows * kPanelSize;
    copy_box(target, &args_.x, 0, 0, panel, memory_.full(stage), x_policy_);
  }

  const OrderedArgs& args_;
  const Memory& memory_;
  const uint64_t weight_policy_, x_policy_;
  const int num_tiles_, num_items_, num_prefilled_;
};

// A warpgroup's sums, of 64 weight rows and kColumns rows of x.
template <typename T, int kColumns>
class Multiplier {
 public:
  __device__ Multiplier(const OrderedArgs& args, const Memory& memory)
      : args_(args),
        memory_(memory),
        warpgroup_(threadIdx.x / kWarpgroupSize),
        lane_(threadIdx.x % kWarpSize),
        first_row_(args.whole_tiles ? 0 : warpgroup_ * (args.tile_rows / 2)),
        first_column_(args.splits_x ? warpgroup_ * kColumns : 0),
        b_offset_(args.num_panels * args.tile_rows * kPanelSize + first_column_ * kPanelSize),
        a_offset_(first_row_ * (args.is_gated ? args.num_panels : 1) * kPanelSize),
        a_panel_(matrix_offset(args.box_rows() * kPanelSize)),
        b_panel_(matrix_offset(args.x_rows() * kPanelSize)) {}

  // All of k.
  __device__ void run() {
    if (args_.has_one_group() && warpgroup_ > 0) return;
    if constexpr (kIsFloat8) {
      if (args_.takes_turns()) return run_in_turns();
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[i] = 0;
      for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
        wait_for(memory_.full(stage_.index), stage_.parity);
        add_promoted([&] { release(stage_.index); }, [] {});
        stage_.advance(args_.num_stages);
      }
    } else {
      int previous = 0;
      for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
        wait_for(memory_.full(stage_.index), stage_.parity);
        add(chunk > 0);
        if (chunk > 0) {
          wait_for_products<1>();
          release(previous);
        }
        previous = stage_.index;
        stage_.advance(args_.num_stages);
      }
      wait_for_products<0>();
      pin(sums_);
      release(previous);
    }
  }

  // To shared memory.
  __device__ void share() const {
    if (args_.takes_turns() && (args_.num_chunks - 1) % kWarpgroups != warpgroup_) return;
    if (args_.has_one_group() && warpgroup_ > 0) return;
    const int warp_row = threadIdx.x / kWarpSize % kWarpgroupWarps * 16 + lane_ / 4;
    const int num_rows = args_.whole_tiles ? args_.tile_rows : args_.tile_rows / 2;
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int row = warp_row + lower * 8;
      if (row >= num_rows) continue;
#pragma unroll
      for (int i = 0; i < kSums; i += 4) {
        const int x_row = first_column_ + i * 2 + lane_ % 4 * 2;
        memory_.sums(x_row)[first_row_ + row] = sums_[i + lower * 2];
        memory_.sums(x_row + 1)[first_row_ + row] = sums_[i + lower * 2 + 1];
      }
    }
  }

 private:
  static constexpr bool kIsFloat8 = std::is_same_v<T, Float8>;
  static constexpr int kSums = kColumns / 2;  // of a thread

  // A stage's products. The first ones do not add to what the sums are.
  __device__ void add(bool keeps) {
    switch (args_.num_panels) {
      case 4:
        return add_at_once<4>(keeps);
      case 2:
        return add_at_once<2>(keeps);
      default:
        return add_at_once<1>(keeps);
    }
  }

  template <int kPanels>
  __device__ void add_at_once(bool keeps) {
    const uint64_t a = matrix_at(memory_.stage(stage_.index) + a_offset_);
    const uint64_t b = matrix_at(memory_.stage(stage_.index) + b_offset_);
    begin_products();
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const uint64_t offset = matrix_offset(i * kStepSize);
        multiply<T, kColumns>(sums_,
                              a + panel * a_panel_ + offset,
                              b + panel * b_panel_ + offset,
                              keeps || panel + i > 0);
      }
    }
    commit_products();
  }

  // All of k, every other stage. While one warpgroup adds to the sums, the other multiplies.
  __device__ void run_in_turns() {
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      if (chunk % kWarpgroups == warpgroup_) {
        wait_for(memory_.full(stage_.index), stage_.parity);
        add_promoted([&] { release(stage_.index); }, [&] { take_over(chunk); });
        if (chunk + 1 < args_.num_chunks) hand_over();
      }
      stage_.advance(args_.num_stages);
    }
  }

  __device__ void take_over(int chunk) {
    if (chunk > 0) wait_for_turn();
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums_[i] = chunk > 0 ? handed_over()[i * kWarpgroupSize] : 0;
  }

  __device__ void hand_over() {
#pragma unroll
    for (int i = 0; i < kSums; ++i) handed_over()[i * kWarpgroupSize] = sums_[i];
    asm volatile("bar.arrive %0, %1;" ::"r"(kTurnBarrier + (warpgroup_ ^ 1)), "n"(kNumConsumers)
                 : "memory");
  }

  __device__ void wait_for_turn() const {
    asm volatile("bar.sync %0, %1;" ::"r"(kTurnBarrier + warpgroup_), "n"(kNumConsumers)
                 : "memory");
  }

  // Sums that pass between this thread and that of the other warpgroup: [kSums, threads].
  __device__ float* handed_over() const {
    return memory_.sums(0) + threadIdx.x % kWarpgroupSize;
  }

  // The matrix units add FP8 products, and sums to them, in fewer bits than float32 has: what a
  // panel gives is added here. Panels are multiplied in turn, as a product waits for the one before
  // that adds to the same registers. Calls multiplied() when the stage has been read, and take()
  // before sums are added to.
  template <typename Multiplied, typename Take>
  __device__ void add_promoted(const Multiplied& multiplied, const Take& take) {
    if constexpr (kColumns <= 32) {
      if (args_.num_panels == 4) return add_panels<4>(multiplied, take);
    }
    if (args_.num_panels == 4) {
      add_panels<2>([] {}, take, 0);
      add_panels<2>(
          multiplied, [] {}, 2);
    } else if (args_.num_panels == 2) {
      add_panels<2>(multiplied, take);
    } else {
      add_panels<1>(multiplied, take);
    }
  }

  template <int kPanels, typename Multiplied, typename Take>
  __device__ void add_panels(const Multiplied& multiplied, const Take& take, int first = 0) {
    const uint64_t a = matrix_at(memory_.stage(stage_.index) + a_offset_) + first * a_panel_;
    const uint64_t b = matrix_at(memory_.stage(stage_.index) + b_offset_) + first * b_panel_;
    float parts[kPanels][kSums];
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
        multiply<T, kColumns>(
            parts[p], a + p * a_panel_ + offset, b + p * b_panel_ + offset, i > 0);
      }
    }
    commit_products();
    wait_for_products<0>();
#pragma unroll
    for (int p = 0; p < kPanels; ++p) pin(parts[p]);
    multiplied();
    take();
#pragma unroll
    for (int p = 0; p < kPanels; ++p) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[i] += parts[p][i];
    }
  }

  __device__ void release(int stage) const {
    if (lane_ == 0) arrive(memory_.empty(stage));
  }

  const OrderedArgs& args_;
  const Memory& memory_;
  const int warpgroup_, lane_, first_row_, first_column_, b_offset_, a_offset_;
  const uint64_t a_panel_, b_panel_;
  StageCursor stage_;
  float sums_[kSums];
};

// What a thread loads early, of a weight row of the tile and of a row of x.
struct Scales {
  float2 row = {1, 0};  // scale and bias
  float x = 1;

  __device__ void load_row(const OrderedArgs& args, int tile) {
    const LinearGpuCall& p = args.params;
    row = {1, 0};
    if (static_cast<int>(threadIdx.x) >= args.tile_rows) return;
    const bool is_up = static_cast<int>(threadIdx.x) >= args.box_rows();
    const int output =
        tile * args.box_rows() + static_cast<int>(threadIdx.x) - (is_up ? args.box_rows() : 0);
    if (output >= args.num_outputs()) return;
    const int feature = output + (is_up ? args.num_outputs() : 0);
    if (p.weight_scale != nullptr) row.x = p.weight_scale[p.weight_scale_per_row ? feature : 0];
    if (p.bias != nullptr) row.y = load_as(p.bias_element, p.bias, feature);
  }

  // After the kernel before has ended.
  __device__ void load_x(const OrderedArgs& args) {
    const LinearGpuCall& p = args.params;
    const int x_row = threadIdx.x;
    if (p.x_scale == nullptr || x_row >= p.num_rows) return;
    x = __ldcg(p.x_scale + (p.x_scale_per_row ? x_row : 0));
  }

  __device__ void share(const OrderedArgs& args, const Memory& memory) const {
    const int thread = threadIdx.x;
    if (thread < args.tile_rows) memory.rows()[thread] = row;
    if (thread < args.x_rows()) memory.x_scales()[thread] = x;
  }
};

// A tile's outputs, from shared memory.
class Finisher {
 public:
  __device__ Finisher(const OrderedArgs& args, const Memory& memory, int tile)
      : p_(args.params), memory_(memory), up_rows_(args.is_gated ? args.box_rows() : 0) {
    first_feature_ = tile * args.box_rows();
    num_features_ = min(args.box_rows(), args.num_outputs() - first_feature_);
    in_pairs_ = num_features_ % 2 == 0 && p_.y_stride % 2 == 0 &&
                reinterpret_cast<uintptr_t>(p_.y) % 8 == 0;
  }

  // Two adjacent features of a row of x at a time.
  __device__ void run() const {
    const int pairs = (num_features_ + 1) / 2;
    for (int i = threadIdx.x; i < pairs * p_.num_rows; i += kNumConsumers) {
      const int x_row = i / pairs, feature = (i - x_row * pairs) * 2;
      const int64_t index = x_row * p_.y_stride + first_feature_ + feature;
      const float first = output(x_row, feature);
      const bool has_second = feature + 1 < num_features_;
      const float second = has_second ? output(x_row, feature + 1) : 0;
      if (in_pairs_) {
        store_pair(index, first, second);
        continue;
      }
      store_as(p_.y_element, p_.y, index, first);
      if (has_second) store_as(p_.y_element, p_.y, index + 1, second);
    }
  }

 private:
  __device__ float output(int x_row, int row) const {
    const float value = product(x_row, row);
    if (up_rows_ == 0) return value;
    return silu_product(round_as(p_.y_element, value),
                        round_as(p_.y_element, product(x_row, up_rows_ + row)));
  }

  __device__ float product(int x_row, int row) const {
    const float2 scale = memory_.rows()[row];
    const float product =
        __fmul_rn(__fmul_rn(memory_.sums(x_row)[row], scale.x), memory_.x_scales()[x_row]);
    return p_.bias == nullptr ? product : __fadd_rn(product, scale.y);  // -0 stays without one
  }

  __device__ void store_pair(int64_t index, float first, float second) const {
    switch (p_.y_element) {
      case Element::kFloat16:
        reinterpret_cast<__half2*>(p_.y)[index / 2] = __floats2half2_rn(first, second);
        return;
      case Element::kBFloat16:
        reinterpret_cast<gpu_bfloat162*>(p_.y)[index / 2] = __floats2bfloat162_rn(first, second);
        return;
      default:
        reinterpret_cast<float2*>(p_.y)[index / 2] = make_float2(first, second);
    }
  }

  const LinearGpuCall& p_;
  const Memory& memory_;
  const int up_rows_;                 // rows of the tile before those of up; 0 without a gate
  int first_feature_, num_features_;  // of the tile
  bool in_pairs_;                     // both outputs can be stored at once
};

template <typename T, int kColumns>
__device__ void consume(const OrderedArgs& args, const Memory& memory) {
  Multiplier<T, kColumns> multiplier(args, memory);
  Scales scales;
  for (int tile = blockIdx.x; tile < args.num_tiles; tile += gridDim.x) {
    scales.load_row(args, tile);
    if (tile == static_cast<int>(blockIdx.x)) {
      wait_for_previous_grid();
      scales.load_x(args);
    }
    multiplier.run();
    synchronize_first<kNumConsumers>();  // all have read the tile before
    multiplier.share();
    scales.share(args, memory);
    synchronize_first<kNumConsumers>();
    Finisher(args, memory, tile).run();
  }
}

__device__ inline void init_barriers(const OrderedArgs& args, const Memory& memory) {
  const bool by_one = args.takes_turns() || args.has_one_group();
  const int num_readers = by_one ? kWarpgroupWarps : kNumConsumers / kWarpSize;
  for (int i = 0; i < args.num_stages; ++i) {
    init_barrier(memory.full(i), 1);
    init_barrier(memory.empty(i), num_readers);
  }
  publish_barriers();
}

template <typename T, int kColumns>
__global__ void __launch_bounds__(kNumConsumers + kWarpSize, 1)
    ordered_linear(const __grid_constant__ OrderedArgs args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const Memory memory(args, shared);
  const Producer producer(args, memory);
  const bool produces = threadIdx.x >= kNumConsumers;
  if (produces && is_elected()) {
    prefetch_map(&args.weight);
    prefetch_map(&args.x);
    init_barriers(args, memory);
    producer.prefill();
  }
  __syncwarp();
  allow_next_grid();
  __syncthreads();
  if (!produces) {
    consume<T, kColumns>(args, memory);
  } else if (is_elected()) {
    wait_for_previous_grid();
    producer.run();
  }
}

template <typename T, int kColumns>
gpuError_t launch_columns(const OrderedArgs& args, int num_blocks, gpuStream_t stream) {
  auto* kernel = &ordered_linear<T, kColumns>;
  const int size = OrderedLayout(args).size;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size);
  if (error != cudaSuccess) return error;
  return launch(kernel,
                dim3(num_blocks),
                dim3(kNumConsumers + kWarpSize),
                size,
                stream,
                args.params.overlaps_previous,
                args);
}

// `launch_ordered` of one type, in a file of its own.
template <typename T>
gpuError_t launch_ordered(const OrderedArgs& args, int num_blocks, gpuStream_t stream) {
  switch (args.columns) {
    case 8:
      return launch_columns<T, 8>(args, num_blocks, stream);
    case 16:
      return launch_columns<T, 16>(args, num_blocks, stream);
    case 32:
      return launch_columns<T, 32>(args, num_blocks, stream);
    default:
      return launch_columns<T, 64>(args, num_blocks, stream);
  }
}

}  // namespace atom::ops::device::ordered
