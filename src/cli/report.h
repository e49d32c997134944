// What a command says on standard error, and how it writes its answer to standard output.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "cli/option.h"

namespace atom::cli {

// "error: ..." on standard error; returns kExitError.
int fail(const Status& status);
// The same for a wrong command line, with where to read on; returns kExitUsage.
int fail_usage(std::string_view command, const Status& status);

// A dimmed line on standard error.
void note(std::string_view line);

// Whether a file could be written as things are, without a trace: to be asked before the work whose
// result goes there. An empty path is none and fine.
Status check_writable(const std::string& path);

// Writes to standard output and flushes. False when that is closed or full; end_of_output() then
// gives the command's exit code.
bool write_out(std::string_view text);
// Says why writing failed, unless the reader just went away; returns kExitError.
int end_of_output();

}  // namespace atom::cli
