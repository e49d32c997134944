#include "tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

int combining_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

// Decomposes, orders and (for the composed forms) composes a whole text. utf8proc's own ordering is
// an insertion sort, quadratic on long runs of marks, so only its per-character parts are used.
void normalize_region(std::string_view text, NormalForm form, std::string* out) {
  int decompose_options = UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) {
    decompose_options |= UTF8PROC_COMPAT;
  }
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const char32_t c = decode_utf8(text.data() + i, &length);
    i += length;
    utf8proc_int32_t parts[64];  // the longest compatibility decomposition has 18
    int boundary = 0;
    const auto num_parts =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c),
                                parts,
                                64,
                                static_cast<utf8proc_option_t>(decompose_options),
                                &boundary);
    CHECK(num_parts >= 0);
    CHECK(num_parts <= 64);
    points.insert(points.end(), parts, parts + num_parts);
  }
  for (size_t begin = 0; begin < points.size();) {
    if (combining_class(points[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < points.size() && combining_class(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + begin, points.begin() + end, [](auto a, auto b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
  auto num_points = static_cast<utf8proc_ssize_t>(points.size());
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    num_points = utf8proc_normalize_utf32(points.data(), num_points, options);
  }
  for (utf8proc_ssize_t i = 0; i < num_points; ++i) {
    append_utf8(static_cast<char32_t>(points[i]), out);
  }
}

// Position of the first character that is not inert under NFC, or the size.
size_t find_not_inert(std::string_view text, size_t begin) {
  const UnicodeTables& tables = UnicodeTables::get();
  for (size_t i = begin; i < text.size();) {
    // Below U+0300 every character is inert, and these are the lead bytes 0x00-0xCB.
    if (static_cast<unsigned char>(text[i]) < 0xCC) {
      i += static_cast<unsigned char>(text[i]) < 0x80 ? 1 : 2;
      continue;
    }
    size_t length;
    if (!tables.nfc_inert(decode_utf8(text.data() + i, &length))) return i;
    i += length;
  }
  return text.size();
}

}  // namespace

bool is_surely_normalized(std::string_view valid_text, NormalForm form) {
  if (is_ascii(valid_text)) return true;
  return form == NormalForm::kNfc && find_not_inert(valid_text, 0) == valid_text.size();
}

std::string normalize(std::string_view valid_text, NormalForm form) {
  std::string out;
  out.reserve(valid_text.size());
  if (form != NormalForm::kNfc) {
    normalize_region(valid_text, form, &out);
    return out;
  }
  const UnicodeTables& tables = UnicodeTables::get();
  size_t done = 0;
  while (done < valid_text.size()) {
    const size_t not_inert = find_not_inert(valid_text, done);
    if (not_inert == valid_text.size()) break;
    // The region: the inert character before, which may compose, up to the next inert one.
    size_t begin = not_inert;
    if (begin > done) {
      size_t length;
      decode_utf8_before(valid_text, begin, &length);
      begin -= length;
    }
    size_t end = not_inert;
    while (end < valid_text.size()) {
      size_t length;
      if (tables.nfc_inert(decode_utf8(valid_text.data() + end, &length))) break;
      end += length;
    }
    out.append(valid_text.substr(done, begin - done));
    normalize_region(valid_text.substr(begin, end - begin), form, &out);
    done = end;
  }
  out.append(valid_text.substr(done));
  return out;
}

}  // namespace atom
