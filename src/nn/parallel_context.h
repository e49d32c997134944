// This rank's place in the parallel groups, and how it speaks to the others. A layer keeps a copy;
// the communicator outlives it. In a group of one rank nothing is computed or sent.
#pragma once

#include <cstdint>

#include "comm/communicator.h"

namespace atom {

struct ParallelContext {
  int32_t tensor_parallel_rank = 0;
  int32_t tensor_parallel_size = 1;
  // Experts are spread over the tensor-parallel ranks, each whole on one of them.
  bool expert_parallel = false;
  // Of the tensor-parallel ranks; null for one rank, and in plans, which compute nothing.
  Communicator* tensor_parallel = nullptr;

  bool is_first() const { return tensor_parallel_rank == 0; }

  // As Communicator's, among the tensor-parallel ranks.
  void all_reduce(const Stream& stream, const Tensor& x, ReduceOp op = ReduceOp::kSum) const;
  void all_gather(const Stream& stream, const Tensor& part, const Tensor& whole) const;
};

}  // namespace atom
