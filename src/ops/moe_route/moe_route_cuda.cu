// A warp per token.
#include "ops/device/programmatic_launch.cuh"
#include "ops/moe_route/token_router.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::kWarpSize;

constexpr int kWarps = 4;  // of a block, tokens
// Up to which a launch is short enough for its first instructions to be a good part of it.
constexpr int64_t kFewTokens = 1024;

template <int kPerLane>
struct RouterShared {
  device::RouterChoices choices[kWarps];
  // What the rehearsal has in place of the call's.
  float logits[kPerLane * kWarpSize];
  int32_t ids[kWarps][kMaxRoutedTopK];
  float weights[kWarps][kMaxRoutedTopK];
};

// A call of one token for each warp, whose experts have different logits as real ones do.
template <int kPerLane>
__device__ MoeRouteArgs rehearsed(MoeRouteArgs args, RouterShared<kPerLane>& shared) {
  for (int i = threadIdx.x; i < kPerLane * kWarpSize; i += kWarps * kWarpSize) {
    shared.logits[i] = static_cast<float>(i);
  }
  __syncthreads();
  args.logits = shared.logits;
  args.row_stride = 0;
  args.ids = shared.ids[threadIdx.x / kWarpSize];
  args.weights = shared.weights[threadIdx.x / kWarpSize];
  args.routing.num_shared = 0;
  return args;
}

// What a token takes is less than fetching its instructions from memory, from where other kernels
// have driven them: while the kernel before ends the same ones route a token that nobody asked for.
template <int kPerLane>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    moe_route_kernel(const __grid_constant__ MoeRouteArgs args) {
  __shared__ RouterShared<kPerLane> shared;
  device::allow_next_grid();
  const int warp = threadIdx.x / kWarpSize;
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp;
  const bool rehearses = args.num_tokens <= kFewTokens;
#pragma unroll 1
  for (int pass = rehearses ? 0 : 1; pass < 2; ++pass) {
    const MoeRouteArgs call = pass == 0 ? rehearsed(args, shared) : args;
    if (pass == 1) {
      device::wait_for_previous_grid();
      if (token >= args.num_tokens) return;
      __syncwarp();
    }
    device::TokenRouter<kPerLane>(call, pass * token).route(shared.choices[warp]);
  }
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
  } else if (args.num_experts <= 8 * kWarpSize) {
    launch<8>(args, stream);
  } else if (args.num_experts <= 16 * kWarpSize) {
    launch<16>(args, stream);
  } else {
    launch<32>(args, stream);
  }
  check_gpu_launch("moe_route");
}

}  // namespace atom::ops
