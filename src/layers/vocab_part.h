// The part of the vocabulary that a rank has: consecutive ids, as many on each rank as on any other
// or one more. Embedding and head are cut alike, so that they can share a weight.
#pragma once

#include "nn/build_context.h"
#include "nn/parameter.h"

namespace atom {

struct VocabPart {
  int64_t vocab_size = 0;
  int64_t first = 0;    // id
  int64_t count = 0;    // of this rank
  int64_t largest = 0;  // count of the rank that has most

  bool is_whole() const { return count == vocab_size; }
};

// The part of rank `rank` of `world`.
VocabPart vocab_part(int64_t vocab_size, int64_t rank, int64_t world);

// That of the rank for which `build` builds; construction fails when there are more ranks than ids.
VocabPart vocab_part(BuildContext& build);

// A parameter [count, hidden_size] of the model's dtype, of a tensor [vocab_size, hidden_size].
Parameter make_vocab_weight(const BuildContext& build, const VocabPart& part);

}  // namespace atom
