// Speed of linear on the shapes of a 1.7-billion-parameter model, against the machine's roofs
// measured before and after every window of the operator.
//   linear_bench [threads=N] [dtype=bfloat16] [rows=1,16,512] [shape=qkv] [seconds=0.5] [repeats=5]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
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

struct Options {
  int num_threads = num_usable_cores();
  DType dtype = DType::kBFloat16;
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
                     const Tensor& x,
                     const Tensor& y,
                     Workspace& scratch,
                     double seconds) {
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  for (size_t i = 0;; ++i) {
    const Clock::time_point begin = Clock::now();
    if (times.size() >= 3 && std::chrono::duration<double>(begin - start).count() > seconds) break;
    linear(stream, x, weights[i % weights.size()], {}, y, scratch);
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return {median(times), *std::min_element(times.begin(), times.end())};
}

void bench_shape(const Stream& stream, const BenchShape& shape, const Options& options) {
  std::vector<LinearWeight> weights;
  const int64_t weight_size = packed_size(shape.out_features, shape.in_features, options.dtype);
  {
    const Tensor rows = filled({shape.out_features, shape.in_features}, options.dtype);
    const Clock::time_point begin = Clock::now();
    int64_t size = 0;
    for (; size < kWeightsSize; size += weight_size) {
      weights.push_back(pack_linear_weight(stream, rows));
    }
    fmt::print("{:<8} packed at {:.1f} GB/s\n",
               shape.name,
               size / std::chrono::duration<double>(Clock::now() - begin).count() * 1e-9);
  }
  for (int64_t num_rows : options.rows) {
    const Tensor x = filled({num_rows, shape.in_features}, options.dtype);
    const Tensor y = Tensor::empty({num_rows, shape.out_features}, options.dtype);
    Workspace measure;
    linear(Stream::dry_run(), x, weights[0], {}, y, measure);
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
  fmt::print("{}, {}, {} threads, {}\n",
             atom::cpu_model_name(),
             atom::cpu_isa_name(atom::cpu_isa()),
             options.num_threads,
             atom::dtype_name(options.dtype));
  for (const atom::ops::BenchShape& shape : atom::ops::kShapes) {
    if (options.shape.empty() || options.shape == shape.name) {
      bench_shape(atom::Stream(&pool), shape, options);
    }
  }
}
