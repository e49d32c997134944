// How many requests `atom bench serve` sends, and when.
#include <string>
#include <utility>

#include "cli/bench_serve_groups.h"
#include "cli/bench_serve_option_kinds.h"

namespace atom::cli {
namespace {

using namespace atom::bench_serve;  // NOLINT: nearly every type here is its

constexpr const char* kLoadGroup = "Load";

// When requests are sent.
void add_arrival_options(BenchServeFlags* flags, std::vector<Option>* options) {
  ArrivalOptions* arrivals = &flags->benchmark.arrivals;
  options->push_back(
      number_option("--request-rate",
                    kLoadGroup,
                    0,
                    true,
                    "Requests/s, sent when they are due whatever the server does; inf "
                    "sends all at once.",
                    &arrivals->request_rate));
  options->push_back(
      number_option("--burstiness",
                    kLoadGroup,
                    0,
                    true,
                    "Shape of the gamma distribution of the gaps between requests: 1 is a "
                    "Poisson process, less is burstier, more is more even.",
                    &arrivals->burstiness));
  options->push_back(choice_option<std::string>(
      "--arrival",
      kLoadGroup,
      {{"poisson", "poisson"}, {"constant", "constant"}, {"burst", "burst"}},
      "poisson",
      "poisson leaves the gaps to --burstiness; constant makes them equal; burst sends groups of "
      "--burst-size at even gaps.",
      &flags->arrival));
  options->push_back(with_default(
      count_option("--burst-size", kLoadGroup, 1, "Requests of a burst.", &arrivals->burst_size),
      10));
  options->push_back(with_name(
      choice_option<RampUp>("--ramp-up-strategy",
                            kLoadGroup,
                            {{"linear", RampUp::kLinear}, {"exponential", RampUp::kExponential}},
                            "",
                            "Instead of --request-rate: the rate grows from --ramp-up-start-rps to "
                            "--ramp-up-end-rps over the run.",
                            &arrivals->ramp_up),
      "--ramp-up"));
  for (auto& [name, target] : {std::pair{"--ramp-up-start-rps", &arrivals->ramp_up_start},
                               std::pair{"--ramp-up-end-rps", &arrivals->ramp_up_end}}) {
    Option rate = number_option(name, kLoadGroup, -1e-9, false, "Requests/s of the ramp.", target);
    rate.default_value.clear();
    options->push_back(std::move(rate));
  }
}

}  // namespace

void add_load_options(BenchServeFlags* flags, std::vector<Option>* options) {
  BenchmarkOptions* benchmark = &flags->benchmark;
  options->push_back(with_default(
      count_option(
          "--num-prompts", kLoadGroup, 1, "Requests that are measured.", &benchmark->num_prompts),
      benchmark->num_prompts));
  options->push_back(with_default(
      count_option(
          "--num-warmups",
          kLoadGroup,
          0,
          "Requests before them. The first is sent alone: what is wrong with all is said once.",
          &benchmark->num_warmups),
      benchmark->num_warmups));
  add_arrival_options(flags, options);
  options->push_back(
      count_option("--max-concurrency",
                   kLoadGroup,
                   1,
                   "Requests under way at a time; later ones wait. No limit without it.",
                   &benchmark->max_concurrency));
  options->push_back(with_default(
      count_option("--seed", kLoadGroup, 0, "Of prompts, lengths and arrivals.", &benchmark->seed),
      0));
}

}  // namespace atom::cli
