// Checks and times decode attention. usage: attention_decode_bench
// [check|time|few|rows|ways|models]
#include <cstdio>
#include <functional>
#include <iterator>
#include <random>
#include <span>
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

// Of many rows: in shares, or cut alike whatever that leaves idle, with so many head items that a
// block takes at once.
constexpr int kAnyTiles = 1 << 20;
constexpr Way kRowsWays[] = {
    {"default", {}},
    {"shares", {.even_splits = false}},
    {"alike", {.shares_tiles = kAnyTiles}},
    {"1 item", {.max_even_teams = 1, .shares_tiles = kAnyTiles}},
    {"2 items", {.max_even_teams = 2, .shares_tiles = kAnyTiles}},
    {"4 items", {.max_even_teams = 4, .shares_tiles = kAnyTiles}},
};

// In all ways, of which the first `num_between` also between other launches.
void time_batch(const std::string& name,
                const Batch& batch,
                std::span<const Way> ways,
                int num_between,
                double copy_rate) {
  const double mib = batch.bytes() / (1 << 20);
  const AttentionBatch timed(batch, copies_beyond_caches(batch));
  // As a captured sequence, without the host's gaps.
  const int launches = mib < 20 ? 64 : mib < 300 ? 20 : 4;
  std::printf("%-5s %-22s %6.0f MiB:", batch.fp8 ? "fp8" : "bf16", name.c_str(), mib);
  const auto print = [&](const std::string& what, double ms) {
    const double rate = batch.bytes() / ms * 1e3;
    std::printf(" %s %.1f us %.2f TB/s %.1f %%;",
                what.c_str(),
                ms * 1e3,
                rate / 1e12,
                100 * rate / copy_rate);
    std::fflush(stdout);
  };
  for (const Way& way : ways) {
    print(way.name, launch_ms(timed, way.tuning, Chain::kAttention, launches));
  }
  const double others = launch_ms(timed, {}, Chain::kOther, launches);
  for (const Way& way : ways.first(num_between)) {
    const std::string what = num_between == 1 ? "" : std::string(way.name) + " ";
    print(what + "between others", launch_ms(timed, way.tuning, Chain::kBoth, launches) - others);
  }
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

// Many rows, of one length and of spread ones, with the heads of Qwen3-30B, Llama-8B, gpt-oss and
// Qwen3-Next.
void run_rows(bool fp8, const Run& run) {
  const auto with_heads = [](Batch batch, int num_heads, int num_kv_heads, int head_dim) {
    batch.num_heads = num_heads;
    batch.num_kv_heads = num_kv_heads;
    batch.head_dim = head_dim;
    return batch;
  };
  for (const int count : {64, 256, 32, 40, 100}) {
    const std::string size = std::to_string(count) + " x 1024";
    const Batch batch = equal_sequences(count, 1024, fp8);
    run(size + " 32/4 d128", with_heads(batch, 32, 4, 128));
    run(size + " 32/8 d128", batch);
    run(size + " 16/2 d256", with_heads(batch, 16, 2, 256));
    Batch window = with_heads(batch, 64, 8, 64);
    window.has_sinks = true;
    run(size + " 64/8 d64", window);
    window.sliding_window = 128;
    run(size + " window", window);
  }
  Batch spread = with_heads(equal_sequences(256, 0, fp8), 32, 4, 128);
  std::mt19937 random(3);
  for (int32_t& len : spread.seq_lens) {
    len = 1024 + static_cast<int>(random() % 1024);
  }
  run("256 of 1024 to 2047", spread);
  for (int32_t& len : spread.seq_lens) {
    len = 1024 + len % 32;
  }
  run("256 of 1024 to 1055", spread);
  spread.seq_lens[100] = 4096;
  run("256, one of 4096", spread);
}

}  // namespace

void time_decode(DecodeTimes times) {
  const double copy_rate = measure_roofs().copy;
  const std::span<const Way> ways = kWays;
  for (const bool fp8 : {false, true}) {
    const auto run_in = [&](std::span<const Way> some, int num_between) {
      return [=](const std::string& name, const Batch& batch) {
        time_batch(name, batch, some, num_between, copy_rate);
      };
    };
    switch (times) {
      case DecodeTimes::kModels:
        run_models(fp8, run_in(ways.first(2), 1));
        break;
      case DecodeTimes::kRows:
        run_rows(fp8, run_in(kRowsWays, std::size(kRowsWays)));
        break;
      case DecodeTimes::kFew:
        run_few(fp8, run_in(ways.first(3), 1));
        break;
      case DecodeTimes::kAll:
        run_few(fp8, run_in(ways.first(3), 1));
        run_more(fp8, run_in(ways.first(3), 1));
        break;
      case DecodeTimes::kWays:
        run_few(fp8, run_in(ways, 1));
        break;
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
  } else if (part == "rows") {
    atom::bench::time_decode(DecodeTimes::kRows);
  } else if (part == "models") {
    atom::bench::time_decode(DecodeTimes::kModels);
  } else if (part == "ways") {
    atom::bench::time_decode(DecodeTimes::kWays);
  }
  return failures == 0 ? 0 : 1;
}
