// Inside fused_moe for one token by experts in FP8 on Hopper: what a block computes in which order,
// and shared memory.
//
// A panel is 128 columns of eight rows, as the copy engine swizzles them. A stage has 32: of the
// first matrix 16 of eight gates and then 16 of their ups, of the second one those of eight rows of
// as many experts as fit. The matrix units take eight panels as 64 rows, with the eight that they
// are multiplied by as columns, and of the result the diagonal counts: so shares of blocks are even
// to eight rows, and codes are multiplied as they are.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_one_blocks.cuh"

namespace atom::ops::device::moe_one {

// Behind the warps that multiply one copies matrices, one scales.
constexpr int kNumThreads = kNumConsumers + 2 * kWarpSize;

constexpr int kPanel = 128;  // columns, as many bytes, that share a scale
constexpr int kTileRows = 8;
constexpr int kPanelSize = kTileRows * kPanel;
constexpr int kStagePanels = 32, kHalfPanels = kStagePanels / 2;
constexpr int kNumStages = 6;
// Rows of codes, each of what a panel is multiplied by: of x, then of all that is activated, where
// every stage's begin at a multiple of eight.
constexpr int kMaxCodeRows = 160;
// Stages whose sums wait for each other: warps go on to the next one without a barrier.
constexpr int kSlots = 12;

// One of the two matrices, of all experts.
struct MatrixArgs {
  CUtensorMap map;  // in boxes of eight rows of up to 16 panels
  const float* scales;
  int64_t scale_stride;
  int num_rows;     // of an expert
  int num_panels;   // of a row
  int box_size;     // bytes
  int scale_shift;  // from a row to its scale, as a power of two
  int scales_across;
  bool has_row_scales;  // else rows of a panel share one
};

struct MoeOneArgs {
  MatrixArgs gate_up, down;
  int choices_at_once;  // of a stage of the second matrix
  FusedMoeGpuCall call;
  MoeOneScratch scratch;
};

struct Shared {
  uint8_t stages[kNumStages][kStagePanels * kPanelSize];
  uint8_t codes[kMaxCodeRows][kPanel];  // swizzled likewise
  // Of panels, or of their rows.
  float matrix_scales[kNumStages][kStagePanels * kTileRows];
  float scales[kMaxCodeRows];  // of codes; weights of choices are in them
  float sums[kSlots][kWarps][kTileRows];
  Choice choices[kMaxChoices];
  int num_choices;
  uint64_t full[kNumStages], empty[kNumStages];
  uint64_t read;  // all that is activated
};

enum class Pass { kFirstMatrix, kSecondMatrix };
constexpr int kNumPasses = 2;

// By all threads: barriers in shared memory are made, and what kernels before left is there.
__device__ inline void begin_together() {
  __syncthreads();
  wait_for_previous_grid();
}

constexpr int kChoicesBarrier = 2;

// By the warp that knows the choices, and by all others.
__device__ inline void tell_choices() {
  asm volatile("bar.arrive %0, %1;" ::"n"(kChoicesBarrier), "n"(kNumThreads) : "memory");
}
__device__ inline void wait_for_choices() {
  asm volatile("bar.sync %0, %1;" ::"n"(kChoicesBarrier), "n"(kNumThreads) : "memory");
}

// A block's share of a matrix: every gridDim.x-th tile of eight rows, or eight gates and their ups,
// of the second matrix from the other end so that blocks with more of one have not more of both.
struct Share {
  __device__ Share(const MoeOneArgs& args, int num_choices, Pass pass)
      : is_first_matrix(pass == Pass::kFirstMatrix),
        first_tile(static_cast<int>(is_first_matrix ? blockIdx.x : gridDim.x - 1 - blockIdx.x)) {
    const MatrixArgs& matrix = is_first_matrix ? args.gate_up : args.down;
    if (is_first_matrix) {
      num_tiles = num_choices * (args.call.intermediate_size / kTileRows);
      num_panels = matrix.num_panels;
      stage_panels = stage_code_rows = kHalfPanels;
    } else {
      num_tiles = args.call.hidden_size / kTileRows;
      num_panels = num_choices * matrix.num_panels;
      stage_panels = args.choices_at_once * matrix.num_panels;
      stage_code_rows = kStagePanels;
    }
  }

  const bool is_first_matrix;
  const int first_tile;
  int num_tiles;        // of all blocks, of the first matrix those of all choices
  int num_panels;       // of a tile; of gates
  int stage_panels;     // of those
  int stage_code_rows;  // from one stage of a tile to the next

  __device__ int tile_stages() const {
    return max(1, (num_panels + stage_panels - 1) / stage_panels);
  }
};

// Its stages one after the other, as copies need them.
class Stages {
 public:
  __device__ Stages(const MoeOneArgs& args, int num_choices, Pass pass)
      : share_(args, num_choices, pass),
        choice_tiles_(args.call.intermediate_size / kTileRows),
        choices_at_once_(share_.is_first_matrix ? 0 : args.choices_at_once),
        tile_(share_.first_tile),
        own_tile_(share_.first_tile) {
    find_choice();
  }

  __device__ bool is_done() const { return tile_ >= share_.num_tiles; }
  __device__ bool is_first_matrix() const { return share_.is_first_matrix; }

  // Of the tile in its expert's matrix; of gates.
  __device__ int row() const { return own_tile_ * kTileRows; }
  __device__ int choice() const { return choice_; }  // the first one
  __device__ int num_panels() const { return min(share_.stage_panels, share_.num_panels - panel_); }
  __device__ int column() const { return is_first_matrix() ? panel_ : 0; }  // in panels

  __device__ void advance() {
    panel_ += share_.stage_panels;
    choice_ += choices_at_once_;
    if (panel_ < share_.num_panels) return;
    panel_ = 0;
    if (!is_first_matrix()) choice_ = 0;
    tile_ += static_cast<int>(gridDim.x);
    own_tile_ += static_cast<int>(gridDim.x);
    find_choice();
  }

 private:
  __device__ void find_choice() {
    while (is_first_matrix() && own_tile_ >= choice_tiles_) {
      own_tile_ -= choice_tiles_;
      ++choice_;
    }
  }

  const Share share_;
  const int choice_tiles_, choices_at_once_;
  int tile_, own_tile_, choice_ = 0, panel_ = 0;
};

}  // namespace atom::ops::device::moe_one
