// The streaming linear for any GPU: a warp per two weight rows, which it reads into registers some
// vectors ahead and multiplies on the ordinary cores. The sum of an output is built in ascending
// vectors per lane, then over the lanes.
#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/linear_stream_cuda.h"
#include "ops/linear/linear_stream_epilogue.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kWarpsPerBlock = 4;
constexpr int kAhead = 4;       // vectors of each weight row under way
constexpr int kRowsAtOnce = 4;  // of x; further rows are further blocks, which find W in the cache

// The elements of a 16-byte vector.
template <typename T>
__device__ void unpack(const uint4& packed, float (&values)[Vector<T>::kLength]) {
  const auto& vector = reinterpret_cast<const Vector<T>&>(packed);
#pragma unroll
  for (int i = 0; i < Vector<T>::kLength; ++i) values[i] = to_float(vector.element[i]);
}

struct WeightVectors {
  uint4 row[2][kAhead];

  // Vector `index` and those a warp's width after it; zeros past the end.
  __device__ void load(const uint4* const (&rows)[2], int index, int count) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int vector = index + a * kWarpSize;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        row[r][a] = vector < count ? rows[r][vector] : make_uint4(0, 0, 0, 0);
      }
    }
  }
};

// One vector of two weight rows with the elements of kRows rows of x beside it.
template <typename W, typename X, int kRows>
__device__ void accumulate(const LinearStreamParams& p,
                           const uint4& low_row,
                           const uint4& high_row,
                           int vector,
                           int first_row,
                           float (&sums)[kRows][2]) {
  constexpr int kLength = Vector<W>::kLength, kPart = Vector<X>::kLength;
  float low[kLength], high[kLength];
  unpack<W>(low_row, low);
  unpack<W>(high_row, high);
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    // A row past the last repeats it and is not stored: branches here would multiply the code.
    const int row = min(first_row + m, p.num_rows - 1);
    const X* source = static_cast<const X*>(p.x) + row * p.x_stride + int64_t{vector} * kLength;
#pragma unroll
    for (int part = 0; part < kLength; part += kPart) {
      float x[kPart];
      unpack<X>(*reinterpret_cast<const uint4*>(source + part), x);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        sums[m][0] = fmaf(low[part + i], x[i], sums[m][0]);
        sums[m][1] = fmaf(high[part + i], x[i], sums[m][1]);
      }
    }
  }
}

template <typename W, typename X, int kRows>
__global__ void __launch_bounds__(kWarpsPerBlock* kWarpSize)
    stream_linear_portable(const LinearStreamParams p) {
  const int lane = threadIdx.x % kWarpSize;
  const int pair = blockIdx.x * kWarpsPerBlock + threadIdx.x / kWarpSize;
  const bool gated = p.epilogue == StreamEpilogue::kSiluAndMul;
  const int half = p.out_features / 2;
  const int first = gated ? pair : 2 * pair, second = gated ? half + pair : 2 * pair + 1;
  const bool exists = gated ? pair < half : first < p.out_features;
  const bool has_second = gated || second < p.out_features;
  const int count = p.in_features / Vector<W>::kLength;
  const auto row_of = [&](int feature) {
    return reinterpret_cast<const uint4*>(static_cast<const W*>(p.weight) +
                                          int64_t{feature} * p.in_features);
  };
  const uint4* const rows[2] = {row_of(first), row_of(has_second ? second : first)};

  WeightVectors weight, next;
  if (exists) weight.load(rows, lane, count);
  wait_for_previous_grid();
  allow_next_grid();
  if (!exists) return;
  const int first_row = blockIdx.y * kRows;
  float sums[kRows][2] = {};
  for (int index = lane; index < count; index += kAhead * kWarpSize) {
    next.load(rows, index + kAhead * kWarpSize, count);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int vector = index + a * kWarpSize;
      if (vector >= count) break;
      accumulate<W, X, kRows>(p, weight.row[0][a], weight.row[1][a], vector, first_row, sums);
    }
    weight = next;
  }
  // Lane m keeps the sums of row m.
  float low = 0, high = 0;
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    const float row_low = reduce_lanes(sums[m][0], kWarpSize, Sum());
    const float row_high = reduce_lanes(sums[m][1], kWarpSize, Sum());
    low = lane == m ? row_low : low;
    high = lane == m ? row_high : high;
  }
  const int row = first_row + lane;
  if (lane >= kRows || row >= p.num_rows) return;
  Output(p, row, first).store(p, low, high);
  if (!gated && has_second) Output(p, row, second).store(p, high, 0.0f);
}

template <typename W, typename X>
gpuError_t launch_typed(const LinearStreamParams& p, gpuStream_t stream) {
  const bool gated = p.epilogue == StreamEpilogue::kSiluAndMul;
  const int pairs = gated ? p.out_features / 2 : (p.out_features + 1) / 2;
  const auto start = [&](auto* kernel, int rows) {
    return launch(
        kernel,
        dim3((pairs + kWarpsPerBlock - 1) / kWarpsPerBlock, (p.num_rows + rows - 1) / rows),
        dim3(kWarpsPerBlock * kWarpSize),
        0,
        stream,
        p.overlaps_previous,
        p);
  };
  return p.num_rows == 1 ? start(&stream_linear_portable<W, X, 1>, 1)
                         : start(&stream_linear_portable<W, X, kRowsAtOnce>, kRowsAtOnce);
}

bool is_16_bit(GpuElement element) {
  return element == GpuElement::kBFloat16 || element == GpuElement::kFloat16;
}

bool is_vector_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0;
}

}  // namespace

bool supports_linear_stream(const LinearStreamParams& p) {
  const bool float8 = p.weight_element == GpuElement::kFloat8E4M3;
  const bool inputs = float8 ? p.x_element != GpuElement::kFloat32
                             : is_16_bit(p.weight_element) && p.x_element == p.weight_element;
  const bool gated = p.epilogue == StreamEpilogue::kSiluAndMul;
  const bool output = p.y_element == GpuElement::kFloat32 ? p.epilogue == StreamEpilogue::kStore
                                                          : is_16_bit(p.y_element);
  return inputs && output && p.num_rows >= 1 && p.num_rows <= kMaxStreamRows &&
         p.out_features >= 1 && (!gated || p.out_features % 2 == 0) && p.in_features >= 1 &&
         p.in_features * gpu_element_size(p.weight_element) % kVectorSize == 0 &&
         p.x_stride * gpu_element_size(p.x_element) % kVectorSize == 0 && is_vector_aligned(p.x) &&
         is_vector_aligned(p.weight);
}

gpuError_t launch_linear_stream(const LinearStreamParams& p, gpuStream_t stream) {
  if (!supports_linear_stream(p)) return ATOM_GPU(ErrorInvalidValue);
  if (p.weight_element == GpuElement::kBFloat16) return launch_typed<BFloat16, BFloat16>(p, stream);
  if (p.weight_element == GpuElement::kFloat16) return launch_typed<Half, Half>(p, stream);
  if (p.x_element == GpuElement::kBFloat16) return launch_typed<Float8, BFloat16>(p, stream);
  if (p.x_element == GpuElement::kFloat16) return launch_typed<Float8, Half>(p, stream);
  return launch_typed<Float8, Float8>(p, stream);
}

}  // namespace atom::ops
