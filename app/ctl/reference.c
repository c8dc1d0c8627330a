/* SPDX-License-Identifier: BSD-3-Clause */
#include "reference.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "kvr_metrics.h"
#include "snap.h"

struct family {
	const char *name, *help;
	const char *field; /* of a class, or of a rank */
	double part;	   /* of its unit, times the field */
};

static void head(const struct family *f, FILE *out)
{
	kvr_metrics_head(f->name, "gauge", f->help, out);
}

/* As the reference: a pool that prefills for another, else decode. */
static const char *worker_type(const json_t *snap, const char *pool)
{
	return snap_at(snap, "pools", pool, "prefill", NULL) != NULL ? "prefill" : "decode";
}

static json_t *part(const json_t *snap, const char *what)
{
	return (json_t *)(uintptr_t)snap_at(snap, what, NULL); /* the loops of jansson want it so */
}

/* ---- what waits ---- */

static const struct family queues[] = {
	{"dynamo_frontend_router_queue_pending_requests", "Requests that wait", "waiting", 1},
	{"dynamo_frontend_router_queue_pending_isl_tokens", "Prompt tokens of what waits",
	 "isl_tokens", 1},
	{"dynamo_frontend_router_queue_pending_cached_tokens", "Cached tokens of what waits",
	 "cached_tokens", 1},
};

static void put_queue(const json_t *snap, const struct family *f, FILE *out)
{
	const char *pool, *class;
	json_t *q, *v;

	head(f, out);
	json_object_foreach (part(snap, "queue"), pool, q)
		json_object_foreach (json_object_get(q, "classes"), class, v)
			fprintf(out,
				"%s{pool=\"%s\",worker_type=\"%s\",policy_class=\"%s\"} %.0f\n",
				f->name, pool, worker_type(snap, pool), class,
				snap_number(json_object_get(v, f->field)));
}

/* ---- ranks ---- */

static const struct family ranks[] = {
	{"dynamo_frontend_worker_active_decode_blocks", "Blocks of requests at the rank",
	 "active_blocks", 1},
	{"dynamo_frontend_worker_active_prefill_tokens", "Prompt tokens to prefill at the rank",
	 "active_prefill_tokens", 1},
	{"dynamo_frontend_worker_last_time_to_first_token_seconds", "Of the last first token",
	 "last_ttft_ns", 1e-9},
	{"dynamo_frontend_worker_last_inter_token_latency_seconds", "Of the last report of tokens",
	 "last_itl_ns", 1e-9},
	{"dynamo_frontend_worker_last_input_sequence_tokens", "Prompt of the last request sent",
	 "last_input_tokens", 1},
};

static void put_ranks(const json_t *snap, const struct family *f, FILE *out)
{
	const char *pool, *rank;
	json_t *loads, *v;

	head(f, out);
	json_object_foreach (part(snap, "loads"), pool, loads)
		json_object_foreach (json_object_get(loads, "ranks"), rank, v) {
			const size_t worker = strcspn(rank, "/"); /* "17/0" */
			const double x = f->part * snap_number(json_object_get(v, f->field));

			fprintf(out,
				"%s{worker_id=\"%.*s\",dp_rank=\"%s\",worker_type=\"%s\",pool=\"%"
				"s\"} "
				"%.10g\n",
				f->name, (int)worker, rank,
				rank[worker] == '/' ? rank + worker + 1 : "none",
				worker_type(snap, pool), pool, x);
		}
}

/* ---- workers ---- */

static void put_workers(const json_t *snap, FILE *out)
{
	static const struct family f = {"dynamo_component_router_worker_registered",
					"Workers that are registered", NULL, 1};
	const char *id;
	json_t *w;

	head(&f, out);
	json_object_foreach ((json_t *)(uintptr_t)snap_at(snap, "workers", "workers", NULL), id, w)
		fprintf(out, "%s{router_worker_id=\"%s\",pool=\"%s\"} 1\n", f.name, id,
			json_string_value(json_object_get(w, "pool")));
}

void reference_put(const json_t *snap, FILE *out)
{
	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++)
		put_queue(snap, &queues[i], out);
	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
		put_ranks(snap, &ranks[i], out);
	put_workers(snap, out);
}
