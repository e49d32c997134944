// For tests of the sampler: random rows, and what is sampled of rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "sampling/sampler.h"

namespace atom {

inline SamplingParams seeded(uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  return params;
}

inline std::vector<float> random_row(int64_t size, float deviation, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(static_cast<size_t>(size));
  for (float& x : row) x = normal(engine);
  return row;
}

// Samples copies of rows; every row has the same width.
inline std::vector<SampledToken> sample(const std::vector<std::vector<float>>& rows,
                                        const std::vector<SamplingRow>& requests,
                                        int num_threads = 1) {
  ThreadPool pool(num_threads);
  const Stream stream(&pool);
  const auto num_rows = static_cast<int64_t>(rows.size());
  const Tensor logits =
      Tensor::empty({num_rows, static_cast<int64_t>(rows[0].size())}, DType::kFloat32);
  for (int64_t i = 0; i < num_rows; ++i) {
    std::copy(rows[i].begin(), rows[i].end(), logits.data<float>() + i * logits.stride(0));
  }
  std::vector<SampledToken> out(rows.size());
  Sampler().sample(stream, logits, requests, out);
  return out;
}

inline int32_t sample_one(const std::vector<float>& row, const SamplingParams& params) {
  const SamplingState state(params, {}, {}, static_cast<int64_t>(row.size()));
  const SampledToken token = sample({row}, {{&state}})[0];
  EXPECT_TRUE(token.status.ok()) << token.status.message();
  return token.token_id;
}

}  // namespace atom
