#include "tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

// A code point with its combining class above it, so that marks are ordered by comparing integers.
using ClassedPoint = uint32_t;
constexpr int kClassShift = 21;

ClassedPoint with_class(utf8proc_int32_t c, const utf8proc_property_t& property) {
  return static_cast<ClassedPoint>(property.combining_class) << kClassShift |
         static_cast<ClassedPoint>(c);
}

bool decomposes(char32_t c, const utf8proc_property_t& property) {
  return property.decomp_seqindex != UINT16_MAX || (c >= 0xAC00 && c <= 0xD7A3);
}

void decompose(std::string_view text, int options, std::vector<ClassedPoint>* points) {
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const char32_t c = decode_utf8(text.data() + i, &length);
    i += length;
    const auto point = static_cast<utf8proc_int32_t>(c);
    const utf8proc_property_t& property = *utf8proc_get_property(point);
    if (!decomposes(c, property)) {
      points->push_back(with_class(point, property));
      continue;
    }
    utf8proc_int32_t parts[64];  // the longest compatibility decomposition has 18
    int boundary = 0;
    const auto num_parts = utf8proc_decompose_char(
        point, parts, 64, static_cast<utf8proc_option_t>(options), &boundary);
    CHECK(num_parts >= 0);
    CHECK(num_parts <= 64);
    for (utf8proc_ssize_t k = 0; k < num_parts; ++k) {
      points->push_back(with_class(parts[k], *utf8proc_get_property(parts[k])));
    }
  }
}

// Puts every run of marks into the order of their classes.
void order_marks(std::vector<ClassedPoint>* points) {
  const auto by_class = [](ClassedPoint a, ClassedPoint b) {
    return a >> kClassShift < b >> kClassShift;
  };
  const auto is_mark = [](ClassedPoint point) { return point >> kClassShift != 0; };
  for (auto begin = points->begin(); begin != points->end();) {
    begin = std::find_if(begin, points->end(), is_mark);
    const auto end = std::find_if_not(begin, points->end(), is_mark);
    if (!std::is_sorted(begin, end, by_class)) std::stable_sort(begin, end, by_class);
    begin = end;
  }
}

// Decomposes, orders and (for the composed forms) composes a whole text. utf8proc's own ordering is
// an insertion sort, quadratic on long runs of marks, so only its other parts are used.
void normalize_region(std::string_view text, NormalForm form, std::string* out) {
  int options = UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  std::vector<ClassedPoint> classed;
  classed.reserve(text.size());
  decompose(text, options, &classed);
  order_marks(&classed);
  std::vector<utf8proc_int32_t> points;
  points.reserve(classed.size());
  for (const ClassedPoint point : classed) {
    points.push_back(static_cast<utf8proc_int32_t>(point & ((1u << kClassShift) - 1)));
  }
  auto num_points = static_cast<utf8proc_ssize_t>(points.size());
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    const auto compose = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    num_points = utf8proc_normalize_utf32(points.data(), num_points, compose);
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
