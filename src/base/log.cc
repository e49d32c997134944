#include "base/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>

#include "base/utf8.h"

namespace atom::log {
namespace {

constexpr const char* kTextPattern = "%^%L%$ %H:%M:%S.%e %v";

std::atomic<Format> current_format{Format::kText};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = spdlog::stderr_color_mt("atom");
    created->set_pattern(kTextPattern);
    created->set_level(spdlog::level::warn);
    return created;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

std::string utc_now() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     (now - seconds).count());
}

// The character that `text`, valid UTF-8, begins with; of those beyond U+FFFF, that they are.
uint32_t first_character(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  switch (utf8_sequence_size(text)) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1fu) << 6 | (byte(1) & 0x3fu);
    case 3:
      return (byte(0) & 0x0fu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    default:
      return 0x10000;
  }
}

// What a terminal obeys or what hides, turns around or breaks text: C0 and C1 (U+009B begins an
// escape sequence), line and paragraph separators, and the marks of bidirectional text.
bool is_active(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x2028 || c == 0x2029 || c == 0x061c ||
         c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

// Valid UTF-8 without active characters, so that no text can pass for another line.
void append_escaped(std::string_view text, bool quoted, std::string* out) {
  const std::string valid = to_valid_utf8(text);
  for (std::string_view rest = valid; !rest.empty();) {
    const uint32_t c = first_character(rest);
    const size_t size = utf8_sequence_size(rest);
    if (quoted && (c == '"' || c == '\\')) {
      *out += {'\\', rest[0]};
    } else if (c == '\n') {
      *out += "\\n";
    } else if (is_active(c)) {
      *out += fmt::format("\\u{:04x}", c);
    } else {
      *out += rest.substr(0, size);
    }
    rest.remove_prefix(size);
  }
}

void append_quoted(std::string_view text, std::string* out) {
  *out += '"';
  append_escaped(text, true, out);
  *out += '"';
}

void append_json(const Field::Value& value, std::string* out) {
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    append_quoted(*text, out);
  } else if (const auto* number = std::get_if<double>(&value)) {
    *out += std::isfinite(*number) ? fmt::format("{}", *number) : "null";
  } else {
    std::visit([out](auto plain) { *out += fmt::format("{}", plain); }, value);
  }
}

std::string json_line(Level level, std::string_view message, std::span<const Field> fields) {
  std::string line =
      fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",\"message\":", utc_now(), level_name(level));
  append_quoted(message, &line);
  for (const Field& field : fields) {
    line += ',';
    append_quoted(field.name(), &line);
    line += ':';
    append_json(field.value(), &line);
  }
  return line + '}';
}

// Values of plain characters stand without quotes.
std::string text_line(std::string_view message, std::span<const Field> fields) {
  std::string line;
  append_escaped(message, false, &line);
  for (const Field& field : fields) {
    line.append(" ").append(field.name()) += '=';
    const auto* text = std::get_if<std::string_view>(&field.value());
    const auto is_plain = [](char c) {
      return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '=';
    };
    if (text != nullptr && !text->empty() && std::all_of(text->begin(), text->end(), is_plain)) {
      line.append(*text);
    } else {
      append_json(field.value(), &line);
    }
  }
  return line;
}

}  // namespace

Result<Level> parse_level(std::string_view name) {
  if (name == "debug") return Level::kDebug;
  if (name == "info") return Level::kInfo;
  if (name == "warning") return Level::kWarning;
  if (name == "error") return Level::kError;
  if (name == "off") return Level::kOff;
  return invalid_argument("unknown log level '{}': use debug, info, warning, error or off", name);
}

const char* level_name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
    case Level::kOff:
      return "off";
  }
  return "";
}

Level level() {
  for (const Level candidate : {Level::kDebug, Level::kInfo, Level::kWarning, Level::kError}) {
    if (enabled(candidate)) return candidate;
  }
  return Level::kOff;
}

Result<Format> parse_format(std::string_view name) {
  if (name == "text") return Format::kText;
  if (name == "json") return Format::kJson;
  return invalid_argument("unknown log format '{}': use text or json", name);
}

void set_format(Format format) {
  current_format = format;
  logger().set_pattern(format == Format::kJson ? "%v" : kTextPattern);
}

void set_level(Level level) {
  logger().set_level(to_spdlog(level));
}

bool enabled(Level level) {
  return logger().should_log(to_spdlog(level));
}

void write(Level level, std::string_view message, std::span<const Field> fields) {
  const std::string line = current_format == Format::kJson ? json_line(level, message, fields)
                                                           : text_line(message, fields);
  logger().log(to_spdlog(level), spdlog::string_view_t(line));
}

}  // namespace atom::log
