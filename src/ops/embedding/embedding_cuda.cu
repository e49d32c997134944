#include "ops/device/copy.cuh"
#include "ops/embedding/embedding_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;

// A block per token.
__global__ void embedding_kernel(EmbeddingArgs args) {
  const int64_t token = blockIdx.x;
  const int64_t row = args.ids[token] - args.first_id;
  char* out = static_cast<char*>(args.out) + token * args.out_stride;
  if (row < 0 || row >= args.vocab_size) {
    if (!args.is_part) gpu_trap();
    for (int64_t i = threadIdx.x; i < args.row_size; i += blockDim.x) out[i] = 0;
    return;
  }
  copy_row(out, static_cast<const char*>(args.table) + row * args.table_stride, args.row_size);
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
