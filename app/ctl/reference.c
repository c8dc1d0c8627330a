/* SPDX-License-Identifier: BSD-3-Clause */
/* One table of families per kind of object; each family reads one field of the object. */
#include "reference.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "kvr_metrics.h"
#include "sample.h"

struct family {
	const char *name, *help;
	const char *field; /* of a policy class or a rank */
	double part;	   /* factor from the field to the unit */
};

static void write_head(const struct family *f, FILE *out)
{
	kvr_metrics_head(f->name, "gauge", f->help, out);
}

/* As in the reference system: "prefill" for a prefill pool of a pair, else "decode". */
static const char *worker_type(const json_t *sample, const char *pool)
{
	return sample_get(sample, "pools", pool, "prefill", NULL) != NULL ? "prefill" : "decode";
}

static json_t *get_part(const json_t *sample, const char *what)
{
	return (json_t *)(uintptr_t)sample_get(sample, what, NULL); /* for jansson's loops */
}

/* ---- queues ---- */

static const struct family queues[] = {
	{"dynamo_frontend_router_queue_pending_requests", "Requests in the queue", "waiting", 1},
	{"dynamo_frontend_router_queue_pending_isl_tokens",
	 "Prompt tokens of the requests in the queue", "isl_tokens", 1},
	{"dynamo_frontend_router_queue_pending_cached_tokens",
	 "Cached tokens of the requests in the queue", "cached_tokens", 1},
};

static void write_queue(const json_t *sample, const struct family *f, FILE *out)
{
	const char *pool, *class;
	json_t *q, *v;

	write_head(f, out);
	json_object_foreach (get_part(sample, "queue"), pool, q)
		json_object_foreach (json_object_get(q, "classes"), class, v)
			fprintf(out,
				"%s{pool=\"%s\",worker_type=\"%s\",policy_class=\"%s\"} %.0f\n",
				f->name, pool, worker_type(sample, pool), class,
				sample_to_number(json_object_get(v, f->field)));
}

/* ---- ranks ---- */

static const struct family ranks[] = {
	{"dynamo_frontend_worker_active_decode_blocks",
	 "Blocks of the requests in flight at the rank", "active_blocks", 1},
	{"dynamo_frontend_worker_active_prefill_tokens",
	 "Prompt tokens that the rank has to prefill", "active_prefill_tokens", 1},
	{"dynamo_frontend_worker_last_time_to_first_token_seconds",
	 "Time to first token of the latest first token", "last_ttft_ns", 1e-9},
	{"dynamo_frontend_worker_last_inter_token_latency_seconds",
	 "Mean inter-token latency of the latest report of tokens", "last_itl_ns", 1e-9},
	{"dynamo_frontend_worker_last_input_sequence_tokens",
	 "Prompt tokens of the latest request dispatched", "last_input_tokens", 1},
};

static void write_ranks(const json_t *sample, const struct family *f, FILE *out)
{
	const char *pool, *rank;
	json_t *loads, *v;

	write_head(f, out);
	json_object_foreach (get_part(sample, "loads"), pool, loads)
		json_object_foreach (json_object_get(loads, "ranks"), rank, v) {
			const size_t worker = strcspn(rank, "/"); /* "17/0" */
			const double x = f->part * sample_to_number(json_object_get(v, f->field));

			fprintf(out,
				"%s{worker_id=\"%.*s\",dp_rank=\"%s\",worker_type=\"%s\",pool=\"%s\"} %.10g\n",
				f->name, (int)worker, rank,
				rank[worker] == '/' ? rank + worker + 1 : "none",
				worker_type(sample, pool), pool, x);
		}
}

/* ---- workers ---- */

static void write_workers(const json_t *sample, FILE *out)
{
	static const struct family f = {"dynamo_component_router_worker_registered",
					"Registered workers, each 1", NULL, 1};
	const char *id;
	json_t *w;

	write_head(&f, out);
	json_object_foreach ((json_t *)(uintptr_t)sample_get(sample, "workers", "workers", NULL),
			     id, w)
		fprintf(out, "%s{router_worker_id=\"%s\",pool=\"%s\"} 1\n", f.name, id,
			json_string_value(json_object_get(w, "pool")));
}

void reference_write(const json_t *sample, FILE *out)
{
	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++)
		write_queue(sample, &queues[i], out);
	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
		write_ranks(sample, &ranks[i], out);
	write_workers(sample, out);
}
