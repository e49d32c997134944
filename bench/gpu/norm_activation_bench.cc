// Checks and times the GPU kernels of norms, activation and quantization.
//
// usage: norm_activation_bench
//
// Checks compare with the formulas of the operators' headers, evaluated in double on the host with
// the same intermediate roundings. Timings are in percent of the copy bandwidth and, of large
// calls, of copies of as many bytes, measured in the same run.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness.h"
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/silu_and_mul/silu_and_mul_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr int64_t kFewRows = 256;  // timed in a graph
constexpr Element kBF16 = Element::kBFloat16, kF16 = Element::kFloat16, kF8 = Element::kFloat8E4M3,
                  kF32 = Element::kFloat32;

const char* name_of(Element element) {
  switch (element) {
    case Element::kFloat32:
      return "f32";
    case Element::kFloat16:
      return "f16";
    case Element::kBFloat16:
      return "bf16";
    case Element::kFloat8E4M3:
      return "fp8";
  }
  return "";
}

double rounded(Element element, double value) {
  const auto as_float = static_cast<float>(value);
  if (element == kBF16) return __bfloat162float(__float2bfloat16_rn(as_float));
  if (element == kF16) return __half2float(__float2half_rn(as_float));
  return as_float;
}

// Half the distance of neighbors of the type, relative.
double unit_of(Element element) {
  switch (element) {
    case Element::kFloat32:
      return 0x1p-22;  // a few operations
    case Element::kFloat16:
      return 0x1p-11;
    case Element::kBFloat16:
      return 0x1p-8;
    case Element::kFloat8E4M3:
      return 0x1p-4;
  }
  return 0;
}

// Sees a row of FP8 values and its scale against the unquantized values. Where the value before
// quantization may differ by a rounding, the quantized one may be a neighbor.
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

int check_rms_norm(
    Element element, bool residual, bool rounds_once, int float8, int64_t size, int64_t rows = 37) {
  const int64_t stride = size + 16, bytes = bytes_of(element);
  const Element weight_element = rounds_once ? kF32 : element;
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
  if (float8 == 1) p.static_scale = scale.data<float>();
  if (float8 == 2) p.scales = scale.data<float>();
  p.x_strides[0] = p.residual_stride = stride;
  p.out_strides[0] = size;
  p.num_tokens = rows;
  p.size = size;
  p.eps = 1e-5f;
  p.element = element;
  p.rounds_once = rounds_once;
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
                  // y and its product may each be rounded the other way, a whole unit away.
                  std::fabs(value[i]) * unit_of(element) * 4.1 + 1e-9);
    }
    if (float8 != 0) {
      see_float8(
          verdict, value, got.data() + row * size, got_scale[float8 == 2 ? row : 0], float8 == 2);
    }
  }
  char what[128];
  std::snprintf(what,
                sizeof what,
                "rms_norm %s%s%s fp8=%d [%ld, %ld]",
                name_of(element),
                residual ? " +residual" : "",
                rounds_once ? " float weight" : "",
                float8,
                static_cast<long>(rows),
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

int check_silu(Element element, int float8, int64_t size) {
  const int64_t rows = 23, stride = 2 * size + 8, bytes = bytes_of(element);
  Buffer x(rows * stride * bytes), out(rows * size * 4), scale(rows * 4);
  fill_random(x.data(), element, rows * stride, 6.0f, 41);
  out.fill_bytes(0xff);
  scale.upload(std::vector<float>(rows, 0.05f));
  const auto host_x = x.download<uint8_t>();
  {
    SiluAndMulLaunch p;
    p.gate_up = x.data();
    p.out = out.data();
    if (float8 == 1) p.static_scale = scale.data<float>();
    if (float8 == 2) p.scales = scale.data<float>();
    p.gate_up_stride = stride;
    p.out_stride = p.size = size;
    p.num_tokens = rows;
    p.element = element;
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
      value[i] = rounded(element, gate / (1 + std::exp(-gate)) * up);
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
                "silu_and_mul",
                name_of(element),
                float8,
                static_cast<long>(size));
  return verdict.print(what);
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
    failed += check_rms_norm(kBF16, true, false, 0, size, 1030);
    failed += check_rms_norm(kBF16, false, false, 2, size, 1030);
  }
  failed += check_head_norm();
  for (int64_t size : {64, 99, 1536, 14336, 40000}) {
    for (int float8 : {0, 1, 2}) failed += check_silu(kBF16, float8, size);
    failed += check_silu(kF32, 0, size) + check_silu(kF16, 2, size);
  }
  return failed;
}

// ---- timing ------------------------------------------------------------------------------------

void time_rms_norm(const Roofs& roofs, int64_t rows, bool residual, int float8) {
  const int64_t size = 4096, bytes = rows * size * 2;
  const bool large = rows > kFewRows;
  const int sets = large ? sets_beyond_caches(bytes) : 1;
  Buffer x(bytes * sets), sum(bytes * sets), out(bytes * sets), scale(rows * 4), weight(size * 2);
  fill_random(x.data(), kBF16, rows * size * sets, 1.0f, 1);
  fill_random(sum.data(), kBF16, rows * size * sets, 1.0f, 2);
  fill_random(weight.data(), kBF16, size, 1.0f, 3);
  scale.upload(std::vector<float>(rows, 0.01f));
  RmsNormLaunch p;
  p.weight = weight.data();
  if (float8 == 1) p.static_scale = scale.data<float>();
  if (float8 == 2) p.scales = scale.data<float>();
  p.x_strides[0] = p.out_strides[0] = p.residual_stride = p.size = size;
  p.num_tokens = rows;
  p.overlaps_previous = true;
  const auto call = [&](gpuStream_t s, int set) {
    RmsNormLaunch q = p;
    q.x = x.data(set * bytes);
    q.residual = residual ? sum.data(set * bytes) : nullptr;
    q.out = out.data(set * bytes);
    ATOM_BENCH_CHECK(launch_rms_norm(q, s));
  };
  char what[96];
  std::snprintf(what,
                sizeof what,
                "rms_norm%s fp8=%d [%ld, 4096]",
                residual ? " +residual" : "",
                float8,
                static_cast<long>(rows));
  report(what,
         time_call(call, large, sets),
         rows * size * (2 + (residual ? 4 : 0) + (float8 != 0 ? 1 : 2)),
         large,
         roofs);
}

void time_silu(const Roofs& roofs, int64_t rows, int float8) {
  const int64_t size = 14336;
  Buffer x(rows * size * 4), out(rows * size * 2), scale(rows * 4);
  fill_random(x.data(), kBF16, rows * size * 2, 4.0f, 1);
  scale.upload(std::vector<float>(rows, 0.01f));
  SiluAndMulLaunch p;
  p.gate_up = x.data();
  p.out = out.data();
  if (float8 == 1) p.static_scale = scale.data<float>();
  if (float8 == 2) p.scales = scale.data<float>();
  p.gate_up_stride = 2 * size;
  p.out_stride = p.size = size;
  p.num_tokens = rows;
  p.overlaps_previous = true;
  const bool large = rows > kFewRows;
  const auto call = [&](gpuStream_t s, int) { ATOM_BENCH_CHECK(launch_silu_and_mul(p, s)); };
  char what[96];
  std::snprintf(
      what, sizeof what, "silu_and_mul fp8=%d [%ld, 2 x 14336]", float8, static_cast<long>(rows));
  report(what, time_call(call, large), rows * size * (4 + (float8 != 0 ? 1 : 2)), large, roofs);
}

int run() {
  const Roofs roofs = measure_roofs();
  const int failed = check_all();
  for (int64_t rows : {1, 8, 64, 256, 512, 1024, 4096, 8192, 32768, 65536}) {
    for (int float8 : {0, 1, 2}) time_rms_norm(roofs, rows, false, float8);
    for (int float8 : {0, 1, 2}) time_rms_norm(roofs, rows, true, float8);
  }
  for (int64_t rows : {1, 8, 64, 256, 512, 1024, 4096, 8192, 32768, 65536}) {
    for (int float8 : {0, 1, 2}) time_silu(roofs, rows, float8);
  }
  std::printf("norm_activation_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return atom::bench::run();
}
