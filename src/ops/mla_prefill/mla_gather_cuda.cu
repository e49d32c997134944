#include "ops/device/dispatch.cuh"
#include "ops/mla_prefill/mla_prefill_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kThreads = 256;

// 16 bytes of the result to a thread.
template <typename T, typename C>
__global__ void __launch_bounds__(kThreads) gather_kernel(MlaGatherArgs args) {
  using device::Pack;
  constexpr int kLength = device::Vector<T>::kLength;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x, sequence = blockIdx.y;
  const int64_t vectors = args.width / kLength;
  const int64_t position = index / vectors, first = index % vectors * kLength;
  if (position >= args.rows_per_sequence) return;
  if (first == 0 && position % kMlaPrefillBlock == 0) {
    const int64_t block = (sequence * args.rows_per_sequence + position) / kMlaPrefillBlock;
    args.tables[block] = static_cast<int32_t>(block);
  }
  if (position >= args.batch.seq_lens[sequence]) return;
  const int32_t* table = args.batch.block_tables + sequence * args.batch.block_table_stride;
  const int64_t block = table[position / args.batch.block_size];
  if (block < 0 || block >= args.batch.num_blocks) gpu_trap();
  const int64_t slot = block * args.batch.block_size + position % args.batch.block_size;
  const C* from = static_cast<const C*>(args.cache) + slot * args.width + first;
  T* to = static_cast<T*>(args.rows) + (sequence * args.rows_per_sequence + position) * args.width +
          first;
  if constexpr (sizeof(C) == sizeof(T)) {
    device::store_bits(to, device::load_bits(from));
  } else {
    const auto codes = *reinterpret_cast<const Pack<C, kLength>*>(from);
    Pack<T, kLength> values;
#pragma unroll
    for (int i = 0; i < kLength; ++i) {
      values.element[i] = device::from_float<T>(device::to_float(codes.element[i]));
    }
    *reinterpret_cast<Pack<T, kLength>*>(to) = values;
  }
}

}  // namespace

void mla_gather_cuda(const MlaGatherArgs& args, void* queue) {
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    const int64_t threads = args.rows_per_sequence * (args.width / device::Vector<T>::kLength);
    const dim3 grid(static_cast<unsigned>((threads + kThreads - 1) / kThreads),
                    static_cast<unsigned>(args.batch.num_sequences));
    auto* kernel = args.float8_cache ? &gather_kernel<T, device::Float8> : &gather_kernel<T, T>;
    kernel<<<grid, kThreads, 0, static_cast<gpuStream_t>(queue)>>>(args);
  });
  check_gpu_launch("mla_prefill");
}

}  // namespace atom::ops
