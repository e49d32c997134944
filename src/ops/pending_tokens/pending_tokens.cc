#include "ops/pending_tokens/pending_tokens.h"

#include <algorithm>

#include "ops/pending_tokens/pending_tokens_kernels.h"
#include "ops/variant.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

void fill_reference(const Stream&, const PendingTokensArgs& args) {
  for (int64_t i = 0; i < args.num_tokens; ++i) {
    int32_t& token_id = args.token_ids[i];
    if (token_id < 0) token_id = std::max(0, args.chosen[~token_id]);
  }
}

#ifdef ATOM_CUDA
void fill_on_queue(const Stream& stream, const PendingTokensArgs& args) {
  fill_pending_tokens_cuda(args, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const PendingTokensArgs&);

constexpr Variant<PendingTokensArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, fill_on_queue, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, fill_reference},
};

}  // namespace

void fill_pending_tokens(const Stream& stream, const Tensor& chosen, const Tensor& token_ids) {
  TensorCheck("fill_pending_tokens")
      .contiguous("chosen", chosen, {"R"}, DType::kInt32)
      .contiguous("token_ids", token_ids, {"T"}, DType::kInt32);
  if (stream.is_dry_run() || token_ids.size(0) == 0) return;
  const PendingTokensArgs args{
      chosen.data<int32_t>(), token_ids.data<int32_t>(), token_ids.size(0)};
  const auto& variant = pick_variant(
      "pending_tokens", kVariants, stream, args, [&] { return moves(token_ids, token_ids); });
  variant.launch(stream, args);
}

}  // namespace atom::ops
