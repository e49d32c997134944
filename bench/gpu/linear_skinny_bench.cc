// Checks and times the linear for few rows on Hopper.
//
// usage: linear_skinny_bench [check|tunings|time [LAYERS [ROWS...]]]
//
// Checks compare with sums in double over random shapes. Timings run the linears of an 8B layer,
// LAYERS (32) times with weights of their own, with ROWS (1 to 64) rows, in one captured graph, in
// percent of the read bandwidth measured in the same run. With `tunings` the best ones follow.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "harness.h"
#include "library_gemm.h"
#include "linear_case.h"
#include "ops/linear/skinny/skinny_cuda.h"
#include "ops/linear/stream/stream_sm90.h"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kBF16 = Element::kBFloat16, kF16 = Element::kFloat16, kF8 = Element::kFloat8E4M3,
                  kF32 = Element::kFloat32;

// ---- checks ------------------------------------------------------------------------------------

constexpr LinearCase kCases[] = {
    {"bf16", kBF16, kBF16, kBF16, LinearEpilogue::kStore, false, false},
    {"bf16 bias", kBF16, kBF16, kBF16, LinearEpilogue::kStore, true, false},
    {"bf16 to float32", kBF16, kBF16, kF32, LinearEpilogue::kStore, false, false},
    {"bf16 residual", kBF16, kBF16, kBF16, LinearEpilogue::kAddResidual, false, false},
    {"bf16 silu", kBF16, kBF16, kBF16, LinearEpilogue::kSiluAndMul, false, false},
    {"fp16", kF16, kF16, kF16, LinearEpilogue::kStore, true, false},
    {"fp8", kF8, kF8, kF16, LinearEpilogue::kStore, false, true},
    {"fp8 residual", kF8, kF8, kBF16, LinearEpilogue::kAddResidual, true, false},
    {"fp8 silu", kF8, kF8, kBF16, LinearEpilogue::kSiluAndMul, false, true},
};

constexpr LinearSkinnyTuning kCheckedTunings[] = {{16, 1, 2},
                                                  {32, 1, 4},
                                                  {48, 1, 1},
                                                  {64, 2, 2},
                                                  {64, 2, 4},
                                                  {80, 1, 1},
                                                  {96, 2, 4},
                                                  {112, 1, 2},
                                                  {128, 2, 1}};

struct CheckResult {
  double worst = 0;
  int num_runs = 0;
  bool repeats = true;
};

void check_tuning(LinearOperands& o, const LinearSkinnyTuning* tuning, CheckResult* result) {
  o.reset();
  const gpuError_t error = launch_linear_skinny(o.params(), tuning, nullptr);
  if (error == ATOM_GPU(ErrorInvalidValue)) return;  // it does not fit
  ATOM_BENCH_CHECK(error);
  ++result->num_runs;
  const auto whole = o.result();
  const double worst = o.error(whole);
  if (!(worst <= result->worst)) result->worst = worst;
  o.reset();
  ATOM_BENCH_CHECK(launch_linear_skinny(o.params(), tuning, nullptr));
  result->repeats = result->repeats && o.result() == whole;
}

int check_all() {
  const int64_t shapes[][2] = {{32, 64},
                               {50, 192},
                               {112, 544},
                               {1000, 1536},
                               {2008, 1088},
                               {520, 14336},
                               {6144, 4096},
                               {19200, 512},
                               {96, 4160},
                               {272, 2080}};
  int failed = 0;
  for (const LinearCase& c : kCases) {
    CheckResult result;
    for (const auto& shape : shapes) {
      const bool large = shape[0] * shape[1] > (4 << 20);
      for (int64_t rows : {1, 5, 8, 9, 16, 24, 33, 40, 48, 57, 64}) {
        if (large && rows % 16 != 0 && rows != 1) continue;
        LinearOperands o(c, shape[0], shape[1], rows);
        check_tuning(o, nullptr, &result);
        for (const LinearSkinnyTuning& tuning : kCheckedTunings) {
          check_tuning(o, &tuning, &result);
        }
      }
    }
    const bool passed = result.worst <= 1 && result.repeats && result.num_runs > 0;
    failed += passed ? 0 : 1;
    std::printf("linear %-16s: %s %d runs, max_err %.3f of allowed%s\n",
                c.name,
                passed ? "PASS" : "FAIL",
                result.num_runs,
                result.worst,
                result.repeats ? "" : ", does not repeat");
    std::fflush(stdout);
  }
  return failed;
}

// ---- timing ------------------------------------------------------------------------------------

constexpr int64_t kHidden = 4096, kIntermediate = 14336, kMaxRows = 64;

enum Part { kQkv, kO, kGateUp, kDown, kHead, kNumParts };
constexpr const char* kPartNames[] = {"qkv", "o", "gate_up", "down", "head"};
constexpr int64_t kOutFeatures[] = {6144, kHidden, 2 * kIntermediate, kHidden, 128256};
constexpr int64_t kInFeatures[] = {kHidden, kHidden, kHidden, kIntermediate, kHidden};

int64_t part_size(int part, Element element) {
  return kOutFeatures[part] * kInFeatures[part] * bytes_of(element);
}

// Which kernel multiplies, and the tuning of the first.
struct Choice {
  enum Kind { kSkinny, kStream, kLibrary } kind = kSkinny;
  const LinearSkinnyTuning* tuning = nullptr;
};

// The linears of a decode step, each reading what the one before wrote.
class Chain {
 public:
  Chain(Element element, int num_layers, const LibraryGemm& library)
      : element_(element), num_layers_(num_layers), library_(library) {
    int64_t size = 0;
    for (int part = 0; part < kHead; ++part) {
      offset_[part] = size;
      size += part_size(part, element);
    }
    layer_size_ = size;
    weights_ = std::make_unique<Buffer>(num_layers * layer_size_);
    const float bound = element == kF8 ? 448.0f : std::sqrt(3.0f / kHidden);
    fill_random(weights_->data(), element, num_layers * layer_size_ / bytes_of(element), bound, 5);
    std::vector<float> scale(kOutFeatures[kHead],
                             element == kF8 ? std::sqrt(3.0f / kHidden) / 448 : 1);
    scale_.upload(scale);
    std::vector<float> x_scale(kMaxRows, 1.0f / 64);
    x_scale_.upload(x_scale);
    fill_random(norm_.data(), kBF16, kHidden, 1.0f, 6);
    reset();
  }

  void reset() {
    fill_random(hidden_.data(), kBF16, kMaxRows * kHidden, 1.0f, 7);
    fill_random(hidden8_.data(), kF8, kMaxRows * kHidden, 64.0f, 8);
    fill_random(wide8_.data(), kF8, kMaxRows * kIntermediate, 64.0f, 9);
    fill_random(normed_.data(), kBF16, kMaxRows * kHidden, 1.0f, 10);
    fill_random(wide_.data(), kBF16, kMaxRows * kIntermediate, 1.0f, 11);
  }

  int64_t bytes(int part) const { return num_layers_ * part_size(part, element_); }
  int64_t bytes() const { return num_layers_ * layer_size_; }

  // One of a layer's linears, of every layer.
  gpuError_t run_part(const Choice& choice, int part, int rows, gpuStream_t s) const {
    for (int layer = 0; layer < num_layers_; ++layer) {
      const gpuError_t error = linear(choice, part, layer, rows, true, false, s);
      if (error != ATOM_GPU(Success)) return error;
    }
    return ATOM_GPU(Success);
  }

  void run(const Choice& choice, int rows, bool overlaps, bool norms, gpuStream_t stream) const {
    for (int layer = 0; layer < num_layers_; ++layer) {
      for (int part = 0; part < kHead; ++part) {
        if (norms && (part == kQkv || part == kGateUp)) norm(rows, overlaps, stream);
        ATOM_BENCH_CHECK(linear(choice, part, layer, rows, overlaps, norms, stream));
      }
    }
  }

  std::vector<uint16_t> result() const { return normed_.download<uint16_t>(); }

 private:
  void norm(int rows, bool overlaps, gpuStream_t stream) const {
    RmsNormLaunch p;
    p.x = hidden_.data();
    p.weight = norm_.data();
    p.out = element_ == kF8 ? hidden8_.data() : normed_.data();
    if (element_ == kF8) p.scales = x_scale_.data<float>();
    p.x_strides[0] = p.out_strides[0] = p.size = kHidden;
    p.num_tokens = rows;
    p.eps = 1e-5f;
    p.overlaps_previous = overlaps;
    ATOM_BENCH_CHECK(launch_rms_norm(p, stream));
  }

  gpuError_t linear(const Choice& choice,
                    int part,
                    int layer,
                    int rows,
                    bool overlaps,
                    bool norms,
                    gpuStream_t stream) const {
    const bool fp8 = element_ == kF8;
    LinearGpuCall p;
    p.x = fp8 ? (part == kDown ? wide8_ : hidden8_).data()
              : (part == kDown ? wide_
                 : part == kO  ? qkv_
                               : normed_)
                    .data();
    p.weight = weights_->data(layer * layer_size_ + offset_[part]);
    if (fp8) {
      p.x_scale = x_scale_.data<float>();
      p.weight_scale = scale_.data<float>();
      p.x_scale_per_row = p.weight_scale_per_row = true;
    }
    p.y = (part == kQkv          ? qkv_
           : part == kGateUp     ? wide_
           : part == kO && norms ? hidden_
                                 : normed_)
              .data();
    p.x_stride = !fp8 && part == kO ? kOutFeatures[kQkv] : kInFeatures[part];
    p.y_stride = part == kGateUp ? kIntermediate : kOutFeatures[part];
    p.num_rows = rows;
    p.out_features = static_cast<int32_t>(kOutFeatures[part]);
    p.in_features = static_cast<int32_t>(kInFeatures[part]);
    p.weight_element = p.x_element = element_;
    p.epilogue = part == kGateUp       ? LinearEpilogue::kSiluAndMul
                 : part == kO && norms ? LinearEpilogue::kAddResidual
                                       : LinearEpilogue::kStore;
    p.overlaps_previous = overlaps;
    if (choice.kind == Choice::kSkinny) return launch_linear_skinny(p, choice.tuning, stream);
    if (choice.kind == Choice::kStream) return launch_linear_stream_sm90(p, stream);
    if (!library_.is_there()) return ATOM_GPU(ErrorInvalidValue);
    return library_.multiply(element_,
                             p.x,
                             p.weight,
                             x_scale_.data<float>(),
                             part == kGateUp ? gate_up_.data() : p.y,
                             rows,
                             p.out_features,
                             p.in_features,
                             p.x_stride,
                             stream)
               ? ATOM_GPU(Success)
               : ATOM_GPU(ErrorInvalidValue);
  }

  Element element_;
  int num_layers_;
  const LibraryGemm& library_;
  int64_t offset_[kHead], layer_size_;
  std::unique_ptr<Buffer> weights_;
  Buffer scale_{kOutFeatures[kHead] * 4}, x_scale_{kMaxRows * 4}, norm_{kHidden * 2};
  Buffer hidden_{kMaxRows * kHidden * 2}, normed_{kMaxRows * kHidden * 2},
      qkv_{kMaxRows * kOutFeatures[kQkv] * 2}, wide_{kMaxRows * kIntermediate * 2},
      gate_up_{2 * kMaxRows * kIntermediate * 2};
  Buffer hidden8_{kMaxRows * kHidden}, wide8_{kMaxRows * kIntermediate};
};

// Tiles that spread a weight evenly over the multiprocessors.
std::vector<LinearSkinnyTuning> candidates(int part) {
  constexpr int kMultiprocessors = 132, kMaxRounds = 12;
  constexpr double kLeastUse = 0.9;
  std::vector<LinearSkinnyTuning> found;
  for (int splits : {1, 2}) {
    const int clusters = kMultiprocessors / splits;
    for (int rounds = 1; rounds <= kMaxRounds; ++rounds) {
      const int64_t share = (kOutFeatures[part] + clusters * rounds - 1) / (clusters * rounds);
      const int tile = static_cast<int>((share + 15) / 16 * 16);
      const double use = static_cast<double>(kOutFeatures[part]) / (clusters * rounds * tile);
      if (tile > 128 || tile < 32 || use < kLeastUse) continue;
      for (int panels : {1, 2, 4}) found.push_back({tile, splits, panels});
    }
  }
  return found;
}

// Percent of the read bandwidth; 0: it cannot run.
double part_percent(const Chain& chain, const Choice& choice, int part, int rows, double roof) {
  if (chain.run_part(choice, part, rows, nullptr) != ATOM_GPU(Success)) return 0;
  const double us = time_graph([&](gpuStream_t s) { chain.run_part(choice, part, rows, s); }, 3);
  return 100 * static_cast<double>(chain.bytes(part)) / (us * 1e-6) / roof;
}

void time_parts(const Chain& chain, const char* name, int rows, double roof, bool all_tunings) {
  for (int part = 0; part < kHead; ++part) {
    const auto percent = [&](const Choice& choice) {
      return part_percent(chain, choice, part, rows, roof);
    };
    std::printf("part %s M=%-2d %-8s: skinny %.1f library %.1f",
                name,
                rows,
                kPartNames[part],
                percent({}),
                percent({Choice::kLibrary}));
    if (rows <= kMaxStreamRows) std::printf(" stream %.1f", percent({Choice::kStream}));
    if (all_tunings) {
      std::vector<std::pair<double, LinearSkinnyTuning>> all;
      for (const LinearSkinnyTuning& tuning : candidates(part)) {
        all.emplace_back(percent({Choice::kSkinny, &tuning}), tuning);
      }
      std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.first > b.first; });
      constexpr size_t kShown = 14;
      for (size_t i = 0; i < std::min(all.size(), kShown); ++i) {
        const LinearSkinnyTuning& t = all[i].second;
        std::printf(" | %d/%d/%d %.1f", t.tile_rows, t.num_splits, t.num_panels, all[i].first);
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

void time_chains(const Chain& chain, const char* name, int rows, double roof) {
  constexpr const char* kNames[] = {"skinny", "stream", "library"};
  for (Choice::Kind kind : {Choice::kSkinny, Choice::kStream, Choice::kLibrary}) {
    const Choice choice{kind};
    if (kind == Choice::kStream && rows > kMaxStreamRows) continue;
    if (chain.run_part(choice, kQkv, rows, nullptr) != ATOM_GPU(Success)) continue;
    std::printf("chain %s M=%-2d %-7s:", name, rows, kNames[kind]);
    for (const auto& [overlaps, norms] : {std::pair{true, false}, {true, true}, {false, false}}) {
      const double us =
          time_graph([&](gpuStream_t s) { chain.run(choice, rows, overlaps, norms, s); }, 5);
      std::printf(" %s%s %.1f us %.1f %%",
                  overlaps ? "pdl" : "no-pdl",
                  norms ? "+norms" : "",
                  us,
                  100 * static_cast<double>(chain.bytes()) / (us * 1e-6) / roof);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

int check_overlap(Chain& chain, const char* name, int rows) {
  const Choice choice;
  chain.reset();
  chain.run(choice, rows, false, true, nullptr);
  const auto expected = chain.result();
  bool same = true;
  for (int run = 0; run < 5; ++run) {
    chain.reset();
    ATOM_BENCH_CHECK(ATOM_GPU(DeviceSynchronize)());
    chain.run(choice, rows, true, true, nullptr);
    same = same && chain.result() == expected;
  }
  std::printf("overlap %s M=%d: %s\n", name, rows, same ? "PASS" : "FAIL");
  return same ? 0 : 1;
}

void time_head(Element element, const char* name, const LibraryGemm& library, double roof) {
  const LinearCase c = {name, element, element, kBF16, LinearEpilogue::kStore, false, true};
  for (int rows : {1, 8, 16, 32, 64}) {
    const LinearOperands o(c, kOutFeatures[kHead], kHidden, rows);
    const LinearGpuCall p = o.params();
    const auto percent = [&](const std::function<bool(gpuStream_t)>& work) {
      if (!work(nullptr)) return 0.0;
      const double us = time_graph([&](gpuStream_t s) { work(s); }, 5);
      return 100 * static_cast<double>(part_size(kHead, element)) / (us * 1e-6) / roof;
    };
    std::printf("head %s M=%-2d: skinny %.1f", name, rows, percent([&](gpuStream_t s) {
                  return launch_linear_skinny(p, nullptr, s) == ATOM_GPU(Success);
                }));
    if (rows <= kMaxStreamRows) {
      std::printf(" stream %.1f", percent([&](gpuStream_t s) {
                    return launch_linear_stream_sm90(p, s) == ATOM_GPU(Success);
                  }));
    }
    std::printf(" library %.1f\n", percent([&](gpuStream_t s) {
                  return library.is_there() && library.multiply(element,
                                                                p.x,
                                                                p.weight,
                                                                p.weight_scale,
                                                                p.y,
                                                                rows,
                                                                p.out_features,
                                                                p.in_features,
                                                                p.x_stride,
                                                                s);
                }));
    std::fflush(stdout);
  }
}

int run(const std::string& mode, int num_layers, const std::vector<int>& all_rows) {
  const Roofs roofs = measure_roofs();
  const LibraryGemm library;
  int failed = mode == "check" ? check_all() : 0;
  for (Element element : {kBF16, kF8}) {
    const char* name = element == kF8 ? "fp8" : "bf16";
    {
      Chain chain(element, num_layers, library);
      for (int rows : all_rows) {
        if (mode == "check") {
          failed += check_overlap(chain, name, rows);
          continue;
        }
        time_parts(chain, name, rows, roofs.read, mode == "tunings");
        time_chains(chain, name, rows, roofs.read);
      }
    }
    if (mode == "time") time_head(element, name, library, roofs.read);
  }
  if (mode != "check") return 0;
  std::printf("linear_skinny_bench: %s\n", failed == 0 ? "PASS" : "FAIL");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  std::vector<int> rows;
  for (int i = 3; i < argc; ++i) rows.push_back(std::atoi(argv[i]));
  if (rows.empty()) rows = {1, 4, 8, 16, 32, 48, 64};
  return atom::bench::run(argc > 1 ? argv[1] : "check", argc > 2 ? std::atoi(argv[2]) : 32, rows);
}
