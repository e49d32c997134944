#include "ops/indexer_norm_rope_cache/indexer_norm_rope_cache.h"

#include <algorithm>

#include "ops/indexer_norm_rope_cache/indexer_norm_rope_cache_kernels.h"
#include "ops/indexer_norm_rope_cache/indexer_norm_rope_cache_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 4096;

void on_pool(const Stream& stream, const IndexerNormRopeCacheArgs& args) {
  for (int64_t token = 0; token < args.num_tokens; ++token) {
    CHECK(args.positions[token] >= 0);
    CHECK(args.positions[token] < args.max_position);
    CHECK(args.slots[token] >= -1);
    CHECK(args.slots[token] < args.num_slots);
  }
  const int64_t size = (args.num_heads + 1) * args.head_dim;
  stream.pool().parallel_for(
      args.num_tokens,
      std::max<int64_t>(1, kElementsPerTask / size),
      [&](int64_t begin, int64_t end) { indexer_norm_rope_cache_reference(args, begin, end); });
}

#ifdef ATOM_CUDA
void on_queue(const Stream& stream, const IndexerNormRopeCacheArgs& args) {
  if (args.num_tokens > 0) indexer_norm_rope_cache_cuda(args, stream.queue().handle());
}
#endif

using Launch = void(const Stream&, const IndexerNormRopeCacheArgs&);

constexpr Variant<IndexerNormRopeCacheArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue, DeviceType::kCuda},
#endif
    {"reference", CpuIsa::kScalar, nullptr, on_pool},
};

void check_tensors(TensorCheck& check, const IndexerNormRopeCacheParams& params) {
  const DType dtype = params.q.dtype();
  check.tensor("k", params.k, {"T", "D"}, dtype)
      .tensor("q", params.q, {"T", "heads*D"}, dtype)
      .contiguous("k_weight", params.k_weight, {"D"}, DType::kFloat32)
      .contiguous("positions", params.positions, {"T"}, DType::kInt32)
      .contiguous("cos_sin", params.cos_sin, {"max_position", "R"}, DType::kFloat32)
      .contiguous("slot_mapping", params.slot_mapping, {"T"}, DType::kInt32)
      .contiguous("key_cache", params.key_cache, {"num_blocks", "block_size", "D"}, dtype);
  if (params.q_weight.defined()) {
    check.contiguous("q_weight", params.q_weight, {"D"}, DType::kFloat32);
  }
  if (params.k_bias.defined()) {
    check.contiguous("k_bias", params.k_bias, {"D"}, DType::kFloat32);
  }
  CHECK(check.size("D") > 0);
  CHECK(check.size("D") <= kIndexerMaxHeadDim);
  CHECK(check.size("heads*D") % check.size("D") == 0);
  CHECK(check.size("R") % 2 == 0);
  CHECK(check.size("R") <= check.size("D"));
}

IndexerNormRopeCacheArgs checked_args(const IndexerNormRopeCacheParams& params) {
  TensorCheck check("indexer_norm_rope_cache");
  check_tensors(check, params);
  return {
      .q = params.q.raw_data(),
      .q_weight = static_cast<const float*>(params.q_weight.raw_data()),
      .k = params.k.raw_data(),
      .k_weight = static_cast<const float*>(params.k_weight.raw_data()),
      .k_bias = static_cast<const float*>(params.k_bias.raw_data()),
      .positions = static_cast<const int32_t*>(params.positions.raw_data()),
      .cos_sin = static_cast<const float*>(params.cos_sin.raw_data()),
      .slots = static_cast<const int32_t*>(params.slot_mapping.raw_data()),
      .key_cache = params.key_cache.raw_data(),
      .q_stride = params.q.stride(0),
      .k_stride = params.k.stride(0),
      .num_tokens = check.size("T"),
      .num_heads = check.size("heads*D") / check.size("D"),
      .head_dim = check.size("D"),
      .rotary_dim = check.size("R"),
      .max_position = check.size("max_position"),
      .num_slots = check.size("num_blocks") * check.size("block_size"),
      .eps = params.eps,
      .element = element_of(params.q.dtype()),
      .interleaved = params.style == RotaryStyle::kInterleaved,
  };
}

}  // namespace

void indexer_norm_rope_cache(const Stream& stream, const IndexerNormRopeCacheParams& params) {
  const IndexerNormRopeCacheArgs args = checked_args(params);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant("indexer_norm_rope_cache", kVariants, stream, args, [&] {
    return moves(params.q, params.q, params.k, params.k);
  });
  variant.launch(stream, args);
}

bool indexer_norm_rope_cache_by(std::string_view variant_name,
                                const Stream& stream,
                                const IndexerNormRopeCacheParams& params) {
  const IndexerNormRopeCacheArgs args = checked_args(params);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args);
  return true;
}

}  // namespace atom::ops
