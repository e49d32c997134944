// Holds memory of GPU 0 until its input ends: all but as many GiB as the argument says. Prints a
// line once it has it.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const double left = argc > 1 ? std::atof(argv[1]) : 0;
  size_t free_bytes = 0, total = 0;
  cudaError_t error = cudaMemGetInfo(&free_bytes, &total);
  size_t step = size_t{1} << 30;
  while (error == cudaSuccess && static_cast<double>(free_bytes) > left * (1u << 30) &&
         step >= size_t{1} << 21) {
    void* data = nullptr;
    if (cudaMalloc(&data, step) != cudaSuccess) {
      cudaGetLastError();  // the rest is in smaller pieces
      step /= 2;
    }
    error = cudaMemGetInfo(&free_bytes, &total);
  }
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return 1;
  }
  std::printf("%zu of %zu bytes are free\n", free_bytes, total);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
