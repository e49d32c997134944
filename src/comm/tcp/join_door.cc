#include "comm/tcp/join_door.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "base/log.h"

namespace atom {
namespace {

constexpr std::chrono::seconds kTellEvery{10};

}  // namespace

JoinDoor::JoinDoor(FileDescriptor listener, std::string secret)
    : listener_(std::move(listener)), secret_(std::move(secret)) {}

std::optional<JoinDoor::Visitor> JoinDoor::wait(const JoinPatience& patience,
                                                const std::vector<int>& others) {
  for (;;) {
    const int timeout = patience.next_wait();
    if (timeout <= 0) return std::nullopt;
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const Stranger& stranger : strangers_)
      polled.push_back({stranger.socket.get(), POLLIN, 0});
    for (const int other : others) polled.push_back({other, POLLIN, 0});
    ::poll(polled.data(), polled.size(), timeout);
    drop_late();
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
      const auto next = std::next(stranger);
      if (std::optional<Visitor> visitor = hear(stranger)) return visitor;
      stranger = next;
    }
    let_in();
    for (size_t i = 0; i < others.size(); ++i) {
      if (polled[polled.size() - 1 - i].revents != 0) return std::nullopt;
    }
  }
}

void JoinDoor::let_in() {
  // A few at a time: those who are in are heard between.
  for (size_t i = 0; i < kMaxStrangers / 4; ++i) {
    FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    prepare_socket(socket);
    if (strangers_.size() >= kMaxStrangers) {
      refuse(strangers_.begin(), unavailable("too many others came"));
    }
    Stranger& stranger = strangers_.emplace_back();
    stranger.socket = std::move(socket);
    stranger.deadline = JoinPatience::Clock::now() + kStrangersTime;
    fill_randomly(stranger.nonce);
    const std::vector<uint8_t> challenge = encode(JoinChallenge{stranger.nonce});
    // It always fits into what a new connection keeps.
    ::send(stranger.socket.get(), challenge.data(), challenge.size(), MSG_NOSIGNAL);
  }
}

void JoinDoor::drop_late() {
  while (!strangers_.empty() && strangers_.front().deadline <= JoinPatience::Clock::now()) {
    refuse(strangers_.begin(), unavailable("nothing came in time"));
  }
}

std::optional<JoinDoor::Visitor> JoinDoor::hear(Strangers::iterator stranger) {
  Result<std::optional<Visitor>> visitor = examine(&*stranger);
  if (!visitor.ok()) {
    refuse(stranger, visitor.status());
    return std::nullopt;
  }
  if (visitor->has_value()) strangers_.erase(stranger);
  return std::move(*visitor);
}

Result<std::optional<JoinDoor::Visitor>> JoinDoor::examine(Stranger* stranger) {
  uint8_t bytes[kMaxUnprovenMessage];
  const ssize_t count = ::recv(stranger->socket.get(), bytes, sizeof(bytes), 0);
  if (count == 0) return unavailable("it closed the connection");
  if (count < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::optional<Visitor>();
    return unavailable("the connection is lost");
  }
  std::vector<uint8_t>& received = stranger->received;
  received.insert(received.end(), bytes, bytes + count);
  ASSIGN_OR_RETURN(const std::optional<JoinEnvelope> envelope, read_join_envelope(received));
  if (!envelope || received.size() < envelope->num_bytes) {
    if (received.size() > kMaxUnprovenMessage) return invalid_argument("it says too much");
    return std::optional<Visitor>();
  }
  if (received.size() > envelope->num_bytes) return invalid_argument("it says too much");
  ASSIGN_OR_RETURN(JoinRequest request, decode_join_request(received));
  if (!is_proven(received, secret_, {stranger->nonce, {}})) {
    // So that it need not guess why it was not let in; nobody's secret proves this.
    const std::vector<uint8_t> verdict =
        encode(JoinVerdict{false, "another secret"}, "", {stranger->nonce, request.nonce});
    ::send(stranger->socket.get(), verdict.data(), verdict.size(), MSG_NOSIGNAL);
    return invalid_argument("it does not know the secret");
  }
  const JoinNonces nonces{stranger->nonce, request.nonce};
  return std::optional<Visitor>(Visitor{std::move(stranger->socket), std::move(request), nonces});
}

void JoinDoor::refuse(Strangers::iterator stranger, const Status& reason) {
  ++num_refused_;
  if (const auto now = JoinPatience::Clock::now(); now - told_at_ > kTellEvery) {
    told_at_ = now;
    const Result<Roster::Member> address = peer_address(stranger->socket);
    log::warning("a request to join from {} was refused: {} ({} so far)",
                 address.ok() ? address->host : "somebody",
                 reason.message(),
                 num_refused_);
  }
  strangers_.erase(stranger);
}

}  // namespace atom
