#include "ops/mla_attention/mla_attention.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/mla_attention/mla_attention_variants.h"
#include "ops/test_batches.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

struct Case {
  std::vector<int32_t> new_tokens, old_tokens;
  int64_t num_heads, rank, rope;
  int32_t block_size;
  int64_t top_k;  // 0: every position
};

const Case kCases[] = {
    {{1}, {0}, 1, 5, 2, 1, 0},
    {{1, 3}, {99, 0}, 3, 32, 16, 4, 0},
    {{40, 1, 0, 1, 9}, {0, 64, 5, 200, 30}, 5, 64, 32, 16, 0},
    {{3, 2}, {0, 131}, 18, 512, 64, 16, 0},
    {{5, 2}, {0, 131}, 6, 96, 16, 8, 50},
    {{1, 2, 1}, {700, 63, 150}, 64, 512, 64, 7, 0},
    {{3, 1}, {300, 11}, 20, 512, 64, 16, 130},
};

// Each row's positions: every other one that it sees, from its own backwards, ascending.
Tensor every_other(const Case& c, int64_t num_tokens) {
  const Tensor indices = Tensor::zeros({num_tokens, c.top_k}, DType::kInt32);
  int32_t* row = indices.data<int32_t>();
  for (size_t s = 0; s < c.new_tokens.size(); ++s) {
    for (int32_t i = 0; i < c.new_tokens[s]; ++i, row += c.top_k) {
      const int64_t own = c.old_tokens[s] + i;
      const int64_t count = std::min(c.top_k, own / 2 + 1);
      for (int64_t n = 0; n < c.top_k; ++n) {
        row[n] = n < count ? static_cast<int32_t>(own - 2 * (count - 1 - n)) : -1;
      }
    }
  }
  return indices;
}

// Whatever their size, queries give scores of the same one.
MlaAttentionParams random_call(const Case& c, DType dtype, float query_size = 2.0f) {
  MlaAttentionParams params;
  const int64_t num_tokens = std::accumulate(c.new_tokens.begin(), c.new_tokens.end(), 0);
  params.batch = paged_batch_of(c.new_tokens, c.old_tokens, c.block_size);
  params.q_latent = random_tensor({num_tokens, c.num_heads + 2, c.rank}, dtype, 1, query_size)
                        .narrow(1, 1, c.num_heads);
  params.q_rope = random_tensor({num_tokens, c.num_heads, 3 * c.rope}, dtype, 2, query_size)
                      .narrow(2, c.rope, c.rope);
  const Shape cache = {num_blocks_of(params.batch), c.block_size, c.rank + c.rope};
  params.cache = random_tensor(cache, dtype, 3, 2.0f);
  if (c.top_k > 0) params.indices = every_other(c, num_tokens);
  params.scale = 1.4f / query_size / std::sqrt(static_cast<float>(c.rank + c.rope));
  params.out = Tensor::zeros({num_tokens, c.num_heads, c.rank}, dtype);
  return params;
}

bool run(const char* variant, ThreadPool& pool, const MlaAttentionParams& params) {
  const PagedBatch& batch = params.batch;
  const std::vector<Tensor> tensors = {params.q_latent,
                                       params.q_rope,
                                       params.cache,
                                       batch.block_tables,
                                       batch.query_start,
                                       batch.seq_lens,
                                       params.indices,
                                       params.out};
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    MlaAttentionParams placed = params;
    placed.q_latent = at(params.q_latent);
    placed.q_rope = at(params.q_rope);
    placed.cache = at(params.cache);
    placed.batch.block_tables = at(batch.block_tables);
    placed.batch.query_start = at(batch.query_start);
    placed.batch.seq_lens = at(batch.seq_lens);
    placed.indices = at(params.indices);
    placed.out = at(params.out);
    Workspace measuring;
    const Stream dry_run = Stream::dry_run(at.stream().device());
    if (!mla_attention_by(variant, dry_run, placed, measuring)) return false;
    Workspace scratch(at.stream(), measuring.peak_size());
    return mla_attention_by(variant, at.stream(), placed, scratch);
  });
}

// The slots of the keys that each token sees.
std::vector<std::vector<int64_t>> visible_slots(const MlaAttentionParams& params, const Case& c) {
  std::vector<std::vector<int64_t>> result;
  for (size_t s = 0; s < c.new_tokens.size(); ++s) {
    for (int64_t i = 0; i < c.new_tokens[s]; ++i) {
      std::vector<int64_t> slots;
      for (int64_t n = 0; n <= c.old_tokens[s] + i; ++n) {
        int64_t position = n;
        if (params.indices.defined()) {
          const int32_t* row =
              params.indices.data<int32_t>() + static_cast<int64_t>(result.size()) * c.top_k;
          if (n >= c.top_k || row[n] < 0) break;
          position = row[n];
        }
        slots.push_back(slot_of(params.batch, static_cast<int64_t>(s), position, c.block_size));
      }
      result.push_back(std::move(slots));
    }
  }
  return result;
}

// Softmax of `score` over a token's slots, applied to the vectors that `value` gives, in double.
template <typename Score, typename Value>
std::vector<double> attend(const std::vector<int64_t>& slots,
                           int64_t size,
                           const Score& score,
                           const Value& value) {
  std::vector<double> sums(size, 0.0);
  double total = 0;
  for (const int64_t slot : slots) {
    const double weight = std::exp(score(slot));
    total += weight;
    for (int64_t d = 0; d < size; ++d) sums[d] += weight * value(slot, d);
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

std::vector<double> expected_out(const MlaAttentionParams& params,
                                 const Case& c,
                                 const std::vector<double>& cache) {
  const auto latent = values_of(params.q_latent), rope = values_of(params.q_rope);
  const auto visible = visible_slots(params, c);
  const int64_t width = c.rank + c.rope;
  std::vector<double> out;
  for (size_t token = 0; token < visible.size(); ++token) {
    for (int64_t head = 0; head < c.num_heads; ++head) {
      const int64_t row = static_cast<int64_t>(token) * c.num_heads + head;
      const double* q = latent.data() + row * c.rank;
      const double* q_rope = rope.data() + row * c.rope;
      const auto score = [&](int64_t slot) {
        const double* key = cache.data() + slot * width;
        return params.scale * (std::inner_product(q, q + c.rank, key, 0.0) +
                               std::inner_product(q_rope, q_rope + c.rope, key + c.rank, 0.0));
      };
      const auto value = [&](int64_t slot, int64_t d) { return cache[slot * width + d]; };
      for (const double x : attend(visible[token], c.rank, score, value)) out.push_back(x);
    }
  }
  return out;
}

double tolerance(DType dtype) {
  return dtype == DType::kFloat32 ? 1e-5 : 1.01 * half_ulp(dtype);
}

// Values are below 2. Hopper's variants round each weight, to half a unit.
double absolute_tolerance(const std::string& variant) {
  return variant == "sm90" ? 2 * half_ulp(DType::kBFloat16) : 3e-6;
}

TEST(MlaAttention, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  for (const DType dtype : kFloatDTypes) {
    for (const Case& c : kCases) {
      const MlaAttentionParams params = random_call(c, dtype);
      const auto expected = expected_out(params, c, values_of(params.cache));
      for (const char* variant : kAllVariants) {
        if (!run(variant, pool, params)) continue;
        const std::string what = std::string(variant) + " " + params.q_latent.to_string();
        expect_close(params.out, expected, tolerance(dtype), absolute_tolerance(variant), what);
      }
    }
  }
}

// Gives a call a cache of FP8, and returns the values of its codes.
std::vector<double> store_in_float8(MlaAttentionParams& params) {
  std::vector<double> values = values_of(params.cache);
  const Tensor codes = Tensor::empty(params.cache.shape(), DType::kFloat8E4M3);
  for (size_t i = 0; i < values.size(); ++i) {
    const Float8E4M3 code = from_float<Float8E4M3>(static_cast<float>(values[i]));
    static_cast<Float8E4M3*>(codes.raw_data())[i] = code;
    values[i] = to_float(code);
  }
  params.cache = codes;
  return values;
}

// Queries may be larger and smaller than what float16 has.
TEST(MlaAttention, ReadsACacheInFloat8) {
  ThreadPool pool(2);
  for (const float query_size : {2.0f, 0x1p40f, 0x1p-40f}) {
    for (const Case& c : kCases) {
      MlaAttentionParams params = random_call(c, DType::kBFloat16, query_size);
      const auto expected = expected_out(params, c, store_in_float8(params));
      for (const char* variant : kAllVariants) {
        if (!run(variant, pool, params)) continue;
        const std::string what = std::string(variant) + " " + params.q_latent.to_string();
        expect_close(
            params.out, expected, tolerance(DType::kBFloat16), absolute_tolerance(variant), what);
      }
    }
  }
}

// Recorded steps have places for sequences that are not there, of several rows with drafts.
TEST(MlaAttention, SequencesOfLengthZeroGiveZeroOnAGpu) {
  if (test_gpu() == nullptr) GTEST_SKIP() << "the CPU has no such steps";
  ThreadPool pool(1);
  for (const int64_t top_k : {0, 8}) {
    const Case c{{3, 4}, {20, 0}, 16, 512, 64, 16, top_k};
    for (const char* variant : {"sm90", "cuda"}) {
      const MlaAttentionParams params = random_call(c, DType::kBFloat16);
      params.batch.seq_lens.data<int32_t>()[1] = 0;
      if (top_k > 0) std::fill_n(params.indices.narrow(0, 3, 4).data<int32_t>(), 4 * top_k, -1);
      if (!run(variant, pool, params)) continue;
      const Tensor padding = params.out.narrow(0, 3, 4);
      EXPECT_EQ(values_of(padding), std::vector<double>(padding.num_elements(), 0.0)) << variant;
    }
  }
}

// Queries and results of the absorbed form, by a head's projections, against attention over keys
// and values that are expanded for every head (all in double but the operator).
TEST(MlaAttention, AbsorbedIsExpanded) {
  const Case c{{7, 1, 3}, {0, 90, 33}, 3, 96, 16, 16, 0};
  constexpr int64_t kNope = 24, kValue = 40;
  ThreadPool pool(2);
  const MlaAttentionParams params = random_call(c, DType::kFloat32);
  const int64_t num_rows = params.q_latent.size(0) * c.num_heads, width = c.rank + c.rope;
  const auto nope = values_of(random_tensor({num_rows, kNope}, DType::kFloat32, 5));
  const auto uk = values_of(random_tensor({c.num_heads, kNope, c.rank}, DType::kFloat32, 6));
  const auto uv = values_of(random_tensor({c.num_heads, kValue, c.rank}, DType::kFloat32, 7));
  const auto rope = values_of(params.q_rope), cache = values_of(params.cache);
  // Row `d` of a head's projection times a latent.
  const auto project = [&](const std::vector<double>& w, int64_t row, const double* latent) {
    return std::inner_product(latent, latent + c.rank, w.data() + row * c.rank, 0.0);
  };
  const auto visible = visible_slots(params, c);
  std::vector<double> expanded;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t head = row % c.num_heads, token = row / c.num_heads;
    float* q = params.q_latent.data<float>() + token * params.q_latent.stride(0) +
               head * params.q_latent.stride(1);
    for (int64_t r = 0; r < c.rank; ++r) {
      double sum = 0;
      for (int64_t d = 0; d < kNope; ++d) {
        sum += nope[row * kNope + d] * uk[(head * kNope + d) * c.rank + r];
      }
      q[r] = static_cast<float>(sum);
    }
    const auto score = [&](int64_t slot) {
      const double* key = cache.data() + slot * width;
      double sum = 0;
      for (int64_t d = 0; d < kNope; ++d) {
        sum += nope[row * kNope + d] * project(uk, head * kNope + d, key);
      }
      for (int64_t d = 0; d < c.rope; ++d) sum += rope[row * c.rope + d] * key[c.rank + d];
      return params.scale * sum;
    };
    const auto value = [&](int64_t slot, int64_t d) {
      return project(uv, head * kValue + d, cache.data() + slot * width);
    };
    for (const double x : attend(visible[token], kValue, score, value)) expanded.push_back(x);
  }
  for (const char* variant : kAllVariants) {
    if (!run(variant, pool, params)) continue;
    const auto latents = values_of(params.out);
    double error = 0, norm = 0;
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int64_t d = 0; d < kValue; ++d) {
        const double ours =
            project(uv, row % c.num_heads * kValue + d, latents.data() + row * c.rank);
        const double theirs = expanded[row * kValue + d];
        error += (ours - theirs) * (ours - theirs);
        norm += theirs * theirs;
      }
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-5) << variant;
  }
}

TEST(MlaAttention, ATokensBitsAreItsOwn) {
  const Case batch{{40, 1, 3}, {0, 64, 30}, 18, 64, 32, 16, 0};
  const Case alone{{40}, {0}, 18, 64, 32, 16, 0};
  ThreadPool pool(3);
  const MlaAttentionParams all = random_call(batch, DType::kBFloat16);
  MlaAttentionParams one = random_call(alone, DType::kBFloat16);
  one.q_latent = all.q_latent.narrow(0, 0, 40);
  one.q_rope = all.q_rope.narrow(0, 0, 40);
  one.cache = all.cache;
  one.batch.block_tables = all.batch.block_tables.narrow(0, 0, 1);
  for (const char* variant : {"reference", "avx2", "avx512"}) {
    if (!run(variant, pool, all) || !run(variant, pool, one)) continue;
    EXPECT_EQ(values_of(all.out.narrow(0, 0, 40)), values_of(one.out)) << variant;
  }
}

TEST(MlaAttention, ARowWithoutKeysIsZero) {
  const Case c{{2}, {0}, 4, 32, 16, 16, 4};
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    const MlaAttentionParams params = random_call(c, DType::kFloat32);
    std::fill_n(params.indices.data<int32_t>(), c.top_k, -1);
    std::fill_n(params.out.data<float>(), params.out.num_elements(), 5.0f);
    if (!run(variant, pool, params)) continue;
    EXPECT_EQ(values_of(params.out.narrow(0, 0, 1)), std::vector<double>(4 * 32, 0.0)) << variant;
  }
}

TEST(MlaAttentionDeathTest, RefusesPositionsThatTheQueryDoesNotSee) {
  const Case c{{1}, {5}, 2, 32, 16, 16, 4};
  ThreadPool pool(1);
  const MlaAttentionParams params = random_call(c, DType::kFloat32);
  params.indices.data<int32_t>()[2] = 6;
  Workspace scratch;
  EXPECT_DEATH(mla_attention(Stream(&pool), params, scratch), "indices\\[i\\] <= row.position");
}

}  // namespace
}  // namespace atom::ops
