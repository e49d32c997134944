// Checks and times decode attention. usage: attention_decode_bench
// [check|time|few|ways|models]
#include <cstdio>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "attention_batch.h"
#include "attention_decode_bench.h"
#include "attention_timing.h"
#include "harness.h"
#include "ops/attention/decode/decode_cuda.h"
#include "ops/device/programmatic_launch.cuh"

namespace atom::bench {
namespace {

using ops::AttentionArgs;
using ops::AttentionDecodeTuning;
using Batch = AttentionBatchShape;

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
double launch_ms(const AttentionBatch& batch,
                 const AttentionDecodeTuning& tuning,
                 Chain chain,
                 int launches) {
  const AttentionArgs first = batch.params(0);
  DeviceBuffer workspace(ops::attention_decode_workspace_size(first, tuning) + 16);
  const size_t num_counters = ops::attention_decode_num_counters(first);
  DeviceBuffer counters(num_counters * 4);
  check_gpu(ATOM_GPU(Memset)(counters.get(), 0, num_counters * 4), "clear");
  return graph_ms(launches, 25, [&](int i, gpuStream_t stream) {
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
  });
}

struct Way {
  const char* name;
  AttentionDecodeTuning tuning;
};

constexpr Way kWays[] = {
    {"default", {}},
    {"no clusters", {.max_cluster = 1}},
    {"shares", {.even_splits = false}},
    {"no overlap", {.overlaps_previous = false}},
    {"fixed", {.fixed_splits = true}},
    {"parts 1", {.max_parts = 1}},
    {"parts 4", {.max_parts = 4}},
    {"parts 16", {.max_parts = 16}},
};

// In the first `num_ways` ways.
void time_batch(const std::string& name, const Batch& batch, int num_ways, double copy_rate) {
  const double mib = batch.bytes() / (1 << 20);
  const AttentionBatch timed(batch, copies_beyond_caches(batch));
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

using Run = std::function<void(const std::string& name, const Batch& batch)>;

// Shapes that decide how work is to be divided.
void run_few(bool fp8, const Run& run) {
  for (int count : {1, 8, 32, 64, 256}) {
    run(std::to_string(count) + " x 1024", equal_sequences(count, 1024, fp8));
  }
  for (int count : {1, 4}) {
    run(std::to_string(count) + " x 32768", equal_sequences(count, 32768, fp8));
  }
  run("1 x 8192", equal_sequences(1, 8192, fp8));
  Batch batch = equal_sequences(64, 0, fp8);
  std::mt19937 random(3);
  for (int32_t& len : batch.seq_lens) {
    len = 100 + static_cast<int>(random() % 8000);
  }
  run("64 ragged to 8100", batch);
}

void run_more(bool fp8, const Run& run) {
  run("16 x 1024", equal_sequences(16, 1024, fp8));
  run("1 x 131072", equal_sequences(1, 131072, fp8));
  run("1 x 2048", equal_sequences(1, 2048, fp8));
  run("1 x 4096", equal_sequences(1, 4096, fp8));
  run("8 x 32768", equal_sequences(8, 32768, fp8));
  run("16 x 32768", equal_sequences(16, 32768, fp8));
  run("64 x 4096", equal_sequences(64, 4096, fp8));
  Batch batch = equal_sequences(256, 1030, fp8);
  batch.table_width = 8192;
  run("256 x 1030 wide table", batch);
  batch.seq_lens.assign(64, 300);
  batch.seq_lens[7] = 100000;
  run("64, one of 100000", batch);
  batch = equal_sequences(256, 1024, fp8);
  batch.num_heads = 16;
  run("256 x 1024 group 2", batch);
  batch = equal_sequences(64, 4096, fp8);
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

// The full layers of Qwen3-Next, and both kinds of gpt-oss.
void run_models(bool fp8, const Run& run) {
  for (const int count : {1, 8, 64}) {
    for (const int length : {1024, 16384}) {
      const std::string size = std::to_string(count) + " x " + std::to_string(length);
      Batch batch = equal_sequences(count, length, fp8);
      batch.head_dim = 256;
      batch.num_heads = 16;
      batch.num_kv_heads = 2;
      run(size + " 16/2 d256", batch);
      batch.head_dim = 64;
      batch.num_heads = 64;
      batch.num_kv_heads = 8;
      batch.has_sinks = true;
      run(size + " sinks d64", batch);
      batch.sliding_window = 128;
      run(size + " window d64", batch);
    }
  }
  Batch longest = equal_sequences(1, 262'144, fp8);
  longest.head_dim = 256;
  longest.num_heads = 16;
  longest.num_kv_heads = 2;
  run("1 x 262144 16/2 d256", longest);
}

}  // namespace

void time_decode(DecodeTimes times) {
  const double copy_rate = measure_roofs().copy;
  const int num_ways = times == DecodeTimes::kWays     ? std::size(kWays)
                       : times == DecodeTimes::kModels ? 2
                                                       : 3;
  for (const bool fp8 : {false, true}) {
    const auto run = [&](const std::string& name, const Batch& batch) {
      time_batch(name, batch, num_ways, copy_rate);
    };
    if (times == DecodeTimes::kModels) {
      run_models(fp8, run);
      continue;
    }
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
  } else if (part == "models") {
    atom::bench::time_decode(DecodeTimes::kModels);
  } else if (part == "ways") {
    atom::bench::time_decode(DecodeTimes::kWays);
  }
  return failures == 0 ? 0 : 1;
}
