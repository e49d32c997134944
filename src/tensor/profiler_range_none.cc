// Builds without CUDA.
#include "tensor/profiler_range.h"

namespace atom {

ProfilerRange::ProfilerRange(const char*) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace atom
