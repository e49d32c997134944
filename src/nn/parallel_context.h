// This rank's place in the parallel groups, and how it speaks to the others. A layer keeps a copy;
// the communicator outlives it. In a group of one rank nothing is computed or sent.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "config/engine_config.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

struct ParallelContext {
  int32_t card = 0;  // index of the device that it computes on, where that is not the CPU
  int32_t tensor_parallel_rank = 0;
  int32_t tensor_parallel_size = 1;
  // Experts are spread over the ranks that share them, each whole on one of them.
  bool expert_parallel = false;
  int32_t pipeline_parallel_rank = 0;  // stage
  int32_t pipeline_parallel_size = 1;
  // Ranks with the same weights that share the tokens of prompts.
  int32_t context_parallel_rank = 0;
  int32_t context_parallel_size = 1;
  // Of the ranks that share layers, of those that have the same part of each stage, and of those
  // that have the same weights; null for one rank, and in plans, which compute nothing.
  Communicator* tensor_parallel = nullptr;
  Communicator* pipeline_parallel = nullptr;
  Communicator* context_parallel = nullptr;
  // Of copies of the model that share their experts, and so step together; see `experts`.
  int32_t data_parallel_rank = 0;
  int32_t data_parallel_size = 1;
  ExpertDispatch dispatch = ExpertDispatch::kAuto;
  // Of experts that are spread: they may change places. Each rank then has as many slots for them,
  // all ranks together so many more than there are experts.
  bool moves_experts = false;
  int32_t num_redundant_experts = 0;
  // Of all ranks of a stage, by expert_rank(), where copies share experts; else null.
  Communicator* experts = nullptr;
  // [1 + expert_size] int32 of the host, where they tell each other the numbers of their tokens: of
  // all copies of this object alike, as others may still read it when this rank has given up.
  Tensor token_counts;

  // Steps of a device may be recorded with what they exchange.
  bool can_be_recorded() const;
  // Ranks of other nodes compute with the same values and have to get the same bits of them.
  bool shares_layers_over_nodes() const {
    return tensor_parallel != nullptr && tensor_parallel->goes_through_host();
  }

  bool is_first() const { return tensor_parallel_rank == 0; }  // of those that share layers
  // Of the last stage, which computes logits and chooses tokens.
  bool samples() const { return pipeline_parallel_rank + 1 == pipeline_parallel_size; }

  // Of the ranks that share experts: those of a copy, or of several.
  int32_t expert_rank() const {
    return data_parallel_rank * tensor_parallel_size + tensor_parallel_rank;
  }
  int32_t expert_size() const { return data_parallel_size * tensor_parallel_size; }
  bool copies_share_experts() const { return data_parallel_size > 1; }
  // The ranks that share experts, by expert_rank(); null for one, and in plans.
  Communicator* expert_group() const { return copies_share_experts() ? experts : tensor_parallel; }
  // By expert_rank(): how many tokens each rank's copy has in a forward pass, of which this one has
  // `num_tokens`. Where copies share experts every pass begins so, on all of them; else empty.
  std::vector<int32_t> exchange_token_counts(const Stream& stream, int64_t num_tokens) const;

  // As Communicator's, among the tensor-parallel ranks.
  void all_reduce(const Stream& stream, const Tensor& x, ReduceOp op = ReduceOp::kSum) const;
  void all_gather(const Stream& stream, const Tensor& part, const Tensor& whole) const;

  // Between the stages of the pipeline.
  void send_to_next(const Stream& stream, const Tensor& x) const;
  void receive_from_previous(const Stream& stream, const Tensor& x) const;

  // Among all ranks.
  void reduce_over_all(const Stream& stream, const Tensor& x, ReduceOp op) const;
  // Returns when all of them have come; on the host, whatever they compute on.
  void meet(ThreadPool* pool) const;
  // Before a device repeats what was recorded of a forward pass; see Communicator::meet_all().
  void meet_to_replay() const;
  Status status() const;
};

}  // namespace atom
