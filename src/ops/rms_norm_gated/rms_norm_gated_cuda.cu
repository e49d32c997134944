#include <bit>

#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/device/silu.cuh"
#include "ops/quantize/quantize_device.cuh"
#include "ops/rms_norm_gated/rms_norm_gated_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsPerBlock = kThreads / device::kWarpSize;

// A warp per row.
template <typename T>
__global__ void rms_norm_gated_kernel(RmsNormGatedArgs args, int64_t num_rows) {
  const int lane = threadIdx.x % device::kWarpSize;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / device::kWarpSize;
  if (row >= num_rows) return;
  const int64_t token = row / args.num_heads, head = row % args.num_heads;
  const int64_t first = head * args.size;
  const T* x = static_cast<const T*>(args.x) + token * args.x_stride + first;
  const T* gate = static_cast<const T*>(args.gate) + token * args.gate_stride + first;
  T* out = static_cast<T*>(args.out) + token * args.out_stride + first;
  float squares = 0;
  for (int64_t i = lane; i < args.size; i += device::kWarpSize) {
    const float value = device::to_float(x[i]);
    squares = fmaf(value, value, squares);
  }
  squares = device::reduce_lanes(squares, device::kWarpSize, device::Sum{});
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.size) + args.eps);
  for (int64_t i = lane; i < args.size; i += device::kWarpSize) {
    const float z = device::to_float(gate[i]);
    const float y = device::to_float(x[i]) * scale * args.weight[i];
    out[i] = device::from_float<T>(y * device::silu<device::kSiluFor<T>>(z));
  }
}

// Where codes of a head's groups go.
struct Codes {
  uint8_t* values;
  float* scales;
  int64_t values_stride;
  int64_t num_groups;  // of a token
};

// A vector of a row to each of 2^log_lanes lanes, of which a warp has some. Codes in place of `out`
// where they have values. A step has fewer than 2^32 rows: divisions of 64 bits would take longer
// than the rest.
template <typename T>
__global__ void rms_norm_gated_vector_kernel(RmsNormGatedArgs args,
                                             Codes codes,
                                             uint32_t num_rows,
                                             int log_lanes) {
  constexpr int kLength = device::Vector<T>::kLength;
  device::allow_next_grid();
  const int lanes = 1 << log_lanes;
  const uint32_t row = blockIdx.x * (kThreads >> log_lanes) + (threadIdx.x >> log_lanes);
  // Lanes without a row go along, for the sums.
  const uint32_t read = row < num_rows ? row : num_rows - 1;
  const auto num_heads = static_cast<uint32_t>(args.num_heads);
  const int64_t token = read / num_heads, head = read - read / num_heads * num_heads;
  const int64_t own = (threadIdx.x & (lanes - 1)) * kLength, first = head * args.size + own;
  float weight[kLength];
#pragma unroll
  for (int i = 0; i < kLength; i += 4) {
    const float4 loaded = *reinterpret_cast<const float4*>(args.weight + own + i);
    weight[i] = loaded.x;
    weight[i + 1] = loaded.y;
    weight[i + 2] = loaded.z;
    weight[i + 3] = loaded.w;
  }
  device::wait_for_previous_grid();
  float x[kLength], z[kLength];
  device::to_floats<T>(
      device::load_bits(static_cast<const T*>(args.x) + token * args.x_stride + first), x);
  device::to_floats<T>(
      device::load_bits(static_cast<const T*>(args.gate) + token * args.gate_stride + first), z);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kLength; ++i) squares = fmaf(x[i], x[i], squares);
  squares = device::reduce_lanes(squares, lanes, device::Sum{});
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.size) + args.eps);
#pragma unroll
  for (int i = 0; i < kLength; ++i) {
    x[i] = x[i] * scale * weight[i] * device::silu<device::kSiluFor<T>>(z[i]);
  }
  const uint4 vectors[1] = {device::bits_of<T>(x)};
  if (codes.values == nullptr) {
    if (row >= num_rows) return;
    device::store_bits(static_cast<T*>(args.out) + token * args.out_stride + first, vectors[0]);
    return;
  }
  quantize_groups<T>(
      vectors,
      [&](int, float group_scale) {
        if (row >= num_rows) return;
        codes.scales[token * codes.num_groups + first / kQuantGroupSize] = group_scale;
      },
      [&](int, const device::Pack<device::Float8, kLength>& packed) {
        uint8_t* values = codes.values + token * codes.values_stride + first;
        if (row < num_rows)
          *reinterpret_cast<device::Pack<device::Float8, kLength>*>(values) = packed;
      });
}

bool is_aligned(const void* data, int64_t stride, int64_t length) {
  return reinterpret_cast<uintptr_t>(data) % device::kVectorSize == 0 && stride % length == 0;
}

// How many lanes a row of vectors takes; 0 where vectors do not fit.
int lanes_of(const RmsNormGatedArgs& args, int64_t length) {
  const int64_t lanes = args.size / length;
  const bool fits = args.size % length == 0 && lanes <= device::kWarpSize &&
                    (lanes & (lanes - 1)) == 0 && lanes > 0 &&
                    is_aligned(args.x, args.x_stride, length) &&
                    is_aligned(args.gate, args.gate_stride, length) &&
                    is_aligned(args.out, args.out_stride, length) && is_aligned(args.weight, 0, 1);
  return fits ? static_cast<int>(lanes) : 0;
}

}  // namespace

bool fits_rms_norm_gated_cuda(const RmsNormGatedCall& call) {
  if (!call.quantizes()) return true;
  const QuantizeArgs& codes = call.codes;
  const int64_t length = device::kVectorSize / bytes_of(call.norm.element);
  return codes.is_float8() && codes.group_size == kQuantGroupSize && codes.scales != nullptr &&
         call.norm.size % kQuantGroupSize == 0 && lanes_of(call.norm, length) > 0 &&
         codes.values_stride % length == 0 &&
         reinterpret_cast<uintptr_t>(codes.values) % static_cast<uintptr_t>(length) == 0;
}

void rms_norm_gated_cuda(const RmsNormGatedCall& call, int64_t num_rows, void* queue) {
  const RmsNormGatedArgs& args = call.norm;
  const Codes codes = {
      call.codes.values, call.codes.scales, call.codes.values_stride, call.codes.num_groups()};
  const auto stream = static_cast<gpuStream_t>(queue);
  const auto blocks_of = [](int64_t rows, int64_t rows_per_block) {
    return static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block);
  };
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    const int lanes = lanes_of(args, device::Vector<T>::kLength);
    if (lanes > 0) {
      (void)device::launch(rms_norm_gated_vector_kernel<T>,
                           dim3(blocks_of(num_rows, kThreads / lanes)),
                           dim3(kThreads),
                           0,
                           stream,
                           true,
                           args,
                           codes,
                           static_cast<uint32_t>(num_rows),
                           std::countr_zero(static_cast<unsigned>(lanes)));
    } else {
      rms_norm_gated_kernel<T>
          <<<blocks_of(num_rows, kRowsPerBlock), kThreads, 0, stream>>>(args, num_rows);
    }
  });
  check_gpu_launch("rms_norm_gated");
}

}  // namespace atom::ops
