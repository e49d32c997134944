#include "layers/vocab_part.h"

namespace atom {

VocabPart vocab_part(int64_t vocab_size, int64_t rank, int64_t world) {
  const int64_t first = vocab_size * rank / world;
  const int64_t end = vocab_size * (rank + 1) / world;
  return {vocab_size, first, end - first, (vocab_size + world - 1) / world};
}

VocabPart vocab_part(BuildContext& build) {
  const int64_t vocab_size = build.config.vocab_size;
  const int32_t world = build.parallel.tensor_parallel_size;
  if (vocab_size < world) {
    build.fail(
        unimplemented("--tensor-parallel-size {}: the vocabulary has {} tokens, less than "
                      "one for each rank",
                      world,
                      vocab_size));
    build.parallel = {};
  }
  return vocab_part(
      vocab_size, build.parallel.tensor_parallel_rank, build.parallel.tensor_parallel_size);
}

Parameter make_vocab_weight(const BuildContext& build, const VocabPart& part) {
  const int64_t hidden_size = build.config.hidden_size;
  const Shape shape = {part.count, hidden_size};
  return Parameter(
      build.dtype,
      shape,
      {{"", {part.vocab_size, hidden_size}, {{{{part.first, 0}, shape}, whole(shape)}}}});
}

}  // namespace atom
