#include "comm/tcp/join_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace atom {
namespace {

using std::chrono::milliseconds;

constexpr int kJoinBacklog = 128;
constexpr int kAskEvery = 100;        // milliseconds
constexpr size_t kJoinEnvelope = 12;  // see read_join_envelope()

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Result<Addresses> look_up(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int error =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &found);
  if (error != 0) return unavailable("{} is no address: {}", host, ::gai_strerror(error));
  return Addresses(found, ::freeaddrinfo);
}

Result<FileDescriptor> listen_at(const addrinfo& address) {
  FileDescriptor socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  const int one = 1;
  if (socket.valid() &&
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
      ::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 &&
      ::listen(socket.get(), kJoinBacklog) == 0) {
    return socket;
  }
  return unavailable("{}", ::strerror(errno));
}

Result<Roster::Member> address_of(const FileDescriptor& socket,
                                  int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST], service[NI_MAXSERV];
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (name(socket.get(), generic, &size) != 0 ||
      ::getnameinfo(generic,
                    size,
                    host,
                    sizeof(host),
                    service,
                    sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return unavailable("a connection ended before it was used");
  }
  return Roster::Member{host, static_cast<uint16_t>(std::stoi(service))};
}

int name_of_peer(int fd, sockaddr* address, socklen_t* size) {
  return ::getpeername(fd, address, size);
}

int name_of_self(int fd, sockaddr* address, socklen_t* size) {
  return ::getsockname(fd, address, size);
}

// False when the patience is over.
bool wait_for(const FileDescriptor& socket, short events, const JoinPatience& patience) {
  for (;;) {
    const int timeout = patience.next_wait();
    if (timeout <= 0) return false;
    pollfd polled{socket.get(), events, 0};
    if (::poll(&polled, 1, timeout) > 0) return true;
  }
}

bool is_for_later() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

Result<FileDescriptor> connect_to(const addrinfo& address, const JoinPatience& patience) {
  FileDescriptor socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!socket.valid()) return unavailable("{}", ::strerror(errno));
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return unavailable("{}", ::strerror(errno));
    if (!wait_for(socket, POLLOUT, patience)) return unavailable("nothing answers");
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return unavailable("{}", ::strerror(error));
  }
  prepare_socket(socket);
  return socket;
}

}  // namespace

int JoinPatience::next_wait() const {
  if (go_on && !go_on()) return 0;
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, kAskEvery));
}

void prepare_socket(const FileDescriptor& socket) {
  const int one = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  // Who waits for the others is not to wait for a machine that is gone.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
  for (const auto& [option, value] :
       {std::pair(TCP_KEEPIDLE, 2), {TCP_KEEPINTVL, 1}, {TCP_KEEPCNT, 3}}) {
    ::setsockopt(socket.get(), IPPROTO_TCP, option, &value, sizeof(value));
  }
}

Result<FileDescriptor> listen_on(const std::string& host, uint16_t port) {
  ASSIGN_OR_RETURN(const Addresses addresses, look_up(host, port, 0));
  Status status;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Result<FileDescriptor> socket = listen_at(*address);
    if (socket.ok()) return socket;
    const bool is_elsewhere = errno == EADDRNOTAVAIL;
    if (status.ok() || !is_elsewhere) status = socket.status();
    if (!is_elsewhere) break;
  }
  if (errno != EADDRNOTAVAIL) {
    return unavailable("cannot listen on {} port {}: {}", host, port, status.message());
  }
  ASSIGN_OR_RETURN(const Addresses any, look_up("", port, AI_PASSIVE));
  Result<FileDescriptor> socket = listen_at(*any);
  if (socket.ok()) return socket;
  return unavailable("cannot listen on port {}: {}", port, socket.status().message());
}

Result<Roster::Member> local_address(const FileDescriptor& socket) {
  return address_of(socket, name_of_self);
}

Result<Roster::Member> peer_address(const FileDescriptor& socket) {
  return address_of(socket, name_of_peer);
}

Result<FileDescriptor> connect_once(const std::string& host,
                                    uint16_t port,
                                    const JoinPatience& patience) {
  ASSIGN_OR_RETURN(const Addresses addresses, look_up(host, port, 0));
  Status status = unavailable("it has no address");
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Result<FileDescriptor> socket = connect_to(*address, patience);
    if (socket.ok()) return socket;
    status = socket.status();
  }
  return unavailable("cannot connect to {} port {}: {}", host, port, status.message());
}

Status write_whole(const FileDescriptor& socket,
                   std::span<const uint8_t> bytes,
                   const JoinPatience& patience) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (!is_for_later()) {
      return unavailable("the connection is lost: {}", ::strerror(errno));
    } else if (!wait_for(socket, POLLOUT, patience)) {
      return unavailable("the other end does not read");
    }
  }
  return {};
}

Result<std::vector<uint8_t>> read_join_message(const FileDescriptor& socket,
                                               const JoinPatience& patience) {
  std::vector<uint8_t> message(kJoinEnvelope);
  size_t num_read = 0;
  for (;;) {
    if (num_read == message.size()) {
      ASSIGN_OR_RETURN(const std::optional<JoinEnvelope> envelope, read_join_envelope(message));
      if (envelope->num_bytes == num_read) return message;
      message.resize(envelope->num_bytes);
    }
    const ssize_t count =
        ::recv(socket.get(), message.data() + num_read, message.size() - num_read, 0);
    if (count > 0) {
      num_read += static_cast<size_t>(count);
    } else if (count == 0) {
      return unavailable("the other end has closed the connection");
    } else if (!is_for_later()) {
      return unavailable("the connection is lost: {}", ::strerror(errno));
    } else if (!wait_for(socket, POLLIN, patience)) {
      return unavailable("the other end says nothing");
    }
  }
}

}  // namespace atom
