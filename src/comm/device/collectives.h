// The kernels of a group's operations. Those "by address" take any size and alignment: ranks tell
// each other where their tensors are, read and write these, and part. Those "by packets" are for
// small tensors: every rank sends what it has in packets of 8 bytes with a mark, and computes the
// result from what arrives.
#pragma once

#include <stdint.h>

#include "comm/device/mailbox.h"
#include "comm/device/sum_format.h"
#include "comm/reduce_op.h"
#include "tensor/gpu_api.h"

namespace atom {

enum class ReducedType : uint8_t { kFloat32, kFloat16, kBFloat16, kInt32, kInt64 };

// all_reduce: `whole` of each rank is replaced; part is null. reduce_scatter: `part` becomes the
// sum of the rank's part of each `whole`.
struct ReduceLaunch {
  void* whole = nullptr;  // [count], or [size, count] with a part
  void* part = nullptr;   // [count]
  int64_t count = 0;
  ReducedType type = ReducedType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

// all_gather, all_to_all, broadcast: `bytes` from `from` + i * from_stride go to rank i, who has
// them at its `to` + rank * to_stride.
struct MoveLaunch {
  const void* from = nullptr;  // null: of a rank that sends nothing
  void* to = nullptr;
  int64_t bytes = 0;
  int64_t from_stride = 0;
  int64_t to_stride = 0;
};

gpuError_t launch_reduce_by_address(const PeerView& view,
                                    const ReduceLaunch& params,
                                    gpuStream_t stream);
gpuError_t launch_move_by_address(const PeerView& view,
                                  const MoveLaunch& params,
                                  gpuStream_t stream);
gpuError_t launch_barrier(const PeerView& view, gpuStream_t stream);

// Whether so many bytes of each rank (a reduction's `count`) are few enough for packets.
bool fits_packets(const PeerView& view, int64_t bytes);
gpuError_t launch_reduce_by_packets(const PeerView& view,
                                    const ReduceLaunch& params,
                                    gpuStream_t stream);
// Of an operation in which every rank hears from every other one.
gpuError_t launch_move_by_packets(const PeerView& view,
                                  const MoveLaunch& params,
                                  gpuStream_t stream);

// all_reduce of a sum whose values travel as codes, through memory that each rank has for them.
int64_t coded_sum_memory(int size);  // bytes
// Whether there is a kernel: of 16-bit values, in whole vectors of 16 bytes.
bool fits_codes(const ReduceLaunch& params);
gpuError_t launch_reduce_by_codes(const PeerView& view,
                                  const ReduceLaunch& params,
                                  SumFormat format,
                                  gpuStream_t stream);

// A message. Its packets wait at the receiver, 4 MB of data at most; the rest follows as it takes
// them.
// What it takes of kPacketsPerLane at most.
int64_t packets_of_lane(int64_t bytes);
gpuError_t launch_send(
    const PeerView& view, const void* x, int64_t bytes, int to, gpuStream_t stream);
gpuError_t launch_receive(
    const PeerView& view, void* x, int64_t bytes, int from, gpuStream_t stream);

// Brings the kernels' code to the current card: a first launch would wait for the card to be idle.
gpuError_t load_collectives();
gpuError_t load_packets(int size);
gpuError_t load_messages();
gpuError_t load_coded_sums();

}  // namespace atom
