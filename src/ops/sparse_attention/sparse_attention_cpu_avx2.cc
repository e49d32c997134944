#include "ops/simd/avx2.h"
#include "ops/sparse_attention/sparse_attention_simd.h"

namespace atom::ops {

void sparse_attention_avx2(const SparseAttentionArgs& args,
                           int64_t token,
                           const PagedRow& row,
                           int64_t kv_head) {
  sparse_attention_head<Avx2>(args, token, row, kv_head);
}

}  // namespace atom::ops
