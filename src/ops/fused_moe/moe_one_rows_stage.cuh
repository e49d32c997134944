// Inside fused_moe for one token by experts in bfloat16 or MXFP4 on Hopper: what a block computes
// in which order, and shared memory.
//
// A tile is 16 rows, two halves of 8 that follow each other in memory: gates of an expert and their
// ups, or the same rows of the second matrices of two experts. A half is one copy, because small
// copies are slow. A stage holds a tile or, of the first matrix in bfloat16, a half. The 8 columns
// that the matrix units take at once are the activations of as many experts, so that each half
// finds its own.
#pragma once

#include "ops/fused_moe/moe_one_blocks.cuh"
#include "ops/fused_moe/moe_one_rows_format.cuh"

namespace atom::ops::device::moe_one_rows {

using moe_one::Choice;
using moe_one::kNumConsumers;
using moe_one::kWarps;

constexpr int kHalfRows = 8, kTileRows = 2 * kHalfRows;
constexpr int kMostChoices = 8;
constexpr int kTeams = 2, kTeamWarps = kWarps / kTeams;  // teams have stages by turns
// Of a row a warp has 64 bytes at a time, and a lane 16 of them.
constexpr int kChunkSize = 64, kLanes = kChunkSize / kVectorSize;
constexpr int kMaxStages = 8;
constexpr int kSlots = 16;  // tiles whose sums wait for each other

template <typename W>
struct RowTraits;

template <>
struct RowTraits<BFloat16> {
  static constexpr int kChunkColumns = 32;
  static constexpr int kRounds = 8;     // of chunks of rows that a warp has at most
  static constexpr int kExponents = 0;  // of a chunk
  // Of the first matrix a stage has a half of a tile, of whose rows the matrix units take two
  // chunks at once.
  static constexpr bool kHalvesGates = true;
  // Whether a chunk is read while the one before is multiplied: where registers allow.
  static constexpr bool kReadsAhead = true;
  static constexpr int kMostTokens = kMaxMoeOneTokens;
};

template <>
struct RowTraits<OneFloat4> {
  static constexpr int kChunkColumns = 128;
  static constexpr int kRounds = 3;
  static constexpr int kExponents = kChunkColumns / kExponentColumns;
  static constexpr bool kHalvesGates = false;
  static constexpr bool kReadsAhead = false;
  // More are faster by the kernels that expand a code once for all tokens.
  static constexpr int kMostTokens = 1;
};

template <typename W>
constexpr int kMaxColumns = RowTraits<W>::kRounds* kTeamWarps* RowTraits<W>::kChunkColumns;
// Of the first matrix.
template <typename W>
constexpr int kMaxGateColumns = kMaxColumns<W>*(RowTraits<W>::kHalvesGates ? 2 : 1);

struct MoeOneRowsArgs {
  FusedMoeGpuCall call;
  MoeOneRowsScratch scratch;
  int num_stages;
  int stage_size;
};

// The block's.
template <typename W>
__device__ inline int own_token() {
  return RowTraits<W>::kMostTokens == 1 ? 0 : moe_one::own_token();
}

template <typename W>
__device__ inline BFloat16* own_activated(const MoeOneRowsArgs& args) {
  return static_cast<BFloat16*>(args.scratch.activated) +
         own_token<W>() * args.call.top_k * args.call.intermediate_size;
}

// Behind the stages.
template <typename W>
struct Shared {
  float sums[kSlots][kTeamWarps][kTileRows];
  Choice choices[moe_one::kMaxChoices];
  int num_choices;
  uint64_t full[kMaxStages], empty[kMaxStages];
};
static_assert(kSlots == kWarps);  // a warp finishes each

// How rows of so many columns lie in a stage, their exponents behind them.
template <typename W>
struct RowLayout {
  using Traits = RowTraits<W>;

  int size;            // bytes of codes
  int exponents;       // bytes
  int half_exponents;  // of a half, as whole vectors
  int chunks;          // the last one may not be whole

  __host__ __device__ explicit RowLayout(int columns)
      : size(columns * kChunkSize / Traits::kChunkColumns),
        exponents(columns * Traits::kExponents / Traits::kChunkColumns),
        half_exponents((kHalfRows * exponents + kVectorSize - 1) / kVectorSize * kVectorSize),
        chunks((size + kChunkSize - 1) / kChunkSize) {}

  // Lanes read up to the last chunk's end.
  __host__ __device__ int stage_size(int num_halves) const {
    return num_halves * (kHalfRows * size + half_exponents) + kChunkSize;
  }
  // The row of a half that lanes (g, t) have. Neighbors are in different halves of the banks where
  // every other row is, since lanes read 64 bytes of each.
  __device__ int row_of(int g) const {
    return 2 * size % (2 * kChunkSize) == kChunkSize ? g % 4 * 2 + g / 4 : g;
  }
  // Of a half that begins at row `row` of a matrix: the bytes before its exponents that are copied
  // with them, so that whole vectors are. With an odd number of exponents a row every other half
  // begins in the middle of one.
  __device__ int exponents_before(int row) const { return row * exponents % kVectorSize; }
};

// Where the halves of a tile of gates begin in their matrix. Interleaved gates are every other row.
struct GateRows {
  int first, second;

  __device__ GateRows(const FusedMoeGpuCall& call, int tile)
      : first(tile * (call.activation.is_interleaved ? kTileRows : kHalfRows)),
        second(first + (call.activation.is_interleaved ? kHalfRows : call.intermediate_size)) {}
};

// visit(choice, tile of eight gates) for those of the block.
template <typename Visit>
__device__ inline void for_gate_tiles(const FusedMoeGpuCall& call, int num_choices, Visit&& visit) {
  const int tiles = call.intermediate_size / kHalfRows;
  for (int i = blockIdx.x; i < num_choices * tiles; i += gridDim.x) {
    const int choice = i / tiles;
    visit(choice, i - choice * tiles);
  }
}

// visit(eight rows) of the result, from the other end, so that blocks with more of the first matrix
// have not more of both.
template <typename Visit>
__device__ inline void for_units(const FusedMoeGpuCall& call, Visit&& visit) {
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  for (int i = first; i < call.hidden_size / kHalfRows; i += gridDim.x) visit(i);
}

// Pairs of experts, the last of which may be one.
__device__ inline int num_pairs(int num_choices) {
  return (num_choices + 1) / 2;
}

}  // namespace atom::ops::device::moe_one_rows
