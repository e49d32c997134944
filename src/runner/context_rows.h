// Which rows of a step a rank computes where prompts are split over a context-parallel group.
//
// The tokens that a step computes of a prompt are cut into twice as many pieces as there are ranks;
// rank r has the r-th from the front and the r-th from behind, so that all have about as many keys
// to look at. To the layers a piece is a sequence of its own that ends where the piece does. Rows
// of what is too short to be cut, decodes above all, are computed by every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/scheduler_config.h"
#include "nn/context_split.h"
#include "nn/forward_context.h"
#include "nn/parallel_context.h"
#include "runner/runner_sequence.h"
#include "scheduler/scheduler_output.h"
#include "tensor/host_mirror.h"

namespace atom {

class ContextRows {
 public:
  // Fewer tokens of a prompt than `threshold` are not cut. `sequences` in the order of
  // `step.scheduled`, their block tables up to date; `arrays` is where operators read what they
  // need of this, num_elements() long, and null for a single rank. All outlive this.
  ContextRows(const SchedulerOutput& step,
              std::span<RunnerSequence* const> sequences,
              int32_t block_size,
              const ParallelContext& parallel,
              HostMirror* arrays,
              int32_t threshold = 0);

  // Of `arrays`, for any step.
  static int64_t num_elements(const SchedulerConfig& config, int32_t num_context_ranks);
  // Those arrays; none for a single rank. `stream` outlives them.
  static std::optional<HostMirror> make_arrays(const SchedulerConfig& config,
                                               int32_t num_context_ranks,
                                               const Stream& stream);

  // What InputBuilder::build() takes for this rank's rows.
  const SchedulerOutput& step() const { return is_split() ? part_ : step_; }
  std::span<RunnerSequence* const> sequences() const {
    return is_split() ? std::span<RunnerSequence* const>(owners_) : sequences_;
  }

  // Null where every rank computes the whole step.
  const ContextSplit* split() const { return is_split() ? &*split_ : nullptr; }

  // Of rows that this rank has computed, `num_parts` times one for each row of its part: the same
  // for each row of the step, on all ranks, with the same bits. A collective.
  Tensor whole(const Tensor& rows, int64_t num_parts, const ForwardContext& context) const;

 private:
  bool is_split() const { return split_.has_value(); }
  // Adds rows [begin, end) of sequence `index`, counted within the step.
  void add_piece(size_t index, int32_t begin, int32_t end, int32_t first_row);
  // Brings places_ and the slots of each rank's rows to where operators read them.
  void send(const std::vector<std::vector<int32_t>>& slots);

  const SchedulerOutput& step_;
  const std::span<RunnerSequence* const> sequences_;
  const ParallelContext parallel_;
  HostMirror* const arrays_;
  SchedulerOutput part_;
  std::vector<RunnerSequence*> owners_;
  // Of each row of the step, where this rank's part has it; -1: not there, or told by rank 0.
  std::vector<int32_t> places_;
  std::optional<ContextSplit> split_;
};

// For an InputBuilder of a rank of so many: a sequence may stand in its part twice.
SchedulerConfig limits_of_parts(SchedulerConfig config, int32_t num_context_ranks);

// Rows that a rank has alone in a step of `num_tokens` tokens in `num_seqs` sequences, at most.
int64_t max_own_rows(int64_t num_tokens, int64_t num_seqs, int32_t num_context_ranks);

}  // namespace atom
