// What collectives between the cards of this machine take, ours and NCCL's beside each other, in
// recorded graphs, and whether sums are right: each within rounding of the sum in double.
//
// usage: collectives_bench [RANKS] [LARGEST_BYTES]
//
// "norm" is an all-reduce with residual addition and RMSNorm, as serving calls it, "apart" the same
// by two kernels; of rows of 8192 values, 4096 for 8 KiB, up to 4 MiB.
// A rank for each card unless RANKS says less; sizes from 8 KiB to 256 MiB. Times are of one
// operation of many in a row, on the slowest rank, the least of several rounds. NVLink multicast
// stays off.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "nccl_library.h"
#include "ops/rms_norm/rms_norm.h"
#include "rank_seats.h"
#include "tensor/numeric.h"

namespace atom::bench {
namespace {

constexpr int64_t kSmall = 8 << 10, kLarge = 256 << 20;

// The cards' ranks, and NCCL's of the same cards where there is NCCL.
class Table : public RankSeats {
 public:
  using RankSeats::RankSeats;

  bool open() {
    if (!RankSeats::open()) return false;
    Result<Nccl> nccl = open_nccl();
    if (!nccl.ok()) {
      std::printf("without NCCL: %s\n", nccl.status().message().c_str());
      return true;
    }
    nccl_ = *nccl;
    comms_.resize(size());
    std::vector<int> cards;
    for (int rank = 0; rank < size(); ++rank) {
      cards.push_back((*this)[rank].card->device().index);
    }
    if (const int error = nccl_.CommInitAll(comms_.data(), size(), cards.data())) {
      std::printf("without NCCL: %s\n", nccl_.GetErrorString(error));
      return true;
    }
    std::printf("NCCL %d, %s\n", nccl_.version, nccl_.path.c_str());
    has_nccl_ = true;
    return true;
  }

  bool has_nccl() const { return has_nccl_; }
  const Nccl& nccl() const { return nccl_; }
  Nccl::Comm comm(int rank) const { return comms_[rank]; }

 private:
  Nccl nccl_;
  std::vector<Nccl::Comm> comms_;
  bool has_nccl_ = false;
};

// Of add_rms_norm_of_ranks(), or of what it replaces; microseconds.
double time_norm(Table& table, int64_t bytes, int count, int launches, bool fused) {
  constexpr DType kType = DType::kBFloat16;
  const int64_t values = bytes / int64_t{sizeof(BFloat16)};
  const int64_t width = std::min<int64_t>(8192, values), rows = values / width;
  return table.time(count, launches, [&](RankSeat& seat, const Stream& stream) {
    const Device device = seat.card->device();
    char* y = static_cast<char*>(seat.y.get());
    const Tensor x(seat.x.get(), kType, {rows, width}, seat.x, device);
    const Tensor residual(y, kType, {rows, width}, seat.y, device);
    const Tensor out(y + bytes, kType, {rows, width}, seat.y, device);
    const Tensor weight(y + 2 * bytes, kType, {width}, seat.y, device);
    Workspace scratch;
    if (fused) {
      ops::add_rms_norm_of_ranks(stream, *seat.ranks, x, residual, weight, 1e-5f, out, {}, scratch);
    } else {
      seat.ranks->all_reduce(stream, x);
      ops::add_rms_norm(stream, x, residual, weight, 1e-5f, out);
    }
  });
}

float value_of(int rank, int64_t i) {
  return static_cast<float>((rank * 131 + i * 7919) % 1013) * 0.37f - 100.0f;
}

// The largest error of a sum of bf16 tensors over half a unit in its last place.
double check(Table& table, int64_t bytes) {
  const int64_t count = bytes / int64_t{sizeof(BFloat16)};
  std::vector<double> worst(table.size());
  table.on_all([&](RankSeat& seat, const Stream& stream) {
    std::vector<BFloat16> host(count);
    for (int64_t i = 0; i < count; ++i) host[i] = from_float<BFloat16>(value_of(seat.rank, i));
    seat.queue->copy(seat.x.get(), host.data(), bytes);
    const Tensor x(seat.x.get(), DType::kBFloat16, {count}, seat.x, seat.card->device());
    seat.ranks->all_reduce(stream, x);
    seat.queue->copy(host.data(), seat.x.get(), bytes);
    seat.queue->synchronize();
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int r = 0; r < table.size(); ++r) {
        sum += to_float(from_float<BFloat16>(value_of(r, i)));
      }
      const double half_unit = std::ldexp(std::max(std::fabs(sum), 1e-30), -8);
      const double error = std::fabs(to_float(host[i]) - sum) / half_unit;
      worst[seat.rank] = error == error ? std::max(worst[seat.rank], error) : 1e9;
    }
  });
  return *std::max_element(worst.begin(), worst.end());
}

// Microseconds of one operation; NaN where there is none.
struct Line {
  double reduce = NAN, nccl_reduce = NAN;
  double norm = NAN, apart = NAN;
  double gather = NAN, nccl_gather = NAN;
};

gpuStream_t queue_of(const Stream& stream) {
  return static_cast<gpuStream_t>(stream.queue().handle());
}

Line measure(Table& table, int64_t bytes) {
  const int count = bytes <= (1 << 20) ? 50 : 4, launches = bytes <= (1 << 20) ? 20 : 5;
  const int64_t values = bytes / int64_t{sizeof(BFloat16)}, part = values / table.size();
  constexpr DType kType = DType::kBFloat16;
  Line line;
  line.reduce = table.time(count, launches, [&](RankSeat& seat, const Stream& stream) {
    seat.ranks->all_reduce(stream,
                           Tensor(seat.x.get(), kType, {values}, seat.x, seat.card->device()));
  });
  line.gather = table.time(count, launches, [&](RankSeat& seat, const Stream& stream) {
    const Device device = seat.card->device();
    seat.ranks->all_gather(stream,
                           Tensor(seat.x.get(), kType, {part}, seat.x, device),
                           Tensor(seat.y.get(), kType, {table.size(), part}, seat.y, device));
  });
  if (bytes <= (4 << 20) && 4 * bytes <= table.memory()) {
    line.norm = time_norm(table, bytes, count, launches, true);
    line.apart = time_norm(table, bytes, count, launches, false);
  }
  if (!table.has_nccl()) return line;
  const Nccl& nccl = table.nccl();
  line.nccl_reduce = table.time(count, launches, [&](RankSeat& seat, const Stream& stream) {
    void* x = seat.x.get();
    nccl.AllReduce(
        x, x, values, Nccl::kBFloat16, Nccl::kSum, table.comm(seat.rank), queue_of(stream));
  });
  line.nccl_gather = table.time(count, launches, [&](RankSeat& seat, const Stream& stream) {
    nccl.AllGather(
        seat.x.get(), seat.y.get(), part, Nccl::kBFloat16, table.comm(seat.rank), queue_of(stream));
  });
  return line;
}

int run(int num_ranks, int64_t largest) {
  Table table(num_ranks, largest);
  if (!table.open()) return 1;
  std::printf("%d ranks, us of one; GB/s: of the bus, 2 (n - 1) / n of an all-reduce's bytes\n",
              num_ranks);
  std::printf(
      "     bytes |    reduce      NCCL  ratio |    GB/s    NCCL |      norm     apart  /NCCL |"
      "    gather      NCCL |  error\n");
  int failures = 0;
  for (int64_t bytes = kSmall; bytes <= largest; bytes *= bytes < (2 << 20) ? 2 : 4) {
    const double error = check(table, bytes);
    failures += error <= 1 ? 0 : 1;
    const Line line = measure(table, bytes);
    const double moved = 2e-3 * double(bytes) * (num_ranks - 1) / num_ranks;
    std::printf(
        "%10ld | %9.2f %9.2f %6.2f | %7.1f %7.1f | %9.2f %9.2f %6.2f | %9.2f %9.2f | %6.3f%s\n",
        long(bytes),
        line.reduce,
        line.nccl_reduce,
        line.reduce / line.nccl_reduce,
        moved / line.reduce,
        moved / line.nccl_reduce,
        line.norm,
        line.apart,
        line.norm / line.nccl_reduce,
        line.gather,
        line.nccl_gather,
        error,
        error <= 1 ? "" : " WRONG");
    std::fflush(stdout);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  using namespace atom::bench;
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  const int64_t largest = argc > 2 ? std::atoll(argv[2]) : kLarge;
  if (largest < kSmall) {
    std::printf("collectives_bench: LARGEST_BYTES is at least %ld\n", long{kSmall});
    return 2;
  }
  return run_with_ranks(argc, argv, "collectives_bench [RANKS] [LARGEST_BYTES]", [&](int ranks) {
    return run(ranks, largest);
  });
}
