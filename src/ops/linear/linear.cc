#include "ops/linear/linear.h"

#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_variants.h"
#include "ops/simd/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

using linear_kernels::KernelTable;

const KernelTable& for_dtype(DType dtype,
                             const KernelTable& bfloat16,
                             const KernelTable& float16,
                             const KernelTable& float32) {
  if (dtype == DType::kBFloat16) return bfloat16;
  return dtype == DType::kFloat16 ? float16 : float32;
}

void launch_avx512(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  linear_panels(for_dtype(call.weight.dtype(),
                          linear_kernels::kAvx512BFloat16,
                          linear_kernels::kAvx512Float16,
                          linear_kernels::kAvx512Float32),
                stream,
                call,
                scratch);
}

void launch_avx2(const Stream& stream, const LinearCall& call, Workspace& scratch) {
  linear_panels(for_dtype(call.weight.dtype(),
                          linear_kernels::kAvx2BFloat16,
                          linear_kernels::kAvx2Float16,
                          linear_kernels::kAvx2Float32),
                stream,
                call,
                scratch);
}

template <void (*kernel)(const LinearCudaArgs&, void* queue)>
void on_queue(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run() || call.x.size(0) == 0) return;
  CHECK((call.weight.layout == WeightLayout::kRowMajor));
  const bool has_bias = call.bias.defined();
  kernel({.x = call.x.raw_data(),
          .weight = call.weight.data.raw_data(),
          .bias = has_bias ? call.bias.raw_data() : nullptr,
          .y = call.y.raw_data(),
          .num_rows = call.x.size(0),
          .out_features = call.weight.out_features,
          .in_features = call.weight.in_features,
          .x_stride = call.x.stride(0),
          .y_stride = call.y.stride(0),
          .element = element_of(call.weight.dtype()),
          .bias_element = element_of(has_bias ? call.bias.dtype() : DType::kFloat32),
          .y_element = element_of(call.y.dtype())},
         stream.queue().handle());
}

bool in_panels(const LinearCall& call) {
  return call.weight.layout == WeightLayout::kPanels;
}

constexpr LinearVariant kVariants[] = {
#ifdef ATOM_CUDA
    {"cublaslt", CpuIsa::kScalar, fits_cublaslt, linear_cublaslt, DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<linear_cuda>, DeviceType::kCuda},
    // Not measured on a card yet: runs only when it is forced.
    {"stream", CpuIsa::kScalar, fits_linear_stream, linear_stream, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, in_panels, launch_avx512},
    {"avx2", CpuIsa::kAvx2, in_panels, launch_avx2},
    {"reference", CpuIsa::kScalar, nullptr, linear_reference},
};

}  // namespace

std::span<const LinearVariant> linear_variants() {
  return kVariants;
}

void linear(const Stream& stream,
            const Tensor& x,
            const LinearWeight& weight,
            const Tensor& bias,
            const Tensor& y,
            Workspace& scratch) {
  TensorCheck check("linear");
  check.tensor("x", x, {"T", "K"}, weight.dtype());
  check.tensor("y", y, {"T", "N"}, y.dtype() == DType::kFloat32 ? y.dtype() : x.dtype());
  CHECK(check.size("K") == weight.in_features);
  CHECK(check.size("N") == weight.out_features);
  if (bias.defined()) {
    check.tensor("bias", bias, {"N"}, bias.dtype() == DType::kFloat32 ? bias.dtype() : x.dtype());
  }
  const LinearCall call{x, weight, bias, y};
  if (x.size(0) == 0) return;
  const auto& variant = pick_variant("linear", kVariants, stream.device().type, call);
  variant.launch(stream, call, scratch);
}

}  // namespace atom::ops
