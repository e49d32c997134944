#include "ops/rotary_embedding/rotary_embedding_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {

void rotary_embedding_avx512(const RotaryEmbeddingArgs& args, int64_t begin, int64_t end) {
  rotary_embedding_tokens<Avx512>(args, begin, end);
}

}  // namespace atom::ops
