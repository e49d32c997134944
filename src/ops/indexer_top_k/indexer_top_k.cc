#include "ops/indexer_top_k/indexer_top_k.h"

#include <algorithm>
#include <atomic>

#include "ops/indexer_top_k/indexer_top_k_kernels.h"
#include "ops/indexer_top_k/indexer_top_k_variants.h"
#include "ops/indexer_top_k/sm90/indexer_sm90.h"
#include "ops/paged_batch_rows.h"
#include "ops/variant.h"
#include "tensor/element_of.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

int64_t max_keys(const IndexerTopKArgs& args) {
  const int64_t keys = args.batch.max_blocks * args.batch.block_size;
  return (keys + kIndexerScoreBlock - 1) / kIndexerScoreBlock * kIndexerScoreBlock;
}

template <IndexerScoreKernel* kernel>
void select_row(const IndexerTopKArgs& args, int64_t token, float* scores) {
  const PagedRow row = find_row(args.batch, token);
  const int64_t count = row.position + 1;
  int32_t* indices = args.indices + token * args.top_k;
  if (count > args.top_k) {
    kernel(args, token, row, scores);
    select_top_k(scores, count, args.top_k, indices);
    return;
  }
  for (int64_t i = 0; i < args.top_k; ++i) indices[i] = static_cast<int32_t>(i < count ? i : -1);
}

template <IndexerScoreKernel* kernel>
void on_pool(const Stream& stream, const IndexerTopKArgs& args, Workspace& scratch) {
  // A dry run has no threads to ask: there is room for so many, and no more take part.
  constexpr int64_t kMostThreads = 64;
  const int64_t num_threads = stream.is_dry_run()
                                  ? kMostThreads
                                  : std::min<int64_t>(kMostThreads, stream.pool().num_threads());
  const Tensor scores = scratch.tensor({num_threads, max_keys(args)}, DType::kFloat32);
  if (stream.is_dry_run()) return;
  std::atomic<int64_t> left{args.batch.num_tokens};
  stream.pool().share([&](int worker) {
    if (worker >= num_threads) return;
    // From the last on: they see the most, and the last to finish shall be short.
    for (int64_t token; (token = left.fetch_sub(1, std::memory_order_relaxed) - 1) >= 0;) {
      select_row<kernel>(args, token, scores.data<float>() + worker * scores.size(1));
    }
  });
}

bool fits_vectors(const IndexerTopKArgs& args) {
  return args.head_dim % 16 == 0 && args.head_dim <= kIndexerMaxKeySize &&
         args.num_heads * args.head_dim <= kIndexerMaxQuerySize;
}

#ifdef ATOM_CUDA
using SelectRows = decltype(indexer_top_k_cuda);

template <SelectRows* select_rows>
void on_queue(const Stream& stream, const IndexerTopKArgs& args, Workspace& scratch) {
  // Rows of scores at a time, so that they take no more than this, but one row at least.
  constexpr int64_t kMostScores = 64 << 20;
  const int64_t num_tokens = args.batch.num_tokens;
  const int64_t rows =
      std::clamp<int64_t>(kMostScores / max_keys(args), 1, std::max<int64_t>(1, num_tokens));
  const Tensor scores = scratch.tensor({rows, max_keys(args)}, DType::kFloat32);
  if (stream.is_dry_run()) return;
  for (int64_t begin = 0; begin < num_tokens; begin += rows) {
    select_rows(args,
                begin,
                std::min(begin + rows, num_tokens),
                scores.data<float>(),
                max_keys(args),
                stream.queue().handle());
  }
}

bool fits_sm90(const IndexerTopKArgs& args) {
  return supports_indexer_top_k_sm90(args, max_keys(args));
}

bool fits_stream(const IndexerTopKArgs& args) {
  return supports_indexer_top_k_stream_sm90(args, max_keys(args));
}
#endif

using Launch = void(const Stream&, const IndexerTopKArgs&, Workspace&);

constexpr Variant<IndexerTopKArgs, Launch> kVariants[] = {
#ifdef ATOM_CUDA
    {"stream",
     CpuIsa::kScalar,
     fits_stream,
     on_queue<indexer_top_k_stream_sm90>,
     DeviceType::kCuda,
     kMixesRows},
    {"sm90", CpuIsa::kScalar, fits_sm90, on_queue<indexer_top_k_sm90>, DeviceType::kCuda},
    {"cuda", CpuIsa::kScalar, nullptr, on_queue<indexer_top_k_cuda>, DeviceType::kCuda},
#endif
    {"avx512", CpuIsa::kAvx512, fits_vectors, on_pool<indexer_scores_avx512>},
    {"avx2", CpuIsa::kAvx2, fits_vectors, on_pool<indexer_scores_avx2>},
    {"reference", CpuIsa::kScalar, nullptr, on_pool<indexer_scores_reference>},
};

IndexerTopKArgs checked_args(const Stream& stream, const IndexerTopKParams& params) {
  const DType dtype = params.q.dtype(), weight_dtype = params.weights.dtype();
  CHECK((weight_dtype == dtype || weight_dtype == DType::kFloat32));
  TensorCheck check("indexer_top_k");
  check.tensor("weights", params.weights, {"T", "heads"}, weight_dtype)
      .contiguous("key_cache", params.key_cache, {"num_blocks", "block_size", "D"}, dtype)
      .tensor("q", params.q, {"T", "heads*D"}, dtype)
      .contiguous("indices", params.indices, {"T", "top_k"}, DType::kInt32);
  CHECK(check.size("heads*D") == check.size("heads") * check.size("D"));
  CHECK(check.size("top_k") > 0);
  return {
      .q = params.q.raw_data(),
      .weights = params.weights.raw_data(),
      .key_cache = params.key_cache.raw_data(),
      .indices = static_cast<int32_t*>(params.indices.raw_data()),
      .batch = checked_paged_batch(check,
                                   stream,
                                   params.batch,
                                   check.size("T"),
                                   check.size("num_blocks"),
                                   check.size("block_size")),
      .q_stride = params.q.stride(0),
      .weights_stride = params.weights.stride(0),
      .num_heads = check.size("heads"),
      .head_dim = check.size("D"),
      .top_k = check.size("top_k"),
      .scale = params.scale,
      .element = element_of(dtype),
      .weight_element = element_of(weight_dtype),
      .activation = params.activation,
  };
}

}  // namespace

void indexer_top_k(const Stream& stream, const IndexerTopKParams& params, Workspace& scratch) {
  const IndexerTopKArgs args = checked_args(stream, params);
  Workspace::Scope scope(scratch);
  const auto& variant = pick_variant("indexer_top_k", kVariants, stream, args, [&] {
    // How much of the cache is read is known to the device alone.
    return moves(params.q, params.weights, params.indices);
  });
  variant.launch(stream, args, scratch);
}

bool indexer_top_k_by(std::string_view variant_name,
                      const Stream& stream,
                      const IndexerTopKParams& params,
                      Workspace& scratch) {
  const IndexerTopKArgs args = checked_args(stream, params);
  const auto* variant = named_variant(kVariants, variant_name, stream.device().type, args);
  if (variant == nullptr) return false;
  Workspace::Scope scope(scratch);
  variant->launch(stream, args, scratch);
  return true;
}

}  // namespace atom::ops
