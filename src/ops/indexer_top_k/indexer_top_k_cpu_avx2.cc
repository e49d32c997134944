#include "ops/indexer_top_k/indexer_top_k_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void indexer_scores_avx2(const IndexerTopKArgs& args,
                         int64_t token,
                         const PagedRow& row,
                         float* scores) {
  indexer_scores<Avx2>(args, token, row, scores);
}

}  // namespace atom::ops
