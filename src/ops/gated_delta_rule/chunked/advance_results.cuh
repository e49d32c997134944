// Inside the chunked gated delta rule: the warpgroup that makes results of queries' products with
// states and of what the chunks write to them.
#pragma once

#include "ops/gated_delta_rule/chunked/advance.cuh"

namespace atom::ops::delta_device {

class AdvanceResults {
 public:
  __device__ __forceinline__ AdvanceResults(const AdvanceArgs& args,
                                            const ChunkedSequence& sequence,
                                            int64_t head,
                                            int half,
                                            const AdvanceBuffers& buffers)
      : args_(args),
        sequence_(sequence),
        buffers_(buffers),
        out_(static_cast<device::BFloat16*>(args.rule.out) + head * kHeadDim +
             half * kAdvanceColumns) {}

  __device__ __forceinline__ void run() {
    const int num_chunks = static_cast<int>(sequence_.num_chunks());
    device::StageCursor at;
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      ResultStage& stage = buffers_.shared->results[at.index];
      wait_for(buffers_.results.full_at(at.index), at.parity);
      const bool is_last = chunk + 1 == num_chunks;
      float results[kChunk / 2];
      take_queries(stage, is_last, results);
      multiply_written(stage, is_last, results);
      arrive(buffers_.results.empty_at(at.index));
      uint4 bits[kParts];
      bring_rows(buffers_.shared->out, results, bits);
      store_rows(chunk, bits);
      at.advance(kResultStages);
    }
  }

 private:
  static __device__ __forceinline__ int thread() { return threadIdx.x - kGroupThreads; }
  static __device__ __forceinline__ void synchronize() {
    asm volatile("bar.sync %0, %1;" ::"n"(kWrittenTaken + 1), "n"(kGroupThreads) : "memory");
  }

  // Of a tile, by each thread.
  static constexpr int kParts = kTileBytes / 16 / kGroupThreads;

  // Q S, transposed and scaled.
  __device__ __forceinline__ void take_queries(const ResultStage& stage,
                                               bool is_last,
                                               float (&results)[kChunk / 2]) const {
    const Exchange& exchange = buffers_.shared->exchange;
    wait_for_signal<kQueriesThere>();
#pragma unroll
    for (int i = 0; i < 2 * kChunkSteps; ++i) {
      const float4 x = exchange.queries[i][thread()];
      const float2 factor =
          *reinterpret_cast<const float2*>(stage.factors + i * 8 + thread() % 4 * 2);
      results[i * 4] = x.x * factor.x;
      results[i * 4 + 1] = x.y * factor.y;
      results[i * 4 + 2] = x.z * factor.x;
      results[i * 4 + 3] = x.w * factor.y;
    }
    pin(results);
    if (!is_last) give_signal<kQueriesTaken>();
  }

  // += P V'
  __device__ __forceinline__ void multiply_written(const ResultStage& stage,
                                                   bool is_last,
                                                   float (&results)[kChunk / 2]) const {
    const Exchange& exchange = buffers_.shared->exchange;
    const uint32_t products = shared_matrix(device::shared_address(stage.products));
    uint32_t high[kChunkSteps][4], low[kChunkSteps][4];
    wait_for_signal<kWrittenThere>();
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 x = exchange.written[step * 2 + half][thread()];
        split(x.x, x.y, high[step][half * 2], low[step][half * 2]);
        split(x.z, x.w, high[step][half * 2 + 1], low[step][half * 2 + 1]);
      }
      begin_products();
      multiply_triangle(results, high[step], low[step], products, step, true);
    }
    commit_products();
    if (!is_last) give_signal<kWrittenTaken>();
    wait_for_products<0>();
    pin(results);
  }

  // Turns rows of results to rows of tokens in a tile, of which the thread gets parts.
  static __device__ __forceinline__ void bring_rows(uint8_t (&tile)[kTileBytes],
                                                    const float (&results)[kChunk / 2],
                                                    uint4 (&bits)[kParts]) {
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = step * 8 + i * 2;
        pairs[i] = pair_of(results[at], results[at + 1]);
      }
      store_matrices_transposed(device::shared_address(tile) + value_offset(step), pairs);
    }
    synchronize();
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      bits[i] =
          device::load_shared(device::shared_address(tile) + tile_offset(row_of(i), part() * 16));
    }
  }
  static __device__ __forceinline__ int row_of(int i) {
    return (i * kGroupThreads + thread()) / 8;
  }
  static __device__ __forceinline__ int part() {
    return thread() % 8;
  }

  __device__ __forceinline__ void store_rows(int chunk, const uint4 (&bits)[kParts]) const {
    const int64_t first = int64_t{chunk} * kChunk;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (first + row_of(i) >= sequence_.num_tokens) continue;
      device::BFloat16* row = out_ + (sequence_.begin + first + row_of(i)) * args_.rule.out_stride;
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(row + part() * 8),
                   "r"(bits[i].x),
                   "r"(bits[i].y),
                   "r"(bits[i].z),
                   "r"(bits[i].w)
                   : "memory");
    }
  }

  const AdvanceArgs& args_;
  const ChunkedSequence& sequence_;
  const AdvanceBuffers& buffers_;
  device::BFloat16* const out_;
};

}  // namespace atom::ops::delta_device
