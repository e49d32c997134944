// From an operator's call to the GPU kernel's launch.
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rms_norm/rms_norm_kernels.h"
#include "ops/rms_norm/rms_norm_of_ranks.h"
#include "tensor/gpu_check.h"
#include "tensor/per_card.h"

namespace atom::ops {

RmsNormLaunch rms_norm_launch(const RmsNormArgs& args, int64_t num_rows) {
  RmsNormLaunch launch;
  launch.x = args.x;
  launch.residual = args.residual;
  launch.weight = args.weight;
  launch.out = args.out;
  launch.x_strides[0] = args.x_strides[0];
  launch.x_strides[1] = args.x_strides[1];
  launch.out_strides[0] = args.out_strides[0];
  launch.out_strides[1] = args.out_strides[1];
  launch.residual_stride = args.residual_stride;
  launch.num_tokens = num_rows / args.num_heads;
  launch.num_heads = args.num_heads;
  launch.size = args.size;
  launch.eps = args.eps;
  launch.element = args.element;
  launch.rounds_once = args.rounds_once;
  return launch;
}

namespace {

RmsNormLaunch launch_of(const RmsNormCall& call, int64_t num_rows) {
  RmsNormLaunch launch = rms_norm_launch(call.norm, num_rows);
  if (call.quantizes()) {
    launch.rows = call.norm.out;
    launch.rows_stride = call.norm.out_strides[0];
    launch.out = call.codes.values;
    launch.out_strides[0] = call.codes.values_stride;
    launch.scales = call.codes.scales;
    launch.static_scale = call.codes.static_scale;
    const bool has_groups = call.codes.group_size < call.codes.size;
    launch.group_size = has_groups ? static_cast<int32_t>(call.codes.group_size) : 0;
  }
  return launch;
}

}  // namespace

void rms_norm_cuda(const RmsNormCall& call, int64_t num_rows, void* queue) {
  GPU_CHECK(launch_rms_norm(launch_of(call, num_rows), static_cast<gpuStream_t>(queue)));
}

bool supports_rms_norm_of_ranks_cuda(const RmsNormCall& call,
                                     int64_t num_rows,
                                     const PeerView& peers) {
  return supports_rms_norm_of_ranks(peers, launch_of(call, num_rows));
}

void rms_norm_of_ranks_cuda(const RmsNormCall& call,
                            int64_t num_rows,
                            const PeerView& peers,
                            void* queue) {
  static PerCard<bool> is_loaded;
  is_loaded.get([] {
    GPU_CHECK(load_rms_norm_of_ranks());
    return true;
  });
  GPU_CHECK(
      launch_rms_norm_of_ranks(peers, launch_of(call, num_rows), static_cast<gpuStream_t>(queue)));
}

}  // namespace atom::ops
