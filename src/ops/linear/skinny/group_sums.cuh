// Inside the linear for few rows on Hopper: sums of FP8 products whose groups of 128 values of k
// have scales, in x one for each row, in the weight one for each run of rows. What the products of
// a group give is scaled as it is added.
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
        a_panel_(matrix_offset(StagePlan(args).half_panel)),
        b_panel_(matrix_offset(StagePlan(args).x_panel)),
        x_scales_(shared_address(shared.group_scales()) +
                  threadIdx.x % 4 * 2 * int{sizeof(float)}) {}

  // Before the kernel before has ended. `chunk`: the first one that is to be added.
  __device__ void begin(int tile, int chunk) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums_[i] = 0;
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize % kWarpgroupWarps;
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int row = half_ * args_.half_rows + warp * 16 + lower * 8 + lane / 4;
      weight_scales_[lower] = args_.weight_group_scales + scale_row(tile, row) * args_.num_groups;
    }
    load_scales(chunk);
  }

  // Once, after the kernel before has ended: the scales of x come to shared memory.
  __device__ void share_scales() const {
    constexpr int kBatch = 8;
    const int stride = shared_.groups_stride(), first = work_.first_chunk * args_.num_panels;
    const int num_panels = (work_.end_chunk - work_.first_chunk) * args_.num_panels;
    const int count = num_panels * args_.x_rows;
    float* const target = shared_.group_scales();
    for (int begin = threadIdx.x; begin < count; begin += kBatch * kNumConsumers) {
      float values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int index = begin + i * kNumConsumers, row = index / num_panels;
        const int group = first + index - row * num_panels;
        const bool exists =
            index < count && row < args_.params.num_rows && group < args_.num_groups;
        values[i] = exists ? __ldcg(args_.x_group_scales + row * args_.num_groups + group) : 0;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int index = begin + i * kNumConsumers, row = index / num_panels;
        if (index < count) target[(index - row * num_panels) * stride + row] = values[i];
      }
    }
    synchronize_first<kNumConsumers>();
  }

  // Adds the products of a stage.
  __device__ void add(uint32_t stage, int chunk) {
    const uint64_t a = matrix_at(stage + half_offset_);
    const uint64_t b = matrix_at(stage + StagePlan(args_).x);
    const int panel = (chunk - work_.first_chunk) * args_.num_panels;
    const uint32_t x_scales = x_scales_ + panel * shared_.groups_stride() * int{sizeof(float)};
    switch (args_.num_panels) {
      case 4:
        if constexpr (kMaxPanels >= 4) return add_panels<4>(a, b, x_scales, chunk);
        return;
      case 2:
        return add_panels<2>(a, b, x_scales, chunk);
      default:
        return add_panels<1>(a, b, x_scales, chunk);
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
  static constexpr int kMaxPanels = kColumns > 32 ? 2 : 4;  // the host keeps to it

  // Which row of scales a row of the tile has; of one that does not exist another one.
  __device__ int scale_row(int tile, int row) const {
    const LinearGpuCall& p = args_.params;
    const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
    const int in_half = row < args_.half_rows ? row : row - args_.half_rows;
    const int feature = tile * (gated ? 1 : 2) * args_.half_rows + in_half +
                        (row < args_.half_rows ? 0 : args_.half_stride);
    return min(feature, p.out_features - 1) / p.scale_rows;
  }

  // Of the weight: those of a stage are loaded while the one before is waited for.
  __device__ void load_scales(int chunk) {
#pragma unroll
    for (int i = 0; i < kMaxPanels; ++i) {
      if (i >= args_.num_panels) continue;
      const int group = min(chunk * args_.num_panels + i, args_.num_groups - 1);
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        next_scales_[lower][i] = __ldg(weight_scales_[lower] + group);
      }
    }
  }

  // While a panel's products are added, the next one's are under way.
  template <int kPanels>
  __device__ void add_panels(uint64_t a, uint64_t b, uint32_t x_scales, int chunk) {
    constexpr int kAhead = 2;
    float scales[2][kPanels];
#pragma unroll
    for (int i = 0; i < kPanels; ++i) {
      scales[0][i] = next_scales_[0][i];
      scales[1][i] = next_scales_[1][i];
    }
    load_scales(chunk + (args_.takes_turns ? kWarpgroups : 1));
    float parts[kAhead][kSums];
#pragma unroll
    for (int i = 0; i < kPanels + kAhead - 1; ++i) {
      if (i < kPanels) begin_panel(parts[i % kAhead], a + i * a_panel_, b + i * b_panel_);
      if (i < kAhead - 1) continue;
      const int done = i - (kAhead - 1);
      wait_for_products(min(kAhead, kPanels - done) - 1);
      pin(parts[done % kAhead]);
      add_scaled(parts[done % kAhead], scales[0][done], scales[1][done], x_scales);
      x_scales += shared_.groups_stride() * int{sizeof(float)};
    }
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

  __device__ void add_scaled(const float (&part)[kSums],
                             float upper,
                             float lower,
                             uint32_t x_scales) {
#pragma unroll
    for (int group = 0; group < kColumns / 8; ++group) {
      const float2 scale = load_pair(x_scales + group * 8 * int{sizeof(float)});
      const int i = 4 * group;
      sums_[i] = fmaf(part[i], upper * scale.x, sums_[i]);
      sums_[i + 1] = fmaf(part[i + 1], upper * scale.y, sums_[i + 1]);
      sums_[i + 2] = fmaf(part[i + 2], lower * scale.x, sums_[i + 2]);
      sums_[i + 3] = fmaf(part[i + 3], lower * scale.y, sums_[i + 3]);
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
  const int half_, half_offset_;
  const uint64_t a_panel_, b_panel_;
  const uint32_t x_scales_;  // in shared memory, of this thread's first pair of rows of x
  const float* weight_scales_[2];
  float next_scales_[2][kMaxPanels];
  float sums_[kSums];
};

}  // namespace atom::ops::device
