// The kernel of fused_moe for one token by experts in FP8, and its launch.
#include "ops/fused_moe/moe_one_stage.cuh"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::moe_one;

// By one warp.
__device__ void copy_item(
    const FusedMoeGpuCall& call, Shared& shared, const Item& item, int stage, uint64_t policy) {
  const int lane = threadIdx.x % kWarpSize;
  const uint32_t full = shared_address(&shared.full[stage]);
  const int num_rows = kTileRows * item.num_choices;
  if (lane == 0) arrive_expecting(full, num_rows * item.num_columns);
  __syncwarp();
  const ExpertMatrices& matrices = item.is_first_matrix ? call.gate_up : call.down;
  const int64_t row_size = item.is_first_matrix ? call.hidden_size : call.intermediate_size;
  for (int i = lane; i < num_rows; i += kWarpSize) {
    const int part = i / kTileRows, row = i % kTileRows;
    const uint8_t* const source =
        static_cast<const uint8_t*>(matrices.data) +
        shared.choices[item.choice + part].expert * matrices.expert_stride +
        row_of(call, item, row) * row_size + item.column;
    copy_bulk(shared_address(shared.stages[stage]) + row * kPitch + part * item.num_columns,
              source,
              item.num_columns,
              full,
              policy);
  }
}

__device__ void copy_items(const FusedMoeGpuCall& call, Shared& shared) {
  const uint64_t policy = read_once_policy();
  StageCursor stage;
  for (Items items(call, shared.num_choices); !items.is_done(); items.advance()) {
    wait_for(shared_address(&shared.empty[stage.index]), stage.parity ^ 1);
    copy_item(call, shared, items.item(), stage.index, policy);
    stage.advance(kNumStages);
  }
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
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        gate_up_(call_.gate_up),
        down_(call_.down),
        down_panels_(call_.intermediate_size / kPanel),
        down_part_(warp_ / down_panels_),
        down_panel_(warp_ - down_part_ * down_panels_) {}

  // All items, and between those of both matrices what `meet` does.
  template <typename Meet>
  __device__ void run(Meet&& meet) {
    Items items(call_, shared_.num_choices);
    bool has_met = false;
    Scales next = items.is_done() ? Scales() : scales_of(items.item());
#pragma unroll 1
    for (;;) {
      if (!has_met && !items.is_in_first_matrix()) {
        finish_tiles(true);
        meet();
        has_met = true;
      }
      if (items.is_done()) break;
      const Item item = items.item();
      const Scales scales = next;
      items.advance();
      if (!items.is_done()) next = scales_of(items.item());
      wait_for(shared_address(&shared_.full[stage_.index]), stage_.parity);
      add_product(item, scales);
      __syncwarp();
      if (lane_ == 0) arrive(shared_address(&shared_.empty[stage_.index]));
      stage_.advance(kNumStages);
      if (item.is_last) keep_sums(item);
    }
    finish_tiles(false);
  }

 private:
  // Where a warp's columns of an item are: in which choice of it, and which 128 of its columns.
  struct Part {
    int choice, panel;
    bool exists;
  };
  __device__ Part part_of(const Item& item) const {
    if (!item.is_first_matrix) {
      return {item.choice + down_part_, down_panel_, down_part_ < item.num_choices};
    }
    const int panel = item.column / kPanel + warp_;
    return {item.choice, panel, panel * kPanel < call_.hidden_size};
  }

  __device__ Scales scales_of(const Item& item) const {
    const Part part = part_of(item);
    if (!part.exists) return {};
    const Choice choice = shared_.choices[part.choice];
    const int upper = row_of(call_, item, lane_ / 4);
    const int lower = row_of(call_, item, lane_ / 4 + kGateRows);
    if (item.is_first_matrix) {
      return {gate_up_.at(choice.expert, upper, part.panel),
              gate_up_.at(choice.expert, lower, part.panel)};
    }
    return {choice.weight * down_.at(choice.expert, upper, part.panel),
            choice.weight * down_.at(choice.expert, lower, part.panel)};
  }

  // The other factor's 128 columns, which most items share. Of the eight columns of a product one
  // is used.
  __device__ void load_codes(int panel) {
    if (panel == panel_) return;
    panel_ = panel;
    scale_ = shared_.scales[panel];
    const uint32_t codes = shared_address(shared_.codes) + panel * kPanel + lane_ % 4 * kVectorSize;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 loaded = load_shared(codes + half * (kPanel / 2));
      const uint4 words = lane_ < 4 ? loaded : uint4{};
      const uint32_t each[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        factor_[half * 4 + i][0] = as_halves(each[i]);
        factor_[half * 4 + i][1] = as_halves(each[i] >> 16);
      }
    }
  }

  __device__ void add_product(const Item& item, const Scales& scales) {
    const Part part = part_of(item);
    if (!part.exists) return;
    load_codes(item.is_first_matrix ? part.panel : part.choice * down_panels_ + part.panel);
    const uint32_t upper = shared_address(shared_.stages[stage_.index]) + lane_ / 4 * kPitch +
                           warp_ * kPanel + lane_ % 4 * kVectorSize;
    // Four sums, so that few products wait for others.
    float products[4][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 a = load_shared(upper + half * (kPanel / 2));
      const uint4 below = load_shared(upper + kGateRows * kPitch + half * (kPanel / 2));
      multiply(products[0], a.x, below.x, factor_[half * 4]);
      multiply(products[1], a.y, below.y, factor_[half * 4 + 1]);
      multiply(products[2], a.z, below.z, factor_[half * 4 + 2]);
      multiply(products[3], a.w, below.w, factor_[half * 4 + 3]);
    }
    const auto sum_of = [&](int i) {
      return products[0][i] + products[1][i] + (products[2][i] + products[3][i]);
    };
    upper_ = fmaf(sum_of(0), scales.upper * scale_, upper_);
    lower_ = fmaf(sum_of(2), scales.lower * scale_, lower_);
  }

  // What the warp has of a tile.
  __device__ void keep_sums(const Item& item) {
    float(&sums)[kTileRows] = shared_.sums[num_tiles_][warp_];
    if (lane_ % 4 == 0) {
      sums[lane_ / 4] = upper_;
      sums[kGateRows + lane_ / 4] = lower_;
    }
    if (threadIdx.x == 0) {
      shared_.targets[num_tiles_] =
          item.is_first_matrix ? item.choice * call_.intermediate_size + item.tile * kGateRows
                               : item.tile * kTileRows;
    }
    upper_ = lower_ = 0;
    if (++num_tiles_ == kSlots) finish_tiles(item.is_first_matrix);
  }

  // Adds up what the warps have of the tiles that wait, a tile by a warp.
  __device__ void finish_tiles(bool is_first_matrix) {
    synchronize_first<kNumConsumers>();
    if (warp_ < num_tiles_) finish(is_first_matrix);
    num_tiles_ = 0;
    panel_ = -1;
    synchronize_first<kNumConsumers>();
  }

  __device__ void finish(bool is_first_matrix) const {
    const int row = lane_ % kTileRows, first = lane_ / kTileRows * (kWarps / 2);
    const int target = shared_.targets[warp_];
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps / 2; ++w) sum += shared_.sums[warp_][first + w][row];
    sum += exchange(sum, kTileRows);
    const float up = exchange(sum, kGateRows);
    if (!is_first_matrix) {
      if (lane_ < kTileRows) store_result(call_, target + lane_, sum);
    } else if (lane_ < kGateRows) {
      args_.scratch.activated[target + lane_] = activated(call_.activation, sum, up);
    }
  }

  const MoeOneArgs& args_;
  const FusedMoeGpuCall& call_;
  Shared& shared_;
  const int warp_, lane_;
  const ScaleRows gate_up_, down_;
  const int down_panels_, down_part_, down_panel_;
  StageCursor stage_;
  uint32_t factor_[kPanel / kTileRows][2];  // of the 128 columns `panel_`, with their scale
  int panel_ = -1;
  float scale_ = 0;
  float upper_ = 0, lower_ = 0;
  int num_tiles_ = 0;  // that wait
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

__device__ void make_barriers(Shared& shared) {
  for (int stage = 0; stage < kNumStages; ++stage) {
    init_barrier(shared_address(&shared.full[stage]), 1);
    init_barrier(shared_address(&shared.empty[stage]), kWarps);
  }
  publish_barriers();
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
    const int num_choices = find_choices(call, shared.choices);
    if (threadIdx.x == kNumConsumers) shared.num_choices = num_choices;
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
