// Inside the linear for few rows on Hopper: what a warpgroup sums up, and how its sums come to the
// block that finishes them.
#pragma once

#include "ops/linear/linear_skinny_stage.cuh"

namespace atom::ops::device {

// The sums of a warpgroup: of 64 weight rows and kColumns rows of x.
template <typename T, int kColumns>
class Sums {
 public:
  __device__ Sums(const SkinnyArgs& args, int half)
      : num_panels_(args.num_panels),
        plan_(args),
        half_offset_(half * plan_.half),
        a_panel_(matrix_offset(plan_.half_panel)),
        b_panel_(matrix_offset(plan_.x_panel)) {}

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < kChains; ++c) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[c][i] = 0;
    }
  }

  // Adds the products of a stage.
  __device__ void add(uint32_t stage) {
    uint64_t a = matrix_at(stage + half_offset_), b = matrix_at(stage + plan_.x);
    // Unrolled, the compiler would put the products one after the other.
#pragma unroll 1
    for (int panel = 0; panel < num_panels_; ++panel) {
      if constexpr (kIsFloat8) {
        add_exactly(a, b);
      } else {
        begin_products();
#pragma unroll
        for (int i = 0; i < kSteps; ++i) multiply_step(i, sums_[i % kChains], a, b, true);
        commit_products();
      }
      a += a_panel_;
      b += b_panel_;
    }
    if constexpr (!kIsFloat8) {
      wait_for_products<0>();
#pragma unroll
      for (int c = 0; c < kChains; ++c) pin(sums_[c]);
    }
  }

  // visit(row of x, which of two weight rows, sums of that row of x and the next).
  template <typename Visit>
  __device__ void for_pairs(Visit&& visit) const {
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      float2 pair = make_float2(sums_[0][i], sums_[0][i + 1]);
#pragma unroll
      for (int c = 1; c < kChains; ++c) {
        pair.x += sums_[c][i];
        pair.y += sums_[c][i + 1];
      }
      visit(i / 4 * 8, i / 2 % 2, pair);
    }
  }

 private:
  static constexpr bool kIsFloat8 = std::is_same_v<T, Float8>;
  static constexpr int kSums = kColumns / 2;  // of a thread, by one instruction
  static constexpr int kSteps = kPanelSize / kStepSize;
  // Sums that are built side by side, over steps of k in turn: an instruction waits for the one
  // before that adds to the same registers.
  static constexpr int kChains = kIsFloat8 ? 1 : kSums > 16 ? 2 : 4;

  static __device__ void multiply_step(
      int step, float (&sums)[kSums], uint64_t a, uint64_t b, bool keeps) {
    const uint64_t offset = matrix_offset(step * kStepSize);
    multiply<T, kColumns>(sums, a + offset, b + offset, keeps);
  }

  // The matrix units add FP8 products, and sums to them, in fewer bits than float32 has: what one
  // instruction gives is added here. Some are under way while earlier ones are added.
  __device__ void add_exactly(uint64_t a, uint64_t b) {
    constexpr int kAhead = kColumns > 32 ? 2 : kSteps;
    float parts[kAhead][kSums];
#pragma unroll
    for (int i = 0; i < kSteps + kAhead - 1; ++i) {
      if (i < kSteps) {
        begin_products();
        multiply_step(i, parts[i % kAhead], a, b, false);
        commit_products();
      }
      const int done = i - (kAhead - 1);
      if (done < 0) continue;
      wait_for_products(min(kAhead, kSteps - done) - 1);
      pin(parts[done % kAhead]);
#pragma unroll
      for (int j = 0; j < kSums; ++j) sums_[0][j] += parts[done % kAhead][j];
    }
  }

  const int num_panels_;
  const StagePlan plan_;
  const int half_offset_;
  const uint64_t a_panel_, b_panel_;
  float sums_[kChains][kSums];
};

// Pairs of rows of x belong to blocks of the cluster: of two blocks one has the first four of eight
// rows, the other the rest.
struct PairOwners {
  int log_pairs;  // of eight rows, per block

  __device__ explicit PairOwners(const SkinnyArgs& args) : log_pairs(2 - args.log_splits) {}
  __device__ int owner(int pair) const { return (pair & 3) >> log_pairs; }
  // As the owner counts its pairs, and back.
  __device__ int local(int pair) const {
    return pair >> 2 << log_pairs | (pair & ((1 << log_pairs) - 1));
  }
  __device__ int pair(int rank, int local) const {
    return local >> log_pairs << 2 | rank << log_pairs | (local & ((1 << log_pairs) - 1));
  }
};

// Sends a tile's sums to their owners.
template <bool kTakesTurns, typename SumsType>
__device__ void send_sums(const SkinnyArgs& args,
                          const SkinnyWork& work,
                          const Shared& shared,
                          const SumsType& sums) {
  const PairOwners owners(args);
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize % kWarpgroupWarps;
  const int warpgroup = threadIdx.x / kWarpgroupSize;
  const int tile_rows = 2 * args.half_rows, num_rows = kTakesTurns ? tile_rows : args.half_rows;
  const int first_row = warp * 16 + lane / 4;
  const int local_pairs = args.x_rows / 2 >> args.log_splits;
  const int owner = owners.owner(lane % 4);
  const int part = kTakesTurns ? work.rank * kWarpgroups + warpgroup : work.rank;
  float2* const own =
      shared.sums() + part * local_pairs * tile_rows + (kTakesTurns ? 0 : warpgroup * num_rows);
  const uint32_t target = address_in(owner, shared_address(own));
  const uint32_t barrier = address_in(owner, shared.sums_full());
  sums.for_pairs([&](int x_row, int lower, float2 value) {
    const int row = first_row + lower * 8;
    if (x_row >= args.x_rows || row >= num_rows) return;
    const int index = owners.local(x_row / 2 + lane % 4) * tile_rows + row;
    if (owner == work.rank) {
      own[index] = value;
    } else {
      store_in_cluster(target + index * int{sizeof(float2)}, value, barrier);
    }
  });
}

}  // namespace atom::ops::device
