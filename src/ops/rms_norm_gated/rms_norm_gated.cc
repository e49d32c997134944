#include "ops/rms_norm_gated/rms_norm_gated.h"

#include <algorithm>

#include "ops/rms_norm_gated/rms_norm_gated_kernels.h"
#include "ops/rms_norm_gated/rms_norm_gated_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

template <RmsNormGatedKernel* kernel>
void on_pool(const Stream& stream, const RmsNormGatedArgs& args, int64_t num_rows) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, args.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream, const RmsNormGatedArgs& args, int64_t num_rows) {
  if (num_rows > 0) rms_norm_gated_cuda(args, num_rows, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const RmsNormGatedArgs&, int64_t num_rows);

constexpr Variant<RmsNormGatedArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<rms_norm_gated_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<rms_norm_gated_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<rms_norm_gated_reference>},
};

RmsNormGatedArgs checked_args(
    const Tensor& x, const Tensor& gate, const Tensor& weight, float eps, const Tensor& out) {
  TensorCheck check("rms_norm_gated");
  check.tensor("x", x, {"T", "heads*D"}, x.dtype())
      .tensor("gate", gate, {"T", "heads*D"}, x.dtype())
      .tensor("out", out, {"T", "heads*D"}, x.dtype())
      .contiguous("weight", weight, {"D"}, DType::kFloat32);
  CHECK(x.size(1) % weight.size(0) == 0);
  return {
      .x = x.raw_data(),
      .gate = gate.raw_data(),
      .weight = static_cast<const float*>(weight.raw_data()),
      .out = out.raw_data(),
      .x_stride = x.stride(0),
      .gate_stride = gate.stride(0),
      .out_stride = out.stride(0),
      .num_heads = x.size(1) / weight.size(0),
      .size = weight.size(0),
      .eps = eps,
      .element = element_of(x.dtype()),
  };
}

}  // namespace

void rms_norm_gated(const Stream& stream,
                    const Tensor& x,
                    const Tensor& gate,
                    const Tensor& weight,
                    float eps,
                    const Tensor& out) {
  const RmsNormGatedArgs args = checked_args(x, gate, weight, eps, out);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant(
      "rms_norm_gated", kVariants, stream, args, [&] { return moves(x, gate, weight, out); });
  variant.launch(stream, args, x.size(0) * args.num_heads);
}

bool rms_norm_gated_by(std::string_view variant_name,
                       const Stream& stream,
                       const Tensor& x,
                       const Tensor& gate,
                       const Tensor& weight,
                       float eps,
                       const Tensor& out) {
  const RmsNormGatedArgs args = checked_args(x, gate, weight, eps, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, x.size(0) * args.num_heads);
  return true;
}

}  // namespace atom::ops
