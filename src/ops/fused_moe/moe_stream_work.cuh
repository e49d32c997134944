// Inside fused_moe's kernels for few tokens: the groups of tokens, made by every block for itself,
// and the barriers between the warps that copy and those that multiply.
//
// A group is an expert and up to kTokens of its tokens. A unit of work is a group and a tile of 16
// rows of the expert's matrix; blocks take units in runs of equal length, group by group.
#pragma once

#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_groups.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"

namespace atom::ops::device {

constexpr int kCopyWarp = kConsumerWarps;       // copies rows of matrices
constexpr int kTokenWarp = kConsumerWarps + 1;  // copies rows of x
constexpr int kStreamWarps = kConsumerWarps + 2;
constexpr int kStreamThreads = kStreamWarps * kWarpSize;

struct TokenGroup {
  uint16_t expert;
  uint16_t first_row, num_rows;  // of the rows in the order of experts
};

__device__ inline TokenGroup* groups_of(const MoeStreamArgs& args, uint8_t* shared) {
  return reinterpret_cast<TokenGroup*>(shared + args.plan);
}
// The choice of each row.
__device__ inline uint16_t* choices_of(const MoeStreamArgs& args, uint8_t* shared) {
  const int num_choices = args.call.num_tokens * args.call.top_k;
  return reinterpret_cast<uint16_t*>(groups_of(args, shared) + num_choices);
}

// Fills both, by all threads; returns the number of groups.
template <int kTokens>
__device__ int make_groups(const MoeStreamArgs& args, uint8_t* shared) {
  using Sorter = ChoiceSorter<kStreamWarps, kMaxStreamChoices / (kStreamWarps * kWarpSize) + 1>;
  const int num_experts = args.call.num_experts;
  // In the ring, before anything is copied to it.
  auto* counts = reinterpret_cast<uint32_t*>(shared + args.ring);
  int* begins = reinterpret_cast<int*>(counts + Sorter::counts_size(num_experts));
  int* group_begins = begins + num_experts + 1;
  uint16_t* choices = choices_of(args, shared);
  Sorter sorter(args.call, counts, begins);
  sorter.for_rows([&](int row, int choice) { choices[row] = static_cast<uint16_t>(choice); });
  for (int e = threadIdx.x; e < num_experts; e += kStreamThreads) {
    group_begins[e + 1] = (begins[e + 1] - begins[e] + kTokens - 1) / kTokens;
  }
  __syncthreads();
  if (threadIdx.x < kWarpSize) add_up(group_begins, num_experts);
  __syncthreads();
  TokenGroup* groups = groups_of(args, shared);
  for (int e = threadIdx.x; e < num_experts; e += kStreamThreads) {
    int row = begins[e];
    for (int g = group_begins[e]; g < group_begins[e + 1]; ++g, row += kTokens) {
      groups[g] = {static_cast<uint16_t>(e),
                   static_cast<uint16_t>(row),
                   static_cast<uint16_t>(min(kTokens, begins[e + 1] - row))};
    }
  }
  const int num_groups = group_begins[num_experts];
  fence_before_copies();
  __syncthreads();
  return num_groups;
}

// A block's units, and where one stands.
struct UnitRun {
  int begin, end;
  int tiles_per_expert;

  __device__ UnitRun(const MoeStreamArgs& args, int num_groups)
      : tiles_per_expert(args.tiles_per_expert) {
    const int64_t num_units = int64_t{num_groups} * tiles_per_expert;
    begin = static_cast<int>(num_units * blockIdx.x / gridDim.x);
    end = static_cast<int>(num_units * (blockIdx.x + 1) / gridDim.x);
  }
};

struct UnitCursor {
  int group, tile;

  __device__ explicit UnitCursor(const UnitRun& run)
      : group(run.begin / run.tiles_per_expert), tile(run.begin - group * run.tiles_per_expert) {}
  __device__ void advance(const UnitRun& run) {
    if (++tile < run.tiles_per_expert) return;
    tile = 0;
    ++group;
  }
};

// In the first bytes of shared memory.
class StreamBarriers {
 public:
  static constexpr int kSize = 256;

  __device__ explicit StreamBarriers(const uint8_t* shared) : begin_(shared_address(shared)) {}

  __device__ uint32_t full(int stage) const { return begin_ + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(kMaxStages + stage); }
  __device__ uint32_t x_full(int buffer) const { return full(2 * kMaxStages + buffer); }
  __device__ uint32_t x_empty(int buffer) const { return x_full(kMaxXBuffers + buffer); }

  // By one thread, before a barrier of the block.
  __device__ void init() const {
    for (int i = 0; i < kMaxStages; ++i) {
      init_barrier(full(i), 1);
      init_barrier(empty(i), kConsumerWarps);
    }
    for (int i = 0; i < kMaxXBuffers; ++i) {
      init_barrier(x_full(i), 1);
      init_barrier(x_empty(i), kConsumerWarps);
    }
    publish_barriers();
  }

 private:
  static_assert(8 * 2 * (kMaxStages + kMaxXBuffers) <= kSize);
  const uint32_t begin_;
};

// The matrix's row that is row `i` of a tile. With the activation a tile is eight gates and their
// ups, in the order in which the matrix has them.
template <bool kGated>
__device__ inline int matrix_row(const MoeStreamArgs& args, int tile, int i) {
  constexpr int kHalf = kTileRows / 2;
  if (!kGated || args.call.activation.is_interleaved) return tile * kTileRows + i;
  const int pair = tile * kHalf + i % kHalf;
  const int size = args.call.intermediate_size;
  if (pair >= size) return args.num_rows;
  return i < kHalf ? pair : size + pair;
}

}  // namespace atom::ops::device
