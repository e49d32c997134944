#include "ops/indexer_top_k/indexer_top_k.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "ops/indexer_top_k/indexer_top_k_variants.h"
#include "ops/test_batches.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

struct Case {
  std::vector<int32_t> new_tokens, old_tokens;
  int64_t num_heads, head_dim;
  int32_t block_size;
  int64_t top_k;
  IndexerActivation activation;
};

constexpr auto kRelu = IndexerActivation::kRelu;
constexpr auto kIdentity = IndexerActivation::kIdentity;

const Case kCases[] = {
    {{1}, {0}, 1, 5, 1, 1, kRelu},
    {{1}, {99}, 3, 20, 4, 7, kIdentity},
    {{70, 1, 0, 1, 9}, {0, 64, 5, 100, 30}, 4, 128, 16, 32, kRelu},
    {{70, 1, 0, 1, 9}, {0, 64, 5, 100, 30}, 4, 128, 1, 32, kIdentity},
    {{40, 2}, {0, 131}, 64, 128, 16, 33, kRelu},
    {{1, 3}, {600, 0}, 11, 64, 64, 512, kRelu},
    {{1, 2}, {2999, 700}, 11, 128, 64, 512, kRelu},
};

IndexerTopKParams random_call(const Case& c, DType dtype, DType weight_dtype) {
  IndexerTopKParams params;
  const int64_t num_tokens = std::accumulate(c.new_tokens.begin(), c.new_tokens.end(), 0);
  params.batch = paged_batch_of(c.new_tokens, c.old_tokens, c.block_size);
  const int64_t size = c.num_heads * c.head_dim;
  params.q = random_tensor({num_tokens, size + 16}, dtype, 1).narrow(1, 16, size);
  params.weights =
      random_tensor({num_tokens, c.num_heads + 3}, weight_dtype, 2).narrow(1, 1, c.num_heads);
  params.key_cache =
      random_tensor({num_blocks_of(params.batch), c.block_size, c.head_dim}, dtype, 3);
  params.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  params.activation = c.activation;
  params.indices = Tensor::zeros({num_tokens, c.top_k}, DType::kInt32);
  return params;
}

bool run(const char* variant, ThreadPool& pool, const IndexerTopKParams& params) {
  const PagedBatch& batch = params.batch;
  const std::vector<Tensor> tensors = {params.q,
                                       params.weights,
                                       params.key_cache,
                                       batch.block_tables,
                                       batch.query_start,
                                       batch.seq_lens,
                                       params.indices};
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    IndexerTopKParams placed = params;
    placed.q = at(params.q);
    placed.weights = at(params.weights);
    placed.key_cache = at(params.key_cache);
    placed.batch.block_tables = at(batch.block_tables);
    placed.batch.query_start = at(batch.query_start);
    placed.batch.seq_lens = at(batch.seq_lens);
    placed.indices = at(params.indices);
    Workspace measuring;
    const Stream dry_run = Stream::dry_run(at.stream().device());
    if (!indexer_top_k_by(variant, dry_run, placed, measuring)) return false;
    Workspace scratch(at.stream(), measuring.peak_size());
    return indexer_top_k_by(variant, at.stream(), placed, scratch);
  });
}

// Of every row, the scores of the tokens that it sees, in double.
std::vector<std::vector<double>> scores_of(const IndexerTopKParams& params, const Case& c) {
  const auto q = values_of(params.q), weights = values_of(params.weights);
  const auto keys = values_of(params.key_cache);
  std::vector<std::vector<double>> rows;
  for (size_t s = 0; s < c.new_tokens.size(); ++s) {
    for (int64_t i = 0; i < c.new_tokens[s]; ++i) {
      const int64_t token = static_cast<int64_t>(rows.size());
      std::vector<double> scores;
      for (int64_t position = 0; position <= c.old_tokens[s] + i; ++position) {
        const double* key =
            keys.data() +
            slot_of(params.batch, static_cast<int64_t>(s), position, c.block_size) * c.head_dim;
        double sum = 0;
        for (int64_t head = 0; head < c.num_heads; ++head) {
          const double* query = q.data() + (token * c.num_heads + head) * c.head_dim;
          double product = std::inner_product(query, query + c.head_dim, key, 0.0);
          if (c.activation == kRelu) product = std::max(product, 0.0);
          sum += weights[token * c.num_heads + head] * product;
        }
        scores.push_back(sum * params.scale);
      }
      rows.push_back(scores);
    }
  }
  return rows;
}

std::vector<int32_t> row_of(const Tensor& indices, int64_t row) {
  const int32_t* data = indices.data<int32_t>() + row * indices.size(1);
  return {data, data + indices.size(1)};
}

// The best by score, then by position.
std::vector<int32_t> best_of(const std::vector<double>& scores, int64_t top_k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), top_k));
  std::sort(order.begin(), order.end());
  order.resize(top_k, -1);
  return order;
}

// Small integers, whose scores are exact in every variant and often equal.
void make_integers(const Tensor& tensor) {
  dispatch_float(tensor.dtype(), [&]<typename T>(TypeTag<T>) {
    T* data = tensor.data<T>();
    int64_t last = 0;
    for (int dim = 0; dim < tensor.rank(); ++dim) {
      last += (tensor.size(dim) - 1) * tensor.stride(dim);
    }
    for (int64_t i = 0; i <= last; ++i) data[i] = from_float<T>(std::rint(2 * to_float(data[i])));
  });
}

TEST(IndexerTopK, SelectsTheBestAndOfEqualOnesTheFirst) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) {
        IndexerTopKParams params = random_call(c, dtype, dtype);
        params.scale = 0.5f;
        for (const Tensor& tensor : {params.q, params.weights, params.key_cache}) {
          make_integers(tensor);
        }
        if (!run(variant, pool, params)) continue;
        const auto scores = scores_of(params, c);
        for (size_t row = 0; row < scores.size(); ++row) {
          ASSERT_EQ(row_of(params.indices, static_cast<int64_t>(row)),
                    best_of(scores[row], c.top_k))
              << variant << " " << params.q.to_string() << " row " << row;
        }
      }
    }
  }
}

TEST(IndexerTopK, SelectsTheBestOfAnyScores) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) {
        const IndexerTopKParams params = random_call(c, dtype, DType::kFloat32);
        if (!run(variant, pool, params)) continue;
        const auto scores = scores_of(params, c);
        for (size_t row = 0; row < scores.size(); ++row) {
          const auto selected = row_of(params.indices, static_cast<int64_t>(row));
          const auto best = best_of(scores[row], c.top_k);
          // The scores, in order: equal but for rounding, although the positions may not be.
          const auto sorted_scores = [&](const std::vector<int32_t>& positions) {
            std::vector<double> values;
            for (const int32_t position : positions) {
              if (position >= 0) values.push_back(scores[row].at(position));
            }
            std::sort(values.begin(), values.end());
            return values;
          };
          const auto got = sorted_scores(selected), wanted = sorted_scores(best);
          ASSERT_EQ(got.size(), wanted.size());
          ASSERT_TRUE(
              std::is_sorted(selected.begin(), selected.begin() + got.size(), std::less_equal<>()));
          for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-5) << variant;
        }
      }
    }
  }
}

TEST(IndexerTopK, ARowDoesNotDependOnTheOthers) {
  const Case all{{70, 1, 9}, {0, 100, 30}, 8, 128, 16, 20, kRelu};
  ThreadPool many(3), one(1);
  for (const char* variant : kAllVariants) {
    const IndexerTopKParams params = random_call(all, DType::kBFloat16, DType::kBFloat16);
    if (!run(variant, many, params)) continue;
    int64_t row = 0;
    for (int64_t s = 0; s < 3; ++s) {
      for (int32_t i = 0; i < all.new_tokens[s]; ++i, ++row) {
        if (i % 13 != 0) continue;
        IndexerTopKParams alone = params;
        alone.q = params.q.narrow(0, row, 1);
        alone.weights = params.weights.narrow(0, row, 1);
        alone.batch.query_start = int32_tensor({0, 1});
        alone.batch.seq_lens = int32_tensor({all.old_tokens[s] + i + 1});
        alone.batch.block_tables = params.batch.block_tables.narrow(0, s, 1);
        alone.indices = Tensor::zeros({1, all.top_k}, DType::kInt32);
        run(variant, one, alone);
        EXPECT_EQ(row_of(alone.indices, 0), row_of(params.indices, row)) << variant;
      }
    }
  }
}

TEST(IndexerTopK, ANaNIsTheLastToBeSelected) {
  const Case c{{1}, {39}, 2, 32, 8, 8, kRelu};
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    const IndexerTopKParams params = random_call(c, DType::kFloat32, DType::kFloat32);
    for (int64_t position = 0; position < 40; ++position) {
      if (position % 5 == 1) continue;
      const int64_t slot = slot_of(params.batch, 0, position, c.block_size);
      params.key_cache.data<float>()[slot * c.head_dim] = std::numeric_limits<float>::quiet_NaN();
    }
    if (!run(variant, pool, params)) continue;
    EXPECT_EQ(row_of(params.indices, 0), (std::vector<int32_t>{1, 6, 11, 16, 21, 26, 31, 36}))
        << variant;
  }
}

TEST(IndexerTopK, PaddedRowsSelectNothing) {
  ThreadPool pool(1);
  const Case c{{2, 1}, {9, 20}, 2, 32, 8, 4, kIdentity};
  for (const char* variant : kAllVariants) {
    IndexerTopKParams params = random_call(c, DType::kBFloat16, DType::kBFloat16);
    params.batch.query_start = int32_tensor({0, 2, 2});
    if (!run(variant, pool, params)) continue;
    EXPECT_NE(row_of(params.indices, 1), std::vector<int32_t>(4, -1)) << variant;
    EXPECT_EQ(row_of(params.indices, 2), std::vector<int32_t>(4, -1)) << variant;
  }
}

TEST(IndexerTopKDeathTest, RefusesBlocksThatAreMissing) {
  ThreadPool pool(1);
  Workspace scratch(1 << 20);
  const Case c{{1}, {20}, 2, 32, 8, 4, kIdentity};
  const IndexerTopKParams params = random_call(c, DType::kFloat32, DType::kFloat32);
  params.batch.block_tables.data<int32_t>()[1] = -1;
  EXPECT_DEATH(indexer_top_k(Stream(&pool), params, scratch), "table\\[block\\] >= 0");
}

}  // namespace
}  // namespace atom::ops
