#include "ops/rotary_embedding/rotary_embedding_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void rotary_embedding_avx2(const RotaryEmbeddingArgs& args, int64_t begin, int64_t end) {
  rotary_embedding_tokens<Avx2>(args, begin, end);
}

}  // namespace atom::ops
