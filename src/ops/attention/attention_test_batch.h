// For tests of attention: sequences, and chunks of several of them as a batch in paged memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/attention_test_run.h"
#include "ops/test_tensors.h"

namespace atom::ops {

struct Model {
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t sliding_window = 0;
  bool has_sinks = false;
  float scale = 0.2f;
};

// A sequence's queries, keys and values at all of its positions.
struct Sequence {
  Tensor q, k, v;  // [length, heads, head_dim]
};

// Positions [begin, end) of a sequence, computed in one step.
struct Chunk {
  const Sequence* sequence;
  int64_t begin, end;
};

inline Sequence make_sequence(const Model& model, DType dtype, int64_t length, uint64_t seed) {
  return {random_tensor({length, model.num_heads, model.head_dim}, dtype, seed, 2.0f),
          random_tensor({length, model.num_kv_heads, model.head_dim}, dtype, seed + 100, 2.0f),
          random_tensor({length, model.num_kv_heads, model.head_dim}, dtype, seed + 200, 2.0f)};
}

inline Tensor make_sinks(const Model& model) {
  return model.has_sinks ? random_tensor({model.num_heads}, DType::kFloat32, 77, 6.0f) : Tensor();
}

inline void copy_row(const Tensor& from, int64_t i, const Tensor& to, int64_t j) {
  copy_convert(from.narrow(0, i, 1), to.narrow(0, j, 1));
}

// A batch in paged memory. Whatever no query may touch is NaN, or has no block at all.
class Batch {
 public:
  Batch(const Model& model, DType dtype, int64_t block_size, const std::vector<Chunk>& chunks)
      : num_sequences_(static_cast<int64_t>(chunks.size())) {
    int64_t num_tokens = 0, num_blocks = 3, max_blocks = 1;
    for (const Chunk& chunk : chunks) {
      num_tokens += chunk.end - chunk.begin;
      const int64_t blocks = (chunk.end + block_size - 1) / block_size;
      num_blocks += blocks;
      max_blocks = std::max(max_blocks, blocks);
    }
    const Shape cache{num_blocks, block_size, model.num_kv_heads, model.head_dim};
    params.k_cache = nan_tensor(cache, dtype);
    params.v_cache = nan_tensor(cache, dtype);
    params.q = Tensor::zeros({num_tokens, model.num_heads + 2, model.head_dim}, dtype)
                   .narrow(1, 1, model.num_heads);
    params.out = nan_tensor({num_tokens, model.num_heads, model.head_dim}, dtype);
    params.batch.block_tables = Tensor::zeros({num_sequences_, max_blocks}, DType::kInt32);
    params.batch.query_start = Tensor::zeros({num_sequences_ + 1}, DType::kInt32);
    params.batch.seq_lens = Tensor::zeros({num_sequences_}, DType::kInt32);
    params.batch.settled_lens = Tensor::zeros({num_sequences_}, DType::kInt32);
    params.scale = model.scale;
    params.sliding_window = model.sliding_window;
    params.sinks = make_sinks(model);
    std::fill_n(
        params.batch.block_tables.data<int32_t>(), params.batch.block_tables.num_elements(), -1);

    const Tensor k_slots = params.k_cache.view({num_blocks * block_size, cache[2], cache[3]});
    const Tensor v_slots = params.v_cache.view({num_blocks * block_size, cache[2], cache[3]});
    int64_t next_block = 0, token = 0;
    for (int64_t s = 0; s < num_sequences_; ++s) {
      const Chunk& chunk = chunks[s];
      const int64_t window = model.sliding_window;
      const int64_t first_key = window == 0 ? 0 : std::max<int64_t>(0, chunk.begin - window + 1);
      for (int64_t key = first_key; key < chunk.end; ++key) {
        int32_t& block =
            params.batch.block_tables.data<int32_t>()[s * max_blocks + key / block_size];
        // From the end, with every other one swapped: not in order of position.
        if (block < 0) block = static_cast<int32_t>(num_blocks - 1 - (next_block++ ^ 1));
        const int64_t slot = block * block_size + key % block_size;
        copy_row(chunk.sequence->k, key, k_slots, slot);
        copy_row(chunk.sequence->v, key, v_slots, slot);
      }
      for (int64_t position = chunk.begin; position < chunk.end; ++position) {
        copy_row(chunk.sequence->q, position, params.q, token++);
      }
      params.batch.query_start.data<int32_t>()[s + 1] = static_cast<int32_t>(token);
      params.batch.seq_lens.data<int32_t>()[s] = static_cast<int32_t>(chunk.end);
      params.batch.settled_lens.data<int32_t>()[s] = static_cast<int32_t>(chunk.begin);
    }
  }

  bool run(const char* variant, ThreadPool& pool) { return run_attention(variant, pool, params); }

  AttentionParams params;

 private:
  static Tensor nan_tensor(const Shape& shape, DType dtype) {
    Tensor tensor = Tensor::zeros(shape, dtype);
    std::memset(tensor.raw_data(), 0xff, tensor.num_bytes());
    return tensor;
  }

  int64_t num_sequences_;
};

}  // namespace atom::ops
