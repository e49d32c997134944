#include "ops/silu_and_mul/silu_and_mul.h"

#include <algorithm>

#include "ops/quantize/quantize_row_by_row.h"
#include "ops/quantize/quantize_variants.h"
#include "ops/silu_and_mul/silu_and_mul_kernels.h"
#include "ops/silu_and_mul/silu_and_mul_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 8192;

template <SiluAndMulKernel* multiply, QuantizeKernel* quantize>
void on_pool(const Stream& stream, const SiluAndMulCall& call, int64_t num_rows) {
  if (call.quantizes()) {
    quantize_row_by_row<quantize>(stream, call.codes, num_rows, [&](int64_t row, void* memory) {
      SiluAndMulArgs product = call.product;
      product.out = memory;
      product.out_stride = 0;
      multiply(product, row, row + 1);
    });
    return;
  }
  const int64_t size = std::max<int64_t>(1, call.product.size);
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / size);
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { multiply(call.product, begin, end); });
}

template <SiluAndMulGpuKernel* kernel>
void on_queue(const Stream& stream, const SiluAndMulCall& call, int64_t num_rows) {
  if (num_rows > 0) kernel(call, num_rows, stream.queue().handle());
}

using Launch = void(const Stream&, const SiluAndMulCall&, int64_t num_rows);

#ifdef ATOM_CUDA
bool gives_one_result(const SiluAndMulCall& call) {
  return !call.quantizes() ||
         (call.product.out == nullptr && call.codes.is_float8() && call.codes.has_whole_groups());
}
#endif

constexpr Variant<SiluAndMulCall, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, gives_one_result, on_queue<silu_and_mul_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<silu_and_mul_avx512, quantize_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<silu_and_mul_avx2, quantize_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<silu_and_mul_reference, quantize_reference>},
};

SiluAndMulCall checked_call(const Tensor& gate_up, const Tensor& out, const QuantizedRows& codes) {
  CHECK((out.defined() || codes.defined()));
  TensorCheck check("silu_and_mul");
  check.tensor("gate_up", gate_up, {"T", "gate_up_size"}, gate_up.dtype());
  if (out.defined()) check.tensor("out", out, {"T", "K"}, gate_up.dtype());
  SiluAndMulCall call = {};
  if (codes.defined()) call.codes = checked_codes(check, gate_up.dtype(), codes);
  const int64_t size = out.defined() ? out.size(1) : call.codes.size;
  CHECK(gate_up.size(1) == 2 * size);
  if (codes.defined()) CHECK(call.codes.size == size);
  const int64_t out_stride = out.defined() ? out.stride(0) : 0;
  call.product = {
      .gate_up = gate_up.raw_data(),
      .out = out.raw_data(),
      .gate_up_stride = gate_up.stride(0),
      .out_stride = out_stride,
      .size = size,
      .element = element_of(gate_up.dtype()),
  };
  call.codes.x = out.raw_data();
  call.codes.x_stride = out_stride;
  return call;
}

void run(const Stream& stream,
         const Tensor& gate_up,
         const Tensor& out,
         const QuantizedRows& codes) {
  const SiluAndMulCall call = checked_call(gate_up, out, codes);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("silu_and_mul", kVariants, stream, call, [&] {
    return moves(gate_up, out, codes.values, codes.scales);
  });
  variant.launch(stream, call, gate_up.size(0));
}

}  // namespace

void silu_and_mul(const Stream& stream, const Tensor& gate_up, const Tensor& out) {
  run(stream, gate_up, out, {});
}

void silu_and_mul(const Stream& stream,
                  const Tensor& gate_up,
                  const Tensor& out,
                  const QuantizedRows& codes,
                  Workspace& scratch) {
  if (!codes.defined() || quantizes_with_its_producer(stream, out, codes)) {
    return run(stream, gate_up, out, codes);
  }
  const Workspace::Scope scope(scratch);
  const Shape shape = {gate_up.size(0), gate_up.size(1) / 2};
  const Tensor rows = out.defined() ? out : scratch.tensor(shape, gate_up.dtype());
  run(stream, gate_up, rows, {});
  quantize(stream, rows, codes);
}

bool silu_and_mul_by(std::string_view variant_name,
                     const Stream& stream,
                     const Tensor& gate_up,
                     const Tensor& out,
                     const QuantizedRows& codes) {
  const SiluAndMulCall call = checked_call(gate_up, out, codes);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, call);
  if (variant == nullptr) return false;
  variant->launch(stream, call, gate_up.size(0));
  return true;
}

}  // namespace atom::ops
