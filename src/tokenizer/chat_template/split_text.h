// The text algorithms that methods and filters share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat_template/heap.h"

namespace atom::jinja {

// The first (last) position of `wanted` in `text` from (before) there on, or npos; in linear time,
// however alike the two are, which is paid for piece by piece as it is spent.
size_t find_in(Heap& heap, std::string_view text, std::string_view wanted, size_t from = 0);
size_t find_last_in(Heap& heap, std::string_view text, std::string_view wanted);

// str.split and rsplit: without a separator at runs of whitespace. max_splits < 0: no limit. The
// separator must not be empty. Parts point into `text`.
std::vector<std::string_view> split_text(Heap& heap,
                                         std::string_view text,
                                         const std::string* separator,
                                         int64_t max_splits,
                                         bool from_right);

std::vector<std::string_view> split_lines(Heap& heap, std::string_view text, bool keep_ends);

// str.replace; count < 0: all.
std::string replace_text(
    Heap& heap, std::string_view text, std::string_view from, std::string_view to, int64_t count);

// Filled up to `width` code points at the chosen ends.
std::string pad_text(Heap& heap,
                     std::string_view text,
                     int64_t width,
                     std::string_view fill,
                     bool at_left,
                     bool at_right);

}  // namespace atom::jinja
