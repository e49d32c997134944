#include "cli/simulate/step_model.h"

#include <algorithm>
#include <cmath>

namespace atom::cli::simulate {
namespace {

// What reads so many bytes and computes so much takes the longer of the two.
double roof(double bytes, double bandwidth, double flops, double flop_rate) {
  return std::max(bytes / bandwidth, flops / flop_rate);
}

// The weights are read while their first rows are multiplied: of many rows the two add up rather
// than hide each other.
double linears(const Inputs& in, const RankModel& model, double rows) {
  const bool has_16_bits = model.dense_bytes > 1.5 * model.dense_weights;
  return model.dense_bytes / (in.memory_bandwidth * in.linear_efficiency) +
         2 * model.dense_weights * rows / (has_16_bits ? in.flops16 : in.flops);
}

double all_reduce(const Inputs& in, double ranks, double bytes) {
  constexpr double kMostInPackets = 1 << 20;  // that a rank sends (comm/device/packets.cu)
  const double sent = (ranks - 1) * bytes;
  if (sent > kMostInPackets) {
    return (ranks - 1) * in.shared_sum_seconds + 2 * sent / ranks / in.node_bandwidth;
  }
  return in.all_reduce_seconds + (ranks - 2) * in.all_reduce_rank_seconds +
         2 * sent / in.packet_bandwidth;
}

// One layer's all-reduces, of the attention's and of the feed-forward's output.
double tensor_collectives(const Inputs& in, const RankModel& model, double ranks, double rows) {
  return 2 * all_reduce(in, ranks, rows * model.hidden_size * in.combine_bytes);
}

// One layer's dispatch and combine. A token goes once to each rank that has an expert of it;
// experts are drawn evenly.
double expert_collectives(const Inputs& in, const RankModel& model, double ranks, double rows) {
  const double reached = 1 - std::pow(1 - 1 / ranks, model.experts_per_token);
  const double of_node = std::min(ranks, in.gpus_per_node) - 1;
  const double elements = rows * reached * model.hidden_size;
  const bool leaves_node = ranks > in.gpus_per_node;
  const double latency = leaves_node ? in.network_exchange_seconds : in.node_exchange_seconds;
  double seconds = 0;
  for (const double size : {in.dispatch_bytes, in.combine_bytes}) {
    const double inside = of_node * elements * size / in.node_bandwidth;
    const double outside = (ranks - 1 - of_node) * elements * size / in.network_bandwidth;
    seconds += latency + std::max(inside, outside);
  }
  return seconds;
}

}  // namespace

StepTime simulate_step(const Inputs& in,
                       const RankModel& model,
                       const Layout& layout,
                       double sequences,
                       double context) {
  const auto tensor = static_cast<double>(layout.tensor_size);
  const auto spread = static_cast<double>(layout.expert_size);
  // Sequences that a rank computes: all of its group.
  const double rows = sequences * tensor / static_cast<double>(layout.num_gpus);
  StepTime time;
  time.linears = linears(in, model, rows);
  time.attention = roof(rows * context * model.kv_bytes,
                        in.memory_bandwidth * in.attention_efficiency,
                        rows * context * model.attention_flops,
                        in.flops * in.attention_flop_efficiency);
  time.launches = model.num_layers * in.layer_seconds + model.num_expert_layers * in.expert_seconds;
  time.memory_bytes = model.dense_bytes + model.other_bytes + rows * context * model.kv_bytes;
  if (model.num_experts > 0) {
    // Each rank has experts of a layer, at least one, and pairs of a row and an expert.
    const double owned = std::max(1.0, model.num_experts / spread);
    const double pairs = rows * model.experts_per_token;
    const double share = owned / model.num_experts / tensor;
    const double read = 1 - std::exp(-pairs / owned);
    const double of_token = model.routed_weights / model.num_experts / tensor;
    time.experts = roof(model.routed_bytes * share * read,
                        in.memory_bandwidth * in.expert_efficiency,
                        2 * of_token * pairs,
                        in.flops * in.expert_flop_efficiency);
    time.memory_bytes += model.routed_bytes * share;
  }
  if (tensor > 1)
    time.collectives += model.num_layers * tensor_collectives(in, model, tensor, rows);
  if (spread > 1) {
    time.collectives += model.num_expert_layers * expert_collectives(in, model, spread, rows);
  }
  return time;
}

}  // namespace atom::cli::simulate
