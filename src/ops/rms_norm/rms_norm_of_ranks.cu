#include "ops/rms_norm/rms_norm_of_ranks.h"

#include "comm/device/kernels.h"
#include "ops/device/programmatic_launch.cuh"
#include "ops/rms_norm/rms_norm_of_ranks.cuh"
#include "ops/rms_norm/rms_norm_of_ranks_sm90.h"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::rms_norm;

// Of a row of more than 512 vectors, for up to eight of them: on two H200 3.95 to 4.81 us instead
// of 4.51 to 4.98. A shorter row, or more of them, are faster by a block each (3.78 instead of
// 3.83, 6.10 instead of 6.49 at sixteen rows); rows of more than 1024 vectors have no room in one
// block's packets.
constexpr int kClusterBlocks = 8;
constexpr int64_t kMostClusterRows = 8;

// A block for each row, or for every so many rows.
template <typename T, typename W, int kThreads, int kVectors>
__global__ void __launch_bounds__(kThreads)
    rms_norm_of_ranks(const __grid_constant__ PeerView view,
                      const __grid_constant__ RmsNormLaunch p) {
  __shared__ RowScratch scratch;
  RowNorm<T, W, kVectors, 1, kAnyLanes> norm(p);  // of the block's first row
  norm.load_weight();
  touch(view);
  touch(p);
  allow_next_grid();
  wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  Held<kVectors> held;
  held.load(norm);
  const TeamRows rows = {blockIdx.x, p.num_tokens, gridDim.x};
  send_rows(view, rows, held, epoch, norm);
  finish_rows<T>(view, rows, held, epoch, scratch, norm);
  end_epoch(view, epoch);
}

// How rows are cut, as launch_rms_norm() cuts them: sums have the same order. No threads:
// otherwise.
RowCut cut_of(int64_t size) {
  const int64_t vectors = size / 8;
  if (vectors <= 4 * kWarpSize || vectors > 2048) return {0, 0};  // rows of a warp each, and others
  if (vectors <= 512) return {256, 2};
  return {512, vectors <= 1024 ? 2 : 4};
}

// Blocks that a row is shared out to, and rows at a time.
struct Teams {
  int blocks, count;
};
Teams teams_of(const RmsNormLaunch& p) {
  const RowCut cut = cut_of(p.size);
  const bool is_long = cut.threads == 512 && p.num_tokens <= kMostClusterRows;
  const int blocks = has_row_clusters() && (is_long || cut.vectors > 2) ? kClusterBlocks : 1;
  const int64_t most = kPacketBlocks / blocks;
  return {blocks, static_cast<int>(p.num_tokens < most ? p.num_tokens : most)};
}

template <typename T, typename W>
auto* kernel_of(const RowCut& cut) {
  return cut.threads == 256 ? &rms_norm_of_ranks<T, W, 256, 2> : &rms_norm_of_ranks<T, W, 512, 2>;
}

template <typename T, typename W>
gpuError_t launch_typed(const PeerView& view,
                        const RmsNormLaunch& p,
                        const RowCut& cut,
                        int count,
                        gpuStream_t stream) {
  return launch(kernel_of<T, W>(cut),
                dim3(static_cast<unsigned>(count)),
                dim3(cut.threads),
                0,
                stream,
                p.overlaps_previous,
                view,
                p);
}

template <typename T, typename W>
gpuError_t load_typed() {
  constexpr RowCut kShort = {256, 2}, kLong = {512, 2};
  return load_kernels(kernel_of<T, W>(kShort), kernel_of<T, W>(kLong));
}

}  // namespace

bool supports_rms_norm_of_ranks(const PeerView& view, const RmsNormLaunch& p) {
  if (p.element != Element::kBFloat16) return false;
  if (p.num_tokens < 1 || p.num_heads != 1 || p.size % 8 != 0) return false;
  const RowCut cut = cut_of(p.size);
  if (cut.threads == 0 || !supports_rms_norm_gpu(p)) return false;
  const Teams teams = teams_of(p);
  const int64_t rows = (p.num_tokens + teams.count - 1) / teams.count;
  return adds_up_in_norm(view.size, p.num_tokens * p.size * int64_t{sizeof(BFloat16)}) &&
         rows * cut.vectors * (cut.threads / teams.blocks) * 2 <= kPacketsPerBlock;
}

gpuError_t launch_rms_norm_of_ranks(const PeerView& view,
                                    const RmsNormLaunch& p,
                                    gpuStream_t stream) {
  if (!supports_rms_norm_of_ranks(view, p) || p.residual == nullptr) {
    return ATOM_GPU(ErrorInvalidValue);
  }
  const RowCut cut = cut_of(p.size);
  const Teams teams = teams_of(p);
  if (teams.blocks > 1) {
    return launch_rms_norm_of_ranks_by_clusters(view, p, cut, teams.blocks, teams.count, stream);
  }
  return p.rounds_once ? launch_typed<BFloat16, float>(view, p, cut, teams.count, stream)
                       : launch_typed<BFloat16, BFloat16>(view, p, cut, teams.count, stream);
}

gpuError_t load_rms_norm_of_ranks() {
  gpuError_t error = has_row_clusters() ? load_rms_norm_of_ranks_by_clusters() : ATOM_GPU(Success);
  if (error == ATOM_GPU(Success)) error = load_typed<BFloat16, float>();
  return error != ATOM_GPU(Success) ? error : load_typed<BFloat16, BFloat16>();
}

}  // namespace atom::ops
