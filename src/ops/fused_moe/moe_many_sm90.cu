// What comes before the matrices, for many tokens: rows of x in the order of experts.
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_many.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kElementSize = 2;
constexpr int kRowThreads = 128;
constexpr int kVectorElements = kVectorSize / kElementSize;

__global__ void gather_rows(const __grid_constant__ FusedMoeGpuCall call, MoeManyScratch scratch) {
  const int row = blockIdx.x;
  allow_next_grid();
  wait_for_previous_grid();
  if (row >= gpu_load_from_l2(scratch.shared.row_begins + call.num_experts)) return;
  const auto* source = static_cast<const BFloat16*>(call.x) +
                       gpu_load_from_l2(scratch.shared.choices + row) / call.top_k * call.x_stride;
  auto* target = static_cast<BFloat16*>(scratch.x) + int64_t{row} * call.hidden_size;
  for (int i = threadIdx.x * kVectorElements; i < call.hidden_size;
       i += kRowThreads * kVectorElements) {
    store_bits(target + i, load_bits_from_l2(source + i));
  }
}

}  // namespace

gpuError_t gather_moe_rows(const FusedMoeGpuCall& call,
                           const MoeManyScratch& scratch,
                           gpuStream_t stream) {
  return launch(gather_rows,
                dim3(call.num_tokens * call.top_k),
                dim3(kRowThreads),
                0,
                stream,
                true,
                call,
                scratch);
}

}  // namespace atom::ops
