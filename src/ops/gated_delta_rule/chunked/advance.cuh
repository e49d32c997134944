// Inside the chunked gated delta rule: a sequence's chunks one after the other, for half of a value
// head's columns, by a warpgroup that computes and a warp that loads.
//
// Everything is transposed, columns of the state are rows of the products' left factors. Those are
// in registers, where the result of one product is as the next one wants it: thread (w, g, c) =
// (warp, lane / 4, lane % 4) has rows 16w + g and 16w + g + 8, and of each 8 columns 2c and 2c + 1.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/gated_delta_rule/chunked/chunks.cuh"
#include "ops/gated_delta_rule/chunked/warp_matrix.cuh"

namespace atom::ops::delta_device {

using device::arrive;
using device::arrive_expecting;
using device::begin_products;
using device::commit_products;
using device::pin;
using device::wait_for;
using device::wait_for_products;

constexpr int kGroupThreads = 128;
constexpr int kAdvanceThreads = kGroupThreads + 32;
constexpr int kAdvanceColumns = 64;
constexpr int kStages = 3;

struct AdvanceArgs {
  GatedDeltaRuleArgs rule;
  const ChunkRecord* records;  // [chunks, num_v_heads]
  CUtensorMap rows;            // of qkv: boxes of kChunk tokens and 64 channels
  ChunkFlags flags;
  int64_t blocks_of_place;  // that leave its records
};

struct alignas(1024) AdvanceStage {
  ChunkRecord record;
  // By halves of the head: keys, then queries, so that one product has both.
  alignas(1024) uint8_t rows[2][2][kTileBytes];
  uint8_t values[kTileBytes];  // then the results
};
constexpr int kAdvanceSharedBytes = kStages * sizeof(AdvanceStage) + 1024;
constexpr int kStageBytes = sizeof(ChunkRecord) + 5 * kTileBytes;  // that are loaded

struct AdvanceBuffers {
  AdvanceStage* stages;
  uint32_t full;  // barriers
  uint32_t empty;

  __device__ uint32_t full_at(int stage) const { return full + stage * 8; }
  __device__ uint32_t empty_at(int stage) const { return empty + stage * 8; }
};

// Whether the record at `flag` is there; what it holds may then be copied.
__device__ inline bool is_ready(const uint32_t* flag) {
  uint32_t value = 0;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  if (value == 0) return false;
  asm volatile("fence.proxy.async.global;" ::: "memory");
  return true;
}

// Of the sequence's first record of a value head; null where none is to be waited for.
__device__ inline const uint32_t* flag_of_first(const AdvanceArgs& args,
                                                const ChunkedSequence& sequence,
                                                int64_t head) {
  if (args.flags.ready == nullptr) return nullptr;
  const int64_t heads_per_key = args.rule.num_v_heads / args.rule.num_k_heads;
  const int64_t blocks_per_key = args.blocks_of_place / args.rule.num_k_heads;
  const int64_t block = head / heads_per_key * blocks_per_key + head % heads_per_key / kHeadsAtOnce;
  return args.flags.ready + sequence.first_chunk * args.blocks_of_place + block;
}

// One thread.
__device__ inline void load_chunks(const AdvanceArgs& args,
                                   const ChunkedSequence& sequence,
                                   int64_t head,
                                   int half,
                                   const AdvanceBuffers& buffers) {
  const GatedDeltaRuleArgs& rule = args.rule;
  const int64_t key_head = head / (rule.num_v_heads / rule.num_k_heads);
  const int query_column = static_cast<int>(key_head) * kHeadDim;
  const int key_column = query_column + static_cast<int>(rule.num_k_heads) * kHeadDim;
  const int value_column =
      static_cast<int>(2 * rule.num_k_heads + head) * kHeadDim + half * kAdvanceColumns;
  const ChunkRecord* record = args.records + sequence.first_chunk * rule.num_v_heads + head;
  const uint32_t* ready = flag_of_first(args, sequence, head);
  const uint64_t policy = device::keep_policy();
  device::StageCursor stage;
  const int num_chunks = static_cast<int>(sequence.num_chunks());
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    while (ready != nullptr && !is_ready(ready + chunk * args.blocks_of_place)) {
    }
    wait_for(buffers.empty_at(stage.index), stage.parity ^ 1);
    const uint32_t barrier = buffers.full_at(stage.index);
    const AdvanceStage& target = buffers.stages[stage.index];
    const int row = static_cast<int>(sequence.begin) + chunk * kChunk;
    arrive_expecting(barrier, kStageBytes);
    for (int i = 0; i < 2; ++i) {
      device::copy_box(device::shared_address(target.rows[i][0]),
                       &args.rows,
                       key_column + i * 64,
                       row,
                       barrier,
                       policy);
    }
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(device::shared_address(&target.record)),
        "l"(record + int64_t{chunk} * rule.num_v_heads),
        "r"(static_cast<int>(sizeof(ChunkRecord))),
        "r"(barrier)
        : "memory");
    device::copy_box(
        device::shared_address(target.values), &args.rows, value_column, row, barrier, policy);
    for (int i = 0; i < 2; ++i) {
      device::copy_box(device::shared_address(target.rows[i][1]),
                       &args.rows,
                       query_column + i * 64,
                       row,
                       barrier,
                       policy);
    }
    stage.advance(kStages);
  }
}

// The warpgroup that computes.
class Advance {
 public:
  __device__ __forceinline__ Advance(const AdvanceArgs& args,
                                     const ChunkedSequence& sequence,
                                     int64_t head,
                                     int half,
                                     const AdvanceBuffers& buffers)
      : args_(args),
        sequence_(sequence),
        first_column_(half * kAdvanceColumns),
        buffers_(buffers),
        out_(static_cast<device::BFloat16*>(args.rule.out) + head * kHeadDim + first_column_) {}

  // The state behind the last token goes from `before`, or from nothing, to `behind`; both are at
  // the value head's first column.
  __device__ __forceinline__ void run(const void* before, void* behind) {
    float state[kHeadDim / 2];
    load_state(before, state);
    const int num_chunks = static_cast<int>(sequence_.num_chunks());
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      AdvanceStage& stage = buffers_.stages[stage_.index];
      wait_for(buffers_.full_at(stage_.index), stage_.parity);
      clear_behind(chunk, stage);
      add_chunk(chunk, stage, state);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      arrive(buffers_.empty_at(stage_.index));
      stage_.advance(kStages);
    }
    store_state(state, behind);
  }

 private:
  static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
  static __device__ __forceinline__ int warp() { return threadIdx.x / 32; }

  // Element i of the state: its row, of keys, and its column of the block's.
  static __device__ __forceinline__ int row_of(int i) { return i / 4 * 8 + lane() % 4 * 2 + i % 2; }
  static __device__ __forceinline__ int column_of(int i) {
    return warp() * 16 + lane() / 4 + i / 2 % 2 * 8;
  }

  __device__ __forceinline__ bool is_float32() const {
    return args_.rule.state_element == Element::kFloat32;
  }
  __device__ __forceinline__ void load_state(const void* from, float (&state)[kHeadDim / 2]) {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) {
      const int at = row_of(i) * kHeadDim + first_column_ + column_of(i);
      if (from == nullptr) {
        state[i] = 0.0f;
      } else if (is_float32()) {
        state[i] = static_cast<const float*>(from)[at];
      } else {
        state[i] = device::to_float(static_cast<const device::BFloat16*>(from)[at]);
      }
    }
  }
  __device__ __forceinline__ void store_state(const float (&state)[kHeadDim / 2], void* to) {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) {
      const int at = row_of(i) * kHeadDim + first_column_ + column_of(i);
      if (is_float32()) {
        static_cast<float*>(to)[at] = state[i];
      } else {
        static_cast<device::BFloat16*>(to)[at] = device::from_float<device::BFloat16>(state[i]);
      }
    }
  }

  // Zeroes what a stage holds of tokens behind the sequence's last one: they are another one's, and
  // a factor of zero would not hide a NaN there.
  __device__ __forceinline__ void clear_behind(int chunk, const AdvanceStage& stage) {
    const int64_t left = sequence_.num_tokens - int64_t{chunk} * kChunk;
    if (left >= kChunk) return;
    const auto first = static_cast<int>(left) * kTileRowBytes;
    const uint32_t tiles = device::shared_address(stage.rows);  // values follow
    for (int i = threadIdx.x * 16; i < 5 * kTileBytes; i += kGroupThreads * 16) {
      if (i % kTileBytes < first) continue;
      asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(tiles + i), "r"(0) : "memory");
    }
    publish();
  }

  // What this warpgroup wrote to shared memory is there for all and for the tensor cores.
  static __device__ __forceinline__ void publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    device::synchronize_first<kGroupThreads>();
  }

  // What is done while products are under way does not touch the registers of theirs, nor of those
  // before the wait that comes first: the assembler would put a wait in front of it.
  __device__ __forceinline__ void add_chunk(int chunk,
                                            AdvanceStage& stage,
                                            float (&state)[kHeadDim / 2]) {
    const ChunkFactors& factors = stage.record.factors;
    const float decay = factors.decay;
    float both[kChunk];  // K S, then Q S and the results, transposed
    float written[kChunk / 2];
    uint32_t high[kHeadDim / 16][4], low[kHeadDim / 16][4];
    cut(state, high, low);
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) state[i] *= decay;
    begin_products();
    multiply_rows<2 * kChunk, 0>(both, high, low, stage.rows[0][0]);
    commit_products();
    wait_for_products<0>();
    pin(both);
    uint32_t written_high[kChunk / 16][4], written_low[kChunk / 16][4];
    cut_differences(stage, both, written_high, written_low);
    begin_products();
    multiply_triangle<0>(written, written_high, written_low, stage.record.inverse, false);
    commit_products();
    scale_results(both, factors.query);
    wait_for_products<0>();
    pin(written);
    cut(written, written_high, written_low);
    begin_products();
    multiply_triangle<kChunk / 2>(both, written_high, written_low, stage.record.products, true);
    commit_products();
    uint32_t parts[3][kChunk / 16][4];
    cut_updates(factors, written, parts);
    begin_products();
    update_state(state, parts, stage.rows[0][0]);
    commit_products();
    wait_for_products<1>();
    pin(both);
    store_out(chunk, stage, both);
    wait_for_products<0>();
    pin(state);
  }

  // The left factor's registers of step k are elements 8k to 8k + 7 of a result.
  template <int kCount>
  static __device__ __forceinline__ void cut(const float (&from)[kCount],
                                             uint32_t (&high)[kCount / 8][4],
                                             uint32_t (&low)[kCount / 8][4]) {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      split(from[i * 2], from[i * 2 + 1], high[i / 4][i % 4], low[i / 4][i % 4]);
    }
  }

  // X^T = (V - known) beta: a result's columns are tokens.
  __device__ __forceinline__ void cut_differences(const AdvanceStage& stage,
                                                  const float (&known)[kChunk],
                                                  uint32_t (&high)[kChunk / 16][4],
                                                  uint32_t (&low)[kChunk / 16][4]) const {
    const ChunkFactors& factors = stage.record.factors;
    const uint32_t values = device::shared_address(stage.values);
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      uint32_t v[4];
      load_matrices_transposed(v, values + value_offset(step));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = step * 16 + i / 2 * 8 + lane() % 4 * 2, at = step * 8 + i * 2;
        const float2 beta = *reinterpret_cast<const float2*>(factors.beta + token);
        const float2 scale = *reinterpret_cast<const float2*>(factors.known + token);
        const float x = fmaf(beta.x, __uint_as_float(v[i] << 16), -scale.x * known[at]);
        const float y = fmaf(beta.y, __uint_as_float(v[i] & 0xffff0000u), -scale.y * known[at + 1]);
        split(x, y, high[step][i], low[step][i]);
      }
    }
  }

  static __device__ __forceinline__ void cut_updates(const ChunkFactors& factors,
                                                     const float (&written)[kChunk / 2],
                                                     uint32_t (&parts)[3][kChunk / 16][4]) {
#pragma unroll
    for (int i = 0; i < kChunk / 4; ++i) {
      const int token = i / 2 * 8 + lane() % 4 * 2;
      const float2 scale = *reinterpret_cast<const float2*>(factors.update + token);
      float x = written[i * 2] * scale.x, y = written[i * 2 + 1] * scale.y;
      parts[0][i / 4][i % 4] = take_pair(x, y);
      parts[1][i / 4][i % 4] = take_pair(x, y);
      parts[2][i / 4][i % 4] = pair_of(x, y);
    }
  }

  // d = S^T times rows of keys or queries.
  template <int kColumns, int kFirst>
  static __device__ __forceinline__ void multiply_rows(float (&d)[kChunk],
                                                       const uint32_t (&high)[kHeadDim / 16][4],
                                                       const uint32_t (&low)[kHeadDim / 16][4],
                                                       const uint8_t* rows) {
    const uint32_t matrix = shared_matrix(device::shared_address(rows));
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const uint32_t b = matrix + bytes_of_matrix(k / 4 * 2 * kTileBytes + k % 4 * 32);
      product<kColumns, kFirst>(d, high[k], b, k > 0);
      product<kColumns, kFirst>(d, low[k], b, true);
    }
  }

  // d (+)= a times the transpose of a lower triangular matrix, both sums of two, into elements from
  // kAt on. What is above the diagonal is zero: leaving it out takes more products than it saves.
  template <int kAt, int kCount>
  static __device__ __forceinline__ void multiply_triangle(float (&d)[kCount],
                                                           const uint32_t (&high)[kChunk / 16][4],
                                                           const uint32_t (&low)[kChunk / 16][4],
                                                           const uint8_t (&matrix)[2][kTileBytes],
                                                           bool accumulate) {
    const uint32_t first = shared_matrix(device::shared_address(matrix[0]));
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      const uint32_t at = first + bytes_of_matrix(step * 32);
      const bool adds = accumulate || step > 0;
      product<kChunk, kAt>(d, high[step], at, adds);
      product<kChunk, kAt>(d, low[step], at, true);
      product<kChunk, kAt>(d, high[step], at + bytes_of_matrix(kTileBytes), true);
    }
  }

  static __device__ __forceinline__ void update_state(float (&state)[kHeadDim / 2],
                                                      const uint32_t (&parts)[3][kChunk / 16][4],
                                                      const uint8_t* keys) {
    const uint32_t matrix = shared_matrix(device::shared_address(keys), 2 * kTileBytes);
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      const uint32_t b = matrix + bytes_of_matrix(step * 16 * kTileRowBytes);
#pragma unroll
      for (int part = 0; part < 3; ++part) product_by_rows(state, parts[part][step], b);
    }
  }

  // In a tile of values, the lane's row of the four matrices of 16 tokens: of columns g, then g +
  // 8, then the same of eight tokens further on.
  static __device__ __forceinline__ int value_offset(int step) {
    const int token = step * 16 + lane() / 16 * 8 + lane() % 8;
    return tile_offset(token, (warp() * 2 + lane() / 8 % 2) * 16);
  }

  static __device__ __forceinline__ void scale_results(float (&both)[kChunk],
                                                       const float (&factors)[kChunk]) {
    const int c = lane() % 4;
#pragma unroll
    for (int i = 0; i < kChunk / 4; ++i) {
      const float2 scale = *reinterpret_cast<const float2*>(factors + i / 2 * 8 + c * 2);
      both[kChunk / 2 + i * 2] *= scale.x;
      both[kChunk / 2 + i * 2 + 1] *= scale.y;
    }
  }

  // By way of where the chunk's values were.
  __device__ __forceinline__ void store_out(int chunk,
                                            AdvanceStage& stage,
                                            const float (&both)[kChunk]) {
    const uint32_t values = device::shared_address(stage.values);
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      uint32_t bits[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = kChunk / 2 + step * 8 + i * 2;
        bits[i] = pair_of(both[at], both[at + 1]);
      }
      store_matrices_transposed(values + value_offset(step), bits);
    }
    device::synchronize_first<kGroupThreads>();
    const int64_t first = int64_t{chunk} * kChunk;
#pragma unroll
    for (int i = 0; i < kTileBytes / 16 / kGroupThreads; ++i) {
      const int index = i * kGroupThreads + static_cast<int>(threadIdx.x);
      const int row = index / 8, part = index % 8;
      if (first + row >= sequence_.num_tokens) continue;
      device::BFloat16* target =
          out_ + (sequence_.begin + first + row) * args_.rule.out_stride + part * 8;
      device::store_bits(target, device::load_bits(stage.values + tile_offset(row, part * 16)));
    }
  }

  const AdvanceArgs& args_;
  const ChunkedSequence& sequence_;
  const int first_column_;
  const AdvanceBuffers& buffers_;
  device::BFloat16* const out_;
  device::StageCursor stage_;
};

}  // namespace atom::ops::delta_device
