// Inside the linear for few rows on Hopper: what becomes of a tile's sums.
#pragma once

#include "ops/linear/linear_skinny_sums.cuh"
#include "ops/linear/linear_stream_epilogue.cuh"

namespace atom::ops::device {

// Two adjacent weight rows with two rows of x: x, y of the first row, then z, w of the second.
class Finisher {
 public:
  __device__ Finisher(const SkinnyArgs& args,
                      const SkinnyWork& work,
                      const Shared& shared,
                      int tile,
                      const float* row_scales)
      : p_(args.params),
        shared_(shared),
        row_scales_(row_scales),
        owners_(args),
        rank_(work.rank),
        num_parts_(args.num_parts << args.log_splits),
        tile_rows_(2 * args.half_rows),
        half_rows_(args.half_rows),
        local_pairs_(args.x_rows / 2 >> args.log_splits) {
    const bool gated = p_.epilogue == StreamEpilogue::kSiluAndMul;
    const int tile_features = gated ? half_rows_ : tile_rows_;
    first_feature_ = tile * tile_features;
    num_features_ =
        min(tile_features, (gated ? p_.out_features / 2 : p_.out_features) - first_feature_);
    stores_pairs_ = p_.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(p_.y) % 8 == 0;
  }

  // All of the block's outputs of a tile.
  __device__ void run() const {
    constexpr int kFeatures = 2 * kWarpSize;  // of a warp at a time
    const int lane = threadIdx.x % kWarpSize, num_warps = kNumConsumers / kWarpSize;
    const int groups = (num_features_ + kFeatures - 1) / kFeatures;
    const int num_units = groups * local_pairs_;
    for (int unit = threadIdx.x / kWarpSize; unit < num_units; unit += num_warps) {
      const int local = groups == 1 ? unit : unit / groups;
      const int row = (unit - local * groups) * kFeatures + 2 * lane;
      const int x_row = 2 * owners_.pair(rank_, local);
      if (row >= num_features_ || x_row >= p_.num_rows) continue;
      float4 value = scaled(row, local, x_row);
      if (p_.epilogue == StreamEpilogue::kSiluAndMul) {
        value = gate(value, scaled(row + half_rows_, local, x_row));
      }
      store(x_row, row, value.x, value.z);
      if (x_row + 1 < p_.num_rows) store(x_row + 1, row, value.y, value.w);
    }
  }

 private:
  __device__ float4 scaled(int row, int local, int x_row) const {
    const float2* source = shared_.sums() + local * tile_rows_ + row;
    float4 sum = *reinterpret_cast<const float4*>(source);
    for (int i = 1; i < num_parts_; ++i) {
      source += local_pairs_ * tile_rows_;
      const auto other = *reinterpret_cast<const float4*>(source);
      sum.x += other.x;
      sum.y += other.y;
      sum.z += other.z;
      sum.w += other.w;
    }
    const auto scale = *reinterpret_cast<const float2*>(row_scales_ + row);
    const auto bias = *reinterpret_cast<const float2*>(row_scales_ + tile_rows_ + row);
    const auto x_scale = *reinterpret_cast<const float2*>(shared_.x_scales() + x_row);
    return make_float4(sum.x * (x_scale.x * scale.x) + bias.x,
                       sum.y * (x_scale.y * scale.x) + bias.x,
                       sum.z * (x_scale.x * scale.y) + bias.y,
                       sum.w * (x_scale.y * scale.y) + bias.y);
  }

  __device__ float gate(float gate, float up) const {
    gate = round_as(p_.y_element, gate);
    return gate / (1.0f + __expf(-gate)) * round_as(p_.y_element, up);
  }
  __device__ float4 gate(float4 gates, float4 ups) const {
    return make_float4(
        gate(gates.x, ups.x), gate(gates.y, ups.y), gate(gates.z, ups.z), gate(gates.w, ups.w));
  }

  // Two adjacent outputs of a row.
  __device__ void store(int x_row, int row, float first, float second) const {
    const int64_t index = x_row * p_.y_stride + first_feature_ + row;
    if (p_.epilogue == StreamEpilogue::kAddResidual) {
      first = load_as(p_.y_element, p_.y, index) + round_as(p_.y_element, first);
      if (row + 1 < num_features_) {
        second = load_as(p_.y_element, p_.y, index + 1) + round_as(p_.y_element, second);
      }
    }
    if (stores_pairs_ && row + 1 < num_features_) {
      store_pair(index, first, second);
      return;
    }
    store_as(p_.y_element, p_.y, index, first);
    if (row + 1 < num_features_) store_as(p_.y_element, p_.y, index + 1, second);
  }

  __device__ void store_pair(int64_t index, float first, float second) const {
    switch (p_.y_element) {
      case GpuElement::kFloat16:
        reinterpret_cast<__half2*>(p_.y)[index / 2] = __floats2half2_rn(first, second);
        return;
      case GpuElement::kBFloat16:
        reinterpret_cast<gpu_bfloat162*>(p_.y)[index / 2] = __floats2bfloat162_rn(first, second);
        return;
      default:
        reinterpret_cast<float2*>(p_.y)[index / 2] = make_float2(first, second);
    }
  }

  const LinearStreamParams& p_;
  const Shared& shared_;
  const float* row_scales_;
  const PairOwners owners_;
  const int rank_, num_parts_, tile_rows_, half_rows_, local_pairs_;
  int first_feature_, num_features_;  // of the tile
  bool stores_pairs_;
};

// The scale and the bias of a tile's weight rows.
__device__ inline void load_row_scales(const SkinnyArgs& args, int tile, float* scales) {
  const LinearStreamParams& p = args.params;
  const int tile_rows = 2 * args.half_rows;
  const bool gated = p.epilogue == StreamEpilogue::kSiluAndMul;
  for (int i = threadIdx.x; i < tile_rows; i += kNumConsumers) {
    const int half = i < args.half_rows ? 0 : 1;
    const int feature = tile * (gated ? args.half_rows : tile_rows) + i - half * args.half_rows +
                        half * args.half_stride;
    const bool exists = feature < p.out_features;
    float scale = 1, bias = 0;
    if (exists && p.weight_scale != nullptr) {
      scale = p.weight_scale[p.weight_scale_per_row ? feature : 0];
    }
    if (exists && p.bias != nullptr) bias = load_as(p.bias_element, p.bias, feature);
    scales[i] = scale;
    scales[tile_rows + i] = bias;
  }
}

// After the kernel before has ended.
__device__ inline void load_x_scales(const SkinnyArgs& args, const Shared& shared) {
  const LinearStreamParams& p = args.params;
  for (int i = threadIdx.x; i < args.x_rows; i += kNumConsumers) {
    const bool exists = p.x_scale != nullptr && i < p.num_rows;
    shared.x_scales()[i] = exists ? __ldcg(p.x_scale + (p.x_scale_per_row ? i : 0)) : 1.0f;
  }
}

}  // namespace atom::ops::device
