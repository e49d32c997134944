// What large sums between cards take whose values travel as codes, beside those that travel whole,
// and how far they are off: the root of the mean square of the error over that of the sum, of
// values like a layer's: normal, with one in a thousand twenty times as large.
//
// usage: coded_sums_bench [RANKS]
//
// A rank for each card unless RANKS says less; bfloat16, in recorded graphs, 256 KiB to 256 MiB.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "rank_seats.h"
#include "tensor/numeric.h"

namespace atom::bench {
namespace {

constexpr int64_t kSmall = 256 << 10, kLarge = 256 << 20;
constexpr int64_t kChecked = 4 << 20;  // bytes of which errors are computed

std::vector<BFloat16> values_of(int rank) {
  std::mt19937 random(1 + static_cast<uint32_t>(rank));
  std::normal_distribution<float> normal;
  std::vector<BFloat16> values(kChecked / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = from_float<BFloat16>(normal(random) * (i % 1000 == 7 ? 20.0f : 1.0f));
  }
  return values;
}

Tensor tensor_of(const RankSeat& seat, int64_t bytes) {
  return Tensor(seat.x.get(), DType::kBFloat16, {bytes / 2}, seat.x, seat.card->device());
}

double error_of(RankSeats& seats) {
  std::vector<double> sum(kChecked / 2);
  std::vector<std::vector<BFloat16>> values;
  for (int r = 0; r < seats.size(); ++r) {
    values.push_back(values_of(r));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += to_float(values[r][i]);
  }
  seats.on_all([&](RankSeat& seat, const Stream& stream) {
    std::vector<BFloat16>& own = values[seat.rank];
    seat.queue->copy(seat.x.get(), own.data(), kChecked);
    seat.ranks->all_reduce(stream, tensor_of(seat, kChecked));
    seat.queue->copy(own.data(), seat.x.get(), kChecked);
    seat.queue->synchronize();
  });
  double difference = 0, norm = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    difference += std::pow(to_float(values[0][i]) - sum[i], 2);
    norm += sum[i] * sum[i];
  }
  return std::sqrt(difference / norm);
}

struct Format {
  const char* name;
  SumFormat format;
  std::vector<double> microseconds;
};

int run(int num_ranks) {
  Format formats[] = {{"whole", SumFormat::kWhole, {}},
                      {"FP8", SumFormat::kFloat8, {}},
                      {"INT4", SumFormat::kInt4, {}}};
  for (Format& format : formats) {
    RankSeats seats(num_ranks, kLarge);
    if (!seats.open({format.format, /*least_bytes=*/1})) return 1;
    std::printf("%s: relative error %.5f\n", format.name, error_of(seats));
    seats.on_all([](RankSeat& seat, const Stream&) {
      seat.queue->fill_zero(seat.x.get(), kLarge);
      seat.queue->synchronize();
    });
    for (int64_t bytes = kSmall; bytes <= kLarge; bytes *= 2) {
      format.microseconds.push_back(
          seats.time(bytes <= (4 << 20) ? 20 : 4, 5, [&](RankSeat& seat, const Stream& stream) {
            seat.ranks->all_reduce(stream, tensor_of(seat, bytes));
          }));
    }
  }
  std::printf("%d ranks, us of one\n     bytes |    whole |      FP8  gain |     INT4  gain\n",
              num_ranks);
  for (size_t i = 0; i < formats[0].microseconds.size(); ++i) {
    const double whole = formats[0].microseconds[i];
    std::printf("%10ld | %8.2f |", long(kSmall << i), whole);
    const double float8 = formats[1].microseconds[i], int4 = formats[2].microseconds[i];
    std::printf(" %8.2f %5.2f | %8.2f %5.2f\n", float8, whole / float8, int4, whole / int4);
  }
  return 0;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  return atom::bench::run_with_ranks(argc, argv, "coded_sums_bench [RANKS]", atom::bench::run);
}
