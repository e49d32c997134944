#include "server/parsers/arguments_reader.h"

namespace atom::server {

size_t ArgumentsReader::read(std::string_view text, std::string* out) {
  if (text.empty() || status_ != Status::kOpen) return 0;
  if (form_ == Form::kUnknown) {
    if (text[0] == '{') {
      form_ = Form::kObject;
      begun_ = true;
    } else if (text[0] == '"') {
      form_ = Form::kString;
      return 1 + read_string(text.substr(1), out);
    } else {
      status_ = Status::kRejected;
      return 0;
    }
  }
  return form_ == Form::kObject ? read_object(text, out) : read_string(text, out);
}

size_t ArgumentsReader::read_object(std::string_view text, std::string* out) {
  const size_t used = scanner_.scan(text);
  out->append(text.substr(0, used));
  if (scanner_.status() == JsonStatus::kDone) status_ = Status::kDone;
  if (scanner_.status() == JsonStatus::kBad) status_ = Status::kBroken;
  return used;
}

size_t ArgumentsReader::read_string(std::string_view text, std::string* out) {
  size_t used = 0;
  if (begun_) {
    used = decoder_.decode(text, out);
  } else {
    // The first byte that is no white space decides; what was decoded behind it is kept.
    std::string decoded;
    while (used < text.size() && decoder_.status() == JsonStatus::kOpen && !begun_) {
      decoded.clear();
      const size_t taken = decoder_.decode(text.substr(used, 1), &decoded);
      used += taken;
      if (decoded.empty() || is_json_space(decoded[0])) continue;
      if (decoded[0] != '{') {
        status_ = Status::kRejected;
        return used;
      }
      begun_ = true;
      out->append(decoded);
    }
    if (begun_) used += decoder_.decode(text.substr(used), out);
  }
  if (decoder_.status() == JsonStatus::kBad) {
    status_ = begun_ ? Status::kBroken : Status::kRejected;
  }
  if (decoder_.status() == JsonStatus::kDone) {
    status_ = Status::kDone;
    if (!begun_) out->append("{}");
    begun_ = true;
  }
  return used;
}

}  // namespace atom::server
