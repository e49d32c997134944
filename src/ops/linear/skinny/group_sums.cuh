// Inside the linear for few rows on Hopper: sums of FP8 products whose groups of 128 values of k
// have scales, in x one for each row, in the weight one for each run of rows. What the products of
// a group, a panel, give is scaled as it is added.
#pragma once

#include "ops/linear/skinny/sums.cuh"

namespace atom::ops::device {

// FP8 with scales of groups.
struct GroupedFloat8 {
  Float8 code;
};

template <int kColumns>
class Sums<GroupedFloat8, kColumns> {
 public:
  __device__ Sums(const SkinnyArgs& args, const SkinnyWork& work, const Shared& shared, int half)
      : args_(args),
        work_(work),
        shared_(shared),
        half_(half),
        half_offset_(half * StagePlan(args).half),
        x_offset_(StagePlan(args).x),
        x_stride_(shared.groups_stride() * int{sizeof(float)}),
        x_scales_(shared_address(shared.group_scales()) + threadIdx.x % 4 * 2 * int{sizeof(float)}),
        a_panel_(matrix_offset(StagePlan(args).half_panel)),
        b_panel_(matrix_offset(StagePlan(args).x_panel)) {}

  // Before the kernel before has ended. `chunk`: the first one that is to be added.
  __device__ void begin(int tile, int chunk) {
    const int warp = threadIdx.x / kWarpSize % kWarpgroupWarps;
    const int row = scale_row(tile, half_ * args_.half_rows + warp * 16);
    weight_scales_ = args_.weight_group_scales + row * args_.num_groups;
    first_panel_ = chunk * kPanels;
    scales_ = load_scales(first_panel_);
    next_scales_ = load_scales(first_panel_ + kWarpSize);
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums_[i] = 0;
  }

  // Once, after the kernel before has ended: the scales of x come to shared memory.
  __device__ void share_scales() const {
    constexpr int kWarps = kWarpgroups * kWarpgroupWarps, kRows = kColumns / kWarps;
    const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
    const int first = work_.first_chunk * kPanels;
    const int num_panels = (work_.end_chunk - work_.first_chunk) * kPanels;
    float* const target = shared_.group_scales();
    for (int panel = lane; panel < num_panels; panel += kWarpSize) {
      float values[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = warp + i * kWarps;
        const bool exists = row < args_.params.num_rows && first + panel < args_.num_groups;
        const int64_t index = int64_t{row} * args_.num_groups + first + panel;
        values[i] = exists ? __ldcg(args_.x_group_scales + index) : 0;
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        target[panel * shared_.groups_stride() + warp + i * kWarps] = values[i];
      }
    }
    synchronize_first<kNumConsumers>();
  }

  // Adds the products of a stage, of that index in the ring, and releases it. While a panel's are
  // scaled and added, the next one's are under way.
  template <typename Release>
  __device__ void add(uint32_t stage, int index, int chunk, Release&& release) {
    constexpr int kAhead = 2;
    const uint64_t a = matrix_at(stage + half_offset_), b = matrix_at(stage + x_offset_);
    const int panel = chunk * kPanels;
    if (panel >= first_panel_ + kWarpSize) {
      first_panel_ += kWarpSize;
      scales_ = next_scales_;
      next_scales_ = load_scales(first_panel_ + kWarpSize);
    }
    uint32_t x_scales = x_scales_ + (panel - work_.first_chunk * kPanels) * x_stride_;
    float parts[kAhead][kSums];
#pragma unroll
    for (int i = 0; i < kPanels + kAhead - 1; ++i) {
      if (i < kPanels) begin_panel(parts[i % kAhead], a + i * a_panel_, b + i * b_panel_);
      if (i < kAhead - 1) continue;
      const int done = i - (kAhead - 1);
      float2 scales[kColumns / 8];
      load_factors(
          scales, x_scales, __shfl_sync(0xffffffffu, scales_, panel + done - first_panel_));
      x_scales += x_stride_;
      wait_for_products(min(kAhead, kPanels - done) - 1);
      pin(parts[done % kAhead]);
      if (done == kPanels - 1) release(index);
      add_scaled(parts[done % kAhead], scales);
    }
  }

  // The sums of one of a thread's two weight rows with two rows of x, of the `group`th eight.
  __device__ float2 pair(int group, int lower) const {
    const int i = 4 * group + 2 * lower;
    return make_float2(sums_[i], sums_[i + 1]);
  }

 private:
  static constexpr int kSums = kColumns / 2;  // of a thread, by one instruction
  static constexpr int kSteps = kPanelSize / kStepSize;
  static constexpr int kPanels = skinny_group_panels(kColumns);  // of a stage

  // Which row of scales a row of the tile has; of one that does not exist another one.
  __device__ int scale_row(int tile, int row) const {
    const LinearGpuCall& p = args_.params;
    const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
    const bool in_first = row < args_.half_rows;
    const int feature = tile * (gated ? 1 : 2) * args_.half_rows +
                        (in_first ? row : row - args_.half_rows + args_.half_stride);
    return min(feature, p.out_features - 1) / p.scale_rows;
  }

  // The weight's: each lane has those of one of as many panels from `panel` on.
  __device__ float load_scales(int panel) const {
    const int own = panel + threadIdx.x % kWarpSize;
    return __ldg(weight_scales_ + min(own, args_.num_groups - 1));
  }

  static __device__ void begin_panel(float (&part)[kSums], uint64_t a, uint64_t b) {
    begin_products();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t offset = matrix_offset(i * kStepSize);
      multiply<Float8, kColumns>(part, a + offset, b + offset, i > 0);
    }
    commit_products();
  }

  // A panel's factors: the scales of x times that of the weight.
  static __device__ void load_factors(float2 (&factors)[kColumns / 8],
                                      uint32_t x_scales,
                                      float weight_scale) {
#pragma unroll
    for (int group = 0; group < kColumns / 8; ++group) {
      const float2 x = load_pair(x_scales + group * 8 * int{sizeof(float)});
      factors[group] = make_float2(x.x * weight_scale, x.y * weight_scale);
    }
  }

  __device__ void add_scaled(const float (&part)[kSums], const float2 (&factors)[kColumns / 8]) {
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      sums_[i] = fmaf(part[i], factors[i / 4].x, sums_[i]);
      sums_[i + 1] = fmaf(part[i + 1], factors[i / 4].y, sums_[i + 1]);
    }
  }

  static __device__ float2 load_pair(uint32_t address) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address));
    return pair;
  }

  const SkinnyArgs& args_;
  const SkinnyWork& work_;
  const Shared& shared_;
  const int half_, half_offset_, x_offset_, x_stride_;
  const uint32_t x_scales_;  // in shared memory: the first panel's, of this thread's first two rows
  const uint64_t a_panel_, b_panel_;
  const float* weight_scales_;  // of the warp's rows, which share them
  int first_panel_;             // whose scale the first lane has
  float scales_, next_scales_;
  float sums_[kSums];
};

}  // namespace atom::ops::device
