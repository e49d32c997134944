// A library to be preloaded into a program that computes on a GPU (LD_PRELOAD): a thread of it
// waits until the file that ATOM_TEST_FAULT_FILE names holds this process's id, then writes from a
// kernel to where no memory is. The runtime's context is the process's only one, so whatever the
// program asks of the GPU next fails as it would after a fault of its own kernel.
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace {

__global__ void write_nowhere() {
  *reinterpret_cast<volatile int*>(uintptr_t{64}) = 1;
}

void wait_and_fault(const char* path) {
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pid_t pid = 0;
    if (std::ifstream(path) >> pid && pid == getpid()) break;
  }
  std::remove(path);  // the process that is started instead lives
  cudaSetDevice(0);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  write_nowhere<<<1, 1, 0, stream>>>();
}

__attribute__((constructor)) void start() {
  const char* path = std::getenv("ATOM_TEST_FAULT_FILE");
  if (path != nullptr) std::thread(wait_and_fault, path).detach();
}

}  // namespace
