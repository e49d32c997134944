// Drafts by a head on the target's hidden states (MTP layers, EAGLE-3). After a step of the target
// the head computes all its rows, each with the token behind it, so that its cache has no holes and
// follows the target's; the row of a sequence's last token gives the first draft. Each further one
// takes a pass of one row per sequence, which feeds on the draft before and on its hidden state.
// Drafts are the head's best tokens.
//
// What such a pass writes to the cache is behind the sequence's tokens, in blocks that it holds;
// the next step writes there again.
//
// On a device all passes are enqueued, each with the drafts of the one before as they stand there;
// the host waits once, for all drafts. Behind a recorded step they are recorded, too, as one piece
// (PaddedDrafts), else they are enqueued operator by operator. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/scheduler_config.h"
#include "models/draft_model.h"
#include "nn/forward_context.h"
#include "nn/parallel_context.h"
#include "spec_decode/draft_request.h"
#include "spec_decode/padded_drafts.h"
#include "tensor/host_mirror.h"

namespace atom {

class EagleProposer {
 public:
  // `model` and `stream` outlive this. Ids at and above `num_sampled_ids` are never drafted.
  // Where copies share experts, which a draft model may have, too, every propose() has as many
  // passes, one row that counts nowhere being what a pass has at least.
  EagleProposer(const DraftModel& model,
                const SchedulerConfig& config,
                const ParallelContext& parallel,
                int64_t num_sampled_ids,
                const Stream& stream);

  // Bytes of its buffers.
  static int64_t num_bytes(const DraftModel& model, const SchedulerConfig& config, Device device);

  // hidden: the target's, of a step, as DraftModel::forward() reads it for the first draft. `step`
  // is the context of that step, of which the workspace and the storage are used. Drafts of each
  // request.
  std::vector<std::vector<int32_t>> propose(std::span<const DraftRequest> requests,
                                            const Tensor& hidden,
                                            const ForwardContext& step);

  // On a device: records what follows steps of such a shape, see PaddedDrafts; propose_recorded()
  // is propose() behind one of them.
  Status record(const PaddedDraftShape& shape, const Tensor& hidden, const ForwardContext& step);
  const PaddedDraftShape* recorded(int64_t batch, int64_t queries) const;
  std::vector<std::vector<int32_t>> propose_recorded(const PaddedDraftShape& shape,
                                                     std::span<const DraftRequest> requests,
                                                     const Tensor& hidden,
                                                     const ForwardContext& step);

  // On a dry run: takes from the workspace what propose() takes after such a step.
  static void measure(const DraftModel& model,
                      const Tensor& hidden,
                      int64_t num_seqs,
                      const ForwardContext& step);

 private:
  // Rows of one pass: of each sequence consecutive ones.
  struct Pass {
    std::vector<int32_t> token_ids;
    std::vector<int32_t> positions;
    std::vector<int32_t> slots;
    std::vector<int32_t> hidden_rows;
    std::vector<int32_t> query_start = {0};
    std::vector<int32_t> seq_lens;
    std::vector<int32_t> settled_lens;
    std::vector<std::span<const int32_t>> block_ids;
  };

  // What propose() has so far.
  struct Round {
    std::span<const DraftRequest> requests;
    std::vector<int32_t> wanted;  // drafts of each request
    // Of each request, where `drafts_` has them; then what they are.
    std::vector<std::vector<int32_t>> places;
    std::vector<std::vector<int32_t>> drafts;
    int32_t num_places = 0;
    std::vector<size_t> active;  // requests that got the last draft
    Tensor feedback;             // [num_requests, hidden_size]: the rows that it came from
  };

  Round begin(std::span<const DraftRequest> requests,
              const Tensor& hidden,
              const ForwardContext& step) const;
  // All rows of the step for `layer`, whose tokens are `layer` places further on than the first
  // layer's; last_rows: where each request's last one is.
  Pass all_rows(const Round& round, int layer, std::vector<int32_t>* last_rows) const;
  // One row for each request that wants draft number `draft`, which become the active ones.
  Pass next_rows(Round& round, int32_t draft) const;
  void add_rows(const DraftRequest& request,
                int32_t first_position,
                int32_t num_rows,
                Pass& pass) const;
  // A row of no sequence, if the pass has none.
  static void pad(Pass& pass);
  // For draft number `draft`, see DraftModel::forward().
  Tensor run(const Pass& pass, const Tensor& hidden, int draft, const ForwardContext& step);
  // Makes a draft for each active request of its row of `hidden`, which is kept as feedback.
  void take_drafts(const Tensor& hidden,
                   std::span<const int32_t> rows,
                   Round& round,
                   const ForwardContext& step);
  // The drafts so far, from where passes have left them.
  void fetch_drafts(Round& round);

  const DraftModel& model_;
  const ParallelContext parallel_;
  const int32_t num_drafts_;  // of each sequence, at most
  const int32_t block_size_;
  const int64_t num_sampled_ids_;
  const Stream& stream_;
  HostMirror inputs_;                     // of a pass
  HostMirror rows_;                       // that get logits
  HostMirror drafts_;                     // of all passes, in the order in which they were made
  std::vector<int32_t> tokens_of_ranks_;  // of the pass that is computed
  std::optional<PaddedDrafts> padded_;    // on a device
};

}  // namespace atom
