#include <nvtx3/nvToolsExt.h>

#include "tensor/profiler_range.h"

namespace atom {

ProfilerRange::ProfilerRange(const char* name) {
  nvtxRangePushA(name);
}

ProfilerRange::~ProfilerRange() {
  nvtxRangePop();
}

}  // namespace atom
