// Inside gated_delta_net on Hopper, of blocks that stay for several sequences: where a block
// stands and the states on their way to it.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/gated_delta_net/step_sm90.cuh"

namespace atom::ops::delta_device {

constexpr int kGroups = 2;  // each advances the states of every second value head
constexpr int kResidentThreads = kGroups * kRecurrentThreads;
constexpr int kMaxHeads = 4;    // value heads of a key head
constexpr int kMaxUnits = 256;  // sequences of a block
constexpr int kRingSize = 3 * kDim * kDim * sizeof(float);

// One sequence: its token is a row, or there are rows that are padding and have no slot.
struct Unit {
  int row, count;
  int slot;
  int target;  // where the state behind the token goes, or -1
  bool has_history;
};

template <typename Stored>
struct ResidentShared {
  static constexpr int kStages = kRingSize / (kDim * kDim * sizeof(Stored));

  alignas(128) Stored states[kStages][kDim * kDim];
  // Of every second sequence: query, key and the heads' values.
  float tokens[2][2 + kMaxHeads][kDim];
  float results[kMaxHeads][kDim];
  ColumnSums<kDim> sums[kGroups];
  TokenFactors factors[kMaxHeads];
  uint64_t arrived[kStages];
  Unit units[kMaxUnits];

  __device__ TokenRows rows(int index, int head) {
    const auto& token = tokens[index % 2];
    return {token[0], token[1], token[2 + head], results[head], &factors[head]};
  }
};
static_assert(sizeof(ResidentShared<float>) <= 227 << 10);

// Where a thread stands. The y-th block of a key head has the sequences y, y + gridDim.y, ...
struct Place {
  int key_head, first_head, num_heads;
  int num_units;
  int group, thread;  // of all groups

  __device__ explicit Place(const GatedDeltaRuleArgs& args)
      : key_head(blockIdx.x),
        num_heads(static_cast<int>(args.num_v_heads) / static_cast<int>(args.num_k_heads)),
        num_units((static_cast<int>(args.batch.num_sequences) - static_cast<int>(blockIdx.y) - 1) /
                      static_cast<int>(gridDim.y) +
                  1),
        group(threadIdx.y),
        thread(threadIdx.x + kRecurrentThreads * threadIdx.y) {
    first_head = key_head * num_heads;
  }
  // Elements.
  __device__ int64_t state_offset(const GatedDeltaRuleArgs& args, int slot, int head) const {
    return (slot * args.num_v_heads + first_head + head) * kDim * kDim;
  }
};

struct GroupBarrier {
  int group;
  __device__ void operator()() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kRecurrentThreads) : "memory");
  }
};

__device__ inline void find_units(const StateBatchArgs& batch, const Place& place, Unit* units) {
  for (int i = place.thread; i < place.num_units; i += kResidentThreads) {
    const Sequence sequence(batch, int64_t{blockIdx.y} + int64_t{i} * gridDim.y);
    if (sequence.slot >= 0 && sequence.count > 1) gpu_trap();
    const bool is_token = sequence.slot >= 0 && sequence.count == 1;
    units[i] = {sequence.begin,
                sequence.count,
                is_token ? sequence.slot : -1,
                is_token ? sequence.slot_behind(0) : -1,
                sequence.has_history};
  }
}

// The states of the block's sequences, head after head, in the order in which they are advanced.
template <typename Stored>
class StateRing {
 public:
  static constexpr int kStages = ResidentShared<Stored>::kStages;
  // Of the states that are advanced side by side the next ones are in other stages.
  static_assert(kStages > kGroups);

  __device__ StateRing(const GatedDeltaRuleArgs& args,
                       const Place& place,
                       ResidentShared<Stored>& shared)
      : args_(args), place_(place), shared_(shared) {}

  // By one thread, as what fills stages.
  __device__ void make_barriers() const {
    for (int stage = 0; stage < kStages; ++stage) device::init_barrier(barrier(stage), 1);
    device::publish_barriers();
    device::fence_before_copies();
  }
  __device__ void fill() const {
    for (int i = 0; i < kStages; ++i) begin_copy(i);
  }
  // Behind a barrier after all have read the state.
  __device__ void refill(int index, int head) const { begin_copy(number(index, head) + kStages); }
  __device__ void refill_all(int index) const {
    for (int head = 0; head < place_.num_heads; ++head) refill(index, head);
  }

  __device__ const Stored* wait(int index, int head) const {
    const int i = number(index, head), stage = i % kStages;
    device::wait_for(barrier(stage), i / kStages % 2);
    return shared_.states[stage];
  }

 private:
  __device__ int number(int index, int head) const { return index * place_.num_heads + head; }
  __device__ uint32_t barrier(int stage) const {
    return device::shared_address(&shared_.arrived[stage]);
  }
  // Where there is nothing to copy the stage only goes on.
  __device__ void begin_copy(int i) const {
    constexpr int kBytes = kDim * kDim * sizeof(Stored);
    const int index = i / place_.num_heads, stage = i % kStages;
    if (index >= place_.num_units) return;
    const Unit unit = shared_.units[index];
    if (unit.slot < 0 || !unit.has_history) return device::arrive(barrier(stage));
    const Stored* source = static_cast<const Stored*>(args_.state) +
                           place_.state_offset(args_, unit.slot, i % place_.num_heads);
    device::fence_before_copies();
    device::arrive_expecting(barrier(stage), kBytes);
    device::copy_bulk(device::shared_address(shared_.states[stage]),
                      source,
                      kBytes,
                      barrier(stage),
                      device::read_once_policy());
  }

  const GatedDeltaRuleArgs& args_;
  const Place& place_;
  ResidentShared<Stored>& shared_;
};

}  // namespace atom::ops::delta_device
