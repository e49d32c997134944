// From logits in a device's memory to tokens in it, without the host: the next step takes its
// tokens from where this one leaves them, and the host gets copies. Rows that take the largest
// logit go by ops::argmax, a step with any other row by sample_rows(). One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "nn/parallel_context.h"
#include "sampling/sample_row_params.h"
#include "sampling/sampler.h"
#include "tensor/host_mirror.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom {

// How the tokens of a step are chosen.
enum class SamplingKind {
  kLargest,  // every row takes its largest logit
  kAny,
  kLater,  // not with the step: rows wait for masks of tokens that its beginning does not know
};
constexpr size_t kNumSamplingKinds = 3;

// What fetch() brings to the host: there when the queue has passed it, and good until
// kMaxDeviceSteps more are fetched.
struct FetchedTokens {
  const int32_t* token_ids = nullptr;      // [num_rows]
  const TokenLogprob* logprobs = nullptr;  // [num_rows, 1 + kMaxRowLogprobs]

  // What became of row `row`, which was sampled under `params`.
  SampledToken token(int64_t row, const SamplingParams& params) const;
};

class DeviceSampler {
 public:
  // `num_sampled_ids`: ids at and above are never chosen. `stream`, a queue of the runtime's
  // device, outlives this. `alike`, where not null: ranks that compute the same rows, each by
  // itself, and so with other last bits perhaps; all take the tokens of the first.
  DeviceSampler(DeviceRuntime& runtime,
                const Stream& stream,
                int64_t max_rows,
                int64_t vocab_size,
                int64_t num_sampled_ids,
                Communicator* alike = nullptr);

  // Bytes of the device's buffers.
  static int64_t num_bytes(int64_t max_rows, int64_t vocab_size);

  static SamplingKind kind_of(std::span<const DeviceSamplingRow> rows);

  // The tokens that the step before chose, in the order of its rows; always the same memory.
  Tensor token_ids() const { return token_ids_.view(0, {max_rows_}); }

  // Sends what a step of kAny needs to know of its rows, with padding up to `num_padded` rows, and
  // the masks of those that have one. With masks the device must have done the steps before: all is
  // there on return, sent while the device computes the step's logits.
  // False, and nothing is sent, when it is more than fits at once.
  bool send_rows(std::span<const DeviceSamplingRow> rows, int64_t num_padded);

  // Enqueues the choice from logits, [num_rows, vocab_size] float32, which may change them. Under
  // kAny by what was sent last.
  void choose(SamplingKind kind, const Tensor& logits, Workspace& workspace);

  // The same under kLargest of ranks that have a part of the columns each, in the order of `ranks`;
  // `logits` are this one's. All choose the same.
  void choose_largest_of_parts(const Tensor& logits,
                               int64_t first_id,
                               const ParallelContext& ranks,
                               Workspace& workspace);

  // Sends and chooses under kAny, part by part if need be; waits for the device between parts.
  void send_and_choose(std::span<const DeviceSamplingRow> rows,
                       const Tensor& logits,
                       Workspace& workspace);

  // Enqueues the copy of what the rows chose.
  FetchedTokens fetch(std::span<const DeviceSamplingRow> rows);

  // See Sampler::score. Waits for the device.
  void score(const Tensor& logits,
             std::span<const ScoredToken> tokens,
             std::span<Result<TokenLogprobs>> out);

 private:
  // Behind nothing that the stream's queue has to do; waits until they are there.
  void send_masks(std::span<const DeviceSamplingRow> rows);
  void take_first_ranks(int64_t num_rows);
  // Of rows that were sent; first_row is the first of them among the step's.
  void choose_sent(const Tensor& logits, int64_t first_row, int32_t* token_ids);

  const Stream* stream_;
  Communicator* alike_;
  Stream host_stream_;
  Sampler sampler_;  // of scored rows
  int64_t num_sampled_ids_;
  int64_t max_rows_;
  HostMirror inputs_;     // [max_rows] SampleRowParams, then LogitEdits
  HostMirror token_ids_;  // [max_rows]
  HostMirror logprobs_;   // [max_rows, 1 + kMaxRowLogprobs] TokenLogprob
  int64_t mask_words_;
  HostMirror masks_;  // [max_rows, mask_words_]
  // Beside the stream's: masks do not wait for logits.
  std::unique_ptr<DeviceQueue> mask_queue_;
  Tensor host_logits_;  // [kScoredRows, vocab_size] float32, pinned
  std::vector<SampleRowParams> params_;
  std::vector<LogitEdit> edits_;
};

}  // namespace atom
