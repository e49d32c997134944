// Inside the chunked gated delta rule on a GPU: which chunks there are, and what one kernel leaves
// of them for the other.
//
// A chunk of n tokens in the WY form, with gamma_i the sum of its log decays up to token i, S the
// state before it, and the factors r of keys and queries that normalize them:
//   T = (I + M)^-1,                M_ij = beta_i exp(gamma_i - gamma_j) r_i r_j k_i.k_j, j < i
//   V' = T diag(beta) (V - diag(exp(gamma) r) K S)
//   O = diag(exp(gamma) r) Q S + P V',   P_ij = exp(gamma_i - gamma_j) r_i r_j q_i.k_j, j <= i
//   S = exp(gamma_n) S + K^T diag(exp(gamma_n - gamma) r) V'
// Queries, keys and values are what they are in memory. What is float32 enters a product as a sum
// of two or three bfloat16 numbers, which keeps the result about as close as float32 would.
#pragma once

#include "ops/device/elements.cuh"
#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"

namespace atom::ops::delta_device {

constexpr int kChunk = kDeltaChunk;
constexpr int kHeadDim = 128;
constexpr int kHeadsAtOnce = 2;  // value heads of a key head, of which one block leaves the records

// Of every token of a chunk; zero behind its last one.
struct ChunkFactors {
  float beta[kChunk];
  float known[kChunk];   // of K S: beta exp(gamma) r
  float query[kChunk];   // of Q S: exp(gamma) r
  float update[kChunk];  // of V' as it is added to the state: exp(gamma_n - gamma) r
  float decay;           // of the state
  float unused[31];
};

// A matrix [kChunk, kChunk] of bfloat16 as a product reads it from shared memory: rows of 128
// bytes, swizzled.
constexpr int kTileRowBytes = 128;
constexpr int kTileBytes = kChunk * kTileRowBytes;

__device__ inline int tile_offset(int row, int byte) {
  return row * kTileRowBytes + (byte ^ (row & 7) << 4);
}

// What the first kernel leaves of a chunk and value head.
struct alignas(128) ChunkRecord {
  uint8_t inverse[2][kTileBytes];   // T, as the sum of two
  uint8_t products[2][kTileBytes];  // P likewise
  ChunkFactors factors;
};
static_assert(sizeof(ChunkRecord) % 128 == 0);

// Where both kernels run side by side: which records are there, and which blocks of the second one
// did not see the first one begin. All are zero at first.
struct ChunkFlags {
  uint32_t* ready;  // [places of chunks, blocks of a place]; null: the kernels follow each other
  uint32_t* left;   // [sequences, halves of value heads]
};

// The tokens of a sequence that the chunked kernels compute; none of one that is too short, or of
// which every state is kept.
struct ChunkedSequence {
  int64_t begin;
  int64_t num_tokens;
  int64_t first_chunk;  // its place among all

  __device__ ChunkedSequence(const StateBatchArgs& batch, int64_t index)
      : begin(batch.query_start[index]),
        num_tokens(batch.query_start[index + 1] - begin),
        first_chunk(begin / kChunk + index) {
    const int32_t* kept = batch.token_slots;
    const bool is_chunked = num_tokens >= kDeltaChunkMinTokens && batch.state_slots[index] >= 0 &&
                            (kept == nullptr || kept[begin] < 0);
    if (!is_chunked) num_tokens = 0;
  }
  __device__ int64_t num_chunks() const { return (num_tokens + kChunk - 1) / kChunk; }
};

// Places of chunks: those of a sequence follow on each other, and of the next one lie behind.
inline int64_t max_chunks(const StateBatchArgs& batch) {
  return batch.num_tokens / kChunk + batch.num_sequences;
}

}  // namespace atom::ops::delta_device
