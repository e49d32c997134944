#include "ops/silu_and_mul/silu_and_mul.h"

#include <algorithm>

#include "ops/silu_and_mul/silu_and_mul_kernels.h"
#include "ops/silu_and_mul/silu_and_mul_variants.h"
#include "ops/simd/element_of.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

template <SiluAndMulKernel* kernel>
void on_pool(const Stream& stream, const SiluAndMulArgs& args, int64_t num_rows) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, args.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

template <SiluAndMulGpuKernel* kernel>
void on_queue(const Stream& stream, const SiluAndMulArgs& args, int64_t num_rows) {
  if (num_rows > 0) kernel(args, num_rows, stream.queue().handle());
}

using Launch = void(const Stream&, const SiluAndMulArgs&, int64_t num_rows);

constexpr Variant<SiluAndMulArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<silu_and_mul_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<silu_and_mul_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<silu_and_mul_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<silu_and_mul_reference>},
};

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

}  // namespace

void silu_and_mul(const Stream& stream, const Tensor& gate_up, const Tensor& out) {
  const SiluAndMulArgs args = checked_args(gate_up, out);
  if (stream.is_dry_run()) return;
  const auto& variant =
      pick_variant("silu_and_mul", kVariants, stream, args, [&] { return moves(gate_up, out); });
  variant.launch(stream, args, out.size(0));
}

bool silu_and_mul_by(std::string_view variant_name,
                     const Stream& stream,
                     const Tensor& gate_up,
                     const Tensor& out) {
  const SiluAndMulArgs args = checked_args(gate_up, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, out.size(0));
  return true;
}

}  // namespace atom::ops
