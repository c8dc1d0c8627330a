/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a request went where it went, and why a worker gets what it gets: from the decisions that
 * the router keeps.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "snap.h"
#include "table.h"

static double num(const json_t *o, const char *name)
{
	return snap_number(json_object_get(o, name));
}

static const char *text(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s != NULL ? s : "";
}

/* ---- explain ---- */

static void say_decision(const char *pool, uint64_t id, const json_t *d)
{
	printf("request %" PRIu64 " (0x%" PRIx64 ") of source 0x%" PRIx64
	       " in pool %s, %.1f s ago: %s",
	       id, id, snap_id(json_object_get(d, "source")), pool, num(d, "age_ms") / 1000,
	       text(d, "result"));
	if (json_object_get(d, "worker") != NULL) {
		printf(" to worker %.0f rank %.0f%s, cost %s\n"
		       "%s of its %.0f blocks are there",
		       num(d, "worker"), num(d, "dp_rank"),
		       num(d, "pinned") != 0 ? ", which the client has named" : "", text(d, "cost"),
		       text(d, "overlap_blocks"), num(d, "required_blocks"));
		if (json_object_get(d, "better_overlap_blocks") != NULL)
			printf("; another rank has %s", text(d, "better_overlap_blocks"));
		printf("; it waited %.0f us\n", num(d, "waited_us"));
	} else {
		printf("%s%s\n", text(d, "why")[0] != '\0' ? ": " : "", text(d, "why"));
	}
	if (json_object_get(d, "terms") == NULL) {
		printf("its candidates were not kept: one in decision_sample is (kvroute-ctl "
		       "sample "
		       "POOL 1 keeps all)\n");
		return;
	}
	printf("\nthe best of the ranks that could have it, cheapest first:\n");
	table_print(json_object_get(d, "terms"), NULL, stdout);
}

/* @return the number of the decision about request @p id, or -1. */
static long long find_decision(const json_t *list, uint64_t id)
{
	const char *number;
	json_t *d;

	json_object_foreach ((json_t *)(uintptr_t)list, number, d)
		if (snap_id(json_object_get(d, "id")) == id)
			return strtoll(number, NULL, 10);
	return -1;
}

static enum ctl_status tell(struct ctl *c, const char *pool, uint64_t id, long long number)
{
	enum ctl_status status;
	char command[160];
	json_t *d;

	snprintf(command, sizeof(command), "/kvroute/decisions,%.100s,%lld", pool, number);
	d = ctl_get(c, command, NULL, &status);
	if (d == NULL)
		return status;
	if (c->opt.json)
		ctl_print(c, d, NULL);
	else
		say_decision(pool, id, d);
	json_decref(d);
	return CTL_OK;
}

/* Among the newest decisions of every pool: a router that cannot find a request by its id. */
static enum ctl_status search(struct ctl *c, uint64_t id)
{
	enum ctl_status status;
	json_t *pools = ctl_get(c, "/kvroute/pools", NULL, &status), *v;
	long long number = -1;
	const char *pool;

	json_object_foreach (pools, pool, v) {
		char command[160];
		json_t *list;

		snprintf(command, sizeof(command), "/kvroute/decisions,%.100s", pool);
		list = ctl_get(c, command, NULL, &status);
		if (list == NULL)
			break;
		number = find_decision(json_object_get(list, "decisions"), id);
		json_decref(list);
		if (number >= 0) {
			status = tell(c, pool, id, number);
			break;
		}
	}
	json_decref(pools);
	if (status == CTL_OK && number < 0)
		return ctl_say(
			CTL_REFUSED,
			"request %" PRIu64 " is not among the newest decisions kept: of "
			"successful ones one in decision_sample is (kvroute-ctl sample POOL 1 "
			"keeps all)",
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
		return ctl_say(CTL_USAGE,
			       "explain: got \"%s\", allowed: the id of a request, decimal or 0x",
			       argv[0]);
	if (status != CTL_OK)
		return status;
	snprintf(command, sizeof(command), "/kvroute/explain,%" PRIu64 "%s%.100s", id,
		 argc == 2 ? "," : "", argc == 2 ? argv[1] : "");
	all = tel_ask(&c->t, command, err, sizeof(err));
	if (all == NULL)
		return ctl_say(CTL_DOWN, "%s", err);
	if (json_is_null(all)) {
		status = search(c, id);
	} else if (tel_refused(all)) {
		status = ctl_say(CTL_REFUSED, "%s",
				 json_string_value(json_object_get(all, "message")));
	} else if (c->opt.json) {
		ctl_print(c, all, NULL);
	} else {
		json_object_foreach (json_object_get(all, "decisions"), i, d)
			say_decision(text(d, "pool"), id, d);
	}
	json_decref(all);
	return status;
}

/* ---- why ---- */

/* What the kept decisions say of one worker. */
struct record {
	unsigned int asked, could, got, busy;
	double cost, best_cost; /* sums over those it could have had and did not get */
	double overlap, best_overlap, load, best_load;
};

static double overlap_of(const json_t *term)
{
	return num(term, "device") + num(term, "host") + num(term, "disk") + num(term, "shared");
}

/* One decision: the worker's cheapest term beside the chosen one. */
static void add_decision(struct record *r, const json_t *d, double worker)
{
	const json_t *own = NULL, *best = NULL;
	const char *i;
	json_t *t;

	json_object_foreach (json_object_get(d, "terms"), i, t) {
		if (num(t, "worker") == worker &&
		    (own == NULL || num(t, "cost") < num(own, "cost")))
			own = t;
		if (num(t, "worker") == num(d, "worker") && num(t, "dp_rank") == num(d, "dp_rank"))
			best = t;
	}
	r->asked++;
	if (own == NULL)
		return;
	if (json_object_get(own, "state") != NULL) {
		r->busy++;
		return;
	}
	r->could++;
	if (num(d, "worker") == worker) {
		r->got++;
	} else if (best != NULL) {
		r->cost += num(own, "cost");
		r->best_cost += num(best, "cost");
		r->overlap += overlap_of(own);
		r->best_overlap += overlap_of(best);
		r->load += num(own, "prefill_tokens");
		r->best_load += num(best, "prefill_tokens");
	}
}

static enum ctl_status read_record(struct ctl *c, const char *pool, double worker, struct record *r)
{
	enum ctl_status status;
	char command[160];
	const char *number;
	json_t *list, *v;

	snprintf(command, sizeof(command), "/kvroute/decisions,%.100s", pool);
	list = ctl_get(c, command, NULL, &status);
	json_object_foreach (json_object_get(list, "decisions"), number, v) {
		json_t *d;

		if (json_object_get(v, "worker") == NULL)
			continue; /* refused: nobody got it */
		snprintf(command, sizeof(command), "/kvroute/decisions,%.100s,%.20s", pool, number);
		d = ctl_get(c, command, NULL, &status);
		if (d == NULL && status != CTL_REFUSED)
			break; /* REFUSED: overwritten meanwhile */
		if (d != NULL)
			add_decision(r, d, worker);
		json_decref(d);
	}
	json_decref(list);
	return status == CTL_REFUSED ? CTL_OK : status;
}

static void say_record(const char *id, const char *pool, const struct record *r)
{
	const double n = r->could - r->got;

	if (r->asked == 0) {
		printf("no decision of pool %s is kept: kvroute-ctl sample %s 1 keeps all\n", pool,
		       pool);
		return;
	}
	printf("of the %u newest decisions kept, worker %s was among the best of %u and got %u\n",
	       r->asked, id, r->could, r->got);
	if (r->busy != 0)
		printf("in %u it was left out as overloaded, draining or unavailable\n", r->busy);
	if (r->could == 0 && r->busy == 0)
		printf("it was never among the 16 cheapest ranks, or no request may go there "
		       "(pins, taints)\n");
	if (n > 0)
		printf("where another one was chosen: cost %.3f against %.3f; %.1f blocks cached "
		       "against %.1f; %.0f tokens to prefill against %.0f\n",
		       r->cost / n, r->best_cost / n, r->overlap / n, r->best_overlap / n,
		       r->load / n, r->best_load / n);
	if (n > 0 && r->overlap < r->best_overlap)
		printf("the others have more of the prompts cached%s\n",
		       r->load > r->best_load ? ", and less to do" : "");
	else if (n > 0 && r->load > r->best_load)
		printf("the others have less to do\n");
}

static void say_state(const char *id, const json_t *w)
{
	const char *state = text(w, "state");

	printf("worker %s of pool %s is %s, %.0f requests are there, it was heard %.0f ms ago\n",
	       id, text(w, "pool"), state, num(w, "bookings"), num(w, "silent_ms"));
	if (json_object_get(w, "drained_by") != NULL && strcmp(text(w, "drained_by"), "agent") == 0)
		printf("it gets nothing new because its agent has asked for that: it stops "
		       "(SIGTERM), or it rests until SIGUSR2 comes to kvroute-agent again\n");
	else if (strcmp(state, "draining") == 0 || strcmp(state, "drained") == 0)
		printf("it gets nothing new because it drains: kvroute-ctl resume %s\n", id);
	else if (strcmp(state, "suspect") == 0)
		printf("it gets nothing new because its heartbeats do not arrive\n");
	else if (strcmp(state, "joining") == 0)
		printf("it gets nothing yet: the scheduler has not taken it in\n");
}

/* Of the worker's ranks, those that others are preferred to. */
static void say_avoided(struct ctl *c, const char *id)
{
	char command[64];
	enum ctl_status status;
	const char *rank;
	json_t *w, *r;

	snprintf(command, sizeof(command), "/kvroute/worker,%s", id);
	w = ctl_get(c, command, "ranks", &status);
	json_object_foreach (json_object_get(w, "ranks"), rank, r)
		if (json_object_get(r, "avoided") != NULL)
			printf("rank %s is avoided: %s\n", rank, text(r, "avoided"));
	json_decref(w);
}

enum ctl_status ctl_why(struct ctl *c, int argc, char **argv)
{
	enum ctl_status status;
	json_t *all = ctl_get(c, "/kvroute/workers", "workers", &status), *w;
	struct record r = {0};

	(void)argc;
	if (all == NULL)
		return status;
	w = json_object_get(json_object_get(all, "workers"), argv[0]);
	if (w == NULL) {
		json_decref(all);
		return ctl_say(CTL_REFUSED,
			       "no worker %s now; kvroute-ctl workers lists them, refused "
			       "those that may not join; why it left say the router's log and its "
			       "agent's",
			       argv[0]);
	}
	status = read_record(c, text(w, "pool"), strtod(argv[0], NULL), &r);
	if (status == CTL_OK && c->opt.json) {
		json_t *out =
			json_pack("{s:O, s:i, s:i, s:i, s:i}", "worker", w, "decisions", r.asked,
				  "candidate", r.could, "chosen", r.got, "left_out", r.busy);

		ctl_print(c, out, NULL);
		json_decref(out);
	} else if (status == CTL_OK) {
		say_state(argv[0], w);
		say_avoided(c, argv[0]);
		say_record(argv[0], text(w, "pool"), &r);
	}
	json_decref(all);
	return status;
}
