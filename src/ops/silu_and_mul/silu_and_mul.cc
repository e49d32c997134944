#include "ops/silu_and_mul/silu_and_mul.h"

#include <algorithm>

#include "ops/silu_and_mul/silu_and_mul_kernels.h"
#include "ops/silu_and_mul/silu_and_mul_variants.h"
#include "ops/simd/element_of.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

constexpr Variant<SiluAndMulArgs, SiluAndMulKernel> kVariants[] = {
    {"avx512", CpuIsa::kAvx512, nullptr, silu_and_mul_avx512},
    {"avx2", CpuIsa::kAvx2, nullptr, silu_and_mul_avx2},
    {"reference", CpuIsa::kScalar, nullptr, silu_and_mul_reference},
};

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

SiluAndMulArgs checked_args(const Tensor& gate_up, const Tensor& out) {
  TensorCheck("silu_and_mul")
      .tensor("gate_up", gate_up, {"T", "gate_up_size"}, gate_up.dtype())
      .tensor("out", out, {"T", "I"}, gate_up.dtype());
  CHECK(gate_up.size(1) == 2 * out.size(1));
  return {
      .gate_up = gate_up.raw_data(),
      .out = out.raw_data(),
      .gate_up_stride = gate_up.stride(0),
      .out_stride = out.stride(0),
      .size = out.size(1),
      .element = element_of(out.dtype()),
  };
}

void launch(const Stream& stream,
            const SiluAndMulArgs& args,
            int64_t num_rows,
            SiluAndMulKernel kernel) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, args.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace

void silu_and_mul(const Stream& stream, const Tensor& gate_up, const Tensor& out) {
  const SiluAndMulArgs args = checked_args(gate_up, out);
  if (stream.is_dry_run()) return;
  launch(stream, args, out.size(0), pick_variant("silu_and_mul", kVariants, args).launch);
}

bool silu_and_mul_by(std::string_view variant_name,
                     const Stream& stream,
                     const Tensor& gate_up,
                     const Tensor& out) {
  const SiluAndMulArgs args = checked_args(gate_up, out);
  const auto* variant = named_variant(kVariants, variant_name, args);
  if (variant == nullptr) return false;
  launch(stream, args, out.size(0), variant->launch);
  return true;
}

}  // namespace atom::ops
