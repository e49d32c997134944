// Inside the chunked gated delta rule: the warpgroup that goes from state to state.
#pragma once

#include "ops/gated_delta_rule/chunked/advance.cuh"

namespace atom::ops::delta_device {

class AdvanceStates {
 public:
  __device__ __forceinline__ AdvanceStates(const AdvanceArgs& args,
                                           const ChunkedSequence& sequence,
                                           int half,
                                           const AdvanceBuffers& buffers)
      : args_(args),
        sequence_(sequence),
        first_column_(half * kAdvanceColumns),
        buffers_(buffers) {}

  // The state behind the last token goes from `before`, or from nothing, to `behind`; both are at
  // the value head's first column.
  __device__ __forceinline__ void run(const void* before, void* behind) {
    State state;
    load_state(before, state);
    const int num_chunks = static_cast<int>(sequence_.num_chunks());
    device::StageCursor at;
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      StateStage& stage = buffers_.shared->states[at.index];
      wait_for(buffers_.states.full_at(at.index), at.parity);
      const int64_t left = sequence_.num_tokens - int64_t{chunk} * kChunk;
      if (left < kChunk) {
        clear_behind(left, stage.rows, 5);  // values follow
        device::synchronize_first<kGroupThreads>();
      }
      add_chunk(stage, chunk == 0, state);
      arrive(buffers_.states.empty_at(at.index));
      at.advance(kStateStages);
    }
    give_signal<kWrittenThere>();
    store_state(state, behind);
  }

 private:
  using State = float[kHeadDim / 2];

  static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
  static __device__ __forceinline__ int warp() { return threadIdx.x / 32; }

  // Of element i of the state, from the value head's first one on.
  __device__ __forceinline__ int place_of(int i) const {
    const int row = i / 4 * 8 + lane() % 4 * 2 + i % 2;
    const int column = warp() * 16 + lane() / 4 + i / 2 % 2 * 8;
    return row * kHeadDim + first_column_ + column;
  }
  __device__ __forceinline__ bool is_float32() const {
    return args_.rule.state_element == Element::kFloat32;
  }
  __device__ __forceinline__ void load_state(const void* from, State& state) const {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) {
      const int at = place_of(i);
      if (from == nullptr) {
        state[i] = 0.0f;
      } else if (is_float32()) {
        state[i] = static_cast<const float*>(from)[at];
      } else {
        state[i] = device::to_float(static_cast<const device::BFloat16*>(from)[at]);
      }
    }
  }
  __device__ __forceinline__ void store_state(const State& state, void* to) const {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) {
      const int at = place_of(i);
      if (is_float32()) {
        static_cast<float*>(to)[at] = state[i];
      } else {
        static_cast<device::BFloat16*>(to)[at] = device::from_float<device::BFloat16>(state[i]);
      }
    }
  }

  // What is done while products are under way does not touch the registers of theirs, nor of those
  // before the wait that comes first: the assembler would put a wait in front of it. The tensor
  // cores take some seven products in advance, so that queries' keep them busy while differences
  // are cut; with 240 registers the assembler cuts them behind the next wait.
  __device__ __forceinline__ void add_chunk(StateStage& stage, bool is_first, State& state) {
    Exchange& exchange = buffers_.shared->exchange;
    float known[kChunk / 2], queried[kChunk / 2];  // K S and Q S, transposed
    float written[kChunk / 2];
    const uint32_t rows = shared_matrix(device::shared_address(stage.rows));
    uint32_t values[kChunkSteps][4];
    multiply_rows(stage.factors.decay, rows, state, known, queried);
    load_values(stage, values);
    wait_for_products<1>();
    pin(known);
    uint32_t high[kChunkSteps][4], low[kChunkSteps][4];
    cut_differences(stage.factors, values, known, high, low);
    wait_for_products<0>();
    pin(queried);
    multiply_inverse(stage, high, low, written);
    if (!is_first) {
      // Of the chunk before: its results are multiplied beside inverses, which are the fewest.
      give_signal<kWrittenThere>();
      wait_for_signal<kQueriesTaken>();
    }
    leave(queried, exchange.queries);
    give_signal<kQueriesThere>();
    wait_for_products<0>();
    pin(written);
    update(stage, written, state);
    if (!is_first) wait_for_signal<kWrittenTaken>();
    leave(written, exchange.written);
    wait_for_products<0>();
    pin(state);
  }

  // Sixteen columns of keys or queries.
  static __device__ __forceinline__ uint32_t at_step(uint32_t rows, int step) {
    return rows + bytes_of_matrix(step / 4 * 2 * kTileBytes + step % 4 * 32);
  }

  // K S and Q S in two groups, and what the state decays to.
  static __device__ __forceinline__ void multiply_rows(float decay,
                                                       uint32_t rows,
                                                       State& state,
                                                       float (&known)[kChunk / 2],
                                                       float (&queried)[kChunk / 2]) {
    uint32_t high[kStateSteps][4], low[kStateSteps][4];
#pragma unroll
    for (int step = 0; step < kStateSteps; ++step) {
      // The left factor's registers of a step are eight elements of a result.
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[step * 8 + i * 2];
        float& y = state[step * 8 + i * 2 + 1];
        split(x, y, high[step][i], low[step][i]);
        x *= decay;
        y *= decay;
      }
      begin_products();
      multiply_step(known, high[step], low[step], at_step(rows, step), step > 0);
    }
    commit_products();
    const uint32_t queries = rows + bytes_of_matrix(kTileBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kStateSteps; ++step) {
      multiply_step(queried, high[step], low[step], at_step(queries, step), step > 0);
    }
    commit_products();
  }

  static __device__ __forceinline__ void load_values(const StateStage& stage,
                                                     uint32_t (&values)[kChunkSteps][4]) {
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      load_matrices_transposed(values[step],
                               device::shared_address(stage.values) + value_offset(step));
    }
  }
  // Of the two tokens of a pair: a result's columns are tokens.
  static __device__ __forceinline__ float2 factor_of(const float (&factors)[kChunk],
                                                     int step,
                                                     int pair) {
    const int token = step * 16 + pair / 2 * 8 + lane() % 4 * 2;
    return *reinterpret_cast<const float2*>(factors + token);
  }

  // X^T = (V - known) beta
  static __device__ __forceinline__ void cut_differences(const ChunkFactors& factors,
                                                         const uint32_t (&values)[kChunkSteps][4],
                                                         const float (&known)[kChunk / 2],
                                                         uint32_t (&high)[kChunkSteps][4],
                                                         uint32_t (&low)[kChunkSteps][4]) {
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = step * 8 + i * 2;
        const float2 beta = factor_of(factors.beta, step, i);
        const float2 scale = factor_of(factors.known, step, i);
        const uint32_t v = values[step][i];
        split(fmaf(beta.x, __uint_as_float(v << 16), -scale.x * known[at]),
              fmaf(beta.y, __uint_as_float(v & 0xffff0000u), -scale.y * known[at + 1]),
              high[step][i],
              low[step][i]);
      }
    }
  }

  // V'^T = X^T T^T
  static __device__ __forceinline__ void multiply_inverse(const StateStage& stage,
                                                          const uint32_t (&high)[kChunkSteps][4],
                                                          const uint32_t (&low)[kChunkSteps][4],
                                                          float (&written)[kChunk / 2]) {
    const uint32_t inverse = shared_matrix(device::shared_address(stage.inverse));
    begin_products();
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      multiply_triangle(written, high[step], low[step], inverse, step, step > 0);
    }
    commit_products();
  }

  static __device__ __forceinline__ void update(const StateStage& stage,
                                                const float (&written)[kChunk / 2],
                                                State& state) {
    const uint32_t keys =
        shared_matrix(device::shared_address(stage.rows), /*panel_bytes=*/2 * kTileBytes);
    uint32_t parts[kChunkSteps][3][4];
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      cut_update(stage.factors, written, step, parts[step]);
      begin_products();
      const uint32_t at = keys + bytes_of_matrix(step * 16 * kTileRowBytes);
#pragma unroll
      for (int part = 0; part < 3; ++part) product_by_rows(state, parts[step][part], at);
    }
    commit_products();
  }

  static __device__ __forceinline__ void cut_update(const ChunkFactors& factors,
                                                    const float (&written)[kChunk / 2],
                                                    int step,
                                                    uint32_t (&parts)[3][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = step * 8 + i * 2;
      const float2 scale = factor_of(factors.update, step, i);
      float x = written[at] * scale.x, y = written[at + 1] * scale.y;
      parts[0][i] = take_pair(x, y);
      parts[1][i] = take_pair(x, y);
      parts[2][i] = pair_of(x, y);
    }
  }

  const AdvanceArgs& args_;
  const ChunkedSequence& sequence_;
  const int first_column_;
  const AdvanceBuffers& buffers_;
};

}  // namespace atom::ops::delta_device
