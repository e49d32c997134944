// Inside fused_moe for one token on Hopper: what a block computes in which order, shared memory,
// and the warp that copies matrices.
//
// An item is 16 rows of one stage. Of the first matrix they are 8 gates of an expert and their ups,
// of up to 2048 columns; of the second one 16 rows of as many experts as fill 2048 columns. Each of
// 16 warps has 128 of an item's columns, which share scales.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_one.h"

namespace atom::ops::device::moe_one {

constexpr int kPanel = 128;  // columns that share a scale of codes
constexpr int kTileRows = 16, kGateRows = 8;
constexpr int kWarps = 16, kNumConsumers = kWarps * kWarpSize;
constexpr int kThreads = kNumConsumers + kWarpSize;
constexpr int kChunk = kWarps * kPanel;
// Two neighbouring rows are in different halves of the banks: lanes read 64 bytes of each.
constexpr int kPitch = kChunk + 64;
constexpr int kNumStages = 6;
constexpr int kMaxChoices = 32;
constexpr int kMaxCodes = 20 << 10;  // of x, then of all that is activated

struct MoeOneArgs {
  FusedMoeGpuCall call;
  MoeOneScratch scratch;
};

struct Choice {
  int expert;
  float weight;
};

struct Shared {
  uint8_t stages[kNumStages][kTileRows * kPitch];
  uint8_t codes[kMaxCodes];
  float scales[kMaxCodes / kPanel];
  float sums[2][kWarps][kTileRows];
  Choice choices[kMaxChoices];
  int num_choices;
  uint64_t full[kNumStages], empty[kNumStages];
};

// 16 rows of a stage.
struct Item {
  bool is_first_matrix;
  int tile;
  int choice, num_choices;  // the first, and how many share the stage
  int column;               // of a choice's columns the first
  int num_columns;          // of each choice
  bool is_last;             // of the tile's
};

// Those of this block: of the first matrix, then of the second one, from the other end so that
// blocks with more of one have not more of both.
class Items {
 public:
  __device__ Items(const FusedMoeGpuCall& call, int num_choices)
      : hidden_size_(call.hidden_size),
        intermediate_size_(call.intermediate_size),
        num_choices_(num_choices),
        gate_tiles_(call.intermediate_size / kGateRows),
        gate_chunks_((call.hidden_size + kChunk - 1) / kChunk),
        at_once_(kChunk / call.intermediate_size),
        down_chunks_(max(1, (num_choices + at_once_ - 1) / at_once_)),
        num_first_(of_block(num_choices * gate_tiles_, blockIdx.x) * gate_chunks_),
        num_second_(of_block(call.hidden_size / kTileRows, gridDim.x - 1 - blockIdx.x) *
                    down_chunks_) {}

  __device__ int num_first() const { return num_first_; }
  __device__ int count() const { return num_first_ + num_second_; }

  __device__ Item at(int i) const {
    Item item;
    item.is_first_matrix = i < num_first_;
    if (item.is_first_matrix) {
      const int part = i / gate_chunks_, chunk = i - part * gate_chunks_;
      const int unit = static_cast<int>(blockIdx.x + part * gridDim.x);
      item.choice = unit / gate_tiles_;
      item.num_choices = 1;
      item.tile = unit - item.choice * gate_tiles_;
      item.column = chunk * kChunk;
      item.num_columns = min(kChunk, hidden_size_ - item.column);
      item.is_last = chunk + 1 == gate_chunks_;
      return item;
    }
    const int local = i - num_first_, part = local / down_chunks_;
    const int chunk = local - part * down_chunks_;
    item.tile = static_cast<int>(gridDim.x - 1 - blockIdx.x + part * gridDim.x);
    item.choice = chunk * at_once_;
    item.num_choices = min(at_once_, num_choices_ - item.choice);
    item.column = 0;
    item.num_columns = intermediate_size_;
    item.is_last = chunk + 1 == down_chunks_;
    return item;
  }

 private:
  static __device__ int of_block(int count, int first) {
    const int grid = static_cast<int>(gridDim.x);
    return first < count ? (count - first + grid - 1) / grid : 0;
  }

  const int hidden_size_, intermediate_size_, num_choices_;
  const int gate_tiles_, gate_chunks_;
  const int at_once_, down_chunks_;
  const int num_first_, num_second_;
};

// Of an item's row in its expert's matrix.
__device__ inline int row_of(const FusedMoeGpuCall& call, const Item& item, int row) {
  if (!item.is_first_matrix) return item.tile * kTileRows + row;
  const int gate = item.tile * kGateRows + row % kGateRows;
  return row < kGateRows ? gate : call.intermediate_size + gate;
}

// By one warp.
__device__ inline void copy_item(
    const FusedMoeGpuCall& call, Shared& shared, const Item& item, int stage, uint64_t policy) {
  const int lane = threadIdx.x % kWarpSize;
  const uint32_t full = shared_address(&shared.full[stage]);
  const int num_rows = kTileRows * item.num_choices;
  if (lane == 0) arrive_expecting(full, num_rows * item.num_columns);
  __syncwarp();
  const ExpertMatrices& matrices = item.is_first_matrix ? call.gate_up : call.down;
  const int64_t row_size = item.is_first_matrix ? call.hidden_size : call.intermediate_size;
  for (int i = lane; i < num_rows; i += kWarpSize) {
    const int part = i / kTileRows, row = i % kTileRows;
    const uint8_t* const source =
        static_cast<const uint8_t*>(matrices.data) +
        shared.choices[item.choice + part].expert * matrices.expert_stride +
        row_of(call, item, row) * row_size + item.column;
    copy_bulk(shared_address(shared.stages[stage]) + row * kPitch + part * item.num_columns,
              source,
              item.num_columns,
              full,
              policy);
  }
}

__device__ inline void copy_items(const FusedMoeGpuCall& call, Shared& shared) {
  const Items items(call, shared.num_choices);
  const uint64_t policy = read_once_policy();
  StageCursor stage;
  for (int i = 0; i < items.count(); ++i) {
    wait_for(shared_address(&shared.empty[stage.index]), stage.parity ^ 1);
    copy_item(call, shared, items.at(i), stage.index, policy);
    stage.advance(kNumStages);
  }
}

}  // namespace atom::ops::device::moe_one
