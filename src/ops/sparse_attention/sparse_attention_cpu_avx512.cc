#include "ops/simd/avx512.h"
#include "ops/sparse_attention/sparse_attention_simd.h"

namespace atom::ops {

void sparse_attention_avx512(const SparseAttentionArgs& args,
                             int64_t token,
                             const PagedRow& row,
                             int64_t kv_head) {
  sparse_attention_head<Avx512>(args, token, row, kv_head);
}

}  // namespace atom::ops
