// Checks and times the attention kernels. usage: attention_gpu_bench
// [check|time|prefill]: everything, the checks, the timings, or those of prefill alone.
#include "attention_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "attention_case.h"
#include "attention_timing.h"
#include "harness.h"
#include "ops/attention/attention_decode_cuda.h"
#include "ops/attention/attention_prefill_cuda.h"
#include "ops/attention/attention_prefill_sm90.h"

namespace atom::bench {
namespace {

using ops::AttentionElement;
using ops::AttentionGpuParams;

// Sequences of one length over a shuffled cache.
class TimedBatch {
 public:
  TimedBatch(int num_sequences,
             int num_queries,
             int seq_len,
             int head_dim,
             AttentionElement kv_element,
             int num_copies,
             int block_size = 16)
      : num_copies_(num_copies) {
    const int head_count = 32;
    const int kv_heads = 8;
    const int blocks_per_sequence = (seq_len + block_size - 1) / block_size;
    const int num_blocks = blocks_per_sequence * num_sequences * num_copies;
    const bool is_8bit = kv_element == AttentionElement::kFloat8E4m3;
    cache_bytes_ = size_t{1} * num_blocks * block_size * kv_heads * head_dim * (is_8bit ? 1 : 2);
    const size_t q_size = size_t{1} * num_sequences * num_queries * head_count * head_dim;
    k_ = DeviceBuffer(cache_bytes_);
    v_ = DeviceBuffer(cache_bytes_);
    q_ = DeviceBuffer(q_size * 2);
    out_ = DeviceBuffer(q_size * 2);
    fill_random(k_.get(), cache_bytes_, is_8bit, 1);
    fill_random(v_.get(), cache_bytes_, is_8bit, 2);
    fill_random(q_.get(), q_size * 2, false, 3);
    std::vector<int32_t> tables(num_blocks);
    std::iota(tables.begin(), tables.end(), 0);
    std::shuffle(tables.begin(), tables.end(), std::mt19937(5));
    std::vector<int32_t> starts;
    for (int s = 0; s <= num_sequences; ++s) {
      starts.push_back(s * num_queries);
    }
    const std::vector<int32_t> lens(num_sequences, seq_len);
    const auto upload = [](DeviceBuffer& buffer, const std::vector<int32_t>& host) {
      buffer = DeviceBuffer(host.size() * 4);
      check_gpu(
          ATOM_GPU(Memcpy)(buffer.get(), host.data(), host.size() * 4, cudaMemcpyHostToDevice),
          "upload");
    };
    upload(tables_, tables);
    upload(starts_, starts);
    upload(lens_, lens);
    params_ = {};
    params_.q = q_.get();
    params_.k_cache = k_.get();
    params_.v_cache = v_.get();
    params_.query_start = static_cast<const int32_t*>(starts_.get());
    params_.seq_lens = static_cast<const int32_t*>(lens_.get());
    params_.out = out_.get();
    params_.q_token_stride = params_.out_token_stride = head_count * head_dim;
    params_.q_head_stride = params_.out_head_stride = head_dim;
    params_.block_table_stride = blocks_per_sequence;
    params_.num_sequences = num_sequences;
    params_.num_tokens = num_sequences * num_queries;
    params_.num_blocks = num_blocks;
    params_.block_size = block_size;
    params_.num_heads = head_count;
    params_.num_kv_heads = kv_heads;
    params_.head_dim = head_dim;
    params_.max_seq_len = seq_len;
    params_.scale = 1 / std::sqrt(static_cast<float>(head_dim));
    params_.k_scale = params_.v_scale = 1;
    params_.element = AttentionElement::kBfloat16;
    params_.kv_element = kv_element;
  }

  // Launch i reads other blocks than the ones before it.
  AttentionGpuParams params(int i) const {
    AttentionGpuParams params = params_;
    params.block_tables = static_cast<const int32_t*>(tables_.get()) +
                          i % num_copies_ * params.block_table_stride * params.num_sequences;
    return params;
  }
  // Of keys and values that one launch reads.
  double bytes() const { return 2.0 * cache_bytes_ / num_copies_; }

 private:
  int num_copies_;
  size_t cache_bytes_;
  AttentionGpuParams params_;
  DeviceBuffer k_, v_, q_, out_, tables_, starts_, lens_;
};

void time_decode(int num_sequences, int seq_len, int head_dim, bool fp8, double copy_rate) {
  const double mib = 2.0 * num_sequences * seq_len * 8 * head_dim * (fp8 ? 1 : 2) / (1 << 20);
  const TimedBatch batch(num_sequences,
                         1,
                         seq_len,
                         head_dim,
                         fp8 ? AttentionElement::kFloat8E4m3 : AttentionElement::kBfloat16,
                         std::clamp(static_cast<int>(400 / mib), 1, 64));
  DeviceBuffer workspace(ops::attention_decode_workspace_size(batch.params(0)) + 16);
  const size_t num_counters = ops::attention_decode_num_counters(batch.params(0));
  DeviceBuffer counters(num_counters * 4);
  check_gpu(ATOM_GPU(Memset)(counters.get(), 0, num_counters * 4), "clear");
  // Small launches are timed as a captured sequence, without the host's gaps.
  const int launches = mib < 300 ? 20 : 1;
  gpuStream_t stream;
  check_gpu(ATOM_GPU(StreamCreateWithFlags)(&stream, cudaStreamNonBlocking), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t graph_exec;
  check_gpu(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < launches; ++i) {
    check_gpu(ops::launch_attention_decode_cuda(
                  batch.params(i), workspace.get(), static_cast<int32_t*>(counters.get()), stream),
              "decode");
  }
  check_gpu(cudaStreamEndCapture(stream, &graph), "capture");
  check_gpu(cudaGraphInstantiate(&graph_exec, graph, 0), "capture");
  const double ms =
      median_ms(30, [&](int) { check_gpu(cudaGraphLaunch(graph_exec, nullptr), "replay"); }) /
      launches;
  check_gpu(cudaGraphExecDestroy(graph_exec), "graph");
  check_gpu(cudaGraphDestroy(graph), "graph");
  check_gpu(ATOM_GPU(StreamDestroy)(stream), "stream");
  const double rate = batch.bytes() / ms * 1e3;
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
  const TimedBatch batch(shape.num_sequences,
                         shape.num_queries,
                         shape.seq_len,
                         shape.head_dim,
                         shape.fp8 ? AttentionElement::kFloat8E4m3 : AttentionElement::kBfloat16,
                         1,
                         shape.block_size);
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
