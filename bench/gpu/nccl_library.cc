#include "nccl_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <vector>

namespace atom::bench {
namespace {

constexpr const char* kPlaces[] = {
    "libnccl.so.2",
    "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
    "/usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
    "/usr/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
    "/opt/*/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
    "/opt/*/*/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
};

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void* library, Nccl* nccl) {
  return find(library, "ncclGetVersion", &nccl->GetVersion) &&
         find(library, "ncclGetErrorString", &nccl->GetErrorString) &&
         find(library, "ncclCommInitAll", &nccl->CommInitAll) &&
         find(library, "ncclCommDestroy", &nccl->CommDestroy) &&
         find(library, "ncclAllReduce", &nccl->AllReduce) &&
         find(library, "ncclAllGather", &nccl->AllGather);
}

}  // namespace

Result<Nccl> open_nccl() {
  std::string tried;
  for (const char* pattern : kPlaces) {
    glob_t found{};
    if (::glob(pattern, GLOB_NOCHECK, nullptr, &found) != 0) continue;
    const std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    for (const std::string& path : paths) {
      Nccl nccl;
      nccl.path = path;
      void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr && find_all(library, &nccl) && nccl.GetVersion(&nccl.version) == 0) {
        return nccl;
      }
      if (library != nullptr) ::dlclose(library);
      tried += tried.empty() ? path : ", " + path;
    }
  }
  return not_found("NCCL was not found (tried {})", tried);
}

}  // namespace atom::bench
