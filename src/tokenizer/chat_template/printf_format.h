// Python's 'text' % values, which Jinja's `format` filter and the % operator use.
#pragma once

#include <string>

#include "tokenizer/chat_template/heap.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

// `values` is a tuple of the values, a dict for %(name)s, or the only value. Knows %s %r %d %i %u
// %f %F %e %E %g %G %x %X %o %c %% with flags, width and precision.
Value printf_format(Heap& heap, const std::string& format, const Value& values);

}  // namespace atom::jinja
