// The expected time of a decode step on many GPUs, from figures that are stated: what a rank has to
// read, compute and send, over what kernels and links were measured to reach. No parts of a step
// overlap. See docs/parallel.md, "Simulation".
#pragma once

#include <cstdint>
#include <string>

namespace atom::cli::simulate {

// What is assumed of a GPU, its kernels and its links. Bytes, seconds, FLOPs; bandwidths of one GPU
// and one direction.
struct Inputs {
  double memory_bytes = 141e9;        // of a GPU
  double memory_bandwidth = 4.58e12;  // as a kernel that only reads reaches it
  double flops = 1399e12;             // as multiplications of the library reach them, in FP8
  double flops16 = 795e12;            // and of weights of 16 bits
  // Shares of memory_bandwidth that decode steps reach.
  double linear_efficiency = 0.95;
  double expert_efficiency = 0.84;
  double attention_efficiency = 0.91;
  // Shares of flops.
  double attention_flop_efficiency = 0.35;
  double expert_flop_efficiency = 0.5;
  double layer_seconds = 12.5e-6;  // of a layer, whatever the batch
  double expert_seconds = 17e-6;   // of a layer's experts beyond that
  double gpus_per_node = 8;
  double node_bandwidth = 240e9;  // between GPUs of a node
  double network_bandwidth = 40e9;
  // Of all-reduces in a node: small ones, which every rank sends whole to all others, and larger
  // ones, of which every rank adds up a share.
  double all_reduce_seconds = 2.7e-6;       // of a small one of two ranks
  double all_reduce_rank_seconds = 0.6e-6;  // and of each further rank
  double packet_bandwidth = 300e9;          // on the link, where small ones take twice their bytes
  double shared_sum_seconds = 3.9e-6;       // of a larger one, for each other rank
  double node_exchange_seconds = 20e-6;     // of a small dispatch or combine in a node
  double network_exchange_seconds = 40e-6;  // of one over nodes
  double dispatch_bytes = 1.03125;          // of an activation: FP8 with a scale for 128
  double combine_bytes = 2;
};

// What a model asks of one rank. `dense`: all but embedding and routed experts.
struct RankModel {
  double num_layers = 0;
  double num_expert_layers = 0;
  double hidden_size = 0;
  double num_experts = 0;  // of a layer; 0: none
  double experts_per_token = 0;
  double dense_bytes = 0;      // that the rank reads in each step
  double dense_weights = 0;    // elements of them
  double routed_bytes = 0;     // of the whole model
  double routed_weights = 0;   // elements of them
  double other_bytes = 0;      // in memory and not read: the embedding
  double kv_bytes = 0;         // of a token of context, all layers of the rank
  double attention_flops = 0;  // of a query and a token of context, all layers of the rank
};

struct Layout {
  std::string name;
  int64_t num_gpus = 1;
  int64_t tensor_size = 1;  // ranks that share each layer; then no experts are spread
  int64_t expert_size = 1;  // ranks that have experts whole; each computes its own sequences
};

// Seconds of one step.
struct StepTime {
  double linears = 0;
  double experts = 0;
  double attention = 0;
  double launches = 0;
  double collectives = 0;
  double memory_bytes = 0;  // of a GPU: weights and the cache of the batch

  double total() const { return linears + experts + attention + launches + collectives; }
};

// `sequences`: of the whole layout, each with `context` tokens.
StepTime simulate_step(const Inputs& inputs,
                       const RankModel& model,
                       const Layout& layout,
                       double sequences,
                       double context);

}  // namespace atom::cli::simulate
