// What a layer's experts take that ranks on cards share, each with tokens of its own: tokens to
// their experts, the experts, and the sums back; by gathering all tokens, by all-to-all, and by
// all-to-all in FP8. In recorded graphs; results of every way are held to those of gathering.
//
// usage: expert_exchange_bench [RANKS]
//
// The experts are a layer's of Qwen3-30B-A3B in bfloat16 (128 of 768, top 8, 2048 wide), spread
// over a rank for each card unless RANKS says less; choices are even at random. Times are of the
// slowest rank, the least of several rounds. "layer" is all three one behind the other.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "layers/moe/expert_exchange.h"
#include "layers/moe/fused_moe.h"
#include "loader/load_dummy.h"
#include "rank_seats.h"
#include "tensor/numeric.h"

namespace atom::bench {
namespace {

constexpr int64_t kExperts = 128, kTopK = 8, kWidth = 2048, kInner = 768;
constexpr int64_t kMost = 2048;  // tokens of a rank
constexpr int64_t kMemory = int64_t{512} << 20;

struct Way {
  const char* name;
  ExpertDispatch dispatch;
};
constexpr Way kWays[] = {{"gather", ExpertDispatch::kGather},
                         {"all-to-all", ExpertDispatch::kAllToAll},
                         {"all-to-all-fp8", ExpertDispatch::kAllToAllFloat8}};

// What a rank keeps of one way; with memory that is there before any rank begins.
struct Layer {
  ModelConfig config;
  std::unique_ptr<BuildContext> build;
  std::unique_ptr<ExpertExchange> exchange;
};

struct Rank {
  std::vector<Layer> layers;  // by way
  std::unique_ptr<FusedMoE> experts;
  std::unique_ptr<Workspace> workspace;
  std::vector<int32_t> counts;  // tokens of ranks
  Tensor x, ids, weights, out;
};

std::vector<int32_t> random_choices(int rank, int64_t count) {
  std::mt19937 random(7 + static_cast<uint32_t>(rank));
  std::vector<int32_t> ids, all(kExperts);
  for (int32_t e = 0; e < kExperts; ++e) all[e] = e;
  for (int64_t t = 0; t < count; ++t) {
    std::shuffle(all.begin(), all.end(), random);
    ids.insert(ids.end(), all.begin(), all.begin() + kTopK);
  }
  return ids;
}

class Bench {
 public:
  explicit Bench(int num_ranks) : seats_(num_ranks, kMemory), ranks_(num_ranks) {}

  bool open() {
    if (!seats_.open()) return false;
    for (int r = 0; r < seats_.size(); ++r) set_up(r);
    seats_.on_all([&](RankSeat& seat, const Stream& stream) { load(seat, stream); });
    return true;
  }

  void measure(int64_t count) {
    for (Rank& rank : ranks_) rank.counts.assign(seats_.size(), static_cast<int32_t>(count));
    std::vector<std::vector<float>> gathered;
    for (size_t way = 0; way < std::size(kWays); ++way) {
      const double layer = time(way, count, /*first=*/0, /*last=*/2);
      const double error = error_against(gathered, count);
      std::printf("%7ld | %-14s | %8.2f %8.2f %8.2f | %8.2f | %.5f\n",
                  long(count),
                  kWays[way].name,
                  time(way, count, 0, 0),
                  time(way, count, 1, 1),
                  time(way, count, 2, 2),
                  layer,
                  error);
      std::fflush(stdout);
    }
  }

 private:
  void set_up(int r) {
    Rank& rank = ranks_[r];
    rank.layers.resize(std::size(kWays));
    for (size_t i = 0; i < rank.layers.size(); ++i) {
      Layer& layer = rank.layers[i];
      layer.config.hidden_size = kWidth;
      layer.build = std::make_unique<BuildContext>(BuildContext{layer.config});
      BuildContext& build = *layer.build;
      build.device = seats_[r].card->device();
      build.parallel.expert_parallel = true;
      build.parallel.data_parallel_rank = r;
      build.parallel.data_parallel_size = seats_.size();
      build.parallel.dispatch = kWays[i].dispatch;
      build.parallel.experts = seats_[r].ranks;
      layer.exchange = make_expert_exchange(build, expert_owners(build, options()));
      CHECK(build.status.ok());
    }
    rank.experts = std::make_unique<FusedMoE>(*rank.layers[0].build, options());
  }

  static FusedMoEOptions options() {
    FusedMoEOptions options;
    options.num_experts = kExperts;
    options.intermediate_size = kInner;
    return options;
  }

  void load(RankSeat& seat, const Stream& stream) {
    Rank& rank = ranks_[seat.rank];
    const Status status = load_dummy(rank.experts.get(), DummyWeights::kRandom, 1, stream);
    if (!status.ok()) {
      std::printf("%s\n", status.message().c_str());
      std::_Exit(1);
    }
    rank.workspace = std::make_unique<Workspace>(stream, kMemory);
    const Device device = seat.card->device();
    const auto take = [&](int64_t offset, const Shape& shape, DType dtype) {
      return Tensor(static_cast<char*>(seat.x.get()) + offset, dtype, shape, seat.x, device);
    };
    rank.x = take(0, {kMost, kWidth}, DType::kBFloat16);
    rank.out = take(64 << 20, {kMost, kWidth}, DType::kBFloat16);
    rank.ids = take(128 << 20, {kMost, kTopK}, DType::kInt32);
    rank.weights = take(192 << 20, {kMost, kTopK}, DType::kFloat32);
    seat.queue->fill_random(rank.x.raw_data(),
                            DType::kBFloat16,
                            kMost * kWidth,
                            {.key = uint64_t(seat.rank), .half_width = 1});
    const std::vector<int32_t> ids = random_choices(seat.rank, kMost);
    const std::vector<float> weights(kMost * kTopK, 1.0f / kTopK);
    seat.queue->copy(rank.ids.raw_data(), ids.data(), rank.ids.num_bytes());
    seat.queue->copy(rank.weights.raw_data(), weights.data(), rank.weights.num_bytes());
    seat.queue->synchronize();
  }

  // Parts `first` to `last` of the layer: 0 dispatch, 1 experts, 2 combine. What the others leave
  // lies in the same places of the workspace each time.
  double time(size_t way, int64_t count, int first, int last) {
    const int repeats = count <= 128 ? 20 : 4;
    // All parts once, so that each finds what the one before it leaves; and before that what may
    // wait for an idle card, as no rank waits for another one yet.
    seats_.on_all([&](RankSeat& seat, const Stream& stream) {
      run(seat, stream, way, count, 1, 1);
      seat.queue->synchronize();
    });
    seats_.on_all([&](RankSeat& seat, const Stream& stream) {
      run(seat, stream, way, count, 0, 2);
      seat.queue->synchronize();
    });
    return seats_.time(repeats, 5, [&](RankSeat& seat, const Stream& stream) {
      run(seat, stream, way, count, first, last);
    });
  }

  void run(RankSeat& seat, const Stream& stream, size_t way, int64_t count, int first, int last) {
    Rank& rank = ranks_[seat.rank];
    const ExpertExchange& exchange = *rank.layers[way].exchange;
    const auto own = [&](const Tensor& tensor) { return tensor.narrow(0, 0, count); };
    const MoeRouter::Choice choice = {own(rank.ids), own(rank.weights)};
    const LayerStorage storage;
    const Workspace::Scope scope(*rank.workspace);
    // Parts that are left out take their memory and do nothing, as in a plan.
    const Stream dry = Stream::dry_run(stream.device());
    const auto context = [&](const Stream& by) {
      return ForwardContext{.stream = by,
                            .workspace = *rank.workspace,
                            .token_ids = {},
                            .positions = {},
                            .batch = {},
                            .storage = storage,
                            .tokens_of_ranks = rank.counts};
    };
    const ForwardContext real = context(stream), planned = context(dry);
    const ExpertRows rows =
        exchange.prepare(own(rank.x), choice, own(rank.out), first == 0 ? real : planned);
    if (first <= 1 && last >= 1) rank.experts->forward(rows.x, rows.choice, rows.y, real);
    if (last == 2) exchange.finalize(rows, own(rank.out), real);
  }

  // Of all ranks' results the distance to those of the first way, relative to their size.
  double error_against(std::vector<std::vector<float>>& gathered, int64_t count) {
    const bool is_first = gathered.empty();
    double difference = 0, norm = 0;
    for (int r = 0; r < seats_.size(); ++r) {
      std::vector<BFloat16> bits(count * kWidth);
      const RankSeat& seat = seats_[r];
      seat.card->make_current();
      seat.queue->copy(bits.data(), ranks_[r].out.raw_data(), std::ssize(bits) * 2);
      seat.queue->synchronize();
      std::vector<float> values(bits.size());
      std::ranges::transform(bits, values.begin(), [](BFloat16 x) { return to_float(x); });
      if (is_first) {
        gathered.push_back(std::move(values));
        continue;
      }
      for (size_t i = 0; i < values.size(); ++i) {
        difference += std::pow(double{values[i]} - gathered[r][i], 2);
        norm += std::pow(double{gathered[r][i]}, 2);
      }
    }
    return is_first ? 0 : std::sqrt(difference / norm);
  }

  RankSeats seats_;
  std::vector<Rank> ranks_;
};

int run(int num_ranks) {
  Bench bench(num_ranks);
  if (!bench.open()) return 1;
  std::printf("%d ranks, us\n", num_ranks);
  std::printf(" tokens | way            | dispatch  experts  combine |    layer | error\n");
  for (const int64_t count : {8, 32, 128, 512, 2048}) bench.measure(count);
  return 0;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  return atom::bench::run_with_ranks(argc, argv, "expert_exchange_bench [RANKS]", atom::bench::run);
}
