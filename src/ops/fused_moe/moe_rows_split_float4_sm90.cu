#include "ops/fused_moe/moe_rows_launch_sm90.cuh"

namespace atom::ops {
namespace {

// Whether the outputs of two tiles fill a chunk of the second matrix, each at its column's place.
constexpr bool fills_chunk() {
  using W = device::SplitFloat4;
  constexpr int kColumns = device::rows::Chunk<W>::kColumns;
  bool is_filled[kColumns] = {};
  for (int i = 0; i < kColumns; ++i) {
    const int half = i / (kColumns / 2), index = i % (kColumns / 2);
    const int place = device::rows::place_at<W>(index, half);
    const int column = half * (kColumns / 2) + device::rows::output_at<W>(index);
    if (is_filled[place] || device::rows::Chunk<W>::column_at(place) != column) return false;
    is_filled[place] = true;
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
