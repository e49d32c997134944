// The variants of linear that are kernels of ours for Hopper.
#include <algorithm>

#include "ops/linear/blocks/blocks_cuda.h"
#include "ops/linear/linear_gpu_call.h"
#include "ops/linear/linear_variants.h"
#include "ops/linear/narrow/narrow_cuda.h"
#include "ops/linear/ordered/ordered_sm90.h"
#include "ops/linear/skinny/skinny_cuda.h"
#include "ops/linear/split_k/split_k_cuda.h"
#include "ops/linear/stream/stream_sm90.h"
#include "ops/linear/wgmma/wgmma_cuda.h"
#include "tensor/device_capability.h"
#include "tensor/element_of.h"
#include "tensor/gpu_check.h"

namespace atom::ops {
namespace {

// That "skinny" takes in 16 bits, and in FP8 with scales of groups.
constexpr int64_t kMostSkinnyRows = 64;

const float* scale_data(const Tensor& scales) {
  return scales.defined() ? static_cast<const float*>(scales.raw_data()) : nullptr;
}

bool is_per_row(const Tensor& scales) {
  return scales.defined() && scales.num_elements() > 1;
}

LinearGpuCall gpu_call(const LinearCall& call) {
  LinearGpuCall params;
  params.x = call.x.raw_data();
  params.weight = call.weight.data.raw_data();
  params.x_scale = scale_data(call.x_scales);
  params.weight_scale = scale_data(call.weight.scales);
  params.x_scale_per_row = is_per_row(call.x_scales);
  params.weight_scale_per_row = is_per_row(call.weight.scales);
  params.y = call.y.raw_data();
  params.x_stride = call.x.stride(0);
  params.y_stride = call.y.stride(0);
  params.num_rows = static_cast<int32_t>(std::min<int64_t>(call.x.size(0), INT32_MAX));
  params.out_features = static_cast<int32_t>(call.weight.out_features);
  params.in_features = static_cast<int32_t>(call.weight.in_features);
  params.x_element = stored_element_of(call.x.dtype());
  params.weight_element = stored_element_of(call.weight.dtype());
  params.y_element = stored_element_of(call.y.dtype());
  if (call.bias.defined()) {
    params.bias = call.bias.raw_data();
    params.bias_element = stored_element_of(call.bias.dtype());
  }
  if (call.weight.has_groups()) {
    params.group_size = static_cast<int32_t>(call.weight.group_size);
    params.scale_rows = static_cast<int32_t>(call.weight.scale_rows);
  }
  if (call.is_gated) params.epilogue = LinearEpilogue::kSiluAndMul;
  return params;
}

bool on_hopper() {
  return is_hopper({DeviceType::kCuda, 0});
}

// The rows up to which each is used, measured on an H200 on the linears of an 8B layer, chained
// with overlap (percent of the read bandwidth; "library" is cuBLASLt, in FP8 without the pass over
// its sums that one scale per row needs):
//                   rows       1     8    16    32    48    64
//   bfloat16   stream         95    91    74
//              skinny         93    93    92    88    85    82
//              library        81    80    80    78    76    76
//   FP8        stream         79    74    52
//              skinny         87    86    83    77    67    66
//              library        71    72    70    69    67    64
// At 64 rows the library takes 75 us a layer in FP8 without its pass, skinny 72.
int64_t max_stream_rows(const LinearCall& call) {
  // An FP8 weight with wider activations is nothing that the others take.
  if (call.weight.dtype() != call.x.dtype()) return kMaxStreamRows;
  if (call.weight.dtype() != DType::kFloat8E4M3) return 4;
  return call.y.dtype() == DType::kFloat32 ? 8 : 0;
}

int64_t max_skinny_rows(const LinearCall& call) {
  constexpr int64_t kManyFeatures = 32768;
  if (call.weight.dtype() != DType::kFloat8E4M3 || call.weight.has_groups()) return kMostSkinnyRows;
  const bool needs_pass = is_per_row(call.x_scales) || is_per_row(call.weight.scales);
  return needs_pass && call.weight.out_features <= kManyFeatures ? 64 : 32;
}

// Up to 256 rows multiprocessors have hardly more than one tile each, of a size that fits the
// shape, or a part of its k. So "blocks" is ahead of the library, whose scales of x a kernel brings
// into another order, but for the largest: of DeepSeek-V3's output 128 rows take 37.8 and 43.0 us,
// 192 rows 63.9 and 62.2, and 256 rows 64.8 and 53.6; of Llama-8B's down 256 rows 32.8 and 33.9.
bool has_tile_for_each(const LinearCall& call) {
  constexpr int64_t kManyFlops = int64_t{40} << 30;
  return call.x.size(0) > kMostSkinnyRows && call.x.size(0) <= kMaxFewLinearBlocksRows &&
         !call.is_gated && linear_work(call).flops < kManyFlops;
}

int num_multiprocessors() {
  static const int count = device_facts(DeviceType::kCuda)->front().num_multiprocessors;
  return count;
}

LinearBlocksTuning divided_tuning(const LinearCall& call) {
  return linear_blocks_divided_tuning(linear_blocks_shape(gpu_call(call)), num_multiprocessors());
}

}  // namespace

bool fits_linear_stream(const LinearCall& call) {
  static const bool hopper = on_hopper();
  return hopper && call.x.size(0) <= max_stream_rows(call) && call.x.dtype() != DType::kFloat32 &&
         call.weight.layout == WeightLayout::kRowMajor &&
         supports_linear_stream_sm90(gpu_call(call));
}

int64_t max_fast_float8_rows() {
  // At 16 rows "stream" reads FP8 at 52 % of the bandwidth, "skinny" bfloat16 at 92.
  constexpr int64_t kMostRows = 8;
  static const bool hopper = on_hopper();
  return hopper ? kMostRows : 0;
}

void linear_stream(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(
      launch_linear_stream_sm90(gpu_call(call), static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_linear_narrow(const LinearCall& call) {
  // Where tiles of x and of the weight are read again and again, the second-level cache bounds what
  // is more than this.
  constexpr int64_t kMostFeatures = 640, kMostTraffic = int64_t{16} << 20;
  static const bool hopper = on_hopper();
  if (!hopper || call.is_gated || call.weight.layout != WeightLayout::kRowMajor ||
      call.weight.out_features > kMostFeatures || call.x.size(0) > INT32_MAX) {
    return false;
  }
  const LinearGpuCall params = gpu_call(call);
  return supports_linear_narrow(params) && linear_narrow_traffic(params) <= kMostTraffic;
}

void linear_narrow(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(
      launch_linear_narrow(gpu_call(call), static_cast<gpuStream_t>(stream.queue().handle())));
}

// Where "skinny" multiplies by instructions of 64 rows of x. Microseconds behind a kernel that
// writes x, by "skinny" and by "split-k", on an H200:
//                            rows       16        32         64
//   Qwen3-30B    output, 4 parts   3.1, 3.3  4.0, 3.7   7.0, 4.2
//                qkv, 2 parts      3.0, 3.7  3.9, 4.1   6.2, 4.9
//   Qwen3-Next   qkvz              5.6, 6.4  6.4, 6.7  10.1, 7.4
//   Llama-8B     output, 2 parts   3.2, 5.7  4.2, 5.9   7.0, 6.0
bool fits_linear_split_k(const LinearCall& call) {
  constexpr int64_t kFewestRows = 33, kFewestRowsInQuarters = 17;
  static const bool hopper = on_hopper();
  const int64_t num_rows = call.x.size(0);
  if (!hopper || num_rows < kFewestRowsInQuarters || num_rows > kMaxSplitKRows || call.is_gated ||
      call.weight.layout != WeightLayout::kRowMajor) {
    return false;
  }
  const LinearGpuCall params = gpu_call(call);
  if (!supports_linear_split_k(params)) return false;
  const int parts = linear_split_k_tuning(params, num_multiprocessors()).parts;
  return parts == 4 || (parts > 0 && num_rows >= kFewestRows);
}

void linear_split_k(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  const LinearGpuCall params = gpu_call(call);
  GPU_CHECK(launch_linear_split_k(params,
                                  linear_split_k_tuning(params, num_multiprocessors()),
                                  static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_linear_skinny(const LinearCall& call) {
  static const bool hopper = on_hopper();
  return hopper && call.x.size(0) <= max_skinny_rows(call) &&
         call.weight.layout == WeightLayout::kRowMajor && supports_linear_skinny(gpu_call(call));
}

void linear_skinny(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_linear_skinny(
      gpu_call(call), nullptr, static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_linear_blocks(const LinearCall& call) {
  static const bool hopper = on_hopper();
  return hopper && call.x.size(0) <= INT32_MAX && call.weight.layout == WeightLayout::kRowMajor &&
         supports_linear_blocks(gpu_call(call));
}

bool fits_linear_blocks_divided(const LinearCall& call) {
  return has_tile_for_each(call) && fits_linear_blocks(call) && divided_tuning(call).parts > 1;
}

void linear_blocks_divided(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  const LinearBlocksTuning tuning = divided_tuning(call);
  GPU_CHECK(launch_linear_blocks(
      gpu_call(call), &tuning, static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_library_blocks(const LinearCall& call) {
  static const bool hopper = on_hopper();
  if (!hopper || call.x.size(0) <= kMostSkinnyRows || has_tile_for_each(call)) return false;
  // Smaller products are as fast by "blocks", or faster: on an H200 Qwen3-30B's qkv of 1024 rows
  // takes 34.8 us by it and 32.0 by the library, DeepSeek-V3's output of 4096 rows 962 and 770.
  constexpr int64_t kFewFlops = int64_t{7} << 30;
  if (!call.is_gated) return linear_work(call).flops >= kFewFlops && fits_cublaslt(call);
  // What is not activated as it is summed up is stored and loaded once more.
  constexpr int64_t kManyFlops = int64_t{500} << 30;
  const Tensor product = Tensor::meta({call.x.size(0), call.weight.out_features}, call.y.dtype());
  return linear_work(call).flops >= kManyFlops &&
         fits_cublaslt({call.x, call.weight, call.bias, product, call.x_scales});
}

void linear_blocks(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_linear_blocks(
      gpu_call(call), nullptr, static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_linear_wgmma(const LinearCall& call) {
  // The gate and up of an 8B layer on an H200 at 1024, 2048 and 8192 rows: 348, 718 and 2837 us, by
  // cuBLASLt and the activation's kernel 366, 738 and 2960; with fewer rows the library is ahead.
  constexpr int64_t kMinGatedRows = 1024;
  static const bool hopper = on_hopper();
  return hopper && call.x.size(0) >= (call.is_gated ? kMinGatedRows : 1) &&
         call.x.size(0) <= INT32_MAX && call.weight.layout == WeightLayout::kRowMajor &&
         supports_linear_wgmma(gpu_call(call));
}

void linear_wgmma(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_linear_wgmma(gpu_call(call), static_cast<gpuStream_t>(stream.queue().handle())));
}

bool fits_linear_ordered(const LinearCall& call) {
  if (call.weight.layout != WeightLayout::kRowMajor ||
      !supports_linear_ordered_sm90(gpu_call(call))) {
    return false;
  }
  if (!call.is_gated) return admits_linear_ordered(call);
  // The activation's kernel makes the codes of the next linear too: nothing is saved without it.
  if (call.weight.dtype() == DType::kFloat8E4M3) return false;
  const Tensor product = Tensor::meta({call.x.size(0), call.weight.out_features}, call.y.dtype());
  return admits_linear_ordered({call.x, call.weight, call.bias, product, call.x_scales});
}

void linear_ordered(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  GPU_CHECK(launch_linear_ordered_sm90(gpu_call(call),
                                       static_cast<gpuStream_t>(stream.queue().handle())));
}

}  // namespace atom::ops
