#include "ops/rms_norm/rms_norm.h"

#include <algorithm>

#include "ops/rms_norm/rms_norm_kernels.h"
#include "ops/rms_norm/rms_norm_variants.h"
#include "ops/simd/element_of.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 16384;

template <RmsNormKernel* kernel>
void on_pool(const Stream& stream, const RmsNormArgs& args, int64_t num_rows) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, args.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

template <RmsNormGpuKernel* kernel>
void on_queue(const Stream& stream, const RmsNormArgs& args, int64_t num_rows) {
  if (num_rows > 0) kernel(args, num_rows, stream.queue().handle());
}

using Launch = void(const Stream&, const RmsNormArgs&, int64_t num_rows);

constexpr Variant<RmsNormArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<rms_norm_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<rms_norm_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<rms_norm_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<rms_norm_reference>},
};

RmsNormArgs checked_args(const char* op,
                         const Tensor& x,
                         const Tensor& residual,
                         const Tensor& weight,
                         float eps,
                         const Tensor& out) {
  TensorCheck check(op);
  const bool has_heads = x.rank() == 3;
  if (has_heads) {
    check.tensor("x", x, {"T", "heads", "H"}, x.dtype());
    check.tensor("out", out, {"T", "heads", "H"}, x.dtype());
  } else {
    check.tensor("x", x, {"T", "H"}, x.dtype()).tensor("out", out, {"T", "H"}, x.dtype());
  }
  if (residual.defined()) check.tensor("residual", residual, {"T", "H"}, x.dtype());
  const bool float_weight = weight.dtype() == DType::kFloat32;
  check.contiguous("weight", weight, {"H"}, float_weight ? DType::kFloat32 : x.dtype());
  return {
      .x = x.raw_data(),
      .residual = residual.raw_data(),
      .weight = weight.raw_data(),
      .out = out.raw_data(),
      .x_strides = {x.stride(0), has_heads ? x.stride(1) : 0},
      .residual_stride = residual.defined() ? residual.stride(0) : 0,
      .out_strides = {out.stride(0), has_heads ? out.stride(1) : 0},
      .num_heads = has_heads ? x.size(1) : 1,
      .size = x.size(-1),
      .eps = eps,
      .element = element_of(x.dtype()),
      .rounds_once = float_weight,
  };
}

void run(const char* op,
         const Stream& stream,
         const Tensor& x,
         const Tensor& residual,
         const Tensor& weight,
         float eps,
         const Tensor& out) {
  const RmsNormArgs args = checked_args(op, x, residual, weight, eps, out);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("rms_norm", kVariants, stream, args, [&] {
    return moves(x, residual, residual, weight, out);
  });
  variant.launch(stream, args, x.size(0) * args.num_heads);
}

}  // namespace

void rms_norm(
    const Stream& stream, const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  run("rms_norm", stream, x, Tensor(), weight, eps, out);
}

void add_rms_norm(const Stream& stream,
                  const Tensor& x,
                  const Tensor& residual,
                  const Tensor& weight,
                  float eps,
                  const Tensor& out) {
  CHECK(residual.defined());
  run("add_rms_norm", stream, x, residual, weight, eps, out);
}

bool rms_norm_by(std::string_view variant_name,
                 const Stream& stream,
                 const Tensor& x,
                 const Tensor& residual,
                 const Tensor& weight,
                 float eps,
                 const Tensor& out) {
  const RmsNormArgs args = checked_args("rms_norm", x, residual, weight, eps, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, x.size(0) * args.num_heads);
  return true;
}

}  // namespace atom::ops
