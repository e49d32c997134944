// Inside fused_moe for one token on Hopper: what a block computes in which order, and shared
// memory.
//
// An item is 16 rows of one stage. Of the first matrix they are 8 gates of an expert and their ups,
// of up to 2048 columns; of the second one 16 rows of as many experts as fill 2048 columns. Each of
// 16 warps has 128 of an item's columns, which share scales.
#pragma once

#include "ops/fused_moe/moe_one_blocks.cuh"
#include "ops/fused_moe/moe_one_math.cuh"

namespace atom::ops::device::moe_one {

constexpr int kTileRows = 16, kGateRows = 8;
constexpr int kChunk = kWarps * kPanel;
// Two neighboring rows are in different halves of the banks: lanes read 64 bytes of each.
constexpr int kPitch = kChunk + 64;
constexpr int kNumStages = 6;
constexpr int kMaxCodes = 20 << 10;  // of x, then of all that is activated

struct MoeOneArgs {
  FusedMoeGpuCall call;
  MoeOneScratch scratch;
};

// Tiles whose sums wait for each other: warps go on to the next tile without a barrier.
constexpr int kSlots = 6;

struct Shared {
  uint8_t stages[kNumStages][kTileRows * kPitch];
  uint8_t codes[kMaxCodes];
  float scales[kMaxCodes / kPanel];
  float sums[kSlots][kWarps][kTileRows];
  int targets[kSlots];  // where a tile's results begin
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

// A block's items one after the other: those of the first matrix, then of the second one, from the
// other end so that blocks with more of one have not more of both. Nothing is divided.
class Items {
 public:
  __device__ Items(const FusedMoeGpuCall& call, int num_choices)
      : hidden_size_(call.hidden_size),
        intermediate_size_(call.intermediate_size),
        num_choices_(num_choices),
        at_once_(kChunk / call.intermediate_size),
        tile_(static_cast<int>(blockIdx.x)) {
    find_choice();
  }

  __device__ bool is_done() const { return !is_first_ && tile_ >= hidden_size_ / kTileRows; }
  __device__ bool is_in_first_matrix() const { return is_first_; }

  __device__ Item item() const {
    if (is_first_) {
      const int left = hidden_size_ - column_;
      return {true, tile_, choice_, 1, column_, min(kChunk, left), left <= kChunk};
    }
    const int left = num_choices_ - choice_;
    return {false, tile_, choice_, min(at_once_, left), 0, intermediate_size_, left <= at_once_};
  }

  __device__ void advance() {
    const int grid = static_cast<int>(gridDim.x);
    if (is_first_) {
      column_ += kChunk;
      if (column_ < hidden_size_) return;
      column_ = 0;
      tile_ += grid;
      return find_choice();
    }
    choice_ += at_once_;
    if (choice_ < num_choices_) return;
    choice_ = 0;
    tile_ += grid;
  }

 private:
  // Of a tile that is counted from the current choice's first one on; behind the last choice's the
  // second matrix begins.
  __device__ void find_choice() {
    const int gate_tiles = intermediate_size_ / kGateRows;
    while (choice_ < num_choices_ && tile_ >= gate_tiles) {
      tile_ -= gate_tiles;
      ++choice_;
    }
    if (choice_ < num_choices_) return;
    is_first_ = false;
    choice_ = 0;
    tile_ = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  }

  const int hidden_size_, intermediate_size_, num_choices_, at_once_;
  bool is_first_ = true;
  int tile_, choice_ = 0, column_ = 0;
};

// Of an item's row in its expert's matrix.
__device__ inline int row_of(const FusedMoeGpuCall& call, const Item& item, int row) {
  if (!item.is_first_matrix) return item.tile * kTileRows + row;
  const int gate = item.tile * kGateRows + row % kGateRows;
  return row < kGateRows ? gate : call.intermediate_size + gate;
}

}  // namespace atom::ops::device::moe_one
