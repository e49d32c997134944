// Speed of linear on the shapes of a 1.7-billion-parameter model, against the machine's roofs
// measured before and after every window of the operator.
//   linear_bench [threads=N] [dtype=bfloat16] [weight=FORMAT] [codes=1] [rows=1,16,512] [shape=qkv]
//                [seconds=0.5] [repeats=5]
// FORMAT is one of fp8, fp8_block, int8, mxfp4 and int4; without it weights are of `dtype`. With
// codes=1 activations are what such a checkpoint multiplies them with: FP8, INT8 or FP4.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_info.h"
#include "ops/linear/linear.h"
#include "ops/roofs/roofs.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchShape {
  const char* name;
  int64_t out_features, in_features;
};

constexpr BenchShape kShapes[] = {
    {"qkv", 4096, 2048},
    {"o", 2048, 2048},
    {"gate_up", 12288, 2048},
    {"down", 2048, 6144},
    {"lm_head", 151936, 2048},
};

// Weights that together do not fit a last-level cache.
constexpr int64_t kWeightsSize = int64_t{400} << 20;

struct NamedFormat {
  const char* name;
  QuantFormat format;
  DType codes;            // of activations
  QuantType code_scales;  // of activations
};

constexpr NamedFormat kFormats[] = {
    {"fp8",
     {QuantDType::kFloat8E4M3, QuantType::kPerToken},
     DType::kFloat8E4M3,
     QuantType::kPerToken},
    {"fp8_block",
     {QuantDType::kFloat8E4M3, QuantType::kPer128x128, 128},
     DType::kFloat8E4M3,
     QuantType::kPer1x128},
    {"int8", {QuantDType::kInt8, QuantType::kPerToken}, DType::kInt8, QuantType::kPerToken},
    {"mxfp4", {QuantDType::kFloat4E2M1, QuantType::kPer1x32}, DType::kUInt8, QuantType::kPer1x32},
    {"int4", {QuantDType::kInt4, QuantType::kPer1x128}, DType::kFloat8E4M3, QuantType::kPerToken},
};

struct Options {
  int num_threads = num_usable_cores();
  DType dtype = DType::kBFloat16;
  std::optional<NamedFormat> weight;  // else of `dtype`
  bool has_codes = false;
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32, 512};
  std::string shape;
  double seconds = 0.3;
  int repeats = 5;
};

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string key(argument.substr(0, equals));
    const std::string value(equals == argument.npos ? "" : argument.substr(equals + 1));
    if (key == "threads") {
      options.num_threads = std::atoi(value.c_str());
    } else if (key == "dtype" && parse_dtype(value).ok()) {
      options.dtype = parse_dtype(value).value();
    } else if (key == "weight") {
      for (const NamedFormat& format : kFormats) {
        if (value == format.name) options.weight = format;
      }
      if (!options.weight) {
        fmt::print(stderr, "unknown weight {}\n", value);
        std::exit(2);
      }
    } else if (key == "codes") {
      options.has_codes = value == "1";
    } else if (key == "shape") {
      options.shape = value;
    } else if (key == "seconds") {
      options.seconds = std::atof(value.c_str());
    } else if (key == "repeats") {
      options.repeats = std::atoi(value.c_str());
    } else if (key == "rows") {
      options.rows.clear();
      for (const char* at = value.c_str(); *at != '\0'; at += *at == ',') {
        char* end;
        options.rows.push_back(std::strtoll(at, &end, 10));
        at = end;
      }
    } else {
      fmt::print(stderr, "unknown option {}\n", argument);
      std::exit(2);
    }
  }
  return options;
}

Tensor filled(const Shape& shape, DType dtype) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    uint32_t state = 1;
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      state = state * 1664525u + 1013904223u;
      tensor.data<T>()[i] = from_float<T>(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
    }
  });
  return tensor;
}

// Codes of any kind, or scales around 2^-7. In FP8 none is NaN or subnormal: checkpoints have few
// subnormal ones, and by AVX2 each costs an Intel processor some 200 cycles.
Tensor filled_bytes(const Shape& shape, DType dtype, bool is_scales = false) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  auto* bytes = static_cast<uint8_t*>(tensor.raw_data());
  uint32_t state = 1;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    bytes[i] = static_cast<uint8_t>(is_scales ? 118 + state % 4 : ((state >> 24) & 0xef) | 0x08);
  }
  return tensor;
}

Tensor filled_scales(const Shape& shape, DType dtype) {
  return dtype == DType::kUInt8 ? filled_bytes(shape, dtype, true) : filled(shape, dtype);
}

LinearWeight pack_weight(const Stream& stream, const BenchShape& shape, const Options& options) {
  if (!options.weight) {
    return pack_linear_weight(stream,
                              filled({shape.out_features, shape.in_features}, options.dtype));
  }
  const QuantFormat& format = options.weight->format;
  const LinearWeight weight = make_quantized_weight(shape.out_features, shape.in_features, format);
  const int64_t row_size =
      weight.dtype() == DType::kUInt8 ? shape.in_features / 2 : shape.in_features;
  pack_rows(stream, filled_bytes({shape.out_features, row_size}, weight.dtype()), 0, weight);
  const int64_t group = format.group_size();
  const Shape scales = group > 0 ? Shape{(shape.out_features - 1) / format.scale_rows + 1,
                                         (shape.in_features - 1) / group + 1}
                                 : Shape{shape.out_features};
  pack_scales(filled_scales(scales, format.scale_dtype()), 0, weight);
  return weight;
}

int64_t size_of(const LinearWeight& weight) {
  const auto size = [](const Tensor& t) {
    return t.defined() ? t.num_elements() * dtype_size(t.dtype()) : 0;
  };
  return size(weight.data) + size(weight.scales);
}

// Activations, with scales where they are codes.
struct Rows {
  Tensor x, scales;
};

Rows make_rows(int64_t num_rows, int64_t in_features, const Options& options) {
  if (!options.has_codes) return {filled({num_rows, in_features}, options.dtype), {}};
  const DType codes = options.weight->codes;
  const bool has_groups = options.weight->code_scales != QuantType::kPerToken;
  const int64_t groups = has_groups ? in_features / options.weight->format.group_size() : 0;
  return {filled_bytes({num_rows, codes == DType::kUInt8 ? in_features / 2 : in_features}, codes),
          filled_scales(has_groups ? Shape{num_rows, groups} : Shape{num_rows},
                        codes == DType::kUInt8 ? codes : DType::kFloat32)};
}

void multiply(const Stream& stream,
              const Rows& rows,
              const LinearWeight& weight,
              const Tensor& y,
              Workspace& scratch) {
  if (rows.scales.defined()) {
    linear(stream, rows.x, rows.scales, weight, {}, y, scratch);
  } else {
    linear(stream, rows.x, weight, {}, y, scratch);
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct CallTimes {
  double typical;  // the median
  double best;     // comparable with the roofs, which are the best of short windows too
};

// Of one call, over calls that go round the weights for `seconds`.
CallTimes time_calls(const Stream& stream,
                     const std::vector<LinearWeight>& weights,
                     const Rows& x,
                     const Tensor& y,
                     Workspace& scratch,
                     double seconds) {
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  for (size_t i = 0;; ++i) {
    const Clock::time_point begin = Clock::now();
    if (times.size() >= 3 && std::chrono::duration<double>(begin - start).count() > seconds) break;
    multiply(stream, x, weights[i % weights.size()], y, scratch);
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return {median(times), *std::min_element(times.begin(), times.end())};
}

void bench_shape(const Stream& stream, const BenchShape& shape, const Options& options) {
  std::vector<LinearWeight> weights;
  weights.push_back(pack_weight(stream, shape, options));
  const int64_t weight_size = size_of(weights[0]);
  for (int64_t size = weight_size; size < kWeightsSize; size += weight_size) {
    LinearWeight copy = weights[0];
    copy.data = Tensor::empty(copy.data.shape(), copy.data.dtype());
    copy_convert(weights[0].data, copy.data);
    weights.push_back(copy);
  }
  for (int64_t num_rows : options.rows) {
    const Rows x = make_rows(num_rows, shape.in_features, options);
    const Tensor y = Tensor::empty({num_rows, shape.out_features}, options.dtype);
    Workspace measure;
    multiply(Stream::dry_run(), x, weights[0], y, measure);
    Workspace scratch(measure.peak_size());
    const double flops = 2.0 * num_rows * shape.out_features * shape.in_features;
    std::vector<double> times;
    std::vector<double> shares;
    std::vector<double> best_shares;
    double roof_bandwidth = 0;
    double roof_flops = 0;
    Roofs before = measure_roofs(stream, 0.05);
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      const CallTimes call = time_calls(stream, weights, x, y, scratch, options.seconds);
      const Roofs after = measure_roofs(stream, 0.05);
      const bool bf16 = options.dtype == DType::kBFloat16;
      roof_bandwidth = (before.read_bandwidth + after.read_bandwidth) / 2;
      roof_flops = bf16 ? (before.bf16_flops + after.bf16_flops) / 2
                        : (before.f32_flops + after.f32_flops) / 2;
      const double ideal = std::max(weight_size / roof_bandwidth, flops / roof_flops);
      times.push_back(call.typical);
      shares.push_back(ideal / call.typical);
      best_shares.push_back(ideal / call.best);
      before = after;
    }
    const double seconds = median(times);
    fmt::print(
        "{:<8} T={:<4} {:9.1f} us {:6.1f} GB/s {:7.1f} GFLOP/s  share {:.3f}, of best calls {:.3f} "
        " (roofs: {:.1f} GB/s, {:.0f} GFLOP/s)\n",
        shape.name,
        num_rows,
        seconds * 1e6,
        weight_size / seconds * 1e-9,
        flops / seconds * 1e-9,
        median(shares),
        median(best_shares),
        roof_bandwidth * 1e-9,
        roof_flops * 1e-9);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace atom::ops

int main(int argc, char** argv) {
  const atom::ops::Options options = atom::ops::parse_options(argc, argv);
  atom::ThreadPool pool(options.num_threads);
  fmt::print("{}, {}, {} threads, {}, weights {}{}\n",
             atom::cpu_model_name(),
             atom::cpu_isa_name(atom::cpu_isa()),
             options.num_threads,
             atom::dtype_name(options.dtype),
             options.weight ? options.weight->name : "alike",
             options.has_codes ? ", activations in codes" : "");
  for (const atom::ops::BenchShape& shape : atom::ops::kShapes) {
    if (options.shape.empty() || options.shape == shape.name) {
      bench_shape(atom::Stream(&pool), shape, options);
    }
  }
}
