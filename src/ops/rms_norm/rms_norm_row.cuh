// Inside rms_norm on a GPU: a row in the registers of its threads.
#pragma once

#include "ops/device/elements.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rms_norm/rms_norm_team.cuh"

namespace atom::ops::device::rms_norm {

// What a kernel makes of rows: all that a launch can ask for, or of rows of one head either
// themselves or codes with scales of groups. Code is a fraction then, most of which a kernel that
// is launched for a few rows fetches from memory.
enum class RowResult { kAny, kRows, kGroups };

// A team's row, in registers: x, then what it gives.
template <typename T,
          typename W,
          int kVectors,
          typename TeamOfRow,
          RowResult kResult = RowResult::kAny>
class RowNormOf {
 public:
  static constexpr int kLength = Vector<T>::kLength;
  static constexpr int kFold = TeamOfRow::kFold;
  using Weight = Pack<W, kLength>;

  __device__ explicit RowNormOf(const RmsNormLaunch& p)
      : p_(p), team_{static_cast<int>(p.size)}, row_(team_.row()) {}

  __device__ bool exists() const { return row_ < p_.num_tokens * p_.num_heads; }

  // With few rows, for latency; with many others are waited for, and registers count.
  static constexpr bool kWeightFirst = kFold == 1;
  __device__ void load_weight() {
    if constexpr (kWeightFirst) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) weight_[v] = weight_at(v);
    }
  }

  // Without elements it loads and stores nothing, by the instructions by which it does otherwise.
  __device__ void set_empty(bool is_empty) {
    team_.size = is_empty ? 0 : static_cast<int>(p_.size);
  }

  // With the residual added.
  __device__ void load() {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) value_[v] = x_at(v);
    if (p_.residual == nullptr) return;
    uint4 before[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) before[v] = residual_at(v);
    add(before);
  }

  // Another row of the team; what is loaded of the weight stays.
  __device__ void move_to(int64_t row) {
    row_ = row;
  }
  __device__ bool has(int v) const {
    return team_.has(v);
  }
  // Vectors; 0 where the row has ended, which changes no sum and needs no branch.
  __device__ uint4 x_at(int v) const {
    const auto [token, head] = place();
    const T* x = static_cast<const T*>(p_.x) + token * p_.x_strides[0] + head * p_.x_strides[1];
    return team_.has(v) ? load_bits(x + team_.first_of(v)) : uint4{};
  }
  __device__ uint4 residual_at(int v) const {
    const T* residual = static_cast<const T*>(p_.residual) + row_ * p_.residual_stride;
    return team_.has(v) ? load_bits(residual + team_.first_of(v)) : uint4{};
  }
  // x by other means than load().
  __device__ void set(int v, const uint4& bits) {
    value_[v] = bits;
  }

  // The residual that residual_at() gave.
  __device__ void add(const uint4 (&before)[kVectors]) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) value_[v] = sum_of<T>(value_[v], before[v]);
  }

  __device__ void normalize(float (&scratch)[2][kWarpSize]) {
    float sums[kFold] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float x[kLength];
      to_floats<T>(value_[v], x);
      float& sum = sums[v % kFold];
#pragma unroll
      for (int i = 0; i < kLength; ++i) sum = fmaf(x[i], x[i], sum);
    }
    const float sum = team_.sum(sums, scratch[0]);
    // Behind the sum, so that no thread that is waited for has stores on its way.
    if (p_.residual != nullptr) store_to(static_cast<T*>(p_.residual) + row_ * p_.residual_stride);
    const float mean = sum / static_cast<float>(p_.size);
    const float scale = 1.0f / sqrtf(mean + p_.eps);
    const auto [token, head] = place();
    const int64_t offset = token * p_.out_strides[0] + head * p_.out_strides[1];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      value_[v] = normalized<T, W>(value_[v], scale, kWeightFirst ? weight_[v] : weight_at(v));
    }
    if constexpr (kResult == RowResult::kRows) {
      store_to(static_cast<T*>(p_.out) + offset);
    } else {
      store(offset, scratch[1]);
    }
  }

 private:
  struct Place {
    int64_t token, head;
  };

  // In the format that the launch asks for.
  __device__ void store(int64_t offset, float (&scratch)[kWarpSize]) {
    if (p_.rows != nullptr) store_to(static_cast<T*>(p_.rows) + row_ * p_.rows_stride);
    Float8* codes = static_cast<Float8*>(p_.out) + offset;
    if (kResult == RowResult::kGroups || p_.group_size > 0) {
      store_groups<T>(team_, value_, p_.scales + row_ * (p_.size / kQuantGroupSize), codes);
    } else if (p_.scales != nullptr) {
      LargestMagnitude<T> largest;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) largest.see(value_[v]);
      const float code_scale = scale_of_largest(team_.largest(largest.value(), scratch));
      if (team_.lane() == 0) p_.scales[row_] = code_scale;
      store_codes<T, true>(team_, value_, code_scale, codes);
    } else if (p_.static_scale != nullptr) {
      store_codes<T, false>(team_, value_, *p_.static_scale, codes);
    } else {
      store_to(static_cast<T*>(p_.out) + offset);
    }
  }

  __device__ Place place() const {
    if (kResult != RowResult::kAny || p_.num_heads == 1) return {row_, 0};
    return {row_ / p_.num_heads, row_ % p_.num_heads};
  }

  __device__ Weight weight_at(int v) const {
    if (!team_.has(v)) return {};
    return *reinterpret_cast<const Weight*>(static_cast<const W*>(p_.weight) + team_.first_of(v));
  }

  __device__ void store_to(T* row) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (team_.has(v)) store_bits(row + team_.first_of(v), value_[v]);
    }
  }

  const RmsNormLaunch p_;
  TeamOfRow team_;
  int64_t row_;
  Weight weight_[kWeightFirst ? kVectors : 1];
  uint4 value_[kVectors];
};

template <typename T,
          typename W,
          int kVectors,
          int kFold,
          int kLanes,
          RowResult kResult = RowResult::kAny>
using RowNorm = RowNormOf<T, W, kVectors, Team<T, kFold, kLanes>, kResult>;

}  // namespace atom::ops::device::rms_norm
