// The second view: what /metrics says, as it changes.

import { request } from "./api.js";
import { LineChart } from "./chart.js";
import { growth, quantile, rate, Sample } from "./prometheus.js";

const kInterval = 1000;   // milliseconds
const kWindow = 300;      // seconds shown, and kept
const kFirstWindow = 60;  // seconds shown while there is less to show
const kSmooth = 5;        // seconds over which rates are taken
const kLatency = 30;      // seconds whose latencies make a quantile

function quantiles(name) {
  return ({ slow, now }) => [0.5, 0.95].map((q) => 1000 * quantile(name, q, slow, now));
}

// `values(samples)`: of the newest sample `now`, one a few seconds older, `fast`, and one that is
// older still, `slow`.
const kCharts = [
  {
    title: "Tokens", unit: "per second", lines: ["generated", "of prompts"],
    values: ({ fast, now }) => [rate("atom:generation_tokens_total", fast, now),
                                rate("atom:prompt_tokens_total", fast, now)],
  },
  {
    title: "Requests", unit: "", lines: ["running", "waiting"],
    values: ({ now }) => [now.value("atom:num_requests_running"),
                          now.value("atom:num_requests_waiting")],
  },
  {
    title: "KV cache in use", unit: "%", lines: ["blocks"], max: 100,
    values: ({ now }) => [100 * now.value("atom:kv_cache_usage_perc")],
  },
  {
    title: "Prefix cache hits", unit: "% of prompt tokens", lines: ["hits"], max: 100,
    values: ({ slow, now }) => [100 * growth("atom:prefix_cache_hits_total", slow, now) /
                                growth("atom:prefix_cache_queries_total", slow, now)],
  },
  {
    title: "Time to first token", unit: "ms", lines: ["median", "95 %"],
    values: quantiles("atom:time_to_first_token_seconds"),
  },
  {
    title: "Time between tokens", unit: "ms", lines: ["median", "95 %"],
    values: quantiles("atom:inter_token_latency_seconds"),
  },
  {
    title: "Whole answers", unit: "ms", lines: ["median", "95 %"],
    values: quantiles("atom:e2e_request_latency_seconds"),
  },
  {
    title: "Time in the queue", unit: "ms", lines: ["median", "95 %"],
    values: quantiles("atom:request_queue_time_seconds"),
  },
];

export class Charts {
  constructor(root, status) {
    this.status = status;
    this.charts = kCharts.map((chart) => new LineChart(chart));
    this.points = kCharts.map(() => []);
    this.samples = [];
    this.timer = null;
    root.append(...this.charts.map((chart) => chart.root));
  }

  start() {
    if (this.timer !== null) return;
    this.timer = setInterval(() => this.read(), kInterval);
    this.read();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
  }

  async read() {
    if (document.hidden || this.isReading) return;
    this.isReading = true;
    try {
      const response = await request("metrics", { quiet: this.samples.length > 0 });
      this.take(new Sample(await response.text(), performance.now() / 1000));
      this.status.textContent = "";
    } catch (error) {
      this.status.textContent = `No measurements: ${error.message}`;
      if (error.status === 401 || error.status === 403) this.stop();
    }
    this.isReading = false;
  }

  take(now) {
    this.samples.push(now);
    const isOld = ({ seconds }) => seconds < now.seconds - kWindow;
    while (isOld(this.samples[0])) this.samples.shift();
    if (this.samples.length < 2) return;
    const since = (age) => this.samples.findLast((one) => one.seconds <= now.seconds - age) ??
                           this.samples[0];
    const age = Math.max(kFirstWindow, now.seconds - this.samples[0].seconds);
    const samples = { now, fast: since(kSmooth), slow: since(kLatency) };
    this.charts.forEach((chart, i) => {
      const points = this.points[i];
      points.push({ seconds: now.seconds, values: kCharts[i].values(samples) });
      while (isOld(points[0])) points.shift();
      chart.show(points, Math.min(age, kWindow));
    });
  }
}
