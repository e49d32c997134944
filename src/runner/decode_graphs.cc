#include "runner/decode_graphs.h"

#include <algorithm>

namespace atom {

std::vector<int64_t> DecodeGraphs::batch_sizes(int64_t max_batch) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size < max_batch;) {
    sizes.push_back(size);
    if (size < 16) {
      size *= 2;
    } else {
      size += size < 256 ? 8 : 16;
    }
  }
  sizes.push_back(max_batch);
  return sizes;
}

size_t DecodeGraphs::record(const Stream& stream,
                            int64_t max_batch,
                            const Prepare& prepare,
                            const Run& run) {
  for (const int64_t batch : batch_sizes(max_batch)) {
    const StepInputs inputs = prepare(batch);
    // Once for real: kernels are loaded and algorithms chosen at first use.
    run(inputs);
    stream.queue().synchronize();
    stream.queue().begin_recording();
    DecodeOutputs outputs = run(inputs);
    graphs_.push_back({batch, std::move(outputs), stream.queue().end_recording()});
  }
  return graphs_.size();
}

const DecodeGraphs::Graph* DecodeGraphs::find(int64_t batch) const {
  const auto found = std::lower_bound(
      graphs_.begin(), graphs_.end(), batch, [](const Graph& graph, int64_t wanted) {
        return graph.batch < wanted;
      });
  return found == graphs_.end() ? nullptr : &*found;
}

}  // namespace atom
