// Inside fused_moe by rows of matrices on Hopper: shared memory, the rows that a lane has of a
// tile, and the thread that copies.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_row_shares.h"
#include "ops/fused_moe/moe_rows_format.cuh"
#include "ops/fused_moe/moe_tiles.cuh"

namespace atom::ops::device::rows {

constexpr int kPanelSize = 128;  // bytes of a row of x in a copy
constexpr int kWarpgroupSize = 128;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kMaxStages = 24;
constexpr int kExponentBuffers = 2;
constexpr int kBarriersSize = 512;
constexpr int kPairRows = 8;  // gates, and then as many ups, of what the matrix units take at once
// Of a warp: outputs of 16 tokens, or of 8, on their way.
constexpr int kGatedRowStride = 32 + 16, kRowStride = 64 + 16;
constexpr int kOutputSize = 16 * kGatedRowStride;
static_assert(8 * kRowStride <= kOutputSize);

struct MoeRowsArgs {
  CUtensorMap x;         // [rows, padded columns], boxes of 128 bytes of kTokenUnit tokens
  CUtensorMap matrices;  // [all experts' rows, columns], boxes of a chunk of some rows
  FusedMoeGpuCall call;
  MoeRowsScratch scratch;
  ExpertMatrices own;  // the same matrices
  int num_rows;        // of a matrix
  int num_outputs;     // of a row: those, or half of them
  int activated_width;
  int num_column_tiles;
  int num_chunks;
  int row_exponents;  // bytes
  int num_stages;
  int exponents_size;  // of a tile, in shared memory

  __device__ const FusedMoeGpuScratch& tiles() const { return scratch.shared; }
};

// Of a matrix; with the activation half of them gates and the others their ups.
template <typename W>
constexpr int kTileRows = (Chunk<W>::kSplits ? 64 : 128) * Chunk<W>::kBlocks;
template <typename W>
constexpr int kHalfRows = kTileRows<W> / 2;
template <typename W>
constexpr int kMatrixSize = kTileRows<W>* Chunk<W>::kRowSize;
template <typename W>
constexpr int kPanels = Chunk<W>::kColumns * 2 / kPanelSize;
template <typename W, int kTokens>
constexpr int kStageSize = kMatrixSize<W> + kTokens* kPanels<W>* kPanelSize;

// Tokens of the largest tile. Float4's sums of so many fill registers; of the others there are
// kernels for many tokens.
template <typename W>
constexpr int kMostTokens = Chunk<W>::kEarly              ? 8
                            : Chunk<W>::kSplits           ? 16
                            : RowFormat<W>::kHasExponents ? 128
                                                          : 64;

// In which tiles have tokens. Those whose matrix is expanded for matrix units of a warpgroup are
// whole: with several numbers of columns in a kernel the compiler serializes products.
template <typename W, int kTokens>
constexpr int kTokenUnit = Chunk<W>::kSplits ? 8 : kTokens;
static_assert(shares_all_sizes<16, 8>());

// Of a tile in MXFP4. Lanes read four of the last chunk, of which a row may have two.
template <typename W>
constexpr int exponents_size(int num_columns) {
  return (kTileRows<W> * (num_columns / kExponentColumns) + 16 + 127) / 128 * 128;
}
constexpr int kMostExponents = 32 << 10;

// Whether two blocks share a multiprocessor, so that the second matrix's copies begin while the
// first one is multiplied, and one expands codes while the other's products run: where few
// registers do.
template <typename W, int kTokens>
constexpr bool kIsSmall = Chunk<W>::kSplits || (!Chunk<W>::kFromRegisters && kTokens <= 32);

// Without the warps of the first warpgroup that have nothing to do, where registers are short.
template <typename W>
constexpr int kThreadsOf = Chunk<W>::kSplits ? kNumConsumers + kWarpSize : kNumThreads;

// Of one warpgroup on their way to the other one.
template <typename W, int kTokens>
constexpr int kSplitSumsSize =
    Chunk<W>::kSplits ? kWarpgroupSize* Chunk<W>::kBlocks* kTokens / 2 * 4 : 0;

// Of a warp, on their way to be stored by whole vectors.
template <typename W>
constexpr int kOutputSizeOf = Chunk<W>::kSplits ? 0 : kOutputSize;

// Bytes of shared memory besides stages.
template <typename W, int kTokens>
__host__ __device__ inline int fixed_size(int exponents_size) {
  return kBarriersSize + kConsumerWarps * kOutputSizeOf<W> + kExponentBuffers * exponents_size +
         2 * kSplitSumsSize<W, kTokens>;
}

// As many stages as there is room for. Warpgroups that take chunks by turns need an even number:
// then a stage is always the same one's. One that skipped a round of a stage could take the end of
// the round before that for the end of its own, as both have the same parity.
template <typename W>
constexpr int stages_in(int room, int stage_size) {
  const int most = room / stage_size < kMaxStages ? room / stage_size : kMaxStages;
  return Chunk<W>::kSplits ? most / 2 * 2 : most;
}

__device__ inline void store_shared_float(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ inline float load_shared_float(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// What the compiler would otherwise compute again at each use.
__device__ inline void keep_in_register(int& value) {
  asm volatile("" : "+r"(value));
}

// Four matrices of eight rows of 16 bytes to the registers of a warp, lane i with the address of
// row i % 8 of matrix i / 8.
__device__ inline void load_matrices(uint32_t address, uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}

// Stages come first, because what is swizzled has to lie at multiples of 1024 bytes.
template <typename W, int kTokens>
class Shared {
 public:
  __device__ Shared(const MoeRowsArgs& args, uint8_t* memory)
      : base_(shared_address(memory)),
        num_stages_(args.num_stages),
        exponents_size_(args.exponents_size),
        rest_(base_ + args.num_stages * kStageSize<W, kTokens>) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * kStageSize<W, kTokens>; }
  __device__ uint32_t x(int stage, int panel) const {
    return matrix(stage) + kMatrixSize<W> + panel * kTokens * kPanelSize;
  }
  __device__ uint32_t full(int stage) const { return rest_ + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(kMaxStages + stage); }
  __device__ uint32_t exponents_full(int buffer) const { return full(2 * kMaxStages + buffer); }
  __device__ uint32_t exponents_empty(int buffer) const {
    return exponents_full(kExponentBuffers + buffer);
  }
  __device__ uint32_t output(int warp) const {
    return rest_ + kBarriersSize + warp * kOutputSizeOf<W>;
  }
  __device__ uint32_t exponents(int buffer) const {
    return output(kConsumerWarps) + buffer * exponents_size_;
  }
  __device__ uint32_t split_sums(int buffer) const {
    return exponents(kExponentBuffers) + buffer * kSplitSumsSize<W, kTokens>;
  }

  // By one thread, before a barrier of the block.
  __device__ void init_barriers() const {
    for (int i = 0; i < num_stages_; ++i) {
      init_barrier(full(i), 1);
      init_barrier(empty(i), Chunk<W>::kSplits ? kConsumerWarps / 2 : kConsumerWarps);
    }
    for (int i = 0; i < kExponentBuffers; ++i) {
      init_barrier(exponents_full(i), 1);
      init_barrier(exponents_empty(i), kConsumerWarps);
    }
    publish_barriers();
  }

 private:
  static_assert(8 * 2 * (kMaxStages + kExponentBuffers) <= kBarriersSize);
  const uint32_t base_;
  const int num_stages_, exponents_size_;
  const uint32_t rest_;
};

// The first row of the matrix that half of a tile has.
template <typename W, bool kGated>
__device__ inline int first_row_of(const MoeRowsArgs& args, int column_tile, int half) {
  if (kGated && !args.call.activation.is_interleaved) {
    return half * args.call.intermediate_size + column_tile * kHalfRows<W>;
  }
  return column_tile * kTileRows<W> + half * kHalfRows<W>;
}

// Of the warps that have different rows.
template <typename W>
__device__ inline int row_warp() {
  const int warp = threadIdx.x / kWarpSize;
  return Chunk<W>::kSplits ? warp % (kConsumerWarps / 2) : warp;
}

// Of a lane's products of 64 rows: of row g of its warp's 16 and of row g + 8. With the activation
// these are a gate and its up.
template <typename W, bool kGated>
struct LaneRows {
  static constexpr int kBlocks = Chunk<W>::kBlocks;
  int row[kBlocks][2];  // of the tile's, by halves
  int output[kBlocks];  // with the activation, of the tile's
  // Whether the first one is the up. Of interleaved rows, of which two fill all banks, every other
  // lane has the up first, so that lanes side by side read different banks.
  bool is_swapped;

  // Of the consumers' warps.
  static __device__ LaneRows of(bool is_interleaved) {
    const int warp = row_warp<W>(), g = threadIdx.x % kWarpSize / 4;
    LaneRows rows;
    rows.is_swapped = kGated && Chunk<W>::kFromRegisters && is_interleaved && g % 2 == 1;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int first = warp * kBlocks + b;
      rows.output[b] = output_at<W>(first * 8 + g);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (kGated) {
          rows.row[b][i] =
              is_interleaved ? 2 * rows.output[b] + (i ^ static_cast<int>(rows.is_swapped))
                             : rows.output[b] + i * kHalfRows<W>;
        } else {
          rows.row[b][i] = first * 16 + i * 8 + g;
        }
      }
    }
    return rows;
  }
};

// visit(tile) for all tiles of the block, by whole warps. end_row is the tile's.
template <typename W, int kTokens, typename Visit>
__device__ void for_tiles(const MoeRowsArgs& args, Visit&& visit) {
  constexpr int kUnit = kTokenUnit<W, kTokens>;
  TileList list(args.tiles(), args.call.num_experts, args.num_column_tiles, kTokens);
  for (int i = blockIdx.x; i < list.size(); i += gridDim.x) {
    MoeTile tile = list.at(i);
    if constexpr (kUnit < kTokens) {
      const int begin = list.row_begin_of(tile.expert);
      const RowShare share =
          share_of<kTokens, kUnit>((tile.first_row - begin) / kTokens, tile.end_row - begin);
      tile.first_row = begin + share.first;
      tile.end_row = begin + share.end;
    }
    visit(tile);
  }
}

// Of a tile, at least one. The first tile of few tokens, of which not all is known, has one.
template <typename W, int kTokens>
__device__ int token_units(const MoeTile& tile) {
  constexpr int kUnit = kTokenUnit<W, kTokens>;
  if constexpr (kUnit == kTokens) return 1;
  return max((tile.end_row - tile.first_row + kUnit - 1) / kUnit, 1);
}

template <typename W, int kTokens, bool kGated>
class Copier {
 public:
  __device__ Copier(const MoeRowsArgs& args, const Shared<W, kTokens>& shared)
      : args_(args), shared_(shared), keep_(keep_policy()) {}

  // What fits the stages of the first tile's matrix, before x is there.
  __device__ void begin(const MoeTile& tile) {
    num_begun_ = min(args_.num_stages, args_.num_chunks);
    for (int chunk = 0; chunk < num_begun_; ++chunk) {
      const uint32_t full = shared_.full(chunk);
      arrive_expecting(full, stage_bytes(tile));
      copy_matrix(tile, chunk, chunk, full);
    }
  }

  __device__ void run(const MoeTile& tile) {
    if (args_.exponents_size > 0) copy_exponents(tile);
    const int num_units = token_units<W, kTokens>(tile);
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const uint32_t full = shared_.full(stage_.index);
      if (chunk >= num_begun_) {
        wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
        arrive_expecting(full, stage_bytes(tile));
        copy_matrix(tile, chunk, stage_.index, full);
      }
#pragma unroll
      for (int panel = 0; panel < kPanels<W>; ++panel) {
        for (int i = 0; i < num_units; ++i) {
          copy_box(shared_.x(stage_.index, panel) + i * kUnit * kPanelSize,
                   &args_.x,
                   (chunk * kPanels<W> + panel) * (kPanelSize / 2),
                   tile.first_row + i * kUnit,
                   full,
                   keep_);
        }
      }
      stage_.advance(args_.num_stages);
    }
    num_begun_ = 0;
  }

 private:
  static constexpr int kUnit = kTokenUnit<W, kTokens>;

  static __device__ int stage_bytes(const MoeTile& tile) {
    return kMatrixSize<W> + token_units<W, kTokens>(tile) * kUnit * kPanels<W> * kPanelSize;
  }

  __device__ void copy_matrix(const MoeTile& tile, int chunk, int stage, uint32_t full) const {
    const int first = tile.expert * args_.num_rows;
    const uint32_t matrix = shared_.matrix(stage);
    constexpr int kElementSize = Chunk<W>::kFromRegisters ? 1 : 2;
    const int column = chunk * Chunk<W>::kRowSize / kElementSize;
    // From shared memory the matrix units take gates and ups by turns, which registers put right.
    constexpr bool kByTurns = kGated && !Chunk<W>::kFromRegisters;
    constexpr int kRows = kByTurns ? kPairRows : kHalfRows<W>;
#pragma unroll 1
    for (int i = 0; i < kHalfRows<W> / kRows; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        copy_box(matrix + (2 * i + half) * kRows * Chunk<W>::kRowSize,
                 &args_.matrices,
                 column,
                 first + first_row_of<W, kGated>(args_, tile.column_tile, half) + i * kRows,
                 full,
                 keep_);
      }
    }
  }

  __device__ void copy_exponents(const MoeTile& tile) {
    const uint32_t full = shared_.exponents_full(buffer_.index);
    wait_for(shared_.exponents_empty(buffer_.index), buffer_.parity ^ 1);
    int sizes[2];
    for (int half = 0; half < 2; ++half) {
      const int rows = args_.num_rows - first_row_of<W, kGated>(args_, tile.column_tile, half);
      sizes[half] = max(0, min(kHalfRows<W>, rows)) * args_.row_exponents;
    }
    arrive_expecting(full, sizes[0] + sizes[1]);
    for (int half = 0; half < 2; ++half) {
      if (sizes[half] == 0) continue;
      const int row = first_row_of<W, kGated>(args_, tile.column_tile, half);
      copy_bulk(shared_.exponents(buffer_.index) + half * kHalfRows<W> * args_.row_exponents,
                args_.own.exponents + tile.expert * args_.own.exponent_stride +
                    int64_t{row} * args_.row_exponents,
                sizes[half],
                full,
                keep_);
    }
    buffer_.advance(kExponentBuffers);
  }

  const MoeRowsArgs& args_;
  const Shared<W, kTokens>& shared_;
  const uint64_t keep_;
  StageCursor stage_, buffer_;
  int num_begun_ = 0;  // of the first tile's chunks
};

}  // namespace atom::ops::device::rows
