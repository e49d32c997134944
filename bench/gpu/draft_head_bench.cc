// Times the output heads of models with draft layers as drafts multiply by them: in bfloat16, in
// FP8 with activations in bfloat16 and, beside, in FP8 with activations in FP8.
//
// usage: draft_head_bench
#include "harness.h"
#include "linear_case.h"
#include "ops/linear/skinny/skinny_cuda.h"
#include "ops/linear/stream/stream_sm90.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kBF16 = Element::kBFloat16, kF8 = Element::kFloat8E4M3, kF32 = Element::kFloat32;

struct Head {
  const char* name;
  int64_t vocab_size, hidden_size;
};
constexpr Head kHeads[] = {{"qwen3-next", 151936, 2048}, {"deepseek-v3", 129280, 7168}};

struct Way {
  LinearCase operands;
  bool streams;  // linear_stream, else linear_skinny
};
constexpr LinearEpilogue kStore = LinearEpilogue::kStore;
constexpr Way kWays[] = {{{"bf16 stream", kBF16, kBF16, kF32, kStore, false, false}, true},
                         {{"bf16 skinny", kBF16, kBF16, kF32, kStore, false, false}, false},
                         {{"fp8 x bf16 stream", kF8, kBF16, kF32, kStore, false, true}, true},
                         {{"fp8 x fp8 skinny", kF8, kF8, kBF16, kStore, false, true}, false}};

void time_way(const Head& head, const Way& way, double roof) {
  const LinearOperands operands(way.operands, head.vocab_size, head.hidden_size, kMaxSkinnyRows);
  const int64_t weight_size = head.vocab_size * head.hidden_size * bytes_of(way.operands.weight);
  for (const int rows : {1, 2, 4, 8, 12, 16, 32, 64}) {
    const LinearGpuCall call = operands.params(0, rows);
    if (!(way.streams ? supports_linear_stream_sm90(call) : supports_linear_skinny(call))) continue;
    const double us = time_graph(
        [&](gpuStream_t stream) {
          ATOM_BENCH_CHECK(way.streams ? launch_linear_stream_sm90(call, stream)
                                       : launch_linear_skinny(call, nullptr, stream));
        },
        9);
    std::printf("%-12s %-18s %2d rows: %7.1f us %5.1f %% of read\n",
                head.name,
                way.operands.name,
                rows,
                us,
                100 * static_cast<double>(weight_size) / (us * 1e-6) / roof);
  }
}

int run() {
  const Roofs roofs = measure_roofs();
  for (const Head& head : kHeads) {
    for (const Way& way : kWays) time_way(head, way, roofs.read);
  }
  return 0;
}

}  // namespace
}  // namespace atom::bench

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return atom::bench::run();
}
