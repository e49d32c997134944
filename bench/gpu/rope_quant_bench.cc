// Checks and times the GPU kernels between a step's multiplications that are not norms or
// activations: rotary embedding with the cache's new rows, and quantization of activations.
//
// usage: rope_quant_bench
//
// Checks compare with the formulas of the operators' headers in double. Timings are in percent of
// the copy bandwidth and, of large calls, of copies of as many bytes, measured in the same run.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "harness.h"
#include "ops/qk_norm_rope_cache/qk_norm_rope_cache_kernels.h"
#include "ops/quantize/quantize_kernels.h"
#include "ops/rotary_embedding/rotary_embedding_kernels.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr int64_t kFewRows = 256;  // timed in a graph
constexpr Element kBF16 = Element::kBFloat16, kF8 = Element::kFloat8E4M3;

double bf16(double value) {
  return __bfloat162float(__float2bfloat16_rn(static_cast<float>(value)));
}

// Packed queries, keys and values of `tokens` tokens, and a cache with room for them in a random
// order.
class RopeCall {
 public:
  static constexpr int64_t kHeads = 32, kKvHeads = 8, kDim = 128;
  static constexpr int64_t kRow = (kHeads + 2 * kKvHeads) * kDim;

  RopeCall(int64_t tokens, bool float8, bool norm)
      : qkv(tokens * kRow * 2),
        weights(2 * kDim * 2),
        caches(2 * tokens * kKvHeads * kDim * 2),
        positions(tokens * 4),
        slots(tokens * 4),
        cos_sin(tokens * kDim * 4),
        host_slots(tokens) {
    fill_random(qkv.data(), kBF16, tokens * kRow, 3.0f, 51);
    fill_random(weights.data(), kBF16, 2 * kDim, 1.5f, 52);
    fill_random(cos_sin.data(), Element::kFloat32, tokens * kDim, 1.0f, 53);
    std::iota(host_slots.begin(), host_slots.end(), 0);
    positions.upload(host_slots);
    // Blocks of 16 slots, shuffled.
    std::vector<int32_t> blocks((tokens + 15) / 16);
    std::iota(blocks.begin(), blocks.end(), 0);
    if (tokens % 16 == 0) std::shuffle(blocks.begin(), blocks.end(), std::mt19937(5));
    for (int64_t t = 0; t < tokens; ++t) {
      host_slots[t] = blocks[t / 16] * 16 + static_cast<int32_t>(t % 16);
    }
    slots.upload(host_slots);
    args.heads[0] = {qkv.data(), kRow, kDim, kHeads};
    args.heads[1] = {qkv.data(kHeads * kDim * 2), kRow, kDim, kKvHeads};
    args.heads[2] = {qkv.data((kHeads + kKvHeads) * kDim * 2), kRow, kDim, kKvHeads};
    if (norm) {
      args.weights[0] = weights.data();
      args.weights[1] = weights.data(kDim * 2);
    }
    args.caches[0] = {caches.data(), float8 ? 0.02f : 1.0f};
    args.caches[1] = {caches.data(tokens * kKvHeads * kDim * 2), float8 ? 0.03f : 1.0f};
    args.positions = positions.data<int32_t>();
    args.slots = slots.data<int32_t>();
    args.cos_sin = cos_sin.data<float>();
    args.cos_sin_stride = kDim;
    args.max_position = args.num_tokens = args.num_slots = tokens;
    args.head_dim = args.rotary_dim = kDim;
    args.eps = 1e-6f;
    args.element = Element::kBFloat16;
    args.float8_cache = float8;
  }

  Buffer qkv, weights, caches, positions, slots, cos_sin;
  std::vector<int32_t> host_slots;
  QkNormRopeCacheArgs args = {};
};

// `cos_sin`: a row of cosines, then of sines.
std::vector<double> rotated_row(const std::vector<double>& value, const float* cos_sin) {
  const size_t half = value.size() / 2;
  std::vector<double> result(value.size());
  for (size_t i = 0; i < half; ++i) {
    const double c = cos_sin[i], s = cos_sin[half + i];
    result[i] = value[i] * c - value[half + i] * s;
    result[half + i] = value[half + i] * c + value[i] * s;
  }
  return result;
}

int check_rope(int64_t tokens, bool float8, bool norm) {
  const int64_t dim = RopeCall::kDim, kv_heads = RopeCall::kKvHeads;
  const int64_t rotated = RopeCall::kHeads + kv_heads;
  RopeCall call(tokens, float8, norm);
  const auto before = call.qkv.download<uint8_t>(), weights = call.weights.download<uint8_t>();
  const auto cos_sin = call.cos_sin.download<float>();
  qk_norm_rope_cache_cuda(call.args, nullptr);
  const auto after = call.qkv.download<uint8_t>(), cache = call.caches.download<uint8_t>();
  Verdict verdict;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t head = 0; head < rotated + kv_heads; ++head) {
      const int64_t place = t * RopeCall::kRow + head * dim;
      const bool is_key = head >= RopeCall::kHeads && head < rotated;
      std::vector<double> value(dim);
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) {
        value[i] = element_value(kBF16, before.data(), place + i);
        squares += value[i] * value[i];
      }
      if (norm && head < rotated) {
        const double scale = 1 / std::sqrt(squares / dim + 1e-6);
        for (int64_t i = 0; i < dim; ++i) {
          const double weight = element_value(kBF16, weights.data(), (is_key ? dim : 0) + i);
          value[i] = bf16(weight * bf16(value[i] * scale));
        }
      }
      double size = 0;  // of a pair, which bounds what a rounding of either can change
      for (const double x : value) size = std::max(size, std::fabs(x));
      const std::vector<double> result =
          head >= rotated ? value : rotated_row(value, cos_sin.data() + t * dim);
      const double unit = size * (norm ? 0x1p-6 : 0x1p-7) + 1e-6;
      for (int64_t i = 0; i < dim; ++i) {
        if (head < RopeCall::kHeads) {
          verdict.see(element_value(kBF16, after.data(), place + i), result[i], unit);
          continue;
        }
        const int64_t kv_head = (head - RopeCall::kHeads) % kv_heads;
        const int64_t slot = (call.host_slots[t] * kv_heads + kv_head) * dim + i;
        const uint8_t* rows = cache.data() + (is_key ? 0 : tokens * kv_heads * dim * 2);
        const double scale = call.args.caches[is_key ? 0 : 1].scale;
        const double expected = float8 ? std::clamp(result[i] / scale, -448.0, 448.0) : result[i];
        const double allowed = float8 ? std::fabs(expected) * 0x1p-4 + unit / scale + 0x1p-9 : unit;
        verdict.see(element_value(float8 ? kF8 : kBF16, rows, slot), expected, allowed);
      }
    }
  }
  char what[96];
  std::snprintf(what,
                sizeof what,
                "rope and cache fp8=%d norm=%d %ld rows",
                float8,
                norm,
                static_cast<long>(tokens));
  return verdict.print(what);
}

QuantizeArgs quant_args(const Buffer& x, const Buffer& codes, const Buffer& scales, int64_t size) {
  QuantizeArgs args = {};
  args.x = x.data();
  args.values = codes.data<uint8_t>();
  args.scales = scales.data<float>();
  args.x_stride = args.values_stride = args.size = size;
  args.element = Element::kBFloat16;
  args.dtype = QuantDType::kFloat8E4M3;
  args.group_size = size;
  return args;
}

int check_quant(int64_t rows, int64_t size) {
  const Buffer x(rows * size * 2), codes(rows * size), scales(rows * 4);
  fill_random(x.data(), kBF16, rows * size, 3.0f, 61);
  quantize_vector_cuda(quant_args(x, codes, scales, size), rows, nullptr);
  const auto host_x = x.download<uint8_t>(), got = codes.download<uint8_t>();
  const auto got_scales = scales.download<float>();
  Verdict verdict;
  for (int64_t row = 0; row < rows; ++row) {
    double largest = 0;
    for (int64_t i = 0; i < size; ++i) {
      largest = std::max(largest, std::fabs(element_value(kBF16, host_x.data(), row * size + i)));
    }
    verdict.see(got_scales[row], largest / 448, largest / 448 * 0x1p-22);
    for (int64_t i = 0; i < size; ++i) {
      const double expected = element_value(kBF16, host_x.data(), row * size + i) / got_scales[row];
      verdict.see(element_value(kF8, got.data(), row * size + i),
                  expected,
                  std::fabs(expected) * 0x1p-4 * 1.001 + 0x1p-10 * 1.001);
    }
  }
  char what[96];
  std::snprintf(what,
                sizeof what,
                "quantize size %ld %ld rows",
                static_cast<long>(size),
                static_cast<long>(rows));
  return verdict.print(what);
}

void time_rope(const Roofs& roofs, int64_t tokens, bool float8, bool norm) {
  const RopeCall rope(tokens, float8, norm);
  const bool large = tokens > kFewRows;
  const auto call = [&](gpuStream_t s, int) { qk_norm_rope_cache_cuda(rope.args, s); };
  char what[96];
  std::snprintf(what,
                sizeof what,
                "rope and cache fp8=%d norm=%d %ld rows",
                float8,
                norm,
                static_cast<long>(tokens));
  const int64_t cached = 2 * RopeCall::kKvHeads * RopeCall::kDim;
  const int64_t angles = RopeCall::kDim * 4 + 8;  // with the position and the slot
  const int64_t bytes = RopeCall::kRow * 2 + RopeCall::kHeads * RopeCall::kDim * 2 +
                        cached * (float8 ? 1 : 2) + angles;
  report(what, time_call(call, large), tokens * bytes, large, roofs);
}

// The rotated parts of DeepSeek-V3's queries and of the one key, in place.
void time_latent_rope(const Roofs& roofs, int64_t tokens) {
  constexpr int64_t kHeads = 128, kHead = 192, kRope = 64, kLatent = 576;
  const Buffer q(tokens * kHeads * kHead * 2), k(tokens * kLatent * 2), positions(tokens * 4);
  const Buffer angles(kRope * 4);
  fill_random(q.data(), kBF16, tokens * kHeads * kHead, 1.0f, 71);
  fill_random(k.data(), kBF16, tokens * kLatent, 1.0f, 72);
  fill_random(angles.data(), Element::kFloat32, kRope, 0.7f, 73);
  ATOM_BENCH_CHECK(ATOM_GPU(Memset)(positions.data(), 0, positions.size()));
  RotaryEmbeddingArgs args = {};
  args.heads[0] = {q.data((kHead - kRope) * 2), kHeads, kHeads * kHead, kHead};
  args.heads[1] = {k.data((kLatent - kRope) * 2), 1, kLatent, kLatent};
  args.positions = positions.data<int32_t>();
  args.cos_sin = angles.data<float>();
  args.cos_sin_stride = kRope;
  args.max_position = 1;
  args.rotary_dim = kRope;
  args.element = kBF16;
  args.interleaved = true;
  const bool large = tokens > kFewRows;
  const auto call = [&](gpuStream_t s, int) { rotary_embedding_cuda(args, tokens, s); };
  char what[96];
  std::snprintf(what, sizeof what, "rope of latents, %ld rows", static_cast<long>(tokens));
  report(what, time_call(call, large), 2 * tokens * (kHeads + 1) * kRope * 2, large, roofs);
}

void time_quant(const Roofs& roofs, int64_t rows, int64_t size) {
  const bool large = rows > kFewRows;
  const int sets = large ? sets_beyond_caches(rows * size * 2) : 1;
  const Buffer x(rows * size * 2 * sets), codes(rows * size * sets), scales(rows * 4);
  fill_random(x.data(), kBF16, rows * size * sets, 3.0f, 61);
  const QuantizeArgs args = quant_args(x, codes, scales, size);
  const auto call = [&](gpuStream_t s, int set) {
    QuantizeArgs one = args;
    one.x = x.data(set * rows * size * 2);
    one.values = codes.data<uint8_t>(set * rows * size);
    quantize_vector_cuda(one, rows, s);
  };
  char what[96];
  std::snprintf(what,
                sizeof what,
                "quantize size %ld %ld rows",
                static_cast<long>(size),
                static_cast<long>(rows));
  report(what, time_call(call, large, sets), rows * size * 3, large, roofs);
}

int run() {
  const Roofs roofs = measure_roofs();
  int failed = 0;
  for (const bool float8 : {false, true}) {
    for (const bool norm : {false, true}) {
      for (const int64_t tokens : {48, 560}) failed += check_rope(tokens, float8, norm);
    }
  }
  for (const int64_t size : {64, 1536, 4096, 14336, 16384}) {
    failed += check_quant(29, size) + check_quant(1100, size);
  }
  for (const int64_t rows : {1, 8, 64, 256, 512, 1024, 2048, 8192, 32768, 65536}) {
    time_rope(roofs, rows, false, false);
    time_rope(roofs, rows, true, false);
    time_rope(roofs, rows, false, true);
    if (rows <= 8192) time_latent_rope(roofs, rows);
    time_quant(roofs, rows, 4096);
    time_quant(roofs, rows, 14336);
  }
  std::printf("rope_quant_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return atom::bench::run();
}
