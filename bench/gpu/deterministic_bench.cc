// Checks and times what --deterministic puts in the place of faster kernels: linears of few rows
// and attention of single queries, each beside the kernel that serves without it.
//
// usage: deterministic_bench [check|linear|attention]
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention_batch.h"
#include "attention_timing.h"
#include "harness.h"
#include "linear_case.h"
#include "ops/attention/decode/decode_cuda.h"
#include "ops/attention/fixed/fixed_decode_cuda.h"
#include "ops/linear/ordered/ordered_sm90.h"
#include "ops/linear/skinny/skinny_cuda.h"
#include "ops/linear/stream/stream_sm90.h"
#include "ops/silu_and_mul/silu_and_mul_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;

constexpr Element kBF16 = Element::kBFloat16, kF8 = Element::kFloat8E4M3;
constexpr LinearCase kCases[] = {
    {"bf16", kBF16, kBF16, kBF16, LinearEpilogue::kStore, false, false},
    {"fp8", kF8, kF8, kBF16, LinearEpilogue::kStore, false, true},
};
constexpr OrderedTuning kTunings[] = {{0}, {8}, {64}};

struct NamedShape {
  const char* name;
  int64_t out_features, in_features;
};
// Of an 8B layer.
constexpr NamedShape kShapes[] = {
    {"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};

int check_linears() {
  int failed = 0;
  for (const LinearCase& c : kCases) {
    double worst = 0;
    bool same = true;
    for (const NamedShape& shape : {kShapes[0], kShapes[1], NamedShape{"small", 520, 1088 * 2}}) {
      for (const int64_t rows : {1, 5, 8, 13, 16, 24, 32, 33, 64}) {
        LinearOperands o(c, shape.out_features, shape.in_features, rows);
        std::vector<uint8_t> first;
        for (const OrderedTuning& tuning : kTunings) {
          o.reset();
          ATOM_BENCH_CHECK(launch_linear_ordered_sm90(o.params(), tuning, nullptr));
          const std::vector<uint8_t> result = o.result();
          if (first.empty()) first = result;
          same = same && result == first;
          worst = std::max(worst, o.error(result));
        }
        // Alone.
        o.reset();
        ATOM_BENCH_CHECK(launch_linear_ordered_sm90(o.params(rows - 1, 1), nullptr));
        const std::vector<uint8_t> alone = o.result();
        const int64_t begin = (rows - 1) * o.row_size();
        same = same && std::equal(first.begin() + begin, first.end(), alone.begin() + begin);
      }
    }
    const bool passed = worst <= 1 && same;
    failed += passed ? 0 : 1;
    std::printf("ordered %s: %s max_err %.3f of allowed%s\n",
                c.name,
                passed ? "PASS" : "FAIL",
                worst,
                same ? "" : ", bits differ");
  }
  return failed;
}

// Activated as it is summed up, or after it.
int check_gated() {
  int failed = 0;
  for (LinearCase c : kCases) {
    double worst = 0;
    bool same = true;
    for (const NamedShape& shape : {kShapes[2], NamedShape{"small", 2 * 520, 1088 * 2}}) {
      for (const int64_t rows : {1, 5, 8, 16, 32, 64}) {
        c.epilogue = LinearEpilogue::kSiluAndMul;
        LinearOperands o(c, shape.out_features, shape.in_features, rows);
        LinearGpuCall p = o.params();
        o.reset();
        ATOM_BENCH_CHECK(launch_linear_ordered_sm90(p, nullptr));
        const std::vector<uint8_t> fused = o.result();
        worst = std::max(worst, o.error(fused));
        o.reset();
        const Buffer product(rows * shape.out_features * bytes_of(c.y));
        SiluAndMulLaunch silu;
        silu.gate_up = product.data();
        silu.out = p.y;
        silu.gate_up_stride = shape.out_features;
        silu.out_stride = p.y_stride;
        silu.num_tokens = rows;
        silu.size = shape.out_features / 2;
        silu.element = c.y;
        p.epilogue = LinearEpilogue::kStore;
        p.y = product.data();
        p.y_stride = shape.out_features;
        ATOM_BENCH_CHECK(launch_linear_ordered_sm90(p, nullptr));
        ATOM_BENCH_CHECK(launch_silu_and_mul(silu, nullptr));
        same = same && o.result() == fused;
      }
    }
    const bool passed = worst <= 1 && same;
    failed += passed ? 0 : 1;
    std::printf("ordered %s with SiLU: %s max_err %.3f of allowed%s\n",
                c.name,
                passed ? "PASS" : "FAIL",
                worst,
                same ? "" : ", bits differ from those of two kernels");
  }
  return failed;
}

void time_linears() {
  const double read = measure_roofs().read;
  for (const LinearCase& c : kCases) {
    for (const NamedShape& shape : kShapes) {
      const auto size = shape.out_features * shape.in_features * bytes_of(c.weight);
      std::vector<std::unique_ptr<LinearOperands>> sets;
      for (int i = 0; i < sets_beyond_caches(size); ++i) {
        sets.push_back(
            std::make_unique<LinearOperands>(c, shape.out_features, shape.in_features, 64));
      }
      for (const int rows : {1, 8, 16, 32, 64}) {
        std::printf("%s %-7s M=%-2d:", c.name, shape.name, rows);
        const auto time = [&](const char* name, const auto& launch) {
          const double us = time_graph(
              [&](gpuStream_t stream) {
                for (const auto& set : sets) {
                  LinearGpuCall p = set->params(0, rows);
                  p.overlaps_previous = true;
                  ATOM_BENCH_CHECK(launch(p, stream));
                }
              },
              9);
          const double each = us / static_cast<double>(sets.size());
          std::printf(" %s %.2f us %.0f %%;", name, each, 100 * size / (each * 1e-6) / read);
        };
        for (const OrderedTuning& tuning : kTunings) {
          if (c.weight == kF8 && tuning.one_group_rows > 0) continue;
          const std::string name = "one group to " + std::to_string(tuning.one_group_rows);
          time(name.c_str(), [&](const LinearGpuCall& p, gpuStream_t stream) {
            return launch_linear_ordered_sm90(p, tuning, stream);
          });
        }
        if (&shape == &kShapes[2]) {
          time("with SiLU", [&](LinearGpuCall p, gpuStream_t stream) {
            p.epilogue = LinearEpilogue::kSiluAndMul;
            return launch_linear_ordered_sm90(p, stream);
          });
        }
        time("fast", [&](const LinearGpuCall& p, gpuStream_t stream) {
          return c.weight == kBF16 && rows <= 4 ? launch_linear_stream_sm90(p, stream)
                                                : launch_linear_skinny(p, nullptr, stream);
        });
        std::printf("\n");
      }
    }
  }
}

void time_attention() {
  const double copy = measure_roofs().copy;
  for (const bool fp8 : {false, true}) {
    for (const int count : {1, 8, 32, 64, 256}) {
      const AttentionBatchShape shape = equal_sequences(count, 1088, fp8);
      const AttentionBatch batch(shape, copies_beyond_caches(shape));
      const AttentionArgs params = batch.params(0);
      const DeviceBuffer workspace(std::max(attention_fixed_decode_workspace_size(params),
                                            attention_decode_workspace_size(params)) +
                                   16);
      const size_t num_counters = std::max(attention_fixed_decode_num_counters(params),
                                           attention_decode_num_counters(params));
      const DeviceBuffer counters(num_counters * sizeof(int32_t));
      check_gpu(ATOM_GPU(Memset)(counters.get(), 0, counters.size()), "clear");
      auto* const zeros = static_cast<int32_t*>(counters.get());
      const int launches = count < 8 ? 64 : count < 256 ? 20 : 4;
      const double fixed = graph_ms(launches, 20, [&](int i, gpuStream_t stream) {
        check_gpu(
            launch_attention_fixed_decode_cuda(batch.params(i), workspace.get(), zeros, stream),
            "fixed");
      });
      const double fast = graph_ms(launches, 20, [&](int i, gpuStream_t stream) {
        check_gpu(launch_attention_decode_cuda(batch.params(i), workspace.get(), zeros, stream),
                  "fast");
      });
      const auto share = [&](double ms) { return 100 * shape.bytes() / ms * 1e3 / copy; };
      std::printf("attention %s %3d x 1088: fixed %.2f us %.0f %%; fast %.2f us %.0f %% of copy\n",
                  fp8 ? "fp8" : "bf16",
                  count,
                  fixed * 1e3,
                  share(fixed),
                  fast * 1e3,
                  share(fast));
    }
  }
}

}  // namespace
}  // namespace atom::bench

namespace {
int check() {
  return atom::bench::check_linears() + atom::bench::check_gated();
}
}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string_view part = argc > 1 ? argv[1] : "";
  const int failed = part.empty() || part == "check" ? check() : 0;
  if (part.empty() || part == "linear") atom::bench::time_linears();
  if (part.empty() || part == "attention") atom::bench::time_attention();
  return failed == 0 ? 0 : 1;
}
