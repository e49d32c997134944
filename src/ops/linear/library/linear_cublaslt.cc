// linear() by cuBLASLt: by the algorithm that is fastest for the number of rows, or by one for all.
#include "base/check.h"
#include "ops/linear/library/gemm_plans.h"
#include "ops/linear/linear_float8_cuda.h"
#include "ops/linear/linear_variants.h"
#include "tensor/element_of.h"

namespace atom::ops {
namespace {

bool is_aligned(const void* data, int64_t stride, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) % kGemmAlignment == 0 &&
         stride * dtype_size(dtype) % kGemmAlignment == 0;
}

bool is_vector(const Tensor& scales) {
  return scales.defined() && scales.num_elements() > 1;
}

bool is_aligned_vector(const Tensor& scales) {
  return !is_vector(scales) || is_aligned(scales.raw_data(), 0, DType::kFloat32);
}

const float* data_of(const Tensor& scales) {
  return scales.defined() ? static_cast<const float*>(scales.raw_data()) : nullptr;
}

// Memory of the library's own for one call.
void* gemm_scratch(Workspace& scratch) {
  const Tensor memory = scratch.tensor({kGemmScratchSize + kGemmScratchAlignment}, DType::kUInt8);
  const auto begin = reinterpret_cast<uintptr_t>(memory.raw_data());
  return reinterpret_cast<void*>((begin + kGemmScratchAlignment - 1) / kGemmScratchAlignment *
                                 kGemmScratchAlignment);
}

// With one scale for each row of x or of the weight, which the library multiplies by in one kernel
// alone, that does not split sums: with few rows its other kernels and a pass of ours over their
// sums take less time. On an H200 with the layers of an 8B model (qkv, o, gate_up, down) 81 instead
// of 114 us at 64 rows; the two meet at 256, 512, 128 and 512 rows.
bool scales_sums(const LinearCall& call, bool fixed_order) {
  constexpr int64_t kFewElements = int64_t{1} << 21;  // of y
  if (fixed_order || call.weight.has_groups()) return false;
  if ((!is_vector(call.x_scales) && !is_vector(call.weight.scales))) return false;
  return call.x.size(0) * call.weight.out_features < kFewElements;
}

GemmKey key_of(const LinearCall& call, bool fixed_order) {
  GemmKey key{.num_rows = call.x.size(0),
              .out_features = call.weight.out_features,
              .in_features = call.weight.in_features,
              .x_stride = call.x.stride(0),
              .y_stride = call.y.stride(0),
              .dtype = call.weight.dtype(),
              .y_dtype = call.y.dtype(),
              .has_bias = call.bias.defined(),
              .fixed_order = fixed_order};
  if (key.dtype != DType::kFloat8E4M3) return key;
  if (scales_sums(call, fixed_order)) {
    key.y_stride = key.out_features;
    key.y_dtype = DType::kFloat32;
    key.has_bias = false;
  } else if (call.weight.has_groups()) {
    key.scales = GemmScales::kBlocks;
  } else {
    // The library wants both or none to be vectors.
    key.scales = is_vector(call.x_scales) || is_vector(call.weight.scales) ? GemmScales::kVectors
                                                                           : GemmScales::kScalars;
  }
  return key;
}

// `scales` as a vector: one for all is repeated.
const float* vector_of(const Stream& stream,
                       const Tensor& scales,
                       int64_t count,
                       Workspace& scratch) {
  if (is_vector(scales)) return data_of(scales);
  const Tensor repeated = scratch.tensor({count}, DType::kFloat32);
  auto* data = static_cast<float*>(repeated.raw_data());
  if (!stream.is_dry_run()) {
    repeat_scale_cuda(data_of(scales), data, count, stream.queue().handle());
  }
  return data;
}

// The scales of groups of x as the library reads them.
const float* transposed_scales(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  const int64_t rows = call.x_scales.size(0), groups = call.x_scales.size(1);
  const int64_t stride = (rows + kGemmScaleRows - 1) / kGemmScaleRows * kGemmScaleRows;
  const Tensor transposed = scratch.tensor({groups, stride}, DType::kFloat32);
  auto* data = static_cast<float*>(transposed.raw_data());
  if (!stream.is_dry_run()) {
    transpose_scales_cuda(
        data_of(call.x_scales), data, rows, groups, stride, stream.queue().handle());
  }
  return data;
}

void multiply_then_scale(const Stream& stream,
                         const LinearCall& call,
                         const GemmKey& key,
                         Workspace& scratch) {
  void* memory = gemm_scratch(scratch);
  const Tensor sums = scratch.tensor({key.num_rows, key.out_features}, DType::kFloat32);
  if (stream.is_dry_run()) return;
  const GemmOperands operands{
      .x = call.x.raw_data(), .weight = call.weight.data.raw_data(), .y = sums.raw_data()};
  GemmPlans::current().multiply(key, operands, memory, stream.queue().handle());
  scale_sums(stream, call, sums, 0, 0);
}

}  // namespace

void scale_sums(const Stream& stream,
                const LinearCall& call,
                const Tensor& sums,
                int64_t first_row,
                int64_t first_column) {
  const bool has_bias = call.bias.defined();
  const bool x_vector = is_vector(call.x_scales), weight_vector = is_vector(call.weight.scales);
  const float* x_scales = data_of(call.x_scales);
  const float* weight_scales = data_of(call.weight.scales);
  const auto offset = [](const void* data, int64_t index, DType dtype) {
    return static_cast<char*>(const_cast<void*>(data)) + index * dtype_size(dtype);
  };
  scale_sums_cuda(
      {.sums = static_cast<const float*>(sums.raw_data()),
       .x_scales = x_vector ? x_scales + first_row : x_scales,
       .weight_scales = weight_vector ? weight_scales + first_column : weight_scales,
       .bias = has_bias ? offset(call.bias.raw_data(), first_column, call.bias.dtype()) : nullptr,
       .y = offset(call.y.raw_data(), first_row * call.y.stride(0) + first_column, call.y.dtype()),
       .num_rows = sums.size(0),
       .num_columns = sums.size(1),
       .y_stride = call.y.stride(0),
       .x_scale_per_row = x_vector,
       .weight_scale_per_row = weight_vector,
       .bias_element = stored_element_of(has_bias ? call.bias.dtype() : DType::kFloat32),
       .y_element = stored_element_of(call.y.dtype())},
      stream.queue().handle());
}

namespace {

// Whether the library reads the scales, if they are of groups.
bool takes_groups(const LinearCall& call, bool fixed_order) {
  const LinearWeight& weight = call.weight;
  constexpr int64_t kBlock = 128;
  return !weight.has_groups() ||
         (!fixed_order && is_float8_in_groups(call) && weight.scale_rows == kBlock &&
          weight.scales.size(1) % kGemmScaleRows == 0 &&
          is_aligned(weight.scales.raw_data(), 0, DType::kFloat32));
}

bool fits(const LinearCall& call, bool fixed_order) {
  const LinearWeight& weight = call.weight;
  const bool is_float8 = weight.dtype() == DType::kFloat8E4M3;
  return cublaslt().ok() && weight.layout == WeightLayout::kRowMajor &&
         takes_groups(call, fixed_order) && call.x.dtype() == weight.dtype() &&
         // Who wants float32 wants more than the sums of FP8 tensor cores.
         !(is_float8 && call.y.dtype() == DType::kFloat32) &&
         is_aligned(weight.data.raw_data(), weight.in_features, weight.dtype()) &&
         is_aligned(call.x.raw_data(), call.x.stride(0), call.x.dtype()) &&
         is_aligned(call.y.raw_data(), call.y.stride(0), call.y.dtype()) &&
         is_aligned_vector(weight.scales) && is_aligned_vector(call.x_scales) &&
         // Of other widths it is used, and was tried, for sums in float32 alone.
         (weight.out_features % 8 == 0 ||
          (call.y.dtype() == DType::kFloat32 && !is_float8 && !fixed_order)) &&
         (!call.bias.defined() || (call.bias.dtype() == call.y.dtype() &&
                                   is_aligned(call.bias.raw_data(), 0, call.bias.dtype()))) &&
         // It takes all else that is aligned.
         (!(is_float8 || fixed_order) || GemmPlans::current().supports(key_of(call, fixed_order)));
}

void multiply(const Stream& stream, const LinearCall& call, bool fixed_order, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const GemmKey key = key_of(call, fixed_order);
  if (call.weight.dtype() == DType::kFloat8E4M3 && scales_sums(call, fixed_order)) {
    return multiply_then_scale(stream, call, key, scratch);
  }
  void* memory = gemm_scratch(scratch);
  GemmOperands operands{.x = call.x.raw_data(),
                        .weight = call.weight.data.raw_data(),
                        .bias = call.bias.defined() ? call.bias.raw_data() : nullptr,
                        .y = call.y.raw_data(),
                        .x_scales = data_of(call.x_scales),
                        .weight_scales = data_of(call.weight.scales)};
  if (key.scales == GemmScales::kVectors) {
    operands.x_scales = vector_of(stream, call.x_scales, key.num_rows, scratch);
    operands.weight_scales = vector_of(stream, call.weight.scales, key.out_features, scratch);
  } else if (key.scales == GemmScales::kBlocks) {
    operands.x_scales = transposed_scales(stream, call, scratch);
  }
  if (stream.is_dry_run()) return;
  GemmPlans::current().multiply(key, operands, memory, stream.queue().handle());
}

}  // namespace

bool fits_cublaslt(const LinearCall& call) {
  return fits(call, false);
}

void linear_cublaslt(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  multiply(stream, call, false, scratch);
}

bool fits_linear_fixed(const LinearCall& call) {
  return fits(call, true);
}

bool admits_linear_ordered(const LinearCall& call) {
  return fits_linear_fixed(call) && GemmPlans::current().admits_ordered(key_of(call, true));
}

void linear_fixed(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  multiply(stream, call, true, scratch);
}

}  // namespace atom::ops
