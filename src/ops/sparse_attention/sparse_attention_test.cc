#include "ops/sparse_attention/sparse_attention.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/attention/attention.h"
#include "ops/sparse_attention/sparse_attention_variants.h"
#include "ops/test_batches.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

struct Case {
  std::vector<int32_t> new_tokens, old_tokens;
  int64_t num_heads, num_kv_heads, head_dim;
  int32_t block_size;
  int64_t top_k;
};

const Case kCases[] = {
    {{1}, {0}, 1, 1, 5, 1, 1},
    {{1, 3}, {99, 0}, 3, 3, 20, 4, 7},
    {{70, 1, 0, 1, 9}, {0, 64, 5, 200, 30}, 4, 2, 256, 16, 32},
    {{5, 2}, {0, 231}, 24, 2, 64, 16, 130},
    {{1}, {300}, 7, 1, 128, 64, 200},
    {{3, 1}, {2500, 40}, 16, 2, 256, 16, 2048},
    {{1, 2}, {700, 3}, 24, 2, 128, 16, 600},
    {{1}, {90}, 12, 1, 256, 16, 64},
};

// Each row's positions: pseudo-random ones of those it sees, as many as fit.
void fill_indices(const Case& c, const Tensor& indices) {
  int32_t* row = indices.data<int32_t>();
  uint64_t state = 7;
  for (size_t s = 0; s < c.new_tokens.size(); ++s) {
    for (int64_t i = 0; i < c.new_tokens[s]; ++i, row += c.top_k) {
      const int64_t count = c.old_tokens[s] + i + 1;
      int64_t wanted = std::min(c.top_k, count), selected = 0;
      for (int64_t position = 0; position < count && wanted > 0; ++position) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (static_cast<int64_t>((state >> 33) % (count - position)) >= wanted) continue;
        row[selected++] = static_cast<int32_t>(position);
        --wanted;
      }
      std::fill(row + selected, row + c.top_k, -1);
    }
  }
}

SparseAttentionParams random_call(const Case& c, DType dtype) {
  SparseAttentionParams params;
  const int64_t num_tokens = std::accumulate(c.new_tokens.begin(), c.new_tokens.end(), 0);
  params.batch = paged_batch_of(c.new_tokens, c.old_tokens, c.block_size);
  params.q = random_tensor({num_tokens, c.num_heads + 2, c.head_dim}, dtype, 1, 2.0f)
                 .narrow(1, 1, c.num_heads);
  const Shape cache = {num_blocks_of(params.batch), c.block_size, c.num_kv_heads, c.head_dim};
  params.k_cache = random_tensor(cache, dtype, 2, 2.0f);
  params.v_cache = random_tensor(cache, dtype, 3);
  params.indices = Tensor::zeros({num_tokens, c.top_k}, DType::kInt32);
  fill_indices(c, params.indices);
  params.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  params.out = Tensor::zeros({num_tokens, c.num_heads, c.head_dim}, dtype);
  return params;
}

bool run(const char* variant, ThreadPool& pool, const SparseAttentionParams& params) {
  const PagedBatch& batch = params.batch;
  const std::vector<Tensor> tensors = {params.q,
                                       params.k_cache,
                                       params.v_cache,
                                       batch.block_tables,
                                       batch.query_start,
                                       batch.seq_lens,
                                       params.indices,
                                       params.out};
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    SparseAttentionParams placed = params;
    placed.q = at(params.q);
    placed.k_cache = at(params.k_cache);
    placed.v_cache = at(params.v_cache);
    placed.batch.block_tables = at(batch.block_tables);
    placed.batch.query_start = at(batch.query_start);
    placed.batch.seq_lens = at(batch.seq_lens);
    placed.indices = at(params.indices);
    placed.out = at(params.out);
    return sparse_attention_by(variant, at.stream(), placed);
  });
}

std::vector<double> float8_values_of(const Tensor& codes) {
  std::vector<double> values;
  const auto* data = static_cast<const Float8E4M3*>(codes.raw_data());
  for (int64_t i = 0; i < codes.num_elements(); ++i) values.push_back(to_float(data[i]));
  return values;
}

// Softmax over the selected positions, in double.
std::vector<double> expected_out(const SparseAttentionParams& params,
                                 const Case& c,
                                 const std::vector<double>& keys,
                                 const std::vector<double>& values) {
  const auto q = values_of(params.q);
  const int64_t dim = c.head_dim;
  std::vector<double> out;
  int64_t token = 0;
  for (size_t s = 0; s < c.new_tokens.size(); ++s) {
    for (int64_t i = 0; i < c.new_tokens[s]; ++i, ++token) {
      const int32_t* indices = params.indices.data<int32_t>() + token * c.top_k;
      for (int64_t head = 0; head < c.num_heads; ++head) {
        const int64_t kv_head = head / (c.num_heads / c.num_kv_heads);
        const double* query = q.data() + (token * c.num_heads + head) * dim;
        std::vector<double> sums(dim, 0.0);
        double total = 0;
        for (int64_t n = 0; n < c.top_k && indices[n] >= 0; ++n) {
          const int64_t slot =
              slot_of(params.batch, static_cast<int64_t>(s), indices[n], c.block_size);
          const int64_t offset = (slot * c.num_kv_heads + kv_head) * dim;
          const double score =
              std::inner_product(query, query + dim, keys.data() + offset, 0.0) * params.scale;
          const double weight = std::exp(score * params.k_scale);
          total += weight;
          for (int64_t d = 0; d < dim; ++d) sums[d] += weight * values[offset + d];
        }
        for (const double sum : sums) out.push_back(sum * params.v_scale / total);
      }
    }
  }
  return out;
}

double tolerance(DType dtype) {
  return dtype == DType::kFloat32 ? 1e-5 : 1.01 * half_ulp(dtype);
}

// Values are below 1. Products of matrices take weights that are rounded, each to half a unit.
double absolute_tolerance(const std::string& variant, DType dtype, double v_scale) {
  return variant == "mma" ? v_scale * half_ulp(dtype) : 2e-6;
}

TEST(SparseAttention, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  for (const DType dtype : kFloatDTypes) {
    for (const Case& c : kCases) {
      const SparseAttentionParams params = random_call(c, dtype);
      const auto expected =
          expected_out(params, c, values_of(params.k_cache), values_of(params.v_cache));
      for (const char* variant : kAllVariants) {
        if (!run(variant, pool, params)) continue;
        const std::string what = std::string(variant) + " " + params.q.to_string();
        expect_close(
            params.out, expected, tolerance(dtype), absolute_tolerance(variant, dtype, 1), what);
      }
    }
  }
}

TEST(SparseAttention, ReadsACacheInFloat8) {
  ThreadPool pool(2);
  const DType dtype = DType::kBFloat16;
  for (const Case& c : kCases) {
    SparseAttentionParams params = random_call(c, dtype);
    for (Tensor* cache : {&params.k_cache, &params.v_cache}) {
      const auto values = values_of(*cache);
      const Tensor codes = Tensor::empty(cache->shape(), DType::kFloat8E4M3);
      for (size_t i = 0; i < values.size(); ++i) {
        static_cast<Float8E4M3*>(codes.raw_data())[i] =
            from_float<Float8E4M3>(static_cast<float>(values[i]));
      }
      *cache = codes;
    }
    params.k_scale = 0.5f;
    params.v_scale = 3.0f;
    const auto expected =
        expected_out(params, c, float8_values_of(params.k_cache), float8_values_of(params.v_cache));
    for (const char* variant : kAllVariants) {
      if (!run(variant, pool, params)) continue;
      const std::string what = std::string(variant) + " " + params.q.to_string();
      expect_close(params.out,
                   expected,
                   tolerance(dtype),
                   absolute_tolerance(variant, dtype, params.v_scale),
                   what);
    }
  }
}

TEST(SparseAttention, SelectingAllIsAttention) {
  const Case c{{70, 1, 9}, {0, 64, 30}, 4, 2, 64, 16, 80};
  ThreadPool pool(2);
  const SparseAttentionParams params = random_call(c, DType::kFloat32);
  AttentionParams dense;
  dense.q = params.q;
  dense.k_cache = params.k_cache;
  dense.v_cache = params.v_cache;
  dense.batch = params.batch;
  dense.scale = params.scale;
  dense.out = Tensor::zeros(params.out.shape(), DType::kFloat32);
  Workspace scratch(1 << 20);
  attention(Stream(&pool), dense, scratch);
  for (const char* variant : kAllVariants) {
    if (!run(variant, pool, params)) continue;
    expect_close(params.out, values_of(dense.out), 1e-5, 2e-6, variant);
  }
}

TEST(SparseAttention, ARowWithoutPositionsIsZero) {
  const Case c{{2}, {0}, 4, 2, 32, 16, 4};
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    const SparseAttentionParams params = random_call(c, DType::kFloat32);
    std::fill_n(params.indices.data<int32_t>(), c.top_k, -1);
    std::fill_n(params.out.data<float>(), params.out.num_elements(), 5.0f);
    if (!run(variant, pool, params)) continue;
    EXPECT_EQ(values_of(params.out.narrow(0, 0, 1)), std::vector<double>(4 * 32, 0.0)) << variant;
  }
}

// Recorded steps have places for sequences that are not there, of several rows with drafts.
TEST(SparseAttention, SequencesOfLengthZeroGiveZeroOnAGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "the CPU has no such steps";
  const Case c{{3, 4}, {20, 0}, 4, 2, 64, 16, 4};
  ThreadPool pool(1);
  for (const char* variant : {"cuda", "mma"}) {
    const SparseAttentionParams params = random_call(c, DType::kBFloat16);
    params.batch.seq_lens.data<int32_t>()[1] = 0;
    const Tensor padding = params.out.narrow(0, 3, 4);
    std::fill_n(params.indices.narrow(0, 3, 4).data<int32_t>(), 4 * c.top_k, -1);
    copy_convert(random_tensor(padding.shape(), DType::kBFloat16, 5), padding);
    ASSERT_TRUE(run(variant, pool, params));
    EXPECT_EQ(values_of(padding), std::vector<double>(padding.num_elements(), 0.0)) << variant;
  }
}

// The last of many queries, alone and among the others.
TEST(SparseAttention, AQueryDoesNotDependOnTheOthers) {
  const Case c{{70, 1, 9}, {900, 0, 600}, 16, 2, 256, 16, 500};
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    const SparseAttentionParams all = random_call(c, DType::kBFloat16);
    if (!run(variant, pool, all)) continue;
    SparseAttentionParams last = all;
    const int64_t token = all.q.size(0) - 1;
    last.q = all.q.narrow(0, token, 1);
    last.indices = all.indices.narrow(0, token, 1);
    last.out = Tensor::zeros({1, c.num_heads, c.head_dim}, DType::kBFloat16);
    last.batch.block_tables = all.batch.block_tables.narrow(0, 2, 1);
    last.batch.seq_lens = all.batch.seq_lens.narrow(0, 2, 1);
    last.batch.query_start = Tensor::zeros({2}, DType::kInt32);
    last.batch.query_start.data<int32_t>()[1] = 1;
    ASSERT_TRUE(run(variant, pool, last));
    EXPECT_EQ(values_of(last.out), values_of(all.out.narrow(0, token, 1))) << variant;
  }
}

TEST(SparseAttentionDeathTest, RefusesPositionsThatTheQueryDoesNotSee) {
  const Case c{{1}, {5}, 2, 2, 32, 16, 4};
  ThreadPool pool(1);
  const SparseAttentionParams params = random_call(c, DType::kFloat32);
  params.indices.data<int32_t>()[2] = 6;
  EXPECT_DEATH(sparse_attention(Stream(&pool), params), "indices\\[i\\] <= row.position");
}

}  // namespace
}  // namespace atom::ops
