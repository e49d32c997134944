// Inside the linear for few rows on Hopper: what becomes of a tile's sums.
#pragma once

#include "ops/linear/linear_epilogue.cuh"
#include "ops/linear/skinny/sums.cuh"

namespace atom::ops::device {

// What a thread loads early and the block needs at the end of a tile: the scale and the bias of a
// weight row, and the scale of a row of x.
class Scales {
 public:
  __device__ void load_rows(const SkinnyArgs& args, int tile) {
    const LinearGpuCall& p = args.params;
    const int row = threadIdx.x, tile_rows = 2 * args.half_rows;
    if (row >= tile_rows) return;
    const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
    const int half = row < args.half_rows ? 0 : 1;
    const int feature = tile * (gated ? args.half_rows : tile_rows) + row - half * args.half_rows +
                        half * args.half_stride;
    const bool exists = feature < p.out_features;
    row_scale_ = 1;
    bias_ = 0;
    if (exists && p.weight_scale != nullptr) {
      row_scale_ = p.weight_scale[p.weight_scale_per_row ? feature : 0];
    }
    if (exists && p.bias != nullptr) bias_ = load_as(p.bias_element, p.bias, feature);
  }

  // After the kernel before has ended.
  __device__ void load_x(const SkinnyArgs& args) {
    const LinearGpuCall& p = args.params;
    const int row = threadIdx.x;
    if (p.x_scale != nullptr && row < p.num_rows) {
      x_scale_ = __ldcg(p.x_scale + (p.x_scale_per_row ? row : 0));
    }
  }

  __device__ void share_rows(const SkinnyArgs& args, float* row_scales) const {
    const int row = threadIdx.x, tile_rows = 2 * args.half_rows;
    if (row >= tile_rows) return;
    row_scales[row] = row_scale_;
    row_scales[tile_rows + row] = bias_;
  }
  __device__ void share_x(const SkinnyArgs& args, const Shared& shared) const {
    const int row = threadIdx.x;
    if (row < args.x_rows) shared.x_scales()[row] = x_scale_;
  }

 private:
  float row_scale_ = 1, bias_ = 0, x_scale_ = 1;
};

// Two adjacent outputs of a row of x.
template <typename Y>
__device__ inline void store_pair(Y* y, float first, float second) {
  if constexpr (std::is_same_v<Y, float>) {
    *reinterpret_cast<float2*>(y) = make_float2(first, second);
  } else if constexpr (std::is_same_v<Y, Half>) {
    *reinterpret_cast<__half2*>(y) = __floats2half2_rn(first, second);
  } else {
    *reinterpret_cast<gpu_bfloat162*>(y) = __floats2bfloat162_rn(first, second);
  }
}

// The outputs of a tile that a thread finishes, in units of two adjacent features with two rows of
// x: features from `feature` and pairs of rows of x from `pair` on.
struct Units {
  int feature, feature_step, pair, pair_step;
  int sums, pair_size;  // the first unit's place in a part of the sums; from pair to pair

  __device__ Units(const SkinnyArgs& args, const Shared& shared) {
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
    const int log_pairs = Shares(args).size <= kWarpSize ? 1 : 0;  // of a warp at a time
    const int lanes = kWarpSize >> log_pairs;
    feature = 2 * (lane & (lanes - 1));
    feature_step = 2 * lanes;
    pair = warp << log_pairs | (log_pairs > 0 ? lane / (kWarpSize / 2) : 0);
    pair_step = kNumConsumers / kWarpSize << log_pairs;
    sums = pair * shared.sums_stride() + feature;
    pair_size = pair_step * shared.sums_stride();
  }
};

// What finishes a tile's outputs, those of this block's share of its features.
template <LinearEpilogue kEpilogue, typename Y, int kParts>
class Finisher {
 public:
  __device__ Finisher(const SkinnyArgs& args,
                      const SkinnyWork& work,
                      const Shared& shared,
                      const Units& units,
                      int tile,
                      const float* row_scales)
      : p_(args.params),
        shared_(shared),
        units_(units),
        num_splits_(work.num_splits),
        tile_rows_(2 * args.half_rows),
        num_pairs_((p_.num_rows + 1) / 2) {
    const Shares shares(args);
    const int first = tile * shares.unit + work.rank * shares.size;
    up_sums_ = shares.size;
    up_rows_ = shares.unit;
    row_scales_ = row_scales + work.rank * shares.size;
    y_ = static_cast<Y*>(p_.y) + first;
    num_features_ = min(shares.size, (kGated ? p_.out_features / 2 : p_.out_features) - first);
  }

  __device__ void run() const {
    const bool in_pairs = p_.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(p_.y) % 8 == 0 &&
                          num_features_ % 2 == 0;
    in_pairs ? run<true>() : run<false>();
  }

 private:
  static constexpr bool kGated = kEpilogue == LinearEpilogue::kSiluAndMul;
  static constexpr bool kAdds = kEpilogue == LinearEpilogue::kAddResidual;
  static constexpr int kBatch = 2;  // units at a time

  // A unit's x and y are of the first feature with both rows of x, z and w of the second.
  using Values = float4[kBatch];
  using Residuals = uint2[kBatch];  // as memory holds them, of the first row of x and of the second

  // kInPairs: the outputs of two adjacent features are stored at once.
  template <bool kInPairs>
  __device__ void run() const {
    Residuals residuals;
    load_residuals<kInPairs>(residuals, units_.feature, units_.pair);
    synchronize_first<kNumConsumers>();
    if (num_splits_ > 1) wait_for(shared_.sums_full(), 0);
    int of_feature = units_.sums;
#pragma unroll 1
    for (int i = units_.feature; i < num_features_; i += units_.feature_step) {
      int sums = of_feature;
#pragma unroll 1
      for (int pair = units_.pair; pair < num_pairs_; pair += kBatch * units_.pair_step) {
        if (sums != units_.sums) load_residuals<kInPairs>(residuals, i, pair);
        finish<kInPairs>(residuals, i, pair, sums);
        sums += kBatch * units_.pair_size;
      }
      of_feature += units_.feature_step;
    }
  }

  template <bool kInPairs>
  __device__ void load_residuals(Residuals& residuals, int i, int pair) const {
    if constexpr (kAdds) {
      if (i >= num_features_) return;
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int x_row = 2 * (pair + b * units_.pair_step);
        residuals[b].x = x_row < p_.num_rows ? load<kInPairs>(i, x_row) : 0;
        residuals[b].y = x_row + 1 < p_.num_rows ? load<kInPairs>(i, x_row + 1) : 0;
      }
    }
  }

  // Units of the features from `i` on, whose sums begin at `place`.
  template <bool kInPairs>
  __device__ void finish(const Residuals& residuals, int i, int pair, int place) const {
    Values values{}, ups{};
    sum(values, pair, place);
    if constexpr (kGated) sum(ups, pair, place + up_sums_);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int x_row = 2 * (pair + b * units_.pair_step);
      if (x_row >= p_.num_rows) break;
      const auto x_scale = *reinterpret_cast<const float2*>(shared_.x_scales() + x_row);
      float4 value = scaled(values[b], i, x_scale);
      if constexpr (kGated) value = gate(value, scaled(ups[b], up_rows_ + i, x_scale));
      if constexpr (kAdds) value = add(residuals[b], value);
      store<kInPairs>(i, x_row, value.x, value.z);
      if (x_row + 1 < p_.num_rows) store<kInPairs>(i, x_row + 1, value.y, value.w);
    }
  }

  // Over the parts of this block's k, then of the other one's, in the order of k.
  __device__ void sum(Values& values, int pair, int place) const {
    add_parts(values, pair, place, 0);
    if (num_splits_ > 1) add_parts(values, pair, place, kParts);
  }

  __device__ void add_parts(Values& values, int pair, int place, int first_part) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float2* const sums = shared_.sums(first_part + part) + place;
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (pair + b * units_.pair_step >= num_pairs_) continue;
        const auto more = *reinterpret_cast<const float4*>(sums + b * units_.pair_size);
        values[b].x += more.x;
        values[b].y += more.y;
        values[b].z += more.z;
        values[b].w += more.w;
      }
    }
  }

  __device__ float4 scaled(float4 sum, int row, float2 x_scale) const {
    const auto scale = *reinterpret_cast<const float2*>(row_scales_ + row);
    const auto bias = *reinterpret_cast<const float2*>(row_scales_ + tile_rows_ + row);
    return make_float4(sum.x * (x_scale.x * scale.x) + bias.x,
                       sum.y * (x_scale.y * scale.x) + bias.x,
                       sum.z * (x_scale.x * scale.y) + bias.y,
                       sum.w * (x_scale.y * scale.y) + bias.y);
  }

  static __device__ float gate(float gate, float up) {
    return silu_product(round_to<Y>(gate), round_to<Y>(up));
  }
  static __device__ float4 gate(float4 gates, float4 ups) {
    return make_float4(
        gate(gates.x, ups.x), gate(gates.y, ups.y), gate(gates.z, ups.z), gate(gates.w, ups.w));
  }

  static __device__ float2 to_floats(uint32_t bits) {
    Y pair[2];
    memcpy(pair, &bits, sizeof bits);
    return make_float2(to_float(pair[0]), to_float(pair[1]));
  }

  static __device__ float4 add(uint2 residual, float4 value) {
    const float2 first = to_floats(residual.x), second = to_floats(residual.y);
    return make_float4(first.x + round_to<Y>(value.x),
                       second.x + round_to<Y>(value.y),
                       first.y + round_to<Y>(value.z),
                       second.y + round_to<Y>(value.w));
  }

  __device__ Y* output(int i, int x_row) const {
    return y_ + x_row * static_cast<int64_t>(p_.y_stride) + i;
  }

  template <bool kInPairs>
  __device__ uint32_t load(int i, int x_row) const {
    const Y* const y = output(i, x_row);
    if constexpr (kInPairs) return __ldcg(reinterpret_cast<const uint32_t*>(y));
    const auto* const bits = reinterpret_cast<const uint16_t*>(y);
    const uint32_t second = i + 1 < num_features_ ? __ldcg(bits + 1) : 0;
    return __ldcg(bits) | second << 16;
  }

  template <bool kInPairs>
  __device__ void store(int i, int x_row, float first, float second) const {
    Y* const y = output(i, x_row);
    if constexpr (kInPairs) {
      store_pair(y, first, second);
    } else {
      y[0] = from_float<Y>(first);
      if (i + 1 < num_features_) y[1] = from_float<Y>(second);
    }
  }

  const LinearGpuCall& p_;
  const Shared& shared_;
  const Units& units_;
  const int num_splits_, tile_rows_, num_pairs_;
  int up_sums_, up_rows_;  // from a gate's sums to its up's, and from row to row of the tile
  const float* row_scales_;
  Y* y_;
  int num_features_;  // of the block's share, those that exist
};

template <LinearEpilogue kEpilogue, int kParts, typename... Arguments>
__device__ void finish_tile_as(const SkinnyArgs& args, const Arguments&... arguments) {
  switch (args.params.y_element) {
    case Element::kFloat16:
      return Finisher<kEpilogue, Half, kParts>(args, arguments...).run();
    case Element::kBFloat16:
      return Finisher<kEpilogue, BFloat16, kParts>(args, arguments...).run();
    default:
      if constexpr (kEpilogue == LinearEpilogue::kStore) {
        return Finisher<kEpilogue, float, kParts>(args, arguments...).run();
      }
  }
}

// kParts: of a tile's sums, from one block.
template <int kParts, typename... Arguments>
__device__ void finish_tile(const SkinnyArgs& args, const Arguments&... arguments) {
  switch (args.params.epilogue) {
    case LinearEpilogue::kAddResidual:
      return finish_tile_as<LinearEpilogue::kAddResidual, kParts>(args, arguments...);
    case LinearEpilogue::kSiluAndMul:
      return finish_tile_as<LinearEpilogue::kSiluAndMul, kParts>(args, arguments...);
    default:
      return finish_tile_as<LinearEpilogue::kStore, kParts>(args, arguments...);
  }
}

}  // namespace atom::ops::device
