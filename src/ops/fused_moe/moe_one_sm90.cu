// The kernel of fused_moe for one token by experts in FP8, and its launch.
#include "ops/fused_moe/moe_one_stage.cuh"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::moe_one;

// d[16 rows, 8 columns] += a[16 rows, 32 codes] b[8 columns, 32 codes]^T.
__device__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The scales of a warp's columns of an item, of a lane's rows; a choice's weight is in them.
struct Scales {
  float upper = 0, lower = 0;
};

// A warp that multiplies.
class Consumer {
 public:
  __device__ Consumer(const MoeOneArgs& args, Shared& shared)
      : args_(args),
        call_(args.call),
        shared_(shared),
        items_(call_, shared.num_choices),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize) {}

  // All items, and between those of both matrices what `meet` does.
  template <typename Meet>
  __device__ void run(Meet&& meet) {
    Scales next = items_.count() > 0 ? scales_of(items_.at(0)) : Scales();
#pragma unroll 1
    for (int i = 0; i <= items_.count(); ++i) {
      if (i == items_.num_first()) meet();
      if (i == items_.count()) return;
      const Item item = items_.at(i);
      const Scales scales = next;
      if (i + 1 < items_.count()) next = scales_of(items_.at(i + 1));
      wait_for(shared_address(&shared_.full[stage_.index]), stage_.parity);
      add_product(item, scales);
      __syncwarp();
      if (lane_ == 0) arrive(shared_address(&shared_.empty[stage_.index]));
      stage_.advance(kNumStages);
      if (item.is_last) finish(item);
    }
  }

 private:
  // Where a warp's columns of an item are: in which choice of it, and which 128 of its columns.
  struct Part {
    int choice, panel;
    bool exists;
  };
  __device__ Part part_of(const Item& item) const {
    const int panels = item.num_columns / kPanel, part = warp_ / panels;
    return {
        item.choice + part, item.column / kPanel + warp_ - part * panels, part < item.num_choices};
  }

  __device__ Scales scales_of(const Item& item) const {
    const Part part = part_of(item);
    if (!part.exists) return {};
    const ExpertMatrices& matrices = item.is_first_matrix ? call_.gate_up : call_.down;
    const Choice choice = shared_.choices[part.choice];
    const int column = matrices.scales_across > 1 ? part.panel : 0, row = lane_ / 4;
    const float weight = item.is_first_matrix ? 1.0f : choice.weight;
    const auto scale_of_row = [&](int r) {
      return weight * scale_at(matrices, choice.expert, row_of(call_, item, r), column);
    };
    return {scale_of_row(row), scale_of_row(row + kGateRows)};
  }

  // Of 128 columns: a lane has 16 neighbouring bytes of each half of them, in whatever order of
  // columns, which is the same for both factors. Of the eight columns of the product one is used.
  __device__ void add_product(const Item& item, const Scales& scales) {
    const Part part = part_of(item);
    if (!part.exists) return;
    const int row = lane_ / 4, place = lane_ % 4 * kVectorSize;
    const int panel = item.is_first_matrix
                          ? part.panel
                          : part.choice * (call_.intermediate_size / kPanel) + part.panel;
    const uint32_t upper =
        shared_address(shared_.stages[stage_.index]) + row * kPitch + warp_ * kPanel + place;
    const uint32_t codes = shared_address(shared_.codes) + panel * kPanel + place;
    float product[4] = {};
#pragma unroll
    for (int half = 0; half < kPanel; half += kPanel / 2) {
      const uint4 a = load_shared(upper + half);
      const uint4 below = load_shared(upper + kGateRows * kPitch + half);
      const uint4 loaded = load_shared(codes + half);
      const uint4 b = lane_ < 4 ? loaded : uint4{};
      multiply(product, {a.x, below.x, a.y, below.y}, {b.x, b.y});
      multiply(product, {a.z, below.z, a.w, below.w}, {b.z, b.w});
    }
    const float scale = shared_.scales[panel];
    upper_ = fmaf(product[0], scales.upper * scale, upper_);
    lower_ = fmaf(product[2], scales.lower * scale, lower_);
  }

  // Adds up what the warps have of a tile, by one of them after the other.
  __device__ void finish(const Item& item) {
    float(&sums)[kWarps][kTileRows] = shared_.sums[num_tiles_ % 2];
    if (lane_ % 4 == 0) {
      sums[warp_][lane_ / 4] = upper_;
      sums[warp_][kGateRows + lane_ / 4] = lower_;
    }
    upper_ = lower_ = 0;
    synchronize_first<kNumConsumers>();
    if (num_tiles_++ % kWarps != warp_) return;
    const int row = lane_ % kTileRows, first = lane_ / kTileRows * (kWarps / 2);
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps / 2; ++w) sum += sums[first + w][row];
    sum += exchange(sum, kTileRows);
    const float up = exchange(sum, kGateRows);
    if (item.is_first_matrix) {
      if (lane_ >= kGateRows) return;
      args_.scratch.activated[int64_t{item.choice} * call_.intermediate_size +
                              item.tile * kGateRows + lane_] = activated(call_.activation, sum, up);
    } else if (lane_ < kTileRows) {
      store_result(item.tile * kTileRows + lane_, sum);
    }
  }

  __device__ void store_result(int row, float value) const {
    if (call_.y_element == Element::kFloat32) {
      static_cast<float*>(call_.y)[row] = value;
    } else {
      static_cast<BFloat16*>(call_.y)[row] = from_float<BFloat16>(value);
    }
  }

  const MoeOneArgs& args_;
  const FusedMoeGpuCall& call_;
  Shared& shared_;
  const Items items_;
  const int warp_, lane_;
  StageCursor stage_;
  float upper_ = 0, lower_ = 0;
  int num_tiles_ = 0;
};

// `size` values as codes with a scale for each 128, by the warps that multiply; loads are kAhead
// vectors of a thread ahead. A loop, because of a kernel that runs for so short code is slow to
// load.
template <typename T, int kAhead>
class Codes {
 public:
  __device__ Codes(const void* values, int size)
      : values_(static_cast<const T*>(values)), size_(size) {
#pragma unroll
    for (uint4& vector : vectors_) vector = load_next();
  }

  __device__ void store(Shared& shared) {
    constexpr int kLanesColumns = kWarpSize * kLength;
    int column = static_cast<int>(threadIdx.x) * kLength;
#pragma unroll 1
    for (int first = column / kLanesColumns * kLanesColumns; first < size_; first += kStep) {
      const uint4 one[1] = {vectors_[0]};
#pragma unroll
      for (int i = 1; i < kAhead; ++i) vectors_[i - 1] = vectors_[i];
      vectors_[kAhead - 1] = load_next();
      const bool exists = column < size_;
      quantize_groups<T>(
          one,
          [&](int, float scale) {
            if (exists) shared.scales[column / kPanel] = scale;
          },
          [&](int, const Pack<Float8, kLength>& pack) {
            if (exists) *reinterpret_cast<Pack<Float8, kLength>*>(shared.codes + column) = pack;
          });
      column += kStep;
    }
  }

 private:
  static constexpr int kLength = Vector<T>::kLength, kStep = kNumConsumers * kLength;

  __device__ uint4 load_next() {
    const int column = next_;
    next_ += kStep;
    return column < size_ ? load_bits_from_l2(values_ + column) : uint4{};
  }

  const T* values_;
  int size_;
  int next_ = static_cast<int>(threadIdx.x) * kLength;
  uint4 vectors_[kAhead];
};

// The experts that are here, by one warp.
__device__ void find_choices(const FusedMoeGpuCall& call, Shared& shared) {
  const int lane = threadIdx.x % kWarpSize;
  const int place = lane < call.top_k ? place_of(call, lane) : -1;
  const float weight = place >= 0 ? gpu_load_from_l2(call.weights + lane) : 0.0f;
  const uint32_t present = __ballot_sync(0xffffffffu, place >= 0);
  if (place >= 0) shared.choices[__popc(present & ((1u << lane) - 1))] = {place, weight};
  if (lane == 0) shared.num_choices = __popc(present);
}

__device__ void make_barriers(Shared& shared) {
  for (int stage = 0; stage < kNumStages; ++stage) {
    init_barrier(shared_address(&shared.full[stage]), 1);
    init_barrier(shared_address(&shared.empty[stage]), kWarps);
  }
  publish_barriers();
}

// Returns when all blocks have come here; the last one to see that leaves the counters as they
// were. By the warps that multiply.
__device__ void meet_all_blocks(int32_t* counters) {
  synchronize_first<kNumConsumers>();
  if (threadIdx.x == 0) {
    const int32_t all = static_cast<int32_t>(gridDim.x);
    __threadfence();
    atomicAdd(counters, 1);
    int32_t count = 0;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(counters) : "memory");
    } while (count < all);
    if (atomicAdd(counters + 1, 1) == all - 1) counters[0] = counters[1] = 0;
  }
  synchronize_first<kNumConsumers>();
}

__global__ void __launch_bounds__(kThreads, 1)
    moe_one_kernel(const __grid_constant__ MoeOneArgs args) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const FusedMoeGpuCall& call = args.call;
  allow_next_grid();
  if (threadIdx.x == kNumConsumers) make_barriers(shared);
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    find_choices(call, shared);
    __syncthreads();
    copy_items(call, shared);
    return;
  }
  Codes<BFloat16, 2> x(call.x, call.hidden_size);
  __syncthreads();
  x.store(shared);
  synchronize_first<kNumConsumers>();
  Consumer consumer(args, shared);
  consumer.run([&] {
    meet_all_blocks(args.scratch.counters);
    Codes<float, 3>(args.scratch.activated, shared.num_choices * call.intermediate_size)
        .store(shared);
    synchronize_first<kNumConsumers>();
  });
}

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0;
}

bool fits_matrices(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  const bool of_blocks = matrices.scale_rows == kPanel && matrices.scale_columns == kPanel;
  const bool of_rows = matrices.scale_columns == num_columns && matrices.scales_across == 1 &&
                       (matrices.scale_rows == 1 || matrices.scale_rows == num_rows);
  return is_aligned(matrices.data) && matrices.expert_stride % kVectorSize == 0 &&
         matrices.bias == nullptr && matrices.exponents == nullptr && (of_blocks || of_rows);
}

}  // namespace

bool fits_moe_one(const FusedMoeGpuCall& call) {
  const bool element =
      call.element == Element::kBFloat16 &&
      (call.y_element == Element::kBFloat16 || call.y_element == Element::kFloat32);
  const int hidden_size = call.hidden_size, size = call.intermediate_size;
  return element && call.format == ExpertFormat::kFloat8 && !call.activation.is_interleaved &&
         call.num_tokens == 1 && call.top_k <= kMaxChoices && is_aligned(call.x) &&
         hidden_size % kPanel == 0 && hidden_size <= kMaxCodes && size % kPanel == 0 &&
         size <= kChunk && call.top_k * size <= kMaxCodes &&
         fits_matrices(call.gate_up, 2 * size, hidden_size) &&
         fits_matrices(call.down, hidden_size, size);
}

gpuError_t launch_moe_one(const FusedMoeGpuCall& call,
                          const MoeOneScratch& scratch,
                          gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(
        moe_one_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  }
  if (error != cudaSuccess) return error;
  return launch(moe_one_kernel,
                dim3(num_blocks),
                dim3(kThreads),
                sizeof(Shared),
                stream,
                true,
                MoeOneArgs{call, scratch});
}

}  // namespace atom::ops
