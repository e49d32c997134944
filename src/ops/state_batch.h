// The sequences of a step as operators with recurrent state see them: which tokens, and which slot
// of the pool of states. A sequence without tokens before this step starts from a zero state,
// whatever its slot holds.
#pragma once

#include "ops/state_batch_args.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/tensor_check.h"

namespace atom::ops {

struct StateBatch {
  Tensor query_start;  // [num_sequences + 1] int32: tokens of sequence s are [s], ..., [s + 1] - 1
  Tensor seq_lens;     // [num_sequences] int32: the sequence's tokens, this step's included
  // [num_sequences] int32, no slot twice. -1: a row of padding, of which nothing is read or
  // written but its output, which is 0.
  Tensor state_slots;
  // Undefined: the state behind a sequence's last token goes to its state_slots. Else [num_tokens]
  // int32: the slot that gets the state behind the token, -1 for none. Of a sequence with a slot
  // that is the last token or all of them, each into a slot of its own; any of these may be the one
  // in which the sequence began, which otherwise stays as it is. Where all are kept they are
  // computed one after the other, so that each state is the one of a step that ends there.
  Tensor token_slots = {};
  int64_t max_queries = 0;  // the most tokens of a sequence; 0 when it is not known
};

// What kernels take, after a check of the tensors; on the CPU, when `stream` is no dry run, also of
// what they hold.
StateBatchArgs checked_state_batch(TensorCheck& check,
                                   const Stream& stream,
                                   const StateBatch& batch,
                                   int64_t num_tokens,
                                   int64_t num_slots);

}  // namespace atom::ops
