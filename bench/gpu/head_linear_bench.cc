// Times the projections of heads around latent attention. usage: head_linear_bench
#include "harness.h"
#include "ops/head_linear/head_linear_sm90.h"

namespace atom::bench {
namespace {

// 128 heads of `in` to `out`, whose weights take turns with others.
void time_projection(int tokens, int in, int in_pitch, int out, const Roofs& roofs) {
  constexpr int kHeads = 128;
  const int64_t size = int64_t{kHeads} * in * out * 2;
  const int sets = sets_beyond_caches(size);
  const Buffer weights(size * sets), x(int64_t{tokens} * kHeads * in_pitch * 2),
      y(int64_t{tokens} * kHeads * out * 2);
  fill_random(weights.data(), Element::kBFloat16, weights.size() / 2, 1.0f, 1);
  fill_random(x.data(), Element::kBFloat16, x.size() / 2, 1.0f, 2);
  const double us = time_call(
      [&](gpuStream_t stream, int set) {
        ops::HeadLinearArgs args = {};
        args.x = x.data();
        args.y = y.data();
        for (int head = 0; head < kHeads; ++head) {
          args.weights[head] = weights.data(set * size + int64_t{head} * in * out * 2);
        }
        args.x_stride = kHeads * in_pitch;
        args.y_stride = kHeads * out;
        args.x_pitch = in_pitch;
        args.y_pitch = out;
        args.num_tokens = tokens;
        args.num_heads = kHeads;
        args.in_features = in;
        args.out_features = out;
        args.element = Element::kBFloat16;
        ops::head_linear_sm90(args, stream);
      },
      tokens > 1024,
      sets);
  const int64_t bytes = size + int64_t{tokens} * kHeads * (in + out) * 2;
  std::printf("head_linear %3d -> %3d, %5d tokens: %8.2f us %5.1f %% of read %6.1f TFLOP/s\n",
              in,
              out,
              tokens,
              us,
              100 * static_cast<double>(bytes) / (us * 1e-6) / roofs.read,
              2.0 * tokens * kHeads * in * out / us * 1e-6);
  std::fflush(stdout);
}

}  // namespace
}  // namespace atom::bench

int main() {
  using namespace atom::bench;
  const Roofs roofs = measure_roofs();
  for (const int tokens : {1, 8, 64, 256, 2048}) {
    time_projection(tokens, 128, 192, 512, roofs);
    time_projection(tokens, 512, 512, 128, roofs);
  }
  return 0;
}
