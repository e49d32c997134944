// Checks and times the GPU kernels that move data: norms, activation, rotary embedding with cache
// write, embedding, quantisation, argmax.
//
// usage: elementwise_bench
//
// Checks compare with the formulas of the operators' headers, evaluated in double on the host with
// the same intermediate roundings. Timings are in percent of the copy bandwidth (argmax: of the
// read bandwidth) measured in the same run.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/qk_norm_rope_cache/qk_norm_rope_cache_cuda.h"
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/silu_and_mul/silu_and_mul_cuda.h"
#include "sampling/argmax_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr GpuElement kBF16 = GpuElement::kBFloat16, kF16 = GpuElement::kFloat16,
                     kF8 = GpuElement::kFloat8E4M3, kF32 = GpuElement::kFloat32;

const char* name_of(GpuElement element) {
  switch (element) {
    case GpuElement::kFloat32:
      return "f32";
    case GpuElement::kFloat16:
      return "f16";
    case GpuElement::kBFloat16:
      return "bf16";
    case GpuElement::kFloat8E4M3:
      return "fp8";
  }
  return "";
}

double rounded(GpuElement element, double value) {
  const auto as_float = static_cast<float>(value);
  if (element == kBF16) return __bfloat162float(__float2bfloat16_rn(as_float));
  if (element == kF16) return __half2float(__float2half_rn(as_float));
  return as_float;
}

// What one rounding to the type may be off, relative.
double unit_of(GpuElement element) {
  switch (element) {
    case GpuElement::kFloat32:
      return 0x1p-22;  // a few operations
    case GpuElement::kFloat16:
      return 0x1p-11;
    case GpuElement::kBFloat16:
      return 0x1p-8;
    case GpuElement::kFloat8E4M3:
      return 0x1p-4;
  }
  return 0;
}

struct Verdict {
  double worst = 0;
  void see(double got, double expected, double allowed) {
    const double error = std::fabs(got - expected) / allowed;
    if (!(error <= worst)) worst = error == error ? error : 1e9;
  }
  int print(const char* what) const {
    const bool passed = worst <= 1;
    std::printf("%-44s: %s max_err %.3f of allowed\n", what, passed ? "PASS" : "FAIL", worst);
    return passed ? 0 : 1;
  }
};

// Sees a row of FP8 values and its scale against the unquantised values. Where the value before
// quantisation may differ by a rounding, the quantised one may be a neighbour.
void see_float8(Verdict& verdict,
                const std::vector<double>& expected,
                const uint8_t* got,
                float scale,
                bool dynamic) {
  double largest = 0;
  for (double value : expected) largest = std::max(largest, std::fabs(value));
  if (dynamic)
    verdict.see(scale, largest > 0 ? largest / 448 : 1.0, largest / 448 * 0x1p-7 + 1e-12);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double clamped = std::clamp(expected[i] / scale, -448.0, 448.0);
    verdict.see(element_value(kF8, got, static_cast<int64_t>(i)),
                clamped,
                std::fabs(clamped) * (0x1p-4 + 0x1p-7) + 0x1p-10 + 1e-6);
  }
}

int check_rms_norm(GpuElement element, bool residual, bool rounds_once, int float8, int64_t size) {
  const int64_t rows = 37, stride = size + 16, bytes = gpu_element_size(element);
  const GpuElement weight_element = rounds_once ? kF32 : element;
  Buffer x(rows * stride * bytes), sum(rows * stride * bytes), out(rows * size * 4),
      scale(rows * 4), weight(size * 4);
  fill_random(x.data(), element, rows * stride, 3.0f, 21);
  fill_random(sum.data(), element, rows * stride, 3.0f, 22);
  fill_random(weight.data(), weight_element, size, 1.5f, 23);
  out.fill_bytes(0xff);
  scale.upload(std::vector<float>(rows, 0.03f));
  const auto host_x = x.download<uint8_t>(), host_sum = sum.download<uint8_t>(),
             host_weight = weight.download<uint8_t>();
  RmsNormLaunch p;
  p.x = x.data();
  if (residual) p.residual = sum.data();
  p.weight = weight.data();
  p.out = out.data();
  p.scale = scale.data<float>();
  p.x_strides[0] = p.residual_stride = stride;
  p.out_strides[0] = size;
  p.num_tokens = rows;
  p.size = size;
  p.eps = 1e-5f;
  p.element = element;
  p.rounds_once = rounds_once;
  p.float8_out = float8 != 0;
  p.scale_per_row = float8 == 2;
  ATOM_BENCH_CHECK(launch_rms_norm(p, nullptr));
  const auto got = out.download<uint8_t>(), got_sum = sum.download<uint8_t>();
  const auto got_scale = scale.download<float>();

  Verdict verdict;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> value(size);
    double squares = 0;
    for (int64_t i = 0; i < size; ++i) {
      value[i] = element_value(element, host_x.data(), row * stride + i);
      if (residual) {
        value[i] =
            rounded(element, value[i] + element_value(element, host_sum.data(), row * stride + i));
        verdict.see(element_value(element, got_sum.data(), row * stride + i), value[i], 1e-30);
      }
      squares += value[i] * value[i];
    }
    const double norm = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
    for (int64_t i = 0; i < size; ++i) {
      double y = value[i] * norm;
      if (!rounds_once) y = rounded(element, y);
      value[i] = rounded(element, y * element_value(weight_element, host_weight.data(), i));
      if (float8 != 0) continue;
      verdict.see(element_value(element, got.data(), row * size + i),
                  value[i],
                  std::fabs(value[i]) * unit_of(element) * 2.1 + 1e-9);
    }
    if (float8 != 0) {
      see_float8(
          verdict, value, got.data() + row * size, got_scale[float8 == 2 ? row : 0], float8 == 2);
    }
  }
  char what[128];
  std::snprintf(what,
                sizeof what,
                "rms_norm %s%s%s fp8=%d size %ld",
                name_of(element),
                residual ? " +residual" : "",
                rounds_once ? " float weight" : "",
                float8,
                static_cast<long>(size));
  return verdict.print(what);
}

int check_head_norm() {
  const int64_t tokens = 19, heads = 5, dim = 128, stride = 1024;
  Buffer x(tokens * stride * 2), weight(dim * 2);
  fill_random(x.data(), kBF16, tokens * stride, 3.0f, 31);
  fill_random(weight.data(), kBF16, dim, 1.5f, 32);
  const auto before = x.download<uint8_t>(), host_weight = weight.download<uint8_t>();
  RmsNormLaunch p;
  p.x = p.out = x.data();
  p.weight = weight.data();
  p.x_strides[0] = p.out_strides[0] = stride;
  p.x_strides[1] = p.out_strides[1] = dim;
  p.num_tokens = tokens;
  p.num_heads = heads;
  p.size = dim;
  p.eps = 1e-6f;
  ATOM_BENCH_CHECK(launch_rms_norm(p, nullptr));
  const auto after = x.download<uint8_t>();
  Verdict verdict;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = heads * dim; i < stride; ++i) {
      verdict.see(element_value(kBF16, after.data(), t * stride + i),
                  element_value(kBF16, before.data(), t * stride + i),
                  1e-30);
    }
    for (int64_t h = 0; h < heads; ++h) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) {
        squares += std::pow(element_value(kBF16, before.data(), t * stride + h * dim + i), 2);
      }
      const double norm = 1 / std::sqrt(squares / dim + 1e-6);
      for (int64_t i = 0; i < dim; ++i) {
        const double y =
            rounded(kBF16, element_value(kBF16, before.data(), t * stride + h * dim + i) * norm) *
            element_value(kBF16, host_weight.data(), i);
        verdict.see(element_value(kBF16, after.data(), t * stride + h * dim + i),
                    y,
                    std::fabs(y) * 0x1p-8 * 1.6 + 1e-9);
      }
    }
  }
  return verdict.print("rms_norm of heads in place");
}

int check_silu(GpuElement element, int float8, int64_t size, bool quantize_only) {
  const int64_t rows = 23, stride = 2 * size + 8, bytes = gpu_element_size(element);
  Buffer x(rows * stride * bytes), out(rows * size * 4), scale(rows * 4);
  fill_random(x.data(), element, rows * stride, 6.0f, 41);
  out.fill_bytes(0xff);
  scale.upload(std::vector<float>(rows, 0.05f));
  const auto host_x = x.download<uint8_t>();
  if (quantize_only) {
    QuantizeRowsLaunch p;
    p.x = x.data();
    p.out = out.data();
    p.scale = scale.data<float>();
    p.x_stride = stride;
    p.out_stride = p.size = size;
    p.num_tokens = rows;
    p.element = element;
    p.scale_per_row = float8 == 2;
    ATOM_BENCH_CHECK(launch_quantize_rows(p, nullptr));
  } else {
    SiluAndMulLaunch p;
    p.gate_up = x.data();
    p.out = out.data();
    p.scale = scale.data<float>();
    p.gate_up_stride = stride;
    p.out_stride = p.size = size;
    p.num_tokens = rows;
    p.element = element;
    p.float8_out = float8 != 0;
    p.scale_per_row = float8 == 2;
    ATOM_BENCH_CHECK(launch_silu_and_mul(p, nullptr));
  }
  const auto got = out.download<uint8_t>();
  const auto got_scale = scale.download<float>();
  Verdict verdict;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> value(size);
    for (int64_t i = 0; i < size; ++i) {
      const double gate = element_value(element, host_x.data(), row * stride + i);
      const double up = element_value(element, host_x.data(), row * stride + size + i);
      value[i] = quantize_only ? gate : rounded(element, gate / (1 + std::exp(-gate)) * up);
      if (float8 != 0) continue;
      verdict.see(element_value(element, got.data(), row * size + i),
                  value[i],
                  std::fabs(value[i]) * unit_of(element) * 1.1 + 1e-7);
    }
    if (float8 != 0) {
      see_float8(
          verdict, value, got.data() + row * size, got_scale[float8 == 2 ? row : 0], float8 == 2);
    }
  }
  char what[128];
  std::snprintf(what,
                sizeof what,
                "%s %s fp8=%d size %ld",
                quantize_only ? "quantize" : "silu_and_mul",
                name_of(element),
                float8,
                static_cast<long>(size));
  return verdict.print(what);
}

struct RopeCase {
  const char* name;
  GpuElement element;
  int heads, kv_heads, head_dim, rotary_dim;
  bool norm, interleaved, float8;
};

int check_rope(const RopeCase& c) {
  const int64_t tokens = 13, dim = c.head_dim, all = c.heads + 2 * c.kv_heads, slots = 64;
  const int64_t stride = all * dim + 16, max_position = 300, half = c.rotary_dim / 2;
  Buffer qkv(tokens * stride * 2), q_weight(dim * 2), k_weight(dim * 2),
      q_out(tokens * c.heads * dim * 2);
  Buffer cos_sin(max_position * c.rotary_dim * 4), positions(tokens * 4), slot_mapping(tokens * 4);
  Buffer k_cache(slots * c.kv_heads * dim * 2), v_cache(slots * c.kv_heads * dim * 2), scales(8);
  fill_random(qkv.data(), c.element, tokens * stride, 3.0f, 51);
  fill_random(q_weight.data(), c.element, dim, 1.5f, 52);
  fill_random(k_weight.data(), c.element, dim, 1.5f, 53);
  fill_random(cos_sin.data(), kF32, max_position * c.rotary_dim, 1.0f, 54);
  k_cache.fill_bytes(0x7f);
  v_cache.fill_bytes(0x7f);
  std::vector<int32_t> host_positions(tokens), host_slots(tokens);
  for (int t = 0; t < tokens; ++t) {
    host_positions[t] = t * 37 % 300;
    host_slots[t] = t == 4 ? -1 : (t * 11 + 3) % 64;
  }
  positions.upload(host_positions);
  slot_mapping.upload(host_slots);
  scales.upload(std::vector<float>{0.02f, 0.03f});
  QkNormRopeCacheLaunch p;
  p.qkv = qkv.data();
  p.q_out = q_out.data();
  if (c.norm) {
    p.q_weight = q_weight.data();
    p.k_weight = k_weight.data();
  }
  p.positions = positions.data<int32_t>();
  p.cos_sin = cos_sin.data<float>();
  p.slot_mapping = slot_mapping.data<int32_t>();
  p.k_cache = k_cache.data();
  p.v_cache = v_cache.data();
  p.k_scale = scales.data<float>();
  p.v_scale = scales.data<float>(4);
  p.qkv_stride = stride;
  p.q_out_stride = c.heads * dim;
  p.cos_sin_stride = p.rotary_dim = c.rotary_dim;
  p.num_tokens = static_cast<int32_t>(tokens);
  p.num_heads = c.heads;
  p.num_kv_heads = c.kv_heads;
  p.head_dim = c.head_dim;
  p.eps = 1e-6f;
  p.element = c.element;
  p.interleaved = c.interleaved;
  p.float8_cache = c.float8;
  ATOM_BENCH_CHECK(launch_qk_norm_rope_cache(p, nullptr));
  const auto x = qkv.download<uint8_t>(), wq = q_weight.download<uint8_t>(),
             wk = k_weight.download<uint8_t>(), q = q_out.download<uint8_t>(),
             k = k_cache.download<uint8_t>(), v = v_cache.download<uint8_t>();
  const auto table = cos_sin.download<float>();
  Verdict verdict;
  const double unit = unit_of(c.element);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t head = 0; head < all; ++head) {
      const bool is_q = head < c.heads, is_v = head >= c.heads + c.kv_heads;
      std::vector<double> value(dim), size(dim);
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) {
        value[i] = element_value(c.element, x.data(), t * stride + head * dim + i);
        squares += value[i] * value[i];
      }
      if (c.norm && !is_v) {
        const double norm = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
        const auto& weight = is_q ? wq : wk;
        for (int64_t i = 0; i < dim; ++i) {
          value[i] = rounded(
              c.element,
              rounded(c.element, value[i] * norm) * element_value(c.element, weight.data(), i));
        }
      }
      for (int64_t i = 0; i < dim; ++i) size[i] = std::fabs(value[i]);
      for (int64_t i = 0; i < half && !is_v; ++i) {
        const int64_t first = c.interleaved ? 2 * i : i,
                      second = c.interleaved ? 2 * i + 1 : i + half;
        const double cosine = table[host_positions[t] * c.rotary_dim + i];
        const double sine = table[host_positions[t] * c.rotary_dim + half + i];
        const double a = value[first], b = value[second];
        value[first] = a * cosine - b * sine;
        value[second] = b * cosine + a * sine;
        size[first] = size[second] = std::fabs(a) + std::fabs(b);
      }
      for (int64_t i = 0; i < dim; ++i) {
        const double slack = (c.norm && !is_v ? 2.2 : 0.0) * unit * size[i];
        double allowed = 1.001 * unit * std::fabs(value[i]) + slack + 1e-7;
        if (is_q) {
          verdict.see(element_value(c.element, q.data(), (t * c.heads + head) * dim + i),
                      value[i],
                      allowed);
          continue;
        }
        if (host_slots[t] < 0) continue;
        const int64_t kv = head - c.heads - (is_v ? c.kv_heads : 0);
        const int64_t at = (host_slots[t] * c.kv_heads + kv) * dim + i;
        const auto& cache = is_v ? v : k;
        if (c.float8) {
          const double scale = is_v ? 0.03f : 0.02f;
          const double expected = std::clamp(value[i] / scale, -448.0, 448.0);
          verdict.see(element_value(kF8, cache.data(), at),
                      expected,
                      std::fabs(expected) * 0x1p-4 + allowed / scale + 0x1p-10);
        } else {
          verdict.see(element_value(c.element, cache.data(), at), value[i], allowed);
        }
      }
    }
  }
  // Slots that no token has keep their bytes.
  std::vector<bool> used(64);
  for (int32_t slot : host_slots) {
    if (slot >= 0) used[slot] = true;
  }
  const int64_t slot_size = c.kv_heads * dim * (c.float8 ? 1 : 2);
  for (int64_t slot = 0; slot < slots; ++slot) {
    for (int64_t i = 0; !used[slot] && i < slot_size; ++i) {
      if (k[slot * slot_size + i] != 0x7f || v[slot * slot_size + i] != 0x7f) verdict.worst = 1e8;
    }
  }
  return verdict.print(c.name);
}

int check_embedding(int64_t row_size) {
  const int64_t vocab = 1000, tokens = 77;
  Buffer table(vocab * row_size), ids(tokens * 4), out(tokens * row_size);
  std::vector<uint8_t> host_table(vocab * row_size);
  for (size_t i = 0; i < host_table.size(); ++i)
    host_table[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  std::vector<int32_t> host_ids(tokens);
  for (int64_t t = 0; t < tokens; ++t) host_ids[t] = static_cast<int32_t>(t * 7919 % vocab);
  table.upload(host_table);
  ids.upload(host_ids);
  out.fill_bytes(0xff);
  EmbeddingLaunch p;
  p.ids = ids.data<int32_t>();
  p.table = table.data();
  p.out = out.data();
  p.table_stride = p.out_stride = p.row_size = row_size;
  p.num_tokens = tokens;
  p.vocab_size = vocab;
  ATOM_BENCH_CHECK(launch_embedding(p, nullptr));
  const auto got = out.download<uint8_t>();
  bool same = true;
  for (int64_t t = 0; t < tokens; ++t) {
    same =
        same && std::memcmp(&got[t * row_size], &host_table[host_ids[t] * row_size], row_size) == 0;
  }
  std::printf(
      "embedding row of %ld bytes: %s\n", static_cast<long>(row_size), same ? "PASS" : "FAIL");
  return same ? 0 : 1;
}

int check_argmax(GpuElement element, int64_t rows, int64_t vocab) {
  const int64_t stride = vocab + 8;
  Buffer logits(rows * stride * gpu_element_size(element)), ids(rows * 4),
      workspace(argmax_workspace(rows) * 8);
  fill_random(logits.data(), element, rows * stride, element == kF32 ? 20.0f : 3.0f, 61);
  auto host = logits.download<uint8_t>();
  const auto set = [&](int64_t row, int64_t id, uint32_t f32_bits) {
    if (element == kF32) {
      std::memcpy(&host[(row * stride + id) * 4], &f32_bits, 4);
    } else {
      const auto bits = static_cast<uint16_t>(f32_bits >> 16);
      std::memcpy(&host[(row * stride + id) * 2], &bits, 2);
    }
  };
  std::vector<int32_t> expected(rows);
  for (int64_t row = 0; row < rows; ++row) {
    if (element != kF16 && row % 5 == 1) set(row, vocab - 1, 0x7fc00000);
    if (element != kF16 && row % 5 == 2) set(row, vocab / 2, 0x7f800000);
    for (int64_t i = 0; element != kF16 && row % 5 == 3 && i < vocab; ++i) set(row, i, 0xff800000);
    double best = -INFINITY;
    bool fault = false;
    expected[row] = kTokenNoCandidate;
    for (int64_t i = 0; i < vocab; ++i) {
      const double value = element_value(element, host.data(), row * stride + i);
      fault = fault || std::isnan(value) || value == INFINITY;
      if (value > best) {
        best = value;
        expected[row] = static_cast<int32_t>(i);
      }
    }
    if (fault) expected[row] = kTokenNotANumber;
  }
  logits.upload(host);
  ArgmaxLaunch p;
  p.logits = logits.data();
  p.token_ids = ids.data<int32_t>();
  p.workspace = workspace.data<uint64_t>();
  p.logits_stride = stride;
  p.num_rows = static_cast<int32_t>(rows);
  p.vocab_size = static_cast<int32_t>(vocab);
  p.element = element;
  ATOM_BENCH_CHECK(launch_argmax(p, nullptr));
  const bool same = ids.download<int32_t>() == expected;
  std::printf("argmax %s %ld x %ld: %s\n",
              name_of(element),
              static_cast<long>(rows),
              static_cast<long>(vocab),
              same ? "PASS" : "FAIL");
  return same ? 0 : 1;
}

int check_all() {
  int failed = 0;
  for (int64_t size : {64, 100, 1024, 1536, 4096, 8192, 12288}) {
    for (int float8 : {0, 1, 2}) {
      failed += check_rms_norm(kBF16, false, false, float8, size);
      failed += check_rms_norm(kBF16, true, false, float8, size);
    }
    failed += check_rms_norm(kF16, true, false, 0, size);
    failed += check_rms_norm(kBF16, true, true, 2, size);
    failed += check_rms_norm(kF32, true, false, 0, size);
  }
  failed += check_head_norm();
  for (int64_t size : {64, 99, 1536, 14336, 40000}) {
    for (int float8 : {0, 1, 2}) failed += check_silu(kBF16, float8, size, false);
    failed += check_silu(kF32, 0, size, false) + check_silu(kF16, 2, size, false);
    failed += check_silu(kBF16, 1, size, true) + check_silu(kBF16, 2, size, true);
  }
  const RopeCase rope_cases[] = {
      {"rope cache llama", kBF16, 32, 8, 128, 128, false, false, false},
      {"rope cache llama fp8", kBF16, 32, 8, 128, 128, false, false, true},
      {"qk-norm rope cache qwen3", kBF16, 16, 8, 128, 128, true, false, false},
      {"qk-norm rope cache qwen3 fp8", kBF16, 16, 8, 128, 128, true, false, true},
      {"rope cache d64 f16 partial", kF16, 6, 3, 64, 32, false, false, false},
      {"qk-norm rope cache d256 partial", kBF16, 5, 1, 256, 64, true, false, false},
      {"rope cache interleaved", kBF16, 4, 2, 128, 128, false, true, false},
      {"qk-norm rope cache interleaved d32", kF16, 3, 1, 32, 24, true, true, true},
      {"rope cache d16", kF16, 7, 2, 16, 16, false, false, false},
  };
  for (const RopeCase& c : rope_cases) failed += check_rope(c);
  for (int64_t size : {8192, 36, 7}) failed += check_embedding(size);
  failed += check_argmax(kF32, 7, 128256) + check_argmax(kBF16, 300, 1001) +
            check_argmax(kF16, 1, 33) + check_argmax(kF32, 1, 151936);
  return failed;
}

// ---- timing ------------------------------------------------------------------------------------

void report(const char* what, double us, double bytes, double roof) {
  std::printf("time %-40s %9.2f us %6.3f TB/s %5.1f %%\n",
              what,
              us,
              bytes / us * 1e-6,
              100 * bytes / (us * 1e-6) / roof);
}

// Direct launches of a large call; many launches of a small one in a graph.
double time_call(const Work& work, bool large) {
  if (large) return time_launches(work, 15);
  constexpr int kChained = 50;
  return time_graph(
             [&](gpuStream_t s) {
               for (int i = 0; i < kChained; ++i) work(s);
             },
             9) /
         kChained;
}

void time_rms_norm(const Roofs& roofs, int64_t rows, bool residual, int float8) {
  const int64_t size = 4096;
  Buffer x(rows * size * 2), sum(rows * size * 2), out(rows * size * 2), scale(rows * 4),
      weight(size * 2);
  fill_random(x.data(), kBF16, rows * size, 1.0f, 1);
  fill_random(sum.data(), kBF16, rows * size, 1.0f, 2);
  fill_random(weight.data(), kBF16, size, 1.0f, 3);
  scale.upload(std::vector<float>(rows, 0.01f));
  RmsNormLaunch p;
  p.x = x.data();
  p.residual = residual ? sum.data() : nullptr;
  p.weight = weight.data();
  p.out = out.data();
  p.scale = scale.data<float>();
  p.x_strides[0] = p.out_strides[0] = p.residual_stride = p.size = size;
  p.num_tokens = rows;
  p.float8_out = float8 != 0;
  p.scale_per_row = float8 == 2;
  p.overlaps_previous = true;
  const double us =
      time_call([&](gpuStream_t s) { ATOM_BENCH_CHECK(launch_rms_norm(p, s)); }, rows > 256);
  char what[96];
  std::snprintf(what,
                sizeof what,
                "rms_norm%s fp8=%d [%ld, 4096]",
                residual ? " +residual" : "",
                float8,
                static_cast<long>(rows));
  report(what, us, rows * size * (2.0 + (residual ? 4 : 0) + (float8 != 0 ? 1 : 2)), roofs.copy);
}

void time_silu(const Roofs& roofs, int64_t rows, int float8) {
  const int64_t size = 14336;
  Buffer x(rows * size * 4), out(rows * size * 2), scale(rows * 4);
  fill_random(x.data(), kBF16, rows * size * 2, 4.0f, 1);
  scale.upload(std::vector<float>(rows, 0.01f));
  SiluAndMulLaunch p;
  p.gate_up = x.data();
  p.out = out.data();
  p.scale = scale.data<float>();
  p.gate_up_stride = 2 * size;
  p.out_stride = p.size = size;
  p.num_tokens = rows;
  p.float8_out = float8 != 0;
  p.scale_per_row = float8 == 2;
  p.overlaps_previous = true;
  const double us =
      time_call([&](gpuStream_t s) { ATOM_BENCH_CHECK(launch_silu_and_mul(p, s)); }, rows > 256);
  char what[96];
  std::snprintf(
      what, sizeof what, "silu_and_mul fp8=%d [%ld, 2 x 14336]", float8, static_cast<long>(rows));
  report(what, us, rows * size * (4.0 + (float8 != 0 ? 1 : 2)), roofs.copy);
}

void time_rope(const Roofs& roofs, int64_t tokens, bool norm, bool float8) {
  const int64_t heads = 32, kv_heads = 8, dim = 128, width = (heads + 2 * kv_heads) * dim;
  Buffer qkv(tokens * width * 2), cache(2 * tokens * kv_heads * dim * 2), weight(dim * 2);
  Buffer table(8192 * dim * 4), positions(tokens * 4), slots(tokens * 4), scales(8);
  fill_random(qkv.data(), kBF16, tokens * width, 1.0f, 1);
  fill_random(weight.data(), kBF16, dim, 1.0f, 2);
  fill_random(table.data(), kF32, 8192 * dim, 1.0f, 3);
  scales.upload(std::vector<float>{1.0f, 1.0f});
  std::vector<int32_t> host(tokens), host_slots(tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    host[t] = static_cast<int32_t>(t % 8192);
    host_slots[t] = static_cast<int32_t>(t);
  }
  positions.upload(host);
  slots.upload(host_slots);
  QkNormRopeCacheLaunch p;
  p.qkv = p.q_out = qkv.data();
  if (norm) p.q_weight = p.k_weight = weight.data();
  p.positions = positions.data<int32_t>();
  p.cos_sin = table.data<float>();
  p.slot_mapping = slots.data<int32_t>();
  p.k_cache = cache.data();
  p.v_cache = cache.data(tokens * kv_heads * dim * 2);
  p.k_scale = scales.data<float>();
  p.v_scale = scales.data<float>(4);
  p.qkv_stride = p.q_out_stride = width;
  p.cos_sin_stride = p.rotary_dim = p.head_dim = dim;
  p.num_tokens = static_cast<int32_t>(tokens);
  p.num_heads = heads;
  p.num_kv_heads = kv_heads;
  p.float8_cache = float8;
  p.overlaps_previous = true;
  const double us = time_call(
      [&](gpuStream_t s) { ATOM_BENCH_CHECK(launch_qk_norm_rope_cache(p, s)); }, tokens > 256);
  char what[96];
  std::snprintf(what,
                sizeof what,
                "rope cache%s%s [%ld, 48 x 128]",
                norm ? " +norm" : "",
                float8 ? " fp8" : "",
                static_cast<long>(tokens));
  report(what,
         us,
         tokens * (width * 2.0 + heads * dim * 2 + 2 * kv_heads * dim * (float8 ? 1 : 2)),
         roofs.copy);
}

void time_others(const Roofs& roofs) {
  const int64_t tokens = 32768, row = 8192, vocab = 128256;
  Buffer table(vocab * row), ids(tokens * 4), out(tokens * row);
  std::vector<int32_t> host(tokens);
  for (int64_t t = 0; t < tokens; ++t) host[t] = static_cast<int32_t>(t * 7919 % vocab);
  ids.upload(host);
  EmbeddingLaunch p;
  p.ids = ids.data<int32_t>();
  p.table = table.data();
  p.out = out.data();
  p.table_stride = p.out_stride = p.row_size = row;
  p.num_tokens = tokens;
  p.vocab_size = vocab;
  report("embedding [32768, 4096]",
         time_call([&](gpuStream_t s) { ATOM_BENCH_CHECK(launch_embedding(p, s)); }, true),
         2.0 * tokens * row,
         roofs.copy);
  for (int64_t rows : {1, 8, 64, 512}) {
    Buffer logits(rows * vocab * 4), result(rows * 4), workspace(argmax_workspace(rows) * 8);
    fill_random(logits.data(), kF32, rows * vocab, 10.0f, 4);
    ArgmaxLaunch a;
    a.logits = logits.data();
    a.token_ids = result.data<int32_t>();
    a.workspace = workspace.data<uint64_t>();
    a.logits_stride = vocab;
    a.num_rows = static_cast<int32_t>(rows);
    a.vocab_size = static_cast<int32_t>(vocab);
    a.overlaps_previous = true;
    char what[96];
    std::snprintf(what, sizeof what, "argmax f32 [%ld, 128256]", static_cast<long>(rows));
    report(what,
           time_call([&](gpuStream_t s) { ATOM_BENCH_CHECK(launch_argmax(a, s)); }, rows > 256),
           4.0 * rows * vocab,
           roofs.read);
  }
}

int run() {
  print_device();
  const Roofs roofs = measure_roofs();
  std::printf("read %.3f TB/s, copy %.3f TB/s\n", roofs.read * 1e-12, roofs.copy * 1e-12);
  const int failed = check_all();
  for (int64_t rows : {1, 8, 65536}) {
    for (int float8 : {0, 1, 2}) time_rms_norm(roofs, rows, false, float8);
    for (int float8 : {0, 2}) time_rms_norm(roofs, rows, true, float8);
  }
  for (int64_t rows : {1, 8, 16384}) {
    for (int float8 : {0, 1, 2}) time_silu(roofs, rows, float8);
  }
  for (int64_t tokens : {1, 8, 65536}) {
    time_rope(roofs, tokens, false, false);
    time_rope(roofs, tokens, true, false);
    time_rope(roofs, tokens, false, true);
  }
  time_others(roofs);
  std::printf("elementwise_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main() {
  return atom::bench::run();
}
