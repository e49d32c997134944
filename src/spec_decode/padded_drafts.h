// The drafts behind a step whose shape is fixed: all passes of the draft model in one piece, with
// tensors that depend on the shape only, so that a device records them once and replays them with
// one launch. Rows and sequences that are not there are padding: token 0 or a neighbor's, slot -1,
// a sequence of length 0. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "config/scheduler_config.h"
#include "models/draft_model.h"
#include "nn/forward_context.h"
#include "spec_decode/draft_request.h"
#include "tensor/device_runtime.h"
#include "tensor/host_mirror.h"

namespace atom {

// Behind a step of `batch` sequences with `queries` rows each; of several rows there is one
// sequence more in the step, which has those of padding.
struct PaddedDraftShape {
  int64_t batch = 0;
  int64_t queries = 1;
  int32_t num_drafts = 0;  // of each sequence; 0: the model's cache follows the target's, no more

  int64_t num_rows() const { return batch * queries; }
  int64_t num_seqs() const { return queries == 1 ? batch : batch + 1; }
};

class PaddedDrafts {
 public:
  // `model` and `stream` outlive this. `drafts` is where a round leaves its drafts, those of a pass
  // one behind the other; it holds max_num_seqs * num_speculative_tokens.
  PaddedDrafts(const DraftModel& model,
               const SchedulerConfig& config,
               int64_t num_sampled_ids,
               const Stream& stream,
               HostMirror& drafts);

  // Bytes of its buffers.
  static int64_t num_bytes(const DraftModel& model, const SchedulerConfig& config);

  // Records the round behind steps of the shape. hidden, step: those of such a step, the tensors of
  // the latter's block tables included; they stay where they are. An error when the device's
  // runtime does not record it.
  Status record(const PaddedDraftShape& shape, const Tensor& hidden, const ForwardContext& step);

  // The round that was recorded behind such a step, or null.
  const PaddedDraftShape* find(int64_t batch, int64_t queries) const;

  // Enqueues a round: the recorded one, where there is one, else operator by operator. At most
  // `batch` requests, of at most `queries` rows each, in the order of the step's sequences. Draft
  // number d of request s is behind it at drafts[d * batch + s], for d below num_wanted().
  void run(const PaddedDraftShape& shape,
           std::span<const DraftRequest> requests,
           const Tensor& hidden,
           const ForwardContext& step);

 private:
  // What a pass reads, see ForwardContext.
  struct Pass {
    Tensor token_ids = {};  // the only array that layers do not share
    Tensor positions;
    Tensor slots;
    Tensor query_start;
    Tensor seq_lens;
    Tensor settled_lens;
    Tensor hidden_rows;
  };
  struct Inputs {
    std::vector<Pass> passes;
    Tensor last_rows;  // [batch]: of the step's rows, each sequence's last one
    Tensor rows;       // [batch]: 0, 1, ...
  };

  Inputs send(const PaddedDraftShape& shape, std::span<const DraftRequest> requests);
  void enqueue(const PaddedDraftShape& shape,
               const Inputs& inputs,
               const Tensor& hidden,
               const ForwardContext& step);
  Tensor forward(const Pass& pass,
                 const Tensor& hidden,
                 int draft,
                 int64_t max_queries,
                 const ForwardContext& step) const;

  const DraftModel& model_;
  const int32_t block_size_;
  const int64_t num_sampled_ids_;
  const Stream& stream_;
  HostMirror& drafts_;
  HostMirror inputs_;  // of all passes of a round
  struct Recorded {
    PaddedDraftShape shape;
    std::unique_ptr<DeviceGraph> graph;
  };
  std::map<std::pair<int64_t, int64_t>, Recorded> recorded_;  // by batch, queries
};

}  // namespace atom
