// A log of every kernel that a process runs on NVIDIA GPUs, a line each, for
// tools/show_launches.py. The driver loads it into any program that is started with
//
//   CUDA_INJECTION64_PATH=.../liblaunch_log.so ATOM_LAUNCH_LOG=FILE
//
// A line: begin and end (ns of the device's clock), recorded graph or 0, blocks, threads,
// registers, name as the linker has it.
#include <cupti.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

std::FILE* file = nullptr;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  constexpr size_t kSize = size_t{8} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(alignof(std::max_align_t), kSize));
  *size = kSize;
  *max_records = 0;
}

void write(const CUpti_ActivityKernel9& kernel) {
  std::fprintf(file,
               "%llu %llu %u %d %d %u %s\n",
               static_cast<unsigned long long>(kernel.start),
               static_cast<unsigned long long>(kernel.end),
               kernel.graphId,
               kernel.gridX * kernel.gridY * kernel.gridZ,
               kernel.blockX * kernel.blockY * kernel.blockZ,
               kernel.registersPerThread,
               kernel.name);
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t num_bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, num_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      write(*reinterpret_cast<const CUpti_ActivityKernel9*>(record));
    }
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::fclose(file);
}

}  // namespace

// Called by the driver before anything else; 1: all went well.
extern "C" int InitializeInjection() {
  const char* const path = std::getenv("ATOM_LAUNCH_LOG");
  file = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (file == nullptr) {
    std::fprintf(stderr, "launch_log: ATOM_LAUNCH_LOG has to name a file that can be written\n");
    return 0;
  }
  if (cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    std::fprintf(stderr, "launch_log: CUPTI does not record kernels here\n");
    return 0;
  }
  std::atexit(finish);
  return 1;
}
