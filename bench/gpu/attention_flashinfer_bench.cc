// Compares FlashInfer's attention with ours on the same tensors, results first, then times.
// usage: attention_flashinfer_bench [check|time]: both, comparisons of small batches with float64,
// or the timed shapes, each of which is compared with our result before it is timed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attention_batch.h"
#include "attention_difference.h"
#include "attention_timing.h"
#include "base/check.h"
#include "flashinfer_kernels.h"
#include "harness.h"
#include "ops/attention/decode/decode_cuda.h"
#include "ops/attention/prefill/prefill_sm90.h"

namespace atom::bench {
namespace {

using ops::AttentionArgs;

// Of a token and head, ||difference|| / ||result||: what rounding of weights, of partial results
// and of the result to bfloat16 may make of it. Two results may each be so far from the exact one.
constexpr double kTolerance = 6e-3;

using PlanFunction = FlashInferKernel (*)(const FlashInferBatch&);

struct Kernel {
  const char* name;
  PlanFunction plan;
};

constexpr Kernel kPrefills[] = {
    {"FA3 paged", plan_flashinfer_paged_prefill},
    {"FA3 ragged", plan_flashinfer_ragged_prefill},
};
constexpr Kernel kDecodes[] = {
    {"BatchDecode", plan_flashinfer_decode},
    {"tensor cores", plan_flashinfer_tensor_core_decode},
};

// ---- Small batches against float64 ----

uint16_t scaled(uint16_t bits, float scale) {
  const float value = __bfloat162float(__ushort_as_bfloat16(bits)) * scale;
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

int check_kernel(const Kernel& kernel, AttentionProblem& problem) {
  const FlashInferBatch batch(problem.params());
  const FlashInferKernel planned = kernel.plan(batch);
  problem.poison();
  planned.launch(batch, nullptr);
  check_gpu(ATOM_GPU(DeviceSynchronize)(), kernel.name);
  std::vector<uint16_t> out = problem.read_out();
  for (uint16_t& bits : out) {
    bits = scaled(bits, batch.params().v_scale);
  }
  double worst = 0;
  for (int token = 0; token < batch.params().num_tokens; ++token) {
    worst = std::max(worst, problem.error_of(out, token));
  }
  const bool passed = worst <= kTolerance;
  std::printf("%-28s %-12s: %s, %.1e\n",
              problem.shape().name.c_str(),
              kernel.name,
              passed ? "PASS" : "FAIL",
              worst);
  std::fflush(stdout);
  return passed ? 0 : 1;
}

AttentionCase small_case(const char* name) {
  AttentionCase shape;
  shape.name = name;
  shape.num_heads = 32;
  shape.num_kv_heads = 8;
  return shape;
}

int check_small() {
  int failures = 0;
  AttentionCase shape = small_case("prefill bf16");
  shape.sequences = {{300, 300}, {128, 128}, {1, 700}, {130, 515}, {1, 1}, {97, 97}};
  for (const int block_size : {16, 64}) {
    shape.block_size = block_size;
    AttentionProblem problem(shape, block_size);
    for (const Kernel& kernel : kPrefills) {
      failures += check_kernel(kernel, problem);
    }
  }
  for (const bool fp8 : {false, true}) {
    shape = small_case(fp8 ? "decode fp8" : "decode bf16");
    shape.kv_element = fp8 ? Element::kFloat8E4M3 : Element::kBFloat16;
    for (const int len : {1, 15, 16, 17, 129, 700, 1500, 4100}) {
      shape.sequences.push_back({1, len});
    }
    AttentionProblem few(shape, 7);
    // So many that their keys are not divided.
    shape.name += " of 600";
    shape.sequences.clear();
    for (int i = 0; i < 600; ++i) {
      shape.sequences.push_back({1, 1 + i % 97});
    }
    AttentionProblem many(shape, 8);
    for (const Kernel& kernel : kDecodes) {
      failures += check_kernel(kernel, few) + check_kernel(kernel, many);
    }
  }
  std::printf("check: %d failures\n", failures);
  return failures;
}

// ---- Timed shapes ----

using Launch = std::function<void(int, gpuStream_t)>;

// Results of launch 0 of both in `params.out`: the largest error of a token and head.
double difference_of(const AttentionArgs& params, const Launch& flashinfer, const Launch& ours) {
  const size_t size = size_t{2} * params.num_tokens * params.num_heads * params.head_dim;
  const auto run = [&](const Launch& launch) {
    check_gpu(ATOM_GPU(Memset)(params.out, 0xff, size), "poison");
    launch(0, nullptr);
    check_gpu(ATOM_GPU(DeviceSynchronize)(), "compare");
  };
  const DeviceBuffer expected(size);
  run(ours);
  check_gpu(ATOM_GPU(Memcpy)(expected.get(), params.out, size, ATOM_GPU(MemcpyDeviceToDevice)),
            "keep");
  run(flashinfer);
  return largest_row_difference(
      params.out, expected.get(), int64_t{params.num_tokens} * params.num_heads, params.head_dim);
}

struct Times {
  double flashinfer = 0;  // ms
  double ours = 0;
};

// The best of three medians of each, taken in turns: the card's clock depends on what ran before.
Times times_of(int num_launches, int repeats, const Launch& flashinfer, const Launch& ours) {
  Times best = {INFINITY, INFINITY};
  for (int round = 0; round < 3; ++round) {
    best.flashinfer = std::min(best.flashinfer, graph_ms(num_launches, repeats, flashinfer));
    best.ours = std::min(best.ours, graph_ms(num_launches, repeats, ours));
  }
  return best;
}

// One shape with the launches that are compared.
struct Comparison {
  std::string name;
  AttentionArgs params;
  Launch flashinfer;
  Launch ours;
  int num_launches = 1;  // in a graph
  int repeats = 15;
  double work = 0;         // of a launch: FLOPs or bytes
  double unit = 1;         // of work per second
  const char* label = "";  // of work in that unit
};

// Prints a row; returns the number of failures.
int compare(const Comparison& comparison) {
  const double error = difference_of(comparison.params, comparison.flashinfer, comparison.ours);
  std::printf("%-36s ", comparison.name.c_str());
  if (!(error <= 2 * kTolerance)) {
    std::printf("FAIL: differs from ours by %.1e, allowed are %.1e\n", error, 2 * kTolerance);
    return 1;
  }
  const Times times =
      times_of(comparison.num_launches, comparison.repeats, comparison.flashinfer, comparison.ours);
  const auto rate = [&](double ms) { return comparison.work / ms * 1e3 / comparison.unit; };
  std::printf("FlashInfer %8.1f us %5.1f %s, ours %8.1f us %5.1f, ratio %.2f, differ by %.1e\n",
              times.flashinfer * 1e3,
              rate(times.flashinfer),
              comparison.label,
              times.ours * 1e3,
              rate(times.ours),
              times.flashinfer / times.ours,
              error);
  std::fflush(stdout);
  return 0;
}

int compare_prefill(int num_tokens) {
  AttentionBatchShape shape = equal_sequences(1, num_tokens, false);
  shape.num_queries = num_tokens;
  const AttentionBatch batch(shape, 1);
  const AttentionArgs params = batch.params(0);
  CHECK(ops::supports_attention_prefill_sm90(params));
  CHECK(ops::attention_prefill_sm90_workspace_size(params) == 0u);
  const DeviceBuffer counter(sizeof(int32_t));
  check_gpu(ATOM_GPU(Memset)(counter.get(), 0, counter.size()), "clear");
  const FlashInferBatch flashinfer(params);
  int failures = 0;
  for (const Kernel& kernel : kPrefills) {
    const FlashInferKernel planned = kernel.plan(flashinfer);
    Comparison comparison;
    comparison.name = "prefill " + std::to_string(num_tokens) + " " + kernel.name;
    comparison.params = params;
    comparison.flashinfer = [&](int, gpuStream_t stream) { planned.launch(flashinfer, stream); };
    comparison.ours = [&](int, gpuStream_t stream) {
      check_gpu(ops::launch_attention_prefill_sm90(
                    params, 1, nullptr, 0, static_cast<int32_t*>(counter.get()), stream),
                "prefill");
    };
    comparison.repeats = num_tokens > 20000 ? 7 : 15;
    comparison.work = 4.0 * num_tokens * (num_tokens / 2.0) * params.num_heads * params.head_dim;
    comparison.unit = 1e12;
    comparison.label = "TFLOP/s";
    failures += compare(comparison);
  }
  return failures;
}

int compare_decode(int num_sequences, int seq_len, bool fp8, double copy_rate) {
  const AttentionBatchShape shape = equal_sequences(num_sequences, seq_len, fp8);
  const int num_copies = copies_beyond_caches(shape);
  const AttentionBatch batch(shape, num_copies);
  const AttentionArgs params = batch.params(0);
  CHECK(ops::supports_attention_decode_cuda(params));
  const DeviceBuffer workspace(ops::attention_decode_workspace_size(params) + 16);
  const DeviceBuffer counters(ops::attention_decode_num_counters(params) * 4);
  check_gpu(ATOM_GPU(Memset)(counters.get(), 0, counters.size()), "clear");
  std::vector<FlashInferBatch> copies;
  for (int i = 0; i < num_copies; ++i) {
    copies.emplace_back(batch.params(i));
  }
  const double mib = shape.bytes() / (1 << 20);
  int failures = 0;
  for (const Kernel& kernel : kDecodes) {
    const FlashInferKernel planned = kernel.plan(copies[0]);
    Comparison comparison;
    comparison.name = std::string(fp8 ? "decode fp8 " : "decode bf16 ") +
                      std::to_string(num_sequences) + " x " + std::to_string(seq_len) + " " +
                      kernel.name + " /" + std::to_string(planned.num_parts / num_sequences);
    comparison.params = params;
    comparison.flashinfer = [&](int i, gpuStream_t stream) {
      planned.launch(copies[i % num_copies], stream);
    };
    comparison.ours = [&](int i, gpuStream_t stream) {
      check_gpu(
          ops::launch_attention_decode_cuda(
              batch.params(i), workspace.get(), static_cast<int32_t*>(counters.get()), stream),
          "decode");
    };
    comparison.num_launches = mib < 20 ? 64 : mib < 300 ? 20 : 4;
    comparison.work = shape.bytes();
    comparison.unit = copy_rate / 100;
    comparison.label = "% of copy";
    failures += compare(comparison);
  }
  return failures;
}

int compare_times() {
  const double copy_rate = measure_roofs().copy;
  std::printf(
      "32 query heads, 8 of keys and values, head dim 128, blocks of 16 tokens. Plans are not "
      "timed.\nratio: FlashInfer's time / ours. /n: rows of partial results for each sequence.\n");
  int failures = compare_prefill(8192) + compare_prefill(32768);
  for (const bool fp8 : {false, true}) {
    for (const int num_sequences : {8, 32, 64, 256}) {
      failures += compare_decode(num_sequences, 1024, fp8, copy_rate);
    }
    failures += compare_decode(64, 4096, fp8, copy_rate);
  }
  return failures;
}

void require_hopper() {
  int device = 0;
  int major = 0;
  int minor = 0;
  check_gpu(ATOM_GPU(GetDevice)(&device), "find a GPU");
  check_gpu(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "attribute");
  check_gpu(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "attribute");
  if (major != 9 || minor != 0) {
    std::printf("this GPU has compute capability %d.%d, the kernels are for 9.0\n", major, minor);
    std::exit(2);
  }
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  const std::string_view part = argc > 1 ? argv[1] : "";
  if (argc > 2 || !(part.empty() || part == "check" || part == "time")) {
    std::printf("usage: attention_flashinfer_bench [check|time]\n");
    return 2;
  }
  try {
    atom::bench::require_hopper();
    int failures = 0;
    if (part != "time") failures += atom::bench::check_small();
    if (part != "check") failures += atom::bench::compare_times();
    return failures == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("attention_flashinfer_bench: %s\n", error.what());
    return 1;
  }
}
