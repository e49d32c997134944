#include "hub/http_client.h"

#include <curl/curl.h>

#include <cctype>
#include <mutex>
#include <optional>

namespace atom::hub {
namespace {

constexpr int kMaxRedirects = 8;
constexpr size_t kMaxHeaderBytes = size_t{64} << 10;
constexpr size_t kMaxUrlBytes = size_t{16} << 10;
constexpr size_t kMaxDroppedBytes = size_t{64} << 10;  // body of an error, which nobody reads
constexpr long kReceiveBufferSize = 256L << 10;
constexpr long kConnectTimeoutSeconds = 20;
constexpr long kStallBytesPerSecond = 64;
constexpr const char* kUserAgent = "atom (libcurl)";

struct Origin {
  bool is_https = false;
  std::string text;  // "https://huggingface.co:443"
  bool operator==(const Origin& other) const { return text == other.text; }
};

std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return "";
  std::string result = text;
  curl_free(text);
  return result;
}

// Nothing when `url` is no http or https URL.
std::optional<Origin> origin_of(const std::string& url) {
  if (url.size() > kMaxUrlBytes) return std::nullopt;
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return std::nullopt;
  const std::string scheme = url_part(parsed.get(), CURLUPART_SCHEME);
  const std::string host = url_part(parsed.get(), CURLUPART_HOST);
  if ((scheme != "http" && scheme != "https") || host.empty()) return std::nullopt;
  return Origin{scheme == "https",
                scheme + "://" + host + ":" + url_part(parsed.get(), CURLUPART_PORT)};
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_transient(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return true;
    default:
      return false;
  }
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// A request on its way. libcurl calls back into it from poll().
struct Exchange {
  CURL* easy = nullptr;
  curl_slist* header_list = nullptr;
  int64_t id = 0;
  HttpRequest request;
  HttpReceiver* receiver = nullptr;
  HttpReply reply;
  size_t header_bytes = 0;
  size_t dropped_bytes = 0;
  int num_redirects = 0;
  bool delivered_headers = false;
  Status refusal;  // why we ended it
  char curl_message[CURL_ERROR_SIZE] = "";

  ~Exchange() {
    curl_easy_cleanup(easy);
    curl_slist_free_all(header_list);
  }

  void begin_response() {
    reply = HttpReply();
    header_bytes = 0;
    dropped_bytes = 0;
  }

  bool take_header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMaxHeaderBytes) {
      refusal = invalid_argument("the response has more than {} bytes of headers", kMaxHeaderBytes);
      return false;
    }
    if (line.starts_with("HTTP/")) {
      begin_response();
      long status = 0;
      curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
      reply.status = static_cast<int>(status);
      return true;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    std::string name(trimmed(line.substr(0, colon)));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    reply.headers[name] = trimmed(line.substr(colon + 1));
    return true;
  }

  bool deliver_headers() {
    if (delivered_headers || reply.status / 100 != 2) return true;
    delivered_headers = true;
    char* url = nullptr;
    curl_easy_getinfo(easy, CURLINFO_EFFECTIVE_URL, &url);
    reply.url = url == nullptr ? "" : url;
    refusal = receiver->on_headers(reply);
    return refusal.ok();
  }

  bool take_body(std::string_view bytes) {
    if (reply.status / 100 != 2) {
      dropped_bytes += bytes.size();
      return dropped_bytes <= kMaxDroppedBytes;
    }
    if (!deliver_headers()) return false;
    refusal = receiver->on_body(bytes);
    return refusal.ok();
  }
};

// The callbacks return fewer bytes than they got to end the transfer.
size_t on_header(char* data, size_t size, size_t count, void* exchange) noexcept {
  const std::string_view line(data, size * count);
  return static_cast<Exchange*>(exchange)->take_header(line) ? line.size() : 0;
}

size_t on_body(char* data, size_t size, size_t count, void* exchange) noexcept {
  const std::string_view bytes(data, size * count);
  return static_cast<Exchange*>(exchange)->take_body(bytes) ? bytes.size() : bytes.size() + 1;
}

void initialize_curl() {
  static std::once_flag once;
  std::call_once(once, [] { CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); });
}

}  // namespace

std::string HttpReply::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

struct HttpClient::Impl {
  HttpClientOptions options;
  Origin endpoint;
  CURLM* multi = nullptr;
  int64_t next_id = 1;
  std::map<int64_t, std::unique_ptr<Exchange>> exchanges;

  ~Impl() {
    while (!exchanges.empty()) remove(exchanges.begin()->first);
    curl_multi_cleanup(multi);
  }

  std::unique_ptr<Exchange> remove(int64_t id) {
    const auto it = exchanges.find(id);
    if (it == exchanges.end()) return nullptr;
    curl_multi_remove_handle(multi, it->second->easy);
    std::unique_ptr<Exchange> exchange = std::move(it->second);
    exchanges.erase(it);
    return exchange;
  }

  void set_headers(Exchange* exchange, bool with_token) {
    curl_slist_free_all(exchange->header_list);
    // Sizes and sums are of the file itself.
    exchange->header_list = curl_slist_append(nullptr, "Accept-Encoding: identity");
    if (with_token && !options.token.empty()) {
      exchange->header_list = curl_slist_append(exchange->header_list,
                                                ("Authorization: Bearer " + options.token).c_str());
    }
    curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->header_list);
  }

  void prepare(Exchange* exchange) {
    CURL* easy = exchange->easy;
    const HttpRequest& request = exchange->request;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl_message);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    // One connection per request: streams of one HTTP/2 connection would share its speed.
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, kUserAgent);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectTimeoutSeconds);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBufferSize);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    if (request.head) curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (request.has_range()) {
      const std::string range = fmt::format("{}-{}", request.begin, request.end - 1);
      curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
    }
    curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
    const std::optional<Origin> origin = origin_of(request.url);
    set_headers(exchange, origin && *origin == endpoint);
  }

  // Sends the exchange to where its response points. Nothing: it is final as it is.
  std::optional<Status> redirect(Exchange* exchange) {
    char* target = nullptr;
    curl_easy_getinfo(exchange->easy, CURLINFO_REDIRECT_URL, &target);
    if (!is_redirect(exchange->reply.status) || target == nullptr) return std::nullopt;
    const std::string url = target;
    const std::optional<Origin> origin = origin_of(url);
    if (exchange->request.head && origin && !(*origin == endpoint)) return std::nullopt;
    if (Status status = check_redirect(options.endpoint, url); !status.ok()) return status;
    if (++exchange->num_redirects > kMaxRedirects) {
      return invalid_argument("the server redirects more than {} times", kMaxRedirects);
    }
    curl_multi_remove_handle(multi, exchange->easy);
    exchange->begin_response();
    curl_easy_setopt(exchange->easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(exchange->easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    set_headers(exchange, *origin == endpoint);
    CHECK(curl_multi_add_handle(multi, exchange->easy) == CURLM_OK);
    return Status();
  }

  HttpOutcome outcome_of(Exchange* exchange, CURLcode code, Status refusal) {
    HttpOutcome outcome;
    outcome.id = exchange->id;
    char* url = nullptr;
    curl_easy_getinfo(exchange->easy, CURLINFO_EFFECTIVE_URL, &url);
    exchange->reply.url = url == nullptr ? "" : url;
    outcome.reply = std::move(exchange->reply);
    outcome.status = std::move(refusal);
    // The body of an error that was cut short says nothing that its headers do not.
    const bool answered = outcome.reply.status >= 300;
    if (outcome.status.ok() && code != CURLE_OK && !answered) {
      const char* detail = exchange->curl_message;
      outcome.transient = is_transient(code);
      outcome.status = unavailable("{}", *detail != '\0' ? detail : curl_easy_strerror(code));
    }
    return outcome;
  }

  // Nothing when the exchange goes on elsewhere.
  std::optional<HttpOutcome> finish(Exchange* exchange, CURLcode code) {
    Status refusal = exchange->refusal;
    if (refusal.ok()) {
      if (const std::optional<Status> redirected = redirect(exchange)) {
        if (redirected->ok()) return std::nullopt;
        refusal = *redirected;
      } else if (code == CURLE_OK && !exchange->deliver_headers()) {
        refusal = exchange->refusal;
      }
    }
    return outcome_of(exchange, code, std::move(refusal));
  }
};

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::create(HttpClientOptions options) {
  initialize_curl();
  const std::optional<Origin> origin = origin_of(options.endpoint);
  if (!origin) {
    return invalid_argument("HF_ENDPOINT is '{}'; expected an URL like https://huggingface.co",
                            options.endpoint.substr(0, 200));
  }
  auto impl = std::make_unique<Impl>();
  impl->endpoint = *origin;
  impl->options = std::move(options);
  impl->multi = curl_multi_init();
  if (impl->multi == nullptr) return resource_exhausted("libcurl cannot be started");
  curl_multi_setopt(
      impl->multi, CURLMOPT_MAXCONNECTS, static_cast<long>(2 * impl->options.max_connections));
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

int64_t HttpClient::start(const HttpRequest& request, HttpReceiver* receiver) {
  auto exchange = std::make_unique<Exchange>();
  exchange->easy = curl_easy_init();
  CHECK(exchange->easy != nullptr);
  exchange->id = impl_->next_id++;
  exchange->request = request;
  exchange->receiver = receiver;
  impl_->prepare(exchange.get());
  CHECK(curl_multi_add_handle(impl_->multi, exchange->easy) == CURLM_OK);
  const int64_t id = exchange->id;
  impl_->exchanges.emplace(id, std::move(exchange));
  return id;
}

void HttpClient::cancel(int64_t id) {
  impl_->remove(id);
}

std::vector<HttpOutcome> HttpClient::poll(int timeout_ms) {
  int num_running = 0;
  curl_multi_perform(impl_->multi, &num_running);
  std::vector<HttpOutcome> outcomes;
  for (int round = 0; round < 2 && outcomes.empty(); ++round) {
    if (round == 1) {
      curl_multi_poll(impl_->multi, nullptr, 0, timeout_ms, nullptr);
      curl_multi_perform(impl_->multi, &num_running);
    }
    int num_left = 0;
    while (const CURLMsg* message = curl_multi_info_read(impl_->multi, &num_left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      Exchange* exchange = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange);
      std::optional<HttpOutcome> outcome = impl_->finish(exchange, code);
      if (!outcome) continue;
      impl_->remove(outcome->id);
      outcomes.push_back(*std::move(outcome));
    }
  }
  return outcomes;
}

Status check_redirect(const std::string& endpoint, const std::string& url) {
  const std::optional<Origin> from = origin_of(endpoint);
  const std::optional<Origin> to = origin_of(url);
  if (!to) return invalid_argument("the server redirects to what is no http or https URL");
  if (!from || (from->is_https && !to->is_https)) {
    return invalid_argument("the server redirects from https to {}, which is not encrypted",
                            to->text);
  }
  return {};
}

std::string encode_path(std::string_view path, bool keep_slashes) {
  std::string encoded;
  for (const unsigned char c : path) {
    const bool plain = std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '~' ||
                       (keep_slashes && c == '/');
    encoded += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return encoded;
}

}  // namespace atom::hub
