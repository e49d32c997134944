#include "ops/device/copy.cuh"
#include "ops/embedding/embedding_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

// A block per token.
__global__ void embedding_kernel(EmbeddingArgs args) {
  const int64_t token = blockIdx.x;
  const int64_t id = args.ids[token];
  if (id < 0 || id >= args.vocab_size) gpu_trap();
  copy_row(static_cast<char*>(args.out) + token * args.out_stride,
           static_cast<const char*>(args.table) + id * args.table_stride,
           args.row_size);
}

}  // namespace

void embedding_cuda(const EmbeddingArgs& args, void* queue) {
  embedding_kernel<<<static_cast<unsigned>(args.num_tokens),
                     kThreads,
                     0,
                     static_cast<gpuStream_t>(queue)>>>(args);
  check_gpu_launch("embedding");
}

}  // namespace atom::ops
