#include "ops/sigmoid_gate/sigmoid_gate.h"

#include <algorithm>

#include "ops/sigmoid_gate/sigmoid_gate_kernels.h"
#include "ops/sigmoid_gate/sigmoid_gate_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

template <SigmoidGateKernel* kernel>
void on_pool(const Stream& stream, const SigmoidGateArgs& args, int64_t num_rows) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, args.size));
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream, const SigmoidGateArgs& args, int64_t num_rows) {
  if (num_rows > 0) sigmoid_gate_cuda(args, num_rows, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const SigmoidGateArgs&, int64_t num_rows);

constexpr Variant<SigmoidGateArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<sigmoid_gate_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<sigmoid_gate_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<sigmoid_gate_reference>},
};

SigmoidGateArgs checked_args(const Tensor& x, const Tensor& gate, bool adds, const Tensor& out) {
  const bool gate_per_row = gate.size(-1) == 1;
  TensorCheck check("sigmoid_gate");
  check.tensor("x", x, {"T", "heads", "D"}, x.dtype())
      .tensor("gate", gate, {"T", "heads", gate_per_row ? "1" : "D"}, x.dtype())
      .tensor("out", out, {"T", "heads", "D"}, x.dtype());
  return {
      .x = x.raw_data(),
      .gate = gate.raw_data(),
      .out = out.raw_data(),
      .x_strides = {x.stride(0), x.stride(1)},
      .gate_strides = {gate.stride(0), gate.stride(1)},
      .out_strides = {out.stride(0), out.stride(1)},
      .num_heads = x.size(1),
      .size = x.size(2),
      .gate_per_row = gate_per_row,
      .adds = adds,
      .element = element_of(x.dtype()),
  };
}

void run(const char* op,
         const Stream& stream,
         const Tensor& x,
         const Tensor& gate,
         bool adds,
         const Tensor& out) {
  const SigmoidGateArgs args = checked_args(x, gate, adds, out);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant(
      op, kVariants, stream, args, [&] { return moves(x, gate, out, adds ? out : Tensor()); });
  variant.launch(stream, args, x.size(0) * args.num_heads);
}

}  // namespace

void sigmoid_gate(const Stream& stream, const Tensor& x, const Tensor& gate, const Tensor& out) {
  run("sigmoid_gate", stream, x, gate, /*adds=*/false, out);
}

void add_sigmoid_gate(const Stream& stream,
                      const Tensor& x,
                      const Tensor& gate,
                      const Tensor& out) {
  run("add_sigmoid_gate", stream, x, gate, /*adds=*/true, out);
}

bool sigmoid_gate_by(std::string_view variant_name,
                     const Stream& stream,
                     const Tensor& x,
                     const Tensor& gate,
                     bool adds,
                     const Tensor& out) {
  const SigmoidGateArgs args = checked_args(x, gate, adds, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, x.size(0) * args.num_heads);
  return true;
}

}  // namespace atom::ops
