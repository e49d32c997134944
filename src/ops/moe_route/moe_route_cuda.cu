// A warp per token.
#include "ops/device/programmatic_launch.cuh"
#include "ops/moe_route/token_router.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::kWarpSize;

constexpr int kWarps = 4;  // of a block, tokens

template <int kPerLane>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    moe_route_kernel(const __grid_constant__ MoeRouteArgs args) {
  __shared__ float chosen[kWarps][kMaxRoutedTopK];
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const int warp = threadIdx.x / kWarpSize;
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp;
  if (token < args.num_tokens) device::TokenRouter<kPerLane>(args, token).route(chosen[warp]);
}

template <int kPerLane>
void launch(const MoeRouteArgs& args, gpuStream_t stream) {
  const auto blocks = static_cast<unsigned>((args.num_tokens + kWarps - 1) / kWarps);
  device::launch(
      moe_route_kernel<kPerLane>, dim3(blocks), dim3(kWarps * kWarpSize), 0, stream, true, args);
}

}  // namespace

void moe_route_cuda(const MoeRouteArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.num_experts <= 4 * kWarpSize) {
    launch<4>(args, stream);
  } else if (args.num_experts <= 16 * kWarpSize) {
    launch<16>(args, stream);
  } else {
    launch<32>(args, stream);
  }
  check_gpu_launch("moe_route");
}

}  // namespace atom::ops
