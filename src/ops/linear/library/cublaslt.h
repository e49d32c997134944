// NVIDIA's matrix multiplication library, opened when the program runs: it is half a gigabyte that
// many machines have in one of several places and others lack.
#pragma once

#include <cublasLt.h>

#include <string>

#include "base/status.h"

namespace atom::ops {

// Its functions under their own names without the prefix.
struct CublasLt {
  std::string path;
  size_t (*GetVersion)() = nullptr;
  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate = nullptr;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;
};

// Opened at the first call; an error names where it was looked for. Lives as long as the program.
const Result<CublasLt>& cublaslt();

}  // namespace atom::ops
