#include "ops/fused_moe/moe_rows_launch_sm90.cuh"

namespace atom::ops {
namespace {

// Whether each column of a chunk of the second matrix has its place.
constexpr bool fills_chunk() {
  using Chunk = device::rows::Chunk<device::SplitFloat4>;
  for (int column = 0; column < Chunk::kColumns; ++column) {
    if (Chunk::column_at(Chunk::place_of(column)) != column) return false;
  }
  return true;
}
static_assert(fills_chunk());

}  // namespace

gpuError_t launch_moe_rows_split_float4(const FusedMoeGpuCall& call,
                                        const MoeRowsScratch& scratch,
                                        int num_tokens,
                                        gpuStream_t stream) {
  return device::rows::launch_with<device::SplitFloat4>(num_tokens, call, scratch, stream);
}

}  // namespace atom::ops
