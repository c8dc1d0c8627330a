/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <jansson.h>
#include <string.h>

#include <rte_cycles.h>

static void copy_counters(const struct load *l, uint64_t v[])
{
	for (unsigned int i = 0; i < LOAD_COUNTERS; i++)
		v[i] = kvr_stats_get(l->row, i);
}

static double share_of(uint64_t part, uint64_t whole)
{
	return whole > 0 ? (double)part / (double)whole : 0.0;
}

void load_report_progress(struct load_progress *p, const struct load *l, FILE *out)
{
	static const char *const phases[] = {"greet", "run", "drain", "leave", "over"};
	const uint64_t now = rte_rdtsc();
	const double s = (double)(now - p->tsc) / (double)l->hz;
	uint64_t v[LOAD_COUNTERS];

	copy_counters(l, v);
	if (p->began == 0)
		p->began = now;
	else
		fprintf(out,
			"%6.1f s  %-5s  sent %8.0f/s  done %8.0f/s  in flight %6lu  cached %5.1f "
			"%%  "
			"kv %8.0f blk/s  failed %lu  not sent %lu  lost %lu\n",
			(double)(now - p->began) / (double)l->hz,
			phases[atomic_load_explicit(&l->phase, memory_order_relaxed)], /* a label */
			(double)(v[LOAD_SENT] - p->last[LOAD_SENT]) / s,
			(double)(v[LOAD_COMPLETED] - p->last[LOAD_COMPLETED]) / s,
			v[LOAD_IN_FLIGHT],
			100.0 * share_of(v[LOAD_CACHED_BLOCKS] - p->last[LOAD_CACHED_BLOCKS],
					 v[LOAD_PROMPT_BLOCKS] - p->last[LOAD_PROMPT_BLOCKS]),
			(double)(v[LOAD_KV_STORED] + v[LOAD_KV_REMOVED] - p->last[LOAD_KV_STORED] -
				 p->last[LOAD_KV_REMOVED]) /
				s,
			v[LOAD_FAILED], v[LOAD_NOT_SENT], v[LOAD_LOST]);
	fflush(out);
	memcpy(p->last, v, sizeof(v));
	p->tsc = now;
}

static double cycles_to_us(const struct load *l, const struct kvr_hist *h, double q)
{
	return (double)kvr_hist_quantile(h, q) * 1e6 / (double)l->hz;
}

/* From the start of the schedule to the end of the last request, including the drain. */
static double run_seconds(const struct load *l)
{
	return l->run_end > l->start ? (double)(l->run_end - l->start) / (double)l->hz : 0;
}

static double per_second(const struct load *l, uint64_t n)
{
	const double s = run_seconds(l);

	return s > 0 ? (double)n / s : 0;
}

/* The same for requests due after the warm-up. */
static double measured_per_second(const struct load *l, uint64_t n)
{
	return l->run_end > l->warm_end
		       ? (double)n * (double)l->hz / (double)(l->run_end - l->warm_end)
		       : 0;
}

static void table_latency(const struct load *l, FILE *out, const char *name,
			  const struct kvr_hist *h, double unit)
{
	fprintf(out, "%-24s p50 %10.2f   p90 %10.2f   p99 %10.2f   max %10.2f\n", name,
		cycles_to_us(l, h, 0.5) / unit, cycles_to_us(l, h, 0.9) / unit,
		cycles_to_us(l, h, 0.99) / unit, (double)h->max * 1e6 / (double)l->hz / unit);
}

static void table_errors(const struct load *l, FILE *out)
{
	for (unsigned int c = 0; c < KVR_E_MAX; c++)
		if (l->m->code[c] > 0)
			fprintf(out, "  error %-20s %lu\n", kvr_code_name(c), l->m->code[c]);
	for (unsigned int c = 0; c < KVR_E_MAX; c++)
		if (l->m->worker_code[c] > 0)
			fprintf(out, "  worker rejected %-10s %lu\n", kvr_code_name(c),
				l->m->worker_code[c]);
}

void load_report_table(const struct load *l, FILE *out)
{
	const struct load_measures *m = l->m;
	uint64_t v[LOAD_COUNTERS];

	copy_counters(l, v);
	fprintf(out, "policy %s, %u engines x %u ranks x %u blocks, %u distinct prompts\n",
		load_policy_names[l->opt->policy], l->n_engines, l->opt->ranks,
		l->opt->blocks_per_rank, load_workload_distinct(l->work));
	fprintf(out,
		"%-24s %lu sent, %lu completed, %lu failed, %lu cancelled, %lu lost, "
		"%lu not sent\n",
		"requests", v[LOAD_SENT], v[LOAD_COMPLETED], v[LOAD_FAILED], v[LOAD_CANCELLED],
		v[LOAD_LOST], v[LOAD_NOT_SENT]);
	table_errors(l, out);
	fprintf(out, "%-24s %.3f s, %.0f completed/s, %.0f decisions/s\n", "time including drain",
		run_seconds(l), per_second(l, v[LOAD_COMPLETED]),
		per_second(l, v[LOAD_DISPATCHES]));
	fprintf(out, "%-24s %.2f %% of %lu prompt blocks\n", "cached",
		100.0 * share_of(v[LOAD_CACHED_BLOCKS], v[LOAD_PROMPT_BLOCKS]),
		v[LOAD_PROMPT_BLOCKS]);
	fprintf(out, "%-24s %.2f %% predicted; mean error %.3f blocks; exact %.2f %%\n",
		"prediction", 100.0 * share_of(v[LOAD_PREDICTED_BLOCKS], v[LOAD_PROMPT_BLOCKS]),
		share_of(v[LOAD_PREDICTION_ERROR], m->forward.count),
		100.0 * share_of(v[LOAD_PREDICTION_EXACT], m->forward.count));
	table_latency(l, out, "TTFT, ms", &m->ttft, 1e3);
	table_latency(l, out, "whole answer, ms", &m->total, 1e3);
	table_latency(l, out, "added by the router, us", &m->added, 1);
	table_latency(l, out, "  ROUTE to DISPATCH, us", &m->forward, 1);
	table_latency(l, out, "  first item, us", &m->back, 1);
	table_latency(l, out, "sent late by, us", &m->lateness, 1);
	if (l->opt->track) {
		table_latency(l, out, "router: queue, us", &m->router_queue, 1);
		table_latency(l, out, "router: TTFT, ms", &m->router_ttft, 1e3);
		table_latency(l, out, "router: ITL, ms", &m->router_itl, 1e3);
	}
	fprintf(out, "counters\n");
	for (unsigned int i = 0; i < LOAD_COUNTERS; i++)
		if (v[i] > 0)
			fprintf(out, "  %-22s %lu %s\n", load_stats_def.counters[i].name, v[i],
				load_stats_def.counters[i].unit);
}

static void put_latency(json_t *o, const char *name, const struct load *l, const struct kvr_hist *h,
			double unit)
{
	static const struct {
		const char *tail;
		double q;
	} q[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}};
	char key[64];

	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++) {
		snprintf(key, sizeof(key), "%s_%s", name, q[i].tail);
		json_object_set_new(o, key, json_real(cycles_to_us(l, h, q[i].q) / unit));
	}
}

static json_t *codes_json(const uint64_t code[])
{
	json_t *o = json_object();

	for (unsigned int c = 0; c < KVR_E_MAX; c++)
		if (code[c] > 0)
			json_object_set_new(o, kvr_code_name(c), json_integer((json_int_t)code[c]));
	return o;
}

static void put_counts(json_t *o, const struct load *l, const uint64_t v[])
{
	json_t *all = json_object();

	for (unsigned int i = 0; i < LOAD_COUNTERS; i++)
		json_object_set_new(all, load_stats_def.counters[i].name,
				    json_integer((json_int_t)v[i]));
	json_object_set_new(o, "error_codes", codes_json(l->m->code));
	json_object_set_new(o, "worker_error_codes", codes_json(l->m->worker_code));
	json_object_set_new(o, "counters", all);
}

/* Counters of one topic under short names: {"name", counter}, ... */
struct field {
	const char *name;
	enum load_counter counter;
};

static void put_group(json_t *o, const char *name, const struct field f[], size_t n,
		      const uint64_t v[])
{
	json_t *g = json_object();

	for (size_t i = 0; i < n; i++)
		json_object_set_new(g, f[i].name, json_integer((json_int_t)v[f[i].counter]));
	json_object_set_new(o, name, g);
}

static uint64_t sum_violations(const uint64_t v[])
{
	uint64_t sum = 0;

	for (unsigned int i = LOAD_V_MAX_TOKENS; i <= LOAD_V_SESSION; i++)
		sum += v[i];
	return sum;
}

static void put_disagg(json_t *o, const uint64_t v[])
{
	static const struct field f[] = {
		{"path_bootstrap", LOAD_PATH_BOOTSTRAP},
		{"path_sync", LOAD_PATH_SYNC},
		{"path_bypassed", LOAD_PATH_BYPASSED},
		{"path_aggregated", LOAD_PATH_AGGREGATED},
		{"prefill_dispatches", LOAD_PREFILL_LEGS},
		{"decode_bootstrap", LOAD_BOOTSTRAP_LEGS},
		{"decode_sync", LOAD_SYNC_LEGS},
		{"decode_bypass", LOAD_BYPASS_LEGS},
		{"transfers_verified", LOAD_TRANSFERS},
		{"transfer_timeouts", LOAD_TRANSFER_TIMEOUTS},
		{"rerouted", LOAD_REROUTED},
	};

	put_group(o, "disagg", f, RTE_DIM(f), v);
}

static void put_sessions(json_t *o, const uint64_t v[])
{
	static const struct field f[] = {
		{"begun", LOAD_SESSIONS},
		{"opened", LOAD_OPENED},
		{"bound", LOAD_BOUND},
		{"turns", LOAD_TURNS},
		{"turns_on_bound", LOAD_TURNS_ON_BOUND},
		{"turns_unbound", LOAD_TURNS_UNBOUND},
		{"misplaced", LOAD_MISPLACED},
		{"opens_refused", LOAD_OPENS_REFUSED},
		{"open_failed", LOAD_OPEN_FAILED},
		{"closed", LOAD_CLOSED},
		{"released", LOAD_CLOSED_RELEASED},
		{"abandoned", LOAD_ABANDONED},
		{"expired", LOAD_CLOSED_EXPIRED},
		{"lost_with_worker", LOAD_SESSIONS_LOST},
		{"closed_early", LOAD_CLOSED_EARLY},
		{"closed_twice", LOAD_CLOSED_TWICE},
		{"closed_unknown", LOAD_CLOSED_UNKNOWN},
		{"opened_twice", LOAD_OPENED_TWICE},
		{"unknown", LOAD_SESSION_UNKNOWN},
		{"release_lost", LOAD_RELEASE_LOST},
		{"still_open", LOAD_SESSIONS_OPEN},
	};

	put_group(o, "sessions", f, RTE_DIM(f), v);
}

static void put_kills(json_t *o, const uint64_t v[])
{
	static const struct field f[] = {
		{"kills", LOAD_KILLS},
		{"requests", LOAD_KILLED_REQUESTS},
		{"completed", LOAD_KILLED_COMPLETED},
		{"refused", LOAD_KILLED_REFUSED},
		{"other", LOAD_KILLED_OTHER},
	};

	put_group(o, "killed", f, RTE_DIM(f), v);
}

static void put_result(json_t *o, const struct load *l, const uint64_t v[])
{
	json_object_set_new(o, "requests", json_integer((json_int_t)v[LOAD_SENT]));
	json_object_set_new(o, "completed", json_integer((json_int_t)v[LOAD_COMPLETED]));
	json_object_set_new(o, "lost", json_integer((json_int_t)v[LOAD_LOST]));
	json_object_set_new(o, "errors", json_integer((json_int_t)v[LOAD_FAILED]));
	json_object_set_new(o, "cancelled", json_integer((json_int_t)v[LOAD_CANCELLED]));
	json_object_set_new(o, "not_sent", json_integer((json_int_t)v[LOAD_NOT_SENT]));
	json_object_set_new(o, "cached_share",
			    json_real(share_of(v[LOAD_CACHED_BLOCKS], v[LOAD_PROMPT_BLOCKS])));
	json_object_set_new(o, "predicted_share",
			    json_real(share_of(v[LOAD_PREDICTED_BLOCKS], v[LOAD_PROMPT_BLOCKS])));
	json_object_set_new(o, "prediction_mean_error_blocks",
			    json_real(share_of(v[LOAD_PREDICTION_ERROR], l->m->forward.count)));
	json_object_set_new(o, "seconds", json_real(run_seconds(l)));
	json_object_set_new(o, "completed_per_s", json_real(per_second(l, v[LOAD_COMPLETED])));
	json_object_set_new(o, "measured_per_s",
			    json_real(measured_per_second(l, v[LOAD_MEASURED])));
	json_object_set_new(o, "decisions_per_s", json_real(per_second(l, v[LOAD_DISPATCHES])));
	json_object_set_new(o, "busy_share",
			    json_real(share_of(v[LOAD_BUSY_CYCLES],
					       l->run_end > l->start ? l->run_end - l->start : 0)));
	json_object_set_new(o, "busy_cycles_per_request",
			    json_real(share_of(v[LOAD_BUSY_CYCLES], v[LOAD_SENT])));
}

/* Parts of the schedule without due requests are left out. */
static void put_slices(json_t *o, const struct load *l)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < LOAD_SLICES; i++) {
		const struct load_slice *s = &l->m->slices[i];
		json_t *one;

		if (s->prompt_blocks == 0 && s->ttft.count == 0)
			continue;
		one = json_object();
		json_object_set_new(one, "at_s", json_real(i * l->opt->slice));
		json_object_set_new(one, "requests", json_integer((json_int_t)s->ttft.count));
		json_object_set_new(one, "prompt_blocks",
				    json_integer((json_int_t)s->prompt_blocks));
		json_object_set_new(one, "cached_blocks",
				    json_integer((json_int_t)s->cached_blocks));
		put_latency(one, "ttft_ms", l, &s->ttft, 1e3);
		json_array_append_new(all, one);
	}
	json_object_set_new(o, "slices", all);
}

void load_report_json(const struct load *l, FILE *out)
{
	json_t *o = json_object();
	uint64_t v[LOAD_COUNTERS];

	copy_counters(l, v);
	json_object_set_new(o, "policy", json_string(load_policy_names[l->opt->policy]));
	put_result(o, l, v);
	json_object_set_new(o, "violations", json_integer((json_int_t)sum_violations(v)));
	if (l->pairs != NULL)
		put_disagg(o, v);
	if (l->sessions != NULL)
		put_sessions(o, v);
	if (l->opt->kill_every > 0)
		put_kills(o, v);
	put_latency(o, "ttft_ms", l, &l->m->ttft, 1e3);
	put_latency(o, "total_ms", l, &l->m->total, 1e3);
	put_latency(o, "added_us", l, &l->m->added, 1);
	put_latency(o, "forward_us", l, &l->m->forward, 1);
	put_latency(o, "back_us", l, &l->m->back, 1);
	put_latency(o, "late_us", l, &l->m->lateness, 1);
	if (l->opt->track) {
		put_latency(o, "router_queue_us", l, &l->m->router_queue, 1);
		put_latency(o, "router_ttft_ms", l, &l->m->router_ttft, 1e3);
		put_latency(o, "router_itl_ms", l, &l->m->router_itl, 1e3);
	}
	put_counts(o, l, v);
	if (l->m->slices != NULL)
		put_slices(o, l);
	json_dumpf(o, out, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6));
	fputc('\n', out);
	fflush(out);
	json_decref(o);
}
