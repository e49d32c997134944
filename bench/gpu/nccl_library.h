// NVIDIA's library of collectives, opened when a benchmark runs, to compare with.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "tensor/gpu_api.h"

namespace atom::bench {

// The part of its C interface that we call, by its stable names and numbers (nccl.h is not needed).
struct Nccl {
  using Comm = void*;
  enum Type { kFloat32 = 7, kBFloat16 = 9 };
  enum Op { kSum = 0 };

  std::string path;
  int version = 0;  // 22809: 2.28.9
  int (*GetVersion)(int* version) = nullptr;
  const char* (*GetErrorString)(int result) = nullptr;
  // One communicator for each of `count` cards of this process.
  int (*CommInitAll)(Comm* comms, int count, const int* cards) = nullptr;
  int (*CommDestroy)(Comm comm) = nullptr;
  int (*AllReduce)(
      const void* from, void* to, size_t count, int type, int op, Comm comm, gpuStream_t) = nullptr;
  int (*AllGather)(const void* from, void* to, size_t count, int type, Comm comm, gpuStream_t) =
      nullptr;
};

// An error names where it was looked for.
Result<Nccl> open_nccl();

}  // namespace atom::bench
