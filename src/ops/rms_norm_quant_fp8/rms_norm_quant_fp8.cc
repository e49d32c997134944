#include "ops/rms_norm_quant_fp8/rms_norm_quant_fp8.h"

#include <algorithm>
#include <vector>

#include "ops/quant_fp8/quant_fp8_kernels.h"
#include "ops/rms_norm_quant_fp8/rms_norm_quant_fp8_kernels.h"
#include "ops/rms_norm_quant_fp8/rms_norm_quant_fp8_variants.h"
#include "ops/simd/element_of.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

// A row at a time by the kernels of the two operators; between them it stays in the cache.
template <RmsNormKernel* normalise, QuantFp8Kernel* quantise>
void on_pool(const Stream& stream, const RmsNormQuantFp8Args& args, int64_t num_rows) {
  const int64_t size = args.norm.size;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, size));
  stream.pool().parallel_for(num_rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> row_memory(size);  // for any element
    RmsNormArgs norm = args.norm;
    norm.out = row_memory.data();
    norm.out_strides[0] = 0;
    for (int64_t row = begin; row < end; ++row) {
      normalise(norm, row, row + 1);
      quantise({.x = row_memory.data(),
                .values = static_cast<uint8_t*>(args.norm.out) + row * args.norm.out_strides[0],
                .scales = args.scales == nullptr ? nullptr : args.scales + row,
                .static_scale = args.static_scale,
                .x_stride = size,
                .values_stride = size,
                .size = size,
                .element = args.norm.element},
               0,
               1);
    }
  });
}

template <void (*kernel)(const RmsNormQuantFp8Args&, int64_t, void*)>
void on_queue(const Stream& stream, const RmsNormQuantFp8Args& args, int64_t num_rows) {
  if (num_rows > 0) kernel(args, num_rows, stream.queue().handle());
}

using Launch = void(const Stream&, const RmsNormQuantFp8Args&, int64_t num_rows);

constexpr Variant<RmsNormQuantFp8Args, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<rms_norm_quant_fp8_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<rms_norm_avx512, quant_fp8_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<rms_norm_avx2, quant_fp8_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<rms_norm_reference, quant_fp8_reference>},
};

RmsNormQuantFp8Args checked_args(const Tensor& x,
                                 const Tensor& residual,
                                 const Tensor& weight,
                                 float eps,
                                 const QuantisedRows& out) {
  const bool float_weight = weight.dtype() == DType::kFloat32;
  TensorCheck check("rms_norm_quant_fp8");
  check.tensor("x", x, {"T", "K"}, x.dtype())
      .contiguous("weight", weight, {"K"}, float_weight ? DType::kFloat32 : x.dtype())
      .tensor("values", out.values, {"T", "K"}, DType::kFloat8E4M3)
      .contiguous("scales", out.scales, {out.is_static ? "1" : "T"}, DType::kFloat32);
  if (residual.defined()) check.tensor("residual", residual, {"T", "K"}, x.dtype());
  auto* scales = static_cast<float*>(out.scales.raw_data());
  return {
      .norm =
          {
              .x = x.raw_data(),
              .residual = residual.raw_data(),
              .weight = weight.raw_data(),
              .out = out.values.raw_data(),
              .x_strides = {x.stride(0), 0},
              .residual_stride = residual.defined() ? residual.stride(0) : 0,
              .out_strides = {out.values.stride(0), 0},
              .num_heads = 1,
              .size = x.size(1),
              .eps = eps,
              .element = element_of(x.dtype()),
              .rounds_once = float_weight,
          },
      .scales = out.is_static ? nullptr : scales,
      .static_scale = out.is_static ? scales : nullptr,
  };
}

}  // namespace

void rms_norm_quant_fp8(const Stream& stream,
                        const Tensor& x,
                        const Tensor& residual,
                        const Tensor& weight,
                        float eps,
                        const QuantisedRows& out) {
  const RmsNormQuantFp8Args args = checked_args(x, residual, weight, eps, out);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("rms_norm_quant_fp8", kVariants, stream, args, [&] {
    return moves(x, residual, residual, weight, out.values, out.scales);
  });
  variant.launch(stream, args, x.size(0));
}

bool rms_norm_quant_fp8_by(std::string_view variant_name,
                           const Stream& stream,
                           const Tensor& x,
                           const Tensor& residual,
                           const Tensor& weight,
                           float eps,
                           const QuantisedRows& out) {
  const RmsNormQuantFp8Args args = checked_args(x, residual, weight, eps, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, x.size(0));
  return true;
}

}  // namespace atom::ops
