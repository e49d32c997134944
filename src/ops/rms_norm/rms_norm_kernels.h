// Inside rms_norm: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/element.h"

namespace atom {
struct PeerView;
}

namespace atom::ops {

// One call. Row r is head r % num_heads of token r / num_heads. Strides are in elements.
struct RmsNormArgs {
  const void* x;
  void* residual;  // null: nothing to add
  const void* weight;
  void* out;
  int64_t x_strides[2];  // token, head
  int64_t residual_stride;
  int64_t out_strides[2];
  int64_t num_heads;
  int64_t size;
  float eps;
  Element element;
  bool rounds_once;  // the weight is float32 and multiplies the unrounded value
};

using RmsNormKernel = void(const RmsNormArgs& args, int64_t begin, int64_t end);  // rows

RmsNormKernel rms_norm_reference;
RmsNormKernel rms_norm_avx2;
RmsNormKernel rms_norm_avx512;

// A norm whose result is quantized too, unless `codes` has no values; without rows norm.out is
// null.
struct RmsNormCall {
  RmsNormArgs norm;
  QuantizeArgs codes;

  bool quantizes() const { return codes.values != nullptr; }
};

// On a GPU's queue (DeviceQueue::handle()): rows, codes or both.
using RmsNormGpuKernel = void(const RmsNormCall& call, int64_t num_rows, void* queue);

RmsNormGpuKernel rms_norm_cuda;

// Whether the kernel of a norm adds up its rows' parts, of so many bytes on each rank, or leaves it
// to all_reduce(). A row belongs to one block or cluster: of more than two ranks it would have the
// parts of all others to send and to look for, which all_reduce() spreads over the card. On four
// H200 one kernel takes 7.24 us for 16 KiB and 14.5 for 256 KiB, and two take 5.90 and 11.2; on two
// H200 one takes 3.95 and 6.10, and two take 4.69 and 6.40.
constexpr bool adds_up_in_norm(int num_ranks, int64_t bytes) {
  return num_ranks == 2 && bytes <= (1 << 20);
}
// The same where x is this rank's part of a sum; where a kernel does it, which is the same on all
// ranks.
bool supports_rms_norm_of_ranks_cuda(const RmsNormCall& call,
                                     int64_t num_rows,
                                     const PeerView& peers);
void rms_norm_of_ranks_cuda(const RmsNormCall& call,
                            int64_t num_rows,
                            const PeerView& peers,
                            void* queue);

}  // namespace atom::ops
