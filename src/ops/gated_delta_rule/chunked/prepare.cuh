// Inside the chunked gated delta rule: what of a chunk does not depend on the state, by a block for
// each chunk and two value heads of a key head.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/reductions.cuh"
#include "ops/gated_delta_rule/chunked/inverse.cuh"
#include "ops/gated_delta_rule/chunked/warp_matrix.cuh"

namespace atom::ops::delta_device {

constexpr int kPrepareThreads = 128;

struct PrepareShared {
  union alignas(1024) {
    struct {
      uint8_t keys[kChunk * kHeadDim * 2];
      uint8_t queries[kChunk * kHeadDim * 2];
    };
    Matrix m[kHeadsAtOnce];
  };
  alignas(1024) uint8_t products[2][kTileBytes];  // P of a value head, as the sum of two
  ChunkFactors factors[kHeadsAtOnce];
  // The sums of log decays, to base 2, as sums of two.
  float gamma[kHeadsAtOnce][kChunk];
  float gamma_rest[kHeadsAtOnce][kChunk];
  float key_factor[kChunk];
  float query_factor[kChunk];
};

// Rows of 256 bytes, chunks of 16 bytes permuted.
__device__ inline int row_offset(int row, int chunk) {
  return row * kHeadDim * 2 + ((chunk ^ (row & 7)) << 4);
}

class Preparation {
 public:
  __device__ Preparation(const GatedDeltaRuleArgs& args,
                         const ChunkedSequence& sequence,
                         int64_t chunk,
                         int64_t key_head,
                         PrepareShared& shared)
      : args_(args),
        first_(sequence.begin + chunk * kChunk),
        count_(static_cast<int>(min(sequence.num_tokens - chunk * kChunk, int64_t{kChunk}))),
        key_head_(key_head),
        shared_(shared) {}

  // Of value heads [head, head + num_heads) of the key head. `records`: of the chunk, one for each
  // value head.
  __device__ void run(int64_t head, int num_heads, ChunkRecord* records) {
    load_rows();
    find_norms();
    float kk[kChunk / 2], qk[kChunk / 2];
    multiply(kk, qk);
    __syncthreads();
    find_gates(head, num_heads);
    __syncthreads();
    for (int h = 0; h < num_heads; ++h) {
      weigh(kk, qk, h);
      __syncthreads();
      write_products(h, records[head + h]);
      __syncthreads();
    }
    invert();
    for (int h = 0; h < num_heads; ++h) write_inverse(h, records[head + h]);
  }

 private:
  __device__ void load_rows() {
    const auto* row = static_cast<const device::BFloat16*>(args_.qkv) + first_ * args_.qkv_stride;
    const auto* queries = row + key_head_ * kHeadDim;
    const auto* keys = row + (args_.num_k_heads + key_head_) * kHeadDim;
    const uint64_t policy = device::keep_policy();
    for (int i = threadIdx.x; i < kChunk * 16; i += kPrepareThreads) {
      const int token = i / 16, part = i % 16;
      const bool exists = token < count_;
      const int64_t from = (exists ? token : 0) * args_.qkv_stride + part * 8;
      const int to = row_offset(token, part);
      device::copy_16(device::shared_address(shared_.keys + to), keys + from, exists, policy);
      device::copy_16(device::shared_address(shared_.queries + to), queries + from, exists, policy);
    }
    device::commit_copies();
    device::wait_for_copies<0>();
    __syncthreads();
  }

  // A thread per row.
  __device__ void find_norms() {
    const int token = threadIdx.x % kChunk;
    const bool is_query = threadIdx.x >= kChunk;
    const uint8_t* rows = is_query ? shared_.queries : shared_.keys;
    float squares[2] = {};
#pragma unroll
    for (int part = 0; part < 16; ++part) {
      float x[8];
      device::to_floats<device::BFloat16>(device::load_bits(rows + row_offset(token, part)), x);
#pragma unroll
      for (int i = 0; i < 8; ++i) squares[i % 2] = fmaf(x[i], x[i], squares[i % 2]);
    }
    const float factor = 1.0f / sqrtf(squares[0] + squares[1] + 1e-6f);
    if (is_query) {
      shared_.query_factor[token] = factor / sqrtf(static_cast<float>(kHeadDim));
    } else {
      shared_.key_factor[token] = factor;
    }
  }

  // K K^T and Q K^T below their diagonals: warp w has rows 16w to 16w + 15.
  __device__ void multiply(float (&kk)[kChunk / 2], float (&qk)[kChunk / 2]) {
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) kk[i] = qk[i] = 0;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t keys = device::shared_address(shared_.keys);
    const uint32_t queries = device::shared_address(shared_.queries);
    const int own_row = warp * 16 + lane % 16;
#pragma unroll 2
    for (int step = 0; step < kHeadDim / 16; ++step) {
      uint32_t key[4], query[4];
      load_matrices(key, keys + row_offset(own_row, step * 2 + lane / 16));
      load_matrices(query, queries + row_offset(own_row, step * 2 + lane / 16));
#pragma unroll
      for (int block = 0; block < kChunk / 16; ++block) {
        if (block > warp) continue;
        uint32_t other[4];
        const int row = block * 16 + lane / 16 * 8 + lane % 8;
        load_matrices(other, keys + row_offset(row, step * 2 + lane / 8 % 2));
        multiply_add(kk + block * 8, key, other[0], other[1]);
        multiply_add(kk + block * 8 + 4, key, other[2], other[3]);
        multiply_add(qk + block * 8, query, other[0], other[1]);
        multiply_add(qk + block * 8 + 4, query, other[2], other[3]);
      }
    }
  }

  // A thread per token and value head, 64 of each; sums in double.
  __device__ void find_gates(int64_t first_head, int num_heads) {
    constexpr double kLog2E = 1.4426950408889634;
    const int h = threadIdx.x / kChunk, token = threadIdx.x % kChunk, lane = threadIdx.x % 32;
    float log_decay = 0, beta = 0;
    if (h < num_heads && token < count_) {
      const int64_t head = first_head + h, row = first_ + token;
      const auto* a = static_cast<const device::BFloat16*>(args_.a);
      const auto* b = static_cast<const device::BFloat16*>(args_.b);
      const float x = device::to_float(a[row * args_.a_stride + head]) + args_.dt_bias[head];
      log_decay = -expf(args_.a_log[head]) * (x > 20.0f ? x : log1pf(expf(x)));
      beta = 1.0f / (1.0f + expf(-device::to_float(b[row * args_.b_stride + head])));
    }
    double gamma = kLog2E * log_decay;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const double lower = __shfl_up_sync(0xffffffffu, gamma, offset);
      gamma += lane >= offset ? lower : 0;
    }
    __shared__ double halves[kHeadsAtOnce][2];
    if (lane == 31) halves[h][token / 32] = gamma;
    __syncthreads();
    const double last = halves[h][0] + halves[h][1];
    gamma += token >= 32 ? halves[h][0] : 0;
    const auto high = static_cast<float>(gamma);
    shared_.gamma[h][token] = high;
    shared_.gamma_rest[h][token] = static_cast<float>(gamma - high);
    const bool exists = token < count_;
    const float decay = exp2f(high), key_factor = shared_.key_factor[token];
    ChunkFactors& factors = shared_.factors[h];
    factors.beta[token] = beta;
    factors.known[token] = beta * decay * key_factor;
    factors.query[token] = exists ? decay * shared_.query_factor[token] : 0.0f;
    factors.update[token] = exists ? exp2f(static_cast<float>(last - gamma)) * key_factor : 0.0f;
    if (token == 0) factors.decay = exp2f(static_cast<float>(last));
  }

  // -M, zero from the diagonal on, and P, as the sum of two; of both what lies above the diagonal
  // blocks is zero, or is not read.
  __device__ void weigh(const float (&kk)[kChunk / 2], const float (&qk)[kChunk / 2], int h) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Row row(shared_, h, warp * 16 + lane / 4 + half * 8);
#pragma unroll
      for (int tile = 0; tile < kChunk / 8; ++tile) {
        const int column = tile * 8 + lane % 4 * 2, at = tile_offset(row.index, column * 2);
        uint32_t high = 0, low = 0;
        if (tile / 2 <= warp) {
          const int index = tile * 4 + half * 2;
          const float2 weight = weights_of(row, h, column);
          *reinterpret_cast<float2*>(&shared_.m[h][row.index][column]) = {
              column < row.index ? row.minus_beta * weight.x * kk[index] : 0.0f,
              column + 1 < row.index ? row.minus_beta * weight.y * kk[index + 1] : 0.0f};
          split(column <= row.index ? row.query_factor * weight.x * qk[index] : 0.0f,
                column < row.index ? row.query_factor * weight.y * qk[index + 1] : 0.0f,
                high,
                low);
        }
        *reinterpret_cast<uint32_t*>(shared_.products[0] + at) = high;
        *reinterpret_cast<uint32_t*>(shared_.products[1] + at) = low;
      }
    }
  }

  struct Row {
    int index;
    float gamma, gamma_rest, minus_beta, query_factor;

    __device__ Row(const PrepareShared& shared, int h, int row)
        : index(row),
          gamma(shared.gamma[h][row]),
          gamma_rest(shared.gamma_rest[h][row]),
          minus_beta(-shared.factors[h].beta[row] * shared.key_factor[row]),
          query_factor(shared.query_factor[row]) {}
  };

  // exp(gamma_i - gamma_j) r_j of two columns j.
  __device__ float2 weights_of(const Row& row, int h, int column) const {
    const float2 gamma = *reinterpret_cast<const float2*>(shared_.gamma[h] + column);
    const float2 rest = *reinterpret_cast<const float2*>(shared_.gamma_rest[h] + column);
    const float2 factor = *reinterpret_cast<const float2*>(shared_.key_factor + column);
    return {exp2_fast((row.gamma - gamma.x) + (row.gamma_rest - rest.x)) * factor.x,
            exp2_fast((row.gamma - gamma.y) + (row.gamma_rest - rest.y)) * factor.y};
  }

  static __device__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  // Of both value heads, by 64 threads each; where there is only one, of whatever is there.
  __device__ void invert() {
    Matrix& m = shared_.m[threadIdx.x / kInverseThreads];
    const int t = threadIdx.x % kInverseThreads;
    invert_blocks(m, t);
    __syncwarp();
    join_blocks_of_16(m, t);
    __syncthreads();
    join_halves_first(m, t);
    __syncthreads();
    join_halves_second(m, t);
    __syncthreads();
  }

  // With the factors.
  __device__ void write_products(int h, ChunkRecord& record) const {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int i = threadIdx.x * 16; i < kTileBytes; i += kPrepareThreads * 16) {
        device::store_bits(record.products[part] + i,
                           device::load_bits(shared_.products[part] + i));
      }
    }
    if (threadIdx.x < sizeof(ChunkFactors) / 16) {
      device::store_bits(reinterpret_cast<uint4*>(&record.factors) + threadIdx.x,
                         reinterpret_cast<const uint4*>(&shared_.factors[h])[threadIdx.x]);
    }
  }

  __device__ void write_inverse(int h, ChunkRecord& record) const {
    constexpr int kParts = kTileRowBytes / 16;
#pragma unroll
    for (int i = threadIdx.x; i < kChunk * kParts; i += kPrepareThreads) {
      const int row = i / kParts, part = i % kParts;
      uint4 high = {}, low = {};
      if (part / 2 <= row / 16) {
        split_four(four_of(shared_.m[h], row, part * 8), high.x, high.y, low.x, low.y);
        split_four(four_of(shared_.m[h], row, part * 8 + 4), high.z, high.w, low.z, low.w);
      }
      device::store_bits(record.inverse[0] + tile_offset(row, part * 16), high);
      device::store_bits(record.inverse[1] + tile_offset(row, part * 16), low);
    }
  }

  static __device__ void split_four(
      float4 x, uint32_t& high_0, uint32_t& high_1, uint32_t& low_0, uint32_t& low_1) {
    split(x.x, x.y, high_0, low_0);
    split(x.z, x.w, high_1, low_1);
  }

  const GatedDeltaRuleArgs& args_;
  const int64_t first_;
  const int count_;
  const int64_t key_head_;
  PrepareShared& shared_;
};

// Which sequence's chunk lies at `place`, or -1.
__device__ inline int64_t sequence_of_chunk(const StateBatchArgs& batch, int64_t place) {
  int64_t low = 0, high = batch.num_sequences;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (batch.query_start[middle] / kChunk + middle <= place ? low : high) = middle;
  }
  return low;
}

}  // namespace atom::ops::delta_device
