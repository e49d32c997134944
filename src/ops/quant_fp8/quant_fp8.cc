#include "ops/quant_fp8/quant_fp8.h"

#include <algorithm>

#include "ops/quant_fp8/quant_fp8_kernels.h"
#include "ops/quant_fp8/quant_fp8_variants.h"
#include "ops/simd/element_of.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

constexpr Variant<QuantFp8Args, QuantFp8Kernel> kVariants[] = {
    {"avx512", CpuIsa::kAvx512, nullptr, quant_fp8_avx512},
    {"avx2", CpuIsa::kAvx2, nullptr, quant_fp8_avx2},
    {"reference", CpuIsa::kScalar, nullptr, quant_fp8_reference},
};

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 16384;

QuantFp8Args checked_args(const Tensor& x,
                          const Tensor& values,
                          const Tensor& scales,
                          bool is_static) {
  TensorCheck("quant_fp8")
      .tensor("x", x, {"T", "K"}, x.dtype())
      .tensor("values", values, {"T", "K"}, DType::kFloat8E4M3)
      .contiguous(is_static ? "scale" : "scales", scales, {is_static ? "1" : "T"}, DType::kFloat32);
  float* scale_data = static_cast<float*>(scales.raw_data());
  return {
      .x = x.raw_data(),
      .values = static_cast<uint8_t*>(values.raw_data()),
      .scales = is_static ? nullptr : scale_data,
      .static_scale = is_static ? scale_data : nullptr,
      .x_stride = x.stride(0),
      .values_stride = values.stride(0),
      .size = x.size(1),
      .element = element_of(x.dtype()),
  };
}

void launch(const Stream& stream,
            const QuantFp8Args& args,
            int64_t num_rows,
            QuantFp8Kernel kernel) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, args.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

void run(const Stream& stream,
         const Tensor& x,
         const Tensor& values,
         const Tensor& scales,
         bool is_static) {
  const QuantFp8Args args = checked_args(x, values, scales, is_static);
  if (stream.is_dry_run()) return;
  const auto& variant =
      pick_variant("quant_fp8", kVariants, stream, args, [&] { return moves(x, values, scales); });
  launch(stream, args, x.size(0), variant.launch);
}

}  // namespace

void quant_fp8_per_token(const Stream& stream,
                         const Tensor& x,
                         const Tensor& values,
                         const Tensor& scales) {
  run(stream, x, values, scales, false);
}

void quant_fp8_static(const Stream& stream,
                      const Tensor& x,
                      const Tensor& scale,
                      const Tensor& values) {
  run(stream, x, values, scale, true);
}

bool quant_fp8_by(std::string_view variant_name,
                  const Stream& stream,
                  const Tensor& x,
                  const Tensor& values,
                  const Tensor& scales,
                  bool is_static) {
  const QuantFp8Args args = checked_args(x, values, scales, is_static);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  launch(stream, args, x.size(0), variant->launch);
  return true;
}

}  // namespace atom::ops
