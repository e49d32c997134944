#include "ops/silu_and_mul_quant_fp8/silu_and_mul_quant_fp8.h"

#include "ops/quantize/quantize_row_by_row.h"
#include "ops/silu_and_mul_quant_fp8/silu_and_mul_quant_fp8_kernels.h"
#include "ops/silu_and_mul_quant_fp8/silu_and_mul_quant_fp8_variants.h"
#include "ops/simd/element_of.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

template <SiluAndMulKernel* multiply, QuantizeKernel* quantise>
void on_pool(const Stream& stream, const SiluAndMulQuantFp8Args& args, int64_t num_rows) {
  const QuantizeArgs result = {.x = nullptr,
                               .values = static_cast<uint8_t*>(args.product.out),
                               .scales = args.scales,
                               .static_scale = args.static_scale,
                               .x_stride = 0,
                               .values_stride = args.product.out_stride,
                               .size = args.product.size,
                               .element = args.product.element};
  quantize_row_by_row<quantise>(stream, result, num_rows, [&](int64_t row, void* memory) {
    SiluAndMulArgs product = args.product;
    product.out = memory;
    product.out_stride = 0;
    multiply(product, row, row + 1);
  });
}

template <void (*kernel)(const SiluAndMulQuantFp8Args&, int64_t, void*)>
void on_queue(const Stream& stream, const SiluAndMulQuantFp8Args& args, int64_t num_rows) {
  if (num_rows > 0) kernel(args, num_rows, stream.queue().handle());
}

using Launch = void(const Stream&, const SiluAndMulQuantFp8Args&, int64_t num_rows);

constexpr Variant<SiluAndMulQuantFp8Args, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<silu_and_mul_quant_fp8_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<silu_and_mul_avx512, quantize_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<silu_and_mul_avx2, quantize_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<silu_and_mul_reference, quantize_reference>},
};

SiluAndMulQuantFp8Args checked_args(const Tensor& gate_up, const QuantizedRows& out) {
  TensorCheck("silu_and_mul_quant_fp8")
      .tensor("gate_up", gate_up, {"T", "gate_up_size"}, gate_up.dtype())
      .tensor("values", out.values, {"T", "K"}, DType::kFloat8E4M3)
      .contiguous("scales", out.scales, {out.is_static ? "1" : "T"}, DType::kFloat32);
  CHECK(gate_up.size(1) == 2 * out.values.size(1));
  auto* scales = static_cast<float*>(out.scales.raw_data());
  return {
      .product =
          {
              .gate_up = gate_up.raw_data(),
              .out = out.values.raw_data(),
              .gate_up_stride = gate_up.stride(0),
              .out_stride = out.values.stride(0),
              .size = out.values.size(1),
              .element = element_of(gate_up.dtype()),
          },
      .scales = out.is_static ? nullptr : scales,
      .static_scale = out.is_static ? scales : nullptr,
  };
}

}  // namespace

void silu_and_mul_quant_fp8(const Stream& stream, const Tensor& gate_up, const QuantizedRows& out) {
  const SiluAndMulQuantFp8Args args = checked_args(gate_up, out);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("silu_and_mul_quant_fp8", kVariants, stream, args, [&] {
    return moves(gate_up, out.values, out.scales);
  });
  variant.launch(stream, args, gate_up.size(0));
}

bool silu_and_mul_quant_fp8_by(std::string_view variant_name,
                               const Stream& stream,
                               const Tensor& gate_up,
                               const QuantizedRows& out) {
  const SiluAndMulQuantFp8Args args = checked_args(gate_up, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, gate_up.size(0));
  return true;
}

}  // namespace atom::ops
