#include "ops/rms_norm_quant_fp8/rms_norm_quant_fp8.h"

#include "ops/quantize/quantize_row_by_row.h"
#include "ops/rms_norm_quant_fp8/rms_norm_quant_fp8_kernels.h"
#include "ops/rms_norm_quant_fp8/rms_norm_quant_fp8_variants.h"
#include "ops/simd/element_of.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

template <RmsNormKernel* normalise, QuantizeKernel* quantise>
void on_pool(const Stream& stream, const RmsNormQuantFp8Args& args, int64_t num_rows) {
  const QuantizeArgs result = {.x = nullptr,
                               .values = static_cast<uint8_t*>(args.norm.out),
                               .scales = args.scales,
                               .static_scale = args.static_scale,
                               .x_stride = 0,
                               .values_stride = args.norm.out_strides[0],
                               .size = args.norm.size,
                               .element = args.norm.element};
  quantize_row_by_row<quantise>(stream, result, num_rows, [&](int64_t row, void* memory) {
    RmsNormArgs norm = args.norm;
    norm.out = memory;
    norm.out_strides[0] = 0;
    normalise(norm, row, row + 1);
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
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<rms_norm_avx512, quantize_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<rms_norm_avx2, quantize_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<rms_norm_reference, quantize_reference>},
};

RmsNormQuantFp8Args checked_args(const Tensor& x,
                                 const Tensor& residual,
                                 const Tensor& weight,
                                 float eps,
                                 const QuantizedRows& out) {
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
                        const QuantizedRows& out) {
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
                           const QuantizedRows& out) {
  const RmsNormQuantFp8Args args = checked_args(x, residual, weight, eps, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, x.size(0));
  return true;
}

}  // namespace atom::ops
