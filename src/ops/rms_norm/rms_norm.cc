#include "ops/rms_norm/rms_norm.h"

#include <algorithm>

#include "ops/quantize/quantize_row_by_row.h"
#include "ops/quantize/quantize_variants.h"
#include "ops/rms_norm/rms_norm_kernels.h"
#include "ops/rms_norm/rms_norm_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 16384;

template <RmsNormKernel* normalize, QuantizeKernel* quantize>
void on_pool(const Stream& stream, const RmsNormCall& call, int64_t num_rows) {
  if (call.quantizes()) {
    quantize_row_by_row<quantize>(stream, call.codes, num_rows, [&](int64_t row, void* memory) {
      RmsNormArgs norm = call.norm;
      norm.out = memory;
      norm.out_strides[0] = 0;
      normalize(norm, row, row + 1);
    });
    return;
  }
  const int64_t size = std::max<int64_t>(1, call.norm.size);
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / size);
  stream.pool().parallel_for(
      num_rows, grain, [&](int64_t begin, int64_t end) { normalize(call.norm, begin, end); });
}

template <RmsNormGpuKernel* kernel>
void on_queue(const Stream& stream, const RmsNormCall& call, int64_t num_rows) {
  if (num_rows > 0) kernel(call, num_rows, stream.queue().handle());
}

using Launch = void(const Stream&, const RmsNormCall&, int64_t num_rows);

#ifdef ATOM_CUDA
bool fits_cuda(const RmsNormCall& call) {
  return !call.quantizes() || (call.codes.is_float8() && call.codes.has_whole_groups());
}
#endif

constexpr Variant<RmsNormCall, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, fits_cuda, on_queue<rms_norm_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, nullptr, on_pool<rms_norm_avx512, quantize_avx512>},
    {"avx2", CpuIsa::kAvx2, nullptr, on_pool<rms_norm_avx2, quantize_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<rms_norm_reference, quantize_reference>},
};

struct Operands {
  const Tensor& x;
  const Tensor& residual;
  const Tensor& weight;
  float eps;
  const Tensor& out;
  const QuantizedRows& codes;

  int64_t num_rows() const { return x.size(0) * (x.rank() == 3 ? x.size(1) : 1); }
};

RmsNormCall checked_call(const char* op, const Operands& of) {
  const auto& [x, residual, weight, eps, out, codes] = of;
  TensorCheck check(op);
  const bool has_heads = x.rank() == 3;
  CHECK((out.defined() || codes.defined()));
  RmsNormCall call = {};
  if (has_heads) {
    CHECK(!codes.defined());
    check.tensor("x", x, {"T", "heads", "K"}, x.dtype());
    check.tensor("out", out, {"T", "heads", "K"}, x.dtype());
  } else {
    check.tensor("x", x, {"T", "K"}, x.dtype());
    if (out.defined()) check.tensor("out", out, {"T", "K"}, x.dtype());
    if (codes.defined()) {
      call.codes = checked_codes(check, x.dtype(), codes);
      CHECK(call.codes.size == x.size(1));
    }
  }
  if (residual.defined()) check.tensor("residual", residual, {"T", "K"}, x.dtype());
  const bool float_weight = weight.dtype() == DType::kFloat32;
  check.contiguous("weight", weight, {"K"}, float_weight ? DType::kFloat32 : x.dtype());
  const int64_t out_stride = out.defined() ? out.stride(0) : 0;
  call.norm = {
      .x = x.raw_data(),
      .residual = residual.raw_data(),
      .weight = weight.raw_data(),
      .out = out.raw_data(),
      .x_strides = {x.stride(0), has_heads ? x.stride(1) : 0},
      .residual_stride = residual.defined() ? residual.stride(0) : 0,
      .out_strides = {out_stride, has_heads ? out.stride(1) : 0},
      .num_heads = has_heads ? x.size(1) : 1,
      .size = x.size(-1),
      .eps = eps,
      .element = element_of(x.dtype()),
      .rounds_once = float_weight,
  };
  call.codes.x = out.raw_data();
  call.codes.x_stride = out_stride;
  return call;
}

void run(const char* op, const Stream& stream, const Operands& of) {
  const RmsNormCall call = checked_call(op, of);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("rms_norm", kVariants, stream, call, [&] {
    const auto& [x, residual, weight, eps, out, codes] = of;
    return moves(x, residual, residual, weight, out, codes.values, codes.scales);
  });
  variant.launch(stream, call, of.num_rows());
}

}  // namespace

void rms_norm(
    const Stream& stream, const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  run("rms_norm", stream, {x, Tensor(), weight, eps, out, {}});
}

void add_rms_norm(const Stream& stream,
                  const Tensor& x,
                  const Tensor& residual,
                  const Tensor& weight,
                  float eps,
                  const Tensor& out) {
  CHECK(residual.defined());
  run("add_rms_norm", stream, {x, residual, weight, eps, out, {}});
}

void add_rms_norm(const Stream& stream,
                  const Tensor& x,
                  const Tensor& residual,
                  const Tensor& weight,
                  float eps,
                  const Tensor& out,
                  const QuantizedRows& codes,
                  Workspace& scratch) {
  // This operator's kernels leave rows beside codes.
  if (!codes.defined() || quantizes_with_its_producer(stream, Tensor(), codes)) {
    return run("add_rms_norm", stream, {x, residual, weight, eps, out, codes});
  }
  const Workspace::Scope scope(scratch);
  const Tensor rows = out.defined() ? out : scratch.tensor(x.shape(), x.dtype());
  run("add_rms_norm", stream, {x, residual, weight, eps, rows, {}});
  quantize(stream, rows, codes);
}

#ifdef ATOM_CUDA
// Whether one kernel does it all, which is enqueued then; the same on every rank.
bool add_rms_norm_in_one(const Stream& stream, const Communicator& ranks, const Operands& of) {
  const auto& [x, residual, weight, eps, out, codes] = of;
  if (stream.is_dry_run() || stream.device().is_cpu()) return false;
  if (!adds_up_in_norm(ranks.size(), x.num_bytes())) return false;
  const PeerView* const peers = ranks.peers(stream);
  if (peers == nullptr) return false;
  if (codes.defined() && !quantizes_with_its_producer(stream, Tensor(), codes)) return false;
  const RmsNormCall call = checked_call("add_rms_norm_of_ranks", of);
  if (!fits_cuda(call)) return false;
  if (!supports_rms_norm_of_ranks_cuda(call, of.num_rows(), *peers)) return false;
  OperatorTrace* const trace = stream.trace();
  if (trace != nullptr && trace->is_started()) {
    const OperatorWork work = moves(x, x, residual, residual, weight, out, codes.values);
    trace->begin("add_rms_norm_of_ranks", "packets", work);
  }
  rms_norm_of_ranks_cuda(call, of.num_rows(), *peers, stream.queue().handle());
  return true;
}
#endif

void add_rms_norm_of_ranks(const Stream& stream,
                           Communicator& ranks,
                           const Tensor& x,
                           const Tensor& residual,
                           const Tensor& weight,
                           float eps,
                           const Tensor& out,
                           const QuantizedRows& codes,
                           Workspace& scratch) {
#ifdef ATOM_CUDA
  if (add_rms_norm_in_one(stream, ranks, {x, residual, weight, eps, out, codes})) return;
#endif
  ranks.all_reduce(stream, x);
  add_rms_norm(stream, x, residual, weight, eps, out, codes, scratch);
}

bool rms_norm_by(std::string_view variant_name,
                 const Stream& stream,
                 const Tensor& x,
                 const Tensor& residual,
                 const Tensor& weight,
                 float eps,
                 const Tensor& out,
                 const QuantizedRows& codes) {
  const Operands of = {x, residual, weight, eps, out, codes};
  const RmsNormCall call = checked_call("rms_norm", of);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, call);
  if (variant == nullptr) return false;
  variant->launch(stream, call, of.num_rows());
  return true;
}

}  // namespace atom::ops
