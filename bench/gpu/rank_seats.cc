#include "rank_seats.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace atom::bench {
namespace {

constexpr int kRounds = 5;

}  // namespace

RankSeats::RankSeats(int num_ranks, int64_t memory) : memory_(memory), meeting_(num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    RankSeat seat;
    seat.rank = rank;
    seat.card = device_runtime(Device{DeviceType::kCuda, rank}).value();
    seat.x = seat.card->allocate(memory);
    seat.y = seat.card->allocate(memory);
    seat.queue = seat.card->create_queue();
    seats_.push_back(std::move(seat));
    devices_.push_back(seats_.back().card->device());
  }
}

bool RankSeats::open(const LargeSums& large_sums) {
  Result<std::vector<std::unique_ptr<Communicator>>> group =
      make_device_group(devices_, std::chrono::seconds(5), large_sums);
  if (!group.ok()) {
    std::printf("%s\n", group.status().message().c_str());
    return false;
  }
  ranks_ = std::move(*group);
  for (RankSeat& seat : seats_) seat.ranks = ranks_[seat.rank].get();
  return true;
}

void RankSeats::on_all(const Body& body) {
  std::vector<std::thread> threads;
  for (RankSeat& seat : seats_) {
    threads.emplace_back([&] {
      seat.card->make_current();
      ThreadPool pool(1);
      body(seat, Stream(&pool, seat.queue.get()));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

double RankSeats::time(int count, int launches, const Body& once) {
  std::vector<double> rounds(kRounds);
  on_all([&](RankSeat& seat, const Stream& stream) {
    once(seat, stream);  // what a library sets up at its first call is not recorded
    seat.queue->synchronize();
    seat.queue->begin_recording();
    for (int i = 0; i < count; ++i) once(seat, stream);
    Result<std::unique_ptr<DeviceGraph>> graph = seat.queue->end_recording();
    if (!graph.ok()) {
      std::printf("rank %d: %s\n", seat.rank, graph.status().message().c_str());
      std::fflush(stdout);
      std::_Exit(1);
    }
    const auto begin = seat.queue->create_event(), end = seat.queue->create_event();
    for (int round = 0; round < kRounds; ++round) {
      (*graph)->launch();
      seat.queue->synchronize();
      meeting_.arrive_and_wait();
      // The host is to be ahead of the card, and the ranks are to begin together.
      seat.queue->delay(std::chrono::microseconds(100));
      seat.ranks->barrier(stream);
      begin->mark();
      for (int i = 0; i < launches; ++i) (*graph)->launch();
      end->mark();
      seat.queue->synchronize();
      seat.microseconds = 1e-3 * double(end->since(*begin).count()) / count / launches;
      meeting_.arrive_and_wait();
      if (seat.rank == 0) {
        for (const RankSeat& other : seats_) {
          rounds[round] = std::max(rounds[round], other.microseconds);
        }
      }
      meeting_.arrive_and_wait();
    }
  });
  return *std::min_element(rounds.begin(), rounds.end());
}

int run_with_ranks(int argc,
                   char** argv,
                   const char* arguments,
                   const std::function<int(int ranks)>& run) {
  const Result<std::span<const DeviceFacts>> cards = device_facts(DeviceType::kCuda);
  if (!cards.ok()) {
    std::printf("%s\n", cards.status().message().c_str());
    return 1;
  }
  const int most = static_cast<int>(std::min<size_t>(cards->size(), 8));
  const int ranks = argc > 1 ? std::atoi(argv[1]) : most;
  if (ranks < 2 || ranks > most) {
    std::printf("usage: %s: 2 to %d ranks here\n", arguments, most);
    return 2;
  }
  std::printf("%s\n", (*cards)[0].name.c_str());
  return run(ranks);
}

}  // namespace atom::bench
