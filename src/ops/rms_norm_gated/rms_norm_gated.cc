#include "ops/rms_norm_gated/rms_norm_gated.h"

#include <algorithm>

#include "ops/quantize/quantize_row_by_row.h"
#include "ops/quantize/quantize_variants.h"
#include "ops/rms_norm_gated/rms_norm_gated_kernels.h"
#include "ops/rms_norm_gated/rms_norm_gated_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

template <RmsNormGatedKernel* normalize, QuantizeKernel* quantize>
void on_pool(const Stream& stream, const RmsNormGatedCall& call, int64_t num_rows) {
  const int64_t num_heads = call.norm.num_heads;
  if (call.quantizes()) {
    const int64_t num_tokens = num_rows / num_heads;
    quantize_row_by_row<quantize>(stream, call.codes, num_tokens, [&](int64_t token, void* memory) {
      RmsNormGatedArgs norm = call.norm;
      norm.out = memory;
      norm.out_stride = 0;
      normalize(norm, token * num_heads, (token + 1) * num_heads);
    });
    return;
  }
  const int64_t grain =
      std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, call.norm.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { normalize(call.norm, begin, end); });
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream, const RmsNormGatedCall& call, int64_t num_rows) {
  if (num_rows > 0) rms_norm_gated_cuda(call, num_rows, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const RmsNormGatedCall&, int64_t num_rows);

constexpr Variant<RmsNormGatedCall, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, fits_rms_norm_gated_cuda, on_queue, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<rms_norm_gated_avx512, quantize_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<rms_norm_gated_avx2, quantize_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<rms_norm_gated_reference, quantize_reference>},
};

struct Operands {
  const Tensor& x;
  const Tensor& gate;
  const Tensor& weight;
  float eps;
  const Tensor& out;  // undefined where there are codes
  const QuantizedRows& codes;
};

RmsNormGatedCall checked_call(const Operands& of) {
  const auto& [x, gate, weight, eps, out, codes] = of;
  CHECK(out.defined() != codes.defined());
  TensorCheck check("rms_norm_gated");
  check.tensor("x", x, {"T", "heads*D"}, x.dtype())
      .tensor("gate", gate, {"T", "heads*D"}, x.dtype())
      .contiguous("weight", weight, {"D"}, DType::kFloat32);
  RmsNormGatedCall call = {};
  if (out.defined()) check.tensor("out", out, {"T", "heads*D"}, x.dtype());
  if (codes.defined()) {
    call.codes = checked_codes(check, x.dtype(), codes);
    CHECK(call.codes.size == x.size(1));
  }
  CHECK(x.size(1) % weight.size(0) == 0);
  call.norm = {
      .x = x.raw_data(),
      .gate = gate.raw_data(),
      .weight = static_cast<const float*>(weight.raw_data()),
      .out = out.raw_data(),
      .x_stride = x.stride(0),
      .gate_stride = gate.stride(0),
      .out_stride = out.defined() ? out.stride(0) : 0,
      .num_heads = x.size(1) / weight.size(0),
      .size = weight.size(0),
      .eps = eps,
      .element = element_of(x.dtype()),
  };
  return call;
}

void run(const Stream& stream, const Operands& of) {
  const RmsNormGatedCall call = checked_call(of);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("rms_norm_gated", kVariants, stream, call, [&] {
    return moves(of.x, of.gate, of.weight, of.out, of.codes.values, of.codes.scales);
  });
  variant.launch(stream, call, of.x.size(0) * call.norm.num_heads);
}

// Whether a kernel leaves the codes. A dry run on a GPU has no addresses that would tell, and
// measures the memory that the two operators take.
bool fits_codes(const Stream& stream, const Operands& of) {
  if (stream.device().is_cpu()) return true;
#ifdef ATOM_CUDA
  return !stream.is_dry_run() && fits_rms_norm_gated_cuda(checked_call(of));
#else
  (void)of;
  return false;
#endif
}

}  // namespace

void rms_norm_gated(const Stream& stream,
                    const Tensor& x,
                    const Tensor& gate,
                    const Tensor& weight,
                    float eps,
                    const Tensor& out) {
  run(stream, {x, gate, weight, eps, out, {}});
}

void rms_norm_gated(const Stream& stream,
                    const Tensor& x,
                    const Tensor& gate,
                    const Tensor& weight,
                    float eps,
                    const Tensor& out,
                    const QuantizedRows& codes,
                    Workspace& scratch) {
  const Operands fused = {x, gate, weight, eps, Tensor(), codes};
  if (fits_codes(stream, fused)) return run(stream, fused);
  const Workspace::Scope scope(scratch);
  const Tensor rows = out.defined() ? out : scratch.tensor(x.shape(), x.dtype());
  run(stream, {x, gate, weight, eps, rows, {}});
  quantize(stream, rows, codes);
}

bool rms_norm_gated_by(std::string_view variant_name,
                       const Stream& stream,
                       const Tensor& x,
                       const Tensor& gate,
                       const Tensor& weight,
                       float eps,
                       const Tensor& out,
                       const QuantizedRows& codes) {
  const Operands of = {x, gate, weight, eps, out, codes};
  const RmsNormGatedCall call = checked_call(of);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, call);
  if (variant == nullptr) return false;
  variant->launch(stream, call, x.size(0) * call.norm.num_heads);
  return true;
}

}  // namespace atom::ops
