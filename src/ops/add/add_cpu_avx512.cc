#include "ops/add/add_simd.h"
#include "ops/simd/avx512.h"

namespace atom::ops {

void add_avx512(const AddArgs& args, int64_t begin, int64_t end) {
  add_elements<Avx512>(args, begin, end);
}

}  // namespace atom::ops
