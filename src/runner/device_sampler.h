// From logits in a device's memory to tokens: the device chooses rows that take the largest logit,
// so that only ids travel; the host's Sampler does the others. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "runner/host_mirror.h"
#include "sampling/sampler.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom {

class DeviceSampler {
 public:
  // `num_sampled_ids`: ids at and above are never chosen. `stream` outlives this.
  DeviceSampler(const Stream& stream,
                int64_t max_rows,
                int64_t vocab_size,
                int64_t num_sampled_ids);

  // Enqueues the choice of each row's largest logit. -> [num_rows] int32, always the same memory.
  Tensor choose_largest(const Tensor& logits, Workspace& workspace);

  // logits, and what choose_largest() chose of them. Waits for the device.
  void sample(const Tensor& logits, std::span<const SamplingRow> rows, std::span<SampledToken> out);

  // See Sampler::score. Waits for the device.
  void score(const Tensor& logits,
             std::span<const ScoredToken> tokens,
             std::span<Result<TokenLogprobs>> out);

 private:
  Tensor fetch_rows(const Tensor& logits, std::span<const size_t> rows);

  const Stream* stream_;
  Stream host_stream_;
  Sampler sampler_;
  int64_t num_sampled_ids_;
  HostMirror ids_;      // [max_rows]
  Tensor host_logits_;  // [kHostRows, vocab_size] float32, pinned
};

}  // namespace atom
