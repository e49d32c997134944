#include "server/http/http_server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <csignal>
#include <deque>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "server/http/io_loop.h"
#include "server/http/listening_sockets.h"

namespace atom::server {
namespace {

using boost::system::error_code;
using Clock = IoLoop::Clock;

constexpr int kMaxAccepts = 256;  // at a time, before connections have their turn
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::seconds kLogInterval{1};
// Descriptors left to the rest of the process, among them those of an engine that is started again.
constexpr size_t kReservedDescriptors = 64;
// With fewer, the rest has three quarters of those that are free.
constexpr size_t kFewDescriptors = 4 * kReservedDescriptors / 3;
constexpr size_t kMaxRefused = 512;

size_t count_open_descriptors() {
  size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end;
       entry.increment(error)) {
    ++count;
  }
  return count;
}

// Raises the limit of descriptors as far as allowed; how many connections it has room for.
size_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kReservedDescriptors;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  const size_t num_open = count_open_descriptors();
  const size_t num_free = limit.rlim_cur > num_open ? limit.rlim_cur - num_open : 0;
  return num_free > kFewDescriptors ? num_free - kReservedDescriptors : num_free / 4;
}

// A fifth of the room is for connections that are told that there is none.
Result<ConnectionLimits> limit_connections(size_t most) {
  const size_t room = raise_descriptor_limit();
  const size_t num_refused = std::min(room / 5, kMaxRefused);
  if (room == 0) {
    return resource_exhausted(
        "the limit of open files leaves no room for connections: raise it (ulimit -n)");
  }
  return ConnectionLimits{.served = std::min(most, room - num_refused), .refused = num_refused};
}

// A socket that listens; waits for connections, and pauses when there is no room for more.
class Acceptor {
 public:
  Acceptor(IoLoop* loop, int fd) : loop_(loop), descriptor_(loop->context()) {
    error_code error;
    descriptor_.assign(fd, error);
    CHECK(!error);
  }

  void wait() {
    if (waiting_ || !descriptor_.is_open()) return;
    waiting_ = true;
    descriptor_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                           [this](const error_code& error) {
                             waiting_ = false;
                             if (!error) accept();
                           });
  }

  void resume(Clock::time_point now) {
    if (now >= paused_until_) wait();
  }

  void close() {
    error_code ignored;
    descriptor_.close(ignored);
  }

 private:
  void accept() {
    for (int i = 0; i < kMaxAccepts; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof(address);
      const int fd = ::accept4(descriptor_.native_handle(),
                               reinterpret_cast<sockaddr*>(&address),
                               &size,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        loop_->add(fd, describe_peer(&address));
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      // The one connection has gone again.
      if (errno == ECONNABORTED || errno == EPROTO || errno == EINTR) continue;
      // No descriptor or memory: trying again at once would only spin.
      return pause(errno);
    }
    wait();
  }

  void pause(int error) {
    const Clock::time_point now = Clock::now();
    paused_until_ = now + kAcceptPause;
    if (now < next_log_) return;
    next_log_ = now + kLogInterval;
    log::warning("cannot accept connections: {}", std::generic_category().message(error));
  }

  IoLoop* const loop_;
  boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type> descriptor_;
  bool waiting_ = false;
  Clock::time_point paused_until_{};
  Clock::time_point next_log_{};
};

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpServerOptions& options,
                 ConnectionLimits limits,
                 Handler handler,
                 Screen screen,
                 SslContext tls,
                 ListeningSockets sockets)
      : options_(options),
        sockets_(std::move(sockets)),
        loop_(options, limits, std::move(handler), std::move(screen), std::move(tls)) {
    for (const int fd : sockets_.release_descriptors()) acceptors_.emplace_back(&loop_, fd);
    thread_ = std::thread([this] { serve(); });
  }

  ~HttpServerImpl() override {
    CHECK(std::this_thread::get_id() != thread_.get_id());
    boost::asio::post(loop_.context(), [this] {
      for (Acceptor& acceptor : acceptors_) acceptor.close();
      loop_.stop_serving();
    });
    thread_.join();
  }

  uint16_t port() const override { return sockets_.port(); }
  HttpServerStats stats() const override { return loop_.stats(); }

  Status reload_tls() override {
    if (options_.tls_certificate_file.empty()) return {};
    ASSIGN_OR_RETURN(SslContext tls,
                     make_tls_context(options_.tls_certificate_file, options_.tls_key_file));
    boost::asio::post(loop_.context(), [this, fresh = std::shared_ptr<ssl_ctx_st>(std::move(tls))] {
      loop_.set_tls(fresh);
    });
    return {};
  }

  void drain() override {
    boost::asio::post(loop_.context(), [this] {
      for (Acceptor& acceptor : acceptors_) acceptor.close();
      loop_.drain();
    });
  }

  bool wait_until_idle(std::chrono::milliseconds timeout) override {
    return loop_.wait_until_idle(timeout);
  }

 private:
  void serve() {
    // Signals are for the main thread, and a write to a closed socket is an error, not SIGPIPE.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    pthread_setname_np(pthread_self(), "atom-http");
    loop_.start_ticking([this] {
      for (Acceptor& acceptor : acceptors_) acceptor.resume(Clock::now());
    });
    loop_.run();
  }

  const HttpServerOptions options_;
  ListeningSockets sockets_;
  IoLoop loop_;
  std::deque<Acceptor> acceptors_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options,
                                                      Handler handler,
                                                      Screen screen) {
  CHECK(handler != nullptr);
  SslContext tls;
  if (!options.tls_certificate_file.empty() || !options.tls_key_file.empty()) {
    if (options.tls_certificate_file.empty() || options.tls_key_file.empty()) {
      return invalid_argument("TLS needs both a certificate file and a key file");
    }
    ASSIGN_OR_RETURN(tls, make_tls_context(options.tls_certificate_file, options.tls_key_file));
  }
  ASSIGN_OR_RETURN(const ConnectionLimits limits, limit_connections(options.max_connections));
  Result<ListeningSockets> sockets = options.unix_socket.empty()
                                         ? ListeningSockets::open_tcp(options.host, options.port)
                                         : ListeningSockets::open_unix(options.unix_socket);
  if (!sockets.ok()) return sockets.status();
  return std::unique_ptr<HttpServer>(std::make_unique<HttpServerImpl>(options,
                                                                      limits,
                                                                      std::move(handler),
                                                                      std::move(screen),
                                                                      std::move(tls),
                                                                      std::move(sockets).value()));
}

}  // namespace atom::server
