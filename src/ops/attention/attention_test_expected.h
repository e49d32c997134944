// For tests of attention: what a batch's result must be, and caches in FP8.
#pragma once

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "ops/attention/attention_test_batch.h"
#include "tensor/float8.h"

namespace atom::ops {

// Of a sequence, [length, heads, head_dim].
struct SequenceValues {
  explicit SequenceValues(const Sequence& sequence)
      : q(values_of(sequence.q)), k(values_of(sequence.k)), v(values_of(sequence.v)) {}

  std::vector<double> q, k, v;
};

// Two passes in double.
inline std::vector<double> expected_attention(const Model& model,
                                              const std::vector<Chunk>& chunks) {
  std::vector<double> out;
  const Tensor sinks = make_sinks(model);
  const int64_t group = model.num_heads / model.num_kv_heads, size = model.head_dim;
  std::map<const Sequence*, SequenceValues> sequences;
  for (const Chunk& chunk : chunks) {
    const auto& [q, k, v] = sequences.try_emplace(chunk.sequence, *chunk.sequence).first->second;
    for (int64_t position = chunk.begin; position < chunk.end; ++position) {
      for (int64_t head = 0; head < model.num_heads; ++head) {
        const double* query = q.data() + (position * model.num_heads + head) * size;
        const double sink = model.has_sinks ? sinks.data<float>()[head] : -INFINITY;
        std::vector<std::pair<int64_t, double>> scores;
        double largest = sink;
        for (int64_t key = 0; key <= position; ++key) {
          if (model.sliding_window > 0 && key <= position - model.sliding_window) continue;
          const int64_t row = (key * model.num_kv_heads + head / group) * size;
          double dot = 0;
          for (int64_t d = 0; d < size; ++d) dot += query[d] * k[row + d];
          scores.emplace_back(row, dot * model.scale);
          largest = std::max(largest, dot * model.scale);
        }
        double sum = std::exp(sink - largest);
        for (const auto& [row, score] : scores) sum += std::exp(score - largest);
        std::vector<double> result(size);
        for (const auto& [row, score] : scores) {
          const double weight = std::exp(score - largest) / sum;
          for (int64_t d = 0; d < size; ++d) result[d] += weight * v[row + d];
        }
        out.insert(out.end(), result.begin(), result.end());
      }
    }
  }
  return out;
}

// Of every value.
inline Tensor float8_codes(const Tensor& values) {
  const Tensor codes = Tensor::empty(values.shape(), DType::kFloat8E4M3);
  const std::vector<double> all = values_of(values);
  for (size_t i = 0; i < all.size(); ++i) {
    codes.data<Float8E4M3>()[i] = from_float<Float8E4M3>(static_cast<float>(all[i]));
  }
  return codes;
}

}  // namespace atom::ops
