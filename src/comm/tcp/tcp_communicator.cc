#include "comm/tcp/tcp_communicator.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "comm/reduce.h"
#include "comm/tcp/group_watch.h"
#include "comm/tcp/tcp_link.h"

namespace atom {
namespace {

using std::chrono::milliseconds;
using WaitClock = std::chrono::steady_clock;

// Up to so many bytes a rank, every one adds up everything: one exchange instead of two.
constexpr int64_t kMostSentWhole = 16 << 10;
// Elements of one task of a reduction, a multiple of any cache line.
constexpr int64_t kTcpReduceGrain = 16 << 10;
// A closed connection is explained on the watch's own one, a little later perhaps.
constexpr milliseconds kExplanation{300};

const char* offset(const void* data, int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}

char* offset(void* data, int64_t bytes) {
  return static_cast<char*>(data) + bytes;
}

std::vector<FileDescriptor> watches_of(std::vector<TcpPeer>* peers) {
  std::vector<FileDescriptor> watches;
  for (TcpPeer& peer : *peers) watches.push_back(std::move(peer.watch));
  return watches;
}

class TcpCommunicator : public Communicator {
 public:
  TcpCommunicator(int rank, std::vector<TcpPeer> peers, milliseconds timeout)
      : Communicator(rank, static_cast<int>(peers.size())),
        timeout_(timeout),
        num_sent_(peers.size()),
        num_received_(peers.size()),
        watch_(rank, watches_of(&peers)) {
    for (TcpPeer& peer : peers) links_.emplace_back(std::move(peer.data));
  }

  Status status() const override { return watch_.status(); }
  void fail(Status reason) override { watch_.fail(std::move(reason)); }

 protected:
  void do_all_reduce(
      const Stream& stream, void* x, int64_t count, DType dtype, ReduceOp op) override {
    const int64_t bytes = count * dtype_size(dtype);
    if (bytes <= kMostSentWhole) return reduce_whole(stream, x, count, dtype, op);
    const auto first = [&](int rank) { return count * rank / size() * dtype_size(dtype); };
    const int64_t mine = first(rank());
    const int64_t num_mine = first(rank() + 1) - mine;
    scratch_.resize(static_cast<size_t>(num_mine) * size());
    TcpFrameHeader header = begin(TcpOperation::kAllReduce, dtype, op);
    for_each_other([&](int other) {
      post(other, header, offset(x, first(other)), first(other + 1) - first(other));
      expect(other, header, scratch_.data() + other * num_mine, num_mine);
    });
    if (!exchange()) return;
    add_up(stream, dtype, op, offset(x, mine), num_mine / dtype_size(dtype));
    header = begin(TcpOperation::kAllReduceParts, dtype, op);
    for_each_other([&](int other) {
      post(other, header, offset(x, mine), num_mine);
      expect(other, header, offset(x, first(other)), first(other + 1) - first(other));
    });
    exchange();
  }

  void do_all_gather(const Stream&, const void* part, void* whole, int64_t bytes) override {
    const TcpFrameHeader header = begin(TcpOperation::kAllGather);
    for_each_other([&](int other) {
      post(other, header, part, bytes);
      expect(other, header, offset(whole, other * bytes), bytes);
    });
    std::memmove(offset(whole, rank() * bytes), part, static_cast<size_t>(bytes));
    exchange();
  }

  void do_reduce_scatter(
      const Stream& stream, void* whole, void* part, int64_t count, DType dtype) override {
    const int64_t bytes = count * dtype_size(dtype);
    scratch_.resize(static_cast<size_t>(bytes) * size());
    const TcpFrameHeader header = begin(TcpOperation::kReduceScatter, dtype);
    for_each_other([&](int other) {
      post(other, header, offset(whole, other * bytes), bytes);
      expect(other, header, scratch_.data() + other * bytes, bytes);
    });
    std::memmove(part, offset(whole, rank() * bytes), static_cast<size_t>(bytes));
    if (exchange()) add_up(stream, dtype, ReduceOp::kSum, part, count);
  }

  void do_all_to_all(const Stream&, const void* from, void* to, int64_t bytes) override {
    const TcpFrameHeader header = begin(TcpOperation::kAllToAll);
    for_each_other([&](int other) {
      post(other, header, offset(from, other * bytes), bytes);
      expect(other, header, offset(to, other * bytes), bytes);
    });
    std::memcpy(offset(to, rank() * bytes), offset(from, rank() * bytes), bytes);
    exchange();
  }

  void do_broadcast(const Stream&, void* x, int64_t bytes, int root) override {
    TcpFrameHeader header = begin(TcpOperation::kBroadcast);
    header.root = static_cast<uint8_t>(root);
    if (rank() != root) {
      expect(root, header, x, bytes);
    } else {
      for_each_other([&](int other) { post(other, header, x, bytes); });
    }
    exchange();
  }

  void do_barrier(const Stream&) override {
    const TcpFrameHeader header = begin(TcpOperation::kBarrier);
    for_each_other([&](int other) {
      post(other, header, nullptr, 0);
      expect(other, header, nullptr, 0);
    });
    exchange();
  }

  void do_send(const Stream&, const void* x, int64_t bytes, int to) override {
    TcpFrameHeader header;
    header.operation = TcpOperation::kMessage;
    header.round = num_sent_[to]++;
    post(to, header, x, bytes);
    // Ranks that send each other long messages would else wait for each other.
    exchange(/*reads_ahead=*/true);
  }

  void do_receive(const Stream&, void* x, int64_t bytes, int from) override {
    TcpFrameHeader header;
    header.operation = TcpOperation::kMessage;
    header.round = num_received_[from]++;
    expect(from, header, x, bytes);
    exchange();
  }

 private:
  template <typename Body>
  void for_each_other(const Body& body) {
    for (int i = 1; i < size(); ++i) body((rank() + i) % size());
  }

  TcpFrameHeader begin(TcpOperation operation,
                       DType dtype = DType::kInt8,
                       ReduceOp op = ReduceOp::kSum) {
    TcpFrameHeader header;
    header.operation = operation;
    header.dtype = static_cast<uint8_t>(dtype);
    header.reduce_op = static_cast<uint8_t>(op);
    header.round = num_rounds_++;
    return header;
  }

  void post(int to, TcpFrameHeader header, const void* data, int64_t bytes) {
    header.num_bytes = bytes;
    if (!watch_.has_failed()) links_[to].send(header, data);
  }

  void expect(int from, TcpFrameHeader header, void* target, int64_t bytes) {
    header.num_bytes = bytes;
    if (!watch_.has_failed()) links_[from].expect(header, target);
  }

  // x = op over all ranks, each of which gets all of it.
  void reduce_whole(const Stream& stream, void* x, int64_t count, DType dtype, ReduceOp op) {
    const int64_t bytes = count * dtype_size(dtype);
    scratch_.resize(static_cast<size_t>(bytes) * size());
    const TcpFrameHeader header = begin(TcpOperation::kAllReduce, dtype, op);
    for_each_other([&](int other) {
      post(other, header, x, bytes);
      expect(other, header, scratch_.data() + other * bytes, bytes);
    });
    if (exchange()) add_up(stream, dtype, op, x, count);
  }

  // mine = op over the other ranks' elements, which are in scratch_, and `mine` in this rank's
  // place.
  void add_up(const Stream& stream, DType dtype, ReduceOp op, void* mine, int64_t count) const {
    const int64_t bytes = count * dtype_size(dtype);
    stream.pool().parallel_for(count, kTcpReduceGrain, [&](int64_t first, int64_t last) {
      const int64_t from = first * dtype_size(dtype);
      std::vector<const void*> sources;
      for (int i = 0; i < size(); ++i) {
        sources.push_back(i == rank() ? offset(mine, from) : scratch_.data() + i * bytes + from);
      }
      void* target = offset(mine, from);
      reduce_in_order(op, dtype, sources, {&target, 1}, last - first);
    });
  }

  // Until everything that was posted is sent and everything that is expected has come. False: the
  // group has failed.
  bool exchange(bool reads_ahead = false) {
    const WaitClock::time_point deadline = WaitClock::now() + timeout_;
    std::vector<pollfd> polled;
    while (!watch_.has_failed()) {
      polled.assign(1, {watch_.failure_fd(), POLLIN, 0});
      int awaited = -1;
      for (int other = 0; other < size(); ++other) {
        if (other == rank()) continue;
        advance(other, reads_ahead);
        const TcpLink& link = links_[other];
        if (!link.is_sending() && !link.is_expecting()) continue;
        awaited = other;
      }
      if (awaited < 0) break;
      for (int other = 0; other < size(); ++other) {
        if (other != rank()) add_poll(links_[other], reads_ahead, &polled);
      }
      const auto left = std::chrono::ceil<milliseconds>(deadline - WaitClock::now());
      if (left.count() <= 0) {
        fail(unavailable("rank {} of {} waited {} ms for rank {}: lost",
                         rank(),
                         size(),
                         timeout_.count(),
                         awaited));
        break;
      }
      ::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    }
    if (!watch_.has_failed()) return true;
    for (TcpLink& link : links_) link.give_up();
    return false;
  }

  static void add_poll(const TcpLink& link, bool reads_ahead, std::vector<pollfd>* polled) {
    const bool reads = link.is_expecting() || reads_ahead;
    const short events = (reads ? POLLIN : 0) | (link.is_sending() ? POLLOUT : 0);
    if (events != 0) polled->push_back({link.fd(), events, 0});
  }

  void advance(int other, bool reads_ahead) {
    TcpLink& link = links_[other];
    Status status = link.flush();
    if (status.ok()) status = reads_ahead ? link.receive_ahead() : link.receive();
    if (status.ok()) return;
    pollfd explained{watch_.failure_fd(), POLLIN, 0};
    ::poll(&explained, 1, static_cast<int>(kExplanation.count()));
    fail(unavailable("rank {} of {} is lost: {}", other, size(), status.message()));
  }

  const milliseconds timeout_;
  std::vector<TcpLink> links_;
  std::vector<char> scratch_;  // [rank, bytes]
  uint64_t num_rounds_ = 0;
  std::vector<uint64_t> num_sent_;  // messages to each rank
  std::vector<uint64_t> num_received_;
  GroupWatch watch_;  // leaves before the connections are closed
};

}  // namespace

std::unique_ptr<Communicator> make_tcp_communicator(int rank,
                                                    std::vector<TcpPeer> peers,
                                                    milliseconds timeout) {
  CHECK(rank >= 0);
  CHECK(rank < static_cast<int>(peers.size()));
  return std::make_unique<TcpCommunicator>(rank, std::move(peers), timeout);
}

std::vector<std::unique_ptr<Communicator>> make_socket_group(int size, milliseconds timeout) {
  CHECK(size >= 1);
  std::vector<std::vector<TcpPeer>> peers(size);
  for (std::vector<TcpPeer>& ends : peers) ends.resize(size);
  const auto join = [](FileDescriptor* a, FileDescriptor* b) {
    int ends[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    *a = FileDescriptor(ends[0]);
    *b = FileDescriptor(ends[1]);
  };
  for (int a = 0; a < size; ++a) {
    for (int b = 0; b < a; ++b) {
      join(&peers[a][b].data, &peers[b][a].data);
      join(&peers[a][b].watch, &peers[b][a].watch);
    }
  }
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(make_tcp_communicator(rank, std::move(peers[rank]), timeout));
  }
  return ranks;
}

}  // namespace atom
