// Inside the linear for few rows on Hopper: what a warpgroup sums up, and how its sums come to the
// block that finishes them.
#pragma once

#include "ops/linear/skinny/stage.cuh"

namespace atom::ops::device {

// The sums of a warpgroup: of 64 weight rows and kColumns rows of x.
template <typename T, int kColumns>
class Sums {
 public:
  __device__ Sums(const SkinnyArgs& args, const SkinnyWork&, const Shared&, int half)
      : num_panels_(args.num_panels),
        plan_(args),
        half_offset_(half * plan_.half),
        a_panel_(matrix_offset(plan_.half_panel)),
        b_panel_(matrix_offset(plan_.x_panel)) {}

  // Before the kernel before has ended.
  __device__ void begin(int, int) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums_[c][i] = 0;
    }
  }

  // Once, after the kernel before has ended.
  __device__ void share_scales() const {}

  // Adds the products of a stage, of that index in the ring: release(index) when it is read no
  // more.
  template <typename Release>
  __device__ void add(uint32_t stage, int index, int, Release&& release) {
    const uint64_t a = matrix_at(stage + half_offset_), b = matrix_at(stage + plan_.x);
    if constexpr (kIsFloat8) {
      add_parts(a, b);
    } else {
      add_chained(a, b);
    }
    release(index);
  }

  // The sums of one of a thread's two weight rows with two rows of x, of the `group`th eight.
  __device__ float2 pair(int group, int lower) const {
    const int i = 4 * group + 2 * lower;
    float2 pair = make_float2(sums_[0][i], sums_[0][i + 1]);
#pragma unroll
    for (int c = 1; c < kChains; ++c) {
      pair.x += sums_[c][i];
      pair.y += sums_[c][i + 1];
    }
    return pair;
  }

 private:
  static constexpr bool kIsFloat8 = std::is_same_v<T, Float8>;
  static constexpr int kSums = kColumns / 2;  // of a thread, by one instruction
  static constexpr int kSteps = kPanelSize / kStepSize;
  static constexpr int kHalves = 2;  // of a panel
  // Sums that are built side by side, over steps of k in turn: an instruction waits for the one
  // before that adds to the same registers.
  static constexpr int kChains = kIsFloat8 ? 1 : kSums > 16 ? 2 : 4;

  static __device__ void multiply_step(
      int step, float (&sums)[kSums], uint64_t a, uint64_t b, bool keeps) {
    const uint64_t offset = matrix_offset(step * kStepSize);
    multiply<T, kColumns>(sums, a + offset, b + offset, keeps);
  }

  __device__ void add_chained(uint64_t a, uint64_t b) {
    // Unrolled, the compiler would put the products one after the other.
#pragma unroll 1
    for (int panel = 0; panel < num_panels_; ++panel) {
      begin_products();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) multiply_step(i, sums_[i % kChains], a, b, true);
      commit_products();
      a += a_panel_;
      b += b_panel_;
    }
    wait_for_products<0>();
#pragma unroll
    for (int c = 0; c < kChains; ++c) pin(sums_[c]);
  }

  // The matrix units add FP8 products, and sums to them, in fewer bits than float32 has: what two
  // steps give is added here, while the next two are under way.
  __device__ void add_parts(uint64_t a, uint64_t b) {
    switch (num_panels_) {
      case 4:
        return add_panels<4>(a, b);
      case 2:
        return add_panels<2>(a, b);
      default:
        return add_panels<1>(a, b);
    }
  }

  template <int kPanels>
  __device__ void add_panels(uint64_t a, uint64_t b) {
    constexpr int kCount = kHalves * kPanels, kAhead = 2;
    float parts[kAhead][kSums];
#pragma unroll
    for (int i = 0; i < kCount + kAhead - 1; ++i) {
      if (i < kCount) {
        const int panel = i / kHalves;
        begin_half(i % kHalves, parts[i % kAhead], a + panel * a_panel_, b + panel * b_panel_);
      }
      if (i < kAhead - 1) continue;
      const int done = i - (kAhead - 1);
      wait_for_products(min(kAhead, kCount - done) - 1);
      pin(parts[done % kAhead]);
#pragma unroll
      for (int j = 0; j < kSums; ++j) sums_[0][j] += parts[done % kAhead][j];
    }
  }

  // The products of half a panel.
  static __device__ void begin_half(int half, float (&part)[kSums], uint64_t a, uint64_t b) {
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps / kHalves; ++i)
      multiply_step(half * (kSteps / kHalves) + i, part, a, b, i > 0);
    commit_products();
  }

  const int num_panels_;
  const StagePlan plan_;
  const int half_offset_;
  const uint64_t a_panel_, b_panel_;
  float sums_[kChains][kSums];
};

// Which block of the cluster finishes the outputs of which of a tile's weight rows, and where it
// has their sums: the same share of the tile's rows, or with SiLU of its gate rows and of its up
// rows.
struct Shares {
  int unit;  // rows of a tile, or of one of its halves
  int size;  // of them, that a block finishes

  __device__ explicit Shares(const SkinnyArgs& args)
      : unit(args.params.epilogue == LinearEpilogue::kSiluAndMul ? args.half_rows
                                                                 : 2 * args.half_rows),
        size(unit >> args.log_splits) {}
  __device__ int owner(int row) const { return within(row) < size ? 0 : 1; }
  // Where the owner has a row's sums.
  __device__ int place(int row) const {
    const int of_owner = within(row) < size ? within(row) : within(row) - size;
    return of_owner + (row < unit ? 0 : size);
  }

 private:
  __device__ int within(int row) const { return row < unit ? row : row - unit; }
};

// Sends a tile's sums to their owners. A thread has those of two weight rows.
template <bool kTakesTurns>
class Sender {
 public:
  __device__ Sender(const SkinnyArgs& args, const SkinnyWork& work, const Shared& shared)
      : num_groups_(args.x_rows / 8), group_size_(4 * shared.sums_stride() * int{sizeof(float2)}) {
    const Shares shares(args);
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize % kWarpgroupWarps;
    const int warpgroup = threadIdx.x / kWarpgroupSize;
    const int num_rows = kTakesTurns ? 2 * args.half_rows : args.half_rows;
    const int part = kTakesTurns ? work.rank * kWarpgroups + warpgroup : work.rank;
    const float2* const pairs = shared.sums(part) + lane % 4 * shared.sums_stride();
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int warpgroup_row = warp * 16 + lower * 8 + lane / 4;
      const int row = warpgroup_row + (kTakesTurns ? 0 : warpgroup * num_rows);
      const int owner = shares.owner(row);
      exists_[lower] = warpgroup_row < num_rows;
      is_own_[lower] = owner == work.rank;
      target_[lower] = shared_address(pairs + shares.place(row));
      if (is_own_[lower]) continue;
      target_[lower] = address_in(owner, target_[lower]);
      barrier_ = address_in(owner, shared.sums_full());
    }
  }

  template <typename T, int kColumns>
  __device__ void send(const Sums<T, kColumns>& sums) const {
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      if (!exists_[lower]) continue;
      if (is_own_[lower]) {
#pragma unroll
        for (int group = 0; group < kColumns / 8; ++group) {
          if (group >= num_groups_) continue;
          store_shared(target_[lower] + group * group_size_, sums.pair(group, lower));
        }
      } else {
#pragma unroll
        for (int group = 0; group < kColumns / 8; ++group) {
          if (group >= num_groups_) continue;
          send_in_cluster(target_[lower] + group * group_size_, sums.pair(group, lower), barrier_);
        }
      }
    }
  }

 private:
  const int num_groups_, group_size_;  // of eight rows of x, in bytes of sums
  bool exists_[2], is_own_[2];         // the row, its sums' place
  uint32_t target_[2], barrier_ = 0;
};

}  // namespace atom::ops::device
