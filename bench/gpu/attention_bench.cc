// Checks and times the attention kernels. usage: attention_gpu_bench
// [check|time|prefill]: everything, the checks, the timings, or those of prefill alone.
#include "attention_bench.h"

#include <cstdio>
#include <string_view>

#include "attention_batch.h"
#include "attention_timing.h"
#include "harness.h"
#include "ops/attention/decode/decode_cuda.h"
#include "ops/attention/prefill/prefill_cuda.h"
#include "ops/attention/prefill/prefill_sm90.h"

namespace atom::bench {
namespace {

void time_decode(int num_sequences, int seq_len, int head_dim, bool fp8, double copy_rate) {
  AttentionBatchShape shape = equal_sequences(num_sequences, seq_len, fp8);
  shape.head_dim = head_dim;
  const AttentionBatch batch(shape, copies_beyond_caches(shape));
  const double mib = shape.bytes() / (1 << 20);
  DeviceBuffer workspace(ops::attention_decode_workspace_size(batch.params(0)) + 16);
  const size_t num_counters = ops::attention_decode_num_counters(batch.params(0));
  DeviceBuffer counters(num_counters * 4);
  check_gpu(ATOM_GPU(Memset)(counters.get(), 0, num_counters * 4), "clear");
  const double ms = graph_ms(mib < 300 ? 20 : 1, 30, [&](int i, gpuStream_t stream) {
    check_gpu(ops::launch_attention_decode_cuda(
                  batch.params(i), workspace.get(), static_cast<int32_t*>(counters.get()), stream),
              "decode");
  });
  const double rate = shape.bytes() / ms * 1e3;
  std::printf("decode %s d%d %dx%d: %.1f us, %.0f MiB, %.2f TB/s, %.1f %% of copy\n",
              fp8 ? "fp8" : "bf16",
              head_dim,
              num_sequences,
              seq_len,
              ms * 1e3,
              mib,
              rate / 1e12,
              100 * rate / copy_rate);
  std::fflush(stdout);
}

// Of 32 query heads and 8 of keys and values. Without a workspace an FP8 cache is expanded tile by
// tile.
struct PrefillShape {
  int num_sequences = 1;
  int num_queries = 8192;
  int seq_len = 8192;
  int head_dim = 128;
  int block_size = 16;
  bool fp8 = false;
  bool sm90 = true;
  bool has_workspace = true;
};

void time_prefill(const PrefillShape& shape) {
  AttentionBatchShape batch_shape = equal_sequences(shape.num_sequences, shape.seq_len, shape.fp8);
  batch_shape.num_queries = shape.num_queries;
  batch_shape.head_dim = shape.head_dim;
  batch_shape.block_size = shape.block_size;
  const AttentionBatch batch(batch_shape, 1);
  const DeviceBuffer counter(sizeof(int32_t));
  check_gpu(ATOM_GPU(Memset)(counter.get(), 0, counter.size()), "clear");
  const size_t size =
      shape.has_workspace ? ops::attention_prefill_sm90_workspace_size(batch.params(0)) : 0;
  const DeviceBuffer workspace(size + 16);
  const double ms = median_ms(shape.seq_len > 20000 ? 7 : 15, [&](int i) {
    auto* count = static_cast<int32_t*>(counter.get());
    check_gpu(shape.sm90 ? ops::launch_attention_prefill_sm90(
                               batch.params(i), 1, workspace.get(), size, count, nullptr)
                         : ops::launch_attention_prefill_cuda(batch.params(i), 1, count, nullptr),
              "prefill");
  });
  const double visible = shape.num_queries * (shape.seq_len - shape.num_queries / 2.0);
  const double flops = 4.0 * shape.num_sequences * visible * 32 * shape.head_dim;
  std::printf("prefill %s%s%s d%d block %d %dx%d of %d: %.3f ms, %.0f TFLOP/s\n",
              shape.sm90 ? "sm90" : "cuda",
              shape.fp8 ? " fp8" : "",
              shape.has_workspace ? "" : " direct",
              shape.head_dim,
              shape.block_size,
              shape.num_sequences,
              shape.num_queries,
              shape.seq_len,
              ms,
              flops / ms / 1e9);
  std::fflush(stdout);
}

void time_prefills() {
  for (const bool fp8 : {false, true}) {
    for (const int head_dim : {128, 64, 256}) {
      time_prefill({.head_dim = head_dim, .fp8 = fp8});
      time_prefill({.num_queries = 32768, .seq_len = 32768, .head_dim = head_dim, .fp8 = fp8});
    }
    time_prefill({.seq_len = 32768, .fp8 = fp8});
    time_prefill({.num_queries = 2048, .seq_len = 2048, .fp8 = fp8});
    time_prefill({.num_queries = 2048, .seq_len = 32768, .fp8 = fp8});
    time_prefill({.num_sequences = 8, .num_queries = 1024, .seq_len = 1024, .fp8 = fp8});
  }
  time_prefill({.block_size = 128});
  for (const int head_dim : {64, 128, 256}) {
    time_prefill({.head_dim = head_dim, .fp8 = true, .has_workspace = false});
    time_prefill({.head_dim = head_dim, .sm90 = false});
  }
}

void time_decodes() {
  const double copy_rate = measure_roofs().copy;
  for (bool fp8 : {false, true}) {
    time_decode(64, 4096, 128, fp8, copy_rate);
    time_decode(256, 1024, 128, fp8, copy_rate);
    time_decode(1, 32768, 128, fp8, copy_rate);
    time_decode(8, 32768, 128, fp8, copy_rate);
    time_decode(64, 4096, 64, fp8, copy_rate);
    time_decode(64, 4096, 256, fp8, copy_rate);
    time_decode(1, 1024, 128, fp8, copy_rate);
    time_decode(8, 1024, 128, fp8, copy_rate);
    time_decode(32, 1024, 128, fp8, copy_rate);
  }
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  const std::string_view part = argc > 1 ? argv[1] : "";
  const int failures = part.empty() || part == "check" ? atom::bench::check_attention() : 0;
  if (part.empty() || part == "time") {
    atom::bench::time_decodes();
  }
  if (part != "check") {
    atom::bench::time_prefills();
  }
  return failures == 0 ? 0 : 1;
}
