#include "ops/argmax/argmax.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/argmax/argmax_kernels.h"
#include "ops/argmax/argmax_variants.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

static_assert(kArgmaxKeys == kArgmaxParts);

// Above every key of a finite logit.
constexpr uint64_t kFault = ~uint64_t{0};

ArgmaxKeysArgs checked_args(const Tensor& logits,
                            int64_t num_ids,
                            int64_t first_id,
                            const Tensor& keys) {
  TensorCheck("argmax")
      .tensor("logits", logits, {"T", "V"}, DType::kFloat32)
      .contiguous("keys", keys, {"T", "32"}, DType::kInt64);
  CHECK(num_ids >= 0);
  CHECK(num_ids <= logits.size(1));
  return {.logits = static_cast<const float*>(logits.raw_data()),
          .keys = static_cast<uint64_t*>(keys.raw_data()),
          .num_rows = logits.size(0),
          .num_ids = num_ids,
          .row_stride = logits.stride(0),
          .first_id = static_cast<int32_t>(first_id)};
}

ArgmaxChoiceArgs checked_args(const Tensor& keys, const Tensor& out) {
  TensorCheck("argmax")
      .contiguous("keys", keys, {"R", "T", "32"}, DType::kInt64)
      .contiguous("out", out, {"T"}, DType::kInt32);
  return {.keys = static_cast<const uint64_t*>(keys.raw_data()),
          .out = static_cast<int32_t*>(out.raw_data()),
          .num_rows = keys.size(1),
          .num_ranks = keys.size(0)};
}

// 0 where there is no choice.
uint64_t best_key(const float* row, int64_t num_ids, int32_t first_id) {
  uint64_t best = 0;
  for (int64_t i = 0; i < num_ids; ++i) {
    if (!(row[i] < INFINITY)) return kFault;  // NaN too
    if (row[i] == -INFINITY) continue;
    const auto bits = std::bit_cast<uint32_t>(row[i] == 0 ? 0.0f : row[i]);
    const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
    const auto id = static_cast<uint32_t>(first_id + static_cast<int32_t>(i));
    best = std::max(best, uint64_t{ordered} << 32 | uint32_t{~id});
  }
  return best;
}

void keys_reference(const Stream& stream, const ArgmaxKeysArgs& args) {
  if (stream.is_dry_run()) return;
  stream.pool().parallel_for(args.num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      uint64_t* keys = args.keys + row * kArgmaxKeys;
      std::fill_n(keys, kArgmaxKeys, 0);
      keys[0] = best_key(args.logits + row * args.row_stride, args.num_ids, args.first_id);
    }
  });
}

void choice_reference(const Stream& stream, const ArgmaxChoiceArgs& args) {
  if (stream.is_dry_run()) return;
  for (int64_t row = 0; row < args.num_rows; ++row) {
    uint64_t best = 0;
    for (int64_t rank = 0; rank < args.num_ranks; ++rank) {
      const uint64_t* keys = args.keys + (rank * args.num_rows + row) * kArgmaxKeys;
      best = std::max(best, *std::max_element(keys, keys + kArgmaxKeys));
    }
    const auto id = static_cast<int32_t>(~static_cast<uint32_t>(best));
    args.out[row] = best == kFault ? -1 : (best == 0 ? -2 : id);
  }
}

#ifdef ATOM_CUDA
void keys_on_queue(const Stream& stream, const ArgmaxKeysArgs& args) {
  if (stream.is_dry_run() || args.num_rows == 0) return;
  argmax_keys_cuda(args, stream.queue().handle());
}

void choice_on_queue(const Stream& stream, const ArgmaxChoiceArgs& args) {
  if (stream.is_dry_run() || args.num_rows == 0) return;
  argmax_of_keys_cuda(args, stream.queue().handle());
}
#endif

constexpr Variant<ArgmaxKeysArgs, void(const Stream&, const ArgmaxKeysArgs&)> kKeysVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, keys_on_queue, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, keys_reference},
};

constexpr Variant<ArgmaxChoiceArgs, void(const Stream&, const ArgmaxChoiceArgs&)>
    kChoiceVariants[] = {
#ifdef ATOM_CUDA
        {"cuda", CpuIsa::kScalar, nullptr, choice_on_queue, DeviceType::kCuda},
#endif
        {"reference", CpuIsa::kScalar, nullptr, choice_reference},
};

Tensor scratch_keys(const Tensor& logits, Workspace& scratch) {
  return scratch.tensor({logits.size(0), kArgmaxKeys}, DType::kInt64);
}

}  // namespace

void argmax_keys(const Stream& stream,
                 const Tensor& logits,
                 int64_t num_ids,
                 int64_t first_id,
                 const Tensor& keys) {
  const ArgmaxKeysArgs args = checked_args(logits, num_ids, first_id, keys);
  pick_variant("argmax", kKeysVariants, stream, args, [&] {
    return moves(logits, keys);
  }).launch(stream, args);
}

void argmax_of_keys(const Stream& stream, const Tensor& keys, const Tensor& out) {
  const ArgmaxChoiceArgs args = checked_args(keys, out);
  pick_variant("argmax", kChoiceVariants, stream, args, [&] {
    return moves(keys, out);
  }).launch(stream, args);
}

void argmax(const Stream& stream,
            const Tensor& logits,
            int64_t num_ids,
            const Tensor& out,
            Workspace& scratch) {
  CHECK(num_ids >= 1);
  const Workspace::Scope scope(scratch);
  const Tensor keys = scratch_keys(logits, scratch);
  argmax_keys(stream, logits, num_ids, 0, keys);
  argmax_of_keys(stream, keys.view({1, logits.size(0), kArgmaxKeys}), out);
}

bool argmax_by(std::string_view variant_name,
               const Stream& stream,
               const Tensor& logits,
               int64_t num_ids,
               const Tensor& out,
               Workspace& scratch) {
  const Workspace::Scope scope(scratch);
  const Tensor keys = scratch_keys(logits, scratch);
  const ArgmaxKeysArgs args = checked_args(logits, num_ids, 0, keys);
  const ArgmaxChoiceArgs choice = checked_args(keys.view({1, logits.size(0), kArgmaxKeys}), out);
  const DeviceType device = stream.device().type;
  const auto* variant = named_variant(kKeysVariants, variant_name, device, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args);
  named_variant(kChoiceVariants, variant_name, device, choice)->launch(stream, choice);
  return true;
}

}  // namespace atom::ops
