#include "ops/sigmoid_gate/sigmoid_gate.h"

#include <algorithm>

#include "ops/quantize/quantize.h"
#include "ops/quantize/quantize_row_by_row.h"
#include "ops/quantize/quantize_variants.h"
#include "ops/sigmoid_gate/sigmoid_gate_kernels.h"
#include "ops/sigmoid_gate/sigmoid_gate_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

template <SigmoidGateKernel* multiply, QuantizeKernel* quantize>
void on_pool(const Stream& stream, const SigmoidGateCall& call, int64_t num_rows) {
  const int64_t num_heads = call.gate.num_heads;
  if (call.quantizes()) {
    const int64_t num_tokens = num_rows / num_heads;
    quantize_row_by_row<quantize>(stream, call.codes, num_tokens, [&](int64_t token, void* memory) {
      SigmoidGateArgs gate = call.gate;
      gate.out = memory;
      gate.out_strides[0] = 0;
      gate.out_strides[1] = gate.size;
      multiply(gate, token * num_heads, (token + 1) * num_heads);
    });
    return;
  }
  const int64_t grain =
      std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, call.gate.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { multiply(call.gate, begin, end); });
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream, const SigmoidGateCall& call, int64_t num_rows) {
  if (num_rows > 0) sigmoid_gate_cuda(call, num_rows, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const SigmoidGateCall&, int64_t num_rows);

constexpr Variant<SigmoidGateCall, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, fits_sigmoid_gate_cuda, on_queue, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<sigmoid_gate_avx512, quantize_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<sigmoid_gate_avx2, quantize_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<sigmoid_gate_reference, quantize_reference>},
};

struct Operands {
  const Tensor& x;
  const Tensor& gate;
  bool adds;
  const Tensor& out;  // undefined where there are codes
  const QuantizedRows& codes;
};

SigmoidGateCall checked_call(const Operands& of) {
  const auto& [x, gate, adds, out, codes] = of;
  CHECK(out.defined() != codes.defined());
  const bool gate_per_row = gate.size(-1) == 1;
  TensorCheck check("sigmoid_gate");
  check.tensor("x", x, {"T", "heads", "D"}, x.dtype())
      .tensor("gate", gate, {"T", "heads", gate_per_row ? "1" : "D"}, x.dtype());
  SigmoidGateCall call = {};
  if (out.defined()) check.tensor("out", out, {"T", "heads", "D"}, x.dtype());
  if (codes.defined()) {
    call.codes = checked_codes(check, x.dtype(), codes);
    CHECK(call.codes.size == x.size(1) * x.size(2));
  }
  call.gate = {
      .x = x.raw_data(),
      .gate = gate.raw_data(),
      .out = out.raw_data(),
      .x_strides = {x.stride(0), x.stride(1)},
      .gate_strides = {gate.stride(0), gate.stride(1)},
      .out_strides = {out.defined() ? out.stride(0) : 0, out.defined() ? out.stride(1) : 0},
      .num_heads = x.size(1),
      .size = x.size(2),
      .gate_per_row = gate_per_row,
      .adds = adds,
      .element = element_of(x.dtype()),
  };
  return call;
}

void run(const char* op, const Stream& stream, const Operands& of) {
  const SigmoidGateCall call = checked_call(of);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant(op, kVariants, stream, call, [&] {
    const auto& [x, gate, adds, out, codes] = of;
    return moves(x, gate, out, adds ? out : Tensor(), codes.values, codes.scales);
  });
  variant.launch(stream, call, of.x.size(0) * call.gate.num_heads);
}

// Whether a kernel leaves the codes.
bool fits_codes(const Stream& stream, const Operands& of) {
  if (stream.device().is_cpu()) return true;
#ifdef ATOM_CUDA
  return fits_sigmoid_gate_cuda(checked_call(of));
#else
  (void)of;
  return false;
#endif
}

}  // namespace

void sigmoid_gate(const Stream& stream, const Tensor& x, const Tensor& gate, const Tensor& out) {
  run("sigmoid_gate", stream, {x, gate, /*adds=*/false, out, {}});
}

void sigmoid_gate(const Stream& stream,
                  const Tensor& x,
                  const Tensor& gate,
                  const Tensor& out,
                  const QuantizedRows& codes) {
  const Operands fused = {x, gate, /*adds=*/false, Tensor(), codes};
  if (fits_codes(stream, fused)) return run("sigmoid_gate", stream, fused);
  sigmoid_gate(stream, x, gate, out);
  quantize(stream, out.view({out.size(0), out.size(1) * out.size(2)}), codes);
}

void add_sigmoid_gate(const Stream& stream,
                      const Tensor& x,
                      const Tensor& gate,
                      const Tensor& out) {
  run("add_sigmoid_gate", stream, {x, gate, /*adds=*/true, out, {}});
}

bool sigmoid_gate_by(std::string_view variant_name,
                     const Stream& stream,
                     const Tensor& x,
                     const Tensor& gate,
                     bool adds,
                     const Tensor& out,
                     const QuantizedRows& codes) {
  const Operands of = {x, gate, adds, out, codes};
  const SigmoidGateCall call = checked_call(of);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, call);
  if (variant == nullptr) return false;
  variant->launch(stream, call, x.size(0) * call.gate.num_heads);
  return true;
}

}  // namespace atom::ops
