// Decode steps of common batch sizes, recorded once when the engine starts and replayed: one launch
// instead of hundreds. All share the runner's workspace as their memory. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "runner/device_sampler.h"
#include "runner/input_builder.h"
#include "tensor/stream.h"

namespace atom {

class DecodeGraphs {
 public:
  struct Graph {
    int64_t batch = 0;
    std::array<std::unique_ptr<DeviceGraph>, kNumSamplingKinds> of_kind;
    // [batch, vocab] float32: where the step of kLater leaves them, until the next step.
    Tensor logits;

    // Enqueues the step, tokens chosen but under kLater.
    void launch(SamplingKind kind) const { of_kind[static_cast<size_t>(kind)]->launch(); }
  };

  // Sends the inputs of a step of `batch` rows of padding; their addresses depend on `batch` only.
  using Prepare = std::function<StepInputs(int64_t batch)>;
  // Enqueues a step; returns its logits.
  using Run = std::function<Tensor(const StepInputs& inputs, SamplingKind kind)>;
  // Told of each batch size that is recorded.
  using Progress = std::function<void()>;

  // Records every size up to `max_batch` that batches are rounded up to. An error when the device's
  // runtime does not record a step, which says how to go on without.
  Status record(const Stream& stream,
                int64_t max_batch,
                const Prepare& prepare,
                const Run& run,
                const Progress& progress);

  // The smallest recorded step of at least `batch` rows, or null.
  const Graph* find(int64_t batch) const;
  size_t size() const { return graphs_.size(); }

  // 1, 2, 4, 8, 16, then every 8 to 256 and every 16 from there, `max_batch` last.
  static std::vector<int64_t> batch_sizes(int64_t max_batch);

 private:
  std::vector<Graph> graphs_;  // ascending
};

}  // namespace atom
