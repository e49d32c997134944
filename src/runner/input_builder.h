// Turns a SchedulerOutput into the tensors of a ForwardContext, on the device of a stream. The
// buffers are sized once for the largest step and reused: a context is valid until the next build,
// and on a device its values are there once the queue has passed the copy. There up to
// kMaxDeviceSteps builds may be on their way. Tokens that only the device knows are passed on as
// they stand in RunnerSequence::token_ids. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "config/scheduler_config.h"
#include "nn/forward_context.h"
#include "runner/runner_sequence.h"
#include "scheduler/scheduler_output.h"
#include "tensor/host_mirror.h"

namespace atom {

struct StepInputs {
  Tensor token_ids;              // [num_tokens] int32
  Tensor positions;              // [num_tokens] int32
  ops::PagedBatch batch;         // with the blocks of the first group of layers
  ops::PagedBatch window_batch;  // with those of the second; undefined where there is none
  Tensor state_slots;            // [num_seqs] int32; -1: none
  // [num_tokens] int32 where steps verify drafts, see ForwardContext; else undefined.
  Tensor token_state_slots = {};
  std::vector<ops::BatchPart> parts = {};  // as ForwardContext has them
};

// A padded decode step: `batch` sequences of at most `queries` tokens each.
struct DecodeShape {
  int64_t batch = 0;
  int64_t queries = 1;

  int64_t num_tokens() const { return batch * queries; }
  // One more takes up the padding of sequences with fewer tokens.
  int64_t num_seqs() const { return queries == 1 ? batch : batch + 1; }
};

class InputBuilder {
 public:
  // `stream` outlives this.
  InputBuilder(const SchedulerConfig& config, const Stream& stream);

  // Bytes of the buffers.
  static int64_t num_bytes(const SchedulerConfig& config);

  // `sequences` in the order of `step.scheduled`, their tokens and block tables up to date.
  StepInputs build(const SchedulerOutput& step, std::span<RunnerSequence* const> sequences);

  // For a pass that counts nowhere: one token of one sequence, without a slot for its key or state.
  StepInputs build_dummy();

  // For a step of decodes that fits `shape`: tensors whose shapes and addresses depend on `shape`
  // only. Rows of padding stand behind the others and have token 0, slots -1 and sequences of
  // length 0: each that is left over has one, and the last one the rest.
  StepInputs build_decodes(const SchedulerOutput& step,
                           std::span<RunnerSequence* const> sequences,
                           const DecodeShape& shape);

 private:
  // The arrays of a step in the order in which they lie in the buffer. The block tables come last,
  // because a padded step sends only those of their columns that are in use.
  enum Array {
    kTokenIds,
    kPositions,
    kSlotMapping,
    kWindowSlots,
    kTokenStateSlots,
    kQueryStart,
    kSeqLens,
    kSettledLens,
    kStateSlots,
    kPartStarts,
    kBlockTables,
    kWindowTables,
    kNumArrays
  };
  struct Layout {
    std::array<Shape, kNumArrays> shapes;
    std::array<int64_t, kNumArrays> begins;
    int64_t end;
  };
  // `has_groups`: there is a second group of layers. `parts_size`: of all parts' query_start.
  static Layout make_layout(bool has_groups,
                            int64_t num_tokens,
                            int64_t num_seqs,
                            int64_t table_width,
                            int64_t parts_size = 0);
  // The slot mapping and the tables of one group.
  void fill_blocks(const SchedulerOutput& step,
                   std::span<RunnerSequence* const> sequences,
                   const Layout& layout,
                   int32_t group);
  void fill(const SchedulerOutput& step,
            std::span<RunnerSequence* const> sequences,
            const Layout& layout);
  // Writes where the parts' sequences begin.
  void fill_parts(std::span<ops::BatchPart> parts, const Layout& layout);
  // The first column that is read of a sequence's table in a step whose first query stands at
  // `position`.
  int32_t first_column(int32_t group, int32_t position) const {
    return config_.window_of_group(group) == 0 ? 0 : config_.num_blocks_behind(position);
  }
  // Behind those of `num_seqs` sequences.
  void pad(const DecodeShape& shape, int64_t num_seqs, const Layout& layout);
  // Sends the part of the tables that a padded step reads.
  void send_tables(const SchedulerOutput& step,
                   std::span<RunnerSequence* const> sequences,
                   const Layout& layout);
  StepInputs views(const Layout& layout, int64_t min_queries, int64_t max_queries) const;

  SchedulerConfig config_;
  bool has_groups_;
  int64_t max_blocks_;  // per sequence
  HostMirror buffer_;
};

}  // namespace atom
