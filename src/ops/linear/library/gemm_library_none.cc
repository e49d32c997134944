// Builds without support for a GPU.
#include "ops/linear/library/gemm_library.h"

namespace atom::ops {

Result<std::string> gemm_library() {
  return unimplemented("this build multiplies on the CPU alone");
}

Result<std::string> gemm_library_version() {
  return gemm_library();
}

}  // namespace atom::ops
