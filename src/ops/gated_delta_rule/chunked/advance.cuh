// Inside the chunked gated delta rule: a sequence's chunks one after the other, for half of a value
// head's columns: what the block's warps share, and the warp that loads.
//
// One warpgroup goes from state to state (advance_states.cuh), the other one makes results of what
// it leaves (advance_results.cuh), so that states wait for no result.
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
constexpr int kAdvanceThreads = 3 * kGroupThreads;
// Per thread of the warpgroup that has the state, of the one that makes results, and of the one
// that loads.
constexpr int kStateRegisters = 256;
constexpr int kResultRegisters = 224;
constexpr int kLoadRegisters = 24;
constexpr int kAdvanceColumns = 64;
constexpr int kStateSteps = kHeadDim / 16;
constexpr int kChunkSteps = kChunk / 16;

struct AdvanceArgs {
  GatedDeltaRuleArgs rule;
  const ChunkRecord* records;  // [chunks, num_v_heads]
  CUtensorMap rows;            // of qkv: boxes of kChunk tokens and 64 channels
  ChunkFlags flags;
  int64_t blocks_of_place;  // that leave its records
};

// What is loaded of a chunk for each of the two warpgroups.
struct alignas(1024) StateStage {
  // By halves of the head: keys, then queries.
  uint8_t rows[2][2][kTileBytes];
  uint8_t values[kTileBytes];
  uint8_t inverse[2][kTileBytes];
  ChunkFactors factors;
};
struct alignas(1024) ResultStage {
  uint8_t products[2][kTileBytes];
  float factors[kChunk];
};
constexpr int kStateStages = 2;
constexpr int kResultStages = 2;
constexpr int kNumBarriers = 2 * (kStateStages + kResultStages);
constexpr int kStateStageBytes = 7 * kTileBytes + sizeof(ChunkFactors);
constexpr int kResultStageBytes = 2 * kTileBytes + sizeof(float) * kChunk;

// What thread t of one warpgroup leaves for thread t of the other: Q S and V', transposed.
struct Exchange {
  float4 queries[2 * kChunkSteps][kGroupThreads];
  float4 written[2 * kChunkSteps][kGroupThreads];
};

struct AdvanceShared {
  StateStage states[kStateStages];
  ResultStage results[kResultStages];
  Exchange exchange;
  uint8_t out[kTileBytes];
};
constexpr int kAdvanceSharedBytes = sizeof(AdvanceShared) + 1024;

// A ring of stages: a barrier of each that is full and of each that is empty.
struct Ring {
  uint32_t barriers;
  int num_stages;

  __device__ uint32_t full_at(int stage) const { return barriers + stage * 8; }
  __device__ uint32_t empty_at(int stage) const { return barriers + (num_stages + stage) * 8; }
};

struct AdvanceBuffers {
  AdvanceShared* shared;
  Ring states;
  Ring results;
};

// What one warpgroup tells the other one.
enum Signal { kQueriesThere = 2, kQueriesTaken, kWrittenThere, kWrittenTaken };
template <Signal kSignal>
__device__ inline void give_signal() {
  asm volatile("bar.arrive %0, %1;" ::"n"(static_cast<int>(kSignal)), "n"(2 * kGroupThreads)
               : "memory");
}
template <Signal kSignal>
__device__ inline void wait_for_signal() {
  asm volatile("bar.sync %0, %1;" ::"n"(static_cast<int>(kSignal)), "n"(2 * kGroupThreads)
               : "memory");
}

// Zeroes what a stage's tiles hold of tokens behind the sequence's last one, of which the chunk has
// `count`: they are another one's, and a factor of zero would not hide a NaN there.
__device__ inline void clear_behind(int64_t count, const void* tiles, int num_tiles) {
  if (count >= kChunk) return;
  const auto first = static_cast<int>(count) * kTileRowBytes;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  for (int i = thread * 16; i < num_tiles * kTileBytes; i += kGroupThreads * 16) {
    if (i % kTileBytes < first) continue;
    asm volatile(
        "st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(device::shared_address(tiles) + i), "r"(0)
        : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// d (+)= a b^T, 16 columns of which both have here. a is a sum of two.
__device__ __forceinline__ void multiply_step(float (&d)[kChunk / 2],
                                              const uint32_t (&high)[4],
                                              const uint32_t (&low)[4],
                                              uint32_t b,
                                              bool accumulate) {
  product(d, high, b, accumulate);
  product(d, low, b, true);
}

// The same where b is a lower triangular matrix, a sum of two as well. What is above the diagonal
// is zero: leaving it out takes more products than it saves.
__device__ __forceinline__ void multiply_triangle(float (&d)[kChunk / 2],
                                                  const uint32_t (&high)[4],
                                                  const uint32_t (&low)[4],
                                                  uint32_t matrix,
                                                  int step,
                                                  bool accumulate) {
  const uint32_t at = matrix + bytes_of_matrix(step * 32);
  multiply_step(d, high, low, at, accumulate);
  product(d, high, at + bytes_of_matrix(kTileBytes), true);
}

// In a tile of values or results, the lane's row of the four matrices of 16 tokens: of columns g,
// then g + 8, then the same of eight tokens further on.
__device__ inline int value_offset(int step) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroupThreads / 32;
  const int token = step * 16 + lane / 16 * 8 + lane % 8;
  return tile_offset(token, (warp * 2 + lane / 8 % 2) * 16);
}

// A thread's registers of a result for the other warpgroup.
__device__ __forceinline__ void leave(const float* from,
                                      float4 (&to)[2 * kChunkSteps][kGroupThreads]) {
#pragma unroll
  for (int i = 0; i < 2 * kChunkSteps; ++i) {
    to[i][threadIdx.x] =
        make_float4(from[i * 4], from[i * 4 + 1], from[i * 4 + 2], from[i * 4 + 3]);
  }
}

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

// The thread that loads.
class ChunkLoader {
 public:
  __device__ ChunkLoader(const AdvanceArgs& args,
                         const ChunkedSequence& sequence,
                         int64_t head,
                         int half,
                         const AdvanceBuffers& buffers)
      : args_(args),
        sequence_(sequence),
        buffers_(buffers),
        record_(args.records + sequence.first_chunk * args.rule.num_v_heads + head),
        ready_(flag_of_first(args, sequence, head)),
        policy_(device::keep_policy()) {
    const auto num_k_heads = static_cast<int>(args.rule.num_k_heads);
    const auto v_head = static_cast<int>(head);
    query_column_ = v_head / (static_cast<int>(args.rule.num_v_heads) / num_k_heads) * kHeadDim;
    key_column_ = query_column_ + num_k_heads * kHeadDim;
    value_column_ = (2 * num_k_heads + v_head) * kHeadDim + half * kAdvanceColumns;
  }

  __device__ void run() {
    device::StageCursor state, result;
    const int num_chunks = static_cast<int>(sequence_.num_chunks());
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      while (ready_ != nullptr && !is_ready(ready_ + chunk * args_.blocks_of_place)) {
      }
      const int row = static_cast<int>(sequence_.begin) + chunk * kChunk;
      const ChunkRecord& record = record_[int64_t{chunk} * args_.rule.num_v_heads];
      wait_for(buffers_.states.empty_at(state.index), state.parity ^ 1);
      load(buffers_.shared->states[state.index], buffers_.states.full_at(state.index), row, record);
      wait_for(buffers_.results.empty_at(result.index), result.parity ^ 1);
      load(buffers_.shared->results[result.index],
           buffers_.results.full_at(result.index),
           row,
           record);
      state.advance(kStateStages);
      result.advance(kResultStages);
    }
  }

 private:
  __device__ void load(StateStage& to, uint32_t barrier, int row, const ChunkRecord& record) const {
    arrive_expecting(barrier, kStateStageBytes);
    for (int i = 0; i < 2; ++i) {
      load_tile(to.rows[i][0], key_column_ + i * 64, row, barrier);
      load_tile(to.rows[i][1], query_column_ + i * 64, row, barrier);
    }
    load_tile(to.values, value_column_, row, barrier);
    copy(to.inverse, record.inverse, barrier);
    copy(to.factors, record.factors, barrier);
  }
  __device__ void load(ResultStage& to,
                       uint32_t barrier,
                       int row,
                       const ChunkRecord& record) const {
    arrive_expecting(barrier, kResultStageBytes);
    copy(to.products, record.products, barrier);
    copy(to.factors, record.factors.query, barrier);
  }
  __device__ void load_tile(uint8_t (&to)[kTileBytes],
                            int column,
                            int row,
                            uint32_t barrier) const {
    device::copy_box(device::shared_address(to), &args_.rows, column, row, barrier, policy_);
  }
  template <typename T>
  static __device__ void copy(T& to, const T& from, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(device::shared_address(&to)),
        "l"(&from),
        "r"(static_cast<int>(sizeof(T))),
        "r"(barrier)
        : "memory");
  }

  const AdvanceArgs& args_;
  const ChunkedSequence& sequence_;
  const AdvanceBuffers& buffers_;
  const ChunkRecord* const record_;
  const uint32_t* const ready_;
  const uint64_t policy_;
  int query_column_, key_column_, value_column_;
};

}  // namespace atom::ops::delta_device
