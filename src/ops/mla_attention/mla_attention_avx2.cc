#include "ops/mla_attention/mla_attention_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void mla_attention_avx2(const MlaAttentionArgs& args,
                        int64_t token,
                        const PagedRow& row,
                        int64_t first_head,
                        int64_t num_heads) {
  mla_attention_heads<Avx2>(args, token, row, first_head, num_heads);
}

}  // namespace atom::ops
