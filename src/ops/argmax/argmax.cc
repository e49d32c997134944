#include "ops/argmax/argmax.h"

#include <cmath>

#include "ops/argmax/argmax_kernels.h"
#include "ops/argmax/argmax_variants.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

ArgmaxArgs checked_args(const Tensor& logits, int64_t num_ids, const Tensor& out) {
  TensorCheck("argmax")
      .tensor("logits", logits, {"T", "V"}, DType::kFloat32)
      .contiguous("out", out, {"T"}, DType::kInt32);
  CHECK(num_ids >= 1);
  CHECK(num_ids <= logits.size(1));
  return {.logits = static_cast<const float*>(logits.raw_data()),
          .out = static_cast<int32_t*>(out.raw_data()),
          .num_rows = logits.size(0),
          .num_ids = num_ids,
          .row_stride = logits.stride(0)};
}

int32_t best_id(const float* row, int64_t num_ids) {
  int32_t best = -2;
  float largest = -INFINITY;
  for (int64_t id = 0; id < num_ids; ++id) {
    if (std::isnan(row[id]) || row[id] == INFINITY) return -1;
    if (row[id] > largest) {
      largest = row[id];
      best = static_cast<int32_t>(id);
    }
  }
  return best;
}

void argmax_reference(const Stream& stream, const ArgmaxArgs& args, Workspace&) {
  if (stream.is_dry_run()) return;
  stream.pool().parallel_for(args.num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      args.out[row] = best_id(args.logits + row * args.row_stride, args.num_ids);
    }
  });
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream, const ArgmaxArgs& args, Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const Tensor partial = scratch.tensor({args.num_rows, kArgmaxParts}, DType::kInt64);
  if (stream.is_dry_run() || args.num_rows == 0) return;
  argmax_cuda(args, static_cast<uint64_t*>(partial.raw_data()), stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const ArgmaxArgs&, Workspace&);

constexpr Variant<ArgmaxArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, argmax_reference},
};

}  // namespace

void argmax(const Stream& stream,
            const Tensor& logits,
            int64_t num_ids,
            const Tensor& out,
            Workspace& scratch) {
  const ArgmaxArgs args = checked_args(logits, num_ids, out);
  const auto& variant =
      pick_variant("argmax", kVariants, stream, args, [&] { return moves(logits, out); });
  variant.launch(stream, args, scratch);
}

bool argmax_by(std::string_view variant_name,
               const Stream& stream,
               const Tensor& logits,
               int64_t num_ids,
               const Tensor& out,
               Workspace& scratch) {
  const ArgmaxArgs args = checked_args(logits, num_ids, out);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, scratch);
  return true;
}

}  // namespace atom::ops
