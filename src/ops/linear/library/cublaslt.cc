#include "ops/linear/library/cublaslt.h"

#include <dlfcn.h>
#include <glob.h>

#include <vector>

#include "base/env.h"
#include "ops/linear/library/gemm_library.h"

namespace atom::ops {
namespace {

// The loader's own search first, then where the build found the header (ATOM_CUBLASLT_FOLDER),
// toolkits and Python's wheels.
constexpr const char* kPlaces[] = {
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    ATOM_CUBLASLT_FOLDER "/libcublasLt.so.1[23]",
    "/usr/local/cuda/lib64/libcublasLt.so.1[23]",
    "/usr/local/cuda-*/lib64/libcublasLt.so.1[23]",
    "/usr/local/cuda-*/targets/x86_64-linux/lib/libcublasLt.so.1[23]",
    "/usr/lib/x86_64-linux-gnu/libcublasLt.so.1[23]",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib/libcublasLt.so.1[23]",
    "/usr/lib/python3*/*-packages/nvidia/*/lib/libcublasLt.so.1[23]",
    "/opt/*/lib/python3*/*-packages/nvidia/*/lib/libcublasLt.so.1[23]",
    "/opt/*/*/lib/python3*/*-packages/nvidia/*/lib/libcublasLt.so.1[23]",
};

std::vector<std::string> expand(const char* pattern) {
  std::vector<std::string> paths;
  glob_t found{};
  if (::glob(pattern, GLOB_NOCHECK, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return paths;
}

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void* library, CublasLt* lt) {
  return find(library, "cublasLtGetVersion", &lt->GetVersion) &&
         find(library, "cublasLtCreate", &lt->Create) &&
         find(library, "cublasLtMatmulDescCreate", &lt->MatmulDescCreate) &&
         find(library, "cublasLtMatmulDescDestroy", &lt->MatmulDescDestroy) &&
         find(library, "cublasLtMatmulDescSetAttribute", &lt->MatmulDescSetAttribute) &&
         find(library, "cublasLtMatrixLayoutCreate", &lt->MatrixLayoutCreate) &&
         find(library, "cublasLtMatrixLayoutDestroy", &lt->MatrixLayoutDestroy) &&
         find(library, "cublasLtMatmulPreferenceCreate", &lt->MatmulPreferenceCreate) &&
         find(library, "cublasLtMatmulPreferenceDestroy", &lt->MatmulPreferenceDestroy) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", &lt->MatmulPreferenceSetAttribute) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", &lt->MatmulAlgoGetHeuristic) &&
         find(library, "cublasLtMatmul", &lt->Matmul);
}

Result<CublasLt> open_library() {
  std::vector<std::string> places;
  if (!env().cublaslt.empty()) {
    places = {env().cublaslt};
  } else {
    for (const char* pattern : kPlaces) {
      for (std::string& path : expand(pattern)) places.push_back(std::move(path));
    }
  }
  std::string tried;
  for (const std::string& path : places) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      CublasLt lt;
      lt.path = path;
      if (find_all(library, &lt)) return lt;
      ::dlclose(library);
    }
    tried += tried.empty() ? path : ", " + path;
  }
  return not_found("cuBLASLt was not found (tried {}); ATOM_CUBLASLT names the file", tried);
}

}  // namespace

const Result<CublasLt>& cublaslt() {
  static const Result<CublasLt> library = open_library();
  return library;
}

Result<std::string> gemm_library_version() {
  const Result<CublasLt>& library = cublaslt();
  if (!library.ok()) return library.status();
  const size_t version = library->GetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Result<std::string> gemm_library() {
  ASSIGN_OR_RETURN(const std::string version, gemm_library_version());
  return fmt::format("{}, {}", version, cublaslt()->path);
}

}  // namespace atom::ops
