// Decode steps of common sizes, recorded once when the engine starts and replayed: one launch
// instead of hundreds. All share the runner's workspace as their memory. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "config/resolve.h"
#include "runner/device_sampler.h"
#include "runner/input_builder.h"
#include "tensor/stream.h"

namespace atom {

class DecodeGraphs {
 public:
  struct Graph {
    DecodeShape shape;
    std::array<std::unique_ptr<DeviceGraph>, kNumSamplingKinds> of_kind;
    // [batch, vocab] float32: where the step of kLater leaves them, until the next step.
    Tensor logits;

    // Enqueues the step, tokens chosen but under kLater.
    void launch(SamplingKind kind) const { of_kind[static_cast<size_t>(kind)]->launch(); }
  };

  // Sends the inputs of a step of padding; their addresses depend on `shape` only.
  using Prepare = std::function<StepInputs(const DecodeShape& shape)>;
  // Enqueues a step; returns its logits.
  using Run = std::function<Tensor(const StepInputs& inputs, SamplingKind kind)>;
  // Called before each step that is computed, when what was recorded before has its memory: where
  // several ranks record together it returns when all of them are there.
  using Meet = std::function<void()>;
  // Told of each step that is recorded.
  using Progress = std::function<void()>;

  // Records a step of each shape; those of equal queries in order of their batch. An error when the
  // device's runtime does not record a step, which says how to go on without.
  Status record(const Stream& stream,
                const std::vector<DecodeShape>& shapes,
                const Prepare& prepare,
                const Run& run,
                const Meet& meet,
                const Progress& progress);

  // The smallest recorded step of at least `batch` sequences, of which none has more than `queries`
  // tokens, or null.
  const Graph* find(int64_t batch, int64_t queries) const;
  size_t size() const { return graphs_.size(); }
  // Of one step of single tokens of so many sequences that take their largest logit; 0: none is
  // recorded.
  int64_t num_launches(int64_t batch) const;

  // What there is to record: single tokens for batches of all sizes, and steps that verify drafts
  // for those up to scheduler.largest_drafting_batch(), as far as a step has room. The sizes are
  // config.recorded_batches, where those were asked for.
  static std::vector<DecodeShape> shapes(const ResolvedConfig& config);
  // 1, 2, 4, 8, 16, then every 8 to 256 and every 16 from there, `max_batch` last.
  static std::vector<int64_t> batch_sizes(int64_t max_batch);

 private:
  std::vector<Graph> graphs_;  // of equal queries ascending
};

}  // namespace atom
