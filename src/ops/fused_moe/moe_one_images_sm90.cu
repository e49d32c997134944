// One or few tokens by experts in MXFP4 as images on Hopper: the kernel, which calls it takes, and
// its launch.
#include <algorithm>

#include "ops/fused_moe/moe_one_images_consumer.cuh"
#include "ops/fused_moe/moe_one_images_copy.cuh"

namespace atom::ops {
namespace device::moe_one_images {

constexpr int kHaveChoices = 2;  // a barrier of the block

__device__ inline void store_nothing(const FusedMoeGpuCall& call, int token) {
  const int first = static_cast<int>(blockIdx.x * moe_one::kThreads + threadIdx.x);
  for (int row = first; row < call.hidden_size; row += gridDim.x * moe_one::kThreads) {
    moe_one::store_result(call, token, row, 0.0f);
  }
}

// By the last warp.
__device__ inline void copy(const MoeOneImagesArgs& args,
                            int token,
                            uint8_t* memory,
                            Shared& shared) {
  Plan plan(args.call, args.call.top_k);
  wait_for_previous_grid();
  const int num_choices = moe_one::find_choices(args.call, token, shared.choices);
  if (threadIdx.x == kNumConsumers) shared.num_choices = num_choices;
  __syncwarp();
  // Copies do not wait for those that split x.
  asm volatile("bar.arrive %0, %1;" ::"n"(kHaveChoices), "n"(moe_one::kThreads) : "memory");
  if (num_choices == 0) return store_nothing(args.call, token);
  if (!is_elected()) return;
  if (num_choices != args.call.top_k) plan = Plan(args.call, num_choices);
  Copier(args, memory, shared).run(plan);
}

template <Tokens kTokens>
__global__ void __launch_bounds__(moe_one::kThreads, 1)
    moe_one_images_kernel(const __grid_constant__ MoeOneImagesArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Layout layout(args);
  Shared& shared = *reinterpret_cast<Shared*>(memory + layout.shared);
  allow_next_grid();
  if (threadIdx.x == kNumConsumers) {
#pragma unroll 1
    for (int stage = 0; stage < args.num_stages; ++stage) {
      init_barrier(shared_address(&shared.full[stage]), 1);
      init_barrier(shared_address(&shared.empty[stage]), kGroupWarps);
    }
#pragma unroll 1
    for (int slot = 0; slot < args.num_tile_slots; ++slot) {
      init_barrier(shared_address(&shared.tile_full[slot]), 1);
      init_barrier(shared_address(&shared.tile_empty[slot]), kWarps);
    }
    publish_barriers();
  }
  if (threadIdx.x < kNumConsumers) {
    auto* const sums = reinterpret_cast<float*>(memory + layout.sums);
#pragma unroll 1
    for (int i = threadIdx.x; i < args.most_slots * kSlotSize / 4; i += kNumConsumers) sums[i] = 0;
  }
  const int token = own_token<kTokens>();
  if (threadIdx.x >= kNumConsumers) return copy(args, token, memory, shared);
  clear_terms(layout, memory);
  const Consumer<kTokens> consumer(args, memory, shared);
  auto prepared = consumer.prepare(args.call.top_k);
  wait_for_previous_grid();
  const float x_scale = split_x(args.call, token, shared, memory + layout.terms);
  fence_before_copies();
  asm volatile("bar.sync %0, %1;" ::"n"(kHaveChoices), "n"(moe_one::kThreads) : "memory");
  if (shared.num_choices == 0) return store_nothing(args.call, token);
  if (shared.num_choices != args.call.top_k) {
    prepared = consumer.prepare(shared.num_choices);
  }
  consumer.run(prepared, x_scale);
}

}  // namespace device::moe_one_images

namespace {

using namespace device;
using namespace device::moe_one_images;

constexpr int kSharedSize = 227 << 10, kLeastStages = 2 * kGroups;

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0;
}

bool fits_matrices(const ExpertMatrices& matrices) {
  return is_aligned(matrices.data) && matrices.expert_stride % kVectorSize == 0 &&
         is_aligned(matrices.bias) && is_aligned(matrices.exponents) &&
         matrices.exponent_stride % kVectorSize == 0;
}

// Of the current card.
int num_multiprocessors() {
  constexpr int kOfAnH200 = 132;
  int gpu = 0, count = 0;
  const bool is_known =
      cudaGetDevice(&gpu) == cudaSuccess &&
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu) == cudaSuccess;
  return is_known ? count : kOfAnH200;
}

// With the stages that fit, for each token.
MoeOneImagesArgs args_of(const FusedMoeGpuCall& call,
                         const MoeOneImagesScratch& scratch,
                         int num_blocks) {
  MoeOneImagesArgs args{call, scratch, 0, 0, false, 0, 0, 0, 0};
  for (int num_choices = 1; num_choices <= call.top_k; ++num_choices) {
    const Images gates = gate_images(call, num_choices, num_blocks);
    const Images downs = down_images(call, num_choices, num_blocks);
    const bool may_have_all = downs.most_tiles() > num_choices;
    const int activated = may_have_all ? downs.slot_images() : downs.most_images();
    args.most_gate_tiles = std::max(args.most_gate_tiles, gates.most_tiles());
    args.most_down_tiles = std::max(args.most_down_tiles, downs.most_tiles());
    args.most_slots = std::max({args.most_slots, gates.most_slots(), downs.most_slots()});
    args.most_activated = std::max(args.most_activated, activated);
  }
  const int num_tiles = args.most_gate_tiles + args.most_down_tiles;
  args.num_tile_slots = std::min(num_tiles, kMaxTileSlots);
  args.fills_slots_again = num_tiles > args.num_tile_slots;
  const int room = (kSharedSize - Layout(args).size) / kStageSize;
  args.num_stages = std::clamp(room, 0, kMaxStages) / kGroups * kGroups;
  return args;
}

}  // namespace

bool fits_moe_one_images(const FusedMoeGpuCall& call) {
  const auto divides = [](int size) {
    return size > 0 && size % kImageColumns == 0 && size <= kMostImageColumns;
  };
  const GatedActivationKind kind = call.activation.kind;
  const bool activates =
      kind == GatedActivationKind::kSilu || kind == GatedActivationKind::kClampedSwiGlu;
  const bool element =
      call.element == Element::kBFloat16 &&
      (call.y_element == Element::kBFloat16 || call.y_element == Element::kFloat32);
  if (!element || !activates || call.format != ExpertFormat::kFloat4Images ||
      !moe_one::fits_tokens(call) || call.top_k > kMostChoices || !divides(call.hidden_size) ||
      !divides(call.intermediate_size) || !fits_matrices(call.gate_up) ||
      !fits_matrices(call.down)) {
    return false;
  }
  const MoeOneImagesArgs args = args_of(call, {}, num_multiprocessors() / call.num_tokens);
  return args.num_stages >= kLeastStages && args.most_slots <= kWarps;
}

gpuError_t launch_moe_one_images(const FusedMoeGpuCall& call,
                                 const MoeOneImagesScratch& scratch,
                                 gpuStream_t stream) {
  const dim3 blocks = moe_one::blocks_of_tokens(call, num_multiprocessors());
  const MoeOneImagesArgs args = args_of(call, scratch, static_cast<int>(blocks.x));
  const bool is_one = call.num_tokens == 1 && !args.fills_slots_again;
  auto* const kernel =
      is_one ? &moe_one_images_kernel<Tokens::kOne> : &moe_one_images_kernel<Tokens::kAny>;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedSize);
  if (error != cudaSuccess) return error;
  return launch(kernel, blocks, dim3(moe_one::kThreads), Layout(args).size, stream, true, args);
}

}  // namespace atom::ops
