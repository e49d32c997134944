// A range of the calling thread's work by name, for a profiler that watches this process from
// outside (NVTX: Nsight Systems and Nsight Compute). Without one it does next to nothing, and
// nothing at all in builds without CUDA.
#pragma once

namespace atom {

class ProfilerRange {
 public:
  // Ranges of a thread nest.
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace atom
