// Decode steps of common batch sizes, recorded once when the engine starts and replayed: one launch
// instead of hundreds. All share the runner's workspace as their memory. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runner/input_builder.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// What a decode step leaves on the device; good until the next step.
struct DecodeOutputs {
  Tensor logits;  // [batch, vocab_size] float32
  Tensor ids;     // [batch] int32: what ops::argmax chose
};

class DecodeGraphs {
 public:
  struct Graph {
    int64_t batch = 0;
    DecodeOutputs outputs;
    std::unique_ptr<DeviceGraph> graph;
  };

  // Sends the inputs of a step of `batch` rows of padding; their addresses depend on `batch` only.
  using Prepare = std::function<StepInputs(int64_t batch)>;
  // Enqueues a step.
  using Run = std::function<DecodeOutputs(const StepInputs& inputs)>;

  // Records every size up to `max_batch` that batches are rounded up to; returns how many.
  size_t record(const Stream& stream, int64_t max_batch, const Prepare& prepare, const Run& run);

  // The smallest recorded step of at least `batch` rows, or null.
  const Graph* find(int64_t batch) const;

  // 1, 2, 4, 8, 16, then every 8 to 256 and every 16 from there, `max_batch` last.
  static std::vector<int64_t> batch_sizes(int64_t max_batch);

 private:
  std::vector<Graph> graphs_;  // ascending
};

}  // namespace atom
