// A multiprocessor sends and looks for packets of 16 bytes one by one, so a row that is alone is
// faster on several of them: as many as a cluster has, whose blocks add up what each has of the
// row's sum.
#include "ops/rms_norm/rms_norm_of_ranks_sm90.h"

#include "comm/device/kernels.h"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/rms_norm/rms_norm_of_ranks.cuh"
#include "tensor/per_card.h"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::rms_norm;

constexpr int kMaxThreads = 256;  // of a block
constexpr int kMaxWarps = 32;     // of a cluster

__device__ inline int cluster_size() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  return static_cast<int>(size);
}

// An address in shared memory.
__device__ inline uint32_t address_of(const void* place) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

// Counts, in phases, the bytes of what the cluster's blocks store in this one: who waits for those
// waits for nothing else, as a barrier of the cluster would.
__device__ inline uint32_t arrivals() {
  __shared__ uint64_t barrier;
  return address_of(&barrier);
}

// To the same place of another block, whose arrivals() count it.
__device__ inline void store_in_block(int block, float* place, float value) {
  send_in_cluster(address_in(block, address_of(place)), value, address_in(block, arrivals()));
}

// The threads of a cluster as those of one block: sums have the bits of Team's.
template <typename T>
struct ClusterTeam {
  static constexpr int kFold = 1;
  static constexpr int kLength = Vector<T>::kLength;
  const int size;
  uint32_t parity = 0;  // of the phase of arrivals() that comes next

  __device__ int lane() const { return cluster_rank() * blockDim.x + threadIdx.x; }
  __device__ int lanes() const { return cluster_size() * blockDim.x; }
  __device__ int first_of(int v) const { return (v * lanes() + lane()) * kLength; }
  __device__ bool has(int v) const { return first_of(v) < size; }
  __device__ int64_t row() const { return blockIdx.x / cluster_size(); }
  __device__ float sum(float (&values)[kFold], float* scratch) {
    return reduce(values[0], scratch, Sum());
  }
  __device__ float largest(float value, float* scratch) {
    return reduce(value, scratch, Largest());
  }

 private:
  template <typename Operation>
  __device__ float reduce(float value, float* scratch, Operation operation) {
    const int num_values = lanes() / kWarpSize;
    if (threadIdx.x == 0) arrive_expecting(arrivals(), num_values * int{sizeof(float)});
    value = reduce_lanes(value, kWarpSize, operation);
    const int lane_of_warp = threadIdx.x % kWarpSize;
    if (lane_of_warp < cluster_size()) {
      store_in_block(lane_of_warp, scratch + lane() / kWarpSize, value);
    }
    wait_for(arrivals(), parity);
    parity ^= 1;
    const bool has_value = lane_of_warp < num_values;
    return reduce_lanes(has_value ? scratch[lane_of_warp] : 0.0f, kWarpSize, operation);
  }
};

// A cluster for each row, or for every so many rows.
template <typename T, typename W, int kVectors>
__global__ void __launch_bounds__(kMaxThreads)
    rms_norm_of_ranks_by_clusters(const __grid_constant__ PeerView view,
                                  const __grid_constant__ RmsNormLaunch p) {
  __shared__ RowScratch scratch;
  static_assert(kMaxWarps <= kWarpSize);
  if (threadIdx.x == 0) {
    init_barrier(arrivals(), 1);
    publish_barriers();
  }
  __syncthreads();
  arrive_at_cluster();
  RowNormOf<T, W, kVectors, ClusterTeam<T>> norm(p);
  norm.load_weight();
  touch(view);
  touch(p);
  allow_next_grid();
  wait_for_previous_grid();
  const uint64_t epoch = begin_epoch(view);
  Held<kVectors> held;
  held.load(norm);
  const int blocks = cluster_size();
  const TeamRows rows = {blockIdx.x / blocks, p.num_tokens, gridDim.x / blocks};
  send_rows(view, rows, held, epoch, norm);
  __syncwarp();
  wait_for_cluster();
  finish_rows<T>(view, rows, held, epoch, scratch, norm);
  end_epoch(view, epoch);
}

template <typename T, typename W>
auto* kernel_of(const RowCut& cut) {
  return cut.vectors == 2 ? &rms_norm_of_ranks_by_clusters<T, W, 2>
                          : &rms_norm_of_ranks_by_clusters<T, W, 4>;
}

template <typename T, typename W>
gpuError_t load_typed() {
  const RowCut cuts[] = {{512, 2}, {512, 4}};
  return load_kernels(kernel_of<T, W>(cuts[0]), kernel_of<T, W>(cuts[1]));
}

}  // namespace

bool has_row_clusters() {
  static PerCard<bool> is_hopper;
  return is_hopper.get([] {
    int card = 0, major = 0;
    return cudaGetDevice(&card) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card) == cudaSuccess &&
           major == 9;
  });
}

gpuError_t launch_rms_norm_of_ranks_by_clusters(const PeerView& view,
                                                const RmsNormLaunch& p,
                                                const RowCut& cut,
                                                int blocks,
                                                int teams,
                                                gpuStream_t stream) {
  const int threads = cut.threads / blocks;
  if (threads < kWarpSize || threads > kMaxThreads) return cudaErrorInvalidValue;
  return launch_clusters(
      p.rounds_once ? kernel_of<BFloat16, float>(cut) : kernel_of<BFloat16, BFloat16>(cut),
      blocks * teams,
      blocks,
      threads,
      0,
      stream,
      p.overlaps_previous,
      view,
      p);
}

gpuError_t load_rms_norm_of_ranks_by_clusters() {
  const gpuError_t error = load_typed<BFloat16, float>();
  return error != cudaSuccess ? error : load_typed<BFloat16, BFloat16>();
}

}  // namespace atom::ops
