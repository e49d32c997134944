#include "comm/tcp/group_watch.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace atom {
namespace {

using std::chrono::milliseconds;

// A beat is a header of zeros; a farewell has a code and a text.
struct WatchHeader {
  uint8_t code = 0;  // of a Status; kOk: a beat
  uint8_t zero = 0;
  uint16_t text_size = 0;
};
static_assert(sizeof(WatchHeader) == 4);
constexpr size_t kMaxFarewell = 1000;

std::string watch_message(StatusCode code, std::string_view text) {
  text = text.substr(0, kMaxFarewell);
  const WatchHeader header{static_cast<uint8_t>(code), 0, static_cast<uint16_t>(text.size())};
  std::string message(sizeof(header), '\0');
  memcpy(message.data(), &header, sizeof(header));
  return message.append(text);
}

}  // namespace

GroupWatch::GroupWatch(int rank, std::vector<FileDescriptor> sockets)
    : rank_(rank), failed_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(failed_.valid());
  for (FileDescriptor& socket : sockets) peers_.push_back({std::move(socket), {}, {}, false});
  thread_ = std::thread([this] { loop(); });
}

GroupWatch::~GroupWatch() {
  fail(unavailable("rank {} of {} has left the group", rank_, size()));
  thread_.join();
}

Status GroupWatch::status() const {
  const MutexLock lock(&mutex_);
  return failure_;
}

void GroupWatch::fail(Status reason) {
  CHECK(!reason.ok());
  {
    const MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    failure_ = std::move(reason);
    has_failed_.store(true, std::memory_order_release);
  }
  (void)!::eventfd_write(failed_.get(), 1);
}

void GroupWatch::loop() {
  Clock::time_point last_beat;
  Clock::time_point last_turn = Clock::now();
  while (!has_failed()) {
    if (Clock::now() - last_beat >= kBeat) {
      last_beat = Clock::now();
      beat();
    }
    wait();
    for (int peer = 0; peer < size(); ++peer) hear(peer);
    const Clock::time_point now = Clock::now();
    count_silence(std::min<Clock::duration>(now - last_turn, 2 * kBeat));
    last_turn = now;
  }
  say_farewell();
}

void GroupWatch::wait() {
  std::vector<pollfd> polled = {{failed_.get(), POLLIN, 0}};
  for (const Peer& peer : peers_) polled.push_back({peer.socket.get(), POLLIN, 0});
  ::poll(polled.data(), polled.size(), static_cast<int>(kBeat.count()));
}

void GroupWatch::hear(int number) {
  Peer& peer = peers_[number];
  if (!peer.socket.valid()) return;
  char bytes[1024];
  const ssize_t count = ::recv(peer.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (count <= 0) {
    return fail(unavailable("rank {} of {} is lost: {}",
                            number,
                            size(),
                            count == 0 ? "the connection was closed" : ::strerror(errno)));
  }
  peer.silence = {};
  peer.was_heard = true;
  peer.received.append(bytes, static_cast<size_t>(count));
  while (parse(number)) {
  }
}

bool GroupWatch::parse(int number) {
  std::string& received = peers_[number].received;
  WatchHeader header;
  if (received.size() < sizeof(header)) return false;
  memcpy(&header, received.data(), sizeof(header));
  const bool is_beat = header.code == 0 && header.text_size == 0;
  const bool is_farewell = header.code > 0 && header.text_size > 0 &&
                           header.code <= static_cast<uint8_t>(StatusCode::kInternal) &&
                           header.text_size <= kMaxFarewell;
  if (header.zero != 0 || (!is_beat && !is_farewell)) {
    fail(unavailable("rank {} of {} is lost: it sent what is no message", number, size()));
    return false;
  }
  if (received.size() < sizeof(header) + header.text_size) return false;
  if (is_farewell) {
    fail({static_cast<StatusCode>(header.code), received.substr(sizeof(header), header.text_size)});
    return false;
  }
  received.erase(0, sizeof(header));
  return true;
}

void GroupWatch::count_silence(Clock::duration passed) {
  for (int number = 0; number < size(); ++number) {
    Peer& peer = peers_[number];
    if (!peer.socket.valid()) continue;
    peer.silence += passed;
    if (peer.silence < (peer.was_heard ? kSilence : kFirstSilence)) continue;
    fail(unavailable("rank {} of {} is lost: nothing was heard of it for {} ms",
                     number,
                     size(),
                     std::chrono::duration_cast<milliseconds>(peer.silence).count()));
  }
}

// What a peer does not take now it does not get: one that has not read so many beats is lost.
void GroupWatch::beat() {
  const std::string message = watch_message(StatusCode::kOk, "");
  for (const Peer& peer : peers_) {
    if (!peer.socket.valid()) continue;
    ::send(peer.socket.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void GroupWatch::say_farewell() {
  const Status reason = status();
  const std::string message = watch_message(reason.code(), reason.message());
  for (const Peer& peer : peers_) {
    if (!peer.socket.valid()) continue;
    ::send(peer.socket.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

}  // namespace atom
