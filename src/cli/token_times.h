// When the tokens of requests that run together came, and what that says of a step.
#pragma once

#include <vector>

namespace atom::cli {

// The time of each token of one request, ascending, in seconds of a clock that all share.
using TokenTimes = std::vector<double>;

// The median over requests of the time between their tokens while all of them answer: from the last
// of the first tokens to the first of the last ones. So no step counts that computes a prompt too,
// nor one without those that have ended. 0 when there is no such time.
double shared_token_time(const std::vector<TokenTimes>& requests);

double median(std::vector<double> values);  // 0 of none

}  // namespace atom::cli
