// The matrix multiplication library that linear() uses on a GPU, for reports.
#pragma once

#include <string>

#include "base/status.h"

namespace atom::ops {

// "cuBLASLt 13.1.0, /usr/lib/libcublasLt.so.13", or why there is none.
Result<std::string> gemm_library();

// "cuBLASLt 13.1.0", or why there is none.
Result<std::string> gemm_library_version();

}  // namespace atom::ops
