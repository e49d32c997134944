#include "server/http/listening_sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace atom::server {
namespace {

constexpr int kBacklog = 4096;  // the kernel lowers it to its own limit

std::string error_text(int error) {
  return std::generic_category().message(error);
}

std::string describe_endpoint(const std::string& host, uint16_t port) {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port)
                                     : fmt::format("[{}]:{}", host, port);
}

struct AddressListDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressListDeleter>;

Result<AddressList> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), "0", &hints, &list);
  if (error != 0) {
    return invalid_argument("cannot listen on host '{}': {}",
                            host,
                            error == EAI_SYSTEM ? error_text(errno) : gai_strerror(error));
  }
  return AddressList(list);
}

void set_port(sockaddr* address, uint16_t port) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  }
}

uint16_t get_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// The descriptor, or minus errno. Accepted sockets inherit the options.
int listen_on(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (address.ai_family == AF_INET6) {
    // "::" serves IPv4 too.
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(fd, address.ai_addr, address.ai_addrlen) != 0 || ::listen(fd, kBacklog) != 0) {
    const int error = errno;
    ::close(fd);
    return -error;
  }
  return fd;
}

// Makes `path` free for a socket, or says what is in its place.
Status remove_stale_socket(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) {
    return invalid_argument(
        "cannot listen on Unix socket {}: there is a file of that name that is not a socket", path);
  }
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return unavailable("cannot open a socket: {}", error_text(errno));
  const int result =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_un));
  const int error = result == 0 ? 0 : errno;
  ::close(fd);
  if (error != ECONNREFUSED) {
    return unavailable(
        "cannot listen on Unix socket {}: {}",
        path,
        error == 0 || error == EAGAIN ? "another process is listening on it" : error_text(error));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return unavailable("cannot replace the unused socket {}: {}", path, error_text(errno));
  }
  return {};
}

}  // namespace

Result<ListeningSockets> ListeningSockets::open_tcp(const std::string& host, uint16_t port) {
  ASSIGN_OR_RETURN(const AddressList list, resolve(host));
  ListeningSockets sockets;
  sockets.port_ = port;
  int first_error = 0;
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    set_port(address->ai_addr, sockets.port_);
    const int fd = listen_on(*address);
    if (fd >= 0) {
      sockets.descriptors_.push_back(fd);
      sockets.port_ = get_port(fd);
      continue;
    }
    // A name may have an address of a family that this machine does not have, and the free port of
    // one address may be taken on the next.
    const bool is_tolerable =
        -fd == EAFNOSUPPORT || -fd == EADDRNOTAVAIL || (port == 0 && !sockets.descriptors_.empty());
    if (first_error == 0) first_error = -fd;
    if (!is_tolerable) {
      return unavailable(
          "cannot listen on {}: {}{}",
          describe_endpoint(host, port),
          error_text(-fd),
          fd == -EADDRINUSE ? "; stop what listens there, or take another --port" : "");
    }
  }
  if (sockets.descriptors_.empty()) {
    return unavailable(
        "cannot listen on {}: {}", describe_endpoint(host, port), error_text(first_error));
  }
  return sockets;
}

Result<ListeningSockets> ListeningSockets::open_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path) || path.find('\0') != path.npos) {
    return invalid_argument(
        "Unix socket {}: the path must be shorter than {} bytes", path, sizeof(address.sun_path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  RETURN_IF_ERROR(remove_stale_socket(path, address));
  ListeningSockets sockets;
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return unavailable("cannot open a socket: {}", error_text(errno));
  sockets.descriptors_.push_back(fd);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return unavailable("cannot listen on Unix socket {}: {}", path, error_text(errno));
  }
  sockets.unix_path_ = path;
  if (::listen(fd, kBacklog) != 0) {
    return unavailable("cannot listen on Unix socket {}: {}", path, error_text(errno));
  }
  return sockets;
}

ListeningSockets::ListeningSockets(ListeningSockets&& other) noexcept
    : descriptors_(std::exchange(other.descriptors_, {})),
      port_(other.port_),
      unix_path_(std::exchange(other.unix_path_, {})) {}

ListeningSockets::~ListeningSockets() {
  for (const int fd : descriptors_) ::close(fd);
  if (!unix_path_.empty()) ::unlink(unix_path_.c_str());
}

std::vector<int> ListeningSockets::release_descriptors() {
  return std::exchange(descriptors_, {});
}

std::string describe_peer(const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  switch (static_cast<const sockaddr*>(address)->sa_family) {
    case AF_INET: {
      const auto* v4 = static_cast<const sockaddr_in*>(address);
      inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
      return describe_endpoint(text, ntohs(v4->sin_port));
    }
    case AF_INET6: {
      const auto* v6 = static_cast<const sockaddr_in6*>(address);
      if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, text, sizeof(text));
      } else {
        inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
      }
      return describe_endpoint(text, ntohs(v6->sin6_port));
    }
    default:
      return "unix";
  }
}

}  // namespace atom::server
