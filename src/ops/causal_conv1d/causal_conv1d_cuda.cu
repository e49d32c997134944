#include "ops/causal_conv1d/causal_conv1d_kernels.h"
#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/silu.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 128;
// A block has a chunk of one sequence, whose first tokens read what its neighbor reads as well.
constexpr int kTokensPerChunk = 32;

// A sequence's chunk of tokens. Those of a sequence are numbered one after the other, and those of
// the next one lie behind: as many numbers as max_chunks() are enough.
struct Chunk {
  int64_t start;  // of the sequence's tokens in the step
  int64_t num_queries;
  int64_t first, end;  // of the chunk, among the sequence's
  int64_t slot;
  bool has_history;

  __device__ Chunk(const StateBatchArgs& batch, int64_t number) {
    int64_t sequence = 0, behind = batch.num_sequences;
    while (behind - sequence > 1) {
      const int64_t middle = (sequence + behind) / 2;
      (first_number(batch, middle) <= number ? sequence : behind) = middle;
    }
    start = batch.query_start[sequence];
    num_queries = batch.query_start[sequence + 1] - start;
    first = (number - first_number(batch, sequence)) * kTokensPerChunk;
    end = min(first + kTokensPerChunk, num_queries);
    slot = batch.state_slots[sequence];
    has_history = batch.seq_lens[sequence] > num_queries;
    if (slot >= batch.num_slots) gpu_trap();
  }
  static __device__ int64_t first_number(const StateBatchArgs& batch, int64_t sequence) {
    return batch.query_start[sequence] / kTokensPerChunk + sequence;
  }
};

int64_t max_chunks(const StateBatchArgs& batch) {
  return batch.num_tokens / kTokensPerChunk + batch.num_sequences;
}

// kCount neighboring channels of a row as they are in memory: a vector, of which the bits keep
// fewer registers than its elements, or one element.
template <typename T, int kCount>
struct Packed {
  static_assert(kCount == device::Vector<T>::kLength);
  using Row = uint4;
  static __device__ void unpack(const Row& row, float (&x)[kCount]) {
    device::to_floats<T>(row, x);
  }
  static __device__ Row pack(const float (&x)[kCount]) { return device::bits_of<T>(x); }
};
template <typename T>
struct Packed<T, 1> {
  using Row = T;
  static __device__ void unpack(const Row& row, float (&x)[1]) { x[0] = device::to_float(row); }
  static __device__ Row pack(const float (&x)[1]) { return device::from_float<T>(x[0]); }
};

// kCount neighboring channels of a sequence.
template <typename T, int kCount>
class Channels {
 public:
  using Row = typename Packed<T, kCount>::Row;

  __device__ Channels(const CausalConv1dArgs& args, const Chunk& chunk, int64_t channel)
      : args_(args),
        chunk_(chunk),
        x_(static_cast<const T*>(args.x) + chunk.start * args.x_stride + channel),
        state_(static_cast<T*>(args.state) + channel) {}

  __device__ Row new_input(int64_t t) const { return load(x_ + t * args_.x_stride); }

  // Input t of this step; negative ones are the state's.
  __device__ Row input(int64_t t) const {
    if (t >= 0) return new_input(t);
    return chunk_.has_history ? load(row(chunk_.slot, history() + t)) : zeros();
  }

  // All states that the step leaves, from inputs that no other block writes. The slot in which the
  // sequence began may be one that a token's inputs go to.
  __device__ void keep() const {
    Row before[kConvMaxKernelSize - 1];
    for (int64_t j = 0; j < history(); ++j) before[j] = input(j - history());
    const auto keep_behind = [&](int64_t token, int64_t slot) {
      if (slot >= args_.batch.num_slots) gpu_trap();
      for (int64_t j = 0; j < history(); ++j) {
        const int64_t t = token + 1 - history() + j;
        *reinterpret_cast<Row*>(row(slot, j)) = t >= 0 ? input(t) : before[history() + t];
      }
    };
    const int32_t* kept = args_.batch.token_slots;
    if (kept == nullptr) return keep_behind(chunk_.num_queries - 1, chunk_.slot);
    int64_t first = chunk_.num_queries;
    while (first > 0 && kept[chunk_.start + first - 1] >= 0) --first;
    for (int64_t t = first; t < chunk_.num_queries; ++t) keep_behind(t, kept[chunk_.start + t]);
  }

 private:
  static __device__ Row zeros() {
    const float x[kCount] = {};
    return Packed<T, kCount>::pack(x);
  }
  static __device__ Row load(const T* from) { return *reinterpret_cast<const Row*>(from); }
  __device__ int64_t history() const { return args_.kernel_size - 1; }
  __device__ T* row(int64_t slot, int64_t j) const {
    return state_ + (slot * history() + j) * args_.num_channels;
  }

  const CausalConv1dArgs& args_;
  const Chunk& chunk_;
  const T* x_;
  T* state_;
};

template <typename T, int kCount>
__device__ void store_zeros(const CausalConv1dArgs& args, const Chunk& chunk, T* out) {
  for (int64_t t = chunk.first; t < chunk.end; ++t) {
    for (int i = 0; i < kCount; ++i) {
      out[t * args.out_stride + i] = device::from_float<T>(0.0f);
    }
  }
}

// The weights of neighboring channels; zero where the kernel is shorter.
template <int kCount, int kMost>
__device__ void load_weights(const CausalConv1dArgs& args,
                             int64_t channel,
                             float (&weight)[kMost][kCount]) {
  constexpr int kWidth = kCount >= 4 ? 4 : 1;
  using Weights = device::Pack<float, kWidth>;
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    const float* from = args.weight + j * args.num_channels + channel;
#pragma unroll
    for (int i = 0; i < kCount; i += kWidth) {
      Weights loaded = {};
      if (j < args.kernel_size) loaded = *reinterpret_cast<const Weights*>(from + i);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) weight[j][i + k] = loaded.element[k];
    }
  }
}

// A token's outputs. window[j] is the input that weight j multiplies; the last one's is new.
template <device::Silu kSilu, int kCount, int kMost>
__device__ void convolve(const float (&weight)[kMost][kCount],
                         int size,
                         const float (&added)[kCount],
                         float (&window)[kMost][kCount],
                         float (&result)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      if (j >= size) break;
      window[j][i] = j + 1 < size ? window[j + 1 < kMost ? j + 1 : j][i] : added[i];
      sum = fmaf(weight[j][i], window[j][i], sum);
    }
    result[i] = device::silu<kSilu>(sum);
  }
}

// grid: groups of channels, chunks of tokens. A thread for kCount channels, whose last inputs it
// keeps; kKernelSize is 0 where the compiler does not know it.
template <typename T, int kCount, int kKernelSize, device::Silu kSilu>
__global__ void ATOM_LAUNCH_BOUNDS(kThreads, 3) convolve_kernel(CausalConv1dArgs args) {
  constexpr int kMost = kKernelSize > 0 ? kKernelSize : kConvMaxKernelSize;
  const int size = kKernelSize > 0 ? kKernelSize : static_cast<int>(args.kernel_size);
  const int64_t channel = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount;
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const Chunk chunk(args.batch, blockIdx.y);
  if (chunk.first >= chunk.end || channel >= args.num_channels) return;
  T* out = static_cast<T*>(args.out) + chunk.start * args.out_stride + channel;
  if (chunk.slot < 0) return store_zeros<T, kCount>(args, chunk, out);
  const Channels<T, kCount> channels(args, chunk, channel);
  float weight[kMost][kCount];
  load_weights(args, channel, weight);
  using Values = Packed<T, kCount>;
  float window[kMost][kCount];
#pragma unroll
  for (int j = 1; j < kMost; ++j) {
    if (j < size) Values::unpack(channels.input(chunk.first - size + j), window[j]);
  }
  // A group of rows is on its way together.
  constexpr int kGroup = 8;
  for (int64_t first = chunk.first; first < chunk.end; first += kGroup) {
    typename Values::Row rows[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      rows[i] = channels.new_input(min(first + i, chunk.end - 1));
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (first + i >= chunk.end) break;
      float added[kCount], result[kCount];
      Values::unpack(rows[i], added);
      convolve<kSilu>(weight, size, added, window, result);
      *reinterpret_cast<typename Values::Row*>(out + (first + i) * args.out_stride) =
          Values::pack(result);
    }
  }
  // The block that reads the state is the one that replaces it.
  if (chunk.first == 0) channels.keep();
}

bool is_aligned(const void* data, int64_t stride, int64_t count, int64_t size) {
  return reinterpret_cast<uintptr_t>(data) % (count * size) == 0 && stride % count == 0;
}

// Whether rows are read and written `count` channels at a time.
bool fits_vectors(const CausalConv1dArgs& args, int64_t count, int64_t size) {
  return args.kernel_size == 4 && args.num_channels % count == 0 &&
         is_aligned(args.x, args.x_stride, count, size) &&
         is_aligned(args.out, args.out_stride, count, size) &&
         is_aligned(args.state, 0, count, size) && is_aligned(args.weight, 0, 4, sizeof(float));
}

template <typename T, int kCount, int kKernelSize, device::Silu kSilu>
void launch(const CausalConv1dArgs& args, gpuStream_t stream) {
  const int64_t threads = args.num_channels / kCount;
  (void)device::launch(convolve_kernel<T, kCount, kKernelSize, kSilu>,
                       dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads),
                            static_cast<unsigned>(max_chunks(args.batch))),
                       dim3(kThreads),
                       0,
                       stream,
                       true,
                       args);
}

template <device::Silu kSilu>
void launch_for(const CausalConv1dArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    constexpr int kCount = device::Vector<T>::kLength;
    if (fits_vectors(args, kCount, sizeof(T))) {
      launch<T, kCount, 4, kSilu>(args, stream);
    } else {
      launch<T, 1, 0, kSilu>(args, stream);
    }
  });
  check_gpu_launch("causal_conv1d");
}

}  // namespace

void causal_conv1d_cuda(const CausalConv1dArgs& args, void* queue) {
  launch_for<device::Silu::kExact>(args, queue);
}

void causal_conv1d_brief_cuda(const CausalConv1dArgs& args, void* queue) {
  launch_for<device::Silu::kBrief>(args, queue);
}

}  // namespace atom::ops
