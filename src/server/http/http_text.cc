#include "server/http/http_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <utility>

namespace atom::server {
namespace {

constexpr size_t kMaxRequestIdSize = 128;

constexpr bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

constexpr std::array<bool, 256> make_token_table() {
  std::array<bool, 256> table{};
  for (int c = 0; c < 128; ++c) table[c] = is_alphanumeric(static_cast<char>(c));
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<uint8_t>(c)] = true;
  return table;
}
constexpr std::array<bool, 256> kTokenTable = make_token_table();

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

bool is_control(char c) {
  return static_cast<uint8_t>(c) < 0x20 || c == 0x7f;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return kTokenTable[static_cast<uint8_t>(c)];
  });
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return lower(x) == lower(y);
         });
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_value(text[i + 1]);
      const int low = hex_value(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (is_control(c)) return std::nullopt;
    decoded.push_back(c);
  }
  return decoded;
}

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestIdSize &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
         });
}

std::string make_request_id() {
  static const uint64_t process = random_seed();
  static std::atomic<uint64_t> next{random_seed()};
  // A step odd and large: neighbors look different, and none repeats within 2^64.
  const uint64_t number = next.fetch_add(0x9e3779b97f4a7c15, std::memory_order_relaxed);
  std::string id;
  id.reserve(2 * 16);
  for (const uint64_t part : {process, number}) {
    for (int shift = 60; shift >= 0; shift -= 4)
      id.push_back("0123456789abcdef"[part >> shift & 15]);
  }
  return id;
}

std::string_view reason_phrase(int status) {
  static constexpr std::pair<int, std::string_view> kPhrases[] = {
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {301, "Moved Permanently"},
      {302, "Found"},
      {304, "Not Modified"},
      {307, "Temporary Redirect"},
      {308, "Permanent Redirect"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {406, "Not Acceptable"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {411, "Length Required"},
      {413, "Payload Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {422, "Unprocessable Entity"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {499, "Client Closed Request"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [code, phrase] : kPhrases) {
    if (code == status) return phrase;
  }
  return "Status";
}

std::string http_date(std::time_t time) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
                     kDays[utc.tm_wday],
                     utc.tm_mday,
                     kMonths[utc.tm_mon],
                     utc.tm_year + 1900,
                     utc.tm_hour,
                     utc.tm_min,
                     utc.tm_sec);
}

void append_header(std::string_view name, std::string_view value, std::string* out) {
  if (!is_token(name)) return;
  out->append(name).append(": ");
  const size_t begin = out->size();
  out->append(value);
  std::replace_if(out->begin() + static_cast<std::ptrdiff_t>(begin), out->end(), is_control, ' ');
  out->append("\r\n");
}

std::string error_json(int status, std::string_view message) {
  return fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":null}}}})",
                     message,
                     status == 503 ? "server_error" : "invalid_request_error");
}

}  // namespace atom::server
