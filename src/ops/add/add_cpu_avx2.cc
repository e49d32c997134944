#include "ops/add/add_simd.h"
#include "ops/simd/avx2.h"

namespace atom::ops {

void add_avx2(const AddArgs& args, int64_t begin, int64_t end) {
  add_elements<Avx2>(args, begin, end);
}

}  // namespace atom::ops
