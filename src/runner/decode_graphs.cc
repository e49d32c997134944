#include "runner/decode_graphs.h"

#include <algorithm>

#include "tensor/recorded_launches.h"

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

std::vector<DecodeShape> DecodeGraphs::shapes(const ResolvedConfig& config) {
  const SchedulerConfig& scheduler = config.scheduler;
  const auto sizes_to = [&](int64_t max_batch) {
    if (!config.recorded_batches) return batch_sizes(max_batch);
    std::vector<int64_t> sizes = *config.recorded_batches;
    std::erase_if(sizes, [&](int64_t size) { return size > max_batch; });
    return sizes;
  };
  std::vector<DecodeShape> shapes;
  for (const int64_t batch : sizes_to(scheduler.max_num_seqs)) shapes.push_back({batch, 1});
  if (scheduler.num_speculative_tokens == 0) return shapes;
  const int64_t queries = 1 + scheduler.num_speculative_tokens;
  for (const int64_t batch : sizes_to(scheduler.largest_drafting_batch())) {
    if (batch * queries <= scheduler.max_num_batched_tokens) shapes.push_back({batch, queries});
  }
  return shapes;
}

Status DecodeGraphs::record(const Stream& stream,
                            const std::vector<DecodeShape>& shapes,
                            const Prepare& prepare,
                            const Run& run,
                            const Meet& meet,
                            const Progress& progress) {
  DeviceQueue& queue = stream.queue();
  for (const DecodeShape& shape : shapes) {
    Graph& graph = graphs_.emplace_back();
    graph.shape = shape;
    const StepInputs inputs = prepare(shape);
    for (size_t kind = 0; kind < kNumSamplingKinds; ++kind) {
      // Once for real: kernels are loaded and algorithms chosen at first use.
      meet();
      run(inputs, static_cast<SamplingKind>(kind));
      queue.synchronize();
      queue.begin_recording();
      Tensor logits = run(inputs, static_cast<SamplingKind>(kind));
      Result<std::unique_ptr<DeviceGraph>> recorded = queue.end_recording();
      if (!recorded.ok()) {
        return internal_error(
            "a decode step of {} sequences could not be recorded: {}; --enable-graphs=false runs "
            "every step without recording",
            shape.batch,
            recorded.status().message());
      }
      graph.of_kind[kind] = std::move(*recorded);
      if (static_cast<SamplingKind>(kind) == SamplingKind::kLater) graph.logits = std::move(logits);
    }
    progress();
  }
  return {};
}

const DecodeGraphs::Graph* DecodeGraphs::find(int64_t batch, int64_t queries) const {
  const Graph* best = nullptr;
  for (const Graph& graph : graphs_) {
    if (graph.shape.batch < batch || graph.shape.queries < queries) continue;
    if (best == nullptr || graph.shape.num_tokens() < best->shape.num_tokens()) best = &graph;
  }
  return best;
}

int64_t DecodeGraphs::num_launches(int64_t batch) const {
  const Graph* graph = find(batch, 1);
  if (graph == nullptr || graph->shape.batch != batch || graph->shape.queries != 1) return 0;
  return num_recorded_launches(*graph->of_kind[static_cast<size_t>(SamplingKind::kLargest)]);
}

}  // namespace atom
