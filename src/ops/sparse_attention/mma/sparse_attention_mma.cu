#include "ops/sparse_attention/mma/block.cuh"
#include "tensor/gpu_launch.h"
#include "tensor/per_card.h"

namespace atom::ops {
namespace {

using attention_device::Float8E4m3;
using sparse_device::BlockArgs;
using sparse_device::SparseBlock;

template <typename T, typename KV, int kHeadDim, int kRows>
__global__ void __launch_bounds__(SparseBlock<T, KV, kHeadDim, kRows>::kThreads, 2)
    sparse_attention_mma_kernel(const __grid_constant__ BlockArgs args) {
  extern __shared__ __align__(512) char shared[];
  SparseBlock<T, KV, kHeadDim, kRows>(args, shared).run();
}

// Bytes of shared memory that a block may have; 0 without a card.
int max_shared_bytes() {
  static PerCard<int> bytes;
  return bytes.get([] {
    int device = 0, value = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
            cudaSuccess) {
      return 0;
    }
    return value;
  });
}

// Cards from Hopper on may run what was compiled for ones before it, which knows no clusters.
bool knows_clusters(void (*kernel)(BlockArgs)) {
  constexpr int kHopper = 90;
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
         attributes.ptxVersion >= kHopper;
}

// As many blocks as have a unit of keys for each warp, in powers of two.
int ranks_log2_of(int64_t top_k, int warps) {
  constexpr int kMaxLog2 = 3;
  int log2 = 0;
  while (log2 < kMaxLog2 && top_k > (int64_t{sparse_device::kUnitKeys} * warps << log2)) ++log2;
  return log2;
}

template <typename T, typename KV, int kHeadDim, int kRows>
void launch_kernel(const SparseAttentionArgs& params, cudaStream_t stream) {
  using Block = SparseBlock<T, KV, kHeadDim, kRows>;
  const auto kernel = sparse_attention_mma_kernel<T, KV, kHeadDim, kRows>;
  static PerCard<bool> clusters;
  const bool has_clusters = clusters.get([&] {
    (void)cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Block::kSharedBytes);
    return knows_clusters(kernel);
  });
  BlockArgs args = {};
  args.params = params;
  args.ranks_log2 = has_clusters ? ranks_log2_of(params.top_k, Block::kWarps) : 0;
  args.items_per_kv_head =
      static_cast<int>((params.num_heads / params.num_kv_heads + kRows - 1) / kRows);
  const int64_t items = params.batch.num_tokens * params.num_kv_heads * args.items_per_kv_head;
  (void)device::launch_clusters(kernel,
                                static_cast<int>(items << args.ranks_log2),
                                1 << args.ranks_log2,
                                Block::kThreads,
                                Block::kSharedBytes,
                                stream,
                                true,
                                args);
}

template <typename T, typename KV>
void launch_for_head_dim(const SparseAttentionArgs& args, cudaStream_t stream) {
  const bool few = args.num_heads / args.num_kv_heads <= 8;
  switch (args.head_dim) {
    case 64:
      if constexpr (sizeof(KV) == 2) {
        few ? launch_kernel<T, KV, 64, 8>(args, stream)
            : launch_kernel<T, KV, 64, 16>(args, stream);
      }
      return;
    case 128:
      few ? launch_kernel<T, KV, 128, 8>(args, stream)
          : launch_kernel<T, KV, 128, 16>(args, stream);
      return;
    default:  // registers for 8 heads of 256
      launch_kernel<T, KV, 256, 8>(args, stream);
  }
}

template <typename T>
void launch_for_cache(const SparseAttentionArgs& args, cudaStream_t stream) {
  args.float8_cache ? launch_for_head_dim<T, Float8E4m3>(args, stream)
                    : launch_for_head_dim<T, T>(args, stream);
}

bool is_aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

bool fits_sparse_attention_mma(const SparseAttentionArgs& args) {
  constexpr int kSharedBytes = 113 << 10;  // at most, of every case
  constexpr int64_t kMaxBlocks = INT32_MAX >> 3;
  const bool head_dim =
      args.head_dim == 128 || args.head_dim == 256 || (args.head_dim == 64 && !args.float8_cache);
  const bool element = args.element == Element::kFloat16 || args.element == Element::kBFloat16;
  const bool vectors = is_aligned(args.q, 16) && args.q_strides[0] % 8 == 0 &&
                       args.q_strides[1] % 8 == 0 && is_aligned(args.out, 8) &&
                       is_aligned(args.k_cache, 16) && is_aligned(args.v_cache, 16) &&
                       args.out_strides[0] % 4 == 0 && args.out_strides[1] % 4 == 0;
  const bool counts = args.batch.num_blocks <= INT32_MAX / args.batch.block_size &&
                      args.top_k <= INT32_MAX / 2 &&
                      args.batch.num_tokens <= kMaxBlocks / args.num_heads;
  return head_dim && element && vectors && counts && max_shared_bytes() >= kSharedBytes;
}

void sparse_attention_mma(const SparseAttentionArgs& args, void* queue) {
  const auto stream = static_cast<cudaStream_t>(queue);
  args.element == Element::kBFloat16 ? launch_for_cache<gpu_bfloat16>(args, stream)
                                     : launch_for_cache<__half>(args, stream);
  check_gpu_launch("sparse_attention_mma");
}

}  // namespace atom::ops
