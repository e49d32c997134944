// Checks and times the streaming linear.
//
// usage: linear_stream_bench [check|tunings|time [LAYERS]]
//
// Checks compare with sums in double over random shapes, and rows of a batch bit for bit with the
// same rows alone. Timings run the four linears of an 8B layer, LAYERS (32) times with weights of
// their own, in one captured graph, in percent of the read bandwidth measured in the same run.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "harness.h"
#include "library_gemm.h"
#include "linear_case.h"
#include "ops/linear/stream/stream_sm90.h"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kBF16 = Element::kBFloat16, kF16 = Element::kFloat16, kF8 = Element::kFloat8E4M3,
                  kF32 = Element::kFloat32;

gpuError_t launch(const LinearGpuCall& p, int slice_size, gpuStream_t stream) {
  return launch_linear_stream_sm90(p, {slice_size, 3}, stream);
}

// Rows computed a few at a time are the same bits as all at a time.
bool rows_are_alone(LinearOperands& o, int64_t rows, int slice_size) {
  const auto whole = o.result();
  const auto same = [&](int64_t first, int64_t count) {
    o.reset();
    ATOM_BENCH_CHECK(launch(o.params(first, count), slice_size, nullptr));
    const auto part = o.result();
    return std::equal(part.begin() + first * o.row_size(),
                      part.begin() + (first + count) * o.row_size(),
                      whole.begin() + first * o.row_size());
  };
  bool all = same(rows - 1, 1);
  for (int64_t row = 0; row < rows; row += 3)
    all = all && same(row, std::min<int64_t>(3, rows - row));
  return all;
}

int check_all() {
  const LinearCase cases[] = {
      {"bf16", kBF16, kBF16, kBF16, LinearEpilogue::kStore, false, false},
      {"bf16 bias", kBF16, kBF16, kBF16, LinearEpilogue::kStore, true, false},
      {"bf16 to float32", kBF16, kBF16, kF32, LinearEpilogue::kStore, false, false},
      {"bf16 residual", kBF16, kBF16, kBF16, LinearEpilogue::kAddResidual, false, false},
      {"bf16 silu", kBF16, kBF16, kBF16, LinearEpilogue::kSiluAndMul, false, false},
      {"fp16", kF16, kF16, kF16, LinearEpilogue::kStore, true, false},
      {"fp8 x fp8", kF8, kF8, kF32, LinearEpilogue::kStore, false, true},
      {"fp8 x fp8 tensor", kF8, kF8, kBF16, LinearEpilogue::kAddResidual, true, false},
      {"fp8 x fp8 silu", kF8, kF8, kBF16, LinearEpilogue::kSiluAndMul, false, true},
      {"fp8 x bf16", kF8, kBF16, kF32, LinearEpilogue::kStore, false, true},
      {"fp8 x fp16", kF8, kF16, kF16, LinearEpilogue::kStore, false, false},
  };
  const int64_t shapes[][2] = {
      {32, 64}, {48, 192}, {112, 576}, {1000, 1536}, {4096, 4096}, {520, 14336}, {2008, 1088}};
  int failed = 0;
  for (const LinearCase& c : cases) {
    constexpr int kKernels = 2;
    double worst[kKernels] = {};
    bool alone[kKernels] = {true, true};
    const int slice_sizes[kKernels] = {128, 256};
    for (const auto& shape : shapes) {
      for (int64_t rows : {1, 5, 8, 13, 16}) {
        if (rows % 8 != 0 && shape[0] * shape[1] > (4 << 20)) continue;
        LinearOperands o(c, shape[0], shape[1], rows);
        for (int v = 0; v < kKernels; ++v) {
          o.reset();
          ATOM_BENCH_CHECK(launch(o.params(), slice_sizes[v], nullptr));
          worst[v] = std::max(worst[v], o.error(o.result()));
          if (rows > 1) alone[v] = alone[v] && rows_are_alone(o, rows, slice_sizes[v]);
        }
      }
    }
    for (int v = 0; v < kKernels; ++v) {
      const bool passed = worst[v] <= 1 && alone[v];
      failed += passed ? 0 : 1;
      std::printf("linear %-16s sm90/%d: %s max_err %.3f of allowed%s\n",
                  c.name,
                  slice_sizes[v],
                  passed ? "PASS" : "FAIL",
                  worst[v],
                  alone[v] ? "" : ", rows differ in batches");
    }
  }
  return failed;
}

// ---- timing ------------------------------------------------------------------------------------

constexpr int64_t kHidden = 4096, kQkv = 6144, kIntermediate = 14336;

struct LayerWeights {
  int64_t qkv, o, gate_up, down, end;  // byte offsets

  LayerWeights(int64_t begin, int64_t element_size)
      : qkv(begin),
        o(qkv + kQkv * kHidden * element_size),
        gate_up(o + kHidden * kHidden * element_size),
        down(gate_up + 2 * kIntermediate * kHidden * element_size),
        end(down + kHidden * kIntermediate * element_size) {}
};

// The linears of a decode step, each reading what the one before wrote.
class Chain {
 public:
  Chain(Element element, int num_layers)
      : element_(element), num_layers_(num_layers), size_(bytes_of(element)) {
    layer_size_ = LayerWeights(0, size_).end;
    weights_ = std::make_unique<Buffer>(num_layers * layer_size_);
    const float bound = element == kF8 ? 448.0f : std::sqrt(3.0f / kHidden);
    fill_random(weights_->data(), element, num_layers * layer_size_ / size_, bound, 5);
    std::vector<float> ones(2 * kIntermediate,
                            element == kF8 ? std::sqrt(3.0f / kHidden) / 448 : 1);
    scale_.upload(ones);
    std::vector<float> x_scale(kMaxStreamRows, 1.0f / 64);
    x_scale_.upload(x_scale);
    fill_random(norm_.data(), kBF16, kHidden, 1.0f, 6);
    reset();
  }

  void reset() {
    fill_random(hidden_.data(), kBF16, kMaxStreamRows * kHidden, 1.0f, 7);
    // FP8 inputs of the linears that no quantizing kernel of this chain writes.
    fill_random(hidden8_.data(), kF8, kMaxStreamRows * kHidden, 64.0f, 8);
    fill_random(wide8_.data(), kF8, kMaxStreamRows * kIntermediate, 64.0f, 9);
  }

  struct Options {
    int rows = 1;
    LinearStreamTuning tuning;
    bool overlaps = true;
    bool norms = false;
    const LibraryGemm* library = nullptr;  // instead of the streaming linear
    unsigned parts = 15;                   // bits: qkv, o, gate_up, down
  };

  int64_t bytes(unsigned parts) const {
    const LayerWeights w(0, size_);
    int64_t total = 0;
    if (parts & 1) total += w.o - w.qkv;
    if (parts & 2) total += w.gate_up - w.o;
    if (parts & 4) total += w.down - w.gate_up;
    if (parts & 8) total += w.end - w.down;
    return total * num_layers_;
  }

  void run(const Options& o, gpuStream_t stream) const {
    const bool fp8 = element_ == kF8;
    for (int layer = 0; layer < num_layers_; ++layer) {
      const LayerWeights w(layer * layer_size_, size_);
      if (o.norms) norm(o, stream);
      if (o.parts & 1) {
        linear(o,
               fp8 ? hidden8_ : normed_,
               kHidden,
               w.qkv,
               kQkv,
               qkv_,
               LinearEpilogue::kStore,
               stream);
      }
      if (o.parts & 2) {
        // Without norms a residual stream would grow without bound.
        linear(o,
               fp8 ? hidden8_ : qkv_,
               kHidden,
               w.o,
               kHidden,
               hidden_,
               o.norms ? LinearEpilogue::kAddResidual : LinearEpilogue::kStore,
               stream);
      }
      if (o.norms) norm(o, stream);
      if (o.parts & 4) {
        linear(o,
               fp8       ? hidden8_
               : o.norms ? normed_
                         : hidden_,
               kHidden,
               w.gate_up,
               2 * kIntermediate,
               wide_,
               LinearEpilogue::kSiluAndMul,
               stream);
      }
      if (o.parts & 8) {
        linear(o,
               fp8 ? wide8_ : wide_,
               kIntermediate,
               w.down,
               kHidden,
               normed_,
               LinearEpilogue::kStore,
               stream);
      }
    }
  }

  std::vector<uint16_t> result() const { return normed_.download<uint16_t>(); }

 private:
  void norm(const Options& o, gpuStream_t stream) const {
    RmsNormLaunch p;
    p.x = hidden_.data();
    p.weight = norm_.data();
    p.out = element_ == kF8 ? hidden8_.data() : normed_.data();
    if (element_ == kF8) p.scales = x_scale_.data<float>();
    p.x_strides[0] = p.out_strides[0] = p.size = kHidden;
    p.num_tokens = o.rows;
    p.eps = 1e-5f;
    p.overlaps_previous = o.overlaps;
    ATOM_BENCH_CHECK(launch_rms_norm(p, stream));
  }

  void linear(const Options& o,
              const Buffer& x,
              int64_t k,
              int64_t weight,
              int64_t n,
              const Buffer& y,
              LinearEpilogue epilogue,
              gpuStream_t stream) const {
    LinearGpuCall p;
    const bool gated = epilogue == LinearEpilogue::kSiluAndMul;
    p.x = x.data();
    p.weight = weights_->data(weight);
    if (element_ == kF8) {
      p.x_scale = x_scale_.data<float>();
      p.weight_scale = scale_.data<float>();
      p.x_scale_per_row = p.weight_scale_per_row = true;
    }
    p.y = y.data();
    p.x_stride = &x == &qkv_ ? kQkv : k;
    p.y_stride = gated ? n / 2 : n;
    p.num_rows = o.rows;
    p.out_features = static_cast<int32_t>(n);
    p.in_features = static_cast<int32_t>(k);
    p.weight_element = p.x_element = element_;
    p.epilogue = epilogue;
    p.overlaps_previous = o.overlaps;
    if (o.library == nullptr) {
      ATOM_BENCH_CHECK(launch_linear_stream_sm90(p, o.tuning, stream));
    } else if (!o.library->multiply(element_,
                                    p.x,
                                    p.weight,
                                    x_scale_.data<float>(),
                                    gated ? gate_up_.data() : p.y,
                                    o.rows,
                                    n,
                                    k,
                                    p.x_stride,
                                    stream)) {
      std::printf("cuBLASLt has no algorithm for this\n");
    }
  }

  Element element_;
  int num_layers_;
  int64_t size_, layer_size_ = 0;
  std::unique_ptr<Buffer> weights_;
  Buffer scale_{2 * kIntermediate * 4}, x_scale_{kMaxStreamRows * 4}, norm_{kHidden * 2};
  Buffer hidden_{kMaxStreamRows * kHidden * 2}, normed_{kMaxStreamRows * kHidden * 2},
      qkv_{kMaxStreamRows * kQkv * 2}, wide_{kMaxStreamRows * kIntermediate * 2},
      gate_up_{2 * kMaxStreamRows * kIntermediate * 2};
  Buffer hidden8_{kMaxStreamRows * kHidden}, wide8_{kMaxStreamRows * kIntermediate};
};

int check_overlap(Chain& chain, const char* name) {
  int failed = 0;
  for (int rows : {1, 8, 16}) {
    Chain::Options options;
    options.rows = rows;
    options.norms = true;
    options.overlaps = false;
    chain.reset();
    chain.run(options, nullptr);
    const auto expected = chain.result();
    options.overlaps = true;
    bool same = true;
    for (int run = 0; run < 5; ++run) {
      chain.reset();
      ATOM_BENCH_CHECK(ATOM_GPU(DeviceSynchronize)());
      chain.run(options, nullptr);
      same = same && chain.result() == expected;
    }
    failed += same ? 0 : 1;
    std::printf("overlap %s M=%d: %s\n", name, rows, same ? "PASS" : "FAIL");
  }
  return failed;
}

void time_chain(const Chain& chain, const char* name, const Chain::Options& o, double roof) {
  const double us = time_graph([&](gpuStream_t s) { chain.run(o, s); }, 5);
  std::printf("chain %s M=%-2d slice %3d l2 %d %s%s%s parts %2u: %8.1f us %5.1f %% of read\n",
              name,
              o.rows,
              o.tuning.slice_size,
              o.tuning.l2_prefetch_units,
              o.library != nullptr ? "cublaslt " : "",
              o.overlaps ? "pdl" : "no-pdl",
              o.norms ? "+norms" : "",
              o.parts,
              us,
              100 * chain.bytes(o.parts) / (us * 1e-6) / roof);
}

void time_tunings(const Chain& chain, const char* name, double roof) {
  for (const LinearStreamTuning& tuning : {LinearStreamTuning{128, 0},
                                           LinearStreamTuning{256, 0},
                                           LinearStreamTuning{128, 4},
                                           LinearStreamTuning{128, 12},
                                           LinearStreamTuning{256, 4}}) {
    for (int rows : {1, 8}) {
      Chain::Options o;
      o.rows = rows;
      o.tuning = tuning;
      time_chain(chain, name, o, roof);
      o.norms = true;
      time_chain(chain, name, o, roof);
    }
  }
}

void time_rows(const Chain& chain, const char* name, const LibraryGemm& library, double roof) {
  for (int rows : {1, 2, 4, 8, 16}) {
    for (const LibraryGemm* used : {static_cast<const LibraryGemm*>(nullptr), &library}) {
      if (used != nullptr && !used->is_there()) continue;
      Chain::Options o;
      o.rows = rows;
      o.library = used;
      for (unsigned parts : {15u, 1u, 2u, 4u, 8u}) {
        o.parts = parts;
        time_chain(chain, name, o, roof);
      }
      o.parts = 15;
      if (used != nullptr) continue;
      o.norms = true;
      time_chain(chain, name, o, roof);
      o.norms = o.overlaps = false;
      time_chain(chain, name, o, roof);
    }
  }
}

// One linear of many rows of weight, as an output projection is.
void time_head(Element element, const char* name, const LibraryGemm& library, double roof) {
  const LinearCase c = {name, element, element, kBF16, LinearEpilogue::kStore, false, true};
  constexpr int64_t kVocabulary = 128256;
  const int64_t weight_size = kVocabulary * kHidden * bytes_of(element);
  const LinearOperands o(c, kVocabulary, kHidden, kMaxStreamRows);
  for (int rows : {1, 2, 4, 8, 16}) {
    const auto report = [&](const char* what, const Work& work) {
      const double us = time_graph(work, 5);
      std::printf("head %s M=%-2d %s: %8.1f us %5.1f %% of read\n",
                  name,
                  rows,
                  what,
                  us,
                  100 * static_cast<double>(weight_size) / (us * 1e-6) / roof);
    };
    const LinearGpuCall p = o.params(0, rows);
    report("stream", [&](gpuStream_t s) { ATOM_BENCH_CHECK(launch_linear_stream_sm90(p, s)); });
    if (!library.is_there()) continue;
    report("cublaslt", [&](gpuStream_t s) {
      library.multiply(element,
                       p.x,
                       p.weight,
                       p.weight_scale,
                       p.y,
                       rows,
                       p.out_features,
                       p.in_features,
                       p.x_stride,
                       s);
    });
  }
}

enum class Mode { kCheck, kTunings, kTime };

int run(int num_layers, Mode mode) {
  const Roofs roofs = measure_roofs();
  const LibraryGemm library;
  int failed = mode == Mode::kCheck ? check_all() : 0;
  for (Element element : {kBF16, kF8}) {
    const char* name = element == kF8 ? "fp8" : "bf16";
    {
      Chain chain(element, num_layers);
      if (mode == Mode::kCheck) failed += check_overlap(chain, name);
      if (mode == Mode::kTunings) time_tunings(chain, name, roofs.read);
      if (mode == Mode::kTime) time_rows(chain, name, library, roofs.read);
    }
    if (mode == Mode::kTime) time_head(element, name, library, roofs.read);
  }
  if (mode != Mode::kCheck) return 0;
  std::printf("linear_stream_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  using atom::bench::Mode;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string mode = argc > 1 ? argv[1] : "check";
  const int num_layers = argc > 2 ? std::atoi(argv[2]) : 32;
  return atom::bench::run(num_layers,
                          mode == "time"      ? Mode::kTime
                          : mode == "tunings" ? Mode::kTunings
                                              : Mode::kCheck);
}
