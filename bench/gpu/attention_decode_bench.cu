// Checks and times decode attention. usage: attention_decode_bench [check|time|few|ways]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention_case.h"
#include "attention_decode_bench.h"
#include "attention_timing.h"
#include "harness.h"
#include "ops/attention/attention_decode_cuda.h"
#include "ops/device/programmatic_launch.cuh"

namespace atom::bench {
namespace {

using ops::AttentionDecodeTuning;
using ops::AttentionElement;
using ops::AttentionGpuParams;

struct Batch {
  std::vector<int32_t> seq_lens;
  int head_dim = 128;
  int num_heads = 32;
  int num_kv_heads = 8;
  bool fp8 = false;
  int table_width = 0;  // 0: as wide as the longest sequence needs

  // Of keys and values that one launch reads.
  double bytes() const {
    const double tokens = std::accumulate(seq_lens.begin(), seq_lens.end(), 0.0);
    return 2 * tokens * num_kv_heads * head_dim * (fp8 ? 1 : 2);
  }
};

// A batch over a shuffled cache, several times in different blocks of it.
class TimedBatch {
 public:
  TimedBatch(const Batch& batch, int num_copies) : num_copies_(num_copies) {
    const int num_sequences = static_cast<int>(batch.seq_lens.size());
    int width = batch.table_width;
    int num_blocks = 0;
    for (int len : batch.seq_lens) {
      width = std::max(width, (len + kBlockSize - 1) / kBlockSize);
      num_blocks += num_copies * ((len + kBlockSize - 1) / kBlockSize);
    }
    const size_t cache_bytes = size_t{1} * num_blocks * kBlockSize * batch.num_kv_heads *
                               batch.head_dim * (batch.fp8 ? 1 : 2);
    const size_t q_size = size_t{1} * num_sequences * batch.num_heads * batch.head_dim;
    k_ = DeviceBuffer(cache_bytes);
    v_ = DeviceBuffer(cache_bytes);
    q_ = DeviceBuffer(q_size * 2);
    out_ = DeviceBuffer(q_size * 2);
    fill_random(k_.get(), cache_bytes, batch.fp8, 1);
    fill_random(v_.get(), cache_bytes, batch.fp8, 2);
    fill_random(q_.get(), q_size * 2, false, 3);
    upload_tables(batch, width, num_blocks);
    std::vector<int32_t> starts(num_sequences + 1);
    std::iota(starts.begin(), starts.end(), 0);
    upload(starts_, starts);
    upload(lens_, batch.seq_lens);
    set_params(batch, width, num_blocks);
  }

  // Launch i reads other blocks than the ones before it.
  AttentionGpuParams params(int i) const {
    AttentionGpuParams params = params_;
    params.block_tables = static_cast<const int32_t*>(tables_.get()) +
                          i % num_copies_ * params.block_table_stride * params.num_sequences;
    return params;
  }

 private:
  static constexpr int kBlockSize = 16;

  static void upload(DeviceBuffer& buffer, const std::vector<int32_t>& host) {
    buffer = DeviceBuffer(host.size() * 4);
    check_gpu(ATOM_GPU(Memcpy)(buffer.get(), host.data(), host.size() * 4, cudaMemcpyHostToDevice),
              "upload");
  }

  void upload_tables(const Batch& batch, int width, int num_blocks) {
    std::vector<int32_t> blocks(num_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(5));
    std::vector<int32_t> tables(size_t{1} * num_copies_ * batch.seq_lens.size() * width, -1);
    auto row = tables.begin();
    auto next = blocks.begin();
    for (int copy = 0; copy < num_copies_; ++copy) {
      for (int len : batch.seq_lens) {
        const int count = (len + kBlockSize - 1) / kBlockSize;
        std::copy_n(next, count, row);
        next += count;
        row += width;
      }
    }
    upload(tables_, tables);
  }

  void set_params(const Batch& batch, int width, int num_blocks) {
    params_ = {};
    params_.q = q_.get();
    params_.k_cache = k_.get();
    params_.v_cache = v_.get();
    params_.query_start = static_cast<const int32_t*>(starts_.get());
    params_.seq_lens = static_cast<const int32_t*>(lens_.get());
    params_.out = out_.get();
    params_.q_token_stride = params_.out_token_stride = batch.num_heads * batch.head_dim;
    params_.q_head_stride = params_.out_head_stride = batch.head_dim;
    params_.block_table_stride = width;
    params_.num_sequences = static_cast<int32_t>(batch.seq_lens.size());
    params_.num_tokens = params_.num_sequences;
    params_.num_blocks = num_blocks;
    params_.block_size = kBlockSize;
    params_.num_heads = batch.num_heads;
    params_.num_kv_heads = batch.num_kv_heads;
    params_.head_dim = batch.head_dim;
    params_.max_seq_len = width * kBlockSize;
    params_.scale = 1 / std::sqrt(static_cast<float>(batch.head_dim));
    params_.k_scale = params_.v_scale = 1;
    params_.element = AttentionElement::kBfloat16;
    params_.kv_element = batch.fp8 ? AttentionElement::kFloat8E4m3 : AttentionElement::kBfloat16;
  }

  int num_copies_;
  AttentionGpuParams params_;
  DeviceBuffer k_, v_, q_, out_, tables_, starts_, lens_;
};

// Stands for what a step computes between two attentions: writes the queries.
__global__ void rewrite(uint32_t* data, size_t count) {
  ops::device::allow_next_grid();
  ops::device::wait_for_previous_grid();
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i < count) {
    data[i] ^= 1;
  }
}

enum class Chain { kAttention, kOther, kBoth };

// Milliseconds of a launch, of a captured sequence of `launches` of each kind.
double launch_ms(const TimedBatch& batch,
                 const AttentionDecodeTuning& tuning,
                 Chain chain,
                 int launches) {
  const AttentionGpuParams first = batch.params(0);
  DeviceBuffer workspace(ops::attention_decode_workspace_size(first, tuning) + 16);
  const size_t num_counters = ops::attention_decode_num_counters(first);
  DeviceBuffer counters(num_counters * 4);
  check_gpu(ATOM_GPU(Memset)(counters.get(), 0, num_counters * 4), "clear");
  gpuStream_t stream;
  check_gpu(ATOM_GPU(StreamCreateWithFlags)(&stream, cudaStreamNonBlocking), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t graph_exec;
  check_gpu(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < launches; ++i) {
    if (chain != Chain::kAttention) {
      constexpr int kThreads = 256;
      const size_t words = size_t{1} * first.num_tokens * first.num_heads * first.head_dim / 2;
      check_gpu(ops::device::launch(rewrite,
                                    dim3((words + kThreads - 1) / kThreads),
                                    dim3(kThreads),
                                    0,
                                    stream,
                                    true,
                                    static_cast<uint32_t*>(const_cast<void*>(first.q)),
                                    words),
                "rewrite");
    }
    if (chain != Chain::kOther) {
      check_gpu(ops::launch_attention_decode_cuda(batch.params(i),
                                                  workspace.get(),
                                                  static_cast<int32_t*>(counters.get()),
                                                  stream,
                                                  tuning),
                "decode");
    }
  }
  check_gpu(cudaStreamEndCapture(stream, &graph), "capture");
  check_gpu(cudaGraphInstantiate(&graph_exec, graph, 0), "capture");
  const double ms =
      median_ms(25, [&](int) { check_gpu(cudaGraphLaunch(graph_exec, nullptr), "replay"); }) /
      launches;
  check_gpu(cudaGraphExecDestroy(graph_exec), "graph");
  check_gpu(cudaGraphDestroy(graph), "graph");
  check_gpu(ATOM_GPU(StreamDestroy)(stream), "stream");
  return ms;
}

struct Way {
  const char* name;
  AttentionDecodeTuning tuning;
};

constexpr Way kWays[] = {
    {"default", {}},
    {"no overlap", {.overlaps_previous = false}},
    {"fixed", {.fixed_splits = true}},
    {"parts 1", {.max_parts = 1}},
    {"parts 4", {.max_parts = 4}},
    {"parts 16", {.max_parts = 16}},
};

// In the first `num_ways` ways.
void time_batch(const std::string& name, const Batch& batch, int num_ways, double copy_rate) {
  const double mib = batch.bytes() / (1 << 20);
  const TimedBatch timed(batch, std::clamp(static_cast<int>(400 / mib), 1, 64));
  // As a captured sequence, without the host's gaps.
  const int launches = mib < 20 ? 64 : mib < 300 ? 20 : 4;
  std::printf("%-5s %-22s %6.0f MiB:", batch.fp8 ? "fp8" : "bf16", name.c_str(), mib);
  const auto print = [&](const char* what, double ms) {
    const double rate = batch.bytes() / ms * 1e3;
    std::printf(
        " %s %.1f us %.2f TB/s %.1f %%;", what, ms * 1e3, rate / 1e12, 100 * rate / copy_rate);
    std::fflush(stdout);
  };
  for (int i = 0; i < num_ways; ++i) {
    print(kWays[i].name, launch_ms(timed, kWays[i].tuning, Chain::kAttention, launches));
  }
  print(
      "between others",
      launch_ms(timed, {}, Chain::kBoth, launches) - launch_ms(timed, {}, Chain::kOther, launches));
  std::printf("\n");
}

Batch equal_rows(int count, int seq_len, bool fp8) {
  Batch batch;
  batch.seq_lens.assign(count, seq_len);
  batch.fp8 = fp8;
  return batch;
}

using Run = std::function<void(const std::string& name, const Batch& batch)>;

// Shapes that decide how work is to be divided.
void run_few(bool fp8, const Run& run) {
  for (int count : {1, 8, 32, 64, 256}) {
    run(std::to_string(count) + " x 1024", equal_rows(count, 1024, fp8));
  }
  for (int count : {1, 4}) {
    run(std::to_string(count) + " x 32768", equal_rows(count, 32768, fp8));
  }
  run("1 x 8192", equal_rows(1, 8192, fp8));
  Batch batch = equal_rows(64, 0, fp8);
  std::mt19937 random(3);
  for (int32_t& len : batch.seq_lens) {
    len = 100 + static_cast<int>(random() % 8000);
  }
  run("64 ragged to 8100", batch);
}

void run_more(bool fp8, const Run& run) {
  run("16 x 1024", equal_rows(16, 1024, fp8));
  run("1 x 131072", equal_rows(1, 131072, fp8));
  run("1 x 2048", equal_rows(1, 2048, fp8));
  run("1 x 4096", equal_rows(1, 4096, fp8));
  run("8 x 32768", equal_rows(8, 32768, fp8));
  run("16 x 32768", equal_rows(16, 32768, fp8));
  run("64 x 4096", equal_rows(64, 4096, fp8));
  Batch batch = equal_rows(256, 1030, fp8);
  batch.table_width = 8192;
  run("256 x 1030 wide table", batch);
  batch.seq_lens.assign(64, 300);
  batch.seq_lens[7] = 100000;
  run("64, one of 100000", batch);
  batch = equal_rows(256, 1024, fp8);
  batch.num_heads = 16;
  run("256 x 1024 group 2", batch);
  batch = equal_rows(64, 4096, fp8);
  batch.num_heads = 64;
  run("64 x 4096 group 8", batch);
  batch.head_dim = 64;
  run("64 x 4096 group 8 d64", batch);
  batch.head_dim = 256;
  batch.num_heads = 16;
  batch.num_kv_heads = 4;
  run("64 x 4096 4 kv d256", batch);
  batch.head_dim = 128;
  batch.num_kv_heads = 1;
  run("64 x 4096 1 kv group 16", batch);
}

}  // namespace

void time_decode(DecodeTimes times) {
  const double copy_rate = measure_roofs().copy;
  const int num_ways = times == DecodeTimes::kWays ? std::size(kWays) : 3;
  for (const bool fp8 : {false, true}) {
    const auto run = [&](const std::string& name, const Batch& batch) {
      time_batch(name, batch, num_ways, copy_rate);
    };
    run_few(fp8, run);
    if (times == DecodeTimes::kAll) {
      run_more(fp8, run);
    }
  }
}

}  // namespace atom::bench

int main(int argc, char** argv) {
  using atom::bench::DecodeTimes;
  const std::string part = argc > 1 ? argv[1] : "";
  int failures = 0;
  if (part.empty() || part == "check") {
    failures = atom::bench::check_decode();
  }
  if (part.empty() || part == "time") {
    atom::bench::time_decode(DecodeTimes::kAll);
  } else if (part == "few") {
    atom::bench::time_decode(DecodeTimes::kFew);
  } else if (part == "ways") {
    atom::bench::time_decode(DecodeTimes::kWays);
  }
  return failures == 0 ? 0 : 1;
}
