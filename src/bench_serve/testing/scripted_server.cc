#include "bench_serve/testing/scripted_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace atom::bench_serve {
namespace {

// Reads more; false when the client is gone.
bool receive(int fd, ssl_st* tls, std::string* received) {
  char buffer[16384];
  const ssize_t size =
      tls != nullptr ? SSL_read(tls, buffer, sizeof buffer) : recv(fd, buffer, sizeof buffer, 0);
  if (size <= 0) return false;
  received->append(buffer, static_cast<size_t>(size));
  return true;
}

SSL_CTX* self_signed_context() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  const auto* common_name = reinterpret_cast<const unsigned char*>("127.0.0.1");
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, common_name, -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  CHECK(SSL_CTX_use_certificate(context, certificate) == 1);
  CHECK(SSL_CTX_use_PrivateKey(context, key) == 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return context;
}

size_t content_length(std::string_view head) {
  constexpr std::string_view kName = "Content-Length: ";
  const size_t at = head.find(kName);
  return at == std::string_view::npos ? 0
                                      : std::strtoul(head.data() + at + kName.size(), nullptr, 10);
}

}  // namespace

void ScriptedClient::send(std::string_view bytes) {
  while (!bytes.empty() && !closed_) {
    const ssize_t size = tls_ != nullptr
                             ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                             : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size <= 0) closed_ = true;
    bytes.remove_prefix(size <= 0 ? bytes.size() : static_cast<size_t>(size));
  }
}

void ScriptedClient::respond(int status, std::string_view content_type, std::string_view body) {
  send(fmt::format("HTTP/1.1 {} Text\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n{}",
                   status,
                   content_type,
                   body.size(),
                   body));
}

void ScriptedClient::start_stream() {
  send(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
}

void ScriptedClient::send_chunk(std::string_view bytes) {
  send(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
}

void ScriptedClient::send_event(std::string_view data) {
  send_chunk(fmt::format("data: {}\n\n", data));
}

void ScriptedClient::end_stream() {
  send("0\r\n\r\n");
}

void ScriptedClient::sleep(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!*stopping_) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return;
    std::this_thread::sleep_for(
        std::min<std::chrono::duration<double>>(left, std::chrono::milliseconds(20)));
  }
}

ScriptedServer::ScriptedServer(Script script, const Options& options)
    : script_(std::move(script)), options_(options) {
  // SSL_write() has no flag against it.
  std::signal(SIGPIPE, SIG_IGN);
  if (options_.tls) tls_context_ = self_signed_context();
  const bool is_unix = !options_.unix_path.empty();
  listener_ = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(listener_ >= 0);
  if (is_unix) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    CHECK(options_.unix_path.size() < sizeof address.sun_path);
    std::memcpy(address.sun_path, options_.unix_path.data(), options_.unix_path.size());
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  CHECK(listen(listener_, 1024) == 0);
  acceptor_ = std::thread([this] { accept_connections(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  std::vector<std::thread> threads;
  {
    const MutexLock lock(&mutex_);
    for (const int fd : open_fds_) shutdown(fd, SHUT_RDWR);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  ::close(listener_);
  if (!options_.unix_path.empty()) unlink(options_.unix_path.c_str());
  SSL_CTX_free(tls_context_);
}

std::string ScriptedServer::url() const {
  if (!options_.unix_path.empty()) return "unix:" + options_.unix_path;
  return fmt::format("{}://127.0.0.1:{}", options_.tls ? "https" : "http", port_);
}

void ScriptedServer::accept_connections() {
  while (!stopping_) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const size_t connection = num_connections_++;
    const MutexLock lock(&mutex_);
    open_fds_.push_back(fd);
    threads_.emplace_back([this, fd, connection] { serve(fd, connection); });
  }
}

void ScriptedServer::serve(int fd, size_t connection) {
  ScriptedClient client;
  client.fd_ = fd;
  client.stopping_ = &stopping_;
  bool open = true;
  if (tls_context_ != nullptr) {
    client.tls_ = SSL_new(tls_context_);
    SSL_set_fd(client.tls_, fd);
    open = SSL_accept(client.tls_) == 1;
  }
  std::string received;
  while (open && !stopping_) open = serve_one(&client, &received, connection);
  if (client.tls_ != nullptr) {
    SSL_shutdown(client.tls_);
    SSL_free(client.tls_);
  }
  const MutexLock lock(&mutex_);
  std::erase(open_fds_, fd);
  ::close(fd);
}

bool ScriptedServer::serve_one(ScriptedClient* client, std::string* received, size_t connection) {
  size_t head_end = 0;
  while ((head_end = received->find("\r\n\r\n")) == std::string::npos) {
    if (!receive(client->fd_, client->tls_, received)) return false;
  }
  head_end += 4;
  ScriptedRequest request;
  request.head = received->substr(0, head_end);
  const size_t length = content_length(request.head);
  while (received->size() < head_end + length) {
    if (!receive(client->fd_, client->tls_, received)) return false;
  }
  request.body = received->substr(head_end, length);
  received->erase(0, head_end + length);
  const size_t space = request.head.find(' ');
  request.method = request.head.substr(0, space);
  request.path = request.head.substr(space + 1, request.head.find(' ', space + 1) - space - 1);
  request.index = num_requests_++;
  request.connection = connection;
  script_(request, client);
  return !client->closed_;
}

ScriptedServer::Script ScriptedServer::tokens(int num_tokens, double delay, double gap) {
  return [=](const ScriptedRequest& request, ScriptedClient* client) {
    if (request.path == "/v1/models") {
      client->respond(200, "application/json", R"({"data": [{"id": "scripted"}]})");
      return;
    }
    const bool is_chat = request.path == "/v1/chat/completions";
    if (!is_chat && request.path != "/v1/completions") {
      client->respond(404, "application/json", R"({"error": {"message": "no such path"}})");
      return;
    }
    const std::string usage =
        fmt::format(R"("usage":{{"prompt_tokens":7,"completion_tokens":{0},"total_tokens":{1}}})",
                    num_tokens,
                    num_tokens + 7);
    if (request.body.find(R"("stream":true)") == std::string::npos) {
      client->sleep(delay + gap * (num_tokens - 1));
      client->respond(200, "application/json", R"({"choices":[{"text":"a"}],)" + usage + "}");
      return;
    }
    client->start_stream();
    if (is_chat) client->send_event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})");
    for (int i = 0; i < num_tokens; ++i) {
      client->sleep(i == 0 ? delay : gap);
      const char* end = i + 1 == num_tokens ? "\"length\"" : "null";
      client->send_event(fmt::format(
          R"({{"id":"x","choices":[{{"index":0,{},"finish_reason":{}}}],"usage":null}})",
          is_chat ? R"("delta":{"content":" word"})" : R"("text":" word")",
          end));
    }
    client->send_event(R"({"id":"x","choices":[],)" + usage + "}");
    client->send_event("[DONE]");
    client->end_stream();
  };
}

}  // namespace atom::bench_serve
