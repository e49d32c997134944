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

Status DecodeGraphs::record(const Stream& stream,
                            int64_t max_batch,
                            const Prepare& prepare,
                            const Run& run,
                            const Progress& progress) {
  DeviceQueue& queue = stream.queue();
  const std::vector<int64_t> sizes = batch_sizes(max_batch);
  for (const int64_t batch : sizes) {
    Graph& graph = graphs_.emplace_back();
    graph.batch = batch;
    const StepInputs inputs = prepare(batch);
    for (size_t kind = 0; kind < kNumSamplingKinds; ++kind) {
      // Once for real: kernels are loaded and algorithms chosen at first use.
      run(inputs, static_cast<SamplingKind>(kind));
      queue.synchronize();
      queue.begin_recording();
      Tensor logits = run(inputs, static_cast<SamplingKind>(kind));
      Result<std::unique_ptr<DeviceGraph>> recorded = queue.end_recording();
      if (!recorded.ok()) {
        return internal_error(
            "a decode step of {} sequences could not be recorded: {}; --enable-graphs=false runs "
            "every step without recording",
            batch,
            recorded.status().message());
      }
      graph.of_kind[kind] = std::move(*recorded);
      if (static_cast<SamplingKind>(kind) == SamplingKind::kLater) graph.logits = std::move(logits);
    }
    progress();
  }
  return {};
}

const DecodeGraphs::Graph* DecodeGraphs::find(int64_t batch) const {
  const auto found = std::lower_bound(
      graphs_.begin(), graphs_.end(), batch, [](const Graph& graph, int64_t wanted) {
        return graph.batch < wanted;
      });
  return found == graphs_.end() ? nullptr : &*found;
}

}  // namespace atom
