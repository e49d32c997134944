#include "ops/rotary_embedding/rotary_embedding.h"

#include <algorithm>

#include "ops/rotary_embedding/rotary_embedding_kernels.h"
#include "ops/rotary_embedding/rotary_embedding_variants.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

// Vector kernels have no tails: 16 is the widest vector, of pairs (NeoX) or elements.
bool has_whole_vectors(const RotaryEmbeddingArgs& args) {
  return args.rotary_dim % (args.interleaved ? 16 : 32) == 0;
}

// A few microseconds of work, several times what a parallel region costs.
constexpr int64_t kElementsPerTask = 16384;

template <RotaryEmbeddingKernel* kernel>
void on_pool(const Stream& stream, const RotaryEmbeddingArgs& args, int64_t num_tokens) {
  for (int64_t t = 0; t < num_tokens; ++t) {
    CHECK(args.positions[t] >= 0);
    CHECK(args.positions[t] < args.max_position);
  }
  const int64_t elements = (args.heads[0].num_heads + args.heads[1].num_heads) * args.rotary_dim;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, elements));
  stream.pool().parallel_for(
      num_tokens, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

template <RotaryEmbeddingGpuKernel* kernel>
void on_queue(const Stream& stream, const RotaryEmbeddingArgs& args, int64_t num_tokens) {
  if (num_tokens > 0) kernel(args, num_tokens, stream.queue().handle());
}

using Launch = void(const Stream&, const RotaryEmbeddingArgs&, int64_t num_tokens);

constexpr Variant<RotaryEmbeddingArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<rotary_embedding_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, has_whole_vectors, on_pool<rotary_embedding_avx512>},
    {"avx2", CpuIsa::kAvx2, has_whole_vectors, on_pool<rotary_embedding_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<rotary_embedding_reference>},
};

RotaryEmbeddingArgs::Heads heads_of(const Tensor& x) {
  return {x.raw_data(), x.size(1), x.stride(0), x.stride(1)};
}

RotaryEmbeddingArgs checked_args(const Tensor& positions,
                                 const Tensor& cos_sin,
                                 const Tensor& q,
                                 const Tensor& k,
                                 RotaryStyle style) {
  TensorCheck("rotary_embedding")
      .contiguous("positions", positions, {"T"}, DType::kInt32)
      .tensor("cos_sin", cos_sin, {"max_position", "rotary_dim"}, DType::kFloat32)
      .tensor("q", q, {"T", "NH", "D"}, q.dtype())
      .tensor("k", k, {"T", "NKV", "D"}, q.dtype());
  CHECK(cos_sin.size(1) % 2 == 0);
  CHECK(cos_sin.size(1) <= q.size(2));
  return {
      .heads = {heads_of(q), heads_of(k)},
      .positions = static_cast<const int32_t*>(positions.raw_data()),
      .cos_sin = static_cast<const float*>(cos_sin.raw_data()),
      .cos_sin_stride = cos_sin.stride(0),
      .max_position = cos_sin.size(0),
      .rotary_dim = cos_sin.size(1),
      .element = element_of(q.dtype()),
      .interleaved = style == RotaryStyle::kInterleaved,
  };
}

}  // namespace

void rotary_embedding(const Stream& stream,
                      const Tensor& positions,
                      const Tensor& cos_sin,
                      const Tensor& q,
                      const Tensor& k,
                      RotaryStyle style) {
  const RotaryEmbeddingArgs args = checked_args(positions, cos_sin, q, k, style);
  if (stream.is_dry_run()) return;
  const auto& variant = pick_variant(
      "rotary_embedding", kVariants, stream, args, [&] { return moves(positions, q, q, k, k); });
  variant.launch(stream, args, q.size(0));
}

bool rotary_embedding_by(std::string_view variant_name,
                         const Stream& stream,
                         const Tensor& positions,
                         const Tensor& cos_sin,
                         const Tensor& q,
                         const Tensor& k,
                         RotaryStyle style) {
  const RotaryEmbeddingArgs args = checked_args(positions, cos_sin, q, k, style);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  variant->launch(stream, args, q.size(0));
  return true;
}

}  // namespace atom::ops
