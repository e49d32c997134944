// Codes of experts from rows to images on Hopper.
#include "ops/fused_moe/expert_image_format.h"
#include "ops/fused_moe/expert_images_gpu.h"
#include "tensor/gpu_api.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 512;

// A tile by a block: it reads all of it before it writes any.
__global__ void __launch_bounds__(kThreads) turn_tiles(uint4* codes, int num_columns) {
  extern __shared__ uint4 tile[];
  const int num_blocks = num_columns / 32, num_vectors = kImageRows * num_blocks;
  uint4* const own = codes + static_cast<int64_t>(blockIdx.x) * num_vectors;
  for (int i = threadIdx.x; i < num_vectors; i += kThreads) {
    const int row = i / num_blocks, block = i % num_blocks;
    const int at = block / kImageBlocks * kImageSize + image_offset(row, block);
    const uint4 codes = own[i];
    tile[at / kImageVectorSize] = {
        image_codes(codes.x), image_codes(codes.y), image_codes(codes.z), image_codes(codes.w)};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < num_vectors; i += kThreads) own[i] = tile[i];
}

}  // namespace

void turn_tiles_into_images(void* codes, int64_t num_tiles, int num_columns, void* queue) {
  const int size = kImageRows * num_columns / 2;
  // Where it is refused so is the launch.
  (void)cudaFuncSetAttribute(turn_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, size);
  turn_tiles<<<static_cast<unsigned>(num_tiles), kThreads, size, static_cast<gpuStream_t>(queue)>>>(
      static_cast<uint4*>(codes), num_columns);
  check_gpu_launch("turn_into_images");
}

}  // namespace atom::ops
