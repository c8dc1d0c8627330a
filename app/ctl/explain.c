/* SPDX-License-Identifier: BSD-3-Clause */
/* Explains, from the decisions that the router keeps, why a request was routed to its rank, and why
 * a worker receives few requests. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "sample.h"
#include "table.h"

static double get_number(const json_t *o, const char *name)
{
	return sample_to_number(json_object_get(o, name));
}

static const char *get_text(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s != NULL ? s : "";
}

/* ---- explain ---- */

static void print_decision(const char *pool, uint64_t id, const json_t *d)
{
	printf("request %" PRIu64 " (0x%" PRIx64 ") of source 0x%" PRIx64
	       " in pool %s, %.1f s ago: %s",
	       id, id, sample_to_id(json_object_get(d, "source")), pool,
	       get_number(d, "age_ms") / 1000, get_text(d, "result"));
	if (json_object_get(d, "worker") != NULL) {
		printf(" to worker %.0f rank %.0f%s, cost %s\noverlap: %s of %.0f blocks",
		       get_number(d, "worker"), get_number(d, "dp_rank"),
		       get_number(d, "pinned") != 0 ? ", pinned by the client" : "",
		       get_text(d, "cost"), get_text(d, "overlap_blocks"),
		       get_number(d, "required_blocks"));
		if (json_object_get(d, "better_overlap_blocks") != NULL)
			printf("; largest overlap of another rank: %s",
			       get_text(d, "better_overlap_blocks"));
		printf("; time in the queue: %.0f us\n", get_number(d, "waited_us"));
	} else {
		printf("%s%s\n", get_text(d, "why")[0] != '\0' ? ": " : "", get_text(d, "why"));
	}
	if (json_object_get(d, "terms") == NULL) {
		printf("candidates not recorded: only one decision in decision_sample has them; kvroute-ctl sample POOL 1 records all\n");
		return;
	}
	printf("\ncandidates, lowest cost first:\n");
	table_print(json_object_get(d, "terms"), NULL, stdout);
}

/* @return the number of the decision about request @p id; -1: none. */
static long long find_decision(const json_t *list, uint64_t id)
{
	const char *number;
	json_t *d;

	json_object_foreach ((json_t *)(uintptr_t)list, number, d)
		if (sample_to_id(json_object_get(d, "id")) == id)
			return strtoll(number, NULL, 10);
	return -1;
}

static enum ctl_status print_kept(struct ctl *c, const char *pool, uint64_t id, long long number)
{
	enum ctl_status status;
	char command[160];
	json_t *d;

	snprintf(command, sizeof(command), "/kvroute/decisions,%.100s,%lld", pool, number);
	d = ctl_query(c, command, NULL, &status);
	if (d == NULL)
		return status;
	if (c->opt.json)
		ctl_print(c, d, NULL);
	else
		print_decision(pool, id, d);
	json_decref(d);
	return CTL_OK;
}

/* Search the newest decisions of every pool, for a router without /kvroute/explain. */
static enum ctl_status search_newest(struct ctl *c, uint64_t id)
{
	enum ctl_status status;
	json_t *pools = ctl_query(c, "/kvroute/pools", "pools", &status), *v;
	long long number = -1;
	const char *pool;

	json_object_foreach (json_object_get(pools, "pools"), pool, v) {
		char command[160];
		json_t *list;

		snprintf(command, sizeof(command), "/kvroute/decisions,%.100s", pool);
		list = ctl_query(c, command, NULL, &status);
		if (list == NULL)
			break;
		number = find_decision(json_object_get(list, "decisions"), id);
		json_decref(list);
		if (number >= 0) {
			status = print_kept(c, pool, id, number);
			break;
		}
	}
	json_decref(pools);
	if (status == CTL_OK && number < 0)
		return ctl_report(
			CTL_REFUSED,
			"no decision about request %" PRIu64
			" is kept: of successful decisions only one in decision_sample is; kvroute-ctl sample POOL 1 keeps all",
			id);
	return status;
}

enum ctl_status ctl_explain(struct ctl *c, int argc, char **argv)
{
	enum ctl_status status = ctl_open(c);
	char command[200], err[256];
	const char *i;
	json_t *all, *d;
	uint64_t id;
	char *end;

	errno = 0;
	id = strtoull(argv[0], &end, 0);
	if (errno != 0 || *end != '\0' || end == argv[0] || argv[0][0] == '-')
		return ctl_report(CTL_USAGE,
				  "explain: got \"%s\", allowed: id of a request, decimal or 0x",
				  argv[0]);
	if (status != CTL_OK)
		return status;
	snprintf(command, sizeof(command), "/kvroute/explain,%" PRIu64 "%s%.100s", id,
		 argc == 2 ? "," : "", argc == 2 ? argv[1] : "");
	all = tel_ask(&c->t, command, err, sizeof(err));
	if (all == NULL)
		return ctl_report(CTL_DOWN, "%s", err);
	if (json_is_null(all)) {
		status = search_newest(c, id);
	} else if (tel_is_error(all)) {
		status = ctl_report(CTL_REFUSED, "%s",
				    json_string_value(json_object_get(all, "message")));
	} else if (c->opt.json) {
		ctl_print(c, all, NULL);
	} else {
		json_object_foreach (json_object_get(all, "decisions"), i, d)
			print_decision(get_text(d, "pool"), id, d);
	}
	json_decref(all);
	return status;
}

/* ---- why ---- */

/* Sums over the kept decisions of one worker's pool. */
struct record {
	unsigned int decisions, candidate, chosen, excluded;
	/* Of the worker and of the chosen rank, over decisions for other workers. */
	double cost, best_cost;
	double overlap, best_overlap, load, best_load;
};

static double sum_overlap(const json_t *term)
{
	return get_number(term, "device") + get_number(term, "host") + get_number(term, "disk") +
	       get_number(term, "shared");
}

/* Compare the lowest-cost term of the worker with the term of the chosen rank. */
static void add_decision(struct record *r, const json_t *d, double worker)
{
	const json_t *own = NULL, *best = NULL;
	const char *i;
	json_t *t;

	json_object_foreach (json_object_get(d, "terms"), i, t) {
		if (get_number(t, "worker") == worker &&
		    (own == NULL || get_number(t, "cost") < get_number(own, "cost")))
			own = t;
		if (get_number(t, "worker") == get_number(d, "worker") &&
		    get_number(t, "dp_rank") == get_number(d, "dp_rank"))
			best = t;
	}
	r->decisions++;
	if (own == NULL)
		return;
	if (json_object_get(own, "state") != NULL) {
		r->excluded++;
		return;
	}
	r->candidate++;
	if (get_number(d, "worker") == worker) {
		r->chosen++;
	} else if (best != NULL) {
		r->cost += get_number(own, "cost");
		r->best_cost += get_number(best, "cost");
		r->overlap += sum_overlap(own);
		r->best_overlap += sum_overlap(best);
		r->load += get_number(own, "prefill_tokens");
		r->best_load += get_number(best, "prefill_tokens");
	}
}

static enum ctl_status read_record(struct ctl *c, const char *pool, double worker, struct record *r)
{
	enum ctl_status status;
	char command[160];
	const char *number;
	json_t *list, *v;

	snprintf(command, sizeof(command), "/kvroute/decisions,%.100s", pool);
	list = ctl_query(c, command, NULL, &status);
	json_object_foreach (json_object_get(list, "decisions"), number, v) {
		json_t *d;

		if (json_object_get(v, "worker") == NULL)
			continue; /* rejected */
		snprintf(command, sizeof(command), "/kvroute/decisions,%.100s,%.20s", pool, number);
		d = ctl_query(c, command, NULL, &status);
		if (d == NULL && status != CTL_REFUSED)
			break; /* REFUSED: overwritten since the list was read */
		if (d != NULL)
			add_decision(r, d, worker);
		json_decref(d);
	}
	json_decref(list);
	return status == CTL_REFUSED ? CTL_OK : status;
}

static void print_record(const char *id, const char *pool, const struct record *r)
{
	const double n = r->candidate - r->chosen;

	if (r->decisions == 0) {
		printf("no decisions of pool %s are kept; kvroute-ctl sample %s 1 keeps all\n",
		       pool, pool);
		return;
	}
	printf("of the %u newest decisions, worker %s was a candidate in %u and was chosen in %u\n",
	       r->decisions, id, r->candidate, r->chosen);
	if (r->excluded != 0)
		printf("not eligible in %u: overloaded, draining or unavailable\n", r->excluded);
	if (r->candidate == 0 && r->excluded == 0)
		printf("never among the 16 ranks of lowest cost, or excluded by pins or taints\n");
	if (n > 0)
		printf("mean when another rank was chosen: cost %.3f, chosen %.3f; cached blocks %.1f, chosen %.1f; tokens to prefill %.0f, chosen %.0f\n",
		       r->cost / n, r->best_cost / n, r->overlap / n, r->best_overlap / n,
		       r->load / n, r->best_load / n);
	if (n > 0 && r->overlap < r->best_overlap)
		printf("cause: the chosen ranks have more of the prompts cached%s\n",
		       r->load > r->best_load ? " and less load" : "");
	else if (n > 0 && r->load > r->best_load)
		printf("cause: the chosen ranks have less load\n");
}

static void print_state(const char *id, const json_t *w)
{
	const char *state = get_text(w, "state");

	printf("worker %s of pool %s: %s, %.0f requests in flight, last heartbeat %.0f ms ago\n",
	       id, get_text(w, "pool"), state, get_number(w, "bookings"),
	       get_number(w, "silent_ms"));
	if (json_object_get(w, "drained_by") != NULL &&
	    strcmp(get_text(w, "drained_by"), "agent") == 0)
		printf("no new requests: the agent requested a drain (SIGTERM stops it; a second SIGUSR2 to kvroute-agent ends the drain)\n");
	else if (strcmp(state, "draining") == 0 || strcmp(state, "drained") == 0)
		printf("no new requests: draining by order of an operator; kvroute-ctl resume %s ends the drain\n",
		       id);
	else if (strcmp(state, "suspect") == 0)
		printf("no new requests: its heartbeats do not arrive; check agent and network\n");
	else if (strcmp(state, "joining") == 0)
		printf("no requests yet: registration is in progress\n");
}

/* The ranks of the worker that are avoided because their requests fail. */
static void print_avoided_ranks(struct ctl *c, const char *id)
{
	char command[64];
	enum ctl_status status;
	const char *rank;
	json_t *w, *r;

	snprintf(command, sizeof(command), "/kvroute/worker,%s", id);
	w = ctl_query(c, command, "ranks", &status);
	json_object_foreach (json_object_get(w, "ranks"), rank, r)
		if (json_object_get(r, "avoided") != NULL)
			printf("rank %s is avoided: %s\n", rank, get_text(r, "avoided"));
	json_decref(w);
}

enum ctl_status ctl_why(struct ctl *c, int argc, char **argv)
{
	enum ctl_status status;
	json_t *all = ctl_query(c, "/kvroute/workers", "workers", &status), *w;
	struct record r = {0};

	(void)argc;
	if (all == NULL)
		return status;
	w = json_object_get(json_object_get(all, "workers"), argv[0]);
	if (w == NULL) {
		json_decref(all);
		return ctl_report(
			CTL_REFUSED,
			"worker %s is not registered; kvroute-ctl workers lists workers, refused lists rejected ones; the logs of router and agent have the reason why it left",
			argv[0]);
	}
	status = read_record(c, get_text(w, "pool"), strtod(argv[0], NULL), &r);
	if (status == CTL_OK && c->opt.json) {
		json_t *out = json_pack("{s:O, s:i, s:i, s:i, s:i}", "worker", w, "decisions",
					r.decisions, "candidate", r.candidate, "chosen", r.chosen,
					"left_out", r.excluded);

		ctl_print(c, out, NULL);
		json_decref(out);
	} else if (status == CTL_OK) {
		print_state(argv[0], w);
		print_avoided_ranks(c, argv[0]);
		print_record(argv[0], get_text(w, "pool"), &r);
	}
	json_decref(all);
	return status;
}
