#include "ops/mla_prefill/mla_prefill.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/head_linear/head_linear.h"
#include "ops/mla_attention/mla_attention.h"
#include "ops/mla_prefill/mla_prefill_variants.h"
#include "ops/test_batches.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

struct Case {
  std::vector<int32_t> new_tokens, old_tokens;
  int64_t num_heads, rank, nope, rope, value_dim;
  int32_t block_size;
};

// The last ones have the sizes that GPUs expand.
const Case kCases[] = {
    {{7, 1, 3}, {0, 90, 33}, 3, 96, 24, 16, 40, 16},
    {{1}, {0}, 1, 5, 3, 2, 2, 1},
    {{130}, {0}, 2, 512, 128, 64, 128, 16},
    {{5, 140, 1}, {40, 0, 300}, 4, 512, 128, 64, 128, 64},
};

// A layer's projections of latents, absorbed and as they expand.
struct Weights {
  Tensor uk, uv;        // [num_heads * nope, rank], [num_heads * value_dim, rank]
  Tensor keys, values;  // [num_heads * (nope + rope), rank + rope], [num_heads * value_dim, rank]

  Weights(const Case& c, DType dtype)
      : uk(random_tensor({c.num_heads * c.nope, c.rank}, dtype, 6, 0.1f)),
        uv(random_tensor({c.num_heads * c.value_dim, c.rank}, dtype, 7, 0.1f)),
        keys(Tensor::zeros({c.num_heads * (c.nope + c.rope), c.rank + c.rope}, dtype)),
        values(uv) {
    dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
      const int64_t width = c.rank + c.rope;
      for (int64_t head = 0; head < c.num_heads; ++head) {
        T* rows = keys.data<T>() + head * (c.nope + c.rope) * width;
        for (int64_t d = 0; d < c.nope; ++d) {
          const T* from = uk.data<T>() + (head * c.nope + d) * c.rank;
          std::copy(from, from + c.rank, rows + d * width);
        }
        for (int64_t d = 0; d < c.rope; ++d) {
          rows[(c.nope + d) * width + c.rank + d] = from_float<T>(1.0f);
        }
      }
    });
  }
};

MlaPrefillParams random_call(const Case& c, DType dtype) {
  const int64_t num_tokens = std::accumulate(c.new_tokens.begin(), c.new_tokens.end(), int64_t{0});
  MlaPrefillParams params;
  params.batch = paged_batch_of(c.new_tokens, c.old_tokens, c.block_size);
  params.q = random_tensor({num_tokens, c.num_heads, c.nope + c.rope}, dtype, 1, 2.0f);
  params.cache =
      random_tensor({num_blocks_of(params.batch), c.block_size, c.rank + c.rope}, dtype, 3, 2.0f);
  params.scale = 0.7f / std::sqrt(static_cast<float>(c.nope + c.rope));
  params.out = Tensor::zeros({num_tokens, c.num_heads, c.value_dim}, dtype);
  return params;
}

LinearWeight row_major(const Tensor& rows) {
  LinearWeight weight;
  weight.data = rows;
  weight.out_features = rows.size(0);
  weight.in_features = rows.size(1);
  return weight;
}

bool run(const char* variant,
         ThreadPool& pool,
         const Weights& weights,
         const MlaPrefillParams& params,
         int64_t max_heads = 0) {
  const PagedBatch& batch = params.batch;
  const std::vector<Tensor> tensors = {params.q,
                                       params.cache,
                                       batch.block_tables,
                                       batch.query_start,
                                       batch.seq_lens,
                                       weights.keys,
                                       weights.values,
                                       params.out};
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    const bool on_cpu = at.stream().device().is_cpu();
    const auto weight = [&](const Tensor& rows) {
      return on_cpu ? pack_linear_weight(at.stream(), rows) : row_major(at(rows));
    };
    MlaPrefillParams placed = params;
    placed.q = at(params.q);
    placed.cache = at(params.cache);
    placed.batch.block_tables = at(batch.block_tables);
    placed.batch.query_start = at(batch.query_start);
    placed.batch.seq_lens = at(batch.seq_lens);
    placed.keys = weight(weights.keys);
    placed.values = weight(weights.values);
    placed.out = at(params.out);
    Workspace measuring;
    const Stream dry_run = Stream::dry_run(at.stream().device());
    if (!mla_prefill_by(variant, dry_run, placed, measuring, max_heads)) return false;
    Workspace scratch(at.stream(), measuring.peak_size());
    return mla_prefill_by(variant, at.stream(), placed, scratch, max_heads);
  });
}

// Attention over keys and values that are expanded for every head, in double.
std::vector<double> expected_out(const Case& c, const Weights& w, const MlaPrefillParams& params) {
  const auto cache = values_of(params.cache), q = values_of(params.q);
  const auto keys = values_of(w.keys), values = values_of(w.values);
  const int64_t width = c.rank + c.rope, key_dim = c.nope + c.rope;
  std::vector<double> out;
  int64_t token = 0;
  for (size_t s = 0; s < c.new_tokens.size(); ++s) {
    for (int64_t i = 0; i < c.new_tokens[s]; ++i, ++token) {
      for (int64_t head = 0; head < c.num_heads; ++head) {
        // The query of latents, then the sum of latents: the same sums in another order.
        std::vector<double> query(width), sums(c.rank);
        for (int64_t d = 0; d < key_dim; ++d) {
          const double x = q[(token * c.num_heads + head) * key_dim + d];
          const double* row = keys.data() + (head * key_dim + d) * width;
          for (int64_t r = 0; r < width; ++r) query[r] += x * row[r];
        }
        double total = 0;
        for (int64_t n = 0; n <= c.old_tokens[s] + i; ++n) {
          const double* row =
              cache.data() +
              slot_of(params.batch, static_cast<int64_t>(s), n, c.block_size) * width;
          const double weight =
              std::exp(params.scale * std::inner_product(query.begin(), query.end(), row, 0.0));
          total += weight;
          for (int64_t r = 0; r < c.rank; ++r) sums[r] += weight * row[r];
        }
        for (int64_t d = 0; d < c.value_dim; ++d) {
          const double* row = values.data() + (head * c.value_dim + d) * c.rank;
          out.push_back(std::inner_product(sums.begin(), sums.end(), row, 0.0) / total);
        }
      }
    }
  }
  return out;
}

double distance(const Tensor& got, const std::vector<double>& expected) {
  const auto values = values_of(got);
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (values[i] - expected[i]) * (values[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

// Keys, values and results are rounded to 8 bits, on a GPU weights too: 2e-3 of the length each.
double tolerance(DType dtype) {
  return dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat16 ? 1.5e-3 : 1e-2;
}

TEST(MlaPrefill, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  for (const DType dtype : kFloatDTypes) {
    for (const Case& c : kCases) {
      const Weights weights(c, dtype);
      const MlaPrefillParams params = random_call(c, dtype);
      const auto expected = expected_out(c, weights, params);
      for (const char* variant : kAllVariants) {
        for (const int64_t max_heads : {0, 3}) {
          if (!run(variant, pool, weights, params, max_heads)) continue;
          EXPECT_LT(distance(params.out, expected), tolerance(dtype))
              << variant << " " << params.q.to_string();
        }
      }
    }
  }
}

TEST(MlaPrefill, ReadsACacheInFloat8) {
  ThreadPool pool(2);
  const DType dtype = DType::kBFloat16;
  for (const Case& c : kCases) {
    const Weights weights(c, dtype);
    MlaPrefillParams params = random_call(c, dtype);
    const Tensor codes = Tensor::empty(params.cache.shape(), DType::kFloat8E4M3);
    const std::vector<double> values = values_of(params.cache);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto code = from_float<Float8E4M3>(static_cast<float>(values[i]));
      static_cast<Float8E4M3*>(codes.raw_data())[i] = code;
      params.cache.data<BFloat16>()[i] = from_float<BFloat16>(to_float(code));
    }
    const auto expected = expected_out(c, weights, params);
    params.cache = codes;
    for (const char* variant : kAllVariants) {
      if (!run(variant, pool, weights, params)) continue;
      EXPECT_LT(distance(params.out, expected), tolerance(dtype)) << variant;
    }
  }
}

// What a layer computes of either form, in float32.
TEST(MlaPrefill, IsAbsorbedAttention) {
  ThreadPool pool(2);
  const Stream stream(&pool);
  for (const Case& c : kCases) {
    const DType dtype = DType::kFloat32;
    const Weights weights(c, dtype);
    const MlaPrefillParams params = random_call(c, dtype);
    ASSERT_TRUE(run("reference", pool, weights, params));
    std::vector<LinearWeight> of_queries, of_values;
    for (int64_t head = 0; head < c.num_heads; ++head) {
      const Tensor transposed = Tensor::zeros({c.rank, c.nope}, dtype);
      for (int64_t r = 0; r < c.rank; ++r) {
        for (int64_t d = 0; d < c.nope; ++d) {
          transposed.data<float>()[r * c.nope + d] =
              weights.uk.data<float>()[(head * c.nope + d) * c.rank + r];
        }
      }
      of_queries.push_back(pack_linear_weight(stream, transposed));
      of_values.push_back(
          pack_linear_weight(stream, weights.uv.narrow(0, head * c.value_dim, c.value_dim)));
    }
    const int64_t num_tokens = params.q.size(0);
    const Shape latents = {num_tokens, c.num_heads, c.rank};
    const Shape packed = {num_tokens, c.num_heads * c.rank};
    MlaAttentionParams absorbed;
    absorbed.q_latent = Tensor::zeros(latents, dtype);
    absorbed.q_rope = params.q.narrow(2, c.nope, c.rope);
    absorbed.cache = params.cache;
    absorbed.batch = params.batch;
    absorbed.scale = params.scale;
    absorbed.out = Tensor::zeros(latents, dtype);
    const Tensor out = Tensor::zeros({num_tokens, c.num_heads * c.value_dim}, dtype);
    Workspace scratch(int64_t{1} << 24);
    const Tensor q = params.q.view({num_tokens, c.num_heads * (c.nope + c.rope)});
    head_linear(stream, q, of_queries, absorbed.q_latent.view(packed), scratch);
    mla_attention(stream, absorbed, scratch);
    head_linear(stream, absorbed.out.view(packed), of_values, out, scratch);
    EXPECT_LT(distance(params.out, values_of(out)), 1e-5) << params.q.to_string();
  }
}

// The sequences of a step in runs, as layers compute them where long chunks and others are mixed.
TEST(MlaPrefill, RunsOfABatchAreBatches) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    const auto num_sequences = static_cast<int64_t>(c.new_tokens.size());
    if (num_sequences < 2) continue;
    const DType dtype = DType::kBFloat16;
    const Weights weights(c, dtype);
    const MlaPrefillParams whole = random_call(c, dtype);
    const auto expected = expected_out(c, weights, whole);
    BatchPart head = {.num_sequences = 1, .num_rows = c.new_tokens[0]};
    head.query_start = int32_tensor({0, c.new_tokens[0]});
    BatchPart tail = {.first_sequence = 1,
                      .num_sequences = num_sequences - 1,
                      .first_row = c.new_tokens[0],
                      .num_rows = whole.q.size(0) - c.new_tokens[0]};
    std::vector<int32_t> starts = {0};
    for (int64_t s = 1; s < num_sequences; ++s) starts.push_back(starts.back() + c.new_tokens[s]);
    tail.query_start = int32_tensor(starts);
    for (const char* variant : kAllVariants) {
      bool ran = true;
      for (const BatchPart& part : {head, tail}) {
        MlaPrefillParams params = whole;
        params.q = part.rows_of(whole.q);
        params.batch = part_of(whole.batch, part);
        params.out = part.rows_of(whole.out);
        ran = run(variant, pool, weights, params) && ran;
      }
      if (!ran) continue;
      EXPECT_LT(distance(whole.out, expected), tolerance(dtype)) << variant;
    }
  }
}

TEST(MlaPrefill, LongChunksPreferIt) {
  PagedBatch batch = paged_batch_of({300, 400}, {0, 1000}, 16);
  EXPECT_FALSE(prefers_mla_prefill(batch, 16));  // of queries that are not known
  batch.min_queries = 300;
  EXPECT_TRUE(prefers_mla_prefill(batch, 16));
  batch.min_queries = 20;
  EXPECT_FALSE(prefers_mla_prefill(batch, 16));
  batch = paged_batch_of({300}, {1 << 17}, 16);
  batch.min_queries = 300;
  EXPECT_FALSE(prefers_mla_prefill(batch, 16));  // more keys than are expanded
}

TEST(MlaPrefillDeathTest, RefusesWeightsOfAnotherWidth) {
  const Case& c = kCases[0];
  const Weights weights(c, DType::kFloat32);
  MlaPrefillParams params = random_call(c, DType::kFloat32);
  params.keys = row_major(weights.keys.narrow(1, 0, 8));
  params.values = row_major(weights.values);
  ThreadPool pool(1);
  Workspace scratch;
  EXPECT_DEATH(mla_prefill(Stream(&pool), params, scratch), "keys.in_features");
}

}  // namespace
}  // namespace atom::ops
