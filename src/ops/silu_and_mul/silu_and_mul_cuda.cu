#include <algorithm>

#include "ops/device/elements.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/silu_and_mul/silu_and_mul_cuda.h"
#include "ops/silu_and_mul/silu_and_mul_device.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kMaxThreads = 512;
constexpr int kMaxRowThreads = 1024;

// Gate and up of a row, and their product.
template <typename T>
struct Source {
  const T* gate_up;
  int64_t stride;
  int64_t size;  // from gate to up

  static __device__ uint4 products(const uint4& gates, const uint4& ups) {
    constexpr int kLength = Vector<T>::kLength;
    float gate[kLength], up[kLength];
    to_floats<T>(gates, gate);
    to_floats<T>(ups, up);
#pragma unroll
    for (int i = 0; i < kLength; ++i) gate[i] = silu_product(gate[i], up[i]);
    return bits_of<T>(gate);
  }
  __device__ const T* gates(int64_t row, int64_t first) const {
    return gate_up + row * stride + first;
  }
  __device__ float load_one(int64_t row, int64_t i) const {
    const T* gate = gates(row, i);
    return round_to<T>(silu_product(to_float(*gate), to_float(gate[size])));
  }
};

// FP8 with one of the scales, else of the source's type.
struct Target {
  void* out;
  int64_t stride;
  float* scales;  // of rows or, with groups, [rows, size / 128]
  const float* static_scale;
  bool has_groups;

  __host__ __device__ bool is_float8() const {
    return scales != nullptr || static_scale != nullptr;
  }
};

// Vectors of a row, kCount of them `step` elements apart.
template <typename T, bool kBounded, int kCount>
__device__ void store_codes(const Target& target,
                            int64_t row,
                            const uint4 (&products)[kCount],
                            float scale,
                            int64_t first,
                            int64_t step,
                            int64_t size) {
  using Codes = Pack<Float8, Vector<T>::kLength>;
  Float8* out = static_cast<Float8*>(target.out) + row * target.stride;
  quantize_vectors<T, kBounded>(products, scale, [&](int v, const Codes& codes) {
    if (first + v * step < size) *reinterpret_cast<Codes*>(out + first + v * step) = codes;
  });
}

// A part of one row per block; nothing depends on the rest of the row, but on that of a group,
// which neighboring lanes have.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    map_vectors(const Source<T> source, const Target target, int64_t size) {
  constexpr int kLength = Vector<T>::kLength;
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t row = blockIdx.y;
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kLength;
  const bool exists = first < size;
  if (!exists && !target.has_groups) return;
  const uint4 gates = exists ? load_bits(source.gates(row, first)) : uint4{};
  const uint4 ups = exists ? load_bits(source.gates(row, first) + size) : uint4{};
  const uint4 products[1] = {source.products(gates, ups)};
  if (target.has_groups) {
    float* scales = target.scales + row * (size / kQuantGroupSize);
    Float8* out = static_cast<Float8*>(target.out) + row * target.stride;
    quantize_groups<T>(
        products,
        [&](int, float scale) {
          if (exists) scales[first / kQuantGroupSize] = scale;
        },
        [&](int, const Pack<Float8, kLength>& codes) {
          if (exists) *reinterpret_cast<Pack<Float8, kLength>*>(out + first) = codes;
        });
  } else if (target.is_float8()) {
    store_codes<T, false>(target, row, products, *target.static_scale, first, 0, size);
  } else {
    store_bits(static_cast<T*>(target.out) + row * target.stride + first, products[0]);
  }
}

// A row per block, in registers while its largest value is found.
template <typename T, int kVectors>
__global__ void __launch_bounds__(kMaxRowThreads)
    map_rows(const Source<T> source, const Target target, int64_t size) {
  constexpr int kLength = Vector<T>::kLength;
  __shared__ float scratch[kWarpSize];
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t row = blockIdx.x;
  const int64_t first = int64_t{threadIdx.x} * kLength, step = int64_t{blockDim.x} * kLength;
  // Where the row has ended gates, and so products, are 0.
  uint4 products[kVectors], ups[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const T* gates = source.gates(row, first + v * step);
    const bool exists = first + v * step < size;
    products[v] = exists ? load_bits(gates) : uint4{};
    ups[v] = exists ? load_bits(gates + size) : uint4{};
  }
  LargestMagnitude<T> largest;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    products[v] = source.products(products[v], ups[v]);
    largest.see(products[v]);
  }
  const float scale = scale_of_largest(reduce_block(largest.value(), scratch, Largest()));
  if (threadIdx.x == 0) target.scales[row] = scale;
  store_codes<T, true>(target, row, products, scale, first, step, size);
}

// Any length and alignment: a row per block, element by element.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    map_any(const Source<T> source, const Target target, int64_t size) {
  __shared__ float scratch[kWarpSize];
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t row = blockIdx.x;
  if (target.has_groups) {
    quantize_groups_of_row(size,
                           target.scales + row * (size / kQuantGroupSize),
                           static_cast<Float8*>(target.out) + row * target.stride,
                           [&](int64_t i) { return source.load_one(row, i); });
    return;
  }
  float scale = 1.0f;
  if (target.scales != nullptr) {
    float largest = 0;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      largest = fmaxf(largest, fabsf(source.load_one(row, i)));
    }
    scale = scale_of_largest(reduce_block(largest, scratch, Largest()));
    if (threadIdx.x == 0) target.scales[row] = scale;
  } else if (target.static_scale != nullptr) {
    scale = *target.static_scale;
  }
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
    const float value = source.load_one(row, i);
    if (target.is_float8()) {
      static_cast<Float8*>(target.out)[row * target.stride + i] = float8_code(value, scale);
    } else {
      static_cast<T*>(target.out)[row * target.stride + i] = from_float<T>(value);
    }
  }
}

template <typename T>
bool is_vector_aligned(const Source<T>& source, const Target& target, int64_t size) {
  constexpr int64_t kLength = Vector<T>::kLength;
  const int64_t out_bytes = target.is_float8() ? kLength : kVectorSize;
  return size % kLength == 0 && source.stride % kLength == 0 && target.stride % kLength == 0 &&
         reinterpret_cast<uintptr_t>(source.gate_up) % kVectorSize == 0 &&
         reinterpret_cast<uintptr_t>(target.out) % out_bytes == 0;
}

// Rows that get as many threads as there are, for latency.
constexpr int64_t kFewRows = 132;
constexpr int64_t kMaxGridY = 65535;

// A row's result does not depend on how it is cut: only its largest value joins elements.
template <typename T>
gpuError_t launch_map(const Source<T>& source,
                      const Target& target,
                      int64_t num_tokens,
                      int64_t size,
                      bool overlaps_previous,
                      gpuStream_t stream) {
  overlaps_previous = overlaps_previous && num_tokens < kManyRows;
  const auto start = [&](auto* kernel, dim3 grid, int64_t threads) {
    return launch(kernel,
                  grid,
                  dim3(static_cast<unsigned>(threads)),
                  0,
                  stream,
                  overlaps_previous,
                  source,
                  target,
                  size);
  };
  const auto whole_warps = [](int64_t threads) {
    return std::min<int64_t>(kMaxThreads, (threads + kWarpSize - 1) / kWarpSize * kWarpSize);
  };
  const int64_t vectors = size / Vector<T>::kLength;
  const bool reduces = target.scales != nullptr && !target.has_groups;
  if (!is_vector_aligned(source, target, size) ||
      vectors > (reduces ? 4 * kMaxRowThreads : int64_t{1} << 30)) {
    return start(&map_any<T>, dim3(static_cast<unsigned>(num_tokens)), whole_warps(size));
  }
  if (reduces) {
    const bool few = num_tokens <= kFewRows && vectors <= 2 * kMaxRowThreads;
    const int64_t per_thread = few ? 2 : 4;
    const int64_t threads = (vectors + per_thread - 1) / per_thread;
    return start(few ? &map_rows<T, 2> : &map_rows<T, 4>,
                 dim3(static_cast<unsigned>(num_tokens)),
                 (threads + kWarpSize - 1) / kWarpSize * kWarpSize);
  }
  const int64_t threads = std::min<int64_t>(256, whole_warps(vectors));
  const int64_t blocks = (vectors + threads - 1) / threads;
  for (int64_t begin = 0; begin < num_tokens; begin += kMaxGridY) {
    const int64_t rows = std::min(kMaxGridY, num_tokens - begin);
    Source<T> part_source = source;
    Target part_target = target;
    part_source.gate_up += begin * source.stride;
    part_target.out = static_cast<char*>(target.out) +
                      begin * target.stride * (target.is_float8() ? 1 : int64_t{sizeof(T)});
    if (target.has_groups) part_target.scales += begin * (size / kQuantGroupSize);
    const gpuError_t error =
        launch(&map_vectors<T>,
               dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(rows)),
               dim3(static_cast<unsigned>(threads)),
               0,
               stream,
               overlaps_previous,
               part_source,
               part_target,
               size);
    if (error != ATOM_GPU(Success)) return error;
  }
  return ATOM_GPU(Success);
}

template <typename Launch>
gpuError_t launch_element(Element element, Launch&& launch_as) {
  switch (element) {
    case Element::kFloat32:
      return launch_as(float{});
    case Element::kFloat16:
      return launch_as(Half{});
    default:
      return launch_as(BFloat16{});
  }
}

}  // namespace

bool supports_silu_and_mul_gpu(const SiluAndMulLaunch& p) {
  const bool has_whole_groups =
      p.scales != nullptr && p.group_size == kQuantGroupSize && p.size % kQuantGroupSize == 0;
  return p.element != Element::kFloat8E4M3 && p.size >= 1 &&
         (p.group_size == 0 || has_whole_groups);
}

gpuError_t launch_silu_and_mul(const SiluAndMulLaunch& p, gpuStream_t stream) {
  if (!supports_silu_and_mul_gpu(p)) return ATOM_GPU(ErrorInvalidValue);
  if (p.num_tokens == 0) return ATOM_GPU(Success);
  const Target target{p.out, p.out_stride, p.scales, p.static_scale, p.group_size > 0};
  return launch_element(p.element, [&](auto element) {
    using T = decltype(element);
    const Source<T> source{static_cast<const T*>(p.gate_up), p.gate_up_stride, p.size};
    return launch_map(source, target, p.num_tokens, p.size, p.overlaps_previous, stream);
  });
}

}  // namespace atom::ops
